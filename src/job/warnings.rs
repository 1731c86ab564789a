//! What a reader of the count should know, and what needs a person.

use super::alarms;
use super::drift::{self, shorten};
use super::fleet::{Fleet, Job, StateKind};
use super::merge::How;
use super::outcome::RewardValue;
use super::phase::{self, Phase};
use super::rerun;
use super::scores;
use super::slots::Rule;
use super::tally::{Count, Fate, Tally};
use super::time::Stamp;
use super::trial::{Problem, ProblemKind, Trial, TrialResult};

/// Kinds of warnings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum WarningKind {
    /// A job dir that can not be reached.
    Unreachable,
    /// Most trials of a job failed alike within minutes.
    Systemic,
    /// A job that is busy with what has a score already.
    Rerun,
    /// The operator's own mistake: a wrong key, a wrong model name.
    Config,
    /// Several faults of the surroundings within minutes.
    InfraBurst,
    /// Episodes without a token.
    ZeroTokens,
    /// The verifier never ran its tests.
    TestsNeverRan,
    /// A timeout's message disagrees with the clock.
    TimeoutDisagrees,
    /// A job of which no trial has begun.
    NotStarted,
    /// A trial that does not get going.
    SlowStart,
    /// An agent that works beyond its limit.
    OverBudget,
    /// A trial at work wrote nothing for long.
    Silent,
    /// Every ended trial ran into its limit unsolved.
    AllTimeouts,
    /// What is left may take longer than there is time.
    Deadline,
    /// A pass that a person should look at.
    SuspiciousPass,
    /// Few tokens or episodes in a long timeout.
    FewTokens,
    /// An agent ended its own terminal.
    TerminalKilled,
    /// Two scored trials in one slot, or two records under one id.
    Conflict,
    /// Result with neither reward nor exception.
    Phantom,
    /// No result, nobody alive to write one.
    Orphaned,
    /// Could not be read.
    Unreadable,
    /// Planned, no trial, job ended.
    Missing,
    /// The job's own result.json differs from the recount.
    SummaryDisagrees,
    /// A reward that is no number.
    RewardUnreadable,
    /// Several reward keys, none called `reward`.
    NoPrimaryReward,
    /// The same task in two versions, or other agents or models.
    Drift,
    /// Harbor's error policy does not let the reward count.
    RewardInvalid,
    /// Not Harbor's, or not in the plan.
    Foreign,
    /// Times that contradict each other.
    Clock,
    /// A remark that changes no count.
    Note,
    /// Left out: the slot is taken by another trial.
    Superseded,
    /// Left out: the same trial is counted elsewhere.
    Duplicate,
}

impl WarningKind {
    /// The word in JSON.
    pub fn word(self) -> &'static str {
        match self {
            WarningKind::Unreachable => "unreachable",
            WarningKind::Systemic => "systemic",
            WarningKind::Rerun => "rerun",
            WarningKind::Config => "config",
            WarningKind::InfraBurst => "infra_burst",
            WarningKind::ZeroTokens => "zero_tokens",
            WarningKind::TestsNeverRan => "tests_never_ran",
            WarningKind::TimeoutDisagrees => "timeout_disagrees",
            WarningKind::NotStarted => "not_started",
            WarningKind::SlowStart => "slow_start",
            WarningKind::OverBudget => "over_budget",
            WarningKind::Silent => "silent",
            WarningKind::AllTimeouts => "all_timeouts",
            WarningKind::Deadline => "deadline",
            WarningKind::SuspiciousPass => "suspicious_pass",
            WarningKind::FewTokens => "few_tokens",
            WarningKind::TerminalKilled => "terminal_killed",
            WarningKind::Conflict => "conflict",
            WarningKind::Phantom => "phantom",
            WarningKind::Orphaned => "orphaned",
            WarningKind::Unreadable => "unreadable",
            WarningKind::Missing => "missing",
            WarningKind::SummaryDisagrees => "summary_disagrees",
            WarningKind::RewardUnreadable => "reward_unreadable",
            WarningKind::NoPrimaryReward => "no_primary_reward",
            WarningKind::Drift => "drift",
            WarningKind::RewardInvalid => "reward_invalid",
            WarningKind::Foreign => "foreign",
            WarningKind::Clock => "clock",
            WarningKind::Note => "note",
            WarningKind::Superseded => "superseded",
            WarningKind::Duplicate => "duplicate",
        }
    }

    /// True when somebody has to look; false for what the count has dealt with by its rules.
    pub fn needs_person(self) -> bool {
        !matches!(
            self,
            WarningKind::RewardInvalid
                | WarningKind::Foreign
                | WarningKind::Clock
                | WarningKind::Note
                | WarningKind::Superseded
                | WarningKind::Duplicate
        )
    }
}

impl From<ProblemKind> for WarningKind {
    fn from(kind: ProblemKind) -> WarningKind {
        match kind {
            ProblemKind::Unreadable => WarningKind::Unreadable,
            ProblemKind::Foreign => WarningKind::Foreign,
            ProblemKind::RewardUnreadable => WarningKind::RewardUnreadable,
            ProblemKind::Clock => WarningKind::Clock,
            ProblemKind::Missing => WarningKind::Missing,
            ProblemKind::Unreachable => WarningKind::Unreachable,
            ProblemKind::Note => WarningKind::Note,
        }
    }
}

/// One warning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// Kind.
    pub kind: WarningKind,
    /// What happened and what to do next. Raw: clean it before it reaches a terminal.
    pub message: String,
    /// The directory or file that it is about; empty when there is none. Raw, too.
    pub path: String,
}

struct Warnings<'c, 'a> {
    count: &'c Count<'a>,
    list: Vec<Warning>,
}

/// All warnings of a count, worst kind first, each kind in order of job and directory.
pub(super) fn all(count: &Count<'_>) -> Vec<Warning> {
    let mut w = Warnings { count, list: Vec::new() };
    for problem in &count.fleet.problems {
        w.problem(problem, false);
    }
    for job in count.fleet.jobs() {
        for problem in job.unreachable.iter().chain(&job.facts.problems) {
            w.problem(problem, false);
        }
    }
    w.alarms();
    w.trials();
    w.missing();
    for whole in &count.wholes {
        if let Some(job) = count.fleet.jobs().get(whole.newest())
            && matches!(whole.state, StateKind::Finished | StateKind::Interrupted | StateKind::Dead)
        {
            w.summary(job);
        }
    }
    w.drift();
    w.list.sort_by(|a, b| (a.kind, &a.path).cmp(&(b.kind, &b.path)));
    w.list
}

impl Warnings<'_, '_> {
    fn push(&mut self, kind: WarningKind, path: String, message: impl Into<String>) {
        self.list.push(Warning { kind, message: message.into(), path });
    }

    fn problem(&mut self, problem: &Problem, counted: bool) {
        let kind = WarningKind::from(problem.kind);
        let next = match problem.kind {
            ProblemKind::Unreadable if counted => "; what could be read of it is counted",
            ProblemKind::Unreadable => "; look at the file, the rest is counted without it",
            ProblemKind::Foreign => "; not counted, and a resume with Harbor would delete such a directory",
            ProblemKind::RewardUnreadable => "; the trial counts as not graded until the reward is a number",
            ProblemKind::Clock => "; durations of it are not shown",
            ProblemKind::Missing => "; counted without it",
            ProblemKind::Unreachable => "; what was known of it is counted, try again when it is back",
            ProblemKind::Note => "",
        };
        self.push(kind, problem.path.to_string(), format!("{}{next}", problem.message));
    }

    /// What stands out over all trials of a job; of several moments of one job, the newest.
    fn alarms(&mut self) {
        let count = self.count;
        for whole in &count.wholes {
            let Some(job) = count.fleet.jobs().get(whole.newest()) else { continue };
            let again = rerun::of(count.fleet.jobs(), job, count.now).map(|found| found.alarm());
            for alarm in alarms::of_job(job, &count.fleet.alarm_limits, count.now).into_iter().chain(again) {
                let path = match &alarm.trial {
                    Some(trial) => self.path(whole.newest(), trial),
                    None => job.facts.dir.display().to_string(),
                };
                self.push(alarm.kind, path, alarm.message);
            }
        }
    }

    fn path(&self, job: usize, trial: &str) -> String {
        match self.count.fleet.jobs().get(job) {
            Some(job) => job.facts.dir.join(trial).display().to_string(),
            None => trial.to_string(),
        }
    }

    fn trials(&mut self) {
        let count = self.count;
        for (i, known) in count.known.iter().enumerate() {
            // Most trials give no reason to say anything.
            let quiet = known.others.is_empty()
                && known.same_id_as.is_none()
                && known.trial.problems.is_empty()
                && matches!(count.fates.get(i), Some(Fate::Chosen(_)))
                && known.trial.result.as_ref().is_some_and(|r| is_plain(r, count.now));
            if quiet {
                continue;
            }
            let path = self.path(known.job, &known.trial.name);
            for (job, other) in &known.others {
                let copy = self.path(*job, &other.name);
                self.push(WarningKind::Duplicate, copy, format!("the same trial as {path}"));
            }
            if let Some((job, name)) = &known.same_id_as {
                let other = self.path(*job, name);
                let message = format!(
                    "carries the same result id as {other} but another record: both are kept; find out which \
                     of them was copied or edited"
                );
                self.push(WarningKind::Conflict, path.clone(), message);
            }
            for problem in &known.trial.problems {
                self.problem(problem, known.trial.result.is_some());
            }
            match count.fates.get(i) {
                Some(Fate::Lost { slot, conflict }) => {
                    self.lost(&path, *slot, *conflict);
                    continue;
                }
                Some(Fate::Chosen(_)) => {}
                _ => self.push(
                    WarningKind::Foreign,
                    path.clone(),
                    format!("its task {} is not in the job's plan (lock.json): not counted", known.trial.task),
                ),
            }
            let classic = count.fleet.jobs().get(known.job).is_some_and(|job| job.facts.layout.is_classic());
            let phase = count.phases.get(i).copied().unwrap_or(Phase::Unreadable);
            match &known.trial.result {
                Some(result) => self.result(&path, known.trial, result, classic),
                None => self.without_result(&path, known.trial, phase, classic),
            }
        }
    }

    fn lost(&mut self, path: &str, slot: usize, conflict: bool) {
        let slot_name = self.count.merged.get(slot).map(|m| m.slot.to_string()).unwrap_or_default();
        let by = self.count.holder(slot).map(|(job, name)| self.path(job, &name)).unwrap_or_default();
        if conflict {
            let rule = match self.count.rule {
                Rule::Earlier => "the earlier one counts (--rule latest or best to choose otherwise)",
                Rule::Latest => "the latest counts, by --rule latest",
                Rule::Best => "the better one counts, by --rule best: not publishable",
            };
            let message = format!("slot {slot_name} has two scored trials, this and {by}: {rule}");
            self.push(WarningKind::Conflict, path.to_string(), message);
        } else {
            self.push(WarningKind::Superseded, path.to_string(), format!("{by} counts in its slot {slot_name}"));
        }
    }

    fn result(&mut self, path: &str, trial: &Trial, result: &TrialResult, classic: bool) {
        let has = |kind| trial.problems.iter().any(|p| p.kind == kind);
        if result.is_phantom() {
            let harbor = "result without reward and without exception, as a SIGTERM at a bad moment leaves it: \
                           counts as not done; Harbor's resume would keep it, so move it away and run the task again";
            let other =
                "neither a verdict (is_resolved null) nor a failure mode: counts as not done; run the task again";
            self.push(WarningKind::Phantom, path.to_string(), if classic { other } else { harbor });
        }
        match result.rewards.primary_entry() {
            Some((key, RewardValue::Unreadable(text))) if !has(ProblemKind::RewardUnreadable) => {
                let message =
                    format!("reward {key} is {text}, not a number: counts as not graded; look at the verifier");
                self.push(WarningKind::RewardUnreadable, path.to_string(), message);
            }
            None if result.rewards.entries().len() > 1 => {
                let keys: Vec<&str> = result.rewards.entries().iter().map(|(k, _)| &**k).collect();
                let message = format!(
                    "rewards {} and none called reward: counts as not graded; let the verifier write a key reward",
                    shorten(&keys)
                );
                self.push(WarningKind::NoPrimaryReward, path.to_string(), message);
            }
            _ => {}
        }
        if result.reward_valid == Some(false) && result.rewards.primary().is_some() {
            let kind = result.exception_type().map_or("its exception", |k| &**k);
            let message = format!(
                "has a reward that Harbor's error policy does not let count ({kind}): it is in raw and graded, not \
                 in harbor_026"
            );
            self.push(WarningKind::RewardInvalid, path.to_string(), message);
        }
        if !has(ProblemKind::Clock) {
            let future = in_future(result, self.count.now);
            let message = match (result.started, result.finished) {
                (Some(start), Some(end)) if end < start => "ended before it started: look at the clocks",
                _ if future => "started in the future: look at the clocks",
                _ => return,
            };
            self.push(WarningKind::Clock, path.to_string(), message);
        }
    }

    fn without_result(&mut self, path: &str, trial: &Trial, phase: Phase, classic: bool) {
        if phase == Phase::Orphaned {
            let reached = trial.evidence.as_deref().map_or(Phase::Starting, phase::of_evidence).word();
            let message = format!(
                "no result, and nobody alive who would write one (last phase {reached}): run the task again; {} \
                 deletes {}, so keep a copy of what you need",
                if classic { "tb runs resume" } else { "Harbor's resume" },
                if classic { "the whole directory of its task" } else { "this directory" },
            );
            self.push(WarningKind::Orphaned, path.to_string(), message);
        }
        if phase == Phase::Unreadable && !trial.problems.iter().any(|p| p.kind == ProblemKind::Unreadable) {
            let message = "result.json can not be read: look at it; the trial counts as not done";
            self.push(WarningKind::Unreadable, path.to_string(), message);
        }
    }

    fn missing(&mut self) {
        let count = self.count;
        let ended = |whole: usize| {
            let whole = count.wholes.get(whole)?;
            let over = matches!(whole.state, StateKind::Finished | StateKind::Interrupted | StateKind::Dead);
            let job = count.fleet.jobs().get(whole.newest())?;
            over.then(|| (job.facts.dir.display().to_string(), whole.state.word()))
        };
        for merged in count.merged.iter().filter(|m| m.by.is_none()) {
            if let Some((dir, state)) = ended(merged.whole) {
                let message =
                    format!("slot {} is planned and has no trial, and the job is {state}: run it again", merged.slot);
                self.push(WarningKind::Missing, dir, message);
            }
        }
        for (i, slots) in count.slots.iter().enumerate() {
            if slots.anonymous() == 0 || count.choice.how == Some(How::Passes) && i != first(&count.choice.order) {
                continue;
            }
            if let Some((dir, state)) = ended(i) {
                let message = format!(
                    "{} of {} planned trials have no directory, and the job is {state}; without lock.json nothing \
                     tells their tasks",
                    slots.anonymous(),
                    slots.planned
                );
                self.push(WarningKind::Missing, dir, message);
            }
        }
    }

    /// Compares the job's own result.json with its directories.
    fn summary(&mut self, job: &Job) {
        let Some(summary) = &job.facts.summary else { return };
        let path = job.facts.dir.join(job.facts.layout.result_file()).display().to_string();
        let results: Vec<&TrialResult> = job.trials.values().filter_map(|t| t.result.as_deref()).collect();
        let own = results.iter().filter(|r| r.exception.is_some()).count() as u64;
        let any = results.iter().filter(|r| r.exception_type().is_some()).count() as u64;
        let cancelled = results.iter().filter(|r| r.is_cancelled()).count() as u64;
        let ended = results.len() as u64;
        let mut says: Vec<String> = Vec::new();
        let mut compare = |what: &str, job: Option<u64>, files: &[u64]| {
            if let (Some(job), Some(first)) = (job, files.first())
                && !files.contains(&job)
            {
                says.push(format!("job says {job} {what}, files say {first}"));
            }
        };
        let planned = job.facts.planned.as_ref().map(|p| p.iter().map(|p| u64::from(p.n)).sum::<u64>());
        compare("planned trials", summary.n_total.filter(|_| planned.is_some()), planned.as_slice());
        compare("trials ended", summary.n_completed, &[ended]);
        compare("with exception", summary.n_errored, &[any, own]);
        compare("cancelled", summary.n_cancelled, &[cancelled]);
        // With several evals keys nothing in a trial tells which one it belongs to.
        if let Some((_, mean)) = summary.means.first_key_value().filter(|_| summary.means.len() == 1) {
            let means = scores::harbor_means(&results);
            let differs = |m: &f64| (m - mean).abs() > 1e-6 * mean.abs().max(1.0);
            if !means.is_empty() && means.iter().all(differs) {
                let files: Vec<String> = means.iter().map(|m| format!("{m:.4}")).collect();
                says.push(format!("job says mean {mean:.4}, files give {} (0.21 and 0.26 rules)", files.join(" or ")));
            }
        }
        if !says.is_empty() {
            let message = format!("{}: trust the files; the counts here are made from them alone", says.join("; "));
            self.push(WarningKind::SummaryDisagrees, path, message);
        }
    }

    /// The same task in different versions, and other agents or models, between merged jobs.
    fn drift(&mut self) {
        let count = self.count;
        if count.choice.how.is_none() {
            return;
        }
        let mut order = count.choice.order.iter().filter_map(|i| count.wholes.get(*i));
        let mut job = || order.next().and_then(|w| count.fleet.jobs().get(w.newest()));
        let Some(base) = job() else { return };
        let base_dir = base.facts.dir.display().to_string();
        while let Some(other) = job() {
            let dir = other.facts.dir.display().to_string();
            for difference in drift::between(base, other) {
                self.push(WarningKind::Drift, dir.clone(), difference.sentence(&base_dir));
            }
        }
    }
}

/// More than a day ahead of this machine's clock.
fn in_future(result: &TrialResult, now: Stamp) -> bool {
    result.started.is_some_and(|start| start.duration_since(now).as_secs() > 86_400)
}

/// A result that no warning is about.
fn is_plain(result: &TrialResult, now: Stamp) -> bool {
    let rewards = match result.rewards.primary_entry() {
        Some((_, value)) => matches!(value, RewardValue::Number(_)),
        None => result.rewards.entries().len() < 2,
    };
    let times = !matches!((result.started, result.finished), (Some(start), Some(end)) if end < start);
    rewards && times && !result.is_phantom() && result.reward_valid != Some(false) && !in_future(result, now)
}

fn first(order: &[usize]) -> usize {
    order.first().copied().unwrap_or_default()
}

/// One thing that needs a person: all warnings of one kind, or a job that stands still.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attention {
    /// A warning kind, or `dead`.
    pub kind: &'static str,
    /// How many there are.
    pub count: u64,
    /// What and the next step; of the first where there are several.
    pub message: String,
    /// Where; of the first.
    pub path: String,
}

/// What needs a person, worst first.
pub fn attention(fleet: &Fleet, tally: &Tally) -> Vec<Attention> {
    let mut out: Vec<Attention> = Vec::new();
    for (job, line) in fleet.jobs().iter().zip(&tally.jobs) {
        if line.newest && line.state.kind == StateKind::Dead {
            out.push(Attention {
                kind: StateKind::Dead.word(),
                count: 1,
                message: format!("{}: nobody works on it any more, run what is open again", line.state.evidence),
                path: job.facts.dir.display().to_string(),
            });
        }
    }
    for warning in tally.warnings.iter().filter(|w| w.kind.needs_person()) {
        let kind = warning.kind.word();
        match out.last_mut().filter(|a| a.kind == kind) {
            Some(last) => last.count += 1,
            None => {
                out.push(Attention { kind, count: 1, message: warning.message.clone(), path: warning.path.clone() })
            }
        }
    }
    out
}
