//! Jobs of a user who is not root: what containers write as root is that user's in the end.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::Command;

use crate::support;
use crate::yard::{IMAGE, PASS_INSIDE, Yard, json};

/// Somebody; no account is needed.
const UID: u32 = 12_345;

fn own(dir: &Path) {
    assert!(Command::new("chown").args(["-R", &format!("{UID}:{UID}")]).arg(dir).status().unwrap().success());
}

fn owners(dir: &Path, out: &mut Vec<String>) {
    for entry in fs::read_dir(dir).unwrap().flatten() {
        let meta = fs::symlink_metadata(entry.path()).unwrap();
        if meta.uid() != UID {
            out.push(format!("{} {}", entry.path().display(), meta.uid()));
        }
        if meta.is_dir() {
            owners(&entry.path(), out);
        }
    }
}

#[test]
fn a_plain_users_job_is_all_that_users() {
    let root = fs::metadata("/proc/self").is_ok_and(|meta| meta.uid() == 0);
    let socket = fs::metadata("/var/run/docker.sock");
    let image = Command::new("docker").args(["image", "inspect", "tb-base:1"]).output();
    let (true, Ok(socket), Ok(true)) = (root, socket, image.map(|out| out.status.success())) else {
        return support::skipped("a plain user's job: needs root, a local engine and the image tb-base:1");
    };
    let dirs =
        "mkdir -p $D/deep/er; echo x > $D/deep/er/f; chmod 600 $D/deep/er/f; chmod 700 $D/deep; ln -s / $D/link;";
    let all: String = ["/logs/agent", "/logs/artifacts"].iter().map(|d| dirs.replace("$D", d)).collect();
    let late = format!("{IMAGE}\n[agent]\ntimeout_sec = 2.0");
    let yard = Yard::new()
        .task("one", &all, PASS_INSIDE, IMAGE)
        .task("late", &format!("{all} sleep 60"), PASS_INSIDE, &late)
        .task("dies", &format!("{all} kill -9 -1; sleep 1"), PASS_INSIDE, IMAGE);
    let steps = yard.temp.path().join("tasks/steps");
    let mut toml = format!("schema_version = \"1.1\"\n{IMAGE}\n");
    for step in ["a", "b"] {
        toml += &format!("[[steps]]\nname = \"{step}\"\n");
        let at = steps.join("steps").join(step);
        for (path, text) in [
            ("instruction.md", "Do it.\n".to_string()),
            ("solution/solve.sh", format!("#!/bin/bash\n{all}\n")),
            ("tests/test.sh", format!("#!/bin/bash\n{PASS_INSIDE}\n")),
        ] {
            fs::create_dir_all(at.join(path).parent().unwrap()).unwrap();
            fs::write(at.join(path), text).unwrap();
        }
    }
    fs::create_dir_all(steps.join("environment")).unwrap();
    fs::write(steps.join("task.toml"), toml).unwrap();
    let program = yard.temp.path().join("pilothouse");
    fs::copy(env!("CARGO_BIN_EXE_pilothouse"), &program).unwrap();
    own(yard.temp.path());
    let ran = Command::new("setpriv")
        .args(["--reuid", &UID.to_string(), "--regid", &UID.to_string(), "--groups", &socket.gid().to_string()])
        .arg(&program)
        .args(["run", "-p", "tasks", "-a", "oracle", "-n", "2", "--jobs-dir", "jobs", "--job-name", "job", "-y"])
        .arg("--headless")
        .current_dir(yard.temp.path())
        .env("HOME", yard.temp.path())
        .output()
        .unwrap();
    let words = format!("{}{}", String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    if words.contains("no permission for the Docker socket") {
        return support::skipped("a plain user's job: the socket's group may not use it");
    }
    let mut wrong = Vec::new();
    owners(&yard.dir(), &mut wrong);
    assert!(wrong.is_empty(), "{wrong:#?}\n{words}");
    let read = yard.read();
    assert_eq!(read.end("one"), (Some(1.0), None), "{words}");
    assert_eq!(read.end("late"), (Some(1.0), Some("AgentTimeoutError")));
    assert_eq!(read.end("steps"), (Some(1.0), None));
    // Everything in it but the first process was killed, and the files changed hands all the same.
    assert!(read.result("dies").finished.is_some(), "{words}");
    let dir = yard.dir().join(&*read.trial("steps").name);
    for step in ["a", "b"] {
        let file = dir.join("steps").join(step).join("agent/deep/er/f");
        assert_eq!(fs::metadata(file).unwrap().mode() & 0o777, 0o600);
    }
    assert!(json(&dir.join("result.json"))["reward_valid"].as_bool().unwrap());
}
