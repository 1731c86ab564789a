//! The screen of somebody who attached, linked to the process that runs the job: sees how it stands, and
//! steers once it has the helm.

use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use tokio::sync::mpsc::Sender as News_;

use super::client::{self, Line};
use super::wire::{Answer, Endpoint, Op, Request, State, tame};
use super::works;
use crate::app::helm::{Crew, Hand, Helm, News, Order, Over, Shut, Stopping};
use crate::cli::desk::Desk;
use crate::harbor::write::lease::LEASE;
use crate::job::time;

/// From one try to find somebody to the next: at first, and after somebody was there …
const AGAIN: Duration = Duration::from_secs(2);
/// … and at most, since nobody may ever come: a screen on a finished job costs nothing.
const SELDOM: Duration = Duration::from_secs(30);
/// While it is linked, how often the sending half looks whether it still is.
const STILL: Duration = Duration::from_secs(1);
/// Orders that may wait.
const WAITING: usize = 64;
/// Why something was done.
const WHY: &str = "asked for by the operator, on an attached screen";

/// Takes orders: what the process that runs the job can do goes there, all else to the desk.
pub struct Linked {
    dir: PathBuf,
    desk: Desk,
    asks: SyncSender<Op>,
    news: News_<News>,
}

impl Linked {
    /// Links a screen to the job in a directory, as soon as and as long as somebody answers for it.
    ///
    /// # Errors
    /// No thread.
    pub fn begin(dir: PathBuf, desk: Desk, news: News_<News>) -> std::io::Result<Linked> {
        let (asks, inbox) = sync_channel(WAITING);
        let state = crate::cli::state_dir();
        let (told, place) = (news.clone(), dir.clone());
        std::thread::Builder::new().name("link".into()).spawn(move || link(&place, state, inbox, &told))?;
        Ok(Linked { dir, desk, asks, news })
    }

    /// Has an address probed, on a connection of its own: it may take a minute.
    fn probe(&self, url: String) {
        let (dir, news, told) = (self.dir.clone(), self.news.clone(), self.news.clone());
        let ask = move || {
            let op = Op::Endpoint { url, of: None, sure: false };
            let answer = client::ask_for(&dir, crate::cli::state_dir().as_deref(), op, WHY, client::PROBE);
            let probed = match answer {
                Ok(Answer { error: None, probe: Some(probe), .. }) => Ok(probe.shown()),
                Ok(answer) => Err(tame(&answer.error.unwrap_or_else(|| "nothing was found".to_string()))),
                Err(error) => Err(tame(&error.to_string())),
            };
            let _ = news.blocking_send(News::Probed(probed));
        };
        if let Err(error) = std::thread::Builder::new().name("probe".into()).spawn(ask) {
            let _ = told.try_send(News::Refused(format!("not probed: {error}")));
        }
    }
}

impl Helm for Linked {
    fn order(&mut self, order: Order) {
        if let Order::Probe(url) = order {
            return self.probe(url);
        }
        let Some(op) = Op::of(&order) else { return self.desk.order(order) };
        if self.asks.try_send(op).is_err() {
            let _ = self.news.try_send(News::Refused("not done: nobody is linked".to_string()));
        }
    }
}

/// Finds somebody, listens, sends what is asked; again and again until the screen is left.
fn link(dir: &std::path::Path, state: Option<PathBuf>, asks: Receiver<Op>, news: &News_<News>) {
    let asks = std::sync::Arc::new(std::sync::Mutex::new(asks));
    // The process may stay a while, with its screen, when its job is over: that is told once.
    let mut over = false;
    let mut pause = AGAIN;
    while !news.is_closed() {
        // Harbor's jobs have none.
        let ours = std::fs::symlink_metadata(dir.join(LEASE)).is_ok();
        let line = ours.then(|| client::connect(dir, state.as_deref())).and_then(Result::ok);
        if let Some(mut line) = line
            && line.send(&Request::of(Op::Watch, "")).is_ok()
        {
            over = listen(dir, line, &asks, news, over);
            pause = AGAIN;
            if !over {
                let _ = news.blocking_send(News::Unlinked);
            }
        }
        std::thread::sleep(if ours { pause } else { SELDOM });
        pause = (pause * 2).min(SELDOM);
    }
}

/// Listens until the other end is gone; true: the job is over.
fn listen(
    dir: &std::path::Path,
    mut line: Line,
    asks: &std::sync::Arc<std::sync::Mutex<Receiver<Op>>>,
    news: &News_<News>,
    told: bool,
) -> bool {
    let Ok(mut out) = line.sender() else { return false };
    let (done, ended) = sync_channel::<()>(1);
    let asks = std::sync::Arc::clone(asks);
    let sender = std::thread::Builder::new().name("link-out".into()).spawn(move || {
        let asks = asks.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        // Orders of a time when nobody was linked are not for this one.
        while asks.try_recv().is_ok() {}
        loop {
            match asks.recv_timeout(STILL) {
                Ok(op) => {
                    let request = super::wire::line(&Request::of(op, WHY));
                    if std::io::Write::write_all(&mut out, &request).is_err() {
                        return;
                    }
                }
                Err(RecvTimeoutError::Timeout) if ended.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) => {}
                Err(_) => return,
            }
        }
    });
    let mut over = false;
    while let Ok(answer) = line.hear(None) {
        over = answer.over;
        if answer.status.as_ref().is_some_and(|state| !client::same(dir, state)) {
            break;
        }
        if !(over && told) && tell(answer, news).is_none() {
            break;
        }
        if over {
            break;
        }
    }
    drop(done);
    if let Ok(sender) = sender {
        let _ = sender.join();
    }
    over
}

/// Hands an answer to the screen; None: nobody is there.
fn tell(answer: Answer, news: &News_<News>) -> Option<()> {
    let send = |told: News| news.blocking_send(told).ok();
    if let Some(state) = &answer.status {
        send(News::Crew(crew(state)))?;
        send(News::Shut(shut(state)))?;
        if !state.endpoints.is_empty() {
            send(News::Endpoints(state.endpoints.iter().map(Endpoint::shown).collect()))?;
        }
        send(News::Hand(match (answer.steers, &state.helm) {
            (true, _) => Hand::Mine,
            (false, Some(who)) => Hand::Other(tame(who)),
            (false, None) => Hand::Nobody,
        }))?;
    }
    if let Some(work) = works::news(&answer) {
        send(work)?;
    }
    for line in &answer.said {
        send(News::Told(tame(line)))?;
    }
    if answer.over {
        let state = answer.status.unwrap_or_default();
        let complete = state.queued == 0 && state.stop == "no";
        let words =
            format!("the process that ran it has ended: {} trials ended, {} never began", state.ended, state.queued);
        send(News::Over(Over { complete, words, broken: false }))?;
    }
    Some(())
}

fn crew(state: &State) -> Crew {
    Crew {
        slots: state.slots,
        running: state.running,
        waiting: state.waiting,
        queued: state.queued,
        ended: state.ended,
        stopping: match &*state.stop {
            "drain" => Stopping::Draining,
            "cancel" => Stopping::Cancelling,
            _ => Stopping::No,
        },
        paused: state.paused,
        limit: state.adaptive_limit,
        settled: state.settled,
        agents: state.agents.map(|agents| (agents, state.agents_at_work)),
    }
}

fn shut(state: &State) -> Vec<Shut> {
    let one = |gate: &super::wire::Gate| Shut {
        gate: tame(&gate.gate),
        why: tame(&gate.why),
        since: time::parse(&gate.since).map(|read| read.at),
    };
    state.gates.iter().map(one).collect()
}
