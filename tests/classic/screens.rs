//! What the operator sees, in a real terminal of the usual sizes.

use std::fs;
use std::path::Path;
use std::time::Duration;

use super::made::Run;
use super::print_of;
use crate::support::pty::{Pty, key};

const PATIENCE: Duration = Duration::from_secs(30);

fn show(state: &Path, args: &[&str], (cols, rows): (u16, u16)) -> Pty {
    let state = state.to_str().unwrap();
    Pty::pilothouse(args, cols, rows, &[("PILOTHOUSE_STATE_DIR", state), ("PILOTHOUSE_SHARED", state)])
}

fn made(runs: &Path) -> Run {
    let mut run =
        Run::begin(runs, "2025-08-15__16-23-45", &["hello-world", "raman-fitting.easy", "only-in-aggregate"], 1);
    let trial = run.end("hello-world", 1, Some(true), "agent_timeout");
    Run::episode(
        &trial,
        0,
        "Create a file.",
        Some(
            r#"{"state_analysis": "an empty directory", "explanation": "write it", "commands": [{"keystrokes": "echo hi > hello.txt\n", "is_blocking": true, "timeout_sec": 5}]}"#,
        ),
    );
    fs::write(
        trial.join("agent-logs/episode-0/debug.json"),
        r#"{"model": "m/1", "usage": {"prompt_tokens": 321, "completion_tokens": 45}}"#,
    )
    .unwrap();
    Run::episode(&trial, 1, "root@c:/app# the screen after it", Some("not json at all"));
    run.end("raman-fitting.easy", 1, Some(false), "unset");
    let alone = run.result("only-in-aggregate", 1, None, "parse_error");
    run.known(alone);
    run.metadata(&["hello-world", "raman-fitting.easy", "only-in-aggregate"], Some(1.0 / 3.0));
    run
}

#[test]
fn the_list_and_a_trial_at_the_usual_sizes() {
    for size in [(80, 24), (120, 40)] {
        let temp = tempfile::tempdir().unwrap();
        let runs = temp.path().join("runs");
        fs::create_dir(&runs).unwrap();
        let run = made(&runs);
        let before = print_of(&runs);
        let mut pty = show(temp.path(), &["attach", run.dir.to_str().unwrap()], size);
        pty.wait_for("hello-world", PATIENCE);
        pty.wait_until("class of the last trial", PATIENCE, |screen| screen.contains("only-in-agg"));
        if size.0 >= 120 {
            pty.wait_for("terminal-bench 0.2.18", PATIENCE);
        }
        assert!(!pty.text().contains("hello-world 16-23-45"), "no part of the run's id beside a task:\n{}", pty.text());
        pty.send("/hello");
        pty.send(key::ENTER);
        pty.wait_gone("raman-fitting", PATIENCE);
        pty.send(key::ENTER);
        pty.wait_for("hello-world.1-of-1", PATIENCE);
        pty.wait_until("episodes", PATIENCE, |screen| screen.contains("write it"));
        pty.send(key::CTRL_C);
        pty.wait_exit(PATIENCE);
        assert_eq!(print_of(&runs), before);
    }
}

#[test]
fn the_casts_play() {
    let temp = tempfile::tempdir().unwrap();
    let runs = temp.path().join("runs");
    fs::create_dir(&runs).unwrap();
    let run = made(&runs);
    let trial = run.trial("hello-world", 1).1;
    let mut pty = show(temp.path(), &["replay", trial.to_str().unwrap()], (80, 24));
    pty.wait_for("hello from the agent", PATIENCE);
    pty.send(key::CTRL_C);
    pty.wait_exit(PATIENCE);
}
