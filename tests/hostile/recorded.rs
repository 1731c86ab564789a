//! The hostile dirs and recordings that come with the recorded data.

use std::time::Duration;

use super::support;
use super::support::pty::{Pty, key};
use super::{LIMIT, SOON, STATE, clean, hears, ready, reports, walk};

#[test]
fn every_hostile_dir_is_walked_through() {
    let Some(shared) = support::shared() else { return };
    let hostile = shared.join("data/hostile");
    let mut seen = 0;
    for entry in std::fs::read_dir(&hostile).unwrap().flatten() {
        if !entry.path().is_dir() || entry.file_name() == "casts" {
            continue;
        }
        walk(&entry.path());
        reports(&[&entry.path()]);
        seen += 1;
    }
    assert!(seen >= 7, "{seen} hostile dirs");
    // All at once: jobs that have nothing to do with each other.
    walk(&hostile);
    reports(&[&hostile]);
}

#[test]
fn what_is_wrong_is_said() {
    let Some(shared) = support::shared() else { return };
    let hostile = shared.join("data/hostile");
    let said = |dir: &str, words: &[&str]| {
        let path = hostile.join(dir);
        let mut pty = Pty::pilothouse(&["attach", path.to_str().unwrap()], 160, 40, &[STATE]);
        pty.wait_until("the list", SOON, ready);
        let mut text = pty.text();
        pty.send("5");
        pty.wait_for("5 Warnings", LIMIT);
        text.push_str(&pty.text());
        for word in words {
            assert!(text.contains(word), "{dir}: no {word:?} in\n{text}");
        }
        pty.send(key::CTRL_C);
        pty.wait_exit(LIMIT);
    };
    said("broken-json", &["unreadable"]);
    said("phantom-and-cancelled", &["1 phantom", "1 cancelled", "1 passed", "AgentTimeoutError"]);
    said("foreign-dirs", &["178", "another-program", "notes"]);
    said("rewards", &["reward unreadable"]);
}

#[test]
fn every_hostile_recording_plays_or_is_refused() {
    let Some(shared) = support::shared() else { return };
    for entry in std::fs::read_dir(shared.join("data/hostile/casts")).unwrap().flatten() {
        let mut pty = Pty::pilothouse(&["replay", entry.path().to_str().unwrap()], 100, 30, &[STATE]);
        pty.wait_until("something", SOON, |text| !text.trim().is_empty());
        for keys in ["p", "5", "G", ".", ",", "[", "]", "0", "/x\r", "n", ">", "<", "i", "H", "L", "\t"] {
            pty.send(keys);
            pty.settle(Duration::from_millis(15), SOON);
        }
        hears(&mut pty);
        pty.send("q");
        assert_eq!(pty.wait_exit(LIMIT).exit_code(), 0, "{:?}", entry.path());
        pty.assert_restored();
        clean(&pty);
    }
}
