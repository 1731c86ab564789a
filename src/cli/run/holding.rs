//! `run --hold…`: which containers of a job outlive their trials, for a verifier that is to run again.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;

use super::owner::Tell;
use crate::cli::ctl::scribe::Scribe;
use crate::environment::docker::DockerEngine;
use crate::environment::held::held_of;
use crate::environment::{HeldRecord, HeldRecords};
use crate::job::Stamp;
use crate::journal::{HOLD, Note};
use crate::scheduler::Places;
use crate::scheduler::hold::{Caps, HearHeld, HoldTerms, Holder, SnapshotTerms};

/// Flags about holding.
#[derive(Debug, Clone, Args)]
pub struct HoldArgs {
    /// Hold the container of a trial whose verifier can not be trusted (it ran out of time, left no reward,
    /// or its installer or network failed before a test ran), paused and without a slot, so that `pilothouse
    /// regrade` can run the verifier again in it. This is the default; `pilothouse held` lists and removes
    #[arg(long, overrides_with = "no_hold", help_heading = "Holding")]
    pub hold: bool,
    /// Every container goes with its trial
    #[arg(long, overrides_with = "hold", help_heading = "Holding")]
    pub no_hold: bool,
    /// Most containers that are held of this job (and most snapshots); the oldest goes first
    #[arg(long, value_name = "N", default_value = "4", help_heading = "Holding")]
    pub hold_max: usize,
    /// Most memory, in GiB, that the held containers of this job take together; the oldest goes first
    #[arg(long, value_name = "GIB", default_value = "4", value_parser = super::floor, help_heading = "Holding")]
    pub hold_memory: f64,
    /// For how long a container is held: 90s, 30m, 24h, 7d. The run removes it then; once the run has ended
    /// nobody does, and `held` and the next runs list it as expired
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = span, help_heading = "Holding")]
    pub hold_age: Duration,
    /// Copy each container's files to an image after the agent and before the tests (it is frozen for that
    /// moment), kept where the verifier can not be trusted. A regrade in such a copy has lost all processes
    #[arg(long, help_heading = "Holding")]
    pub snapshot: bool,
    /// Give a copy up that takes longer: 90s, 5m
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = span, help_heading = "Holding")]
    pub snapshot_time: Duration,
    /// Give a copy up when the container has written more than so many GiB
    #[arg(long, value_name = "GIB", default_value = "2", value_parser = super::floor, help_heading = "Holding")]
    pub snapshot_size: f64,
}

impl HoldArgs {
    /// What is held and how. None without a state dir: there are no records then, and nothing is held.
    pub fn terms(&self, state_dir: Option<&Path>) -> Option<HoldTerms> {
        // Of a checked size: no more than 2^50.
        let bytes = |gib: f64| (gib * (1u64 << 30) as f64) as u64;
        let snapshots = SnapshotTerms { bytes: bytes(self.snapshot_size), time: self.snapshot_time };
        Some(HoldTerms {
            hold: !self.no_hold,
            caps: Caps { max: self.hold_max, memory: bytes(self.hold_memory), age: self.hold_age },
            snapshots: self.snapshot.then_some(snapshots),
            state_dir: state_dir?.to_path_buf(),
        })
    }
}

/// A span of time: a number with `s`, `m`, `h` or `d`; seconds without.
///
/// # Errors
/// What is allowed.
pub fn span(text: &str) -> Result<Duration, String> {
    let wrong = || "a time such as 90s, 30m, 24h or 7d".to_string();
    let text = text.trim();
    let (number, unit) = match text.find(|c: char| c.is_ascii_alphabetic()) {
        Some(at) => text.split_at(at),
        None => (text, "s"),
    };
    let factor = match unit {
        "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        _ => return Err(wrong()),
    };
    let seconds = number.trim().parse::<f64>().ok().map(|n| n * factor);
    // Up to ten years: more is a slip of the keys.
    let seconds = seconds.filter(|s| (0.001..=315_360_000.0).contains(s)).ok_or_else(wrong)?;
    Ok(Duration::from_secs_f64(seconds))
}

/// Whoever holds containers of a job; takes over what an earlier owner of it held, where there was one.
pub(super) async fn holder(
    terms: HoldTerms,
    job: (&str, &Path),
    (engine, resumed): (&DockerEngine, bool),
    places: Arc<dyn Places>,
    scribe: Scribe,
    tell: Tell,
) -> Arc<Holder> {
    let hear: HearHeld = Arc::new(move |trial, why, what| {
        // A screen shows its own.
        if !crate::tty::guard::is_entered() {
            tell(&format!("{:.0}  {trial}: {what}", Stamp::now()));
        }
        let mut note = Note::now(HOLD, trial, why);
        note.operator = format!("pilothouse (pid {})", std::process::id());
        note.trial = Some(trial.to_string());
        note.result = what.to_string();
        scribe.note(note);
    });
    let records = HeldRecords::of(&terms.state_dir);
    let address = engine.address().to_string();
    let holder = Holder::new(terms, (job.0, job.1.to_path_buf()), &address, places, Some(hear));
    if resumed {
        let kept = engine.kept(Some(job.0)).await.unwrap_or_default();
        let there: Vec<HeldRecord> = held_of(&kept, &records.read()).into_iter().filter_map(|h| h.record).collect();
        holder.take_over(there).await;
    }
    Arc::new(holder)
}

/// Says what is held on this host, where anything is on record: nobody enforces its age once its run has ended.
pub(super) async fn list(engine: &DockerEngine, state_dir: Option<&Path>, tell: &Tell) {
    let records = state_dir.map(|dir| HeldRecords::of(dir).read()).unwrap_or_default();
    if records.is_empty() {
        return;
    }
    let Ok(kept) = engine.kept(None).await else { return };
    let held = held_of(&kept, &records);
    if held.is_empty() {
        return;
    }
    let (now, n) = (Stamp::now(), held.len());
    let expired = held.iter().filter(|h| h.expired(now)).count();
    let old = match expired {
        0 => String::new(),
        n => format!(", {n} past {} age (pilothouse held remove --expired)", if n == 1 { "its" } else { "their" }),
    };
    let things = if n == 1 { "thing is" } else { "things are" };
    tell(&format!("{n} {things} held on this host for regrades{old}: pilothouse held lists what"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_have_units() {
        assert_eq!(span("90"), Ok(Duration::from_secs(90)));
        assert_eq!(span("1.5h"), Ok(Duration::from_secs(5400)));
        assert_eq!(span(" 7d "), Ok(Duration::from_secs(604_800)));
        for wrong in ["", "h", "-1h", "1y", "0s", "nan", "1e99h"] {
            assert!(span(wrong).is_err(), "{wrong}");
        }
    }
}
