//! What can not be is refused by name before anything begins.

use std::fs;

use super::{SECRET, agent, pilothouse, said, tell};
use crate::yard::{IMAGE, Yard};

const FILE: &str = "name = \"odd\"\nmodel = \"required\"\n[run]\ncommand = \"true\"\n[keys]\nany = [\"FAKE_KEY\"]\n\
                    [options.effort]\nchoices = [\"low\", \"high\"]\n";

#[test]
fn what_can_not_be_is_refused_by_name() {
    let yard = Yard::new().task("t", "exit 1", "exit 1", IMAGE);
    tell(&yard, "x\n");
    agent(&yard, "odd", FILE);
    agent(&yard, "broken", "name = \"broken\"\n[run]\ncomand = \"x\"\n");
    agent(&yard, "oracle", "name = \"oracle\"\n[run]\ncommand = \"true\"\n");
    let key = [("FAKE_KEY", SECRET)];
    for (args, env, words) in [
        (vec!["-a", "nobody"], &key[..], vec!["nobody", "oracle", "mini-swe-agent"]),
        (vec!["-a", "broken"], &key, vec!["broken.toml:3", "unknown field `comand`"]),
        (vec!["-a", "odd"], &key, vec!["no model: name it with -m provider/name"]),
        (vec!["-a", "odd", "-m", "bare"], &key, vec!["model bare: provider/name"]),
        (vec!["-a", "odd", "-m", "a/b"], &[], vec!["no key: set FAKE_KEY here, or with --ae"]),
        (vec!["-a", "odd", "-m", "a/b", "--ak", "efort=low"], &key, vec!["efort: no such setting of odd", "effort"]),
        (vec!["-a", "odd", "-m", "a/b", "--ak", "effort=some"], &key, vec!["effort: \"some\" is none of low, high"]),
        (vec!["-a", "odd", "-m", "a/b", "--ak", "version=$(id)"], &key, vec!["version", "is no version"]),
        (vec!["-a", "mini-swe-agent", "-m", "openai/x"], &[], vec!["no key: set MSWEA_API_KEY or OPENAI_API_KEY"]),
    ] {
        let out = pilothouse(&yard, &args, env);
        let said = said(&out);
        assert_eq!(out.status.code(), Some(2), "{args:?}: {said}");
        for word in words {
            assert!(said.contains(word), "{args:?}: {word:?} in {said}");
        }
        assert!(!said.contains(SECRET), "{said}");
    }
    // The list says which file is wrong, and prints the one that explains.
    let list = |args: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_pilothouse"));
        command.arg("agents").args(args).env("XDG_CONFIG_HOME", yard.temp.path().join("config")).output().unwrap()
    };
    let (all, text) = (list(&[]), super::said(&list(&[])));
    assert_eq!(all.status.code(), Some(2), "{text}");
    for word in ["terminus-2", "mini-swe-agent  shipped file", "unknown field `comand`"] {
        assert!(text.contains(word), "{word:?} in {text}");
    }
    let wrong =
        text.lines().any(|line| line.starts_with("oracle ") && line.contains("an agent of this name is built in"));
    assert!(wrong, "{text}");
    let example = list(&["example"]);
    let text = String::from_utf8(example.stdout).unwrap();
    assert!(example.status.success() && text.contains("name = \"example\""), "{text}");
    assert_eq!(super::said(&list(&["odd"])), FILE);
    assert_eq!(list(&["nobody"]).status.code(), Some(2));
    assert!(!yard.dir().exists() && fs::read_dir(yard.temp.path().join("tasks")).unwrap().count() == 1);
}
