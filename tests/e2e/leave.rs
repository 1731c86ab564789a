//! Leaving: the terminal is given back, whatever happens, and the exit code says what did.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::support::job::Job;
use super::support::pty::{Pty, key};
use super::support::{proc, shell};
use super::{SOON, STATE, quit, start, start_with};

fn opened(job: &Job) -> Pty {
    let pty = start(&["attach", job.arg()], 100, 30);
    pty.wait_for("alpha-task", SOON);
    let during = pty.modes();
    assert!(during.alternate_screen && !during.cursor_visible && during.bracketed_paste && !during.synchronized);
    assert!(!pty.line_modes().is_cooked());
    pty
}

#[test]
fn keys_leave_with_zero() {
    let job = Job::finished("night-run");
    quit(&mut opened(&job));
    // Ctrl-C leaves at once, from a prompt too.
    for before in ["", "/abc", "?", ":", "c"] {
        let mut pty = opened(&job);
        pty.send(before);
        pty.send(key::CTRL_C);
        assert_eq!(pty.wait_exit(SOON).exit_code(), 0, "after {before:?}");
        pty.assert_restored();
    }
}

#[test]
fn signals_leave_with_130() {
    let job = Job::finished("night-run");
    for signal in [Signal::TERM, Signal::HUP, Signal::INT] {
        let mut pty = opened(&job);
        pty.kill(signal);
        assert_eq!(pty.wait_exit(SOON).exit_code(), 130, "{signal:?}");
        pty.assert_restored();
    }
}

#[test]
fn a_panic_leaves_a_sane_terminal_and_says_so() {
    let job = Job::finished("night-run");
    for place in ["draw", "follow"] {
        // A backtrace would push the message off the screen.
        let env = [("PILOTHOUSE_TEST_PANIC", place), ("RUST_BACKTRACE", "0")];
        let mut pty = start_with(&["attach", job.arg()], 100, 30, &env);
        assert_eq!(pty.wait_exit(SOON).exit_code(), 101, "{place}: {}", pty.text());
        pty.assert_restored();
        let raw = String::from_utf8_lossy(&pty.raw()).into_owned();
        let back = raw.rfind("\u{1b}[?1049l").unwrap();
        let said = format!("asked to panic in {place}");
        assert!(pty.text().contains(&said), "the message is on the shell's screen: {}", pty.text());
        assert_eq!(raw.matches("\u{1b}[?1049l").count(), 1);
        assert!(!raw[back..].contains("\u{1b}[?2026h"), "nothing is drawn after it");
    }
}

#[test]
fn what_can_not_be_attached_is_refused_before_the_screen_opens() {
    let mut pty = start(&["attach", "/nonexistent/job"], 100, 30);
    assert_eq!(pty.wait_exit(SOON).exit_code(), 2);
    assert!(pty.text().contains("/nonexistent/job"), "{}", pty.text());
    assert!(!String::from_utf8_lossy(&pty.raw()).contains('\u{1b}'));
    pty.assert_restored();
}

#[test]
fn ctrl_z_and_fg() {
    let job = Job::finished("night-run");
    let mut pty = shell::open(100, 30, &[STATE]);
    let line = format!("'{}' attach '{}'", env!("CARGO_BIN_EXE_pilothouse"), job.arg());
    shell::start_stop_and_continue(&mut pty, &line, "alpha-task");
    // It works on: the whole screen is there and keys are heard.
    pty.wait_for("finished", SOON);
    pty.send("5");
    pty.wait_for("5 Warnings", SOON);
    pty.send("q");
    pty.wait_for("1 Trials", SOON);
    pty.send("q");
    shell::close(pty, "");
}

#[test]
fn stopped_and_continued_from_outside() {
    let job = Job::finished("night-run");
    let mut pty = opened(&job);
    pty.kill(Signal::STOP);
    proc::wait_state(pty.pid(), 'T', SOON);
    let before = pty.raw_len();
    pty.kill(Signal::CONT);
    pty.wait_until("a whole new frame", SOON, |_| true);
    let began = Instant::now();
    while pty.raw_len() < before + 500 {
        assert!(began.elapsed() < SOON, "nothing was drawn anew");
        std::thread::sleep(Duration::from_millis(5));
    }
    pty.wait_for("alpha-task", SOON);
    quit(&mut pty);
}

/// Holds a pty with the screen in it, so that killing this process closes the screen's terminal.
#[test]
#[ignore = "started by the next one"]
fn holder() {
    let dir = PathBuf::from(std::env::var_os("PILOTHOUSE_HELD_JOB").unwrap());
    // The hang-up signal is ignored, so that the terminal's silence is all there is to notice.
    let line = format!("trap '' HUP; exec '{}' attach '{}'", env!("CARGO_BIN_EXE_pilothouse"), dir.display());
    let pty = Pty::spawn("/bin/sh", &["-c", &line], 100, 30, &[STATE]);
    pty.wait_for("alpha-task", SOON);
    println!("holding {}", pty.pid());
    std::thread::sleep(Duration::from_secs(60));
}

#[test]
fn a_closed_window_ends_it() {
    let job = Job::finished("night-run");
    let mut holder = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["leave::holder", "--exact", "--ignored", "--nocapture", "--test-threads=1"])
        .env("PILOTHOUSE_HELD_JOB", &job.dir)
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(holder.stdout.take().unwrap()));
    let pid: u32 = loop {
        let line = lines.next().unwrap().unwrap();
        if let Some(pid) = line.split("holding ").nth(1) {
            break pid.parse().unwrap();
        }
    };
    assert!(proc::state(pid).is_some());
    holder.kill().unwrap();
    holder.wait().unwrap();
    let began = Instant::now();
    while !matches!(proc::state(pid), None | Some('Z')) {
        assert!(began.elapsed() < SOON, "still alive after its terminal went away");
        std::thread::sleep(Duration::from_millis(10));
    }
}
