//! The plan of a re-enactment: what is written when, computed from the times in the recording's own
//! files, in the order in which Harbor 0.21 writes them (as watched on its runs).

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::assets::Asset;
use crate::job::Stamp;
use crate::job::time;

/// One thing to do; paths are relative to the root. Texts hold the recorded times.
#[derive(Debug, Clone, PartialEq)]
pub enum Act {
    /// Make a directory (its parent exists).
    Dir(String),
    /// Create or truncate a file and write it in place, as Harbor writes its JSON files.
    Json(String, String),
    /// Create or truncate any other file.
    Text(String, String),
    /// Add to a file that stays open until [`Act::Close`].
    Append(String, String),
    /// Add the header line of an asciicast.
    CastHeader(String, String),
    /// Add an event line to an asciicast.
    CastEvent(String, String),
    /// Nobody writes below this directory any more.
    Close(String),
}

/// An act and when it is due, in recorded seconds since the beginning.
#[derive(Debug, Clone, PartialEq)]
pub struct Cue {
    /// Seconds since [`Stage::origin`].
    pub at: f64,
    /// What to do.
    pub act: Act,
}

/// A whole re-enactment.
#[derive(Debug, Clone)]
pub struct Stage {
    /// When the recorded job began.
    pub origin: Stamp,
    /// All cues, in order of time.
    pub cues: Vec<Cue>,
    /// The job dir, relative to the root.
    pub job_dir: String,
    /// Number of trials.
    pub n_trials: usize,
    /// How long it takes at the recorded speed, in seconds.
    pub seconds: f64,
}

/// Something is wrong with the recording itself.
#[derive(Debug, thiserror::Error)]
#[error("the bundled recording is damaged: {path}: {what}")]
pub struct StageError {
    path: String,
    what: String,
}

fn damaged(path: &str, what: impl ToString) -> StageError {
    StageError { path: path.to_string(), what: what.to_string() }
}

/// A trajectory with each step's text kept as it is.
#[derive(Deserialize)]
struct Trajectory<'a> {
    #[serde(borrow)]
    schema_version: &'a RawValue,
    #[serde(borrow)]
    session_id: &'a RawValue,
    #[serde(borrow)]
    agent: &'a RawValue,
    #[serde(borrow)]
    steps: Vec<&'a RawValue>,
}

struct Plan<'a> {
    files: BTreeMap<&'a str, &'a str>,
    origin: Stamp,
    job: String,
    cues: Vec<Cue>,
    /// Starts (true) and ends (false) of trials: when, and the trial's result.
    turns: Vec<(f64, bool, Value)>,
}

impl Stage {
    /// Plans the re-enactment of a recording: files `jobs/<job>/…` and anything else, which is there
    /// from the beginning.
    ///
    /// # Errors
    /// [`StageError`] when a file is missing or not what it should be.
    pub fn plan(assets: &[Asset]) -> Result<Stage, StageError> {
        let mut files = BTreeMap::new();
        for (path, bytes) in assets {
            files.insert(*path, std::str::from_utf8(bytes).map_err(|e| damaged(path, e))?);
        }
        let job = files
            .keys()
            .find_map(|path| path.strip_prefix("jobs/")?.split_once('/').map(|(job, _)| format!("jobs/{job}")))
            .ok_or_else(|| damaged("jobs", "no job"))?;
        let result = parse(&files, &format!("{job}/result.json"))?;
        let origin = recorded(&result["started_at"]).ok_or_else(|| damaged(&job, "no start"))?;
        let mut plan = Plan { files, origin, job: job.clone(), cues: Vec::new(), turns: Vec::new() };
        plan.scenery();
        let trials = plan.trials();
        for trial in &trials {
            plan.trial(trial)?;
        }
        plan.summaries(&result)?;
        plan.cues.sort_by(|a, b| a.at.total_cmp(&b.at));
        let seconds = plan.cues.last().map_or(0.0, |cue| cue.at);
        Ok(Stage { origin, cues: plan.cues, job_dir: job, n_trials: trials.len(), seconds })
    }
}

impl<'a> Plan<'a> {
    fn add(&mut self, at: f64, act: Act) {
        self.cues.push(Cue { at: at.max(0.0), act });
    }

    fn copy(&mut self, at: f64, path: &str) {
        if let Some(text) = self.files.get(path).map(|t| t.to_string()) {
            let act = if path.ends_with(".json") { Act::Json(path.into(), text) } else { Act::Text(path.into(), text) };
            self.add(at, act);
        }
    }

    /// What is there before the first trial: the tasks, and the job's own files.
    fn scenery(&mut self) {
        let mut dirs = std::collections::BTreeSet::new();
        let outside: Vec<&str> = self.files.keys().copied().filter(|p| !p.starts_with("jobs/")).collect();
        for path in outside.iter().copied().chain([format!("{}/x", self.job).as_str()]) {
            for (i, _) in path.match_indices('/') {
                dirs.insert(path.get(..i).unwrap_or_default().to_string());
            }
        }
        for dir in dirs {
            self.add(0.0, Act::Dir(dir));
        }
        for path in outside {
            self.copy(0.0, path);
        }
        let job = self.job.clone();
        self.add(0.0, Act::Append(format!("{job}/job.log"), String::new()));
        self.copy(0.01, &format!("{job}/config.json"));
        self.copy(0.1, &format!("{job}/lock.json"));
    }

    /// Names of the trial directories.
    fn trials(&self) -> Vec<String> {
        let inside = format!("{}/", self.job);
        let mut names: Vec<String> = self
            .files
            .keys()
            .filter_map(|path| path.strip_prefix(&inside)?.split_once('/').map(|(trial, _)| trial.to_string()))
            .collect();
        names.dedup();
        names
    }

    fn seconds(&self, value: &Value) -> Option<f64> {
        recorded(value).map(|at| at.duration_since(self.origin).as_secs_f64())
    }

    fn trial(&mut self, name: &str) -> Result<(), StageError> {
        let dir = format!("{}/{name}", self.job);
        let result_path = format!("{dir}/result.json");
        let result = parse(&self.files, &result_path)?;
        let time = |plan: &Plan<'_>, phase: &str, end: &str| plan.seconds(&result[phase][end]);
        let missing = |what: &str| damaged(&result_path, format!("no {what}"));
        let began = self.seconds(&result["started_at"]).ok_or_else(|| missing("started_at"))?;
        let ended = self.seconds(&result["finished_at"]).ok_or_else(|| missing("finished_at"))?;

        let made = began - 0.02;
        for sub in ["", "/agent", "/verifier", "/artifacts"] {
            self.add(made, Act::Dir(format!("{dir}{sub}")));
        }
        self.copy(made + 0.03, &format!("{dir}/lock.json"));
        self.add(made + 0.03, Act::Append(format!("{dir}/trial.log"), String::new()));
        self.add(made + 0.04, Act::Dir(format!("{dir}/artifacts/logs")));
        self.add(made + 0.04, Act::Dir(format!("{dir}/artifacts/logs/artifacts")));
        self.copy(made + 0.05, &format!("{dir}/config.json"));
        self.turns.push((began + 0.1, true, result.clone()));

        let up = time(self, "environment_setup", "finished_at").unwrap_or(began + 1.0);
        let setup = time(self, "agent_setup", "started_at");
        let agent_end = time(self, "agent_execution", "finished_at");
        let dumps = match agent_end {
            Some(end) => self.trajectory(&dir, end)?,
            None => Vec::new(),
        };
        if let Some(setup) = setup {
            self.recording(&dir, setup + 1.1)?;
        }
        let manifest = agent_end.unwrap_or(up) + 0.6;
        self.copy(manifest, &format!("{dir}/artifacts/manifest.json"));
        if let (Some(from), Some(to)) = (time(self, "verifier", "started_at"), time(self, "verifier", "finished_at")) {
            self.verifier(&dir, from, to);
        }
        let raised = self.seconds(&result["exception_info"]["occurred_at"]);
        if let Some(at) = raised {
            self.copy(at, &format!("{dir}/exception.txt"));
        }
        self.log(&dir, up - 0.25, &dumps, manifest, raised.unwrap_or(ended - 0.1));
        self.copy(ended, &result_path);
        self.add(ended + 0.01, Act::Close(dir));
        self.turns.push((ended + 0.05, false, result));
        Ok(())
    }

    /// Rewrites the trajectory after each episode, and once more at the end of the agent; when.
    fn trajectory(&mut self, dir: &str, end: f64) -> Result<Vec<f64>, StageError> {
        let path = format!("{dir}/agent/trajectory.json");
        let Some(text) = self.files.get(path.as_str()).copied() else { return Ok(Vec::new()) };
        let whole: Trajectory<'a> = serde_json::from_str(text).map_err(|e| damaged(&path, e))?;
        let steps: Vec<Value> = whole
            .steps
            .iter()
            .map(|step| serde_json::from_str(step.get()))
            .collect::<Result<_, _>>()
            .map_err(|e| damaged(&path, e))?;
        let mut sums = [0u64; 3];
        let mut dumps = Vec::new();
        for (i, step) in steps.iter().enumerate() {
            for (sum, key) in sums.iter_mut().zip(["prompt_tokens", "completion_tokens", "cached_tokens"]) {
                *sum += step["metrics"][key].as_u64().unwrap_or(0);
            }
            if step["source"] != "agent" {
                continue;
            }
            let at = self.seconds(&step["timestamp"]).ok_or_else(|| damaged(&path, "a step without time"))? + 0.04;
            let shown: Vec<&str> = whole.steps.iter().take(i + 1).map(|s| s.get()).collect();
            let so_far = format!(
                "{{\n  \"schema_version\": {},\n  \"session_id\": {},\n  \"agent\": {},\n  \"steps\": [\n    {}\n  ],\n  \
                 \"final_metrics\": {{\n    \"total_prompt_tokens\": {},\n    \"total_completion_tokens\": {},\n    \
                 \"total_cached_tokens\": {}\n  }}\n}}",
                whole.schema_version,
                whole.session_id,
                whole.agent,
                shown.join(",\n    "),
                sums[0],
                sums[1],
                sums[2]
            );
            self.add(at, Act::Json(path.clone(), so_far));
            dumps.push(at);
        }
        self.copy(end, &path);
        dumps.push(end);
        Ok(dumps)
    }

    /// The recording and the raw pane grow as the shell prints; the pane opens before the recording.
    fn recording(&mut self, dir: &str, pane_opens: f64) -> Result<(), StageError> {
        let path = format!("{dir}/agent/recording.cast");
        let Some(text) = self.files.get(path.as_str()).copied() else { return Ok(()) };
        let pane = format!("{dir}/agent/terminus_2.pane");
        let mut lines = text.lines();
        let header = lines.next().unwrap_or_default();
        let parsed: Value = serde_json::from_str(header).map_err(|e| damaged(&path, e))?;
        let start = parsed["timestamp"]
            .as_i64()
            .and_then(|n| time::from_unix(n, 0))
            .map(|at| at.duration_since(self.origin).as_secs_f64())
            .ok_or_else(|| damaged(&path, "no timestamp"))?;
        self.add(
            pane_opens.min(start),
            Act::Append(pane.clone(), "# asciinema rec --stdin /logs/agent/recording.cast\r\n".into()),
        );
        self.add(start, Act::CastHeader(path.clone(), header.into()));
        for line in lines {
            let event: (f64, String, String) = serde_json::from_str(line).map_err(|e| damaged(&path, e))?;
            let at = start + event.0;
            self.add(at, Act::CastEvent(path.clone(), line.into()));
            if event.1 == "o" {
                self.add(at, Act::Append(pane.clone(), event.2));
            } else {
                let line = format!("Sending keys: {:?} min_timeout_sec: 0.1 max_timeout_sec: 180.0\n", [event.2]);
                self.add(at, Act::Append(format!("{}/job.log", self.job), line));
            }
        }
        Ok(())
    }

    /// The tests print line by line; their report and the reward come last.
    fn verifier(&mut self, dir: &str, from: f64, to: f64) {
        let path = format!("{dir}/verifier/test-stdout.txt");
        let lines: Vec<&str> = self.files.get(path.as_str()).map_or(Vec::new(), |t| t.split_inclusive('\n').collect());
        // Tests that hang have printed what they will ever print in their first seconds.
        let first = from + 0.5;
        let step = ((to - 0.2 - first).min(3.0) / lines.len().max(1) as f64).max(0.0);
        self.add(first - 0.1, Act::Append(path.clone(), String::new()));
        for (i, line) in lines.into_iter().enumerate() {
            self.add(first + step * i as f64, Act::Append(path.clone(), line.into()));
        }
        for name in ["ctrf.json", "reward.json", "reward.txt"] {
            self.copy(to - 0.04, &format!("{dir}/verifier/{name}"));
        }
    }

    /// `trial.log`, each line also in `job.log`.
    fn log(&mut self, dir: &str, up: f64, dumps: &[f64], manifest: f64, raised: f64) {
        let path = format!("{dir}/trial.log");
        let text = self.files.get(path.as_str()).copied().unwrap_or_default();
        let mut dumps = dumps.iter();
        let mut last = up;
        for line in text.split_inclusive('\n') {
            let at = if line.starts_with("Trajectory dumped") {
                dumps.next().copied().unwrap_or(last)
            } else if line.starts_with("Collecting") {
                manifest - 0.05
            } else if line.starts_with("Trial ") {
                raised
            } else {
                up
            };
            // A line never comes before the one above it.
            last = last.max(at);
            self.add(last, Act::Append(path.clone(), line.into()));
            self.add(last, Act::Append(format!("{}/job.log", self.job), line.into()));
        }
    }

    /// The job's own result: rewritten at the start and the end of each trial, the last time as
    /// recorded.
    fn summaries(&mut self, result: &Value) -> Result<(), StageError> {
        let path = format!("{}/result.json", self.job);
        let end = self.seconds(&result["finished_at"]).ok_or_else(|| damaged(&path, "no end"))?;
        let mut turns = std::mem::take(&mut self.turns);
        turns.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut running = 0;
        let mut ended: Vec<&Value> = Vec::new();
        self.add(0.12, Act::Json(path.clone(), summary(result, 0, &ended, 0.12, self.origin)));
        for (at, begins, trial) in &turns {
            if *begins {
                running += 1;
            } else {
                running -= 1;
                ended.push(trial);
            }
            let text = summary(result, running, &ended, *at, self.origin);
            self.add(*at, Act::Json(path.clone(), text));
        }
        self.copy(end, &path);
        self.add(end, Act::Close(self.job.clone()));
        Ok(())
    }
}

/// The job's result with these trials ended: rewards of trials without one count 0 in the mean, as
/// Harbor 0.21 counts.
fn summary(last: &Value, running: i64, ended: &[&Value], at: f64, origin: Stamp) -> String {
    let errored = ended.iter().filter(|t| !t["exception_info"].is_null()).count();
    let graded = ended.iter().filter(|t| !t["verifier_result"].is_null()).count();
    let mut rewards: BTreeMap<String, Vec<&Value>> = BTreeMap::new();
    let mut exceptions: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
    let mut total = 0.0;
    for trial in ended {
        if let Some(reward) = trial["verifier_result"]["rewards"]["reward"].as_f64() {
            total += reward;
            rewards.entry(format!("{reward:.1}")).or_default().push(&trial["trial_name"]);
        }
        if let Some(kind) = trial["exception_info"]["exception_type"].as_str() {
            exceptions.entry(kind).or_default().push(&trial["trial_name"]);
        }
    }
    let key = last["stats"]["evals"].as_object().and_then(|evals| evals.keys().next()).cloned().unwrap_or_default();
    let mut evals = serde_json::Map::new();
    if !ended.is_empty() {
        let eval = json!({
            "n_trials": graded, "n_errors": errored, "metrics": [{"mean": total / ended.len() as f64}],
            "pass_at_k": {}, "reward_stats": {"reward": rewards}, "exception_stats": exceptions,
        });
        evals.insert(key, eval);
    }
    let tokens = |field: &str| {
        let known: Vec<u64> = ended.iter().filter_map(|t| t["agent_result"][field].as_u64()).collect();
        (!known.is_empty()).then(|| known.iter().sum::<u64>())
    };
    let total = last["n_total_trials"].as_i64().unwrap_or(0);
    let now =
        jiff::SignedDuration::try_from_secs_f64(at).ok().and_then(|d| origin.checked_add(d).ok()).unwrap_or(origin);
    let value = json!({
        "id": last["id"],
        "started_at": last["started_at"],
        // Written by the event of a trial: UTC, unlike the job's other times.
        "updated_at": format!("{now:.6}"),
        "finished_at": null,
        "n_total_trials": total,
        "stats": {
            "n_completed_trials": ended.len(), "n_errored_trials": errored, "n_running_trials": running,
            "n_pending_trials": total - running - ended.len() as i64, "n_cancelled_trials": 0, "n_retries": 0,
            "evals": evals, "n_input_tokens": tokens("n_input_tokens"), "n_cache_tokens": tokens("n_cache_tokens"),
            "n_output_tokens": tokens("n_output_tokens"), "cost_usd": null,
        },
    });
    serde_json::to_string_pretty(&value).unwrap_or_default()
}

fn parse(files: &BTreeMap<&str, &str>, path: &str) -> Result<Value, StageError> {
    let text = files.get(path).ok_or_else(|| damaged(path, "missing"))?;
    serde_json::from_str(text).map_err(|e| damaged(path, e))
}

/// A recorded time; one without zone was recorded in UTC.
fn recorded(value: &Value) -> Option<Stamp> {
    let text = value.as_str()?;
    text.parse().or_else(|_| format!("{text}Z").parse()).ok()
}
