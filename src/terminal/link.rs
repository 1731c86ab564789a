//! The connection to one shell: a task that always reads, a task that types.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use super::emulator::Emulator;
use super::flow::Flow;
use super::inside::GREETING;
use super::record::Recording;
use crate::environment::{EnvError, Pty, PtyReader, PtyWriter, Trouble};

/// Bytes read at once.
const READ: usize = 16 * 1024;
/// Bytes that the emulator takes at once.
const CHUNK: usize = 1024;
/// Work (about one printed character each) after which others have their turn: some milliseconds.
const TURN: u64 = 64 * 1024;
/// Bytes typed at once …
const PIECE: usize = 512;
/// … and the pause behind them: the engine would take any amount at once, and what it has taken can
/// not be taken back.
const PAUSE: Duration = Duration::from_millis(1);
/// Strings that wait to be typed.
const QUEUE: usize = 1024;
/// Most bytes that wait to be typed.
pub(super) const BACKLOG: usize = 16 << 20;
/// For the greeting of the way to the shell.
const GREETED: Duration = Duration::from_secs(30);
/// Most bytes before the greeting.
const BEFORE_GREETING: usize = 64 * 1024;
/// Notes kept.
const NOTES: usize = 1000;

/// What the tasks and the owner share.
#[derive(Debug)]
pub(super) struct Shared {
    state: Mutex<State>,
    /// Counts what was printed.
    pub(super) changed: watch::Sender<u64>,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) emulator: Emulator,
    pub(super) recording: Option<Recording>,
    pub(super) notes: Vec<String>,
    /// Bytes printed since the beginning.
    pub(super) printed: u64,
    /// The stream of the present shell has ended.
    pub(super) ended: bool,
}

impl Shared {
    pub(super) fn new(recording: Option<Recording>) -> Shared {
        let state = State { emulator: Emulator::new(), recording, notes: Vec::new(), printed: 0, ended: true };
        Shared { state: Mutex::new(state), changed: watch::Sender::new(0) }
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn tell(&self) {
        self.changed.send_modify(|n| *n = n.wrapping_add(1));
    }
}

impl State {
    pub(super) fn note(&mut self, text: String) {
        tracing::info!("terminal: {text}");
        if self.notes.len() < NOTES {
            self.notes.push(text);
        }
    }

    /// Takes output: the screen, the recording, the answers to type.
    fn take(&mut self, bytes: &[u8]) -> u64 {
        self.printed += bytes.len() as u64;
        self.emulator.feed(bytes, Instant::now())
    }

    fn record(&mut self, bytes: &[u8]) {
        if let Some(recording) = &mut self.recording {
            recording.output(bytes);
            for fault in recording.faults() {
                self.note(fault);
            }
        }
    }
}

/// What is to be typed.
#[derive(Debug)]
struct Typed {
    bytes: Vec<u8>,
    /// Dropped when a later interruption happened.
    epoch: u64,
}

/// The typing side, shared between the owner and the reading task (which types answers).
#[derive(Debug, Clone)]
pub(super) struct Keyboard {
    queue: mpsc::Sender<Typed>,
    epoch: Arc<AtomicU64>,
    waiting: Arc<AtomicUsize>,
}

impl Keyboard {
    /// Bytes that were not handed to the engine yet.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Queues bytes; false when there is no room, or nobody types any more.
    pub(super) fn press(&self, bytes: Vec<u8>) -> bool {
        let n = bytes.len();
        if self.waiting() + n > BACKLOG {
            return false;
        }
        self.waiting.fetch_add(n, Ordering::Relaxed);
        let sent = self.queue.try_send(Typed { bytes, epoch: self.epoch.load(Ordering::Relaxed) }).is_ok();
        if !sent {
            self.waiting.fetch_sub(n, Ordering::Relaxed);
        }
        sent
    }

    /// Forgets what was not handed to the engine yet.
    pub(super) fn forget(&self) {
        self.epoch.fetch_add(1, Ordering::Relaxed);
    }
}

/// A shell and the tasks that serve it. Dropping it closes the connection a moment later;
/// [`Link::close`] waits until it is closed.
#[derive(Debug)]
pub(super) struct Link {
    /// What the engine calls the terminal.
    pub(super) id: String,
    /// The shell's process, and so its session, inside.
    pub(super) leader: u32,
    /// `bash` or `sh`.
    pub(super) shell: String,
    pub(super) keyboard: Keyboard,
    pub(super) began: Instant,
    tasks: [JoinHandle<()>; 2],
}

/// What the way to the shell said.
struct Greeting {
    leader: u32,
    sized: bool,
    shell: String,
    /// What came behind it.
    rest: Vec<u8>,
}

/// Why there was no greeting.
pub(super) enum NoGreeting {
    /// The stream ended; what it said.
    Ended(String),
    /// Nothing came in time.
    Late(String),
}

/// Waits for the greeting and starts the tasks. Gives the shell and whether its size was set.
pub(super) async fn begin(pty: Pty, shared: &Arc<Shared>) -> Result<(Link, bool), NoGreeting> {
    let Pty { id, mut reader, writer } = pty;
    let mut heard = Vec::new();
    let greeting = match tokio::time::timeout(GREETED, greeting(&mut reader, &mut heard)).await {
        Ok(Some(greeting)) => greeting,
        Ok(None) => return Err(NoGreeting::Ended(String::from_utf8_lossy(&heard).into_owned())),
        Err(_) => return Err(NoGreeting::Late(String::from_utf8_lossy(&heard).into_owned())),
    };
    let (queue, typed) = mpsc::channel(QUEUE);
    let keyboard = Keyboard { queue, epoch: Arc::default(), waiting: Arc::default() };
    shared.state().ended = false;
    let typing = tokio::spawn(type_all(writer, typed, keyboard.epoch.clone(), keyboard.waiting.clone()));
    let reading = tokio::spawn(read_all(reader, greeting.rest, Arc::clone(shared), keyboard.clone()));
    let link = Link {
        id,
        leader: greeting.leader,
        shell: greeting.shell,
        keyboard,
        began: Instant::now(),
        tasks: [reading, typing],
    };
    Ok((link, greeting.sized))
}

async fn greeting(reader: &mut PtyReader, heard: &mut Vec<u8>) -> Option<Greeting> {
    let mut piece = vec![0; 4096];
    while heard.len() < BEFORE_GREETING {
        if let Some(greeting) = parse(heard) {
            return Some(greeting);
        }
        match reader.read(&mut piece).await {
            Ok(n) if n > 0 => heard.extend_from_slice(piece.get(..n).unwrap_or_default()),
            _ => return None,
        }
    }
    None
}

fn parse(heard: &[u8]) -> Option<Greeting> {
    let at = memchr::memmem::find(heard, GREETING.as_bytes())?;
    let line = heard.get(at + GREETING.len()..)?;
    let end = memchr::memchr(b'\n', line)?;
    let words = String::from_utf8_lossy(line.get(..end)?).into_owned();
    let mut words = words.split_ascii_whitespace();
    let leader = words.next()?.parse().ok().filter(|n| *n > 1)?;
    let sized = words.next()? == "sized";
    let shell = words.next()?.to_string();
    Some(Greeting { leader, sized, shell, rest: line.get(end + 1..)?.to_vec() })
}

async fn type_all(
    mut writer: PtyWriter,
    mut typed: mpsc::Receiver<Typed>,
    epoch: Arc<AtomicU64>,
    waiting: Arc<AtomicUsize>,
) {
    while let Some(next) = typed.recv().await {
        let mut broken = false;
        for piece in next.bytes.chunks(PIECE) {
            if !broken && next.epoch == epoch.load(Ordering::Relaxed) {
                broken = writer.write_all(piece).await.is_err() || writer.flush().await.is_err();
                if next.bytes.len() > PIECE {
                    tokio::time::sleep(PAUSE).await;
                }
            }
            waiting.fetch_sub(piece.len(), Ordering::Relaxed);
        }
        if broken {
            // The reading side says so: a write that fails is no news, one that succeeds no proof.
            return;
        }
    }
}

async fn read_all(mut reader: PtyReader, rest: Vec<u8>, shared: Arc<Shared>, keyboard: Keyboard) {
    let mut flow = Flow::new(Instant::now());
    let mut buffer = vec![0; READ];
    let mut got = rest;
    loop {
        let mut turn = 0;
        if !got.is_empty() {
            // Before the screen, which may take its time.
            shared.state().record(&got);
        }
        for chunk in got.chunks(CHUNK) {
            let answers = {
                let mut state = shared.state();
                turn += state.take(chunk).max(chunk.len() as u64);
                state.emulator.answers()
            };
            if !answers.is_empty() {
                keyboard.press(answers);
            }
            if turn >= TURN {
                shared.tell();
                rest_of_turn(&mut flow, &mut turn).await;
            }
        }
        if !got.is_empty() {
            shared.tell();
        }
        rest_of_turn(&mut flow, &mut turn).await;
        match reader.read(&mut buffer).await {
            Ok(n) if n > 0 => {
                got.clear();
                got.extend_from_slice(buffer.get(..n).unwrap_or_default());
            }
            _ => break,
        }
    }
    shared.state().ended = true;
    shared.tell();
}

/// Gives the others their turn, and more of it the more was printed.
async fn rest_of_turn(flow: &mut Flow, turn: &mut u64) {
    let wait = flow.spend(std::mem::take(turn), Instant::now());
    if wait.is_zero() { tokio::task::yield_now().await } else { tokio::time::sleep(wait).await }
}

impl Link {
    /// True when nobody reads any more, for whatever reason.
    pub(super) fn is_over(&self) -> bool {
        self.tasks.first().is_none_or(JoinHandle::is_finished)
    }

    /// Closes the connection, and waits until it is closed. The shell runs on.
    pub(super) async fn close(mut self) {
        for task in &mut self.tasks {
            task.abort();
            let _ = task.await;
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
    }
}

/// Why a shell could not be begun.
pub(super) fn not_begun(why: &NoGreeting, exit: Option<i64>) -> EnvError {
    let call = "open a terminal";
    let remedy = "look at the agent's user and directory; the image needs sh";
    match why {
        NoGreeting::Ended(said) => {
            let exit = exit.map_or(String::new(), |code| format!(" (exit code {code})"));
            EnvError::new(Trouble::Command, call, &format!("the shell could not begin{exit}: {said}"), remedy)
        }
        NoGreeting::Late(said) => {
            let detail = format!("no shell in {} s: {said}", GREETED.as_secs());
            EnvError::new(Trouble::TimedOut, call, &detail, "the container is broken: it is given up and removed")
        }
    }
}
