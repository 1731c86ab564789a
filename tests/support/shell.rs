//! A shell with job control, and a screen that is stopped in it and brought back.

use std::time::{Duration, Instant};

use super::proc;
use super::pty::{Pty, key};

/// Generous: only the end of something is waited for.
const SOON: Duration = Duration::from_secs(30);
const PROMPT: &str = "prompt>";

/// An interactive shell at its prompt.
pub fn open(columns: u16, rows: u16, env: &[(&str, &str)]) -> Pty {
    let env: Vec<(&str, &str)> = env.iter().copied().chain([("PS1", "prompt> ")]).collect();
    let pty = Pty::spawn("/bin/sh", &["-i"], columns, rows, &env);
    pty.wait_for(PROMPT, SOON);
    pty
}

/// Starts a command line in it, waits until it shows `shown`, stops it by Ctrl-Z and brings it back by
/// `fg`. In between the terminal is the shell's, afterwards the screen's.
#[track_caller]
pub fn start_stop_and_continue(pty: &mut Pty, line: &str, shown: &str) {
    pty.send(&format!("{line}\r"));
    pty.wait_for(shown, SOON);
    let child = proc::children(pty.pid())[0];
    pty.send(key::CTRL_Z);
    pty.wait_gone(shown, SOON);
    proc::wait_state(child, 'T', SOON);
    let modes = pty.modes();
    assert!(!modes.alternate_screen && modes.cursor_visible && !modes.bracketed_paste && !modes.styled);
    pty.send("echo in-$((40 + 2))\r");
    pty.wait_for("in-42", SOON);
    pty.send("fg\r");
    pty.wait_for(shown, SOON);
    // The terminal may be taken twice, once after the stop and once because of the signal.
    let began = Instant::now();
    while !pty.modes().alternate_screen || pty.line_modes().is_cooked() {
        assert!(began.elapsed() < SOON, "{:?} {:?}", pty.modes(), pty.line_modes());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until the screen was left, saying `said` on the shell's screen, and leaves the shell.
#[track_caller]
pub fn close(mut pty: Pty, said: &str) {
    // What is typed before it has ended would be the screen's.
    pty.wait_until("the prompt after it", SOON, |text| text.contains(said) && text.trim_end().ends_with(PROMPT));
    pty.send("exit\r");
    pty.wait_exit(SOON);
    pty.assert_restored();
}
