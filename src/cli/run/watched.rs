//! A job with a screen: the same owner, seen and steered through its own job directory.
//!
//! The screen may go (a lost terminal, a signal, a fault of its own); the job does not go with it: it
//! is followed to its end without a screen then.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::{mpsc, oneshot};

use super::headless::{self, Output, Stops, resume_words};
use super::owner::{Ended, Owner};
use super::tasks::Invalid;
use crate::app::derived::Counting;
use crate::app::helm::{Crew, Helm, News, Order, Over, Side, Stopping};
use crate::app::runtime::{Left, Steering};
use crate::cli::desk::Desk;
use crate::cli::{Common, attach};
use crate::scheduler::policy::Stop;
use crate::scheduler::{Control, Status};

/// Orders and news that may wait.
const QUEUE: usize = 64;

/// Shows a job until the screen is left, and follows it to its end; gives the exit code.
pub fn run(mut owner: Owner, invalid: &[Invalid], out: Output, common: &Common) -> u8 {
    let (leave, told) = oneshot::channel();
    let (tell_ended, ended) = oneshot::channel();
    let done = std::mem::replace(&mut owner.done, ended);
    let aborted = Arc::new(AtomicBool::new(false));
    let (orders, inbox) = mpsc::channel(QUEUE);
    let (news, heard) = mpsc::channel(QUEUE);
    let desk = Bridge {
        control: owner.control.clone(),
        desk: Desk::new(news.clone()),
        news,
        stops: Stops::default(),
        crew: Crew::default(),
        dir: owner.dir.clone(),
        id: owner.id.clone(),
    };
    let aborting = aborted.clone();
    let started = tokio::runtime::Builder::new_current_thread().enable_all().build().and_then(|runtime| {
        std::thread::Builder::new().name("helm".into()).spawn(move || {
            runtime.block_on(desk.run(inbox, done, tell_ended, || {
                aborting.store(true, Ordering::Relaxed);
                let _ = leave.send(());
            }));
        })
    });
    if let Err(error) = started {
        crate::cli::complain(&format!("no thread to steer the job: {error}"));
        return crate::cli::FAULT;
    }
    let steering = Steering { helm: Box::new(Wheel { orders }), news: heard };
    let watched = attach::Watched {
        dirs: vec![owner.dir.clone()],
        poll: None,
        counting: Counting::default(),
        prepare: Box::new(|_| Vec::new()),
        leave: Some(told),
        steering: Some((Side::Owner, steering)),
    };
    let left = attach::watch(common, watched);
    if aborted.load(Ordering::Relaxed) {
        let dir = owner.dir.display();
        out.say(&format!("aborted: {dir} has trials without result: {}", resume_words(&owner.dir)));
        return crate::cli::STOPPED;
    }
    let mut stops = Stops::default();
    // What the screen was left for by its operator is over: the report is all that is wanted.
    let mut rest = Output { quiet: true, ..out };
    match left {
        Ok(Left::Quit) => {}
        Ok(Left::Signal(number)) if number != HANGUP => {
            stops.hear(&owner.control);
            rest = out;
            out.say("stopping: nothing new begins, running trials are cancelled and recorded");
        }
        Ok(Left::Signal(_) | Left::Gone) => tracing::info!("the terminal is gone; the run goes on"),
        Ok(Left::Fell) => {
            rest = out;
            out.say("the screen fell over; the run goes on without it");
        }
        Err(error) => {
            rest = out;
            crate::cli::complain(&format!("{error}; the run goes on without a screen"));
        }
    }
    match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime.block_on(headless::run_on(owner, invalid, rest, stops)),
        Err(error) => {
            crate::cli::complain(&format!("no event loop: {error}"));
            owner.join();
            crate::cli::NEEDS_PERSON
        }
    }
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
    dir: PathBuf,
    id: String,
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
        if let Some(status) = &mut status {
            let now = *status.borrow_and_update();
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
        let Status { slots, running, waiting, queued, over: ended, .. } = status;
        self.crew = Crew { slots, running, waiting, queued, ended, stopping: stopping.max(self.crew.stopping) };
        self.say(News::Crew(self.crew)).await;
    }

    async fn obey(&mut self, order: Order) {
        let (act, subject, taken) = match order {
            Order::Slots(n) => ("slots", n.to_string(), self.control.set_slots(n)),
            Order::CancelTrial(name) => {
                let taken = self.control.cancel_trial(&name);
                ("cancel", name, taken)
            }
            Order::Drain => ("drain", self.id.clone(), self.control.drain()),
            Order::Cancel => {
                self.stops.hear(&self.control);
                ("stop", self.id.clone(), true)
            }
            Order::Hurry => {
                self.stops.hear(&self.control);
                self.crew.stopping = Stopping::Hurrying;
                self.say(News::Crew(self.crew)).await;
                ("hurry", self.id.clone(), true)
            }
            order @ (Order::Survey(..) | Order::Stop(..) | Order::Audit(_) | Order::Mend(..)) => {
                return self.desk.order(order);
            }
        };
        if taken {
            self.desk.note(&self.dir, &self.id, act, &subject);
        } else {
            self.say(News::Refused("too late: it has ended".into())).await;
        }
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
        Some(status) => status.changed().await.ok().map(|()| *status.borrow_and_update()),
        None => std::future::pending().await,
    }
}
