//! Noting that the surroundings were at fault for a while, so that the trials that ran then can be looked
//! at together (`overlaps:outage`).

use std::sync::Arc;
use std::time::Duration;

use super::super::effect::Effect;
use super::super::filter::{DAY, Window, window};
use super::super::helm::{Order, Place, Speech};
use super::super::input::Input;
use super::super::model::Model;
use super::super::overlay::{Overlay, PromptKind};
use super::super::steer;
use super::super::update::notice;
use super::ledger;
use crate::job::text::mask_secrets;
use crate::job::verdict::Outage;
use crate::job::{Job, Stamp};

/// Asks from when to when, and what it was.
pub fn begin(model: &mut Model) -> Vec<Effect> {
    match ledger::why_not(model).or_else(|| steer::job(model).is_none().then(|| "no job to note it of".to_string())) {
        Some(why) => notice(model, why),
        None => model.overlay = Some(Overlay::Prompt(PromptKind::Outage, Input::default(), None)),
    }
    Vec::new()
}

/// It was typed: `14:05-14:40 the proxy was down`, UTC.
pub fn typed(model: &mut Model, text: &str) -> Result<Vec<Effect>, String> {
    let (times, why) = text.trim().split_once(char::is_whitespace).unwrap_or((text.trim(), ""));
    if times.is_empty() {
        return Ok(Vec::new());
    }
    let window = window(times).map_err(|_| format!("{times} is no time of day: 14:05-14:40 what it was, UTC"))?;
    let Some(job) = steer::job(model) else { return Err("no job to note it of".to_string()) };
    let Some((from, to)) = placed(job, window, model.now) else {
        return Err(format!("{} did not run at {times} UTC on any day", job.facts.name));
    };
    let why: Arc<str> = mask_secrets(why.trim()).into_owned().into();
    let outage = Outage { from, to, why, operator: model.ledger.operator.clone() };
    let (place, facts) = (Place { job: job.key, dir: job.facts.dir.clone() }, Box::new(job.facts.clone()));
    let n = job.trials.values().filter(|t| {
        let result = t.result.as_ref();
        outage.meets(result.and_then(|r| r.started), result.and_then(|r| r.finished))
    });
    let said = format!("outage noted, {} ran then; overlaps:outage shows them", steer::ask::trials(n.count()));
    notice(model, said);
    let batch = model.ledger.next_batch();
    Ok(vec![Effect::Helm(Order::Say(
        place,
        Speech { batch, facts, words: Vec::new(), outage: Some(outage), remark: None },
    ))])
}

/// The last day on which the job ran at that time.
fn placed(job: &Job, window: Window, now: Stamp) -> Option<(Stamp, Stamp)> {
    let results = || job.trials.values().filter_map(|t| t.result.as_ref());
    let open = job.trials.values().any(|t| t.result.is_none());
    let begin = job.facts.created.or_else(|| results().filter_map(|r| r.started).min())?;
    let end = if open { now } else { results().filter_map(|r| r.finished).max().unwrap_or(now) };
    let day = |at: Stamp| at.as_second().div_euclid(DAY);
    let first = day(begin).saturating_sub(1);
    // A month is longer than any run.
    (first.max(day(end).saturating_sub(31))..=day(end)).rev().find_map(|day| {
        let from = Stamp::from_second(day * DAY + window.from).ok()?;
        let to = from.checked_add(Duration::from_secs(window.seconds())).ok()?;
        (from <= end && begin <= to).then_some((from, to))
    })
}
