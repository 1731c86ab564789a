//! Everything that keys do.

use super::support;
use super::support::escapes::Allowed;
use super::support::job::Job;
use super::support::pty::key;
use super::{SOON, copy_tree, quit, quit_allowing, row_of, start, start_with};

#[test]
fn the_answers_are_there_without_a_key() {
    let job = Job::finished("night-run");
    let mut pty = start(&["attach", job.arg()], 120, 36);
    pty.wait_for("finished", SOON);
    pty.wait_for("alpha-task", SOON);
    let screen = pty.screen();
    for word in ["night-run", "terminus-2", "lab/small-1", "harbor 0.21.0", "finished"] {
        assert!(screen[0].contains(word), "{word}: {}", screen[0]);
    }
    let text = pty.text();
    for word in ["2 passed", "1 failed", "1 error", "graded 2/3", "raw 2/4", "known for 4 of 4", "AgentTimeoutError"] {
        assert!(text.contains(word), "{word}:\n{text}");
    }
    quit(&mut pty);
}

#[test]
fn filters_menus_and_order() {
    let job = Job::finished("night-run");
    let mut pty = start(&["attach", job.arg()], 120, 36);
    pty.wait_for("delta-task", SOON);

    // Typing filters at once; an error is said where it is typed and leaves the rows alone.
    pty.send("/beta");
    pty.wait_for("1 of 4", SOON);
    pty.wait_gone("alpha-task", SOON);
    pty.send(&key::BACKSPACE.repeat(4));
    pty.wait_for("alpha-task", SOON);
    pty.send("nofield:x");
    pty.wait_for("no field `nofield`: use phase", SOON);
    pty.send(key::ESC);
    pty.wait_for("alpha-task", SOON);
    pty.wait_gone("no field", SOON);
    pty.send("/outcome:passed\r");
    pty.wait_for("2 of 4", SOON);
    pty.wait_gone("beta-task", SOON);
    // One step back takes the filter away, not the screen.
    pty.send("q");
    pty.wait_for("beta-task", SOON);

    // The menu: an exception type with its count.
    // The three classes come after the exception types, once they are known.
    pty.wait_for("class failed", SOON);
    pty.send("f");
    pty.wait_for("filter by", SOON);
    pty.wait_for("exception  RuntimeError", SOON);
    pty.send("Gkkk\r");
    pty.wait_for("1 of 4", SOON);
    pty.send("F");
    pty.wait_for("alpha-task", SOON);

    // Sorted by task, then the other way round.
    pty.send("o");
    pty.wait_for("sort by", SOON);
    pty.send("gj\r");
    pty.wait_for("by task", SOON);
    pty.wait_gone("sort by", SOON);
    let order =
        |pty: &support::pty::Pty| ["alpha-task", "beta-task", "delta-task", "gamma-task"].map(|task| row_of(pty, task));
    assert!(order(&pty).is_sorted(), "{}", pty.text());
    pty.send("O");
    pty.wait_for("turned round", SOON);
    assert!(order(&pty).iter().rev().is_sorted(), "{}", pty.text());
    quit(&mut pty);
}

#[test]
fn views_help_palette_and_attention() {
    let job = Job::finished("night-run");
    let mut pty = start(&["attach", job.arg()], 120, 36);
    pty.wait_for("RuntimeError", SOON);

    // The errors pane has the focus after Tab, and Enter there filters.
    pty.send(key::TAB);
    pty.send("j\r");
    pty.wait_for("1 of 4", SOON);
    pty.send("F");
    pty.wait_for("Trials 4", SOON);
    pty.send("3");
    pty.wait_gone("1 Trials", SOON);
    pty.wait_for("3 Errors", SOON);
    pty.send("5");
    pty.wait_for("5 Warnings", SOON);
    pty.send("6");
    pty.wait_for("6 Jobs", SOON);
    pty.wait_for("4/4", SOON);
    pty.send("q");
    pty.wait_for("1 Trials", SOON);

    pty.send("?");
    pty.wait_for("any other key closes", SOON);
    pty.send("G");
    pty.wait_for("inferred from files", SOON);
    pty.send("x");
    pty.wait_gone("inferred from files", SOON);

    pty.send(":");
    pty.wait_for("commands", SOON);
    pty.send("errors by");
    pty.wait_for("errors by exception type", SOON);
    pty.send("\r");
    pty.wait_gone("1 Trials", SOON);
    pty.send("1");
    pty.wait_for("1 Trials", SOON);

    pty.send("!");
    pty.wait_for("nothing needs you", SOON);
    pty.send("x");
    pty.wait_for("what changes something asks first", SOON);
    pty.send(key::ESC);
    pty.wait_gone("what changes something asks first", SOON);

    // A key that means nothing is said to.
    pty.send("~");
    pty.wait_for("does nothing here", SOON);
    quit(&mut pty);
}

#[test]
fn a_trial_opens_and_closes() {
    let job = Job::finished("night-run");
    let mut pty = start(&["attach", job.arg()], 120, 36);
    pty.wait_for("alpha-task", SOON);
    pty.send("/gamma\r");
    pty.wait_for("1 of 4", SOON);
    pty.send(key::ENTER);
    pty.wait_gone("1 Trials", SOON);
    pty.wait_for("gamma-task", SOON);
    pty.send("q");
    pty.wait_for("1 Trials", SOON);
    quit_twice(&mut pty);
}

/// The filter first, then the screen.
fn quit_twice(pty: &mut support::pty::Pty) {
    pty.send("F");
    pty.wait_for("filter none", SOON);
    quit(pty);
}

#[test]
fn replay_plays_pauses_seeks_and_searches() {
    let job = Job::finished("night-run");
    let mut pty = start(&["attach", job.arg()], 120, 36);
    pty.wait_for("alpha-task", SOON);
    pty.send("c");
    pty.wait_for("line 0 of the recording", SOON);
    pty.wait_for("80x20", SOON);
    pty.send("p");
    pty.send("5");
    pty.wait_for("line 13 of the recording", SOON);
    pty.send("G");
    pty.wait_for("line 29 of the recording", SOON);
    pty.send("0");
    pty.wait_gone("line 29 of the recording", SOON);
    pty.send("/line 21\r");
    pty.wait_for("found at", SOON);
    pty.wait_for("line 21 of the recording", SOON);
    pty.wait_gone("line 22 of the recording", SOON);
    pty.send("n");
    pty.wait_for("no further match", SOON);
    pty.send(">");
    pty.wait_for("2x", SOON);
    pty.send("?");
    pty.wait_for("half the speed", SOON);
    pty.send(key::ESC);
    pty.wait_gone("half the speed", SOON);
    pty.send("q");
    pty.wait_for("1 Trials", SOON);
    quit(&mut pty);
}

#[test]
fn replay_of_a_file_a_trial_dir_and_of_nothing() {
    let job = Job::finished("night-run");
    let dir = job.trial_dir("alpha-task");
    let file = dir.join("agent/recording.cast");
    for path in [&dir, &file] {
        let mut pty = start(&["replay", path.to_str().unwrap()], 100, 30);
        pty.wait_for("line 0 of the recording", SOON);
        // There is no job to go to.
        pty.send("3");
        pty.wait_until("still there", SOON, |text| text.contains("line 0 of the recording"));
        quit(&mut pty);
    }
    let empty = dir.join("verifier");
    let mut pty = start(&["replay", empty.to_str().unwrap()], 100, 30);
    pty.wait_for("no recording in", SOON);
    quit(&mut pty);
    let mut pty = start(&["replay", "/nonexistent/x.cast"], 100, 30);
    assert_eq!(pty.wait_exit(SOON).exit_code(), 2);
    assert!(pty.text().contains("give a cast file"), "{}", pty.text());
    pty.assert_restored();
}

#[test]
fn copying_asks_the_terminal() {
    let job = Job::finished("night-run");
    let mut pty = start(&["attach", job.arg()], 120, 36);
    pty.wait_for("alpha-task", SOON);
    pty.send("y");
    pty.wait_for("sent to the clipboard via OSC 52", SOON);
    quit_allowing(&mut pty, Allowed { clipboard: true, bell: false });
    let osc = pty.raw().windows(7).filter(|w| w == b"\x1b]52;c;").count();
    assert_eq!(osc, 1);
}

#[test]
fn no_color_has_no_colour_and_ascii_has_only_ascii() {
    let job = Job::finished("night-run");
    let walk = |pty: &mut support::pty::Pty| {
        pty.wait_for("alpha-task", SOON);
        for (keys, sign) in [("5", "5 Warnings"), ("6", "6 Jobs"), ("3", "3 Errors"), ("1", "1 Trials")] {
            pty.send(keys);
            pty.wait_for(sign, SOON);
        }
        for (keys, sign) in [("f", "filter by"), ("o", "sort by"), (":", "Enter runs"), ("?", "any other key closes")] {
            pty.send(keys);
            pty.wait_for(sign, SOON);
            pty.send(key::ESC);
            pty.wait_gone(sign, SOON);
        }
        pty.send("c");
        pty.wait_for("line 0 of the recording", SOON);
        pty.send("q");
        pty.wait_for("1 Trials", SOON);
        pty.send(key::ENTER);
        pty.wait_gone("1 Trials", SOON);
        pty.send("q");
        pty.wait_for("1 Trials", SOON);
    };
    let mut pty = start_with(&["attach", job.arg()], 120, 36, &[("NO_COLOR", "1")]);
    walk(&mut pty);
    quit(&mut pty);
    for piece in support::escapes::pieces(&pty.raw()) {
        let support::escapes::Piece::Csi(body, 'm') = piece else { continue };
        for part in body.split(';').filter_map(|p| p.parse::<u16>().ok()) {
            assert!(!matches!(part, 30..=38 | 40..=48 | 90..=107), "colour {body}");
        }
    }
    let mut pty = start(&["attach", "--ascii", job.arg()], 120, 36);
    walk(&mut pty);
    quit(&mut pty);
    let raw = pty.raw();
    let odd: Vec<char> = String::from_utf8_lossy(&raw).chars().filter(|c| !c.is_ascii()).collect();
    assert!(odd.is_empty(), "{odd:?}");
}

#[test]
fn a_recorded_job_is_walked_through() {
    let Some(shared) = support::shared() else { return };
    let tmp = tempfile::tempdir().unwrap();
    let dir = tmp.path().join("b-terminus2-mix-0.21.0");
    copy_tree(&shared.join("data/jobs/b-terminus2-mix-0.21.0"), &dir);
    let mut pty = start(&["attach", dir.to_str().unwrap()], 140, 44);
    pty.wait_for("8/23", SOON);
    pty.wait_for("8/12", SOON);
    pty.wait_for("finished", SOON);
    pty.send("/hello-file\r");
    pty.wait_for("1 of 23", SOON);
    pty.send("c");
    pty.wait_for("160", SOON);
    pty.send("p");
    pty.send("G");
    pty.wait_for("episode 4 of 4", SOON);
    // The header has whole seconds, so the later episodes lie at the end of this short recording.
    pty.send("[");
    pty.wait_for("episode 1 of 4", SOON);
    pty.send("[");
    pty.wait_for("before episode 1 of 4", SOON);
    pty.send("]]");
    pty.wait_for("episode 4 of 4", SOON);
    pty.send("q");
    pty.wait_for("1 Trials", SOON);
    pty.send(key::ENTER);
    pty.wait_gone("1 Trials", SOON);
    pty.send("q");
    pty.wait_for("1 Trials", SOON);
    quit_twice(&mut pty);
}

#[test]
fn several_jobs_and_one_that_appears() {
    let first = Job::finished("first-run");
    let tmp = tempfile::tempdir().unwrap();
    copy_tree(&first.dir, &tmp.path().join("first-run"));
    let mut pty = start(&["attach", tmp.path().to_str().unwrap()], 130, 36);
    pty.wait_for("first-run", SOON);
    pty.wait_for("alpha-task", SOON);
    let second = Job::finished("second-run");
    copy_tree(&second.dir, &tmp.path().join("second-run"));
    pty.wait_for("2 jobs", SOON);
    pty.wait_for("second-run", SOON);
    pty.send("6");
    pty.wait_for("6 Jobs", SOON);
    pty.send("j\r");
    pty.wait_for("job:", SOON);
    pty.send("F");
    pty.wait_for("filter none", SOON);
    quit(&mut pty);
}

#[test]
fn what_needs_a_person_is_two_keys_away() {
    let job = Job::begin("night-run", &["alpha-task", "beta-task", "gamma-task"]);
    job.done("alpha-task", Some(1.0), None);
    job.done("beta-task", Some(1.0), None);
    // A result that says nothing: stopped at a bad moment.
    job.done("gamma-task", None, None);
    let mut pty = start(&["attach", job.arg()], 120, 36);
    pty.wait_for("! 1  phantom: gamma-task__AbCdEfG", SOON);
    pty.send("G!");
    pty.wait_for("1 of 1: phantom", SOON);
    pty.send(key::ENTER);
    pty.wait_gone("1 Trials", SOON);
    pty.wait_for("gamma-task__AbCdEfG", SOON);
    pty.send("q");
    pty.wait_for("1 Trials", SOON);
    // As a filter, too: all that ended without a clean pass.
    pty.send("f");
    pty.wait_for("ended, but not a clean pass", SOON);
    pty.send("j\r");
    pty.wait_for("1 of 3", SOON);
    pty.send("F");
    pty.wait_for("filter none", SOON);
    quit(&mut pty);
}

#[test]
fn pasted_text_is_text() {
    let job = Job::finished("night-run");
    let mut pty = start(&["attach", job.arg()], 120, 36);
    pty.wait_for("alpha-task", SOON);
    // Without a prompt, no letter of it is a command.
    pty.send("\u{1b}[200~q\rccc?\u{1b}[201~");
    pty.settle(std::time::Duration::from_millis(200), SOON);
    pty.wait_for("1 Trials", SOON);
    assert!(!pty.text().contains("any other key closes"));
    pty.send("/");
    pty.wait_for("filter /", SOON);
    pty.send("\u{1b}[200~be\u{1b}[31mta\n\u{1b}[201~");
    pty.wait_for("1 of 4", SOON);
    pty.send(key::ESC);
    pty.wait_for("filter none", SOON);
    quit(&mut pty);
}

#[test]
fn a_trials_directory_attaches_its_job_and_opens_the_trial() {
    let job = Job::finished("night-run");
    let dir = job.trial_dir("beta-task");
    let mut pty = start(&["attach", dir.to_str().unwrap()], 120, 36);
    pty.wait_for("Timeline", SOON);
    pty.wait_for(&Job::name("beta-task"), SOON);
    pty.send("q");
    pty.wait_for("alpha-task", SOON);
    quit(&mut pty);
}
