//! Runs a program in a pty, with a terminal emulator as its screen, keeping every byte it sent.

use std::io::{Read, Write};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use portable_pty::{Child, CommandBuilder, ExitStatus, MasterPty, PtySize, native_pty_system};
use rustix::process::{Pid, Signal};

use super::escapes::{self, Modes};

/// Keys as a terminal sends them.
pub mod key {
    pub const UP: &str = "\x1b[A";
    pub const DOWN: &str = "\x1b[B";
    pub const RIGHT: &str = "\x1b[C";
    pub const LEFT: &str = "\x1b[D";
    pub const HOME: &str = "\x1b[H";
    pub const END: &str = "\x1b[F";
    pub const PAGE_UP: &str = "\x1b[5~";
    pub const PAGE_DOWN: &str = "\x1b[6~";
    pub const ENTER: &str = "\r";
    pub const ESC: &str = "\x1b";
    pub const TAB: &str = "\t";
    pub const BACKSPACE: &str = "\x7f";
    pub const CTRL_C: &str = "\x03";
    pub const CTRL_Z: &str = "\x1a";
}

/// The line discipline's flags, to compare before and after.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LineModes {
    pub input: u64,
    pub output: u64,
    pub local: u64,
}

impl LineModes {
    /// `ICANON` and `ECHO` are set: what a shell's prompt expects.
    pub fn is_cooked(&self) -> bool {
        use rustix::termios::LocalModes;
        let wanted = u64::from((LocalModes::ICANON | LocalModes::ECHO).bits());
        self.local & wanted == wanted
    }
}

struct Screen {
    terminal: avt::Terminal,
    /// Bytes of a character that is not complete yet.
    partial: Vec<u8>,
    raw: Vec<u8>,
    /// When the last byte came.
    last: Instant,
    closed: bool,
    /// A synchronized update was begun and has not ended: half a frame is on the screen.
    half: bool,
}

struct Shared {
    screen: Mutex<Screen>,
    changed: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Screen> {
        self.screen.lock().unwrap()
    }

    /// Not in the middle of a frame, as a terminal shows it; given up after two seconds.
    fn whole(&self) -> MutexGuard<'_, Screen> {
        let end = Instant::now() + Duration::from_secs(2);
        let mut screen = self.lock();
        while screen.half && !screen.closed && Instant::now() < end {
            screen = self.changed.wait_timeout(screen, Duration::from_millis(50)).unwrap().0;
        }
        screen
    }
}

/// A program in a pty. Killed when dropped.
pub struct Pty {
    child: Box<dyn Child + Send + Sync>,
    master: Box<dyn MasterPty + Send>,
    writer: Box<dyn Write + Send>,
    shared: Arc<Shared>,
    /// The line modes before the program started.
    pub before: LineModes,
    /// When the program was started.
    pub started: Instant,
}

impl Pty {
    /// Starts `program`. Of the environment, `PATH`, `HOME` and what cargo's coverage needs stay;
    /// `TERM=xterm-256color`, `LANG=C.UTF-8`; `env` is added.
    pub fn spawn(program: impl AsRef<Path>, args: &[&str], cols: u16, rows: u16, env: &[(&str, &str)]) -> Pty {
        let mut command = CommandBuilder::new(program.as_ref());
        command.args(args);
        command.env_clear();
        for keep in ["PATH", "HOME", "TMPDIR", "LD_LIBRARY_PATH", "PILOTHOUSE_SHARED", "RUST_BACKTRACE"] {
            if let Some(value) = std::env::var_os(keep) {
                command.env(keep, value);
            }
        }
        command.env("TERM", "xterm-256color");
        command.env("LANG", "C.UTF-8");
        for (name, value) in env {
            command.env(name, value);
        }
        command.cwd(std::env::current_dir().unwrap());
        let pair = native_pty_system().openpty(size(cols, rows)).unwrap();
        let before = line_modes(&*pair.master);
        let shared = Arc::new(Shared {
            screen: Mutex::new(Screen {
                terminal: avt::Terminal::new(cols.into(), rows.into()).unwrap(),
                partial: Vec::new(),
                raw: Vec::new(),
                last: Instant::now(),
                closed: false,
                half: false,
            }),
            changed: Condvar::new(),
        });
        let mut reader = pair.master.try_clone_reader().unwrap();
        let writer = pair.master.take_writer().unwrap();
        let started = Instant::now();
        let child = pair.slave.spawn_command(command).unwrap();
        drop(pair.slave);
        let feed = Arc::clone(&shared);
        thread::spawn(move || {
            let mut chunk = vec![0; 64 * 1024];
            loop {
                let n = reader.read(&mut chunk).unwrap_or(0);
                let mut screen = feed.lock();
                match n {
                    0 => screen.closed = true,
                    n => screen.feed(&chunk[..n]),
                }
                drop(screen);
                feed.changed.notify_all();
                if n == 0 {
                    return;
                }
            }
        });
        Pty { child, master: pair.master, writer, shared, before, started }
    }

    /// The binary of this package.
    pub fn pilothouse(args: &[&str], cols: u16, rows: u16, env: &[(&str, &str)]) -> Pty {
        Pty::spawn(env!("CARGO_BIN_EXE_pilothouse"), args, cols, rows, env)
    }

    /// Types `keys`.
    pub fn send(&mut self, keys: &str) {
        self.writer.write_all(keys.as_bytes()).unwrap();
        self.writer.flush().unwrap();
    }

    /// Changes the size, as dragging the window's corner does.
    pub fn resize(&mut self, cols: u16, rows: u16) {
        self.shared.lock().terminal.resize(cols.into(), rows.into());
        self.master.resize(size(cols, rows)).unwrap();
    }

    /// The screen's rows, without trailing blanks.
    pub fn screen(&self) -> Vec<String> {
        self.shared.whole().rows()
    }

    /// The screen as one text.
    pub fn text(&self) -> String {
        self.screen().join("\n")
    }

    /// Every byte so far.
    pub fn raw(&self) -> Vec<u8> {
        self.shared.lock().raw.clone()
    }

    /// Number of bytes so far.
    pub fn raw_len(&self) -> usize {
        self.shared.lock().raw.len()
    }

    /// Waits until the screen shows `text`; says how long it took.
    #[track_caller]
    pub fn wait_for(&self, text: &str, timeout: Duration) -> Duration {
        self.wait_until(&format!("{text:?} on the screen"), timeout, |screen| screen.contains(text))
    }

    /// Waits until the screen does not show `text`.
    #[track_caller]
    pub fn wait_gone(&self, text: &str, timeout: Duration) -> Duration {
        self.wait_until(&format!("{text:?} gone from the screen"), timeout, |screen| !screen.contains(text))
    }

    /// Waits until `holds` is true of the screen's text; panics with the screen after `timeout`.
    #[track_caller]
    pub fn wait_until(&self, what: &str, timeout: Duration, mut holds: impl FnMut(&str) -> bool) -> Duration {
        let began = Instant::now();
        let mut screen = self.shared.lock();
        loop {
            let text = screen.rows().join("\n");
            if !screen.half && holds(&text) {
                return began.elapsed();
            }
            let left = timeout.saturating_sub(began.elapsed());
            if left.is_zero() || screen.closed {
                let why = if screen.closed { "the program ended" } else { "time is over" };
                let tail = String::from_utf8_lossy(&screen.raw[screen.raw.len().saturating_sub(2000)..]).into_owned();
                drop(screen);
                panic!(
                    "{why} after {:?} without {what}; the screen:\n{text}\n--- last bytes: {tail:?}",
                    began.elapsed()
                );
            }
            screen = self.shared.changed.wait_timeout(screen, left.min(Duration::from_millis(500))).unwrap().0;
        }
    }

    /// Waits until nothing has come for `quiet`; panics after `timeout`.
    #[track_caller]
    pub fn settle(&self, quiet: Duration, timeout: Duration) {
        let began = Instant::now();
        loop {
            let silent = self.shared.lock().last.elapsed();
            if silent >= quiet {
                return;
            }
            assert!(began.elapsed() < timeout, "still drawing after {timeout:?}:\n{}", self.text());
            thread::sleep(quiet - silent);
        }
    }

    /// Process id.
    pub fn pid(&self) -> u32 {
        self.child.process_id().unwrap()
    }

    /// Sends a signal to the program.
    pub fn kill(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.pid()).unwrap()).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Waits for the end of the program and of its output; panics with the screen after `timeout`.
    #[track_caller]
    pub fn wait_exit(&mut self, timeout: Duration) -> ExitStatus {
        let began = Instant::now();
        let status = loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                break status;
            }
            assert!(began.elapsed() < timeout, "still running after {timeout:?}:\n{}", self.text());
            thread::sleep(Duration::from_millis(5));
        };
        let mut screen = self.shared.lock();
        let end = Instant::now() + Duration::from_secs(2);
        while !screen.closed && Instant::now() < end {
            screen = self.shared.changed.wait_timeout(screen, Duration::from_millis(50)).unwrap().0;
        }
        status
    }

    /// Terminal modes after everything that was sent so far.
    pub fn modes(&self) -> Modes {
        escapes::modes(&self.raw())
    }

    /// The line modes now; also after the program's end.
    pub fn line_modes(&self) -> LineModes {
        line_modes(&*self.master)
    }

    /// Everything is as it was before the program started.
    #[track_caller]
    pub fn assert_restored(&self) {
        assert_eq!(self.modes(), Modes::default(), "terminal modes; last bytes {:?}", self.tail());
        assert_eq!(self.line_modes(), self.before, "line modes");
    }

    /// The last bytes as text.
    pub fn tail(&self) -> String {
        let raw = self.raw();
        String::from_utf8_lossy(&raw[raw.len().saturating_sub(600)..]).into_owned()
    }
}

impl Drop for Pty {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

impl Screen {
    fn feed(&mut self, bytes: &[u8]) {
        self.raw.extend_from_slice(bytes);
        // The end of what came before, too: a sequence may be cut between two reads.
        let recent = &self.raw[self.raw.len().saturating_sub(bytes.len() + 8)..];
        let at = |sequence: &[u8]| recent.windows(sequence.len()).rposition(|w| w == sequence);
        match (at(b"\x1b[?2026h"), at(b"\x1b[?2026l")) {
            (Some(begin), end) if end.is_none_or(|end| begin > end) => self.half = true,
            (_, Some(_)) => self.half = false,
            _ => {}
        }
        self.last = Instant::now();
        self.partial.extend_from_slice(bytes);
        let whole = match std::str::from_utf8(&self.partial) {
            Ok(_) => self.partial.len(),
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            Err(_) => self.partial.len(),
        };
        let text = String::from_utf8_lossy(&self.partial[..whole]).into_owned();
        self.partial.drain(..whole);
        self.terminal.feed(text.as_str());
    }

    fn rows(&self) -> Vec<String> {
        self.terminal.screen().visible_lines().map(|line| line.text().trim_end().to_string()).collect()
    }
}

fn size(cols: u16, rows: u16) -> PtySize {
    PtySize { rows, cols, pixel_width: 0, pixel_height: 0 }
}

fn line_modes(master: &dyn MasterPty) -> LineModes {
    let termios = master.get_termios().unwrap();
    LineModes {
        input: termios.input_flags.bits().into(),
        output: termios.output_flags.bits().into(),
        local: termios.local_flags.bits().into(),
    }
}
