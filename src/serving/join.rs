//! What each running trial is doing: the ages of its files beside the state of the servers.
//!
//! Harbor writes no state file. What is known live of an attached trial is its phase, the time of its
//! last step, which terminus-2 records after the commands of an episode, and when its terminal last
//! moved. From that follows:
//!
//! | files | servers | told |
//! |---|---|---|
//! | verifier phase | any | verifying |
//! | terminal moved after the last step | any | in a command: the model has answered |
//! | terminal still since the last step | all gone or hung | waiting for the endpoint |
//! | " | requests queued, trials beyond those that run | the latest askers are queued |
//! | " | decoding, asked not long ago | generating |
//! | " | decoding, asked longer ago than three median calls and three minutes | thinking unusually long |
//! | " | nothing to do for a minute of it | waiting for the endpoint: the request does not reach it |
//! | no terminal, silent | nothing to do | in a command |
//! | anything else | | not told, with the reason |
//!
//! All but the verifier's phase is inferred. An agent that calls no model has nothing to be told of.
//!
//! A trial of pilothouse's own says itself what it does (`told`): nothing of it is inferred but the place
//! of its request in a server's queue.

mod told;

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Thinking;
use super::thinking::{self, Long};
use super::types::{Demand, ReplicaKey, State};
use crate::job::work::Work;
use crate::job::{Evidence, Fleet, Job, Phase, Stamp, Trial, TrialKey, phase, time};

/// A terminal that moved so long after the last step moved for a command: the step's own time is taken
/// a moment before its files are closed.
const AFTER_STEP: f64 = 1.0;
/// Polls are seconds apart and requests travel: an idle server says nothing of one asked so recently.
const IN_FLIGHT: f64 = 15.0;
/// A server that had nothing to do for so long has not got the request.
const LOST: f64 = 60.0;
/// Figures older than this say nothing of now.
const FRESH: f64 = 30.0;
/// Nobody thinks unusually long before so many seconds …
const LONG: f64 = 180.0;
/// … and so many median calls.
const LONG_CALLS: f64 = 3.0;

/// What a trial does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Doing {
    /// The model writes its answer.
    Generating,
    /// Its request is on its way or being read: nothing of the answer has come yet.
    Asked,
    /// Its request waits at the server.
    Queued,
    /// The model writes for unusually long.
    Thinking,
    /// A command runs in its terminal.
    Command,
    /// The endpoint does not answer.
    Endpoint,
    /// The tests run.
    Verifying,
}

impl Doing {
    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            Doing::Generating => "generating",
            Doing::Asked => "waiting for the first token",
            Doing::Queued => "queued at the server",
            Doing::Thinking => "thinking unusually long",
            Doing::Command => "blocked in a command",
            Doing::Endpoint => "waiting for the endpoint",
            Doing::Verifying => "verifying",
        }
    }
}

/// What is told of one trial.
#[derive(Debug, Clone, PartialEq)]
pub struct Joined {
    /// What it does; None where that can not be told.
    pub doing: Option<Doing>,
    /// Since when, as far as known.
    pub since: Option<Stamp>,
    /// The grounds, with figures.
    pub why: String,
    /// True when it was inferred.
    pub inferred: bool,
    /// How the endpoint stands that it waits for; None where it answers.
    pub endpoint: Option<State>,
}

/// A trial whose agent is at work with a model.
#[derive(Debug, Clone, PartialEq)]
pub struct Ask {
    /// Which.
    pub key: TrialKey,
    /// Its last step, or its agent's start: when it asked, if it asks.
    pub asked: Stamp,
    /// When its terminal last moved, if that is known.
    pub terminal: Option<Stamp>,
    /// Seconds that its agent has left.
    pub left: Option<f64>,
}

impl Ask {
    /// Its terminal moved after its last step: the model has answered.
    pub fn in_command(&self) -> bool {
        let after = |moved: Stamp| time::seconds_between(self.asked, moved).is_some_and(|s| s > AFTER_STEP);
        self.terminal.is_some_and(after)
    }

    fn age(&self, now: Stamp) -> f64 {
        time::age(self.asked, now).as_secs_f64()
    }
}

/// What trials of our own do, by name.
pub type Works = BTreeMap<Arc<str>, Work>;

/// A trial that says itself what it does.
#[derive(Debug, Clone, PartialEq)]
pub struct Told {
    /// Which.
    pub key: TrialKey,
    /// What it says.
    pub work: Work,
    /// Whether its agent asks a model at all.
    pub of_model: bool,
    /// Seconds that its agent has left.
    pub left: Option<f64>,
    /// Its present call goes on unusually long.
    pub long: Option<Long>,
}

/// The trials' side at one moment.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Trials {
    /// Trials that say themselves what they do, in order of their keys.
    pub told: Vec<Told>,
    /// Trials whose agent is at work with a model, in order of their keys.
    pub asks: Vec<Ask>,
    /// Trials whose verifier runs, since when.
    pub verifying: Vec<(TrialKey, Option<Stamp>)>,
    /// Median seconds of an episode, over all trials: no call takes longer than its episode.
    pub median_call: Option<f64>,
    /// Seconds since any trial got on.
    pub since_progress: Option<f64>,
    /// Context that the jobs' agents were told, in tokens, where it is the same of all.
    pub configured_context: Option<u64>,
}

/// A replica as far as trials are concerned.
#[derive(Debug, Clone, PartialEq)]
pub struct Replica {
    /// Its name.
    pub name: Arc<str>,
    /// Its state.
    pub state: State,
    /// Since when, where known.
    pub since: Option<Stamp>,
    /// Requests that run.
    pub running: Option<u32>,
    /// Requests that wait.
    pub queued: Option<u32>,
    /// Generated tokens per second.
    pub generation: Option<f32>,
    /// Seconds since its figures were so.
    pub age: Option<f64>,
}

/// Agents of Harbor and of this program that call no model.
pub fn calls_a_model(agent: Option<&str>) -> bool {
    !matches!(agent, Some("oracle" | "nop" | "scripted"))
}

/// Reads the trials' side; `of_model` false leaves out what only servers need. `works`: what some say
/// themselves.
pub fn trials(fleet: &Fleet, now: Stamp, of_model: bool, works: &Works, limits: &Thinking) -> Trials {
    let mut out = Trials::default();
    let mut episodes: Vec<f64> = Vec::new();
    let mut contexts: Vec<u64> = Vec::new();
    let mut newest: Option<Stamp> = None;
    for job in fleet.jobs() {
        let writer = job.writer(now);
        if of_model && writer == phase::Writer::Possible {
            contexts.extend(context(job));
        }
        for trial in job.trials.values() {
            if let Some(work) = works.get(&trial.name).filter(|work| work.is_exact() && trial.result.is_none()) {
                let key = TrialKey { job: job.key, trial: trial.name.clone() };
                let asks = calls_a_model(trial.agent.as_deref());
                newest = newest.max(work.since().filter(|_| asks));
                let left = trial.evidence.as_ref().and_then(|evidence| left(trial, evidence, now));
                out.told.push(Told { key, work: work.clone(), of_model: asks, left, long: None });
                continue;
            }
            if !calls_a_model(trial.agent.as_deref()) {
                continue;
            }
            if of_model {
                episodes.extend(episode(trial));
                newest = newest.max(trial.result.as_ref().and_then(|r| r.finished));
            }
            if trial.result.is_some() {
                continue;
            }
            let Some(evidence) = &trial.evidence else { continue };
            let key = TrialKey { job: job.key, trial: trial.name.clone() };
            match job.phase(trial, writer) {
                Phase::Verifying => {
                    newest = newest.max(evidence.manifest);
                    out.verifying.push((key, evidence.manifest));
                }
                Phase::AgentRunning(_) => {
                    let began = evidence.config.map(|c| c.modified).or(evidence.began);
                    // Both of the files' clock, which is not that of the steps.
                    let step = evidence.stepped.or(evidence.trajectory.and_then(|p| p.last_step));
                    let moved = evidence.cast.map(|f| f.modified).max(evidence.pane.map(|f| f.modified));
                    // Before the first step the terminal moves for the setup.
                    let terminal = step.and(moved);
                    let Some(asked) = step.or(moved).or(evidence.newest).or(began) else { continue };
                    let left = left(trial, evidence, now);
                    newest = newest.max(Some(asked)).max(terminal);
                    out.asks.push(Ask { key, asked, terminal, left });
                }
                _ => {}
            }
        }
    }
    episodes.sort_by(f64::total_cmp);
    out.median_call = episodes.get(episodes.len() / 2).copied();
    let median = out.median_call;
    out.told.iter_mut().for_each(|told| told.long = thinking::long(&told.work, median, limits, now));
    out.since_progress = newest.map(|at| time::age(at, now).as_secs_f64());
    contexts.sort_unstable();
    contexts.dedup();
    out.configured_context = if let [one] = contexts.as_slice() { Some(*one) } else { None };
    out
}

/// Seconds that a trial's agent has left.
fn left(trial: &Trial, evidence: &Evidence, now: Stamp) -> Option<f64> {
    let began = evidence.config.map(|c| c.modified).or(evidence.began);
    let from = evidence.trajectory.and_then(|p| p.first_step).or(began);
    let spent = from.and_then(|from| time::seconds_between(from, now)).unwrap_or(0.0);
    trial.limits.agent.map(|limit| (limit - spent).max(0.0))
}

/// Mean seconds of an episode of a trial.
fn episode(trial: &Trial) -> Option<f64> {
    let (from, to, n) = match (&trial.result, &trial.evidence) {
        (Some(result), _) => {
            let agent = result.spans.agent;
            (agent.started?, agent.finished?, result.n_episodes?)
        }
        (None, Some(evidence)) => {
            let progress = evidence.trajectory?;
            (progress.first_step?, progress.last_step?, progress.episodes)
        }
        _ => return None,
    };
    let seconds = time::seconds_between(from, to)?;
    (n > 0 && seconds > 0.0).then(|| seconds / f64::from(n))
}

/// The context that a job's agent was told.
fn context(job: &Job) -> Option<u64> {
    let named = ["max_input_tokens", "context_length", "max_model_len", "context_window"];
    let settings = &job.facts.settings.values;
    let found = settings.iter().find(|(name, _)| {
        let last = name.rsplit('.').next().unwrap_or_default();
        name.starts_with("agent") && named.contains(&last)
    });
    found.and_then(|(_, value)| value.parse().ok()).filter(|tokens| *tokens > 0)
}

impl Trials {
    /// What the servers' diagnoses need to know of the trials.
    pub fn demand(&self, now: Stamp) -> Demand {
        // Without a terminal it can not be told whether the model is asked or a command runs.
        let waiting: Vec<&Ask> = self.asks.iter().filter(|a| a.terminal.is_some() && !a.in_command()).collect();
        let least = |least: Option<f64>, left: f64| Some(least.map_or(left, |l| l.min(left)));
        let told: Vec<&Told> = self.told.iter().filter(|t| t.at_work()).collect();
        let calls: Vec<Stamp> = told.iter().filter_map(|t| Some(t.work.call()?.since)).collect();
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let ages = calls.iter().map(|since| time::age(*since, now).as_secs_f64());
        Demand {
            waiting: count(waiting.len() + calls.len()),
            agents: count(self.asks.len() + told.len()),
            oldest_wait: waiting.iter().map(|a| a.age(now)).chain(ages).reduce(f64::max),
            median_call: self.median_call,
            since_progress: self.since_progress,
            least_left: self.asks.iter().map(|a| a.left).chain(told.iter().map(|t| t.left)).flatten().fold(None, least),
            configured_context: self.configured_context,
        }
    }
}

/// A replica's name in lists: server, worker and rank as far as there are any.
pub fn name(key: &ReplicaKey) -> String {
    let mut out = key.server.to_string();
    if let Some(worker) = &key.worker {
        let bare = worker.trim_end_matches('/');
        out.push(' ');
        out.push_str(bare.rsplit("://").next().unwrap_or(bare));
    }
    if let Some(rank) = key.rank {
        out.push_str(&format!(" dp{rank}"));
    }
    out
}

/// The servers' side, summed up.
#[derive(Debug, Default)]
struct Servers {
    /// Replicas that answer.
    up: usize,
    running: Option<u32>,
    queued: Option<u32>,
    generation: Option<f32>,
    /// All of those that answer have nothing to do.
    idle: bool,
    /// Why their figures can not be used.
    unfit: Option<String>,
    /// One that does not answer: name, state, since when.
    gone: Option<(Arc<str>, State, Option<Stamp>)>,
    all: usize,
}

fn servers(replicas: &[Replica]) -> Servers {
    let mut out = Servers { all: replicas.len(), idle: true, ..Servers::default() };
    let sum =
        |total: &mut Option<u32>, n: Option<u32>| *total = Some(total.unwrap_or(0).saturating_add(n.unwrap_or(0)));
    for replica in replicas {
        match replica.state {
            State::Dead | State::Restarting | State::Starting | State::Hung => {
                let worse = matches!(replica.state, State::Dead | State::Hung);
                if out.gone.is_none() || worse {
                    out.gone = Some((replica.name.clone(), replica.state, replica.since));
                }
            }
            State::Unknown => {
                out.idle = false;
                out.unfit = Some(format!("nothing is known of {}", replica.name));
            }
            State::Ready | State::Idle => {
                out.up += 1;
                sum(&mut out.running, Some(0));
                sum(&mut out.queued, Some(0));
            }
            State::Decoding | State::Saturated | State::Retracting => {
                out.up += 1;
                out.idle = false;
                match replica.age {
                    Some(age) if age <= FRESH && replica.running.is_some() => {
                        sum(&mut out.running, replica.running);
                        sum(&mut out.queued, replica.queued);
                        if let Some(speed) = replica.generation {
                            out.generation = Some(out.generation.unwrap_or(0.0) + speed);
                        }
                    }
                    Some(age) if age > FRESH => {
                        out.unfit = Some(format!("the figures of {} are {} old", replica.name, time::words(age)));
                    }
                    _ => out.unfit = Some(format!("{} does not say what runs", replica.name)),
                }
            }
        }
    }
    out.idle &= out.up > 0;
    out
}

impl Servers {
    /// `5 run, 2 queued, 180 tokens/s`.
    fn words(&self) -> String {
        let number = |n: Option<u32>| n.map_or_else(|| "-".to_string(), |n| n.to_string());
        let speed = self.generation.map(|g| format!(", {g:.0} tokens/s")).unwrap_or_default();
        let of = if self.all > 1 { format!(" on {} of {} replicas", self.up, self.all) } else { String::new() };
        format!("{} run, {} queued{speed}{of}", number(self.running), number(self.queued))
    }
}

/// What every one of them is doing.
pub fn join(trials: &Trials, replicas: &[Replica], now: Stamp) -> BTreeMap<TrialKey, Joined> {
    let servers = servers(replicas);
    let mut out: BTreeMap<TrialKey, Joined> = told::join(&trials.told, &servers, now).into_iter().collect();
    for (key, since) in &trials.verifying {
        let why = match since.map(|at| time::words(time::age(at, now).as_secs_f64())) {
            Some(ago) => format!("artifacts/manifest.json was written {ago} ago: the agent is over"),
            None => "the agent is over".to_string(),
        };
        let joined = Joined { doing: Some(Doing::Verifying), since: *since, why, inferred: false, endpoint: None };
        out.insert(key.clone(), joined);
    }
    // Those that wait, the latest asker last: that one came to the end of a queue.
    let mut silent: Vec<&Ask> = trials.asks.iter().filter(|a| !a.in_command()).collect();
    silent.sort_by(|a, b| a.asked.cmp(&b.asked).then_with(|| a.key.cmp(&b.key)));
    let running = servers.running.unwrap_or(0) as usize;
    let queued = servers.queued.unwrap_or(0) as usize;
    let waiting_there = queued.min(silent.len().saturating_sub(running));
    for ask in trials.asks.iter().filter(|a| a.in_command()) {
        out.insert(ask.key.clone(), in_command(ask, now));
    }
    let places = silent.len();
    for (place, ask) in silent.into_iter().enumerate() {
        let at_end = places - place <= waiting_there;
        let joined = silent_one(ask, trials, &servers, (places, at_end), now);
        out.insert(ask.key.clone(), joined);
    }
    out
}

fn in_command(ask: &Ask, now: Stamp) -> Joined {
    let moved = ask.terminal.unwrap_or(ask.asked);
    let quiet = time::words(time::age(moved, now).as_secs_f64());
    let step = time::words(ask.age(now));
    Joined {
        doing: Some(Doing::Command),
        since: Some(moved),
        why: format!("the terminal moved {quiet} ago, after the last step {step} ago: the model has answered"),
        inferred: true,
        endpoint: None,
    }
}

/// A trial whose files say only since when nothing came of it.
fn silent_one(ask: &Ask, trials: &Trials, servers: &Servers, (silent, at_end): (usize, bool), now: Stamp) -> Joined {
    let age = ask.age(now);
    let ago = time::words(age);
    let told = |doing, why: String| Joined { doing, since: Some(ask.asked), why, inferred: true, endpoint: None };
    let base = match ask.terminal {
        Some(_) => format!("no step for {ago}, terminal still"),
        None => format!("no sign for {ago}"),
    };
    if servers.all == 0 {
        return told(None, format!("{base}; no server is watched"));
    }
    if servers.up == 0
        && let Some((name, state, since)) = &servers.gone
        && servers.unfit.is_none()
    {
        let words = since.map(|at| format!(" for {}", time::words(time::age(at, now).as_secs_f64())));
        let since = Some(since.map_or(ask.asked, |at| at.max(ask.asked)));
        let why = format!("{base}; {name} is {}{}", state.name(), words.unwrap_or_default());
        return Joined { doing: Some(Doing::Endpoint), since, why, inferred: true, endpoint: Some(*state) };
    }
    if let Some(unfit) = &servers.unfit {
        return told(None, format!("{base}; {unfit}"));
    }
    let figures = servers.words();
    if servers.idle {
        let idle = "the server has nothing to do";
        return match ask.terminal {
            _ if age < IN_FLIGHT => told(None, format!("{base}; {idle} yet")),
            None => told(Some(Doing::Command), format!("{base} while {idle}")),
            Some(_) if age >= LOST => {
                told(Some(Doing::Endpoint), format!("{base} while {idle}: the request has not reached it"))
            }
            Some(_) => told(None, format!("{base} while {idle}")),
        };
    }
    if at_end {
        return told(Some(Doing::Queued), format!("{base}, among the latest to ask; {figures}"));
    }
    let there = servers.running.unwrap_or(0).saturating_add(servers.queued.unwrap_or(0)) as usize;
    let long = trials.median_call.map_or(LONG, |call| LONG.max(LONG_CALLS * call));
    if there < silent && (ask.terminal.is_none() || age > long) {
        return told(None, format!("{base}; {there} of {silent} silent trials are at the server: {figures}"));
    }
    if age > long {
        let median = trials.median_call.map(|call| format!(", median episode {}", time::words(call)));
        let why = format!("{base}{}; {figures}", median.unwrap_or_default());
        return told(Some(Doing::Thinking), why);
    }
    told(Some(Doing::Generating), format!("{base}; {figures}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::JobKey;

    fn at(seconds: i64) -> Stamp {
        Stamp::from_second(1_800_000_000 + seconds).unwrap_or(Stamp::UNIX_EPOCH)
    }

    fn key(name: &str) -> TrialKey {
        TrialKey { job: JobKey(0), trial: name.into() }
    }

    /// A trial that asked so long before 1000; its terminal moved so long before.
    fn ask(name: &str, age: i64, moved: Option<i64>) -> Ask {
        Ask { key: key(name), asked: at(1000 - age), terminal: moved.map(|m| at(1000 - m)), left: Some(600.0) }
    }

    fn replica(state: State, running: u32, queued: u32) -> Replica {
        Replica {
            name: "a".into(),
            state,
            since: Some(at(900)),
            running: Some(running),
            queued: Some(queued),
            generation: Some(40.0),
            age: Some(2.0),
        }
    }

    fn told(asks: Vec<Ask>, replicas: &[Replica]) -> Vec<(Option<Doing>, String)> {
        let trials = Trials { asks, median_call: Some(20.0), ..Trials::default() };
        join(&trials, replicas, at(1000)).into_values().map(|j| (j.doing, j.why)).collect()
    }

    fn doing(asks: Vec<Ask>, replicas: &[Replica]) -> Vec<Option<Doing>> {
        told(asks, replicas).into_iter().map(|(doing, _)| doing).collect()
    }

    #[test]
    fn a_terminal_that_moved_after_the_step_is_in_a_command_whatever_the_server_does() {
        for state in [State::Dead, State::Decoding, State::Idle] {
            assert_eq!(doing(vec![ask("t", 100, Some(30))], &[replica(state, 1, 0)]), [Some(Doing::Command)]);
        }
        // The movement of the step itself, seen a moment later, is none.
        assert_eq!(doing(vec![ask("t", 30, Some(30))], &[replica(State::Decoding, 1, 0)]), [Some(Doing::Generating)]);
        assert_eq!(doing(vec![ask("t", 100, Some(30))], &[]), [Some(Doing::Command)]);
    }

    #[test]
    fn an_endpoint_that_is_gone_is_waited_for_and_since_when_is_said() {
        for state in [State::Dead, State::Hung, State::Restarting, State::Starting] {
            let all = told(vec![ask("t", 200, Some(200))], &[replica(state, 1, 0)]);
            assert_eq!(all[0].0, Some(Doing::Endpoint), "{state:?}");
            assert_eq!(all[0].1, format!("no step for 3 m 20 s, terminal still; a is {} for 1 m 40 s", state.name()));
        }
        // One of two still answers: who waits for the other can not be told, those that run are enough.
        let two = [replica(State::Dead, 0, 0), replica(State::Decoding, 1, 0)];
        assert_eq!(doing(vec![ask("t", 20, Some(20))], &two), [Some(Doing::Generating)]);
    }

    #[test]
    fn the_latest_askers_are_queued() {
        let asks = vec![ask("a", 50, Some(50)), ask("b", 40, Some(40)), ask("c", 10, Some(10))];
        let all = doing(asks, &[replica(State::Saturated, 2, 1)]);
        assert_eq!(all, [Some(Doing::Generating), Some(Doing::Generating), Some(Doing::Queued)]);
        // A queue of somebody else's requests: as many run as there are trials.
        let asks = vec![ask("a", 50, Some(50)), ask("b", 40, Some(40))];
        assert_eq!(doing(asks, &[replica(State::Saturated, 8, 3)]), [Some(Doing::Generating); 2]);
    }

    #[test]
    fn long_thinking_needs_three_minutes_and_three_calls() {
        assert_eq!(doing(vec![ask("t", 180, Some(180))], &[replica(State::Decoding, 1, 0)]), [Some(Doing::Generating)]);
        let all = told(vec![ask("t", 500, Some(500))], &[replica(State::Decoding, 1, 0)]);
        let why = "no step for 8 m 20 s, terminal still, median episode 20 s; 1 run, 0 queued, 40 tokens/s";
        assert_eq!(all, [(Some(Doing::Thinking), why.to_string())]);
        let slow = Trials { asks: vec![ask("t", 500, Some(500))], median_call: Some(200.0), ..Trials::default() };
        let joined = join(&slow, &[replica(State::Decoding, 1, 0)], at(1000));
        assert_eq!(joined[&key("t")].doing, Some(Doing::Generating));
    }

    #[test]
    fn where_fewer_are_at_the_server_than_are_silent_the_long_ones_can_not_be_told_apart() {
        let asks = vec![ask("a", 500, Some(500)), ask("b", 400, Some(400)), ask("c", 5, Some(5))];
        assert_eq!(doing(asks, &[replica(State::Decoding, 2, 0)]), [None, None, Some(Doing::Generating)]);
    }

    #[test]
    fn an_idle_server_and_a_still_terminal_are_a_lost_request_after_a_minute() {
        let idle = [replica(State::Idle, 0, 0)];
        assert_eq!(doing(vec![ask("t", 5, Some(5))], &idle), [None]);
        assert_eq!(doing(vec![ask("t", 30, Some(30))], &idle), [None]);
        assert_eq!(doing(vec![ask("t", 90, Some(90))], &idle), [Some(Doing::Endpoint)]);
        // Without a terminal the silence can only be a command.
        assert_eq!(doing(vec![ask("t", 90, None)], &idle), [Some(Doing::Command)]);
    }

    #[test]
    fn what_can_not_be_told_says_why() {
        let all = told(vec![ask("t", 90, Some(90))], &[]);
        assert_eq!(all, [(None, "no step for 1 m 30 s, terminal still; no server is watched".to_string())]);
        let old = Replica { age: Some(45.0), ..replica(State::Decoding, 1, 0) };
        assert_eq!(told(vec![ask("t", 90, None)], &[old])[0].1, "no sign for 1 m 30 s; the figures of a are 45 s old");
        assert_eq!(doing(vec![ask("t", 90, Some(90))], &[replica(State::Unknown, 1, 0)]), [None]);
    }

    #[test]
    fn demand_counts_only_those_that_surely_wait() {
        let asks = vec![ask("a", 500, Some(500)), ask("b", 400, Some(10)), ask("c", 50, None)];
        let demand = Trials { asks, median_call: Some(20.0), ..Trials::default() }.demand(at(1000));
        assert_eq!((demand.waiting, demand.agents), (1, 3));
        assert_eq!((demand.oldest_wait, demand.least_left), (Some(500.0), Some(600.0)));
    }

    #[test]
    fn replicas_have_short_names() {
        let worker = Some(Arc::from("http://10.0.0.2:30000/"));
        assert_eq!(name(&ReplicaKey { server: "r".into(), worker, rank: Some(1) }), "r 10.0.0.2:30000 dp1");
        assert_eq!(name(&ReplicaKey { server: "r".into(), worker: None, rank: None }), "r");
    }
}
