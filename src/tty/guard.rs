//! The terminal as a screen needs it, and back again exactly once: on drop, on error, on panic, for
//! a suspend.
//!
//! What is entered is kept in one process-wide slot, so that whoever comes first (the drop, the
//! panic hook of any thread) takes it out and gives the terminal back, and nobody does so twice.

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::sync::{Mutex, MutexGuard, Once, TryLockError};
use std::time::Duration;

use crossterm::{cursor, event, queue, style, terminal};
use tokio::sync::Notify;

use super::TtyError;

/// Which modes to enter beside raw mode, the alternate screen and the hidden cursor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Modes {
    /// Pasted text arrives as one event.
    pub paste: bool,
    /// Focus changes are reported. Off by default: some terminals print the reports at exit.
    pub focus: bool,
    /// Mouse events are reported, at the price of the terminal's own selection. Off by default.
    pub mouse: bool,
}

impl Default for Modes {
    fn default() -> Modes {
        Modes { paste: true, focus: false, mouse: false }
    }
}

/// What is entered at the moment; None when the terminal is as it was found.
static ENTERED: Mutex<Option<Modes>> = Mutex::new(None);

/// Told by the panic hook, after the message was printed.
static FELL: Notify = Notify::const_new();

/// Waits until some thread has panicked while a guard was or had been alive. Safe to drop and call
/// again (in `select!`).
pub async fn fell() {
    FELL.notified().await;
}

fn entered() -> MutexGuard<'static, Option<Modes>> {
    ENTERED.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

fn entered_soon() -> Option<MutexGuard<'static, Option<Modes>>> {
    for _ in 0..200 {
        match ENTERED.try_lock() {
            Ok(slot) => return Some(slot),
            Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(5)),
        }
    }
    None
}

/// True while the terminal is in the state that a screen needs. False after a panic of any thread:
/// then nothing may be drawn any more.
pub fn is_entered() -> bool {
    entered().is_some()
}

/// Keeps the terminal as it is while the result lives: whoever wants to give it back (the panic hook
/// of another thread) waits until then, so that no half of a frame comes after. None when it was
/// given back already.
pub(super) fn hold() -> Option<MutexGuard<'static, Option<Modes>>> {
    Some(entered()).filter(|modes| modes.is_some())
}

/// Gives the terminal back now, if it was taken. Errors are ignored: a terminal that is gone needs
/// nothing, and there is nobody left to tell.
pub fn restore() {
    give_back(&mut entered());
}

fn give_back(slot: &mut Option<Modes>) {
    if let Some(modes) = slot.take() {
        let _ = write_now(&leave_bytes(modes));
        let _ = terminal::disable_raw_mode();
    }
}

/// Holds the terminal; dropping it gives the terminal back.
#[derive(Debug)]
pub struct Guard {
    modes: Modes,
}

impl Guard {
    /// Takes the terminal. There is one terminal, so there must be one guard at a time.
    ///
    /// # Errors
    /// [`TtyError::Setup`] when standard output is no terminal, raw mode is refused, or another
    /// guard is alive; the terminal is then as it was.
    pub fn enter(modes: Modes) -> Result<Guard, TtyError> {
        if !io::stdout().is_terminal() {
            return Err(TtyError::Setup(io::Error::other("standard output is not a terminal")));
        }
        if is_entered() {
            return Err(TtyError::Setup(io::Error::other("the terminal is already in use by this program")));
        }
        hook_panics();
        take(modes).map_err(TtyError::Setup)?;
        Ok(Guard { modes })
    }

    /// Gives the terminal back, stops this process as Ctrl-Z would, and takes the terminal again
    /// when it is continued. Afterwards the whole screen has to be drawn anew
    /// ([`super::output::Term::clear`]). Returns at once where stopping is impossible (no shell
    /// with job control waits for us).
    ///
    /// # Errors
    /// [`TtyError::Setup`] when the terminal can not be taken again.
    pub fn suspend(&mut self) -> Result<(), TtyError> {
        restore();
        // The whole group, as the kernel does for a Ctrl-Z: a wrapper (`cargo run`, `time`) that
        // kept running would keep the shell waiting.
        if rustix::process::kill_current_process_group(rustix::process::Signal::TSTP).is_ok() {
            // The signal may be taken by another thread; until the stop has reached this one,
            // nothing must be written.
            std::thread::sleep(Duration::from_millis(60));
        }
        take(self.modes).map_err(TtyError::Setup)
    }

    /// Takes the terminal again after somebody else changed it: after a SIGSTOP and SIGCONT from
    /// outside the shell has put its own modes. Afterwards draw the whole screen anew.
    ///
    /// # Errors
    /// [`TtyError::Setup`] when the terminal can not be taken again.
    pub fn reassert(&mut self) -> Result<(), TtyError> {
        // crossterm remembers being raw and would do nothing without the way out and in again.
        let _ = terminal::disable_raw_mode();
        take(self.modes).map_err(TtyError::Setup)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        restore();
    }
}

fn take(modes: Modes) -> io::Result<()> {
    // crossterm honours NO_COLOR by emitting an empty SGR, which would also reset bold and reverse.
    // What colours may be used is decided in one place, by `Caps`.
    style::force_color_output(true);
    // The slot is held until all is entered, so that a panic of another thread can not give back
    // one half and have the other half come after.
    let mut slot = entered();
    terminal::enable_raw_mode()?;
    *slot = Some(modes);
    let written = write_now(&enter_bytes(modes));
    if written.is_err() {
        give_back(&mut slot);
    }
    written
}

fn enter_bytes(modes: Modes) -> Vec<u8> {
    let mut out = Vec::new();
    // Writing to a Vec does not fail.
    let _ = queue!(out, terminal::EnterAlternateScreen, cursor::Hide);
    if modes.paste {
        let _ = queue!(out, event::EnableBracketedPaste);
    }
    if modes.focus {
        let _ = queue!(out, event::EnableFocusChange);
    }
    if modes.mouse {
        let _ = queue!(out, event::EnableMouseCapture);
    }
    out
}

fn leave_bytes(modes: Modes) -> Vec<u8> {
    let mut out = Vec::new();
    // A frame may have been cut in the middle of a synchronized update.
    let _ = queue!(out, terminal::EndSynchronizedUpdate, style::ResetColor);
    if modes.mouse {
        let _ = queue!(out, event::DisableMouseCapture);
    }
    if modes.focus {
        let _ = queue!(out, event::DisableFocusChange);
    }
    if modes.paste {
        let _ = queue!(out, event::DisableBracketedPaste);
    }
    let _ = queue!(out, terminal::LeaveAlternateScreen, cursor::Show);
    out
}

/// Past the buffer of `io::stdout`, so that nothing half-written stays there when the terminal dies.
fn write_now(bytes: &[u8]) -> io::Result<()> {
    let mut out = stdout_file()?;
    out.write_all(bytes)
}

/// An own handle of standard output without any buffer.
pub(super) fn stdout_file() -> io::Result<File> {
    Ok(File::from(io::stdout().as_fd().try_clone_to_owned()?))
}

/// Puts a hook in front of the present panic hook, once: first the terminal is given back, then the
/// message is printed where it can be read. [`Guard::enter`] does it, too; call it before the first
/// thread is started whose panic must not be missed ([`fell`]).
pub fn hook_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            // Held while the message is printed, so that no screen is opened or drawn over it. The
            // thread that panics may hold the slot itself: then go on without it after a while.
            let mut slot = entered_soon();
            if let Some(slot) = &mut slot {
                give_back(slot);
            }
            before(info);
            drop(slot);
            FELL.notify_one();
        }));
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_is_entered_is_left() {
        for modes in [Modes::default(), Modes { paste: true, focus: true, mouse: true }] {
            let enter = String::from_utf8(enter_bytes(modes)).unwrap_or_default();
            let leave = String::from_utf8(leave_bytes(modes)).unwrap_or_default();
            for set in enter.split('\u{1b}').filter(|s| s.starts_with("[?") && s.ends_with('h')) {
                assert!(leave.contains(&set.replace('h', "l")), "{set} is not left");
            }
            assert!(enter.contains("[?25l") && leave.contains("[?25h"));
            assert_eq!(enter.contains("[?1000h"), modes.mouse);
        }
    }
}
