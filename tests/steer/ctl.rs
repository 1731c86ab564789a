//! `pilothouse ctl`, and its socket.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::bench::{Bench, until};

fn socket(bench: &Bench) -> PathBuf {
    let mut found = fs::read_dir(bench.state.join("ctl")).unwrap().flatten().map(|e| e.path());
    found.find(|p| p.extension().is_some_and(|e| e == "sock")).unwrap()
}

#[test]
fn every_verb_does_what_it_says() {
    let bench = Bench::new(&["a", "b", "c", "d", "e"]);
    let mut run = bench.run("2", &[]);
    bench.wait(2, 3, 0);
    let status = bench.status();
    assert_eq!((&status["slots"], &status["paused"], &status["stop"]), (&2.into(), &false.into(), &"no".into()));
    assert_eq!(status["pid"], run.0.id());
    assert_eq!(status["queue"].as_array().unwrap().len(), 3);
    assert_eq!(bench.running(), ["a", "b"]);
    let said = bench.ask(&["status"]);
    assert!(said.contains("2 of 2 slots at work") && said.contains("3 queued") && said.contains("next: c__"), "{said}");

    // Paused, nothing begins though a slot is free; what runs runs on.
    assert!(bench.ask(&["pause", "--reason", "the cluster is needed"]).contains("paused: nothing begins, 2 at work"));
    bench.go("a");
    bench.wait(1, 3, 1);
    std::thread::sleep(Duration::from_millis(700));
    bench.wait(1, 3, 1);
    assert!(bench.ask(&["status"]).contains("paused"));

    // The order of what waits: by task, and by the trial's name.
    let d = bench.status()["queue"][1].as_str().unwrap().to_string();
    assert!(bench.ask(&["first", "e", &d]).contains("first now: e__"));
    let queue = bench.status()["queue"].to_string();
    assert!(queue.find("e__") < queue.find("d__") && queue.find("d__") < queue.find("c__"), "{queue}");
    assert_eq!(bench.refused(&["first", "b"]).0, 1);
    let (code, why) = bench.refused(&["first", "nosuch"]);
    assert!(code == 1 && why.contains("no such trial or task in this job: nosuch"), "{why}");
    bench.ask(&["resume"]);
    bench.wait(2, 2, 1);
    assert_eq!(bench.running(), ["b", "e"]);

    // Slots and agents.
    bench.ask(&["slots", "3"]);
    bench.wait(3, 1, 1);
    bench.ask(&["slots", "1"]);
    assert_eq!(bench.status()["slots"], 1);
    bench.wait(3, 1, 1);
    assert_eq!(bench.refused(&["slots", "0"]).0, 2);
    assert_eq!(bench.refused(&["slots", "99999"]).0, 1);
    bench.ask(&["agents", "2"]);
    let status = bench.status();
    assert_eq!((&status["agents"], &status["agents_at_work"]), (&2.into(), &3.into()), "those at work work on");

    // What stops something asks first; without a terminal it wants -y.
    let (code, why) = bench.refused(&["cancel", "b"]);
    assert!(code == 2 && why.contains("give -y"), "{why}");
    assert_eq!(bench.refused(&["cancel", "c", "-y"]).0, 1, "it has not begun");
    let said = bench.ask(&["cancel", "b", "e", "c", "-y", "--reason", "they hang"]);
    assert!(said.contains("cancelling b__") && said.contains("left alone: c__"), "{said}");
    bench.wait(1, 1, 3);
    assert_eq!(bench.running(), ["d"]);

    assert!(bench.ask(&["drain", "-y"]).contains("1 never begin"));
    bench.go("d");
    assert_eq!(run.end(), 75, "{}", bench.output());
    let ends = bench.results();
    let end = |task: &str| ends.iter().find(|(t, _)| t == task).map(|(_, end)| end.as_str());
    assert_eq!((end("a"), end("d"), end("c")), (Some("1.0"), Some("1.0"), None));
    assert_eq!((end("b"), end("e")), (Some("CancelledError"), Some("CancelledError")));

    // All of it is in the journal, with who and why.
    let acts = bench.acts();
    let wanted = ["pause", "first", "first", "resume", "slots", "slots", "agents", "cancel", "cancel", "drain"];
    assert_eq!(acts, wanted);
    let journal = bench.journal();
    assert_eq!(journal[0]["why"], "the cluster is needed");
    assert_eq!(journal[7]["why"], "they hang");
    assert!(journal[7]["trial"].as_str().unwrap().starts_with("b__"));
    assert!(journal.iter().all(|note| !note["operator"].as_str().unwrap().is_empty()));

    // Nobody is there any more, nor is the socket.
    let (code, why) = bench.refused(&["pause"]);
    assert!(code == 1 && why.contains("nobody to steer"), "{why}");
    assert_eq!(fs::read_dir(bench.state.join("ctl")).unwrap().count(), 0);
    assert_eq!(bench.ctl_of(&bench.path("tasks"), &["status"]).status.code(), Some(2), "no job dir");
}

#[test]
fn a_whole_job_is_stopped_and_said_so_in_json() {
    let bench = Bench::new(&["a", "b"]);
    let mut run = bench.run("1", &[]);
    bench.wait(1, 1, 0);
    let out = bench.ctl(&["cancel", "-y", "--json"]);
    let value: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!((&value["ok"], &value["status"]["stop"]), (&true.into(), &"cancel".into()), "{value}");
    assert_eq!(run.end(), 75);
    assert_eq!(bench.results(), [("a".to_string(), "CancelledError".to_string())]);
    let out = bench.ctl(&["pause", "--json"]);
    let value: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!((out.status.code(), &value["ok"]), (Some(1), &false.into()));
    assert_eq!(bench.acts(), ["stop"]);
}

#[test]
fn agents_have_slots_of_their_own() {
    let bench = Bench::new(&["a", "b", "c"]);
    let mut run = bench.run("3", &["--n-concurrent-agents", "1"]);
    bench.wait(3, 0, 0);
    until("one agent at work", || bench.status()["agents_at_work"] == 1);
    assert_eq!(bench.status()["agents"], 1);
    bench.ask(&["agents", "2"]);
    until("two agents at work", || bench.status()["agents_at_work"] == 2);
    ["a", "b", "c"].iter().for_each(|task| bench.go(task));
    assert_eq!(run.end(), 0, "{}", bench.output());
}

#[test]
fn the_socket_is_this_users_alone_and_comes_back_when_it_vanishes() {
    let bench = Bench::new(&["a"]);
    let dead = bench.state.join("ctl/dead.sock");
    fs::create_dir_all(bench.state.join("ctl")).unwrap();
    fs::set_permissions(bench.state.join("ctl"), fs::Permissions::from_mode(0o700)).unwrap();
    drop(std::os::unix::net::UnixListener::bind(&dead).unwrap());
    let mut run = bench.run("1", &[]);
    assert!(!dead.exists(), "nobody listened there");
    assert_eq!(fs::metadata(bench.state.join("ctl")).unwrap().mode() & 0o777, 0o700);
    let path = socket(&bench);
    let id = bench.status()["job"].as_str().unwrap().to_string();
    assert_eq!(path.file_stem().unwrap().to_str().unwrap(), id);

    // A copy of the job dir is not that job.
    let copy = bench.path("jobs/copy");
    assert!(std::process::Command::new("cp").arg("-a").args([&bench.job(), &copy]).status().unwrap().success());
    let out = bench.ctl_of(&copy, &["pause"]);
    assert_eq!(out.status.code(), Some(1), "{out:?}");
    assert!(String::from_utf8_lossy(&out.stderr).contains("is a copy of it"), "{out:?}");
    assert_eq!(bench.status()["paused"], false);

    // Nobody is asked in a directory that others can write to.
    fs::set_permissions(bench.state.join("ctl"), fs::Permissions::from_mode(0o755)).unwrap();
    let (code, why) = bench.refused(&["pause"]);
    assert!(code == 1 && why.contains("chmod 700"), "{why}");
    fs::set_permissions(bench.state.join("ctl"), fs::Permissions::from_mode(0o700)).unwrap();

    // The place is cleaned while it runs.
    fs::remove_dir_all(bench.state.join("ctl")).unwrap();
    until("a new socket", || bench.ctl(&["status"]).status.success());
    bench.ask(&["pause"]);
    bench.go("a");
    assert_eq!(run.end(), 0, "{}", bench.output());
}

#[test]
fn a_state_dir_with_a_long_path_is_no_obstacle() {
    let mut bench = Bench::new(&["a"]);
    bench.state = bench.path(&"long".repeat(30));
    let mut run = bench.run("1", &[]);
    let id = bench.status()["job"].as_str().unwrap().to_string();
    let uid = fs::metadata("/proc/self").unwrap().uid();
    let place = PathBuf::from(format!("/tmp/pilothouse-{uid}"));
    assert_eq!(fs::symlink_metadata(&place).unwrap().mode() & 0o777, 0o700);
    assert!(place.join(format!("{id}.sock")).exists());
    bench.go("a");
    assert_eq!(run.end(), 0);
    assert!(!place.join(format!("{id}.sock")).exists());
}

#[test]
fn nonsense_and_crowds_hold_up_nobody() {
    let bench = Bench::new(&["a"]);
    let mut run = bench.run("1", &[]);
    let path = socket(&bench);
    let say = |bytes: &[u8]| {
        let mut stream = UnixStream::connect(&path).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let _ = stream.write_all(bytes);
        let mut text = String::new();
        let _ = stream.read_to_string(&mut text);
        text
    };
    assert!(say(b"\x00\xff\x1b[31m\n").contains("\"ok\":false"));
    assert!(say(b"{\"v\":7,\"op\":\"pause\"}\n").contains("version 7 is not spoken here"));
    assert!(say(b"{\"v\":1,\"op\":\"take\"}\n").contains("only one who watches"));
    assert!(say(b"{\"v\":1,\"op\":\"cancel\",\"trials\":[]}\n").contains("no trial is named"));
    let named = say(b"{\"v\":1,\"op\":\"cancel\",\"trials\":[\"\\u001b[2Jx\"]}\n");
    assert!(named.contains("no such trial") && !named.contains('\u{1b}') && !named.contains("u001b"), "{named}");
    assert_eq!(say(&vec![b'x'; (1 << 20) + 10]), "", "a line without end");
    // A silent one is put out after its time, and holds up nobody meanwhile.
    let silent = UnixStream::connect(&path).unwrap();
    let begin = Instant::now();
    bench.ask(&["status"]);
    assert!(begin.elapsed() < Duration::from_secs(4));
    let crowd: Vec<UnixStream> = (0..60).map(|_| UnixStream::connect(&path).unwrap()).collect();
    let mut answers = String::new();
    let mut last = crowd.last().unwrap();
    last.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let _ = last.read_to_string(&mut answers);
    assert!(answers.contains("connected already"), "{answers}");
    drop((crowd, silent));
    until("room again", || bench.ctl(&["status"]).status.success());
    // A reason can not break the journal, nor a terminal.
    bench.ask(&["pause", "--reason", "x\u{1b}[2J\ny\u{202e}z sk-abcdefghijklmnopqrstuvwxyz0123456789"]);
    bench.go("a");
    assert_eq!(run.end(), 0);
    let why = bench.journal()[0]["why"].as_str().unwrap().to_string();
    assert!(!why.chars().any(|c| c.is_control() || c == '\u{202e}'), "{why:?}");
    assert!(!why.contains("sk-abcdefghijklmnop"), "{why:?}");
}
