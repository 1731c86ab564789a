//! The same from the screen: infra injected, `R`, the plan, its start; the new job on the same screen,
//! merged as a pass.

use std::time::Duration;

use super::own::{Place, engine};
use super::support::pty::Pty;

/// Generous: images, containers, a busy machine.
const LONG: Duration = Duration::from_secs(120);
const SOON: Duration = Duration::from_secs(20);

#[test]
fn from_the_key_to_all_green_on_one_screen() {
    let Some(()) = engine() else { return };
    let place = Place::new("scr", 2, 0.5, None);
    let run = "run -p tasks -a oracle -n 3 -o jobs --job-name night -y --headless --no-preflight";
    let out = place.run(&run.split(' ').collect::<Vec<_>>());
    assert_eq!(out.status.code(), Some(3));
    let before = place.results("night");

    let state = place.tmp.path().join("state");
    let dir = place.job("night");
    let env = [("PILOTHOUSE_STATE_DIR", state.to_str().unwrap())];
    let mut pty = Pty::pilothouse(&["attach", dir.to_str().unwrap()], 120, 40, &env);
    pty.wait_for("raw 1/3", SOON);
    pty.send("3");
    let both = |text: &str| text.lines().any(|l| l.contains("class infra/") && l.contains(" 2 "));
    pty.wait_until("both classes", SOON, both);

    // The plan: what, why, how often so far, what differs, the command; the focus on cancel.
    pty.send("R");
    pty.wait_for("Requeue: 2 trials", SOON);
    for wanted in ["scr-bad0", "scr-bad1", "attempts", "night-requeue-1", "The command", "cancel", "endpoint", "reason"]
    {
        pty.wait_for(wanted, SOON);
    }
    pty.send("\r");
    pty.wait_gone("The command", SOON);
    assert!(!place.job("night-requeue-1").exists() && place.journal("night").is_empty(), "cancel does nothing");

    place.make_image();
    pty.send("R");
    pty.wait_for("Requeue: 2 trials", SOON);
    pty.send("G\r");
    pty.wait_for("2 jobs", LONG);
    pty.wait_for("merged as passes", LONG);
    pty.wait_for("raw 3/3 100.0 %", LONG);
    let journal = place.journal("night");
    assert_eq!(journal.iter().map(|l| l["act"].as_str().unwrap()).collect::<Vec<_>>(), ["requeue", "requeue"]);
    assert_eq!(place.results("night"), before, "the old job's results are as they were");
    // Nothing is left to go through.
    pty.send("4");
    pty.wait_for("every trial that has ended passed cleanly", SOON);
    pty.send("1q");
    assert_eq!(pty.wait_exit(SOON).exit_code(), 0);
    pty.assert_restored();
}
