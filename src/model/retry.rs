//! The one layer that asks again: which failures are worth it, how long it waits, when it gives up.
//!
//! What a second try can not change is not tried again: a wrong key, an unknown model, a conversation that is
//! too long, refused content, a request that the server does not understand. A closed endpoint is waited for,
//! and one that moved is followed, at no cost to the budget.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::time::{Duration, Instant};

use super::chat::{Message, Reply};
use super::client::{Client, Missed};
use super::endpoint::Standing;
use super::error::{Clock, Kind, ModelError, Spent};
use super::meter::{Passing, Watch};
use crate::job::Stamp;
use crate::job::work::Doing;

/// When a call is made again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// Most tries at a server that is away or overloaded, the first one included. Other kinds have less:
    /// a time-out or nonsense 3, an aborted request or a call that was too long 2; too many requests 3 times
    /// as many.
    pub tries: u32,
    /// Most time between tries, all together; 5 times as much for too many requests.
    pub waits: Duration,
    /// The first wait; each one after it is twice as long.
    pub first: Duration,
    /// Longest wait, also where the server asks for a longer one.
    pub longest: Duration,
}

impl Default for Policy {
    /// Some 4 minutes for a server that is away: long enough for one that dies and is started again, until
    /// the endpoint is found closed.
    fn default() -> Policy {
        Policy {
            tries: 14,
            waits: Duration::from_secs(300),
            first: Duration::from_millis(500),
            longest: Duration::from_secs(30),
        }
    }
}

impl Policy {
    /// No second try.
    pub fn never() -> Policy {
        Policy { tries: 1, ..Policy::default() }
    }

    /// Tries that a kind of failure is worth, and the time between them.
    fn allowance(&self, kind: &Kind) -> (u32, Duration) {
        let tries = self.tries.max(1);
        match kind {
            Kind::RateLimit(_) => (if tries == 1 { 1 } else { tries * 3 }, self.waits * 5),
            Kind::Timeout(Clock::Connect) | Kind::Connect | Kind::Dns | Kind::Broken | Kind::Overloaded(_) => {
                (tries, self.waits)
            }
            Kind::Timeout(Clock::Call) | Kind::Aborted => (tries.min(2), self.waits),
            Kind::Timeout(_) | Kind::Malformed => (tries.min(3), self.waits),
            Kind::Tls
            | Kind::Auth
            | Kind::ModelNotFound
            | Kind::ContextExceeded { .. }
            | Kind::ContentPolicy
            | Kind::Unsupported(_)
            | Kind::Refused(_)
            | Kind::Cancelled => (1, Duration::ZERO),
        }
    }
}

/// The budget of one call.
struct Book {
    policy: Policy,
    /// Failures so far, of each sort of allowance.
    failures: Vec<(u32, Duration, u32)>,
    waited: Duration,
}

impl Book {
    fn new(policy: Policy) -> Book {
        Book { policy, failures: Vec::new(), waited: Duration::ZERO }
    }

    /// How long to wait after this failure; None: it is the last one.
    fn next(&mut self, kind: &Kind, jitter: f64) -> Option<Duration> {
        let (tries, waits) = self.policy.allowance(kind);
        let same = self.failures.iter_mut().find(|(t, w, _)| (*t, *w) == (tries, waits));
        let failures = match same {
            Some((_, _, failures)) => {
                *failures += 1;
                *failures
            }
            None => {
                self.failures.push((tries, waits, 1));
                1
            }
        };
        if failures >= tries {
            return None;
        }
        let doubled = self.policy.first.saturating_mul(1 << (failures - 1).min(20)).min(self.policy.longest);
        // Between three and five quarters of it, so that trials that failed together do not come together.
        let wait = doubled.mul_f64(0.75 + 0.5 * jitter.clamp(0.0, 1.0));
        let wait = match kind {
            Kind::RateLimit(Some(asked)) => (*asked).min(self.policy.longest.max(doubled)) + wait.mul_f64(0.25),
            _ => wait,
        };
        self.waited += wait;
        (self.waited <= waits).then_some(wait)
    }
}

/// A number from 0 to 1 that is another one each time.
fn chance() -> f64 {
    let random = RandomState::new().build_hasher().finish();
    (random >> 11) as f64 / (1_u64 << 53) as f64
}

impl Client {
    /// Asks, and asks again where that may help. Dropping the future ends the request and its connection.
    ///
    /// # Errors
    /// No answer, by kind, with what was generated all the same.
    pub async fn ask(&self, messages: &[Message], watch: &Watch) -> Result<Reply, ModelError> {
        let began = Instant::now();
        let mut book = Book::new(self.options().retries);
        let (mut spent, mut tries) = (Spent::default(), 0);
        loop {
            let Some(standing) = self.open(watch, tries + 1).await else {
                let detail = "the call was cut while the endpoint was closed".to_string();
                return Err(ModelError { kind: Kind::Cancelled, detail, spent, partial: String::new(), tries });
            };
            tries += 1;
            let missed = match self.once(&standing, messages, watch, tries).await {
                Ok(reply) => return Ok(Reply { took: began.elapsed(), ..reply }),
                Err(missed) => missed,
            };
            spent.add(missed.spent);
            let wait = match self.goes_on_elsewhere(&standing, &missed.kind) {
                true => Some(Duration::ZERO),
                false => book.next(&missed.kind, chance()),
            };
            let Some(wait) = wait else { return Err(failed(missed, spent, tries)) };
            watch.meter.add(|totals| totals.retries += 1);
            if !wait.is_zero() && self.pause(watch, &standing, &missed, tries + 1, wait).await.is_none() {
                let cut = Missed { kind: Kind::Cancelled, ..missed };
                return Err(failed(cut, spent, tries));
            }
        }
    }

    /// The server is gone by the word of the endpoint: it moved, or it was closed.
    fn goes_on_elsewhere(&self, standing: &Standing, kind: &Kind) -> bool {
        let now = self.options().endpoint.now();
        let by_the_server = !matches!(kind, Kind::ContextExceeded { .. } | Kind::ContentPolicy | Kind::Cancelled);
        (now.moves != standing.moves && by_the_server) || (now.closed.is_some() && kind.is_away())
    }

    /// Waits before the next try; ends early when the endpoint moves, closes or opens. None when it was cut.
    async fn pause(
        &self,
        watch: &Watch,
        standing: &Standing,
        missed: &Missed,
        attempt: u32,
        wait: Duration,
    ) -> Option<()> {
        let since = Stamp::now();
        let at = jiff::SignedDuration::try_from(wait).ok().and_then(|wait| since.checked_add(wait).ok());
        watch.tell(&Doing::Retry { why: missed.words.clone(), attempt, at, since });
        let _passing = Passing::new(&watch.meter, |totals| &mut totals.waited);
        let mut changes = self.options().endpoint.changes();
        let changed = async {
            // The sender lives as long as the endpoint that this client holds.
            let _ = changes.wait_for(|now| now.moves != standing.moves || now.closed != standing.closed).await;
        };
        let either = async {
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = changed => {}
            }
        };
        watch.unless_cut(either).await
    }

    /// How the endpoint stands when it is open; None when the call was cut before.
    async fn open(&self, watch: &Watch, attempt: u32) -> Option<Standing> {
        let now = self.options().endpoint.now();
        let Some(why) = now.closed.clone() else { return Some(now) };
        let since = Stamp::now();
        watch.tell(&Doing::Retry { why: why.to_string(), attempt, at: None, since });
        let _passing = Passing::new(&watch.meter, |totals| &mut totals.away);
        let mut changes = self.options().endpoint.changes();
        let opened = async {
            let opened = changes.wait_for(|now| now.closed.is_none()).await;
            opened.map(|now| now.clone()).ok()
        };
        watch.unless_cut(opened).await.flatten()
    }
}

fn failed(missed: Missed, spent: Spent, tries: u32) -> ModelError {
    ModelError { kind: missed.kind, detail: missed.words, spent, partial: missed.partial, tries }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The waits that a failure that does not end gets, in tenths of seconds.
    fn waits(kind: &Kind, policy: Policy, jitter: f64) -> Vec<u64> {
        let mut book = Book::new(policy);
        let waits = std::iter::from_fn(|| book.next(kind, jitter)).take(1000);
        waits.map(|wait| u64::try_from(wait.as_millis() / 100).unwrap_or(u64::MAX)).collect()
    }

    #[test]
    fn waits_double_up_to_the_longest_and_end_with_the_budget() {
        let policy = Policy::default();
        let mean = waits(&Kind::Overloaded(503), policy, 0.5);
        assert_eq!(mean, [5, 10, 20, 40, 80, 160, 300, 300, 300, 300, 300, 300, 300]);
        // A server that is away for a minute is outlived by far, whatever the jitter.
        assert!(waits(&Kind::Connect, policy, 0.0).iter().sum::<u64>() > 1500);
        let short = Policy { waits: Duration::from_secs(3), ..policy };
        assert_eq!(waits(&Kind::Broken, short, 0.5), [5, 10]);
        assert_eq!(waits(&Kind::Broken, Policy::never(), 0.5), [0; 0]);
        assert_eq!(waits(&Kind::RateLimit(None), Policy::never(), 0.5), [0; 0]);
        assert_eq!(waits(&Kind::Timeout(Clock::First), policy, 0.5).len(), 2);
        assert_eq!(waits(&Kind::Aborted, policy, 0.5).len(), 1);
        let limited = waits(&Kind::RateLimit(Some(Duration::from_secs(7))), policy, 0.5);
        assert_eq!(limited.first(), Some(&71));
        assert!(limited.len() > 30, "{limited:?}");
        // A server that wants an hour gets the longest wait.
        assert!(waits(&Kind::RateLimit(Some(Duration::from_secs(3600))), policy, 1.0).iter().all(|wait| *wait <= 394));
        let final_ones = [
            Kind::Tls,
            Kind::Auth,
            Kind::ModelNotFound,
            Kind::ContextExceeded { limit: None },
            Kind::ContentPolicy,
            Kind::Unsupported(None),
            Kind::Refused(400),
            Kind::Cancelled,
        ];
        for kind in final_ones {
            assert_eq!(waits(&kind, policy, 0.5), [0; 0], "{kind:?}");
        }
    }

    #[test]
    fn kinds_have_budgets_of_their_own() {
        let mut book = Book::new(Policy::default());
        for _ in 0..5 {
            assert!(book.next(&Kind::Connect, 0.5).is_some());
        }
        assert!(book.next(&Kind::Malformed, 0.5).is_some());
        assert!(book.next(&Kind::Aborted, 0.5).is_some());
        assert!(book.next(&Kind::Connect, 0.5).is_some());
        assert!(book.next(&Kind::Aborted, 0.5).is_none());
        let (a, b) = (chance(), chance());
        assert!((0.0..1.0).contains(&a) && (0.0..1.0).contains(&b) && (a - b).abs() > 0.0);
    }
}
