//! The screen of a child: left by word, killed, closed; the child goes on, and is found again.

use rustix::process::Signal;

use crate::fake::{Place, SOON, alive, until};
use crate::support::pty::{Pty, key};

fn screen(place: &Place, args: &[&str], size: (u16, u16)) -> Pty {
    let env = place.env();
    let env: Vec<(&str, &str)> = env.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    Pty::pilothouse(args, size.0, size.1, &env)
}

/// A command for the fake in its own directory, wherever the test runs.
fn begin(place: &Place, size: (u16, u16)) -> Pty {
    let jobs = place.path("jobs");
    let args = ["harbor", "--yes", "--no-look", "run", "-y", "-o", jobs.to_str().unwrap(), "--job-name", "watched"];
    screen(place, &args, size)
}

#[test]
fn leaving_asks_and_the_child_goes_on() {
    let place = Place::new();
    let mut pty = begin(&place, (120, 36));
    pty.wait_for("2 queued", SOON);
    let child = place.child();
    // Twice the key is a change of mind.
    pty.send("q");
    pty.wait_for("leave it running", SOON);
    pty.wait_for(&format!("harbor (pid {child}) works on this job"), SOON);
    pty.send("q");
    pty.wait_gone("leave it running", SOON);
    pty.send(key::CTRL_C);
    pty.wait_for("leave it running", SOON);
    pty.send(key::DOWN);
    pty.send(key::ENTER);
    pty.wait_exit(SOON);
    pty.assert_restored();
    pty.wait_for(&format!("pilothouse harbor attach {child}"), SOON);
    assert!(alive(child));

    // Back again, by its number; its end is told there.
    let mut again = screen(&place, &["harbor", "attach", &child.to_string()], (120, 36));
    again.wait_for("2 queued", SOON);
    place.go();
    again.wait_for("harbor ended with exit code 0", SOON);
    again.send("q");
    again.wait_exit(SOON);
    assert!(again.text().contains("harbor ended with exit code 0"), "{}", again.text());
}

#[test]
fn a_killed_screen_and_a_closed_terminal_take_nothing_with_them() {
    let place = Place::new();
    let pty = begin(&place, (80, 24));
    pty.wait_for("2 queued", SOON);
    let child = place.child();
    pty.kill(Signal::KILL);
    drop(pty);
    assert!(alive(child));
    let dir = place.job();
    let mut again = screen(&place, &["harbor", "attach", dir.to_str().unwrap()], (80, 24));
    again.wait_for("2 queued", SOON);
    // The stop is one step away, and asks how.
    again.send("q");
    again.wait_for("leave it running", SOON);
    again.send(key::END);
    again.send(key::ENTER);
    again.wait_for("SIGINT", SOON);
    again.send(key::ESC);
    again.wait_gone("SIGINT", SOON);
    drop(again);
    assert!(alive(child));
    place.go();
    until("its end", || place.newest()["state"] == "ended");
}

#[test]
fn the_question_before_the_start_is_for_a_person() {
    let place = Place::new();
    let tasks = place.path("tasks");
    let args = ["harbor", "run", "-p", tasks.to_str().unwrap(), "-a", "terminus-2", "-m", "openai/x", "-y"];
    let mut pty = screen(&place, &args, (100, 30));
    pty.wait_for("Start it all the same?", SOON);
    pty.wait_for("OPENAI_API_KEY is not exported", SOON);
    pty.send(key::ENTER);
    pty.wait_exit(SOON);
    assert!(pty.text().contains("nothing was started") && !place.path("args").exists(), "{}", pty.text());

    let mut pty = screen(&place, &args, (100, 30));
    pty.wait_for("a: with --ek auto_mounting=true", SOON);
    pty.send("a\r");
    until("its words", || std::fs::read(place.path("args")).is_ok_and(|args| !args.is_empty()));
    let words = crate::fake::text(&std::fs::read(place.path("args")).unwrap()).replace('\0', " ");
    assert!(words.trim().ends_with("--ek auto_mounting=true"), "{words}");
    pty.wait_for("2 queued", SOON);
}
