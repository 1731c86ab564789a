//! The terminal is given back whatever happens: probes run in a pty, as this test's own binary
//! started again with one ignored test.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, missing_docs)]

mod support;

use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

use crossterm::event::{KeyCode, KeyModifiers};
use pilothouse::tty::signals::{Request, Signals};
use pilothouse::tty::{ColorLevel, Guard, Input, Modes, Term, TtyError, guard, input};
use ratatui::widgets::Paragraph;
use rustix::process::Signal;
use support::escapes::{self, Allowed, assert_no_foreign_escapes};
use support::pty::{Pty, key};
use support::{proc, shell};

const SOON: Duration = Duration::from_secs(20);

fn probe_args(name: &str) -> [&str; 5] {
    [name, "--exact", "--ignored", "--nocapture", "--test-threads=1"]
}

fn probe(name: &str) -> Pty {
    let this = std::env::current_exe().unwrap();
    Pty::spawn(this, &probe_args(name), 60, 10, &[])
}

/// The sequence from the first escape on: before it there is what the test runner prints.
fn ours(pty: &Pty) -> Vec<u8> {
    let raw = pty.raw();
    let begin = raw.iter().position(|b| *b == 0x1b).unwrap_or(raw.len());
    raw[begin..].to_vec()
}

// ---- probes -------------------------------------------------------------------------------------

struct Loop {
    guard: Guard,
    term: Term,
    inputs: Receiver<Input>,
    last: String,
}

impl Loop {
    fn start(modes: Modes) -> Loop {
        let guard = Guard::enter(modes).unwrap();
        let term = Term::new(ColorLevel::Ansi256).unwrap();
        let (tx, inputs) = sync_channel(16);
        input::spawn(move |input| tx.send(input).is_ok()).unwrap();
        Loop { guard, term, inputs, last: "nothing".into() }
    }

    fn draw(&mut self) -> Result<(), TtyError> {
        let (last, frames) = (&self.last, self.term.stats().written);
        self.term.draw(|frame| {
            let size = frame.area().as_size();
            frame.render_widget(Paragraph::new(format!("probe {size}\nlast {last}\nframes {frames}")), frame.area());
        })
    }

    /// The next key, or None when the terminal is gone; other inputs are drawn.
    fn key(&mut self) -> Option<(KeyCode, KeyModifiers)> {
        loop {
            match self.inputs.recv().unwrap() {
                Input::Key(key) => {
                    self.last = format!("{:?}", key.code);
                    return Some((key.code, key.modifiers));
                }
                Input::Gone(_) => return None,
                other => self.last = format!("{other:?}"),
            }
            self.draw().ok()?;
        }
    }
}

/// Keys: q leaves, p panics, t panics in a thread, Ctrl-Z suspends, c copies and rings.
fn run(modes: Modes) -> &'static str {
    let mut probe = Loop::start(modes);
    probe.draw().unwrap();
    loop {
        let Some((code, modifiers)) = probe.key() else { return "gone" };
        match code {
            KeyCode::Char('q') => return "quit",
            KeyCode::Char('p') => panic!("the probe fell over"),
            KeyCode::Char('t') => {
                let fell = std::thread::spawn(|| panic!("a thread fell over")).join();
                assert!(fell.is_err());
            }
            KeyCode::Char('z') if modifiers == KeyModifiers::CONTROL => {
                probe.guard.suspend().unwrap();
                probe.term.clear();
                probe.last = "resumed".into();
            }
            KeyCode::Char('c') => {
                probe.term.copy("some/path").unwrap();
                probe.term.bell().unwrap();
            }
            _ => {}
        }
        match probe.draw() {
            Ok(()) => {}
            Err(TtyError::Gone(error)) => {
                drop(probe);
                println!("left because: {error}");
                return "gone";
            }
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
#[ignore = "started by the others in a pty"]
fn probe_plain() {
    let why = run(Modes::default());
    println!("probe ended: {why}");
}

#[test]
#[ignore = "started by the others in a pty"]
fn probe_all_modes() {
    run(Modes { paste: true, focus: true, mouse: true });
}

#[test]
#[ignore = "started by the others in a pty"]
fn probe_signals() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut probe = Loop::start(Modes::default());
    let why = runtime.block_on(async {
        let mut signals = Signals::new().unwrap();
        probe.draw().unwrap();
        loop {
            match signals.next().await {
                Request::Stop(name, _) => return name,
                Request::Fell => return "panic",
                Request::Continued => {
                    probe.guard.reassert().unwrap();
                    probe.term.clear();
                    probe.last = "continued".into();
                    probe.draw().unwrap();
                }
            }
        }
    });
    drop(probe);
    println!("stopped by {why}");
}

/// Holds a pty with a probe in it, so that killing this process hangs up the probe's terminal.
#[test]
#[ignore = "started by the others"]
fn probe_holder() {
    let this = std::env::current_exe().unwrap();
    // The hang-up signal is ignored, so that the terminal's silence is all there is to notice.
    let line = format!("trap '' HUP; exec '{}' {}", this.display(), probe_args("probe_plain").join(" "));
    let pty = Pty::spawn("/bin/sh", &["-c", &line], 60, 10, &[]);
    pty.wait_for("probe 60x10", SOON);
    println!("holding {}", pty.pid());
    loop {
        std::thread::sleep(SOON);
    }
}

// ---- tests --------------------------------------------------------------------------------------

#[test]
fn quit_gives_the_terminal_back() {
    for (name, modes) in [("probe_plain", 1), ("probe_all_modes", 3)] {
        let mut pty = probe(name);
        pty.wait_for("probe 60x10", SOON);
        let during = pty.modes();
        assert!(during.alternate_screen && !during.cursor_visible && during.bracketed_paste && !during.synchronized);
        assert_eq!((during.mouse, during.focus), (modes == 3, modes == 3));
        assert!(!pty.line_modes().is_cooked());
        pty.send("q");
        assert!(pty.wait_exit(SOON).success());
        pty.assert_restored();
        assert_no_foreign_escapes(&ours(&pty), Allowed::default());
        let left = String::from_utf8_lossy(&ours(&pty)).matches("\u{1b}[?1049l").count();
        assert_eq!(left, 1, "left exactly once");
    }
}

#[test]
fn keys_pastes_and_sizes_arrive() {
    let mut pty = probe("probe_plain");
    pty.wait_for("probe 60x10", SOON);
    pty.send(key::DOWN);
    pty.wait_for("last Down", SOON);
    pty.send("\u{1b}[200~two\nlines\u{1b}[201~");
    pty.wait_for("Paste(\"two\\nlines\")", SOON);
    for (cols, rows) in [(80, 24), (45, 20), (40, 12), (120, 40)] {
        pty.resize(cols, rows);
    }
    pty.wait_for("probe 120x40", SOON);
    pty.wait_for("last Resize(120, 40)", SOON);
    pty.send("q");
    pty.wait_exit(SOON);
    pty.assert_restored();
}

#[test]
fn copy_and_bell_are_the_only_others() {
    let mut pty = probe("probe_plain");
    pty.wait_for("probe 60x10", SOON);
    pty.send("c");
    pty.wait_for("last Char('c')", SOON);
    pty.send("q");
    pty.wait_exit(SOON);
    let raw = ours(&pty);
    assert_no_foreign_escapes(&raw, Allowed { clipboard: true, bell: true });
    assert_eq!(escapes::foreign(&raw, Allowed::default()).len(), 2);
    assert!(String::from_utf8_lossy(&raw).contains("\u{1b}]52;c;c29tZS9wYXRo\u{1b}\\"));
}

#[test]
fn a_panic_is_printed_on_a_terminal_given_back() {
    for (key, message, ends) in [("p", "the probe fell over", false), ("t", "a thread fell over", true)] {
        let mut pty = probe("probe_plain");
        pty.wait_for("probe 60x10", SOON);
        pty.send(key);
        let status = pty.wait_exit(SOON);
        assert_eq!(status.success(), ends, "{message}");
        pty.assert_restored();
        let raw = String::from_utf8_lossy(&pty.raw()).into_owned();
        let back = raw.find("\u{1b}[?1049l").unwrap();
        assert!(raw.find(message).unwrap() > back, "the message comes after the screen is left");
        assert_eq!(raw.matches("\u{1b}[?1049l").count(), 1);
        assert!(!raw[back..].contains("\u{1b}[?2026h"), "nothing is drawn after it: {:?}", &raw[back..]);
    }
}

#[test]
fn signals_end_it_in_good_order() {
    for (signal, name) in [(Signal::TERM, "SIGTERM"), (Signal::HUP, "SIGHUP"), (Signal::INT, "SIGINT")] {
        let mut pty = probe("probe_signals");
        pty.wait_for("probe 60x10", SOON);
        pty.kill(signal);
        assert!(pty.wait_exit(SOON).success());
        pty.assert_restored();
        assert!(pty.tail().contains(&format!("stopped by {name}")));
    }
}

#[test]
fn stop_and_continue_from_outside_puts_the_screen_back() {
    let mut pty = probe("probe_signals");
    pty.wait_for("probe 60x10", SOON);
    pty.kill(Signal::STOP);
    proc::wait_state(pty.pid(), 'T', SOON);
    pty.kill(Signal::CONT);
    pty.wait_for("last continued", SOON);
    assert!(!pty.line_modes().is_cooked());
    pty.kill(Signal::TERM);
    pty.wait_exit(SOON);
    pty.assert_restored();
}

#[test]
fn ctrl_z_gives_the_shell_its_terminal_and_fg_brings_the_screen_back() {
    let this = std::env::current_exe().unwrap();
    let mut pty = shell::open(60, 12, &[]);
    let line = format!("'{}' {}", this.display(), probe_args("probe_plain").join(" "));
    shell::start_stop_and_continue(&mut pty, &line, "probe 60x12");
    pty.wait_for("last resumed", SOON);
    pty.send("q");
    shell::close(pty, "probe ended: quit");
}

#[test]
fn ctrl_z_without_a_shell_changes_nothing() {
    let mut pty = probe("probe_plain");
    pty.wait_for("probe 60x10", SOON);
    pty.send(key::CTRL_Z);
    pty.wait_for("last resumed", SOON);
    pty.send("q");
    assert!(pty.wait_exit(SOON).success());
    pty.assert_restored();
}

#[test]
fn a_closed_window_ends_it() {
    let this = std::env::current_exe().unwrap();
    let mut holder = std::process::Command::new(this)
        .args(probe_args("probe_holder"))
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

#[test]
fn waiting_costs_nothing() {
    let pty = probe("probe_plain");
    pty.wait_for("probe 60x10", SOON);
    std::thread::sleep(Duration::from_millis(300));
    let before = proc::voluntary_switches(pty.pid());
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(proc::voluntary_switches(pty.pid()) - before, 0, "nothing wakes it while nothing happens");
}

#[test]
fn no_terminal_is_an_error() {
    // Under cargo test the standard output may be a terminal or not; both must be clean.
    if !std::io::IsTerminal::is_terminal(&std::io::stdout()) {
        assert!(matches!(Guard::enter(Modes::default()), Err(TtyError::Setup(_))));
        assert!(!guard::is_entered());
    }
}
