//! Copying text to the operator's clipboard, from wherever the program runs.
//!
//! Inside tmux its own buffer is loaded, and tmux hands it on (`load-buffer -w`, tmux 3.2 or newer);
//! elsewhere, and where tmux refuses, the terminal itself is asked by OSC 52, which also works
//! through ssh. Neither says whether it arrived, so the operator is told "sent", not "copied".

use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crossterm::clipboard::CopyToClipboard;
use crossterm::queue;

use crate::job::text::is_unsafe;

/// How text was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Via {
    /// tmux.
    Tmux,
    /// The terminal, by OSC 52.
    Osc52,
}

impl Via {
    /// The words after "sent to clipboard via".
    pub fn word(self) -> &'static str {
        match self {
            Via::Tmux => "tmux",
            Via::Osc52 => "OSC 52",
        }
    }
}

/// Why nothing was sent.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// Terminals drop or cut long sequences, tmux and xterm near 100 kB.
    #[error("{0} bytes are too many to copy, the limit is {LIMIT}")]
    TooLong(usize),
    /// There was nothing to copy.
    #[error("nothing to copy")]
    Empty,
    /// The terminal could not be written.
    #[error("the terminal can not be written: {0}")]
    Terminal(#[from] std::io::Error),
}

/// Longest text that is sent, in bytes.
pub const LIMIT: usize = 100_000;

/// How long tmux may take.
const TMUX_LIMIT: Duration = Duration::from_secs(2);

/// Text that may be put on a clipboard: controls other than line ends and tabs are left out, since
/// what is pasted into a shell acts there (an escape can end a bracketed paste).
pub fn harmless(text: &str) -> String {
    text.chars().filter(|c| matches!(c, '\n' | '\t') || !is_unsafe(*c)).collect()
}

/// Sends `text`; `osc` receives the escape sequence where tmux does not take it, and is written to
/// the terminal by the caller. May take up to two seconds when tmux hangs.
///
/// # Errors
/// [`CopyError`]: nothing was sent.
pub fn copy(text: &str, osc: &mut Vec<u8>) -> Result<Via, CopyError> {
    let in_tmux = std::env::var_os("TMUX").is_some_and(|v| !v.is_empty());
    copy_with(text, in_tmux.then_some("tmux"), osc)
}

fn copy_with(text: &str, tmux: Option<&str>, osc: &mut Vec<u8>) -> Result<Via, CopyError> {
    let text = harmless(text);
    if text.is_empty() {
        return Err(CopyError::Empty);
    }
    if text.len() > LIMIT {
        return Err(CopyError::TooLong(text.len()));
    }
    if tmux.is_some_and(|program| load_buffer(program, &text, TMUX_LIMIT)) {
        return Ok(Via::Tmux);
    }
    queue!(osc, CopyToClipboard::to_clipboard_from(&text))?;
    Ok(Via::Osc52)
}

/// True when tmux took the text.
fn load_buffer(program: &str, text: &str, limit: Duration) -> bool {
    let mut command = Command::new(program);
    command.args(["load-buffer", "-w", "-"]).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let Ok(mut child) = command.spawn() else { return false };
    if let Some(mut stdin) = child.stdin.take() {
        let text = text.to_string();
        // In a thread: a tmux that does not read would block the write for ever. It ends when the
        // child does, because then the pipe breaks.
        thread::spawn(move || {
            let _ = stdin.write_all(text.as_bytes());
        });
    }
    wait(&mut child, limit)
}

fn wait(child: &mut Child, limit: Duration) -> bool {
    let end = Instant::now() + limit;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return status.success(),
            Ok(None) if Instant::now() < end => thread::sleep(Duration::from_millis(5)),
            Ok(None) | Err(_) => {
                let _ = child.kill();
                let _ = child.wait();
                return false;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn osc_52_carries_the_text_and_nothing_hostile() {
        let mut out = Vec::new();
        let via = copy_with("jobs/a\u{1b}[201~\u{7}b", None, &mut out).ok();
        assert_eq!(via, Some(Via::Osc52));
        // base64 of "jobs/a[201~b"
        assert_eq!(String::from_utf8_lossy(&out), "\u{1b}]52;c;am9icy9hWzIwMX5i\u{1b}\\");
    }

    #[test]
    fn limits_hold() {
        let mut out = Vec::new();
        assert!(
            matches!(copy_with(&"x".repeat(LIMIT + 1), None, &mut out), Err(CopyError::TooLong(n)) if n == LIMIT + 1)
        );
        assert!(matches!(copy_with("\u{1b}\u{0}", None, &mut out), Err(CopyError::Empty)));
        assert!(out.is_empty());
    }

    #[test]
    fn a_program_that_is_missing_fails_or_hangs_falls_back() {
        let mut out = Vec::new();
        for program in ["/nonexistent/tmux", "false"] {
            assert_eq!(copy_with("x", Some(program), &mut out).ok(), Some(Via::Osc52), "{program}");
        }
        assert_eq!(copy_with("x", Some("true"), &mut out).ok(), Some(Via::Tmux));
        // `sleep load-buffer` fails at once, so the limit is tried on its own.
        let child = Command::new("sleep").arg("30").spawn();
        let began = Instant::now();
        assert!(!child.is_ok_and(|mut c| wait(&mut c, Duration::from_millis(50))));
        assert!(began.elapsed() < Duration::from_secs(5));
    }
}
