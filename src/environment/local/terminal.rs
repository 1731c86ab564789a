//! Programs with a terminal on this machine.
//!
//! As in a container: the stream ends with the program although its children may hold the terminal;
//! what it leaves in the background lives on until the environment is stopped. Other than there, a
//! terminal whose two ends were dropped is hung up, and its shell is told so, once, by the kernel.

use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use pty_process::{OwnedReadPty, OwnedWritePty, Size};
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::process::Child;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{oneshot, watch};
use tokio::time::{Sleep, sleep};

use super::super::{EnvError, Pty, PtyCommand, Trouble, plain_path};
use super::processes::{kill_session, of_session};
use super::{HOME, Place};

/// Silence behind the end of a program after which all that it printed was read.
const LAST_WORDS: Duration = Duration::from_millis(40);
/// Most that is waited for that, and read behind the end: what it left behind may print for ever.
const LAST_WAIT: Duration = Duration::from_millis(500);
const LAST_BYTES: usize = 1 << 20;
/// For the end of a program to be known whose stream has ended.
const KNOWN: Duration = Duration::from_secs(1);
/// Between two looks at a program where no signal tells of its end.
const LOOK: Duration = Duration::from_millis(100);

/// The terminals that were opened in one environment.
#[derive(Debug, Default)]
pub(super) struct Terminals {
    opened: u64,
    by_id: BTreeMap<String, Terminal>,
}

/// A program with a terminal. Its process is not waited for before this is dropped: until then its
/// number, which is the number of its session, is nobody else's.
#[derive(Debug)]
struct Terminal {
    session: i32,
    /// Exit code, once there is one.
    ended: watch::Receiver<Option<i64>>,
    keys: Weak<Mutex<OwnedWritePty>>,
    /// Dropped with it.
    _kept: oneshot::Sender<()>,
}

impl Terminals {
    /// Kills all that runs in them.
    pub(super) fn end(self) {
        for terminal in self.by_id.values() {
            kill_session(terminal.session);
        }
    }

    /// Forgets those that nothing runs in any more. It takes a look at all processes.
    fn sweep(&mut self) {
        self.by_id.retain(|_, terminal| terminal.ended.borrow().is_none() || !of_session(terminal.session).is_empty());
    }
}

impl Place {
    pub(super) async fn open_terminal(&self, command: &PtyCommand) -> Result<Pty, EnvError> {
        let call = "open a terminal";
        self.running(call)?;
        super::ours(call, command.user.as_deref())?;
        let workdir = self.host(&plain_path(call, command.workdir.as_deref().unwrap_or(HOME))?);
        let refused = |detail: String| EnvError::new(Trouble::Command, call, &detail, "");
        let (program, args) = command.argv.split_first().ok_or_else(|| refused("no program".to_string()))?;
        if !workdir.is_dir() {
            return Err(refused(format!("{}: no such directory", workdir.display())));
        }
        let io = |e: pty_process::Error| refused(e.to_string());
        let (pty, inside) = pty_process::open().map_err(io)?;
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        // In no group of its own: it leads one as the leader of its session.
        let child = self.command(program, &args, &workdir, &command.env);
        let child = pty_process::Command::from(child).spawn(inside).map_err(io)?;
        let session = child.id().and_then(|id| i32::try_from(id).ok()).unwrap_or(0);
        let (reader, writer) = pty.into_split();
        let keys = Arc::new(Mutex::new(writer));
        let (tell, ended) = watch::channel(None);
        let (kept, dropped) = oneshot::channel();
        tokio::spawn(watch_over(child, session, tell, dropped));
        let id = {
            let mut state = self.state();
            if !state.running {
                // It was stopped meanwhile, and nobody would end this one.
                drop(state);
                kill_session(session);
                return self.running(call).and_then(|()| Err(refused("stopped".to_string())));
            }
            state.terminals.sweep();
            state.terminals.opened += 1;
            let id = format!("terminal-{}", state.terminals.opened);
            let terminal = Terminal { session, ended: ended.clone(), keys: Arc::downgrade(&keys), _kept: kept };
            state.terminals.by_id.insert(id.clone(), terminal);
            id
        };
        let over = Box::pin(async move {
            let mut ended = ended;
            let _ = ended.wait_for(Option::is_some).await;
        });
        let reader = Output { pty: reader, over: Some(over), silence: None, last: None, after: 0 };
        Ok(Pty { id, reader: Box::new(reader), writer: Box::new(Keys(keys)) })
    }

    pub(super) async fn end_of_terminal(&self, id: &str) -> Result<Option<i64>, EnvError> {
        let call = "look at a terminal";
        self.running(call)?;
        let known = self.state().terminals.by_id.get(id).map(|terminal| terminal.ended.clone());
        let mut ended = known.ok_or_else(|| unknown(call, id))?;
        // The stream may end a moment before the program.
        let code = tokio::time::timeout(KNOWN, ended.wait_for(Option::is_some)).await;
        Ok(code.ok().and_then(|found| found.ok().and_then(|code| *code)))
    }

    pub(super) fn size_terminal(&self, id: &str, cols: u16, rows: u16) -> Result<(), EnvError> {
        let call = "size a terminal";
        self.running(call)?;
        let keys = self.state().terminals.by_id.get(id).map(|terminal| terminal.keys.clone());
        let keys = keys.and_then(|keys| keys.upgrade()).ok_or_else(|| unknown(call, id))?;
        let sized = lock(&keys).resize(Size::new(rows, cols));
        sized.map_err(|e| EnvError::new(Trouble::Io, call, &e.to_string(), ""))
    }
}

fn unknown(call: &str, id: &str) -> EnvError {
    EnvError::new(Trouble::NotFound, call, &format!("{id}: no such terminal"), "")
}

fn lock(keys: &Mutex<OwnedWritePty>) -> MutexGuard<'_, OwnedWritePty> {
    keys.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Tells the end of a program, and waits for its process when nobody needs its number any more.
async fn watch_over(mut child: Child, session: i32, tell: watch::Sender<Option<i64>>, dropped: oneshot::Receiver<()>) {
    if let Some(pid) = Pid::from_raw(session).filter(|_| session > 0) {
        let mut told = signal(SignalKind::child()).ok();
        let code = loop {
            // Left as it is: a process that was not waited for keeps its number.
            let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
            match waitid(WaitId::Pid(pid), options) {
                Ok(Some(status)) => {
                    let signal = status.terminating_signal().map(|signal| i64::from(128 + signal));
                    break status.exit_status().map(i64::from).or(signal).unwrap_or(-1);
                }
                Err(e) if e != rustix::io::Errno::INTR => break -1,
                _ => {}
            }
            match &mut told {
                Some(told) => tokio::select! {
                    _ = told.recv() => {}
                    () = sleep(LOOK * 10) => {}
                },
                None => sleep(LOOK).await,
            }
        };
        tell.send_replace(Some(code));
    }
    let _ = dropped.await;
    let _ = child.wait().await;
}

/// What is printed on a terminal, to the end of its program.
struct Output {
    pty: OwnedReadPty,
    /// The end of the program; None when it is over.
    over: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    /// Silence behind its end.
    silence: Option<Pin<Box<Sleep>>>,
    /// The time behind its end.
    last: Option<Pin<Box<Sleep>>>,
    /// Bytes behind it.
    after: usize,
}

impl AsyncRead for Output {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        match Pin::new(&mut this.pty).poll_read(cx, buf) {
            Poll::Ready(Ok(())) if this.over.is_none() => {
                this.after += buf.filled().len() - before;
                this.silence = None;
                if this.after > LAST_BYTES {
                    buf.set_filled(before);
                }
                return Poll::Ready(Ok(()));
            }
            Poll::Ready(Ok(())) => return Poll::Ready(Ok(())),
            // Nobody holds the other side any more: so says Linux the end.
            Poll::Ready(Err(_)) => return Poll::Ready(Ok(())),
            Poll::Pending => {}
        }
        if let Some(over) = &mut this.over {
            ready!(over.as_mut().poll(cx));
            this.over = None;
        }
        let silence = this.silence.get_or_insert_with(|| Box::pin(sleep(LAST_WORDS)));
        let last = this.last.get_or_insert_with(|| Box::pin(sleep(LAST_WAIT)));
        match (silence.as_mut().poll(cx), last.as_mut().poll(cx)) {
            (Poll::Pending, Poll::Pending) => Poll::Pending,
            _ => Poll::Ready(Ok(())),
        }
    }
}

/// What is typed.
struct Keys(Arc<Mutex<OwnedWritePty>>);

impl AsyncWrite for Keys {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut *lock(&self.0)).poll_write(cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Nothing is kept back.
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
