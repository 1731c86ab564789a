//! Why a trial ended as it did: the rules of `error-classes.toml` over the evidence of its files.
//!
//! [`Classifier::classify`] looks at one finished trial: what its result says, which phases it reached,
//! what the clocks say, whether tests ran, and only then at the words of logs. It names the rule that
//! decided and the lines that it rests on. A clean pass costs two looks at its verifier's files.
//!
//! | part | what |
//! |---|---|
//! | [`rules`] | the table: conditions → class; read from TOML, the operator's own file before the shipped one |
//! | [`evidence`] | the trial's files, read on demand, by heads and tails, never through a link |
//! | [`tests_run`] | did tests run at all |
//! | [`survey`] | all trials of a fleet, in parallel |

pub mod evidence;
pub mod facts;
pub mod rules;
pub mod survey;
pub mod tests_run;

mod flags;
mod folders;
mod pattern;
mod source;

use std::path::Path;
use std::sync::Arc;

use self::evidence::Gathered;
use self::facts::Facts;
pub use self::rules::{Rules, RulesError};
use self::source::Source;
use crate::harbor::Dir;
use crate::job::outcome::is_agent_timeout;
use crate::job::policy::ErrorPolicy;
use crate::job::text::{clean, mask_secrets};
use crate::job::{
    AlarmLimits, Class, Classification, Excerpt, Grade, JobFacts, Stamp, Trial, TrialResult, Verdict, phase, time,
};

/// Says of each trial what became of it. Cheap to share between threads.
#[derive(Debug, Clone)]
pub struct Classifier {
    rules: Arc<Rules>,
    deadline: Option<Stamp>,
}

impl Default for Classifier {
    fn default() -> Classifier {
        Classifier::shipped()
    }
}

impl Classifier {
    /// With the rules that come with the program.
    pub fn shipped() -> Classifier {
        Classifier { rules: Arc::new(Rules::shipped()), deadline: None }
    }

    /// With the operator's own files before the shipped rules, the first file first.
    ///
    /// # Errors
    /// Where a file can not be read or is wrong: file, line, and what is allowed.
    pub fn load(files: &[std::path::PathBuf]) -> Result<Classifier, RulesError> {
        Ok(Classifier { rules: Arc::new(Rules::load(files)?), deadline: None })
    }

    /// The rules.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// With the time at which what is around the jobs ends.
    pub fn until(self, deadline: Option<Stamp>) -> Classifier {
        Classifier { deadline, ..self }
    }

    /// Thresholds of the alarms.
    pub fn alarm_limits(&self) -> AlarmLimits {
        AlarmLimits { deadline: self.deadline, ..self.rules.alarms }
    }

    /// The class of a trial that has a result; of one without, what it is when nobody will write one
    /// any more (`orphaned`).
    pub fn classify(&self, job_dir: &Path, job: &JobFacts, trial: &Trial) -> Classification {
        self.classify_in(Dir::open(job_dir).ok().as_ref(), job, trial)
    }

    /// As [`Classifier::classify`], with the job dir open; without one only the result speaks.
    pub fn classify_in(&self, job_dir: Option<&Dir>, job: &JobFacts, trial: &Trial) -> Classification {
        let Some(result) = trial.result.as_deref() else { return orphaned(trial) };
        let dir = job_dir.and_then(|dir| dir.sub(&trial.name).ok());
        let mut gathered = Gathered::new(dir, job.layout.is_classic(), trial, result);
        let facts = Facts::of(job, trial, result, &self.rules.alarms, &mut gathered);
        let mut class = self.decide(&facts, result, &mut gathered);
        flags::add(&mut class, &facts, result, trial, &mut gathered, &self.rules.alarms);
        class.evidence.extend(last_step(result, &mut gathered));
        // Harbor has no policy for what terminal-bench calls its failures.
        let kind = result.exception_type().filter(|_| !job.layout.is_classic());
        class.harbor_differs = differs(class.class, kind.map(|k| &**k));
        class
    }

    fn decide(&self, facts: &Facts, result: &TrialResult, gathered: &mut Gathered<'_>) -> Classification {
        let made = |class: Class, rule: &str, why: &str, suggested, evidence| Classification {
            result_id: result.id.clone(),
            class,
            sub: None,
            rule: rule.into(),
            why: why.into(),
            evidence,
            flags: Vec::new(),
            suggested,
            harbor_differs: None,
        };
        let summary = |text: String| vec![Excerpt { path: facts.file.into(), line: None, text: text.into() }];
        if result.grade() == Grade::Passed {
            return made(Class::Passed, "reward-1", "reward 1", None, summary(facts.words()));
        }
        if result.is_cancelled() {
            let why = "stopped by a person, or with its job";
            return made(Class::Cancelled, "cancelled", why, None, summary(facts.words()));
        }
        if result.is_phantom() {
            let why = "a result with neither reward nor exception: it was cut off, and does not count as done";
            return made(Class::Phantom, "phantom", why, None, summary(facts.words()));
        }
        for rule in self.rules.list() {
            if let Some(evidence) = rule.holds(facts, gathered) {
                let mut class = made(rule.class, &rule.name, &rule.why, rule.suggested, evidence);
                class.sub = rule.sub.clone();
                class.flags = rule.flags.clone();
                class.evidence.extend(gathered.exception_line(&class.evidence));
                class.evidence.extend(summary(facts.words()));
                return class;
            }
        }
        if result.grade() == Grade::Partial {
            return made(Class::Partial, "partial", "a reward between 0 and 1", None, summary(facts.words()));
        }
        let why = "nothing in its files says why";
        let mut evidence: Vec<Excerpt> = gathered.exception_line(&[]).into_iter().collect();
        evidence.extend(summary(facts.words()));
        made(Class::Unclassified, "nothing", why, Some(Verdict::Inconclusive), evidence)
    }
}

/// How long before its end an agent at its limit did something last: all of it may have gone into one
/// thought, or into one command.
fn last_step(result: &TrialResult, gathered: &mut Gathered<'_>) -> Option<Excerpt> {
    if result.exception_type().is_none_or(|kind| !is_agent_timeout(kind)) {
        return None;
    }
    let end = result.spans.agent.finished?;
    let text = gathered.texts(Source::Trajectory).last()?;
    let (_, rest) = text.body.rsplit_once("\"timestamp\"")?;
    let stamp = rest.trim_start_matches([':', ' ', '\t', '\n', '\r']).strip_prefix('"')?.split('"').next()?;
    let idle = time::seconds_between(time::parse(stamp)?.at, end)?;
    let text = format!("last step {} before the agent was stopped", time::words(idle.max(1.0)));
    Some(Excerpt { path: gathered.texts(Source::Trajectory).last()?.path.clone(), line: None, text: text.into() })
}

/// What a trial without result is when nobody is left who would write one.
pub fn orphaned(trial: &Trial) -> Classification {
    let reached = trial.evidence.as_deref().map_or("-", |e| phase::of_evidence(e).word());
    let file = trial.evidence.as_deref().map_or(".", phase::evidence_file);
    let kind = trial.evidence.as_deref().and_then(|e| e.exception.as_ref()).and_then(|e| e.kind.clone());
    let text = match kind {
        Some(kind) => format!("no result; the last phase that shows is {reached}; exception.txt names {kind}"),
        None => format!("no result; the last phase that shows is {reached}"),
    };
    Classification {
        result_id: None,
        class: Class::Orphaned,
        sub: None,
        rule: "orphaned".into(),
        why: "no result, and nobody alive who would write one".into(),
        evidence: vec![Excerpt { path: file.into(), line: None, text: text.into() }],
        flags: Vec::new(),
        suggested: None,
        harbor_differs: None,
    }
}

/// What a trial is whose result can not be read.
pub fn unreadable(trial: &Trial) -> Classification {
    let problem = trial.problems.first();
    let text = problem.map_or("it can not be read".into(), |p| Arc::from(clean(&mask_secrets(&p.message))));
    Classification {
        result_id: None,
        class: Class::Unclassified,
        sub: Some("unreadable".into()),
        rule: "unreadable".into(),
        why: "its result can not be read".into(),
        evidence: vec![Excerpt { path: "result.json".into(), line: None, text }],
        flags: Vec::new(),
        suggested: None,
        harbor_differs: None,
    }
}

/// What a class means for trying again and for the reward.
fn meaning(class: Class) -> Option<(bool, bool)> {
    Some(match class {
        Class::Infra | Class::Phantom | Class::Orphaned => (true, false),
        Class::Config | Class::Cancelled | Class::VerifierTimeout | Class::VerifierError => (false, false),
        Class::Passed
        | Class::Partial
        | Class::Failed
        | Class::AgentTimeout
        | Class::AgentError
        | Class::ContextExceeded => (false, true),
        Class::Unclassified => return None,
    })
}

/// Harbor's policy, where it would try again what should not be, or the other way round, or count a
/// reward that should not count, or the other way round.
fn differs(class: Class, kind: Option<&str>) -> Option<ErrorPolicy> {
    let policy = ErrorPolicy::of(kind?);
    let (retry, valid) = meaning(class)?;
    (policy.should_retry != retry || policy.has_valid_reward != valid).then_some(policy)
}
