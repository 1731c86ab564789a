//! Job dirs and recordings that are wrong on purpose, through the real binary: a message or a marked
//! row; never a panic, a hang, a write, an escape sequence or a key on the screen.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, missing_docs)]

mod support;

#[path = "hostile/cuts.rs"]
mod cuts;
#[path = "hostile/recorded.rs"]
mod recorded;
#[path = "hostile/zoo.rs"]
mod zoo;

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use support::escapes::{Allowed, assert_no_foreign_escapes};
use support::pty::{Pty, key};

/// Generous where only the end of something is waited for.
const SOON: Duration = Duration::from_secs(30);
/// The longest that a key may wait for its answer. The aim is one second; an unoptimised build on a
/// machine that builds something else meanwhile gets more.
const LIMIT: Duration = if cfg!(debug_assertions) { Duration::from_secs(4) } else { Duration::from_secs(1) };
const STATE: (&str, &str) = ("PILOTHOUSE_STATE_DIR", concat!(env!("CARGO_TARGET_TMPDIR"), "/state"));
/// What a key that leaked would show.
const KEYS: [&str; 2] = ["sk-test-not-a-real-key", "hunter2hunter2"];
/// What lies outside of the job dir and must never be read through a link.
const OUTSIDE: &str = "THIS-LIES-OUTSIDE";

/// Everything that a write would change, of every file below a directory.
fn tree(dir: &Path) -> Vec<(PathBuf, u32, u64, i64, i64, i64)> {
    let mut out = Vec::new();
    let mut todo = vec![dir.to_path_buf()];
    while let Some(path) = todo.pop() {
        let Ok(meta) = std::fs::symlink_metadata(&path) else { continue };
        let changed = (meta.ctime(), meta.ctime_nsec());
        out.push((path.clone(), meta.mode(), meta.len(), meta.mtime_nsec(), changed.0, changed.1));
        if meta.is_dir() {
            todo.extend(std::fs::read_dir(&path).into_iter().flatten().flatten().map(|e| e.path()));
        }
    }
    out.sort();
    out
}

/// The screen hears a key within the limit.
#[track_caller]
fn hears(pty: &mut Pty) {
    pty.send("?");
    pty.wait_for("any other key closes", LIMIT);
    // The notice of an earlier key may hide nothing here: the help lies on top.
    pty.send(key::ESC);
    pty.wait_gone("any other key closes", LIMIT);
}

/// Everything was read once.
fn ready(text: &str) -> bool {
    text.contains("1 Trials") && !text.contains("reading") && !text.contains("waiting for a job")
}

fn at_home(pty: &Pty) -> bool {
    pty.text().contains("1 Trials")
}

/// Attaches, opens every view, every trial with every tab, and every replay.
fn walk(dir: &Path) {
    let before = tree(dir);
    let mut pty = Pty::pilothouse(&["attach", dir.to_str().unwrap()], 110, 30, &[STATE]);
    pty.wait_until("the list", SOON, ready);
    for view in ["5", "6", "3", "1"] {
        pty.send(view);
        hears(&mut pty);
    }
    pty.wait_for("1 Trials", LIMIT);
    // "1 Trials 7": as many rows as there are trials.
    let text = pty.text();
    let title = text.split("1 Trials ").nth(1).unwrap_or_default();
    let rows: usize = title.split_whitespace().next().unwrap_or("0").parse().unwrap();
    for row in 0..rows {
        pty.send("g");
        pty.send(&"j".repeat(row));
        pty.send(key::ENTER);
        pty.settle(Duration::from_millis(40), LIMIT);
        if at_home(&pty) {
            continue;
        }
        for _ in 0..8 {
            pty.send(key::TAB);
            pty.settle(Duration::from_millis(15), SOON);
        }
        pty.send("G");
        hears(&mut pty);
        pty.send("q");
        pty.wait_for("1 Trials", LIMIT);
        pty.send("c");
        pty.settle(Duration::from_millis(40), SOON);
        if !at_home(&pty) {
            pty.send("G");
            hears(&mut pty);
            pty.send("q");
            pty.wait_for("1 Trials", LIMIT);
        }
    }
    pty.send(key::CTRL_C);
    let quit = pty.wait_exit(LIMIT);
    assert_eq!(quit.exit_code(), 0);
    pty.assert_restored();
    clean(&pty);
    assert_eq!(before, tree(dir), "something was written below {}", dir.display());
}

/// Nothing of the files acts on the terminal, nothing secret is shown.
#[track_caller]
fn clean(pty: &Pty) {
    let raw = pty.raw();
    assert_no_foreign_escapes(&raw, Allowed::default());
    let text = String::from_utf8_lossy(&raw).into_owned();
    for secret in KEYS.iter().chain([&OUTSIDE]) {
        let at = text.find(secret);
        let near =
            |at: usize| String::from_utf8_lossy(&raw[at.saturating_sub(200)..(at + 100).min(raw.len())]).into_owned();
        assert!(at.is_none(), "{secret} is shown: {:?}", at.map(near));
    }
    assert!(!text.contains("panicked"), "{text}");
}

/// A headless command on `dirs`, ended within the limit: its standard output, and its exit code.
#[track_caller]
fn headless(args: &[&str], dirs: &[&Path]) -> (String, i32) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_pilothouse"))
        .args(args)
        .args(dirs)
        .env(STATE.0, STATE.1)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let began = Instant::now();
    fn read(mut from: impl std::io::Read + Send + 'static) -> std::thread::JoinHandle<Vec<u8>> {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            from.read_to_end(&mut bytes).unwrap();
            bytes
        })
    }
    let (out, err) = (read(child.stdout.take().unwrap()), read(child.stderr.take().unwrap()));
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if began.elapsed() > SOON {
            child.kill().unwrap();
            panic!("{args:?} {dirs:?} hangs");
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let (out, err) = (out.join().unwrap(), err.join().unwrap());
    let (out, err) = (String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap());
    for text in [&out, &err] {
        let bad = text.chars().find(|c| c.is_control() && *c != '\n');
        assert!(bad.is_none(), "{bad:?} in {text:?}");
        assert!(!KEYS.iter().any(|k| text.contains(k)) && !text.contains(OUTSIDE), "{text}");
        assert!(!text.contains("panicked"), "{text}");
    }
    (out, status.code().unwrap_or(-1))
}

/// Every headless report of `dirs`.
fn reports(dirs: &[&Path]) {
    for args in [
        ["status", "--plain"],
        ["status", "--json"],
        ["tally", "--json"],
        ["tally", "--markdown"],
        ["tally", "--plain"],
    ] {
        let (out, code) = headless(&args, dirs);
        assert!((0..=3).contains(&code), "{args:?} {dirs:?}: {code}");
        if args[1] == "--json" && code != 2 {
            let json: serde_json::Value = serde_json::from_str(&out).unwrap();
            assert_eq!(json["schema_version"], 1);
        }
    }
}
