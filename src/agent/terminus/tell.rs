//! What a call does at this moment, told to whoever watches, and the limits that may cut it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::job::Stamp;
use crate::job::text::{clean, mask_secrets, strip_ansi};
use crate::job::work::{Doing, TokensSoFar, Work};
use crate::model::chat::{Message, Reply};
use crate::model::client::Client;
use crate::model::error::ModelError;
use crate::model::meter::{Meter, Watch};

/// Longest text of the model that is shown, in characters.
const SHOWN: usize = 4000;

/// A text of the model, safe to show.
pub fn safe(text: &str) -> String {
    let head: String = text.chars().take(SHOWN).collect();
    clean(&mask_secrets(&strip_ansi(&head))).into_owned()
}

/// Limits of one call.
#[derive(Debug, Clone, Copy, Default)]
pub struct Cuts {
    /// Seconds.
    pub seconds: Option<f64>,
    /// Tokens of reasoning.
    pub thinking: Option<u64>,
}

/// Why a call was cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// It took too long.
    Time,
    /// It thought too much.
    Thinking,
}

/// What came of a call.
#[derive(Debug)]
pub enum Heard {
    /// An answer.
    Reply(Reply),
    /// No answer.
    Failed(ModelError),
    /// Cut by a limit of ours.
    Cut(Cut),
}

/// Changes what is told, and says when.
pub fn tell(work: &Mutex<Work>, change: impl FnOnce(&mut Work)) {
    let mut work = work.lock().unwrap_or_else(PoisonError::into_inner);
    change(&mut work);
    work.told = Some(Stamp::now());
}

/// What a call is asked for.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// The next step.
    Turn,
    /// A summary.
    Summary,
}

/// Asks, telling what goes on.
pub async fn ask(
    client: &Client,
    meter: &Meter,
    work: &Arc<Mutex<Work>>,
    messages: &[Message],
    (purpose, cuts, rid): (Purpose, Cuts, &str),
) -> Heard {
    let thought = Arc::new((AtomicBool::new(false), Notify::new()));
    let shown = Arc::clone(work);
    let over = Arc::clone(&thought);
    let (retries, spent) = (work.lock().unwrap_or_else(PoisonError::into_inner).retries, meter.clone());
    let first: Mutex<Option<Stamp>> = Mutex::new(None);
    let before = meter.totals().retries;
    let name = client.options().rids.then(|| rid.to_string());
    let told = move |doing: &Doing| {
        if let (Doing::Model(call), Some(most)) = (doing, cuts.thinking)
            && call.reasoning > most
            && call.answer == 0
            && !over.0.swap(true, Ordering::Relaxed)
        {
            over.1.notify_one();
        }
        tell(&shown, |work| {
            let again = spent.totals().retries.saturating_sub(before);
            work.retries = retries + again;
            // The name of this try, as the client gives it.
            work.rid = name.as_ref().filter(|_| matches!(doing, Doing::Model(_))).map(|name| match again {
                0 => name.clone(),
                _ => format!("{name}-{}", again + 1),
            });
            match doing {
                Doing::Model(call) => {
                    let mut first = first.lock().unwrap_or_else(PoisonError::into_inner);
                    match call.heard {
                        None => *first = None,
                        Some(heard) => {
                            let begun = *first.get_or_insert(heard);
                            let seconds = heard.duration_since(begun).as_secs_f64();
                            if seconds >= 0.2 {
                                work.rate = Some((call.reasoning + call.answer) as f64 / seconds);
                            }
                        }
                    }
                    work.doing = match purpose {
                        Purpose::Turn => Doing::Model(call.clone()),
                        Purpose::Summary => Doing::Summary(call.clone()),
                    };
                }
                other => work.doing = other.clone(),
            }
        });
    };
    let mut watch = Watch::new(meter).telling(told);
    if client.options().rids {
        watch = watch.named(rid);
    }
    let late = async {
        match cuts.seconds {
            Some(seconds) => tokio::time::sleep(Duration::from_secs_f64(seconds)).await,
            None => std::future::pending().await,
        }
    };
    let cut = async {
        tokio::select! {
            () = late => Cut::Time,
            () = thought.1.notified() => Cut::Thinking,
        }
    };
    let call = client.ask(messages, &watch);
    tokio::pin!(call);
    let (done, cut) = tokio::select! {
        biased;
        done = &mut call => (done, None),
        cut = cut => {
            watch.cut();
            (call.await, Some(cut))
        }
    };
    match (done, cut) {
        // It came all the same.
        (Ok(reply), _) => Heard::Reply(reply),
        (Err(_), Some(cut)) => Heard::Cut(cut),
        (Err(error), None) => Heard::Failed(error),
    }
}

/// Tokens so far, as they are shown.
pub fn tokens(all: &super::sums::Tokens, lost: u64) -> TokensSoFar {
    TokensSoFar {
        input: all.input,
        cached: all.cached.unwrap_or(0),
        output: all.output,
        reasoning: all.reasoning.unwrap_or(0),
        lost,
    }
}
