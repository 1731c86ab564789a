//! What needs a person at once, seen over all trials of a job: most of them failing alike, a wrong key,
//! bursts of faults in the surroundings, odd clocks, tokens and passes, trials that do not get going.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::class::{Class, Classification, Flag};
use super::eta::{self, Eta};
use super::fleet::{Job, StateKind};
use super::outcome::is_agent_timeout;
use super::phase::{self, Phase};
use super::text::mask_secrets;
use super::time::{self, Stamp};
use super::trial::Trial;
use super::warnings::WarningKind;

/// From when on alarms are raised; `[alarms]` of `error-classes.toml`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// Share of ended trials that fail alike, from which on the failure is systemic.
    pub systemic_share: f64,
    /// At least so many of them.
    pub systemic_trials: u32,
    /// Each of them ended within so many minutes of its start.
    pub systemic_minutes: f64,
    /// Faults of the surroundings …
    pub burst_errors: u32,
    /// … within so many minutes.
    pub burst_minutes: f64,
    /// A timeout that took less than this share of the limit in its message disagrees with the clock.
    pub clock_share: f64,
    /// Output tokens per second of a timed-out agent below which they are few …
    pub few_tokens_per_second: f64,
    /// … if it had at least so many seconds.
    pub few_tokens_seconds: f64,
    /// Episodes per hour of a timed-out agent up to which it thought without end …
    pub runaway_episodes_per_hour: f64,
    /// … with no more episodes than this …
    pub runaway_episodes: u32,
    /// … in at least so many seconds.
    pub runaway_seconds: f64,
    /// A pass after no more episodes than this is looked at.
    pub thin_episodes: u32,
    /// A job without a single trial after so many seconds has not started.
    pub not_started_seconds: f64,
    /// A trial whose environment or agent is not up after so many seconds, where its own limit is not
    /// longer.
    pub slow_start_seconds: f64,
    /// An agent at work for more than this share of its limit is over its budget.
    pub over_budget_share: f64,
    /// An agent at work whose trial wrote nothing for so many seconds.
    pub silent_seconds: f64,
    /// So many ended trials at least, and every one of them at its limit without being solved.
    pub all_timeouts: u32,
    /// When what is around the job ends, a batch job's time limit say; the operator's word.
    pub deadline: Option<Stamp>,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            systemic_share: 0.6,
            systemic_trials: 5,
            systemic_minutes: 15.0,
            burst_errors: 4,
            burst_minutes: 10.0,
            clock_share: 0.9,
            few_tokens_per_second: 0.5,
            few_tokens_seconds: 600.0,
            runaway_episodes_per_hour: 4.0,
            runaway_episodes: 5,
            runaway_seconds: 900.0,
            thin_episodes: 1,
            not_started_seconds: 600.0,
            slow_start_seconds: 600.0,
            over_budget_share: 1.1,
            silent_seconds: 1800.0,
            all_timeouts: 3,
            deadline: None,
        }
    }
}

/// One alarm of one job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alarm {
    /// Kind.
    pub kind: WarningKind,
    /// What, of how many, and the next step. Raw: clean it before it reaches a terminal.
    pub message: String,
    /// Directory name of the first trial that it is about; None where the job as a whole is meant.
    pub trial: Option<Arc<str>>,
}

/// A finished trial with its class.
struct Ended<'a> {
    trial: &'a Trial,
    class: Option<&'a Classification>,
}

/// The alarms of a job, worst first.
pub fn of_job(job: &Job, limits: &Limits, now: Stamp) -> Vec<Alarm> {
    let ended: Vec<Ended<'_>> = job
        .trials
        .values()
        .filter(|t| t.result.is_some())
        .map(|trial| Ended { trial, class: job.class_of(trial).map(|c| &**c) })
        .collect();
    let mut out = Vec::new();
    out.extend(systemic(job, &ended, limits));
    out.extend(config(&ended));
    out.extend(burst(&ended, limits));
    out.extend(flags(&ended));
    let eta = eta::of_job(job, now);
    out.extend(deadline(eta.as_ref(), limits, now));
    out.extend(all_timeouts(job, &ended, eta.as_ref(), limits));
    out.extend(slow(job, limits, now));
    out
}

/// The first names of a list, and how many more there are.
fn names(trials: &[&Ended<'_>]) -> String {
    const SHOWN: usize = 3;
    let head: Vec<&str> = trials.iter().take(SHOWN).map(|e| &*e.trial.name).collect();
    match trials.len().saturating_sub(SHOWN) {
        0 => head.join(", "),
        more => format!("{} and {more} more", head.join(", ")),
    }
}

fn count(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

/// A trial's failure in short: type and rule, else type and message without what differs from trial to
/// trial. None for what is no failure, for timeouts and for stops.
fn likeness(ended: &Ended<'_>) -> Option<String> {
    let result = ended.trial.result.as_deref()?;
    let kind = result.exception_type().map_or("no exception", |k| &**k);
    match ended.class.map(|c| c.class) {
        Some(Class::Passed | Class::Partial | Class::Failed | Class::AgentTimeout | Class::Cancelled) => None,
        Some(Class::Unclassified) | None => {
            let exception = result.exception.as_ref()?;
            if result.is_cancelled() || is_agent_timeout(kind) || result.rewards.primary() == Some(1.0) {
                return None;
            }
            let mut text = exception.message.replace(&*ended.trial.name, "").replace(&*ended.trial.task, "");
            text.retain(|c| !c.is_ascii_digit());
            Some(format!("{kind} {}", text.chars().take(120).collect::<String>()))
        }
        Some(_) => Some(format!("{kind} {}", ended.class.map_or("", |c| &*c.rule))),
    }
}

/// Most ended trials failed alike, each within minutes.
fn systemic(job: &Job, ended: &[Ended<'_>], limits: &Limits) -> Option<Alarm> {
    let minutes = |e: &Ended<'_>| {
        let result = e.trial.result.as_deref()?;
        let seconds = result.finished?.duration_since(result.started?).as_secs_f64();
        Some(seconds / 60.0)
    };
    let mut groups: BTreeMap<String, Vec<&Ended<'_>>> = BTreeMap::new();
    for e in ended {
        // Without times nothing says that it was slow.
        if minutes(e).is_none_or(|m| m <= limits.systemic_minutes)
            && let Some(like) = likeness(e)
        {
            groups.entry(like).or_default().push(e);
        }
    }
    let group = groups.into_values().max_by_key(Vec::len)?;
    let n = group.len();
    if n < limits.systemic_trials as usize || (n as f64) < limits.systemic_share * ended.len() as f64 {
        return None;
    }
    let first = group.first()?;
    let result = first.trial.result.as_deref()?;
    let kind = result.exception_type().map_or("no exception", |k| &**k);
    let what = match (first.class, &result.exception) {
        (Some(class), _) if class.class != Class::Unclassified => class.why.to_string(),
        (_, Some(e)) => e.message.lines().next().unwrap_or_default().chars().take(160).collect(),
        _ => String::new(),
    };
    let longest = group.iter().filter_map(|e| minutes(e)).reduce(f64::max);
    // Without times there is nothing to say of them.
    let within = longest.map_or(String::new(), |longest| {
        format!(", each within {} of its start", time::words((longest * 60.0).max(1.0)))
    });
    let planned = match job.facts.n_planned() {
        Some((planned, _)) if planned > 0 => {
            format!(", {:.0} % of all {planned} planned", 100.0 * n as f64 / planned as f64)
        }
        _ => String::new(),
    };
    let message = format!(
        "{n} of {} ended trials failed alike{planned}{within}: {kind}: {}; stop the job and mend \
         that before more trials go the same way",
        ended.len(),
        mask_secrets(&what),
    );
    Some(Alarm { kind: WarningKind::Systemic, message, trial: Some(first.trial.name.clone()) })
}

/// The operator's own mistake: every further trial will end so.
fn config(ended: &[Ended<'_>]) -> Option<Alarm> {
    let found: Vec<&Ended<'_>> = ended.iter().filter(|e| e.class.is_some_and(|c| c.class == Class::Config)).collect();
    let class = found.first()?.class?;
    let said = class.evidence.first().map(|e| format!(" ({}: {})", e.place(), e.text)).unwrap_or_default();
    let message = format!(
        "{}: {}{said}: put it right, then run them again: {}",
        count(found.len(), "trial"),
        class.why,
        names(&found)
    );
    Some(Alarm { kind: WarningKind::Config, message, trial: found.first().map(|e| e.trial.name.clone()) })
}

/// Several faults of the surroundings within minutes.
fn burst(ended: &[Ended<'_>], limits: &Limits) -> Option<Alarm> {
    let mut faults: Vec<(Stamp, &Ended<'_>)> = ended
        .iter()
        .filter(|e| e.class.is_some_and(|c| c.class == Class::Infra))
        .filter_map(|e| Some((e.trial.result.as_deref()?.finished?, e)))
        .collect();
    faults.sort_by_key(|(at, e)| (*at, &e.trial.name));
    let k = limits.burst_errors.max(2) as usize;
    let seconds = limits.burst_minutes * 60.0;
    // The fullest window of that length.
    let mut best: &[(Stamp, &Ended<'_>)] = &[];
    let mut from = 0;
    for to in 0..faults.len() {
        while let (Some((a, _)), Some((b, _))) = (faults.get(from), faults.get(to)) {
            if b.duration_since(*a).as_secs_f64() <= seconds {
                break;
            }
            from += 1;
        }
        if let Some(window) = faults.get(from..=to)
            && window.len() > best.len()
        {
            best = window;
        }
    }
    if best.len() < k {
        return None;
    }
    let mut subs: BTreeMap<&str, usize> = BTreeMap::new();
    for (_, e) in best {
        *subs.entry(e.class.and_then(|c| c.sub.as_deref()).unwrap_or("infra")).or_default() += 1;
    }
    let mut subs: Vec<(&str, usize)> = subs.into_iter().collect();
    subs.sort_by_key(|(sub, n)| (std::cmp::Reverse(*n), *sub));
    let subs: Vec<String> = subs.iter().map(|(sub, n)| format!("{sub} {n}")).collect();
    let (first, last) = (best.first()?, best.last()?);
    let span = last.0.duration_since(first.0).as_secs_f64();
    let message = format!(
        "{} of the surroundings within {} from {:.0} on ({}): look at them before running these again",
        count(best.len(), "fault"),
        time::words(span.max(1.0)),
        first.0,
        subs.join(", "),
    );
    Some(Alarm { kind: WarningKind::InfraBurst, message, trial: Some(first.1.trial.name.clone()) })
}

/// What is left ends after the time that there is.
fn deadline(eta: Option<&Eta>, limits: &Limits, now: Stamp) -> Option<Alarm> {
    let (eta, deadline) = (eta?, limits.deadline?);
    let rest = deadline.duration_since(now).as_secs_f64();
    let over = |seconds: Option<f64>| seconds.filter(|s| *s > rest);
    let words = |seconds: f64| time::words(seconds.max(0.0));
    let time = if rest > 0.0 { format!("{} are left", words(rest)) } else { "it is over".to_string() };
    let message = match (over(eta.low_s), over(eta.high_s)) {
        (Some(low), _) => format!(
            "the job will not end before {deadline:.0}: {time}, and it takes {} more at the pace so far; more time, or \
             stop it in order before",
            words(low)
        ),
        (None, Some(high)) => format!(
            "the job may not end before {deadline:.0}: {time}, and it takes {} more if every trial uses up its limits",
            words(high)
        ),
        (None, None) => return None,
    };
    Some(Alarm { kind: WarningKind::Deadline, message, trial: None })
}

/// Nothing was solved, and everything took all its time: no failure of single trials.
fn all_timeouts(job: &Job, ended: &[Ended<'_>], eta: Option<&Eta>, limits: &Limits) -> Option<Alarm> {
    let late = |e: &Ended<'_>| {
        let result = e.trial.result.as_deref();
        result.is_some_and(|r| {
            r.exception_type().is_some_and(|kind| is_agent_timeout(kind)) && r.rewards.primary() != Some(1.0)
        })
    };
    if ended.len() < limits.all_timeouts.max(1) as usize || !ended.iter().all(late) {
        return None;
    }
    let planned = job.facts.n_planned().map_or("-".to_string(), |(n, _)| n.to_string());
    let rest = match eta.and_then(|eta| eta.high_s) {
        Some(high) => format!("; worst case for the rest: {}", time::words(high)),
        None => String::new(),
    };
    let message = format!(
        "all {} ended of {planned} planned trials ran into the agent's time limit unsolved{rest}: look at the model's \
         server and its pace before more trials go the same way",
        ended.len()
    );
    Some(Alarm { kind: WarningKind::AllTimeouts, message, trial: ended.first().map(|e| e.trial.name.clone()) })
}

fn flags(ended: &[Ended<'_>]) -> Vec<Alarm> {
    let table: [(WarningKind, &[Flag], &str); 6] = [
        (WarningKind::ZeroTokens, &[Flag::ZeroTokens], "the model never answered: their rewards say nothing"),
        (WarningKind::TestsNeverRan, &[Flag::TestsNeverRan], "their rewards say nothing about the agent"),
        (WarningKind::TimeoutDisagrees, &[Flag::TimeoutDisagrees], "find out which other limit ended them"),
        (WarningKind::FewTokens, &[Flag::FewTokens, Flag::Runaway], "look at the model's server, or at its thinking"),
        (WarningKind::TerminalKilled, &[Flag::TerminalKilled], "the agent's own doing unless its container died"),
        (
            WarningKind::SuspiciousPass,
            &[Flag::ThinPass, Flag::PassWithoutOutput, Flag::RewardBeforeVerifier],
            "look at them before they count",
        ),
    ];
    let mut out = Vec::new();
    for (kind, flags, next) in table {
        // What was graded again since has had its word.
        let open = |e: &Ended<'_>| kind != WarningKind::TestsNeverRan || e.trial.regrade().is_none();
        let has = |e: &&Ended<'_>| open(e) && e.class.is_some_and(|c| c.flags.iter().any(|f| flags.contains(f)));
        let found: Vec<&Ended<'_>> = ended.iter().filter(has).collect();
        let Some(first) = found.first() else { continue };
        let mut titles: Vec<&str> = Vec::new();
        for flag in flags {
            if found.iter().any(|e| e.class.is_some_and(|c| c.flags.contains(flag))) {
                titles.push(flag.title());
            }
        }
        let message = format!("{}: {}: {next}: {}", count(found.len(), "trial"), titles.join("; "), names(&found));
        out.push(Alarm { kind, message, trial: Some(first.trial.name.clone()) });
    }
    out
}

/// A job that has not begun, trials that do not get going, agents that work beyond their limit.
fn slow(job: &Job, limits: &Limits, now: Stamp) -> Vec<Alarm> {
    let mut out = Vec::new();
    if !job.settled || job.state(now).kind != StateKind::Running && !job.trials.is_empty() {
        return out;
    }
    let age = |at: Stamp| now.duration_since(at).as_secs_f64();
    let planned = job.facts.n_planned().map(|(n, _)| n);
    if job.trials.is_empty() {
        let created = job.facts.created.or(job.facts.summary.as_ref().and_then(|s| s.started));
        let over = job.facts.summary.as_ref().is_some_and(|s| s.finished.is_some());
        if let (Some(created), Some(n)) = (created, planned.filter(|n| *n > 0))
            && !over
            && age(created) >= limits.not_started_seconds
        {
            let message = format!(
                "not one of {n} planned trials has begun {} after the job: look at its log and its owner",
                time::words(age(created))
            );
            out.push(Alarm { kind: WarningKind::NotStarted, message, trial: None });
        }
        return out;
    }
    for trial in job.trials.values().filter(|t| t.result.is_none() && !t.unreadable) {
        let Some(evidence) = trial.evidence.as_deref() else { continue };
        let at = phase::of_evidence(evidence);
        match at {
            Phase::Starting | Phase::EnvironmentSetup | Phase::AgentSetup => {
                let own = [trial.limits.environment, trial.limits.agent_setup].into_iter().flatten().sum::<f64>();
                let patience = if at == Phase::AgentSetup {
                    limits.slow_start_seconds.max(own)
                } else {
                    limits.slow_start_seconds.max(trial.limits.environment.unwrap_or(0.0))
                };
                let since = evidence.config.map(|c| c.modified).or(evidence.began);
                if let Some(since) = since.filter(|s| age(*s) >= patience) {
                    let message = format!(
                        "{}: {} for {}, and its agent has not begun: look at the engine, the image and the network",
                        trial.name,
                        at.word().replace('_', " "),
                        time::words(age(since))
                    );
                    out.push(Alarm { kind: WarningKind::SlowStart, message, trial: Some(trial.name.clone()) });
                }
            }
            Phase::AgentRunning(_) => {
                if let Some(quiet) = evidence.newest.map(age).filter(|quiet| *quiet >= limits.silent_seconds) {
                    let message = format!(
                        "nothing was written for {} while its agent works: a command that does not return, or a \
                         model that does not answer; look at its terminal and at the model's server",
                        time::words(quiet)
                    );
                    out.push(Alarm { kind: WarningKind::Silent, message, trial: Some(trial.name.clone()) });
                }
                let began = evidence.trajectory.and_then(|p| p.first_step);
                let (Some(began), Some(limit)) = (began, trial.limits.agent) else { continue };
                if age(began) >= limit * limits.over_budget_share + 60.0 {
                    let message = format!(
                        "{}: its agent has worked for {}, and its limit is {}: the limit is not enforced",
                        trial.name,
                        time::words(age(began)),
                        time::words(limit)
                    );
                    out.push(Alarm { kind: WarningKind::OverBudget, message, trial: Some(trial.name.clone()) });
                }
            }
            _ => {}
        }
    }
    out
}
