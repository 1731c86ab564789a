//! Calm: nothing is written while nothing changes, and what the operator looks at stays.

use std::time::Duration;

use super::support::job::Job;
use super::support::proc;
use super::{SOON, frames, quit, row_of, start};

const TASKS: [&str; 6] = ["alpha-task", "beta-task", "gamma-task", "delta-task", "epsilon-task", "zeta-task"];

#[test]
fn a_finished_job_costs_nothing() {
    let job = Job::finished("night-run");
    let mut pty = start(&["attach", job.arg()], 120, 36);
    pty.wait_for("finished", SOON);
    // Classes come a little later, those without a line of their own, too.
    pty.wait_for("class failed", SOON);
    pty.settle(Duration::from_millis(1500), SOON);
    let (bytes, switches) = (pty.raw_len(), proc::voluntary_switches(pty.pid()));
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(pty.raw_len() - bytes, 0, "bytes while idle");
    let switches = proc::voluntary_switches(pty.pid()) - switches;
    assert!(switches <= 2, "{switches} wake-ups in 2 s");
    quit(&mut pty);
}

#[test]
fn every_frame_is_one_synchronized_update() {
    let job = Job::finished("night-run");
    let mut pty = start(&["attach", job.arg()], 120, 36);
    pty.wait_for("alpha-task", SOON);
    for keys in ["j", "k", "5", "6", "1", "?", "q", "c", "p", "q"] {
        pty.send(keys);
        std::thread::sleep(Duration::from_millis(60));
    }
    pty.wait_for("1 Trials", SOON);
    quit(&mut pty);
    let raw = pty.raw();
    let frames = frames(&raw);
    assert!(frames.len() >= 8, "{} frames", frames.len());
    assert!(frames.iter().all(|f| !f.is_empty()), "no empty frame is written");
}

/// The row that is shown in reverse.
fn selected(pty: &super::Pty) -> String {
    let raw = pty.raw();
    let reversed = reversed_rows(&raw, 120, 36);
    reversed.into_iter().find(|row| TASKS.iter().any(|t| row.contains(t))).unwrap_or_default()
}

/// Rows of the screen of which most is in reverse video.
fn reversed_rows(raw: &[u8], cols: usize, rows: usize) -> Vec<String> {
    let mut terminal = avt::Terminal::new(cols, rows).unwrap();
    terminal.feed(String::from_utf8_lossy(raw).as_ref());
    let lines = terminal.screen().visible_lines();
    lines
        .filter_map(|line| {
            let reversed: String = line.cells().iter().filter(|c| c.pen().is_inverse()).map(|c| c.char()).collect();
            (reversed.trim().len() > 10).then_some(reversed)
        })
        .collect()
}

#[test]
fn the_selected_row_stays_selected_while_rows_move() {
    let job = Job::begin("live-run", &TASKS);
    for task in &TASKS[..4] {
        job.start(task);
        job.episodes(task, 1);
    }
    job.summary(false);
    let mut pty = start(&["attach", job.arg()], 120, 36);
    pty.wait_for("4 running", SOON);
    pty.wait_for("2 queued", SOON);
    pty.send("jj");
    std::thread::sleep(Duration::from_millis(200));
    let before = selected(&pty);
    let task = TASKS.iter().find(|t| before.contains(**t)).copied().unwrap();
    let place = row_of(&pty, task);

    // Another trial ends right after the cursor has moved: it stays where it is until the cursor
    // rests, then goes down to the finished ones.
    pty.send("kj");
    std::thread::sleep(Duration::from_millis(50));
    let other = TASKS[..4].iter().find(|t| **t != task && row_of(&pty, t) < place).copied().unwrap();
    let others_place = row_of(&pty, other);
    job.done(other, Some(1.0), None);
    job.summary(false);
    pty.wait_for("1 passed", SOON);
    let waits = pty.text().contains("order waits");
    if waits {
        assert_eq!(row_of(&pty, other), others_place, "no jump under the cursor\n{}", pty.text());
        assert_eq!(row_of(&pty, task), place);
    }
    assert!(selected(&pty).contains(task), "{}", pty.text());
    pty.wait_gone("order waits", SOON);
    pty.wait_until("the finished one has gone down", SOON, |text| {
        let at = |t: &str| text.lines().position(|l| l.contains(t));
        at(other) > at(task)
    });
    assert!(selected(&pty).contains(task), "{}", pty.text());

    // The selected one ends itself, and a queued one begins.
    job.done(task, Some(0.0), None);
    job.start("epsilon-task");
    job.summary(false);
    pty.wait_for("1 failed", SOON);
    pty.wait_for("1 queued", SOON);
    std::thread::sleep(Duration::from_millis(200));
    assert!(selected(&pty).contains(task), "{}", pty.text());
    assert!(waits, "news came while the cursor moved");
    quit(&mut pty);
}

#[test]
fn a_trial_that_moves_on_is_seen() {
    let job = Job::begin("live-run", &TASKS[..2]);
    let mut pty = start(&["attach", job.arg()], 120, 36);
    pty.wait_for("2 queued", SOON);
    pty.wait_for("running", SOON);
    job.start("alpha-task");
    pty.wait_for("1 queued", SOON);
    job.episodes("alpha-task", 2);
    pty.wait_for("agent", SOON);
    job.done("alpha-task", Some(1.0), None);
    job.done("beta-task", Some(1.0), None);
    pty.wait_for("2 passed", SOON);
    job.summary(true);
    pty.wait_for("finished", SOON);
    quit(&mut pty);
}

#[test]
fn a_running_clock_costs_one_small_frame_a_second() {
    let job = Job::begin("live-run", &TASKS);
    for task in &TASKS[..4] {
        job.start(task);
        job.episodes(task, 2);
    }
    job.summary(false);
    let mut pty = start(&["attach", job.arg()], 120, 36);
    pty.wait_for("4 running", SOON);
    std::thread::sleep(Duration::from_millis(1500));
    let before = pty.raw_len();
    std::thread::sleep(Duration::from_secs(3));
    let raw = pty.raw();
    let drawn = frames(&raw[before..]);
    assert!((2..=5).contains(&drawn.len()), "{} frames in 3 s", drawn.len());
    let bytes = (raw.len() - before) / drawn.len();
    assert!(bytes < 600, "{bytes} bytes for a frame in which only clocks move");
    quit(&mut pty);
}
