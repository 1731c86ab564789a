//! A job of many kinds of ends, written by the writer.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use pilothouse::harbor::write::config::{AgentConfig, DatasetConfig, JobConfig, TaskConfig, TrialConfig};
use pilothouse::harbor::write::lock::{HarborInfo, JobLock, Resolved, TaskLock, TrialLock};
use pilothouse::harbor::write::result::{
    AgentInfo, AgentResult, ExceptionInfo, ModelInfo, ModelUsage, StepResult, TaskId, Timing, TrialResult, Utc,
    VerifierResult, file_uri,
};
use pilothouse::harbor::write::{Claimant, JobWriter, Lease, Modes, Scrub, Start, TrialFolder, WriteError, ids};
use pilothouse::job::Stamp;
use pilothouse::job::policy::PolicyOverrides;
use serde_json::{Number, json};

pub const SECRET: &str = "sk-live-0123456789abcdef\"x";

pub fn at(seconds: f64) -> Stamp {
    let begin: Stamp = "2026-11-29T19:30:00.123456Z".parse().unwrap();
    begin.checked_add(jiff::SignedDuration::from_secs_f64(seconds)).unwrap()
}

/// How a trial ends.
#[derive(Clone, Default)]
pub struct End {
    pub rewards: Option<Vec<(&'static str, f64)>>,
    pub exception: Option<&'static str>,
    pub steps: Vec<(f64, Option<&'static str>)>,
    pub tokens: Option<(u64, u64, u64, f64)>,
}

impl End {
    pub fn reward(reward: f64) -> End {
        End { rewards: Some(vec![("reward", reward)]), tokens: Some((1000, 400, 70, 0.003)), ..End::default() }
    }

    pub fn error(kind: &'static str) -> End {
        End { exception: Some(kind), ..End::default() }
    }

    pub fn and(mut self, kind: &'static str) -> End {
        self.exception = Some(kind);
        self
    }
}

/// A job at work.
pub struct Made {
    pub dir: PathBuf,
    pub id: String,
    pub plan: Vec<(TrialConfig, TrialLock)>,
    pub job: JobWriter,
    pub scrub: Scrub,
}

/// Begins a job: each task once.
pub fn begin(jobs: &Path, name: &str, tasks: &[&str]) -> Made {
    try_begin(jobs, name, tasks).unwrap()
}

pub fn try_begin(jobs: &Path, name: &str, tasks: &[&str]) -> Result<Made, WriteError> {
    let agent = AgentConfig {
        name: Some("terminus-2".to_string()),
        model_name: Some("openai/scripted-1".to_string()),
        kwargs: [
            ("api_base".to_string(), json!("http://127.0.0.1:8199/v1")),
            ("api_key".to_string(), json!(SECRET)),
            ("limit".to_string(), json!(null)),
        ]
        .into_iter()
        .collect(),
        env: [("OPENAI_API_KEY", SECRET), ("HF_TOKEN", "${HF_TOKEN}"), ("PLAIN", "yes")]
            .map(|(k, v)| (k.to_string(), v.to_string()))
            .into_iter()
            .collect(),
        ..AgentConfig::default()
    };
    let planned: Vec<_> = tasks.iter().map(|t| ((*t).to_string(), format!("{:064x}", t.len()))).collect();
    try_begin_with(jobs, name, &agent, "tasks", &planned)
}

/// Begins a job of one agent on a directory of tasks, each given with the digest of its content.
pub fn try_begin_with(
    jobs: &Path,
    name: &str,
    agent: &AgentConfig,
    dataset: &str,
    tasks: &[(String, String)],
) -> Result<Made, WriteError> {
    let id = ids::uuid().unwrap();
    let wanted = tasks.iter().map(|(task, _)| task.clone()).collect();
    let dataset_config =
        DatasetConfig { path: Some(dataset.to_string()), task_names: Some(wanted), ..DatasetConfig::default() };
    let config = JobConfig {
        job_name: name.to_string(),
        jobs_dir: jobs.to_str().unwrap().to_string(),
        n_concurrent_trials: 2,
        agents: vec![agent.clone()],
        datasets: vec![dataset_config],
        ..JobConfig::default()
    };
    let mut taken = HashSet::new();
    let plan: Vec<_> = tasks
        .iter()
        .map(|(task, digest)| {
            let path = format!("{dataset}/{task}");
            let source = Some("tasks".to_string());
            let from = TaskConfig { path: Some(path.clone()), source: source.clone(), ..TaskConfig::default() };
            let trial = ids::trial_name(task, &mut taken).unwrap();
            let trial = TrialConfig::of(&config, &id, from, agent.clone(), &trial);
            let task = TaskLock {
                name: task.clone(),
                version: None,
                kind: "local",
                digest: format!("sha256:{digest}"),
                source,
                path: Some(path),
                git_url: None,
                git_commit_id: None,
            };
            let mode = Some("shared".to_string()).filter(|_| !trial.trial_name.starts_with("two-steps"));
            let resolved = Resolved { verifier_environment_mode: mode, ..Resolved::default() };
            let lock = TrialLock::of(&trial, task, resolved).unwrap();
            (trial, lock)
        })
        .collect();
    let harbor = HarborInfo { version: Some("0.26.0".to_string()), is_editable: Some(false), ..HarborInfo::default() };
    let locks = plan.iter().map(|(_, lock)| lock.clone()).collect();
    let lock = JobLock::of(at(0.0), harbor, 2, &config.retry, locks).unwrap();
    let scrub = Scrub::new([SECRET.to_string()]);
    let start = Start { id: &id, config: &config, lock: &lock, started: at(0.0), scrub: scrub.clone() };
    let dir = jobs.join(name);
    let job = JobWriter::create(&dir, &start, |folder| Lease::create(folder, &Claimant::default(), at(0.0)))?;
    Ok(Made { dir, id, plan, job, scrub })
}

impl Made {
    pub fn start(&mut self, i: usize) -> TrialFolder {
        let (config, lock) = self.plan[i].clone();
        self.job.begin_trial(&config, &lock, Modes::default(), at(10.0 * i as f64)).unwrap()
    }

    pub fn end(&mut self, i: usize, trial: &TrialFolder, end: &End) -> TrialResult {
        let result = self.result(i, end);
        self.job.end_trial(trial, &result, at(10.0 * i as f64 + 9.5)).unwrap();
        result
    }

    /// The result of the `i`-th planned trial.
    pub fn result(&self, i: usize, end: &End) -> TrialResult {
        let config = self.plan[i].0.clone();
        let path = config.task.path.clone().unwrap();
        let begin = 10.0 * i as f64;
        let span = |from: f64, to: f64| {
            Some(Timing { started_at: Some(Utc(at(begin + from))), finished_at: Some(Utc(at(begin + to))) })
        };
        let exception = |kind: &str| {
            let message = format!("{kind} with api_key={SECRET}");
            ExceptionInfo::new(kind, &message, "Traceback: …", at(begin + 5.0), &PolicyOverrides::new(), &self.scrub)
        };
        let verdict = |rewards: &[(&str, f64)]| {
            let number = |v: f64| if v == 1.0 { Number::from(1) } else { Number::from_f64(v).unwrap() };
            VerifierResult { rewards: Some(rewards.iter().map(|(k, v)| ((*k).to_string(), number(*v))).collect()) }
        };
        let agent = |(input, cache, output, cost): (u64, u64, u64, f64)| {
            let usage = ModelUsage {
                n_input_tokens: input,
                n_cache_tokens: cache,
                n_output_tokens: output,
                cost_usd: Some(cost),
            };
            AgentResult {
                n_input_tokens: Some(input),
                n_cache_tokens: Some(cache),
                n_output_tokens: Some(output),
                cost_usd: Some(cost),
                model_usage: Some([("scripted-1".to_string(), usage)].into()),
                rollout_details: Some(Vec::new()),
                metadata: Some([("n_episodes".to_string(), json!(3))].into_iter().collect()),
            }
        };
        let steps: Vec<StepResult> = end
            .steps
            .iter()
            .enumerate()
            .map(|(n, (reward, kind))| StepResult {
                step_name: format!("step-{n}"),
                agent_result: end.tokens.map(agent),
                verifier_result: Some(verdict(&[("reward", *reward)])),
                exception_info: kind.map(exception),
                agent_execution: span(2.0, 4.0),
                verifier: span(4.5, 5.0),
            })
            .collect();
        let many = !steps.is_empty();
        let task = path.rsplit('/').next().unwrap();
        TrialResult {
            id: ids::uuid().unwrap(),
            task_name: format!("fixture/{task}"),
            trial_name: config.trial_name.clone(),
            trial_uri: file_uri(&self.dir.join(&config.trial_name)),
            task_id: TaskId::Local { path: path.clone() },
            source: config.task.source.clone(),
            task_checksum: "ab".repeat(32),
            config,
            agent_info: AgentInfo {
                name: "terminus-2".to_string(),
                version: "2.0.0".to_string(),
                model_info: Some(ModelInfo::parse("openai/scripted-1")),
            },
            agent_result: end.tokens.map(agent).filter(|_| !many),
            verifier_result: end.rewards.as_deref().map(verdict),
            verifier_environment_mode: (!many).then(|| "shared".to_string()),
            exception_info: end.exception.map(exception),
            started_at: Some(Utc(at(begin))),
            finished_at: Some(Utc(at(begin + 9.0))),
            environment_setup: span(0.1, 1.0),
            agent_setup: span(1.0, 2.0),
            agent_execution: span(2.0, 5.0).filter(|_| !many),
            verifier: span(5.5, 6.0).filter(|_| !many && end.rewards.is_some()),
            step_results: many.then_some(steps),
        }
    }
}

/// The kinds of ends, each with its task.
pub fn ends() -> Vec<(&'static str, End)> {
    let several = vec![("file_exists", 1.0), ("reward", 1.0), ("sum_correct", 0.25)];
    vec![
        ("hello-file", End::reward(1.0)),
        ("wrong-answer", End::reward(0.0)),
        ("csv-sum", End { rewards: Some(several), ..End::reward(1.0) }),
        ("half-done", End::reward(1.0).and("AgentTimeoutError")),
        ("llm-500", End::reward(0.0).and("InternalServerError")),
        ("no-reward", End { rewards: None, ..End::reward(0.0) }.and("RewardFileNotFoundError")),
        ("env-missing-image", End::error("RuntimeError")),
        ("stopped", End::error("CancelledError")),
        (
            "two-steps",
            End {
                steps: vec![(1.0, None), (0.0, Some("AgentTimeoutError"))],
                rewards: Some(vec![("reward", 0.5)]),
                ..End::reward(0.5)
            },
        ),
    ]
}
