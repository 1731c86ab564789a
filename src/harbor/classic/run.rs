//! `tb.lock` and `run_metadata.json`: what was planned, how it was started, how it is run.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::super::json::{self, Entries, FileProblem, List, Object, Scalar, object};
use super::result::word;
use crate::job::settings::Settings;
use crate::job::text::mask_secrets;
use crate::job::{Harness, JobFacts, JobSummary, Layout, Planned, Problem, ProblemKind, Stamp, time};

/// Task ids and arguments that are kept.
const TASKS: usize = 100_000;
const ARGS: usize = 2_000;
/// Settings that are kept, and characters of a value.
const SETTINGS: usize = 200;
const VALUE: usize = 300;
/// Attempts that anybody means.
const ATTEMPTS: u32 = 10_000;

type Map<'a> = Object<'a, Entries<'a, Scalar<'a>>>;

object!(RawInvocation<'a> {
    command: Scalar<'a> = "command",
    args: List<Scalar<'a>, ARGS> = "args",
});

object!(RawHarness<'a> {
    package: Scalar<'a> = "package",
    version: Scalar<'a> = "version",
});

object!(RawAgent<'a> {
    name: Scalar<'a> = "name",
    import_path: Scalar<'a> = "import_path",
    model_name: Scalar<'a> = "model_name",
    extra_kwargs: Map<'a> = "extra_kwargs",
    kwargs: Map<'a> = "kwargs",
});

object!(RawDataset<'a> {
    name: Scalar<'a> = "name",
    version: Scalar<'a> = "version",
    local_path: Scalar<'a> = "local_path",
    task_ids: List<Scalar<'a>, TASKS> = "task_ids",
});

object!(RawLocal<'a> {
    output_path: Scalar<'a> = "output_path",
    run_id: Scalar<'a> = "run_id",
});

object!(RawLock<'a> {
    created_at: Scalar<'a> = "created_at",
    invocation: Object<'a, RawInvocation<'a>> = "invocation",
    harness: Object<'a, RawHarness<'a>> = "harness",
    agent: Object<'a, RawAgent<'a>> = "agent",
    run_config: Map<'a> = "run_config",
    dataset: Object<'a, RawDataset<'a>> = "dataset",
    local_config: Object<'a, RawLocal<'a>> = "local_config",
});

object!(RawMetadata<'a> {
    run_id: Scalar<'a> = "run_id",
    uuid: Scalar<'a> = "uuid",
    dataset_path: Scalar<'a> = "dataset_path",
    dataset_name: Scalar<'a> = "dataset_name",
    dataset_version: Scalar<'a> = "dataset_version",
    output_path: Scalar<'a> = "output_path",
    agent_name: Scalar<'a> = "agent_name",
    model_name: Scalar<'a> = "model_name",
    task_ids: List<Scalar<'a>, TASKS> = "task_ids",
    n_concurrent: Scalar<'a> = "n_concurrent_trials",
    n_attempts: Scalar<'a> = "n_attempts",
    dataset_size: Scalar<'a> = "dataset_size",
    accuracy: Scalar<'a> = "accuracy",
    start_time: Scalar<'a> = "start_time",
    end_time: Scalar<'a> = "end_time",
    resumed_at: Scalar<'a> = "resumed_at",
});

/// What the run's own files say.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Run {
    /// The job's facts, as far as these two files tell them.
    pub facts: JobFacts,
    /// The run's id; its directory has to be called so for a resume.
    pub run_id: Option<Arc<str>>,
    /// Attempts planned for each task.
    pub attempts: Option<u32>,
    /// The command line, `tb` first; secrets masked.
    pub command: Vec<String>,
    /// Directory of the tasks, where they lie on the host.
    pub tasks_dir: Option<PathBuf>,
    /// Multiplier of the tasks' own limits.
    pub multiplier: Option<f64>,
    /// Limit of every agent, in seconds, instead of the tasks' own.
    pub agent_limit: Option<f64>,
    /// Limit of every verifier, in seconds.
    pub test_limit: Option<f64>,
    /// `failed_samples_policy` of the wrapper.
    pub policy: Option<Arc<str>>,
    /// The wrapper's budget of input tokens for a task, summed over all calls.
    pub token_budget: Option<u64>,
    /// Accuracy as the run's metadata states it; None while it runs.
    pub accuracy: Option<f64>,
    /// There is a lock that could be read: a resume can compare with it.
    pub locked: bool,
}

/// Reads the two files of a run dir; None is a file that is not there. Never fails: what is wrong stands in
/// the problems.
pub fn run(dir: &Path, lock: Option<&[u8]>, metadata: Option<&[u8]>) -> Run {
    let name = dir.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    let mut out = Run {
        facts: JobFacts {
            dir: dir.to_path_buf(),
            name: Arc::from(name),
            layout: Layout::Classic,
            harness: Harness::TerminalBench,
            ..JobFacts::default()
        },
        ..Run::default()
    };
    if let Some(bytes) = lock {
        let read = with(bytes, |body| {
            json::document::<Object<'_, RawLock<'_>>>(body).map(|root| root.get().map(|raw| read_lock(raw, &mut out)))
        });
        note(&mut out, dir, super::place::LOCK, read);
    }
    if let Some(bytes) = metadata {
        let read = with(bytes, |body| {
            json::document::<Object<'_, RawMetadata<'_>>>(body)
                .map(|root| root.get().map(|raw| read_metadata(raw, &mut out)))
        });
        note(&mut out, dir, super::place::METADATA, read);
    }
    out
}

/// Runs a parser that may be asked twice.
fn with(
    bytes: &[u8],
    parse: impl FnMut(&[u8]) -> Result<Option<()>, serde_json::Error>,
) -> Result<Option<()>, FileProblem> {
    let parse = std::cell::RefCell::new(parse);
    json::lenient(bytes, |body| (parse.borrow_mut())(body)).map(|(read, _)| read)
}

fn note(out: &mut Run, dir: &Path, name: &str, read: Result<Option<()>, FileProblem>) {
    let message = match read {
        Ok(Some(())) => return,
        Ok(None) => "no object".to_string(),
        Err(problem) => problem.to_string(),
    };
    let path = crate::job::text::clean(&dir.join(name).to_string_lossy()).into_owned();
    out.facts.problems.push(Problem { kind: ProblemKind::Unreadable, path: path.into(), message: message.into() });
}

fn at(value: &Scalar<'_>) -> Option<Stamp> {
    value.str().and_then(time::parse).map(|read| read.at)
}

fn seconds(value: Option<&Scalar<'_>>) -> Option<f64> {
    value.and_then(Scalar::f64).filter(|n| *n > 0.0)
}

fn read_lock(raw: &RawLock<'_>, out: &mut Run) {
    out.locked = true;
    let facts = &mut out.facts;
    facts.created = at(&raw.created_at);
    if let Some(harness) = raw.harness.get() {
        facts.harbor_version = word(&harness.version);
    }
    let mut settings = Settings { read: true, ..Settings::default() };
    if let Some(agent) = raw.agent.get() {
        facts.agents = word(&agent.name).or_else(|| word(&agent.import_path)).into_iter().collect();
        facts.models = word(&agent.model_name).into_iter().collect();
        for kwargs in [&agent.extra_kwargs, &agent.kwargs] {
            // The model is named once, and both are the run's own.
            let entries = kwargs.get().map(|e| e.0.as_slice()).unwrap_or_default();
            let own = |key: &str| key == "model_name" || key == "no_rebuild";
            for (key, value) in entries.iter().filter(|(key, _)| !own(key)) {
                if key.ends_with("api_base") || key.ends_with("base_url") {
                    settings.endpoints.extend(value.text().map(|url| Arc::from(&*mask_secrets(url))));
                } else {
                    add(&mut settings, &format!("agent.kwargs.{key}"), value);
                }
                if key == "max_input_tokens_per_task" {
                    out.token_budget = value.u64();
                }
            }
        }
    }
    let config: BTreeMap<&str, &Scalar<'_>> =
        raw.run_config.get().map(|e| e.0.iter().map(|(k, v)| (&**k, v)).collect()).unwrap_or_default();
    let get = |key: &str| config.get(key).copied();
    facts.n_concurrent = get("n_concurrent_trials").and_then(Scalar::u32);
    out.attempts = get("n_attempts").and_then(Scalar::u32);
    out.multiplier = seconds(get("global_timeout_multiplier"));
    out.agent_limit = seconds(get("global_agent_timeout_sec"));
    out.test_limit = seconds(get("global_test_timeout_sec"));
    out.policy = get("failed_samples_policy").and_then(word);
    if out.token_budget.is_none() {
        out.token_budget = get("max_input_tokens_per_task").and_then(Scalar::u64);
    }
    // How many at a time, what is logged and kept: no part of what comes of the trials.
    const OUTSIDE: [&str; 6] =
        ["n_concurrent_trials", "n_attempts", "log_level", "livestream", "cleanup", "no_rebuild"];
    for (key, value) in config.iter().filter(|(key, _)| !OUTSIDE.contains(key)) {
        let one = *key == "global_timeout_multiplier" && value.f64() == Some(1.0);
        if !one && !value.is_none() {
            add(&mut settings, &format!("run.{key}"), value);
        }
    }
    if let Some(dataset) = raw.dataset.get() {
        dataset_of(facts, &dataset.name, &dataset.version, &dataset.local_path);
        plan(out, &dataset.task_ids);
        out.tasks_dir = dataset.local_path.text().map(PathBuf::from);
    }
    let facts = &mut out.facts;
    settings.datasets.clone_from(&facts.datasets);
    facts.settings = Arc::new(settings);
    out.run_id = raw.local_config.get().and_then(|local| word(&local.run_id));
    if let Some(invocation) = raw.invocation.get() {
        let args = invocation.args.items.iter().filter_map(Scalar::str);
        let command = invocation.command.text().into_iter().chain(args);
        out.command = masked(command);
    }
}

/// Arguments with the values of those masked whose names say that they are secrets.
fn masked<'a>(args: impl Iterator<Item = &'a str>) -> Vec<String> {
    args.map(|arg| match arg.split_once('=') {
        Some((key, _)) if is_secret(key) => format!("{key}={}", crate::job::text::MASK),
        _ => mask_secrets(arg).into_owned(),
    })
    .collect()
}

fn is_secret(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    ["key", "secret", "password"].iter().any(|word| key.contains(word)) || key.ends_with("token")
}

fn add(settings: &mut Settings, name: &str, value: &Scalar<'_>) {
    if value.is_none() || settings.values.len() >= SETTINGS {
        return;
    }
    let text = match value {
        _ if is_secret(name) => crate::job::text::MASK.to_string(),
        Scalar::Str(text) => {
            let text: String = text.chars().take(VALUE).collect();
            serde_json::to_string(&*mask_secrets(&text)).unwrap_or_default()
        }
        other => other.shown(),
    };
    settings.values.insert(Arc::from(name), Arc::from(text));
}

fn dataset_of(facts: &mut JobFacts, name: &Scalar<'_>, version: &Scalar<'_>, path: &Scalar<'_>) {
    let label = match (word(name), word(version), word(path)) {
        (Some(name), Some(version), _) => Arc::from(format!("{name}=={version}")),
        (Some(name), None, _) => name,
        (None, _, Some(path)) => path,
        (None, _, None) => return,
    };
    facts.datasets = vec![label];
}

/// The plan, task by task, in the order of the file.
fn plan<const N: usize>(out: &mut Run, tasks: &List<Scalar<'_>, N>) {
    let attempts = out.attempts.unwrap_or(1).clamp(1, ATTEMPTS);
    let agent = out.facts.agents.first().cloned();
    let model = out.facts.models.first().cloned();
    let mut seen = std::collections::HashSet::new();
    let planned: Vec<Planned> = tasks
        .items
        .iter()
        .filter_map(Scalar::text)
        .filter(|task| seen.insert((*task).to_string()))
        .map(|task| Planned {
            task: Arc::from(task),
            agent: agent.clone(),
            model: model.clone(),
            digest: None,
            n: attempts,
        })
        .collect();
    if !planned.is_empty() {
        out.facts.planned = Some(planned);
    }
}

fn read_metadata(raw: &RawMetadata<'_>, out: &mut Run) {
    let facts = &mut out.facts;
    facts.id = word(&raw.uuid);
    if let Some(name) = word(&raw.run_id) {
        facts.name = name.clone();
        out.run_id = out.run_id.take().or(Some(name));
    }
    if facts.agents.is_empty() {
        facts.agents = word(&raw.agent_name).into_iter().collect();
    }
    if facts.models.is_empty() {
        facts.models = word(&raw.model_name).into_iter().collect();
    }
    if facts.datasets.is_empty() {
        dataset_of(facts, &raw.dataset_name, &raw.dataset_version, &raw.dataset_path);
    }
    facts.n_concurrent = facts.n_concurrent.or(raw.n_concurrent.u32());
    facts.created = facts.created.or(at(&raw.start_time));
    let (ended, resumed) = (at(&raw.end_time), at(&raw.resumed_at));
    out.attempts = out.attempts.or(raw.n_attempts.u32());
    out.accuracy = raw.accuracy.f64();
    let total = raw.dataset_size.u64().map(|n| n.saturating_mul(u64::from(out.attempts.unwrap_or(1))));
    out.facts.summary = Some(JobSummary {
        n_total: total,
        started: at(&raw.start_time),
        updated: ended,
        // A resumed run does not write its end: what stands there is that of the run before.
        finished: ended.filter(|end| resumed.is_none_or(|again| *end > again)),
        means: raw.accuracy.f64().map(|a| (Arc::from("accuracy"), a)).into_iter().collect(),
        ..JobSummary::default()
    });
    if out.facts.planned.is_none() {
        plan(out, &raw.task_ids);
    }
    if out.tasks_dir.is_none() {
        out.tasks_dir = raw.dataset_path.text().map(PathBuf::from);
    }
}

/// Limits of a task's own, from the lines of its `task.yaml`: agent and verifier, in seconds.
pub fn task_limits(yaml: &str) -> (Option<f64>, Option<f64>) {
    let value = |key: &str| {
        let line = yaml.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
        let text = line.split('#').next().unwrap_or_default().trim().trim_matches(['"', '\'']);
        text.parse::<f64>().ok().filter(|n| n.is_finite() && *n > 0.0)
    };
    (value("max_agent_timeout_sec"), value("max_test_timeout_sec"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const LOCK: &str = r#"{"lockfile_version":"1.0","created_at":"2025-09-01T11:51:46+02:00",
        "invocation":{"command":"tb","args":["run","--agent-kwarg","api_key=sk-abcdefghijklmnopqrstuvwx"]},
        "harness":{"package":"terminal-bench","version":"0.2.7"},
        "agent":{"name":"terminus","import_path":"a:B","model_name":"m","extra_kwargs":{"temperature":0.5,"model_name":"m",
          "api_base":"http://h:1/v1","api_key":"sk-abcdefghijklmnopqrstuvwx"}},
        "run_config":{"n_concurrent_trials":25,"n_attempts":5,"global_timeout_multiplier":1.0,"global_agent_timeout_sec":360},
        "dataset":{"name":"core","version":"0.1.1","local_path":null,"task_ids":["b","a.easy","b"]}}"#;

    #[test]
    fn the_lock_tells_the_plan() {
        let run = run(Path::new("/runs/r1"), Some(LOCK.as_bytes()), None);
        assert_eq!(run.facts.n_planned().map(|(n, _)| n), Some(10));
        assert_eq!((run.attempts, run.agent_limit, run.locked), (Some(5), Some(360.0), true));
        assert_eq!(run.facts.datasets.first().map(|d| &**d), Some("core==0.1.1"));
        let names: Vec<&str> = run.facts.settings.values.keys().map(|k| &**k).collect();
        assert_eq!(names, ["agent.kwargs.api_key", "agent.kwargs.temperature", "run.global_agent_timeout_sec"]);
        assert_eq!(run.facts.settings.endpoints.len(), 1);
        assert!(!format!("{run:?}").contains("sk-abc"), "{run:?}");
    }

    #[test]
    fn a_resumed_run_has_no_end_of_its_own() {
        let metadata = |resumed: &str| {
            let text = format!(
                r#"{{"run_id":"r1","uuid":"u","task_ids":["a"],"n_attempts":2,"dataset_size":1,"accuracy":0.5,
                "start_time":"2025-08-16T02:28:25+00:00","end_time":"2025-08-16T03:32:48+00:00","resumed_at":{resumed}}}"#
            );
            run(Path::new("/runs/r1"), None, Some(text.as_bytes())).facts.summary.unwrap().finished.is_some()
        };
        assert!(metadata("null"));
        assert!(!metadata("\"2025-08-17T00:00:00+00:00\""));
        let torn = run(Path::new("/r"), Some(b"{\"har"), Some(b"[]"));
        assert_eq!(torn.facts.problems.len(), 2);
    }

    #[test]
    fn limits_of_a_task_are_read() {
        assert_eq!(
            task_limits("author: x\nmax_agent_timeout_sec: 360.0 # s\nmax_test_timeout_sec: '90'\n"),
            (Some(360.0), Some(90.0))
        );
        assert_eq!(task_limits("instruction: |-\n  max_agent_timeout_sec: 5\n"), (None, None));
    }
}
