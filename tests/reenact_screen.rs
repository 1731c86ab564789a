//! A recorded run in real time at 20 times its speed, on the real screen: no frame shows a half-read
//! file, phases move on, counts never go back, and the end is right.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, missing_docs)]

mod support;

use std::collections::BTreeSet;
use std::fs::OpenOptions;
use std::time::Duration;

use support::pty::Pty;
use support::reenact::Reenactment;

const SOON: Duration = Duration::from_secs(20);
const JOB: &str = "b-terminus2-mix-0.21.0";
const SIZE: (u16, u16) = (150, 44);
/// What a screen that met a half-written file would say.
const TORN: [&str; 7] = ["EOF", "expected", "unreadable", "at line", "column", "dead", "interrupted"];

/// The text of the screen after each synchronized update.
fn frames(raw: &[u8]) -> Vec<String> {
    let mut terminal = avt::Terminal::new(SIZE.0.into(), SIZE.1.into()).unwrap();
    let text = String::from_utf8_lossy(raw);
    let mut out = Vec::new();
    for frame in text.split_inclusive("\u{1b}[?2026l") {
        terminal.feed(frame);
        let rows: Vec<String> = terminal.screen().visible_lines().map(|l| l.text().trim_end().to_string()).collect();
        out.push(rows.join("\n"));
    }
    out
}

/// The number before a word on the screen, as in `8 passed`.
fn number_before(frame: &str, word: &str) -> Option<u32> {
    let at = frame.find(&format!(" {word}"))?;
    frame[..at].rsplit(' ').next()?.parse().ok()
}

#[test]
fn a_run_at_twenty_times_its_speed() {
    let Some(shared) = support::shared() else { return };
    let tmp = tempfile::tempdir().unwrap();
    let target = tmp.path().join(JOB);
    let mut run = Reenactment::load(&shared.join("data/jobs"), JOB, &target);
    let state = tmp.path().join("state");
    // The jobs dir is attached, so that the job itself appears by itself.
    std::fs::remove_dir_all(&target).unwrap();
    let args = ["attach", "--no-bell", tmp.path().to_str().unwrap()];
    let mut pty = Pty::pilothouse(&args, SIZE.0, SIZE.1, &[("PILOTHOUSE_STATE_DIR", state.to_str().unwrap())]);
    pty.wait_for("waiting for a job", SOON);
    std::fs::create_dir_all(&target).unwrap();
    // Harbor has the log open from the first moment to the last.
    let log = OpenOptions::new().create(true).append(true).open(target.join("job.log")).unwrap();
    run.apply_all_at_speed(20.0, || true);
    pty.wait_for("8 passed", SOON);
    pty.wait_for("finished", SOON);
    drop(log);
    pty.settle(Duration::from_millis(600), SOON);

    let text = pty.text();
    for word in [JOB, "8 passed", "8/23", "8/12", "AgentTimeoutError", "config: llm-401"] {
        assert!(text.contains(word), "no {word:?} at the end:\n{text}");
    }
    assert!(!text.contains("running") && !text.contains("queued"), "{text}");

    let frames = frames(&pty.raw());
    assert!(frames.len() > 30, "{} frames", frames.len());
    let (mut passed, mut queued, mut seen) = (0, u32::MAX, BTreeSet::new());
    for frame in &frames {
        // One task writes "n/a" as its reward, and a screen may say so.
        let said = frame.replace("reward unreadable", "");
        let torn = TORN.iter().find(|word| said.contains(**word));
        assert!(torn.is_none(), "{torn:?} in\n{frame}");
        if let Some(now) = number_before(frame, "passed") {
            assert!(now >= passed, "from {passed} passed back to {now}:\n{frame}");
            passed = now;
        }
        if let Some(now) = number_before(frame, "queued") {
            assert!(now <= queued, "from {queued} queued up to {now}:\n{frame}");
            queued = now;
        }
        for state in ["environment", "agent setup", "agent", "verifying", "tearing down", "passed", "failed"] {
            if frame.lines().skip(4).any(|row| row.contains(state)) {
                seen.insert(state);
            }
        }
    }
    for state in ["agent", "verifying", "tearing down", "passed", "failed"] {
        assert!(seen.contains(state), "{state} was never seen: {seen:?}");
    }
    pty.send("q");
    assert_eq!(pty.wait_exit(SOON).exit_code(), 0);
    pty.assert_restored();
    support::escapes::assert_no_foreign_escapes(&pty.raw(), support::escapes::Allowed::default());
}
