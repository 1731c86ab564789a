//! `agent-logs/episode-N` of classic Terminus: prompts, replies and what the model's client noted, as one
//! trajectory in the form that the trial view reads.
//!
//! The first prompt is the task's; each later one is what came back of the commands before. What is read of
//! an episode and of all of them has limits; the view says where they were reached.

use std::fs::File;
use std::io::{self, Write as _};

use serde_json::{Map, Value, json};

use super::super::dir::{Dir, EntryKind, OpenError};
use crate::job::{Progress, Stamp, Tokens};

/// The directory.
pub const LOGS: &str = "agent-logs";
/// Bytes read of a prompt, its end, and of a reply.
const PROMPT: u64 = 48 << 10;
const REPLY: u64 = 256 << 10;
/// Bytes left of a debug file with its long texts cut.
const DEBUG: u64 = 2 << 20;
/// Episodes that are looked at, and bytes of all of them together.
const EPISODES: usize = 5_000;
const ALL: usize = 24 << 20;

/// The episodes of a trial by number, in order.
pub fn numbers(trial: &Dir) -> Vec<u32> {
    let Ok(entries) = trial.sub(LOGS).and_then(|logs| logs.list()) else { return Vec::new() };
    let number = |name: &str| name.strip_prefix("episode-")?.parse::<u32>().ok();
    let dirs = entries.iter().filter(|e| e.kind == EntryKind::Dir);
    let mut out: Vec<u32> = dirs.filter_map(|e| number(e.name.to_str()?)).collect();
    out.sort_unstable();
    out.truncate(EPISODES);
    out
}

fn file(n: u32, name: &str) -> String {
    format!("{LOGS}/episode-{n}/{name}")
}

/// How far the episodes of a trial have come; None where there are none.
pub fn progress(trial: &Dir, numbers: &[u32]) -> Option<Progress> {
    let (first, last) = (*numbers.first()?, *numbers.last()?);
    let written = |n: u32, name: &str| trial.stat(&file(n, name)).ok().map(|m| m.modified);
    let answered = written(last, "response.txt");
    let count = u32::try_from(numbers.len()).unwrap_or(u32::MAX);
    let episodes = if answered.is_some() { count } else { count.saturating_sub(1) };
    Some(Progress {
        steps: episodes.saturating_add(1),
        episodes,
        first_step: written(first, "prompt.txt"),
        last_step: answered.or_else(|| written(last, "prompt.txt")),
        tokens: Tokens::default(),
    })
}

/// What changes when an episode begins, ends or is tried again: number of episodes, newest time and
/// size of the last two.
pub fn stamp(trial: &Dir, numbers: &[u32]) -> (u64, i128, u64) {
    let (mut size, mut newest) = (0_u64, 0_i128);
    for n in numbers.iter().rev().take(2) {
        for name in ["prompt.txt", "response.txt", "debug.json"] {
            if let Ok(meta) = trial.stat(&file(*n, name)) {
                size = size.wrapping_add(meta.size);
                newest = newest.max(meta.mtime_nanos);
            }
        }
    }
    (size, newest, numbers.len() as u64)
}

/// Writes the trajectory into a file in memory. `window`: when the agent worked; times of files outside of
/// it are those of a copy and are left out. None: it works now.
///
/// # Errors
/// When there is no such file to be had.
pub fn as_trajectory(trial: &Dir, numbers: &[u32], window: Option<(Stamp, Stamp)>, done: bool) -> io::Result<File> {
    let mut out = File::from(rustix::fs::memfd_create("episodes", rustix::fs::MemfdFlags::CLOEXEC)?);
    out.write_all(br#"{"schema_version":"ATIF-v1.4","agent":{"name":"terminus","version":"-"},"steps":["#)?;
    let mut size = 0;
    let mut id = 0_u32;
    for (i, n) in numbers.iter().enumerate() {
        if size > ALL {
            let left = numbers.len() - i;
            let words =
                format!("{left} more episodes, from {n} on, are too long to be shown together: see Files, {LOGS}/");
            write_step(&mut out, &mut id, json!({"source": "system", "message": words}))?;
            break;
        }
        let when = |name: &str| {
            let at = trial.stat(&file(*n, name)).ok()?.modified;
            let inside = match window {
                Some((from, to)) => at >= from && at <= to + jiff::SignedDuration::from_secs(60),
                None => !done,
            };
            inside.then(|| at.to_string())
        };
        if i == 0
            && let Some(prompt) = text(trial, &file(*n, "prompt.txt"), PROMPT, true)
        {
            size += write_step(&mut out, &mut id, said("user", prompt, when("prompt.txt")))?;
        }
        let mut step = episode(trial, *n);
        if let Some(at) = when("response.txt").or_else(|| when("debug.json")).or_else(|| when("prompt.txt")) {
            step.insert("timestamp".to_string(), at.into());
        }
        // The episode under way has not been answered yet.
        let last = i + 1 == numbers.len();
        if last && !done && !step.contains_key("reply") {
            break;
        }
        step.remove("reply");
        if let Some(next) = numbers.get(i + 1)
            && let Some(back) = text(trial, &file(*next, "prompt.txt"), PROMPT, true)
        {
            step.insert("observation".to_string(), json!({"results": [{"content": back}]}));
        }
        size += write_step(&mut out, &mut id, Value::Object(step))?;
    }
    out.write_all(b"]}")?;
    Ok(out)
}

fn said(source: &str, message: String, at: Option<String>) -> Value {
    match at {
        Some(at) => json!({"source": source, "message": message, "timestamp": at}),
        None => json!({"source": source, "message": message}),
    }
}

fn write_step(out: &mut File, id: &mut u32, mut step: Value) -> io::Result<usize> {
    *id += 1;
    if let Some(map) = step.as_object_mut() {
        map.insert("step_id".to_string(), (*id).into());
    }
    let mut bytes = if *id > 1 { b",".to_vec() } else { Vec::new() };
    serde_json::to_writer(&mut bytes, &step)?;
    out.write_all(&bytes)?;
    Ok(bytes.len())
}

/// The text of a file, of a long one its end; None where it is not there.
fn text(trial: &Dir, path: &str, cap: u64, end: bool) -> Option<String> {
    let read = if end { trial.read_tail(path, cap) } else { trial.read(path, cap) };
    match read {
        Ok(bytes) => {
            let text = String::from_utf8_lossy(&bytes.data);
            Some(match bytes.truncated {
                true if end => format!("[the last {} of {} bytes]\n{text}", bytes.data.len(), bytes.meta.size),
                true => format!("{text}\n[cut: {} bytes in all]", bytes.meta.size),
                false => text.into_owned(),
            })
        }
        Err(OpenError::Missing | OpenError::Vanished) => None,
        Err(problem) => Some(format!("[{path}: {problem}]")),
    }
}

/// One episode's reply as a step; `reply` tells that there is one.
fn episode(trial: &Dir, n: u32) -> Map<String, Value> {
    let mut step = Map::new();
    step.insert("source".to_string(), "agent".into());
    let debug = trial.read_condensed(&file(n, "debug.json"), DEBUG).ok();
    let debug = debug.and_then(|bytes| serde_json::from_slice::<Value>(&bytes.data).ok());
    let facts = debug.as_ref().map(noted).unwrap_or_default();
    match text(trial, &file(n, "response.txt"), REPLY, false) {
        Some(reply) => {
            step.insert("reply".to_string(), true.into());
            read_reply(&reply, &mut step);
        }
        None => {
            let why = facts.failed.as_deref().map_or(String::new(), |why| format!(": {why}"));
            step.insert("message".to_string(), format!("no reply was kept: the call of the model failed{why}").into());
        }
    }
    if let Some(model) = facts.model {
        step.insert("model_name".to_string(), model.into());
    }
    if let Some(reasoning) = facts.reasoning {
        step.insert("reasoning_content".to_string(), reasoning.into());
    }
    let mut metrics = Map::new();
    metrics.extend(facts.input.map(|n| ("prompt_tokens".to_string(), n.into())));
    metrics.extend(facts.output.map(|n| ("completion_tokens".to_string(), n.into())));
    if !metrics.is_empty() {
        step.insert("metrics".to_string(), Value::Object(metrics));
    }
    if facts.finish.as_deref() == Some("length")
        && let Some(Value::String(message)) = step.get_mut("message")
    {
        message.push_str("\n\n[finish_reason length: the reply was cut off at the model's output limit]");
    }
    step
}

/// A reply of Terminus: JSON with commands, of either generation; anything else stays as it is.
fn read_reply(reply: &str, step: &mut Map<String, Value>) {
    let object = reply.find('{').zip(reply.rfind('}')).and_then(|(from, to)| reply.get(from..=to));
    let parsed = object.and_then(|text| serde_json::from_str::<Map<String, Value>>(text).ok());
    let Some(parsed) = parsed.filter(|p| p.contains_key("commands")) else {
        step.insert("message".to_string(), reply.into());
        return;
    };
    let text = |names: [&str; 2]| names.iter().find_map(|name| parsed.get(*name)?.as_str()).unwrap_or_default();
    let (analysis, plan) = (text(["analysis", "state_analysis"]), text(["plan", "explanation"]));
    step.insert("message".to_string(), format!("Analysis: {analysis}\nPlan: {plan}").into());
    let mut calls: Vec<Value> = Vec::new();
    for command in parsed.get("commands").and_then(Value::as_array).into_iter().flatten().take(1_000) {
        let keys = command.get("keystrokes").or(Some(command)).and_then(Value::as_str).unwrap_or_default();
        let wait = command.get("duration").or_else(|| command.get("timeout_sec")).and_then(Value::as_f64);
        let arguments = json!({"keystrokes": keys, "duration": wait});
        calls.push(json!({"function_name": "bash_command", "arguments": arguments}));
    }
    let done = ["task_complete", "is_task_complete"].iter().any(|k| parsed.get(*k) == Some(&Value::Bool(true)));
    if done {
        calls.push(json!({"function_name": "mark_task_complete", "arguments": {}}));
    }
    step.insert("tool_calls".to_string(), calls.into());
}

/// What is of use in a debug file, whose form is its writer's own.
#[derive(Debug, Default)]
struct Noted {
    model: Option<String>,
    input: Option<u64>,
    output: Option<u64>,
    reasoning: Option<String>,
    finish: Option<String>,
    failed: Option<String>,
}

fn noted(debug: &Value) -> Noted {
    let mut out = Noted { model: debug.get("model").and_then(Value::as_str).map(str::to_string), ..Noted::default() };
    for key in ["exception", "exception_string", "error", "error_str"] {
        if let Some(words) = debug.get(key).and_then(Value::as_str).filter(|w| !w.is_empty()) {
            out.failed.get_or_insert_with(|| words.lines().next().unwrap_or_default().chars().take(300).collect());
        }
    }
    look(debug, 8, &mut out);
    out
}

fn look(value: &Value, depth: usize, out: &mut Noted) {
    if depth == 0 {
        return;
    }
    match value {
        Value::Array(items) => items.iter().take(200).for_each(|item| look(item, depth - 1, out)),
        // The reply as it came over the wire.
        Value::String(text) if text.starts_with('{') && depth > 2 => {
            if let Ok(inner) = serde_json::from_str::<Value>(text) {
                look(&inner, depth - 2, out);
            }
        }
        Value::Object(map) => {
            if let (Some(input), Some(output)) = (map.get("prompt_tokens"), map.get("completion_tokens")) {
                out.input = out.input.or(input.as_u64());
                out.output = out.output.or(output.as_u64());
            }
            let text = |key: &str| map.get(key).and_then(Value::as_str).filter(|t| !t.trim().is_empty());
            if out.reasoning.is_none() {
                out.reasoning = text("reasoning_content").or_else(|| text("reasoning")).map(str::to_string);
            }
            if out.finish.is_none() {
                out.finish = text("finish_reason").map(str::to_string);
            }
            // What was asked is no part of the reply.
            let asked = |key: &str| matches!(key, "messages" | "input" | "optional_params" | "headers");
            map.iter().filter(|(key, _)| !asked(key)).for_each(|(_, item)| look(item, depth - 1, out));
        }
        _ => {}
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::harbor::trajectory::TrajectoryIndex;

    #[test]
    fn episodes_read_as_a_trajectory() {
        let temp = tempfile::tempdir().unwrap();
        let write = |n: u32, name: &str, text: &str| {
            let at = temp.path().join(LOGS).join(format!("episode-{n}"));
            std::fs::create_dir_all(&at).unwrap();
            std::fs::write(at.join(name), text).unwrap();
        };
        write(0, "prompt.txt", "do it");
        write(
            0,
            "response.txt",
            r#"Sure: {"state_analysis":"a","explanation":"p","commands":[{"keystrokes":"ls\n","timeout_sec":2}]}"#,
        );
        write(
            0,
            "debug.json",
            r#"{"model":"m","messages":[{"reasoning_content":"not this"}],
            "original_response":"{\"choices\":[{\"finish_reason\":\"length\",\"message\":{\"reasoning_content\":\"why\"}}],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":3}}"}"#,
        );
        write(1, "prompt.txt", "a file");
        write(1, "debug.json", "{\"exception\":\"RateLimitError: slow down\"");
        write(10, "prompt.txt", "and then");
        let dir = Dir::open(temp.path()).unwrap();
        let found = numbers(&dir);
        assert_eq!(found, [0, 1, 10]);
        assert_eq!(progress(&dir, &found).map(|p| (p.episodes, p.steps)), Some((2, 3)));
        let mut index = TrajectoryIndex::new(as_trajectory(&dir, &found, None, false).unwrap());
        while !index.build_slice(1 << 20).unwrap() {}
        assert!(index.is_whole());
        assert_eq!(index.steps_met(), 3, "the episode under way is none yet");
        let first = index.step(1).unwrap();
        assert_eq!(first.tool_calls.first().and_then(|c| c.keystrokes.as_deref()), Some("ls\n"));
        assert_eq!(first.metrics.prompt_tokens, Some(7));
        assert_eq!(first.reasoning.as_deref(), Some("why"));
        assert!(first.message.starts_with("Analysis: a\nPlan: p") && first.message.contains("cut off"));
        assert_eq!(first.observations.first().map(|o| &*o.content), Some("a file"));
        assert!(first.timestamp.is_some());
        let done = as_trajectory(&dir, &found, None, true).unwrap();
        let mut index = TrajectoryIndex::new(done);
        while !index.build_slice(1 << 20).unwrap() {}
        assert_eq!(index.steps_met(), 4);
        assert_eq!(index.step(1).unwrap().timestamp, None, "times of a copy say nothing");
    }
}
