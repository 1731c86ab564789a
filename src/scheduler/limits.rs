//! Phases of a trial: their limits, the stop that cuts them short, the times that are written down.

use std::future::Future;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::environment::EnvError;
use crate::harbor::task::{EnvTemplate, host_variable, resolve_all};
use crate::harbor::write::WriteError;
use crate::harbor::write::config::Env;
use crate::harbor::write::raised::Raised;
use crate::harbor::write::result::{Timing, Utc};
use crate::job::Stamp;

/// A limit, and what it means when it is over.
pub(super) struct Limit {
    pub seconds: Option<f64>,
    pub kind: &'static str,
    pub what: &'static str,
}

/// `min(base, max) × factor`, in seconds; the phase's own factor replaces the general one.
pub(super) fn effective(base: Option<f64>, max: Option<f64>, own: Option<f64>, general: f64) -> Option<f64> {
    let base = base?;
    // 0 is as good as none, as in Harbor.
    let max = max.filter(|m| *m != 0.0).unwrap_or(f64::INFINITY);
    Some(base.min(max) * own.unwrap_or(general))
}

/// Seconds as a duration; none where they are no limit (infinite, or centuries).
pub(super) fn duration(seconds: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(seconds.max(0.0)).ok().filter(|d| d.as_secs() < u64::from(u32::MAX))
}

pub(super) fn begun() -> Option<Timing> {
    Some(Timing { started_at: Some(Utc(Stamp::now())), finished_at: None })
}

pub(super) fn finished(timing: &mut Option<Timing>) {
    if let Some(timing) = timing {
        timing.finished_at = Some(Utc(Stamp::now()));
    }
}

/// An operator's variables, references to the host's replaced by what they stand for.
pub(super) fn given(env: &Env, during: &str) -> Result<Env, Raised> {
    let templates = env.iter().map(|(name, value)| (name.clone(), EnvTemplate::new(value))).collect();
    resolve_all(&templates, host_variable).map_err(|e| Raised::new("ValueError", &e.to_string(), during))
}

/// Ends when the trial is stopped; never when nobody can stop it any more.
pub(super) async fn stopped(cancel: &mut watch::Receiver<bool>) {
    if cancel.wait_for(|stop| *stop).await.is_err() {
        std::future::pending::<()>().await;
    }
}

/// A phase: its work, until its limit or a stop.
pub(super) async fn phase<T>(
    cancel: &mut watch::Receiver<bool>,
    limit: Limit,
    work: impl Future<Output = Result<T, Raised>>,
) -> Result<T, Raised> {
    phase_beside(cancel, limit, &|| Duration::ZERO, work).await
}

/// The same, where `stood` tells for how long the phase's clock has stood still so far: its limit is so
/// much later.
pub(super) async fn phase_beside<T>(
    cancel: &mut watch::Receiver<bool>,
    limit: Limit,
    stood: &(dyn Fn() -> Duration + Sync),
    work: impl Future<Output = Result<T, Raised>>,
) -> Result<T, Raised> {
    let limited = async {
        let Some((seconds, most)) = limit.seconds.and_then(|s| duration(s).map(|d| (s, d))) else {
            return work.await;
        };
        let begin = Instant::now();
        let mut work = std::pin::pin!(work);
        let mut given = Duration::ZERO;
        loop {
            tokio::select! {
                biased;
                done = &mut work => return done,
                () = sleep_until(begin + most + given) => {}
            }
            let now = stood();
            if now <= given {
                let message = format!("{} timed out after {seconds:?} seconds", limit.what);
                return Err(Raised::new(limit.kind, &message, limit.what));
            }
            given = now;
        }
    };
    tokio::select! {
        biased;
        () = stopped(cancel) => Err(Raised::cancelled(limit.what)),
        done = limited => done,
    }
}

pub(super) fn os_error(during: &str) -> impl Fn(WriteError) -> Raised {
    move |e| Raised::new("OSError", &e.to_string(), during)
}

pub(super) fn runtime_error(during: &str) -> impl Fn(EnvError) -> Raised {
    move |e| Raised::new("RuntimeError", &e.to_string(), during)
}
