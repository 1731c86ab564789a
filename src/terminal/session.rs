//! The terminal of one agent, from its opening to its end.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::emulator::{COLS, Capture, ROWS};
use super::incremental::{News, Teller};
use super::inside;
use super::keys;
use super::link::{self, Link, Shared};
use super::record::{Recording, TERM};
use crate::cast::Frame;
use crate::environment::{EnvError, Environment, PtyCommand, Trouble};

/// For a script of ours inside.
const INSIDE: Duration = Duration::from_secs(20);
/// A line that a terminal in its line mode takes, in bytes; the rest of a longer one is cut by the
/// kernel without a word.
pub const LONGEST_LINE: usize = 4095;
/// For Ctrl-C to show any effect when much was typed before it.
const STUCK: Duration = Duration::from_millis(700);
/// A shell that ends sooner than this was not used.
const AT_ONCE: Duration = Duration::from_secs(2);

/// Whose terminal, and where.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SessionSpec {
    /// User inside (`name`, `uid` or `uid:gid`); None: the image's.
    pub user: Option<String>,
    /// Working directory inside; None: the image's.
    pub workdir: Option<String>,
    /// Variables, on top of the environment's.
    pub env: Vec<(String, String)>,
}

/// What became of keystrokes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sent {
    /// The shell had ended and a new one was opened before: why.
    pub reopened: Option<String>,
    /// Ctrl-C did not get through what was typed before it, and the program was interrupted from
    /// outside.
    pub interrupted: bool,
}

/// Where a session stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Standing {
    /// The shell runs.
    Open,
    /// It ended: exit code where known. The next keystrokes open another.
    Ended(Option<i64>),
}

/// An agent's terminal.
///
/// What it prints is read all the time, so that a container can be removed; close it
/// ([`Session::close`], [`Session::cancel`]) before the container is killed or removed all the same, and
/// after the verifier is done: what the agent left running may be what is tested.
pub struct Session {
    environment: Arc<dyn Environment>,
    spec: SessionSpec,
    shared: Arc<Shared>,
    link: Option<Link>,
    teller: Teller,
    at_once: u32,
    /// Bytes typed since all that was typed had been echoed, and what had been printed then.
    typed: (usize, u64),
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").field("spec", &self.spec).field("link", &self.link).finish_non_exhaustive()
    }
}

/// A look at a terminal from elsewhere, such as a screen; it does not keep it open.
#[derive(Debug, Clone)]
pub struct View {
    shared: Arc<Shared>,
}

impl View {
    /// The cells.
    pub fn frame(&self) -> Frame {
        self.shared.state().emulator.frame()
    }

    /// Changes whenever something was printed.
    pub fn changes(&self) -> tokio::sync::watch::Receiver<u64> {
        self.shared.changed.subscribe()
    }

    /// Bytes printed since the beginning.
    pub fn printed(&self) -> u64 {
        self.shared.state().printed
    }
}

impl Session {
    /// Opens the terminal: a login shell (bash, else sh) of the task's user, of 160 columns and 40 rows.
    ///
    /// # Errors
    /// The container died ([`Trouble::Died`]) or does not answer; the shell can not begin
    /// ([`Trouble::Command`]). A start whose answer was lost is not repeated.
    pub async fn open(
        environment: Arc<dyn Environment>,
        spec: SessionSpec,
        recording: Option<Recording>,
    ) -> Result<Session, EnvError> {
        let shared = Arc::new(Shared::new(recording));
        let mut session =
            Session { environment, spec, shared, link: None, teller: Teller::default(), at_once: 0, typed: (0, 0) };
        session.link = Some(session.begin(false).await?);
        Ok(session)
    }

    async fn begin(&self, bare: bool) -> Result<Link, EnvError> {
        let (cols, rows) = (COLS.to_string(), ROWS.to_string());
        let login = if bare { "bare" } else { "login" };
        let argv = ["sh", "-c", inside::TO_THE_SHELL, "sh", &cols, &rows, login];
        let mut env = vec![("TERM".to_string(), TERM.to_string())];
        env.extend(self.spec.env.iter().cloned());
        let command = PtyCommand {
            argv: argv.iter().map(|a| (*a).to_string()).collect(),
            user: self.spec.user.clone(),
            workdir: self.spec.workdir.clone(),
            env,
        };
        let pty = self.environment.open_pty(&command).await?;
        let id = pty.id.clone();
        let (link, sized) = match link::begin(pty, &self.shared).await {
            Ok(begun) => begun,
            // The stream says why in the engine's words; whether it began at all, the exit code.
            Err(why) => {
                let exit = self.environment.pty_end(&id).await?;
                return Err(link::not_begun(&why, exit));
            }
        };
        if !sized {
            self.environment.size_pty(&link.id, COLS, ROWS).await?;
            link.keyboard.press(b"\n".to_vec());
        }
        Ok(link)
    }

    /// Types keystrokes (see [`keys`]) and returns at once. A shell that has ended is opened anew
    /// before, and the agent sees a line about it.
    ///
    /// # Errors
    /// The container died or does not answer; or what was typed before was not taken by anybody, more
    /// than 16 MiB of it.
    pub async fn send(&mut self, keystrokes: &str) -> Result<Sent, EnvError> {
        let mut sent = Sent { reopened: self.reopen_if_ended().await?, interrupted: false };
        let bytes = keys::encode(keystrokes, self.shared.state().emulator.key_modes());
        if bytes.is_empty() {
            return Ok(sent);
        }
        self.look_at_lines(&bytes).await;
        // What is taken is echoed, most often; what is in the way of Ctrl-C is not.
        let printed = self.shared.state().printed;
        if printed.saturating_sub(self.typed.1) >= self.typed.0 as u64 {
            self.typed = (0, printed);
        }
        let unseen = (self.typed.0 as u64).saturating_sub(printed - self.typed.1);
        let interrupt = bytes == [3];
        let stuck = interrupt && (unseen > LONGEST_LINE as u64 || self.waiting() > 0);
        self.typed.0 += bytes.len();
        let Some(link) = &self.link else { return Err(closed()) };
        if !link.keyboard.press(bytes) && !self.has_ended() {
            let detail = "what was typed before was not taken, and there is no room for more";
            return Err(EnvError::new(Trouble::Command, "type into the terminal", detail, ""));
        }
        if stuck {
            let mut changes = self.shared.changed.subscribe();
            if tokio::time::timeout(STUCK, changes.changed()).await.is_err() {
                self.interrupt().await?;
                sent.interrupted = true;
            }
        }
        Ok(sent)
    }

    /// Types keystrokes and waits until `duration` has passed since; never shorter, as a program that
    /// is silent may be at work.
    ///
    /// # Errors
    /// As [`Session::send`].
    pub async fn send_and_wait(&mut self, keystrokes: &str, duration: Duration) -> Result<Sent, EnvError> {
        let until = tokio::time::Instant::now() + duration;
        let sent = self.send(keystrokes).await?;
        tokio::time::sleep_until(until).await;
        Ok(sent)
    }

    /// Waits until nothing was printed for `quiet` and nothing waits to be typed, or until `limit`;
    /// true when it got quiet.
    pub async fn settle(&self, quiet: Duration, limit: Duration) -> bool {
        let deadline = tokio::time::Instant::now() + limit;
        let mut changes = self.shared.changed.subscribe();
        loop {
            let now = tokio::time::Instant::now();
            if now >= deadline {
                return false;
            }
            if tokio::time::timeout_at((now + quiet).min(deadline), changes.changed()).await.is_err()
                && self.waiting() == 0
                && now + quiet <= deadline
            {
                return true;
            }
        }
    }

    /// Interrupts the program in front without the terminal: what waits to be typed or read is thrown
    /// away, the program is signalled from outside, and Ctrl-C typed.
    ///
    /// # Errors
    /// The container died or does not answer.
    pub async fn interrupt(&mut self) -> Result<(), EnvError> {
        let Some(link) = &self.link else { return Err(closed()) };
        link.keyboard.forget();
        let leader = link.leader.to_string();
        let script = inside::interrupt();
        let answer = self.environment.probe(&["sh", "-c", &script, "sh", &leader], Some("0"), INSIDE).await?;
        link.keyboard.press(vec![3]);
        self.typed = (0, self.shared.state().printed);
        let how = if answer.exit == 0 { "interrupted" } else { "nothing was in front to interrupt" };
        self.note(format!("Ctrl-C did not get through; from outside: {how}"));
        Ok(())
    }

    /// Bytes that wait to be typed.
    pub fn waiting(&self) -> usize {
        self.link.as_ref().map_or(0, |link| link.keyboard.waiting())
    }

    /// The screen, each row with its end of line, trailing spaces trimmed.
    pub fn screen(&self) -> String {
        self.capture().screen()
    }

    /// Screen and history.
    pub fn capture(&self) -> Capture {
        self.shared.state().emulator.capture()
    }

    /// What to tell the agent: what is new since the last time, or the screen.
    pub fn incremental(&mut self) -> News {
        let capture = self.capture();
        self.teller.tell(&capture)
    }

    /// A look for a screen of ours.
    pub fn view(&self) -> View {
        View { shared: Arc::clone(&self.shared) }
    }

    /// Whose terminal it is, and where it began.
    pub fn spec(&self) -> &SessionSpec {
        &self.spec
    }

    /// Column and row of the cursor, from 0.
    pub fn cursor(&self) -> (u16, u16) {
        self.shared.state().emulator.cursor()
    }

    /// `bash` or `sh`; None when it is closed.
    pub fn shell(&self) -> Option<&str> {
        self.link.as_ref().map(|link| link.shell.as_str())
    }

    /// Ends the present recording and goes on in another one, which begins with what is on the screen, or
    /// in none. The shell and what runs in it take no notice.
    pub fn record(&self, recording: Option<Recording>) {
        let mut state = self.shared.state();
        let before = state.emulator.dump();
        state.recording = recording;
        let Some(recording) = &mut state.recording else { return };
        recording.remark(&before);
        for fault in recording.faults() {
            state.note(fault);
        }
    }

    /// Whether there is a recording, be it one that is at its cap.
    pub fn records(&self) -> bool {
        self.shared.state().recording.is_some()
    }

    /// Marks the beginning of an episode (from 0) in the recording.
    pub fn mark(&self, episode: u64) {
        if let Some(recording) = &mut self.shared.state().recording {
            recording.mark(&format!("episode {episode}"));
        }
    }

    /// What happened to the terminal since the last time, for the trial's log. Safe to print.
    pub fn notes(&self) -> Vec<String> {
        let notes = std::mem::take(&mut self.shared.state().notes);
        notes.iter().map(|note| crate::job::text::clean(note).into_owned()).collect()
    }

    fn note(&self, text: String) {
        self.shared.state().note(text);
    }

    /// Whether the shell runs.
    ///
    /// # Errors
    /// The container died or does not answer.
    pub async fn standing(&self) -> Result<Standing, EnvError> {
        let Some(link) = &self.link else { return Ok(Standing::Ended(None)) };
        if !self.has_ended() {
            return Ok(Standing::Open);
        }
        match self.end_of(link).await? {
            End::Shell(code) => Ok(Standing::Ended(Some(code))),
            End::Lost => Ok(Standing::Ended(None)),
        }
    }

    fn has_ended(&self) -> bool {
        self.shared.state().ended || self.link.as_ref().is_none_or(Link::is_over)
    }

    /// What the end of a stream means.
    async fn end_of(&self, link: &Link) -> Result<End, EnvError> {
        match self.environment.pty_end(&link.id).await {
            Ok(Some(code)) => Ok(End::Shell(code)),
            Ok(None) => Ok(End::Lost),
            // The engine was restarted under a container that lived on.
            Err(e) if e.trouble == Trouble::NotFound => Ok(End::Lost),
            Err(e) => Err(e),
        }
    }

    async fn reopen_if_ended(&mut self) -> Result<Option<String>, EnvError> {
        if !self.has_ended() {
            return Ok(None);
        }
        let Some(link) = self.link.take() else { return Err(closed()) };
        let end = match self.end_of(&link).await {
            Ok(end) => end,
            Err(e) => {
                self.link = Some(link);
                return Err(e);
            }
        };
        let (leader, quick) = (link.leader, link.began.elapsed() < AT_ONCE);
        link.close().await;
        self.at_once = if quick { self.at_once + 1 } else { 0 };
        let why = match end {
            // Those it left behind live on.
            End::Shell(code) => format!("the shell ended with exit code {code}"),
            End::Lost => {
                // It lives on without a terminal, and nobody can attach to it again.
                self.end_inside(leader, "hangup").await?;
                "the connection to the shell was lost".to_string()
            }
        };
        self.note(format!("{why}: a new one is opened"));
        self.say(&format!("[{why}; this is a new one]"));
        // Twice at once may be the doing of its startup files: the next one reads none.
        let bare = self.at_once > 1;
        if bare {
            self.note("the shell ended at once twice: the new one reads no startup files".to_string());
        }
        self.link = Some(self.begin(bare).await?);
        self.typed = (0, self.shared.state().printed);
        Ok(Some(why))
    }

    /// A line of our own on the screen, after what a program may have left behind is undone.
    fn say(&self, line: &str) {
        const ESC: char = '\u{1b}';
        let undo: String = ["[?1049l", "[?1l", "[?6l", "[?7h", "[?25h", "[4l", "[m", "(B", ">"]
            .iter()
            .map(|sequence| format!("{ESC}{sequence}"))
            .collect();
        let text = format!("{undo}\r\n{line}\r\n");
        let mut state = self.shared.state();
        // CAN ends a sequence or string that was begun.
        state.emulator.feed(b"\x18", Instant::now());
        state.emulator.feed(text.as_bytes(), Instant::now());
        if let Some(recording) = &mut state.recording {
            recording.remark(&text);
        }
        drop(state);
        self.shared.tell();
    }

    async fn end_inside(&self, leader: u32, how: &str) -> Result<(), EnvError> {
        let (script, leader) = (inside::end_session(), leader.to_string());
        self.environment.probe(&["sh", "-c", &script, "sh", &leader, how], Some("0"), INSIDE).await.map(drop)
    }

    async fn look_at_lines(&self, bytes: &[u8]) {
        let longest = bytes.split(|b| matches!(b, b'\n' | b'\r')).map(<[u8]>::len).max().unwrap_or(0);
        let Some(link) = &self.link else { return };
        if longest <= LONGEST_LINE {
            return;
        }
        let leader = link.leader.to_string();
        let asked = self.environment.probe(&["sh", "-c", inside::MODE, "sh", &leader], Some("0"), INSIDE).await;
        let program = match asked.as_ref().map(|a| a.text.trim()) {
            Ok("key") => return,
            Ok("line") => "the program in front takes whole lines",
            _ => "if the program in front takes whole lines",
        };
        self.note(format!("a line of {longest} bytes is typed; {program}: the kernel cuts it at {LONGEST_LINE} bytes"));
    }

    /// Closes the connection. What runs inside runs on, for the verifier and until the container is
    /// removed; nobody can attach to it again.
    pub async fn close(mut self) {
        if let Some(link) = self.link.take() {
            link.close().await;
        }
        self.shared.state().ended = true;
        self.shared.tell();
    }

    /// Closes the connection, then kills the session's processes inside.
    ///
    /// # Errors
    /// The container died or does not answer: then it is to be removed.
    pub async fn cancel(mut self) -> Result<(), EnvError> {
        let Some(link) = self.link.take() else { return Ok(()) };
        let leader = link.leader;
        link.close().await;
        self.shared.state().ended = true;
        self.shared.tell();
        self.end_inside(leader, "kill").await
    }
}

/// What a stream's end was.
enum End {
    /// The shell's own, with its exit code.
    Shell(i64),
    /// The connection's; the shell may live.
    Lost,
}

fn closed() -> EnvError {
    EnvError::new(Trouble::NotRunning, "use the terminal", "it is closed", "")
}
