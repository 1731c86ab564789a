//! The loop: waits for one thing, takes in all that is there, draws at most one frame.
//!
//! There is no tick. The loop sleeps until news, a key or a signal comes, or for a second while a
//! clock is on the screen; a finished job costs nothing.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::oneshot;

use super::alarm::Alarm;
use super::effect::Effect;
use super::helm::{Helm, News};
use super::jobs;
use super::key::Key;
use super::memory::Keep;
use super::message::Msg;
use super::model::Model;
use super::notifier;
use super::{detail, detail_worker, replay, replay_worker, update};
use crate::follow::roster::{Report, Watch};
use crate::job::{JobEvent, Stamp, TrialKey};
use crate::serving::{Observation, Source};
use crate::tty::signals::{Request, Signals};
use crate::tty::{Guard, Input, Term, TtyError};

/// Least time between two frames when news drive them, and when a key does.
const FRAME: Duration = Duration::from_millis(33);
const FRAME_INPUT: Duration = Duration::from_millis(8);
/// The same when servers do, of which many may be polled.
const FRAME_SERVERS: Duration = Duration::from_millis(200);
/// Observations of servers taken in at once.
const SEEN: usize = 20_000;
/// Messages taken in before a frame is due all the same.
const DRAIN: usize = 256;

/// How the screen was left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left {
    /// The operator quit.
    Quit,
    /// The operator left the job to itself.
    Detached,
    /// The operator wants the jobs that the model names as next.
    Elsewhere,
    /// A signal: its number.
    Signal(i32),
    /// The terminal is gone.
    Gone,
    /// A thread panicked; its message is on the terminal, which was given back.
    Fell,
}

/// Has sources of model servers read.
pub type Serve = Box<dyn FnMut(Vec<Source>)>;

/// What the runtime needs from outside.
pub struct Wiring {
    /// Batches of news from the follower; None when no job is attached.
    pub jobs: Option<Receiver<Vec<JobEvent>>>,
    /// Told which trial the operator looks at.
    pub watch: Box<dyn FnMut(Option<TrialKey>)>,
    /// Told which directory is to be followed, too.
    pub follow: Box<dyn FnMut(PathBuf)>,
    /// Effects to run before anything else.
    pub first: Vec<Effect>,
    /// Keeps what screens remember.
    pub keep: Box<dyn FnMut(Keep)>,
    /// Leaves the screen when something is sent.
    pub leave: Option<oneshot::Receiver<()>>,
    /// What can be steered from here.
    pub steering: Option<Steering>,
    /// What is read of model servers; None when nobody reads any.
    pub serving: Option<Receiver<Vec<Observation>>>,
    /// Has model servers read.
    pub serve: Serve,
    /// The notify command.
    pub notify: Option<String>,
}

/// Both directions of the helm.
pub struct Steering {
    /// Takes the operator's orders.
    pub helm: Box<dyn Helm>,
    /// What comes of them, and how the owner's side stands.
    pub news: Receiver<News>,
}

/// What wakes the loop.
enum Wake {
    Input(Option<Input>),
    Jobs(Option<Vec<JobEvent>>),
    Serving(Option<Vec<Observation>>),
    News(Option<News>),
    Reply(Option<Msg>),
    Signal(Request),
    Leave(bool),
    Time,
}

/// Runs the screen until it is left.
///
/// # Errors
/// When the terminal can not be set up or written for a reason other than being closed.
pub async fn run(
    model: &mut Model,
    term: &mut Term,
    guard: &mut Guard,
    input: &mut Receiver<Input>,
    wiring: Wiring,
) -> Result<Left, TtyError> {
    let Wiring { jobs: mut news_of_jobs, watch, follow, first, keep, mut leave, steering, mut serving, serve, notify } =
        wiring;
    let (helm, mut news) = steering.map(|s| (s.helm, s.news)).unzip();
    let (reply_tx, mut replies) = channel::<Msg>(64);
    let mut signals = Signals::new().map_err(TtyError::Setup)?;
    let alarm = Alarm::new().map_err(TtyError::Setup)?;
    let mut runner = Runner {
        replies: reply_tx,
        watch,
        follow,
        keep,
        roster: None,
        helm,
        serve,
        command: notify,
        notifier: None,
        detail: None,
        player: None,
    };
    if let Some(left) = runner.all(model, term, guard, first)? {
        return Ok(left);
    }
    let mut drawn: Option<Instant> = None;
    let mut due: Option<Instant> = Some(Instant::now());
    loop {
        let now = Instant::now();
        if due.is_some_and(|d| d <= now) {
            model.now = Stamp::now();
            update::settle(model);
            let view = |frame: &mut ratatui::Frame<'_>| {
                panic_if_asked("draw", !model.fleet.jobs().is_empty());
                crate::ui::draw(model, frame);
            };
            match term.draw(view) {
                Ok(()) => {}
                Err(TtyError::Gone(_)) => return Ok(gone()),
                Err(error) => return Err(error),
            }
            drawn = Some(Instant::now());
            due = None;
        }
        let wait = match (due, model.tick_after()) {
            (Some(due), _) => Some(due.saturating_duration_since(Instant::now())),
            (None, Some(tick)) => Some(tick),
            (None, None) => None,
        };
        let wake = tokio::select! {
            biased;
            request = signals.next() => Wake::Signal(request),
            i = input.recv() => Wake::Input(i),
            reply = replies.recv() => Wake::Reply(reply),
            told = receive(&mut news) => Wake::News(told),
            events = receive(&mut news_of_jobs) => Wake::Jobs(events),
            seen = receive(&mut serving) => Wake::Serving(seen),
            told = told(&mut leave) => Wake::Leave(told),
            () = alarm.after(wait) => Wake::Time,
        };
        let (mut by_key, mut by_servers) = (false, false);
        let mut messages = Vec::new();
        match wake {
            Wake::Signal(Request::Stop(_, number)) => {
                runner.last(model);
                return Ok(Left::Signal(number));
            }
            Wake::Signal(Request::Fell) => return Ok(Left::Fell),
            Wake::Signal(Request::Continued) => {
                guard.reassert()?;
                term.clear();
            }
            Wake::Leave(true) => return Ok(Left::Quit),
            Wake::Leave(false) => leave = None,
            Wake::Input(None) => {
                runner.last(model);
                return Ok(Left::Gone);
            }
            Wake::Input(Some(first)) => {
                by_key = true;
                let mut next = Some(first);
                while let Some(i) = next {
                    match message(i) {
                        Heard::Message(msg) => messages.push(msg),
                        Heard::Gone => {
                            runner.last(model);
                            return Ok(Left::Gone);
                        }
                        Heard::Nothing => {}
                    }
                    next = if messages.len() < DRAIN { input.try_recv().ok() } else { None };
                }
            }
            Wake::Jobs(None) => {
                news_of_jobs = None;
                messages.push(Msg::Notice("nothing is followed any more: quit and attach again".to_string()));
            }
            Wake::Jobs(Some(events)) => {
                messages.push(Msg::Jobs(events));
                while messages.len() < DRAIN {
                    match news_of_jobs.as_mut().map(|j| j.try_recv()) {
                        Some(Ok(events)) => messages.push(Msg::Jobs(events)),
                        _ => break,
                    }
                }
            }
            Wake::Serving(None) => serving = None,
            Wake::Serving(Some(mut seen)) => {
                // One batch of all that is there: what follows from it is worked out once.
                while let Some(Ok(more)) = serving.as_mut().filter(|_| seen.len() < SEEN).map(|s| s.try_recv()) {
                    seen.extend(more);
                }
                by_servers = true;
                messages.push(Msg::Serving(seen));
            }
            Wake::News(None) => news = None,
            Wake::News(Some(told)) => messages.push(Msg::Helm(told)),
            Wake::Reply(None) => {}
            Wake::Reply(Some(msg)) => {
                messages.push(msg);
                while let Ok(msg) = replies.try_recv() {
                    messages.push(msg);
                }
            }
            Wake::Time => messages.push(Msg::Tick),
        }
        for msg in messages {
            // A key acts on rows that are up to date with what came before it.
            if matches!(msg, Msg::Key(_)) {
                update::settle(model);
            }
            if matches!(msg, Msg::Resize(..)) {
                term.redraw();
            }
            let effects = update::update(model, Stamp::now(), msg);
            if let Some(left) = runner.all(model, term, guard, effects)? {
                return Ok(left);
            }
        }
        let least = match (by_key, by_servers) {
            (true, _) => FRAME_INPUT,
            (false, true) => FRAME_SERVERS,
            (false, false) => FRAME,
        };
        let next = drawn.map_or_else(Instant::now, |d| d + least);
        due = Some(due.map_or(next, |d| d.min(next)));
    }
}

/// Begins to read keys; they come by this channel, whatever is shown.
///
/// # Errors
/// When the terminal can not be read.
pub fn listen() -> Result<Receiver<Input>, TtyError> {
    let (sender, input) = channel::<Input>(64);
    crate::tty::input::spawn(move |i| sender.blocking_send(i).is_ok()).map_err(TtyError::Setup)?;
    Ok(input)
}

/// Why the terminal can not be written any more.
fn gone() -> Left {
    if crate::tty::guard::is_entered() { Left::Gone } else { Left::Fell }
}

/// Panics where a test asks for it by `PILOTHOUSE_TEST_PANIC`, once `when` holds; in debug builds
/// alone.
pub fn panic_if_asked(place: &str, when: bool) {
    #[cfg(debug_assertions)]
    #[allow(clippy::panic)]
    if when && std::env::var("PILOTHOUSE_TEST_PANIC").is_ok_and(|wanted| wanted == place) {
        panic!("asked to panic in {place}");
    }
    let _ = (place, when);
}

async fn receive<T>(channel: &mut Option<Receiver<T>>) -> Option<T> {
    match channel {
        Some(channel) => channel.recv().await,
        None => std::future::pending().await,
    }
}

/// True when told to leave, false when nobody is left who could tell.
async fn told(leave: &mut Option<oneshot::Receiver<()>>) -> bool {
    match leave {
        Some(leave) => leave.await.is_ok(),
        None => std::future::pending().await,
    }
}

enum Heard {
    Message(Msg),
    Nothing,
    Gone,
}

fn message(input: Input) -> Heard {
    match input {
        Input::Key(event) => key(event).map_or(Heard::Nothing, |k| Heard::Message(Msg::Key(k))),
        Input::Paste(text) => Heard::Message(Msg::Paste(text)),
        Input::Resize(columns, rows) => Heard::Message(Msg::Resize(columns, rows)),
        Input::Focus(_) | Input::Mouse(_) => Heard::Nothing,
        Input::Gone(_) => Heard::Gone,
    }
}

/// The program's own key for one of crossterm's; None for keys that nothing is bound to.
fn key(event: KeyEvent) -> Option<Key> {
    let control = event.modifiers.contains(KeyModifiers::CONTROL);
    Some(match event.code {
        KeyCode::Char(c) if control => Key::Ctrl(c.to_ascii_lowercase()),
        KeyCode::Char(c) => Key::Char(c),
        KeyCode::Enter => Key::Enter,
        KeyCode::Esc => Key::Esc,
        KeyCode::BackTab => Key::BackTab,
        KeyCode::Tab if event.modifiers.contains(KeyModifiers::SHIFT) => Key::BackTab,
        KeyCode::Tab => Key::Tab,
        KeyCode::Backspace => Key::Backspace,
        KeyCode::Delete => Key::Delete,
        KeyCode::Up => Key::Up,
        KeyCode::Down => Key::Down,
        KeyCode::Left => Key::Left,
        KeyCode::Right => Key::Right,
        KeyCode::PageUp => Key::PageUp,
        KeyCode::PageDown => Key::PageDown,
        KeyCode::Home => Key::Home,
        KeyCode::End => Key::End,
        _ => return None,
    })
}

/// Runs effects. The loader and the player are started when they are asked for the first time.
struct Runner {
    replies: Sender<Msg>,
    watch: Box<dyn FnMut(Option<TrialKey>)>,
    follow: Box<dyn FnMut(PathBuf)>,
    keep: Box<dyn FnMut(Keep)>,
    roster: Option<(Watch, Arc<Report>)>,
    helm: Option<Box<dyn Helm>>,
    serve: Serve,
    command: Option<String>,
    notifier: Option<notifier::Handle>,
    detail: Option<detail_worker::Handle>,
    player: Option<replay_worker::Handle>,
}

impl Drop for Runner {
    fn drop(&mut self) {
        if let Some(helm) = &mut self.helm {
            helm.finish();
        }
    }
}

impl Runner {
    fn all(
        &mut self,
        model: &mut Model,
        term: &mut Term,
        guard: &mut Guard,
        effects: Vec<Effect>,
    ) -> Result<Option<Left>, TtyError> {
        for effect in effects {
            match effect {
                Effect::Quit => return Ok(Some(Left::Quit)),
                Effect::Detach => return Ok(Some(Left::Detached)),
                Effect::Elsewhere => return Ok(Some(Left::Elsewhere)),
                Effect::Keep(keep) => (self.keep)(keep),
                Effect::Roster(request) => self.roster(request),
                Effect::Redraw => term.clear(),
                Effect::Suspend => {
                    guard.suspend()?;
                    term.clear();
                }
                Effect::Copy(text) => {
                    let said = match term.copy(&text) {
                        Ok(via) => format!("sent to the clipboard via {}: {text}", via.word()),
                        Err(error) => format!("not copied ({error}): {text}"),
                    };
                    update::notice(model, said);
                }
                Effect::Bell => match term.bell() {
                    Err(TtyError::Gone(_)) => return Ok(Some(gone())),
                    other => other?,
                },
                Effect::Notify(alert) => {
                    if let Err(why) = self.notify(*alert) {
                        update::notice(model, why);
                    }
                }
                Effect::Serve(sources) => (self.serve)(sources),
                Effect::Watch(key) => (self.watch)(key),
                Effect::Follow(dir) => (self.follow)(dir),
                Effect::Detail(request) => self.detail(request),
                Effect::Replay(request) => self.replay(request),
                Effect::Helm(order) => match &mut self.helm {
                    Some(helm) => helm.order(order),
                    None => update::notice(model, "nothing to steer here"),
                },
            }
        }
        Ok(None)
    }

    /// What is noted when the screen is left by no key.
    fn last(&mut self, model: &mut Model) {
        for effect in super::servers::notes::last(model) {
            if let (Effect::Helm(order), Some(helm)) = (effect, &mut self.helm) {
                helm.order(order);
            }
        }
    }

    fn notify(&mut self, alert: super::alert::Alert) -> Result<(), String> {
        let Some(command) = &self.command else { return Ok(()) };
        if self.notifier.is_none() {
            let replies = self.replies.clone();
            let report = move |text| replies.blocking_send(Msg::Notice(text)).is_ok();
            let started = notifier::spawn(command.clone(), report);
            self.notifier = Some(started.map_err(|e| format!("the notify command can not be run: {e}"))?);
        }
        self.notifier.as_ref().map_or(Ok(()), |worker| worker.tell(alert))
    }

    fn detail(&mut self, request: detail::Request) {
        let replies = self.replies.clone();
        let worker = self.detail.get_or_insert_with(|| {
            detail_worker::spawn(move |reply| replies.blocking_send(Msg::Detail(reply)).is_ok())
        });
        worker.ask(request);
    }

    fn roster(&mut self, request: jobs::Request) {
        if self.roster.is_none() && !matches!(request, jobs::Request::Roots(_)) {
            return;
        }
        let replies = self.replies.clone();
        let (watch, report) = self.roster.get_or_insert_with(|| {
            let report: Arc<Report> = Arc::new(move |events| replies.blocking_send(Msg::Roster(events)).is_ok());
            (Watch::default(), report)
        });
        match request {
            jobs::Request::Roots(roots) => {
                watch.roots(&roots, report);
                watch.pause(false);
            }
            jobs::Request::Visible(dirs) => watch.visible(dirs),
            jobs::Request::Pause => watch.pause(true),
            jobs::Request::Refresh => watch.refresh(),
        }
    }

    fn replay(&mut self, request: replay::Request) {
        let replies = self.replies.clone();
        let worker = self.player.get_or_insert_with(|| {
            replay_worker::spawn(move |reply| replies.blocking_send(Msg::Replay(reply)).is_ok())
        });
        worker.ask(request);
    }
}
