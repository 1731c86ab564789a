//! What trials of our own do, in their own words: exact.
//!
//! | the trial says | told |
//! |---|---|
//! | a call, of whose answer something came | generating, or thinking unusually long |
//! | a call, nothing came yet | waiting for the first token; queued at the server while that has a queue |
//! | keys were typed | in a command |
//! | a call is made again, or waits until it can be | waiting for the endpoint |
//! | the tests run | verifying |
//!
//! Which of the calls of which nothing came yet are those in the queue is inferred where the queue is
//! shorter: the latest.

use super::{Doing, Joined, Servers, Told};
use crate::job::work::words;
use crate::job::work::{Call, Doing as Does};
use crate::job::{Stamp, TrialKey, time};

impl Told {
    /// Its agent is at work, and one of those that ask a model.
    pub(super) fn at_work(&self) -> bool {
        self.of_model && !matches!(self.work.doing, Does::Verifying { .. } | Does::Slot { .. })
    }
}

/// All of them.
pub(super) fn join(told: &[Told], servers: &Servers, now: Stamp) -> Vec<(TrialKey, Joined)> {
    let unheard = told.iter().filter_map(|t| t.work.call()).filter(|call| call.heard.is_none());
    let mut unheard: Vec<Stamp> = unheard.map(|call| call.since).collect();
    unheard.sort_unstable();
    let queued = if servers.unfit.is_some() { 0 } else { servers.queued.unwrap_or(0) as usize };
    let all_queued = queued >= unheard.len();
    let queue_from = if queued == 0 { None } else { unheard.get(unheard.len().saturating_sub(queued)).copied() };
    let figures = (servers.all > 0).then(|| servers.words());
    let endpoint = servers.gone.as_ref().filter(|_| servers.up == 0).map(|(_, state, _)| *state);
    let one = |t: &Told| {
        let (doing, why, inferred) = match &t.work.doing {
            Does::Model(call) | Does::Summary(call) => {
                let (doing, inferred) = match (&t.long, queue_from) {
                    (Some(_), _) => (Doing::Thinking, false),
                    (None, Some(from)) if call.heard.is_none() && call.since >= from => (Doing::Queued, !all_queued),
                    (None, _) if call.heard.is_none() => (Doing::Asked, false),
                    (None, _) => (Doing::Generating, false),
                };
                (doing, of_call(call, t, now), inferred)
            }
            Does::Command { keys, wait, .. } => {
                let typed =
                    words::first_line(keys).map_or("nothing typed".to_string(), |line| format!("typed: {line}"));
                (Doing::Command, format!("{typed}; it waits {} for it", time::words(*wait)), false)
            }
            Does::Retry { why, attempt, at, .. } => {
                let when = if at.is_some() { "in a moment" } else { "when the endpoint is there again" };
                (Doing::Endpoint, format!("{why}; try {attempt} {when}"), false)
            }
            Does::Verifying { .. } => (Doing::Verifying, "the tests run".to_string(), false),
            Does::Setup | Does::Slot { .. } | Does::Done => return None,
        };
        let of_server = !matches!(doing, Doing::Command | Doing::Verifying);
        let why = match &figures {
            Some(figures) if of_server => format!("{why}; {figures}"),
            _ => why,
        };
        let endpoint = endpoint.filter(|_| doing == Doing::Endpoint);
        Some((t.key.clone(), Joined { doing: Some(doing), since: t.work.since(), why, inferred, endpoint }))
    };
    told.iter().filter_map(one).collect()
}

fn of_call(call: &Call, told: &Told, now: Stamp) -> String {
    if let Some(long) = &told.long {
        return long.grounds.clone();
    }
    let asked = time::words(time::age(call.since, now).as_secs_f64());
    match call.heard {
        None => format!("asked {asked} ago, nothing came yet"),
        Some(heard) => {
            let heard = time::words(time::age(heard, now).as_secs_f64());
            let (reasoning, answer) = (words::tokens(call.reasoning), words::tokens(call.answer));
            format!("asked {asked} ago, {reasoning} tokens of reasoning and {answer} of answer, the last {heard} ago")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Replica, Trials, join as join_all};
    use super::*;
    use crate::job::JobKey;
    use crate::job::work::Work;
    use crate::serving::State;
    use crate::serving::thinking::Long;

    fn at(seconds: i64) -> Stamp {
        Stamp::from_second(1_800_000_000 + seconds).unwrap_or_default()
    }

    fn told(name: &str, doing: Does) -> Told {
        let key = TrialKey { job: JobKey(0), trial: name.into() };
        let work = Work { doing, told: Some(at(1000)), ..Work::default() };
        Told { key, work, of_model: true, left: Some(600.0), long: None }
    }

    fn call(age: i64, heard: Option<i64>) -> Does {
        let reasoning = if heard.is_some() { 900 } else { 0 };
        Does::Model(Call { since: at(1000 - age), heard: heard.map(|h| at(1000 - h)), reasoning, answer: 0 })
    }

    fn server(running: u32, queued: u32) -> Replica {
        let state = if queued > 0 { State::Saturated } else { State::Decoding };
        Replica {
            name: "a".into(),
            state,
            since: Some(at(0)),
            running: Some(running),
            queued: Some(queued),
            generation: Some(40.0),
            age: Some(1.0),
        }
    }

    fn states(told: Vec<Told>, replicas: &[Replica]) -> Vec<(Option<Doing>, bool)> {
        let trials = Trials { told, ..Trials::default() };
        join_all(&trials, replicas, at(1000)).into_values().map(|j| (j.doing, j.inferred)).collect()
    }

    #[test]
    fn what_a_trial_says_is_exact() {
        let since = at(900);
        let mut long = told("d", call(900, Some(1)));
        long.long = Some(Long { since, grounds: "15 m, 61k".into() });
        let all = vec![
            told("a", call(42, Some(1))),
            told("b", call(3, None)),
            told("c", Does::Command { keys: "make\n".into(), wait: 60.0, since }),
            long,
            told("e", Does::Retry { why: "refused".into(), attempt: 2, at: None, since }),
            told("f", Does::Verifying { since }),
            told("g", Does::Slot { since }),
        ];
        let exact = |doing| (Some(doing), false);
        let wanted = [
            exact(Doing::Generating),
            exact(Doing::Asked),
            exact(Doing::Command),
            exact(Doing::Thinking),
            exact(Doing::Endpoint),
            exact(Doing::Verifying),
        ];
        assert_eq!(states(all.clone(), &[server(4, 0)]), wanted);
        // They say it whatever is known of servers.
        assert_eq!(states(all.clone(), &[]), wanted);
        let demand = Trials { told: all, ..Trials::default() }.demand(at(1000));
        assert_eq!((demand.waiting, demand.agents, demand.oldest_wait), (3, 5, Some(900.0)));
        assert_eq!(demand.least_left, Some(600.0));
    }

    #[test]
    fn the_latest_unheard_are_in_the_queue_and_exactly_so_where_it_holds_them_all() {
        let all = || vec![told("a", call(9, None)), told("b", call(30, None)), told("c", call(40, Some(0)))];
        let queued = |inferred| (Some(Doing::Queued), inferred);
        let rest = [(Some(Doing::Asked), false), (Some(Doing::Generating), false)];
        assert_eq!(states(all(), &[server(2, 1)]), [queued(true), rest[0], rest[1]]);
        assert_eq!(states(all(), &[server(1, 2)]), [queued(false), queued(false), rest[1]]);
        let old = Replica { age: Some(90.0), ..server(1, 2) };
        assert_eq!(states(all(), &[old]), [rest[0], rest[0], rest[1]]);
    }

    #[test]
    fn the_grounds_are_told() {
        let trials = Trials { told: vec![told("a", call(42, Some(2)))], ..Trials::default() };
        let all = join_all(&trials, &[server(1, 0)], at(1000));
        let why = all.into_values().map(|j| j.why).next().unwrap_or_default();
        let wanted = "asked 42 s ago, 900 tokens of reasoning and 0 of answer, the last 2 s ago; \
                      1 run, 0 queued, 40 tokens/s";
        assert_eq!(why, wanted);
    }
}
