//! The phases of a trial as lines with durations, and the gaps between them by name.

use super::Facts;
use crate::job::trial::{Evidence, Span};
use crate::job::{Phase, Stamp, Trial, TrialResult, time};

/// Gaps shorter than this many seconds are not worth a line.
const GAP_SECONDS: f64 = 0.5;
/// Seconds by which file times may be in the wrong order without being called odd.
const SLACK_SECONDS: f64 = 2.0;

/// One line of the timeline.
#[derive(Debug, Clone, PartialEq)]
pub struct Lane {
    /// The phase, or what happens in the gap.
    pub name: String,
    /// Seconds after the trial's start at which it begins; None when its times make no sense.
    pub from: Option<f64>,
    /// Its length in seconds; None when it is not known.
    pub seconds: Option<f64>,
    /// Limit in seconds, where one is known.
    pub limit: Option<f64>,
    /// No recorded phase but the time between two.
    pub gap: bool,
    /// Inferred from file times.
    pub inferred: bool,
    /// Still going on.
    pub running: bool,
}

/// The timeline.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Timeline {
    /// Lines in order of time.
    pub lanes: Vec<Lane>,
    /// Seconds from start to end (or now); None when unknown.
    pub total: Option<f64>,
    /// What is odd about the times, in words.
    pub odd: Vec<String>,
}

/// When one step of a multi-step trial ran.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct StepSpan {
    /// Name of the step.
    pub name: String,
    /// The agent in it.
    pub agent: Span,
    /// The verifier in it.
    pub verifier: Span,
}

struct Maker {
    start: Stamp,
    last: Option<(Stamp, &'static str)>,
    line: Timeline,
}

impl Maker {
    fn new(start: Stamp) -> Maker {
        Maker { start, last: None, line: Timeline::default() }
    }

    /// A recorded phase; `before` says what the gap in front of it is.
    fn phase(&mut self, name: &str, kind: &'static str, span: Span, limit: Option<f64>, before: &str) {
        let Some(from) = span.started else { return };
        if let Some((last, of)) = self.last {
            match time::seconds_between(last, from) {
                Some(gap) if gap >= GAP_SECONDS => self.lane(before, last, Some(gap), None, true),
                None => {
                    let back = time::seconds_between(from, last).unwrap_or(0.0);
                    self.line.odd.push(format!("clock went back: {name} starts {back:.1} s before {of} ends"));
                }
                _ => {}
            }
        }
        let seconds = span.finished.and_then(|to| time::seconds_between(from, to));
        if let (Some(to), None) = (span.finished, seconds) {
            let back = time::seconds_between(to, from).unwrap_or(0.0);
            self.line.odd.push(format!("clock went back: {name} ends {} before it starts", time::words(back)));
        }
        self.lane(name, from, seconds, limit, false);
        self.last = span.finished.or(Some(from)).map(|at| (at, kind));
    }

    fn lane(&mut self, name: &str, from: Stamp, seconds: Option<f64>, limit: Option<f64>, gap: bool) {
        self.line.lanes.push(Lane {
            name: name.to_string(),
            from: time::seconds_between(self.start, from),
            seconds,
            limit,
            gap,
            inferred: false,
            running: false,
        });
    }

    /// A stretch between two file times; without an end it runs until `now`.
    fn inferred(&mut self, name: &str, from: Option<Stamp>, to: Option<Stamp>, now: Stamp, limit: Option<f64>) {
        let Some(from) = from else { return };
        let running = to.is_none();
        let seconds = time::seconds_between(from, to.unwrap_or(now));
        // Files written within one moment may be stamped in any order.
        let slack = |seconds: f64| (seconds <= SLACK_SECONDS).then_some(0.0);
        let end = to.unwrap_or(now);
        let seconds = seconds.or_else(|| time::seconds_between(end, from).and_then(slack));
        if seconds.is_none() {
            let words = if running {
                "files are newer than this machine's clock: one of the clocks is wrong"
            } else {
                "file times contradict each other: a copy without its times, or a clock that was set"
            };
            if !self.line.odd.iter().any(|o| o == words) {
                self.line.odd.push(words.to_string());
            }
        }
        self.lane(name, from, seconds, limit, false);
        if let Some(lane) = self.line.lanes.last_mut() {
            (lane.inferred, lane.running) = (true, running);
        }
    }
}

/// The timeline of a trial at `now`.
pub fn of_trial(trial: &Trial, facts: Option<&Facts>, phase: Phase, now: Stamp) -> Timeline {
    match (&trial.result, &trial.evidence) {
        (Some(result), _) => finished(trial, result, facts),
        (None, Some(evidence)) => unfinished(trial, evidence, phase, now),
        (None, None) => Timeline::default(),
    }
}

fn finished(trial: &Trial, result: &TrialResult, facts: Option<&Facts>) -> Timeline {
    let spans = &result.spans;
    let first = [spans.environment_setup, spans.agent_setup, spans.agent, spans.verifier];
    let Some(start) = result.started.or_else(|| first.iter().find_map(|s| s.started)) else {
        return Timeline { odd: vec!["the result holds no times".to_string()], ..Timeline::default() };
    };
    let mut maker = Maker::new(start);
    let limits = &trial.limits;
    maker.last = result.started.map(|at| (at, "start"));
    maker.phase("environment setup", "environment setup", spans.environment_setup, limits.environment, "start");
    maker.phase("agent setup", "agent setup", spans.agent_setup, limits.agent_setup, "healthcheck, skills");
    let steps = facts.map(|f| f.steps.as_slice()).unwrap_or_default();
    let mut before = "waiting for agent permit";
    if spans.agent.started.is_none() && !steps.is_empty() {
        for step in steps {
            maker.phase(&format!("agent: {}", step.name), "the agent", step.agent, limits.agent, before);
            let name = format!("verifier: {}", step.name);
            maker.phase(&name, "the verifier", step.verifier, limits.verifier, "log download, artifacts");
            before = "setup of the next step";
        }
    }
    maker.phase("agent", "the agent", spans.agent, limits.agent, before);
    // Classic terminal-bench downloads nothing between the two; it captures the screen.
    let between = if trial.name.contains('/') { "screen captured, tests copied" } else { "log download, artifacts" };
    maker.phase("verifier", "the verifier", spans.verifier, limits.verifier, between);
    if let (Some((last, of)), Some(end)) = (maker.last, result.finished) {
        match time::seconds_between(last, end) {
            Some(gap) if gap >= GAP_SECONDS => maker.lane("teardown", last, Some(gap), None, true),
            None => maker.line.odd.push(format!("clock went back: the trial ends before {of}")),
            _ => {}
        }
    }
    maker.line.total = result.finished.and_then(|end| time::seconds_between(start, end));
    if result.finished.is_some() && maker.line.total.is_none() {
        maker.line.odd.push("clock went back: the trial ends before it starts".to_string());
    }
    maker.line
}

fn unfinished(trial: &Trial, e: &Evidence, phase: Phase, now: Stamp) -> Timeline {
    let Some(start) = e.began.or(e.config.map(|c| c.modified)) else { return Timeline::default() };
    let mut maker = Maker::new(start);
    let limits = &trial.limits;
    // Of an orphan the last write is the end of all that is known.
    let now = if phase.is_running() { now } else { e.newest.unwrap_or(now) };
    let config = e.config.map(|c| c.modified);
    let first = e.trajectory.and_then(|p| p.first_step);
    let graded = e.reward.map(|r| r.at).or_else(|| e.exception.as_ref().map(|x| x.at));
    maker.inferred("starting", e.began, config, now, None);
    let setup_end = first.or(e.manifest).or(graded);
    let name = match phase {
        Phase::EnvironmentSetup => "environment setup",
        Phase::AgentRunning(_) if first.is_none() => "setup and episode 1",
        _ => "environment and agent setup",
    };
    let limit = if phase == Phase::EnvironmentSetup { limits.environment } else { None };
    maker.inferred(name, config, setup_end, now, limit);
    maker.inferred("agent", first, e.manifest.or(graded), now, limits.agent);
    maker.inferred("verifier", e.manifest, graded, now, limits.verifier);
    maker.inferred("teardown", graded, None, now, None);
    if !phase.is_running() {
        maker.line.lanes.iter_mut().for_each(|l| l.running = false);
    }
    maker.line.total = time::seconds_between(start, now);
    maker.line
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::trial::FileFact;
    use crate::job::{Limits, Progress};

    fn at(seconds: i64) -> Stamp {
        Stamp::from_second(1_800_000_000 + seconds).unwrap_or_default()
    }

    fn trial(result: Option<TrialResult>, evidence: Option<Evidence>) -> Trial {
        Trial {
            name: "t__1".into(),
            task: "t".into(),
            agent: None,
            model: None,
            result: result.map(Box::new),
            evidence: evidence.map(Box::new),
            limits: Limits { agent: Some(100.0), ..Limits::default() },
            problems: Vec::new(),
            unreadable: false,
            regrades: Vec::new(),
        }
    }

    #[test]
    fn a_running_trial_is_inferred_and_grows() {
        let evidence = Evidence {
            began: Some(at(0)),
            config: Some(FileFact { size: 1, modified: at(5) }),
            trajectory: Some(Progress { first_step: Some(at(20)), ..Progress::default() }),
            ..Evidence::default()
        };
        let line = of_trial(&trial(None, Some(evidence.clone())), None, Phase::AgentRunning(1), at(50));
        let seen: Vec<(&str, Option<f64>, bool)> =
            line.lanes.iter().map(|l| (l.name.as_str(), l.seconds, l.running)).collect();
        let wanted = [
            ("starting", Some(5.0), false),
            ("environment and agent setup", Some(15.0), false),
            ("agent", Some(30.0), true),
        ];
        assert_eq!(seen, wanted);
        assert!(line.odd.is_empty() && line.lanes.iter().all(|l| l.inferred));
        // An orphan ends with its last write.
        let orphan = Evidence { newest: Some(at(30)), ..evidence };
        let line = of_trial(&trial(None, Some(orphan)), None, Phase::Orphaned, at(5000));
        assert_eq!(line.lanes.last().map(|l| (l.seconds, l.running)), Some((Some(10.0), false)));
    }

    #[test]
    fn contradicting_times_are_said_once() {
        let fact = |s| Some(FileFact { size: 1, modified: at(s) });
        let trajectory = Some(Progress { first_step: Some(at(0)), ..Progress::default() });
        let e = Evidence { began: Some(at(500)), config: fact(400), trajectory, ..Evidence::default() };
        let line = of_trial(&trial(None, Some(e)), None, Phase::AgentRunning(1), at(1000));
        assert_eq!(line.odd.len(), 1, "{:?}", line.odd);
        assert!(line.lanes.iter().any(|l| l.seconds.is_none()));
    }
}
