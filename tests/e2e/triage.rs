//! Triage in the real binary: walked, judged, undone, noted, judged in bulk; and what the journal then
//! holds.

use std::path::Path;

use serde_json::Value;

use super::support::job::Job;
use super::support::pty::{Pty, key};
use super::{SOON, quit, start};

/// Five trials, one of them a clean pass.
fn job() -> Job {
    let mut job = Job::begin("night-run", &["alpha-task", "beta-task", "gamma-task", "delta-task", "epsilon-task"]);
    job.done("alpha-task", Some(1.0), None);
    job.done("beta-task", Some(0.0), None);
    job.done("gamma-task", Some(0.0), Some(("AgentTimeoutError", "Agent execution timed out after 40.0 seconds")));
    for task in ["delta-task", "epsilon-task"] {
        job.done(
            task,
            None,
            Some((
                "RuntimeError",
                "Error response from daemon: all predefined address pools have been fully subnetted",
            )),
        );
    }
    job.summary(true);
    job.leave();
    job
}

/// The lines of a journal.
fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Waits for so many lines in the journal.
#[track_caller]
fn wait_lines(pty: &Pty, path: &Path, n: usize) -> Vec<Value> {
    pty.wait_until(&format!("{n} lines in {}", path.display()), SOON, |_| lines(path).len() >= n);
    let found = lines(path);
    assert_eq!(found.len(), n, "{found:#?}");
    found
}

fn open(job: &Job, cols: u16, rows: u16) -> Pty {
    let mut pty = start(&["attach", job.arg()], cols, rows);
    pty.wait_for("finished", SOON);
    pty.wait_for("raw 1/5", SOON);
    // Classes come a little later, one by one.
    pty.send("3");
    let known = |text: &str| {
        let line = |class: &str| text.lines().find(|l| l.contains(class)).unwrap_or_default().to_string();
        line("class infra/docker").contains(" 2 ")
            && !line("class agent_timeout").is_empty()
            && !line("class failed").is_empty()
    };
    pty.wait_until("all classes", SOON, known);
    pty.send("4");
    pty.wait_for("0 of 4 looked at", SOON);
    pty
}

#[test]
fn the_whole_way_at_80x24() {
    whole_way(80, 24);
}

#[test]
fn the_whole_way_at_120x40() {
    whole_way(120, 40);
}

fn whole_way(cols: u16, rows: u16) {
    let job = job();
    let journal = job.dir.join("pilothouse.jsonl");
    let mut pty = open(&job, cols, rows);
    pty.wait_for("delta-task__AbCdEfG", SOON);
    pty.wait_for("verdicts will go to", SOON);

    // Looking writes nothing, and no digit is a verdict: not here, not in the menu.
    pty.send("v");
    pty.wait_for("a letter", SOON);
    pty.send("1234567");
    pty.settle(std::time::Duration::from_millis(200), SOON);
    pty.wait_for("a letter", SOON);
    pty.send(key::ESC);
    pty.wait_gone("a letter", SOON);
    pty.send("1");
    pty.wait_for("1 Trials", SOON);
    pty.send("t");
    pty.wait_for("0 of 4 looked at", SOON);
    assert!(!journal.exists());

    // One key to each thing that there is to see; one step back.
    for (keys, sign) in [("e", "Traceback"), ("o", "Verifier]"), ("w", "Log]"), (key::ENTER, "Steps]")] {
        pty.send(keys);
        pty.wait_for(sign, SOON);
        pty.send("q");
        pty.wait_for("0 of 4 looked at", SOON);
    }
    pty.send("c");
    pty.wait_for("line 29 of the recording", SOON);
    pty.send("q");
    pty.wait_for("0 of 4 looked at", SOON);

    // v and a letter: it holds, it is written, the next one is there.
    pty.send("vi");
    pty.wait_for("1 of 4 looked at", SOON);
    pty.wait_for("epsilon-task__AbCdEfG", SOON);
    let said = wait_lines(&pty, &journal, 1);
    assert_eq!(said[0]["act"], "verdict");
    assert_eq!(said[0]["verdict"], "infra_confirmed");
    assert_eq!(said[0]["trial"], "delta-task__AbCdEfG");
    assert_eq!(said[0]["result_id"], "id-delta-task");
    assert!(!said[0]["operator"].as_str().unwrap().is_empty());
    pty.wait_for("1 verdict", SOON);

    // Undone, back at the same one.
    pty.send("u");
    pty.wait_for("0 of 4 looked at", SOON);
    pty.wait_for("delta-task__AbCdEfG", SOON);
    let said = wait_lines(&pty, &journal, 2);
    assert_eq!(said[1]["verdict"], "none");

    // A note.
    pty.send("nthe address pools were full\r");
    pty.wait_for("noted: delta-task", SOON);
    let said = wait_lines(&pty, &journal, 3);
    assert_eq!((&said[2]["act"], &said[2]["why"]), (&"note".into(), &"the address pools were full".into()));

    // The score after it is told at once, and goes back with it.
    pty.wait_for("corrected 1/5 20.0 %", SOON);
    pty.send("vp");
    pty.wait_for("corrected 2/5 40.0 %", SOON);
    pty.send("u");
    pty.wait_for("corrected 1/5 20.0 %", SOON);
    wait_lines(&pty, &journal, 5);

    // One verdict for all that failed alike: named, counted, the focus on cancel.
    pty.send("f");
    pty.wait_for("2 alike", SOON);
    pty.send("b");
    pty.wait_for("one verdict for 2 trials", SOON);
    pty.send("i");
    pty.wait_for("why:", SOON);
    pty.send("\r");
    pty.wait_for("a reason is needed", SOON);
    pty.send("no network was left\r");
    pty.wait_for("infra, confirmed for 2 trials?", SOON);
    for name in ["delta-task__AbCdEfG", "epsilon-task__AbCdEfG", "why: no network was left"] {
        pty.wait_for(name, SOON);
    }
    pty.send("\r");
    pty.wait_gone("for 2 trials?", SOON);
    pty.settle(std::time::Duration::from_millis(200), SOON);
    assert_eq!(lines(&journal).len(), 5, "cancelled");
    pty.send("bino network was left\r");
    pty.wait_for("infra, confirmed for 2 trials?", SOON);
    pty.send("j\r");
    pty.wait_gone("for 2 trials?", SOON);
    let said = wait_lines(&pty, &journal, 7);
    assert!(said[5..].iter().all(|w| w["verdict"] == "infra_confirmed" && w["why"] == "no network was left"));
    pty.wait_for("2 of 4 looked at", SOON);
    pty.send("f");
    pty.wait_gone("filter", SOON);

    // Who comes later sees the same, and somebody else's word comes in while one looks.
    let other = {
        let mut other = start(&["attach", job.arg()], cols, rows);
        other.wait_for("raw 1/5", SOON);
        other.send("4");
        other.wait_for("2 of 4 looked at", SOON);
        other.send(".");
        other.wait_for("-task__AbCdEfG", SOON);
        other.send("va");
        other.wait_for("3 of 4 looked at", SOON);
        other
    };
    pty.wait_for("3 of 4 looked at", SOON);
    let mut other = other;
    leave(&mut other);
    leave(&mut pty);
}

/// Out of triage, then out of the screen.
fn leave(pty: &mut Pty) {
    pty.send("1");
    pty.wait_for("1 Trials", SOON);
    quit(pty);
}

#[test]
fn a_job_dir_that_takes_no_notes_says_where_they_go() {
    let job = job();
    // Something of another name in the way: it is not written through.
    let elsewhere = job.dir.parent().unwrap().join("elsewhere");
    std::fs::write(&elsewhere, "mine").unwrap();
    std::os::unix::fs::symlink(&elsewhere, job.dir.join("pilothouse.jsonl")).unwrap();
    let mut pty = open(&job, 120, 40);
    pty.send("va");
    pty.wait_for("1 of 4 looked at", SOON);
    pty.wait_for("/state/journal/", SOON);
    pty.wait_for("the job dir can not be written to", SOON);
    assert_eq!(std::fs::read_to_string(&elsewhere).unwrap(), "mine");
    leave(&mut pty);
}

#[test]
fn an_outage_is_noted_and_filters() {
    let job = job();
    let mut pty = open(&job, 120, 40);
    let clock = |shift: i64| {
        let at = pilothouse::job::Stamp::from_second(pilothouse::job::Stamp::now().as_second() + shift).unwrap();
        at.strftime("%H:%M").to_string()
    };
    pty.send(&format!("O{}-{} the proxy was down\r", clock(-120), clock(60)));
    pty.wait_for("5 trials ran then", SOON);
    let noted = wait_lines(&pty, &job.dir.join("pilothouse.jsonl"), 1);
    assert_eq!((&noted[0]["act"], &noted[0]["why"]), (&"outage".into(), &"the proxy was down".into()));
    // Read back from the journal, it holds for the trial and for the filter.
    pty.wait_for("It ran during an outage", SOON);
    pty.send("/overlaps:outage\r");
    pty.wait_for("1 of 4, filter overlaps:outage", SOON);
    pty.send("q");
    pty.wait_gone("filter overlaps", SOON);
    leave(&mut pty);
}

#[test]
fn a_plan_to_run_again_begins_on_cancel_and_starts_nothing() {
    let job = job();
    let mut pty = open(&job, 120, 40);
    pty.send("r");
    pty.wait_for("Requeue", SOON);
    pty.wait_for("cancel", SOON);
    pty.wait_for("start", SOON);
    pty.wait_gone("making the plan", SOON);
    pty.send(key::ENTER);
    pty.wait_for("0 of 4 looked at", SOON);
    assert!(!job.dir.join("pilothouse.jsonl").exists());
    pty.send("P");
    pty.wait_for("What harbor job resume would do", SOON);
    pty.wait_gone("looking at its files", SOON);
    pty.send("q");
    pty.wait_for("0 of 4 looked at", SOON);
    leave(&mut pty);
}
