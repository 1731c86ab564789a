//! The list of all jobs: another job on the same screen, what the next screen remembers.

use rustix::process::Signal;

use super::support;
use super::{SOON, copy_tree, quit, start_with};
use support::job::Job;

const ENTER: &str = "\r";

#[test]
fn another_job_opens_on_the_same_screen_and_back() {
    let tmp = tempfile::tempdir().unwrap();
    let root = tmp.path().join("jobs");
    for name in ["first-run", "second-run"] {
        copy_tree(&Job::finished(name).dir, &root.join(name));
    }
    let state = tmp.path().join("state");
    let env = [("PILOTHOUSE_STATE_DIR", state.to_str().unwrap())];
    let first = root.join("first-run");
    let mut pty = start_with(&["attach", first.to_str().unwrap()], 130, 36, &env);
    pty.wait_for("alpha-task", SOON);
    pty.send("6");
    pty.wait_for("6 Jobs 1", SOON);
    // A directory is added, and looked through at once.
    pty.send("a");
    pty.wait_for("directory of jobs:", SOON);
    pty.send(root.to_str().unwrap());
    pty.send(ENTER);
    pty.wait_for("6 Jobs 2", SOON);
    pty.wait_for("second-run", SOON);
    pty.send("/name:second");
    pty.wait_for("6 Jobs 1 of 2", SOON);
    pty.send(ENTER);
    pty.send(ENTER);
    // The screen shows that one now; the terminal was never given back.
    pty.wait_until("the second job", SOON, |s| s.contains("second-run") && s.contains("1 Trials 4"));
    assert!(!pty.text().contains("first-run"), "{}", pty.text());
    let entered = |pty: &support::pty::Pty| String::from_utf8_lossy(&pty.raw()).matches("?1049h").count();
    assert_eq!(entered(&pty), 1);
    // It reads keys as before, follows its job, and leads back to the list, which kept its filter.
    pty.send("j");
    pty.send("3");
    pty.wait_for("3 Errors", SOON);
    pty.send("q");
    pty.wait_for("1 Trials 4", SOON);
    pty.send("q");
    pty.wait_for("6 Jobs 1 of 2", SOON);
    pty.send("F");
    pty.wait_for("6 Jobs 2", SOON);
    quit(&mut pty);
}

#[test]
fn marks_order_and_filter_are_there_at_the_next_start() {
    let job = Job::finished("night-run");
    let tmp = tempfile::tempdir().unwrap();
    let state = tmp.path().join("state");
    let env = [("PILOTHOUSE_STATE_DIR", state.to_str().unwrap())];
    let mut pty = start_with(&["attach", job.arg()], 130, 36, &env);
    pty.wait_for("1 Trials 4", SOON);
    pty.send("/task:beta");
    pty.send(ENTER);
    pty.wait_for("1 of 4", SOON);
    pty.send(" ");
    pty.wait_for("#", SOON);
    pty.send("o");
    pty.wait_for("order", SOON);
    pty.send("j");
    pty.send(ENTER);
    pty.wait_for("by task", SOON);
    pty.send("6");
    pty.wait_for("6 Jobs", SOON);
    pty.send(" ");
    pty.wait_for("1 marked", SOON);
    pty.send("q");
    pty.wait_for("1 Trials", SOON);
    // The filter is the innermost step back: it is not taken away by leaving.
    pty.kill(Signal::TERM);
    assert_eq!(pty.wait_exit(SOON).exit_code(), 130);

    let mut pty = start_with(&["attach", job.arg()], 130, 36, &env);
    pty.wait_until("as it was left", SOON, |s| {
        s.contains("1 Trials 1 of 4") && s.contains("filter task:beta, by task") && s.contains("#beta-task")
    });
    pty.send("6");
    pty.wait_for("1 marked", SOON);
    // Another job has marks of its own, and the same order.
    let other = Job::finished("other-run");
    pty.kill(Signal::TERM);
    pty.wait_exit(SOON);
    let mut pty = start_with(&["attach", other.arg()], 130, 36, &env);
    pty.wait_until("another job", SOON, |s| s.contains("1 Trials 4") && s.contains("filter none, by task"));
    assert!(!pty.text().contains("#beta-task"), "{}", pty.text());
    quit(&mut pty);
}

#[test]
fn a_screen_without_a_job_is_the_list() {
    let tmp = tempfile::tempdir().unwrap();
    let root = tmp.path().join("jobs");
    copy_tree(&Job::finished("only-run").dir, &root.join("only-run"));
    let state = tmp.path().join("state");
    let env = [("PILOTHOUSE_STATE_DIR", state.to_str().unwrap())];
    let mut nothing = start_with(&["attach"], 100, 30, &env);
    assert_eq!(nothing.wait_exit(SOON).exit_code(), 2, "{}", nothing.text());
    let listed = support::harbor::pilothouse(&["jobs", root.to_str().unwrap()], &state);
    assert!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stdout));
    let mut pty = start_with(&["attach"], 100, 30, &env);
    pty.wait_until("the list", SOON, |s| s.contains("6 Jobs 1") && s.contains("only-run"));
    pty.send(ENTER);
    pty.wait_for("1 Trials 4", SOON);
    pty.send("q");
    pty.wait_for("6 Jobs 1", SOON);
    quit(&mut pty);
}
