//! A job with a screen: the same owner, seen and steered through its own job directory.
//!
//! The screen may go (a lost terminal, a signal, a fault of its own); the job does not go with it: it
//! is followed to its end without a screen then.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::sync::{mpsc, oneshot};
use tokio::time::MissedTickBehavior;

use super::detach;
use super::headless::{self, Ears, Output, Stops, resume_words};
use super::owner::{Ended, Owner};
use super::tasks::Invalid;
use crate::app::derived::Counting;
use crate::app::helm::{Crew, Hand, Helm, News, Order, Over, Shut, Side, Stopping};
use crate::app::runtime::{Left, Steering};
use crate::cli::ctl::helm::{self, OWNER};
use crate::cli::ctl::server::Ship;
use crate::cli::ctl::wire::{Endpoint, Op, Request};
use crate::cli::ctl::works;
use crate::cli::desk::Desk;
use crate::cli::servers::Servers;
use crate::cli::{Common, attach};
use crate::scheduler::board::Reader;
use crate::scheduler::policy::Stop;
use crate::scheduler::{Control, Status};

/// Orders and news that may wait.
const QUEUE: usize = 64;

/// What is shown besides the job.
#[derive(Debug, Default)]
pub struct Show {
    /// Said on the screen at its beginning.
    pub notice: Option<&'static str>,
    /// The screen is left by itself so long after the job's end.
    pub leave_after: Option<Duration>,
    /// The model servers beside the job.
    pub servers: Option<Servers>,
}

/// Shows a job until the screen is left, and follows it to its end; gives the exit code. `ears` have
/// heard every signal since the job began: what the screen was left for is done by them.
pub fn run(
    mut owner: Owner,
    invalid: &[Invalid],
    out: Output,
    common: &Common,
    what: Show,
    (runtime, ears): (&Runtime, Ears),
) -> u8 {
    let (leave, told) = oneshot::channel();
    let leave = Arc::new(Mutex::new(Some(leave)));
    let leave_now = |leave: &Mutex<Option<oneshot::Sender<()>>>| {
        if let Some(leave) = leave.lock().unwrap_or_else(PoisonError::into_inner).take() {
            // A screen that is left already hears nothing.
            let _ = leave.send(());
        }
    };
    if let Some(after) = what.leave_after {
        let (mut status, leave) = (owner.control.status(), leave.clone());
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
            if let Ok(runtime) = runtime {
                runtime.block_on(async { while status.changed().await.is_ok() {} });
                std::thread::sleep(after);
                leave_now(&leave);
            }
        });
    }
    let (tell_ended, ended) = oneshot::channel();
    let done = std::mem::replace(&mut owner.done, ended);
    let aborted = Arc::new(AtomicBool::new(false));
    let (orders, inbox) = mpsc::channel(QUEUE);
    let (news, heard) = mpsc::channel(QUEUE);
    let bridge = Bridge {
        control: owner.control.clone(),
        desk: match &what.servers {
            Some(servers) => Desk::new(news.clone()).with_servers(servers.remote.clone()),
            None => Desk::new(news.clone()),
        },
        news,
        stops: Stops::default(),
        crew: Crew::default(),
        ship: owner.ship.clone(),
    };
    owner.ship.helm.take(OWNER, &format!("{} on the owner's screen", crate::journal::operator()));
    let aborting = aborted.clone();
    let steered = tokio::runtime::Builder::new_current_thread().enable_all().build().and_then(|runtime| {
        std::thread::Builder::new().name("helm".into()).spawn(move || {
            runtime.block_on(bridge.run(inbox, done, tell_ended, || {
                aborting.store(true, Ordering::Relaxed);
                leave_now(&leave);
            }));
        })
    });
    if let Err(error) = steered {
        crate::cli::complain(&format!("no thread to steer the job: {error}"));
        return crate::cli::FAULT;
    }
    let steering = Steering { helm: Box::new(Wheel { orders }), news: heard };
    let looked_after = owner.looks_after();
    let left = show(owner.dir.clone(), steering, told, (what.notice, what.servers, looked_after), common);
    owner.ship.helm.leave(OWNER);
    if aborted.load(Ordering::Relaxed) {
        let dir = owner.dir.display();
        out.say(&format!("aborted: {dir} has trials without result: {}", resume_words(&owner.dir)));
        return crate::cli::STOPPED;
    }
    let quiet = Output { quiet: true, ..out };
    let rest = match left {
        // It is over: the report is all that is wanted.
        Ok(Left::Quit | Left::Elsewhere) => quiet,
        Ok(Left::Detached) => {
            let mut ears = ears;
            detach::leave(&owner, out, &mut ears, runtime);
            return runtime.block_on(headless::follow_to_end(owner, invalid, out, Stops::default(), ears));
        }
        Ok(Left::Signal(HANGUP) | Left::Gone) => {
            tracing::info!("the terminal is gone; the run goes on");
            quiet
        }
        Ok(Left::Signal(_)) => out,
        Ok(Left::Fell) => {
            out.say("the screen fell over; the run goes on without it");
            out
        }
        Err(error) => {
            crate::cli::complain(&format!("{error}; the run goes on without a screen"));
            out
        }
    };
    runtime.block_on(headless::follow_to_end(owner, invalid, rest, Stops::default(), ears))
}

/// The screen, on a thread of its own: should it panic, the job does not go with it.
fn show(
    dir: PathBuf,
    steering: Steering,
    leave: oneshot::Receiver<()>,
    (notice, servers, looked_after): (Option<&'static str>, Option<Servers>, bool),
    common: &Common,
) -> Result<Left, crate::tty::TtyError> {
    let common = common.clone();
    let screen = std::thread::Builder::new().name("screen".into()).spawn(move || {
        let watched = attach::Watched {
            dirs: vec![dir],
            poll: None,
            counting: Counting::default(),
            prepare: Box::new(move |model| {
                model.steer.logout = detach::logout();
                model.steer.looked_after = looked_after;
                if let Some(notice) = notice {
                    crate::app::update::notice(model, notice);
                }
                Vec::new()
            }),
            leave: Some(leave),
            steering: Some((Side::Owner, steering)),
            deadline: None,
            servers,
        };
        attach::watch(&common, watched)
    });
    screen.map_err(crate::tty::TtyError::Setup)?.join().unwrap_or(Ok(Left::Fell))
}

/// SIGHUP.
const HANGUP: i32 = 1;

/// The screen's end of the helm.
struct Wheel {
    orders: mpsc::Sender<Order>,
}

impl Helm for Wheel {
    fn order(&mut self, order: Order) {
        if let Err(error) = self.orders.try_send(order) {
            tracing::error!(%error, "an order is lost");
        }
    }
}

/// The job's end of the helm.
struct Bridge {
    control: Control,
    desk: Desk,
    news: mpsc::Sender<News>,
    stops: Stops,
    crew: Crew,
    ship: Ship,
}

impl Bridge {
    async fn run(
        mut self,
        inbox: mpsc::Receiver<Order>,
        mut done: oneshot::Receiver<Ended>,
        tell_ended: oneshot::Sender<Ended>,
        abort: impl FnOnce(),
    ) {
        let (mut inbox, mut tell_ended, mut abort) = (Some(inbox), Some(tell_ended), Some(abort));
        let mut status = Some(self.control.status());
        let (mut hands, mut lines) = (self.ship.helm.changes(), self.ship.helm.lines());
        let mut board = Reader::new(self.control.board());
        let mut looks = tokio::time::interval(works::PACE);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let hand = hands.borrow_and_update().clone();
        self.say(News::Hand(shown(hand))).await;
        if let Some(status) = &mut status {
            let now = status.borrow_and_update().clone();
            self.tell(now).await;
        }
        while inbox.is_some() || tell_ended.is_some() {
            tokio::select! {
                order = receive(&mut inbox) => match order {
                    Some(order) => self.obey(order).await,
                    None => inbox = None,
                },
                now = changed(&mut status) => match now {
                    Some(now) => self.tell(now).await,
                    None => status = None,
                },
                _ = looks.tick(), if inbox.is_some() && tell_ended.is_some() => {
                    let changes = board.changes();
                    if !changes.is_empty() {
                        self.say(News::Work(changes)).await;
                    }
                }
                Ok(()) = hands.changed(), if inbox.is_some() => {
                    let hand = hands.borrow_and_update().clone();
                    self.say(News::Hand(shown(hand))).await;
                }
                Ok(line) = lines.recv(), if inbox.is_some() => {
                    if line.by != OWNER {
                        self.say(News::Told(line.text)).await;
                    }
                    self.endpoints().await;
                }
                ended = &mut done, if tell_ended.is_some() => {
                    if let (Ok(ended), Some(tell)) = (ended, tell_ended.take()) {
                        self.say(News::Over(over(&ended))).await;
                        let _ = tell.send(ended);
                    }
                }
                () = self.stops.over(), if tell_ended.is_some() => {
                    if let Some(abort) = abort.take() {
                        abort();
                    }
                    return;
                }
            }
        }
    }

    /// Nobody to hear it is no reason to stop.
    async fn say(&self, news: News) {
        let _ = self.news.send(news).await;
    }

    async fn tell(&mut self, status: Status) {
        let stopping = match status.stop {
            Stop::No => Stopping::No,
            Stop::Drain => Stopping::Draining,
            Stop::Cancel => Stopping::Cancelling,
        };
        let Status { slots, running, waiting, queued, over: ended, paused, .. } = status;
        self.crew = Crew {
            slots,
            running,
            waiting,
            queued,
            ended,
            stopping: stopping.max(self.crew.stopping),
            paused,
            limit: status.limit.map(|(limit, _)| limit),
            settled: status.limit.is_some_and(|(_, settled)| settled),
            agents: status.agents.map(|agents| (agents, status.agents_at_work)),
        };
        self.say(News::Crew(self.crew)).await;
        let shut = |c: &crate::scheduler::gate::Closed| Shut {
            gate: c.gate.word().to_string(),
            why: c.why.clone(),
            since: Some(c.since),
        };
        self.say(News::Shut(status.closed.iter().map(shut).collect())).await;
        self.endpoints().await;
    }

    async fn endpoints(&self) {
        let endpoints = self.ship.endpoints.all();
        if !endpoints.is_empty() {
            self.say(News::Endpoints(endpoints.iter().map(Endpoint::shown).collect())).await;
        }
    }

    async fn obey(&mut self, order: Order) {
        match order {
            Order::Cancel => return self.stop(false).await,
            Order::Hurry => return self.stop(true).await,
            Order::Probe(url) => return self.probe(url),
            _ => {}
        }
        let Some(op) = Op::of(&order) else { return self.desk.order(order) };
        let answer = self.ship.act(&Request::of(op, WHY), OWNER, true).await;
        if let Some(why) = answer.error {
            self.say(News::Refused(why)).await;
        }
    }

    /// Probes an address, aside: the screen goes on meanwhile.
    fn probe(&self, url: String) {
        let (ship, news) = (self.ship.clone(), self.news.clone());
        tokio::spawn(async move {
            let op = Op::Endpoint { url, of: None, sure: false };
            let answer = ship.act(&Request::of(op, WHY), OWNER, true).await;
            let probed = match (answer.error, answer.probe) {
                (None, Some(probe)) => Ok(probe.shown()),
                (why, _) => Err(why.unwrap_or_else(|| "nothing was found".to_string())),
            };
            let _ = news.send(News::Probed(probed)).await;
        });
    }

    /// Stops it, as a signal to this process does; in a hurry as two do.
    async fn stop(&mut self, hurry: bool) {
        if !hurry || !self.stops.stopped() {
            self.stops.hear(&self.control);
        }
        if hurry {
            self.stops.hear(&self.control);
            self.crew.stopping = Stopping::Hurrying;
            self.say(News::Crew(self.crew)).await;
        }
        let (dir, id) = (&self.ship.dir, &self.ship.id);
        self.desk.note(dir, id, if hurry { "hurry" } else { "stop" }, id);
        self.ship.helm.tell(OWNER, &format!("{}: stopping", crate::journal::operator()));
    }
}

/// Why something was done.
const WHY: &str = "asked for by the operator, on the screen";

/// Who steers, as the owner's own screen has it.
fn shown(hand: Option<helm::Hand>) -> Hand {
    match hand {
        Some(hand) if hand.number == OWNER => Hand::Mine,
        Some(hand) => Hand::Other(hand.who),
        // Whoever had it has gone: the one who runs the job may again.
        None => Hand::Nobody,
    }
}

/// How it ended, in words.
fn over((ended, left): &Ended) -> Over {
    let (complete, broken, mut words) = match ended {
        Ok(f) if f.complete => (true, false, format!("the job is over: all {} trials have ended", f.planned)),
        Ok(f) => {
            let words =
                format!("the job was stopped: {} of {} trials ended, {} never began", f.ended, f.planned, f.queued);
            (false, false, words)
        }
        Err(error) => (false, true, format!("the job broke off: {error}")),
    };
    if !left.is_empty() {
        words.push_str(&format!("; left behind: {}", left.join(", ")));
    }
    Over { complete, broken, words }
}

async fn receive(inbox: &mut Option<mpsc::Receiver<Order>>) -> Option<Order> {
    match inbox {
        Some(inbox) => inbox.recv().await,
        None => std::future::pending().await,
    }
}

/// The next change; None when there will be none any more.
async fn changed(status: &mut Option<tokio::sync::watch::Receiver<Status>>) -> Option<Status> {
    match status {
        Some(status) => status.changed().await.ok().map(|()| status.borrow_and_update().clone()),
        None => std::future::pending().await,
    }
}
