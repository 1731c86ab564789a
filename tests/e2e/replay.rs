//! A recording while it is still being read.

use std::fs;
use std::time::SystemTime;

use crate::support::{big_cast, job::Job};
use crate::{SOON, quit, start};

#[test]
fn a_key_while_a_recording_is_read_is_newer_than_the_step_it_opened_at() {
    let job = Job::begin("replay", &["long-task"]);
    job.start("long-task");
    job.episodes("long-task", 2);
    job.done("long-task", Some(1.0), None);
    job.summary(true);
    let trial = job.trial_dir("long-task");
    // Long enough for the keys to come before all of it is read.
    let cast = trial.join("agent/recording.cast");
    big_cast::generate(&cast, 150_000);
    // By the clock of the trajectory, so that the step has a place in it.
    let began = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs() - 60;
    let text = fs::read_to_string(&cast).unwrap();
    fs::write(&cast, text.replacen("1795982525", &began.to_string(), 1)).unwrap();
    let mut pty = start(&["attach", trial.to_str().unwrap()], 160, 45);
    pty.wait_for("Steps]", SOON);
    pty.wait_for("episode", SOON);
    // The recording, from the step that is selected; and its end.
    pty.send("c\x1b[F");
    pty.wait_for(big_cast::LAST, SOON);
    pty.wait_gone("indexing", SOON);
    pty.settle(std::time::Duration::from_millis(700), SOON);
    assert!(pty.text().contains(big_cast::LAST), "{}", pty.text());
    pty.send("q");
    pty.wait_for("Steps]", SOON);
    pty.send("q");
    quit(&mut pty);
}
