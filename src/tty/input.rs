//! Keys and their like, read by a thread of their own that sleeps in the kernel until there are some.

use std::fs::File;
use std::io::{self, IsTerminal};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crossterm::event::{self, Event, KeyEvent, KeyEventKind, MouseEvent};
use rustix::event::{PollFd, PollFlags};

/// One thing that came from the terminal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// A key was pressed (or repeats); releases are not reported.
    Key(KeyEvent),
    /// Text was pasted. Anything may be in it, line ends and controls too.
    Paste(String),
    /// The terminal has this size now: columns, rows. A storm of changes is one event.
    Resize(u16, u16),
    /// The terminal window got (true) or lost the focus.
    Focus(bool),
    /// The mouse, where it was asked for.
    Mouse(MouseEvent),
    /// There will be no more input: the terminal was closed, or reading fails with this message.
    Gone(String),
}

/// Starts reading. `send` takes each input, may block (a bounded channel), and returns false when
/// nobody listens any more; then reading ends. It is called from two threads: one reads, the other
/// waits for the terminal to be closed, which the reading one does not notice. Both end with the
/// process; they hold nothing that would have to be given back.
///
/// # Errors
/// Those of opening the terminal or starting a thread.
pub fn spawn(send: impl Fn(Input) -> bool + Send + Sync + 'static) -> io::Result<()> {
    let send = Arc::new(send);
    let tty = terminal_fd()?;
    let on_close = Arc::clone(&send);
    thread::Builder::new().name("tty-closed".into()).stack_size(64 * 1024).spawn(move || {
        wait_for_close(&tty);
        on_close(Input::Gone("the terminal was closed".into()));
    })?;
    thread::Builder::new().name("tty-input".into()).stack_size(256 * 1024).spawn(move || read_all(&*send))?;
    Ok(())
}

/// The descriptor that keys are read from: standard input, else the controlling terminal.
fn terminal_fd() -> io::Result<OwnedFd> {
    let stdin = io::stdin();
    if stdin.is_terminal() {
        return stdin.as_fd().try_clone_to_owned();
    }
    Ok(File::open("/dev/tty")?.into())
}

/// Sleeps until the terminal hangs up. Asking for no event at all leaves just the hang-up and the
/// error, which the kernel always reports; keys do not wake this thread.
fn wait_for_close(tty: &OwnedFd) {
    loop {
        let mut fds = [PollFd::new(tty, PollFlags::empty())];
        match rustix::event::poll(&mut fds, None) {
            Ok(0) | Err(rustix::io::Errno::INTR) => continue,
            Ok(_) | Err(_) => return,
        }
    }
}

fn read_all(send: &dyn Fn(Input) -> bool) {
    loop {
        let first = match event::read() {
            Ok(event) => event,
            Err(error) => {
                send(Input::Gone(error.to_string()));
                return;
            }
        };
        // Not zero: this event source then does not look at all. It is asked after a resize only.
        let more = || event::poll(Duration::from_millis(1)).unwrap_or(false).then(event::read).and_then(Result::ok);
        for input in coalesce(first, more) {
            if !send(input) {
                return;
            }
        }
    }
}

/// One event, or for a resize the last of a run of resizes and what came after it. `more` gives what
/// is already there, without waiting.
fn coalesce(first: Event, mut more: impl FnMut() -> Option<Event>) -> Vec<Input> {
    let mut size = match first {
        Event::Resize(columns, rows) => (columns, rows),
        other => return decode(other).into_iter().collect(),
    };
    while let Some(event) = more() {
        match event {
            Event::Resize(columns, rows) => size = (columns, rows),
            other => return [Some(Input::Resize(size.0, size.1)), decode(other)].into_iter().flatten().collect(),
        }
    }
    vec![Input::Resize(size.0, size.1)]
}

fn decode(event: Event) -> Option<Input> {
    match event {
        Event::Key(key) if key.kind == KeyEventKind::Release => None,
        Event::Key(key) => Some(Input::Key(key)),
        Event::Paste(text) => Some(Input::Paste(text)),
        Event::Resize(columns, rows) => Some(Input::Resize(columns, rows)),
        Event::FocusGained => Some(Input::Focus(true)),
        Event::FocusLost => Some(Input::Focus(false)),
        Event::Mouse(mouse) => Some(Input::Mouse(mouse)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crossterm::event::{KeyCode, KeyModifiers};

    #[test]
    fn a_storm_of_resizes_is_one_event_and_keys_keep_their_place() {
        let key = Event::Key(KeyEvent::new(KeyCode::Char('q'), KeyModifiers::NONE));
        let mut queue = vec![key.clone(), Event::Resize(3, 3), Event::Resize(2, 2)];
        let got = coalesce(Event::Resize(1, 1), || queue.pop());
        assert_eq!(got, [Input::Resize(3, 3), Input::Key(KeyEvent::new(KeyCode::Char('q'), KeyModifiers::NONE))]);
        let mut asked = false;
        let got = coalesce(key, || {
            asked = true;
            None
        });
        assert_eq!(got.len(), 1);
        assert!(!asked, "a key is passed on without looking for more");
    }

    #[test]
    fn releases_are_dropped() {
        let mut key = KeyEvent::new(KeyCode::Enter, KeyModifiers::NONE);
        key.kind = KeyEventKind::Release;
        assert_eq!(decode(Event::Key(key)), None);
    }
}
