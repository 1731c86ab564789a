//! The child: its words, its place in the system, its end.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use rustix::process::{Pid, Signal};

use crate::fake::{Place, alive, document, text, until};

fn kill(pid: u32, signal: Signal) {
    rustix::process::kill_process(Pid::from_raw(i32::try_from(pid).unwrap()).unwrap(), signal).unwrap();
}

#[test]
fn words_are_passed_on_untouched_and_the_child_stands_alone() {
    let place = Place::new();
    let odd: [&[u8]; 14] = [
        b"run",
        b"--odd",
        b"-x",
        b"*",
        b"",
        b"a b",
        b"\xff\xfe",
        b"--help",
        b"--",
        b"--json",
        b"--headless",
        b"$HOME",
        b"line\nline",
        b"-y",
    ];
    let mut command = place.command(&["harbor", "--detach", "--yes", "--no-look"]);
    command.args(odd.iter().map(|word| OsStr::from_bytes(word)));
    let out = command.output().unwrap();
    assert_eq!(out.status.code(), Some(0), "{}", text(&out.stderr));
    let mut wanted = odd.join(&0);
    wanted.push(0);
    assert_eq!(fs::read(place.path("args")).unwrap(), wanted);
    // Its input is nothing, its output a file in the state dir, for this user alone.
    let read = |name: &str| fs::read_to_string(place.path(name)).unwrap().trim().to_string();
    assert_eq!(read("stdin"), "/dev/null");
    let log = read("stdout");
    assert!(
        log == read("stderr") && Path::new(&log).starts_with(place.path("state/harbor").canonicalize().unwrap()),
        "{log}"
    );
    assert_eq!(fs::metadata(&log).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(Path::new(&read("cwd")).canonicalize().unwrap(), place.tmp.path().canonicalize().unwrap());
    // It leads a process group, in a session that is neither ours nor with a terminal.
    let stat = read("stat");
    let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
    let (group, session, terminal) = (fields[2], fields[3], fields[4]);
    assert_eq!(group, place.child().to_string());
    // As the kernel writes it: 0 where our own session began outside this PID namespace.
    let us = fs::read_to_string("/proc/self/stat").unwrap();
    let ours = us.rsplit_once(") ").unwrap().1.split(' ').nth(3).unwrap();
    assert!(session != ours && session != group && terminal == "0", "{stat}");
    // Its job dir holds what it wrote itself, and nothing of ours.
    let mut names: Vec<String> =
        fs::read_dir(place.job()).unwrap().map(|e| e.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    assert_eq!(names, ["config.json", "job.log", "lock.json", "result.json"]);
}

#[test]
fn our_flags_come_before_the_command() {
    let place = Place::new();
    let out = place.run(&["harbor", "--bogus", "run"]);
    assert!(out.status.code() == Some(2) && text(&out.stderr).contains("--bogus"), "{}", text(&out.stderr));
    let out = place.run(&["harbor", "view", "jobs"]);
    assert!(out.status.code() == Some(2) && text(&out.stderr).contains("call harbor itself"), "{}", text(&out.stderr));
    let out = place.run(&["harbor", "--harbor", "/no/such/harbor", "run", "-y"]);
    assert!(out.status.code() == Some(2) && text(&out.stderr).contains("/no/such/harbor"), "{}", text(&out.stderr));
    let help = text(&place.run(&["harbor", "--help"]).stdout);
    assert!(help.contains("before COMMAND") && help.contains("untouched"), "{help}");
    assert!(!place.path("args").exists());
}

#[test]
fn an_early_death_is_told_with_its_last_words() {
    let place = Place::new();
    let secrets = ["secret-value-of-the-key", "tok-99999999", "sk-live-0123456789abcdef0123", "given-by-flag-777"];
    let die = |args: &[&str], code: &str| {
        let mut command = place.command(args);
        command.env("FAKE_DO", "die").env("FAKE_CODE", code).env("OPENAI_API_KEY", secrets[0]);
        command.env("FAKE_TOKEN", secrets[1]).output().unwrap()
    };
    let flag = format!("MY_TOKEN={}", secrets[3]);
    let out = die(&["harbor", "--headless", "--yes", "--no-look", "run", "-y", "--ae", &flag], "1");
    let said = text(&out.stderr);
    assert_eq!(out.status.code(), Some(1), "{said}");
    assert!(said.contains("exit code 1") && said.contains("Traceback: the key **** is no good"), "{said}");
    assert!(!said.contains('\u{1b}'), "{said:?}");
    let document = document(&die(&["harbor", "--json", "--yes", "--no-look", "run", "-y", "--ae", &flag], "2"));
    assert_eq!(document["harbor"]["exit_code"], 2, "{document:#}");
    assert_eq!((&document["started"], &document["harbor"]["job_dir"]), (&true.into(), &serde_json::Value::Null));
    assert_eq!(document["output"].as_array().unwrap().len(), 2, "{document:#}");
    let listed = text(&place.run(&["harbor", "list"]).stdout);
    assert!(listed.contains("exit code 2") && listed.contains("MY_TOKEN=****"), "{listed}");
    let id = place.newest()["id"].as_str().unwrap().to_string();
    let again = die(&["harbor", "attach", &id], "0");
    assert!(text(&again.stderr).contains("before it made a job dir"), "{}", text(&again.stderr));
    // The child had all of them; nothing that was shown or kept has any.
    assert!(fs::read_to_string(place.path("key")).unwrap().contains(secrets[0]));
    let everything = [said, document.to_string(), listed, text(&again.stderr), place.kept()].join("\n");
    for secret in secrets {
        assert!(!everything.contains(secret), "{secret}: {everything}");
    }
}

#[test]
fn another_job_dir_than_asked_for_is_said() {
    let place = Place::new();
    let args =
        ["harbor", "--detach", "--json", "--yes", "--no-look", "run", "-y", "-o", "elsewhere", "--job-name", "asked"];
    let out = place.run(&args);
    let (said, document) = (text(&out.stderr), document(&out));
    assert_eq!(out.status.code(), Some(0), "{said}");
    assert!(said.contains("! it writes into") && said.contains("elsewhere/asked"), "{said}");
    let harbor = &document["harbor"];
    assert_eq!(harbor["unexpected_dir"], true, "{document:#}");
    let dir = Path::new(harbor["job_dir"].as_str().unwrap()).canonicalize().unwrap();
    assert_eq!(dir, place.job().canonicalize().unwrap());
    assert!(text(&place.run(&["harbor", "list"]).stdout).contains("not where it was asked to"));
}

#[test]
fn the_exit_code_is_known_afterwards_though_the_screen_was_killed() {
    let place = Place::new();
    let mut first = place
        .command(&["harbor", "--headless", "--yes", "--no-look", "run", "-y", "-o", "jobs", "--job-name", "watched"])
        .env("FAKE_CODE", "7")
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    until("a job dir", || place.newest()["job_dir"].is_string());
    let child = place.child();
    first.kill().unwrap();
    first.wait().unwrap();
    assert!(alive(child));
    assert_eq!(place.newest()["state"], "runs");
    // Anybody who attaches finds who works on it, by the job dir alone.
    let dir = place.job();
    let out = place.run(&["status", dir.to_str().unwrap(), "--json"]);
    let status = document(&out);
    assert!(status.to_string().contains(&format!("(pid {child}) holds job.log open")), "{status:#}");
    place.go();
    until("its end", || place.newest()["state"] == "ended");
    assert_eq!(place.newest()["exit_code"], 7);
    let out = place.run(&["harbor", "attach", dir.to_str().unwrap()]);
    assert!(text(&out.stderr).contains("exit code 7") && out.status.code() != Some(0), "{}", text(&out.stderr));
}

#[test]
fn a_signal_to_the_headless_form_stops_harbor_in_order() {
    let place = Place::new();
    let first = place
        .command(&["harbor", "--json", "--yes", "--no-look", "run", "-y", "-o", "jobs", "--job-name", "watched"])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    until("a job dir", || place.newest()["job_dir"].is_string());
    // It may not yet have taken the signals over.
    std::thread::sleep(std::time::Duration::from_millis(300));
    kill(first.id(), Signal::INT);
    let out = first.wait_with_output().unwrap();
    let said = text(&out.stderr);
    assert_eq!(out.status.code(), Some(75), "{said}");
    let document = document(&out);
    assert_eq!(
        (&document["harbor"]["exit_code"], &document["harbor"]["state"]),
        (&130.into(), &"ended".into()),
        "{said}"
    );
    assert_eq!(document["status"]["schema_version"], 1, "{document:#}");
    let journal = fs::read_to_string(place.job().join("pilothouse.jsonl")).unwrap();
    assert!(journal.contains("\"stop\"") && journal.contains("SIGINT sent"), "{journal}");
}

#[test]
fn nothing_is_said_of_what_others_started() {
    let place = Place::new();
    assert!(text(&place.run(&["harbor", "list"]).stdout).contains("no harbor was started"));
    let out = place.run(&["harbor", "attach", "4711"]);
    assert!(out.status.code() == Some(2) && text(&out.stderr).contains("pilothouse attach"), "{}", text(&out.stderr));
    // A keeper by hand starts nothing.
    let out = place.run(&["harbor", "keep"]);
    assert!(out.status.code() == Some(2) && text(&out.stdout).contains("not for use by hand"));
    // Rubbish among the notes is passed over.
    crate::fake::write(place.path("state/harbor/bad.json"), "{\"id\": \"bad\", ");
    crate::fake::write(place.path("state/harbor/worse.json"), &"[".repeat(100_000));
    assert_eq!(place.run(&["harbor", "list", "--json"]).status.code(), Some(0));
}
