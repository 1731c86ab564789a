//! What the evaluation wrapper around terminal-bench-hard writes beside the trials. The shape of its
//! containers is written down nowhere: a list, or a map by task or trial, is accepted alike.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::super::json::{self, FileProblem};
use super::result::{Aggregate, trial_result};
use super::trial_name;
use crate::job::text::clean;

/// Trials and tasks that are kept.
const KEPT: usize = 20_000;
/// How deep containers are looked through.
const DEPTH: usize = 6;
/// Different reasons that are kept.
const REASONS: usize = 50;

/// A task in `task_status.json`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskStatus {
    /// Task id.
    pub task: Arc<str>,
    /// The trial that it speaks of.
    pub trial: Option<Arc<str>>,
    /// `success` of any trial of the task; it stays once it is set.
    pub success: bool,
    /// Its `outcome`, word for word.
    pub outcome: Option<Arc<str>>,
}

fn parse(bytes: &[u8]) -> Result<Value, FileProblem> {
    json::lenient(bytes, |body| serde_json::from_slice::<Value>(body)).map(|(value, _)| value)
}

/// Reads `tb_results.json`.
///
/// # Errors
/// See [`FileProblem`]; `Foreign` where nothing in it is a trial and nothing an empty container of them.
pub fn results(bytes: &[u8]) -> Result<Aggregate, FileProblem> {
    let value = parse(bytes)?;
    let mut out = Aggregate::default();
    trials(&value, None, DEPTH, &mut out);
    let number = |key: &str| value.get(key).and_then(Value::as_f64);
    out.id = value.get("id").and_then(Value::as_str).map(|id| Arc::from(&*clean(id)));
    out.accuracy = number("accuracy");
    let rates = value.get("pass_at_k").and_then(Value::as_object);
    out.pass_at_k = rates.into_iter().flatten().filter_map(|(k, v)| Some((k.parse().ok()?, v.as_f64()?))).collect();
    let container = value.is_array() || value.get("results").is_some() || out.accuracy.is_some();
    if out.trials.is_empty() && !container && value.as_object().is_none_or(|map| !map.is_empty()) {
        return Err(FileProblem::foreign("nothing in it is a trial of terminal-bench"));
    }
    Ok(out)
}

fn trials(value: &Value, key: Option<&str>, depth: usize, out: &mut Aggregate) {
    if depth == 0 || out.trials.len() >= KEPT {
        return;
    }
    match value {
        Value::Array(items) => items.iter().for_each(|item| trials(item, key, depth - 1, out)),
        Value::Object(map) if map.contains_key("is_resolved") || map.contains_key("failure_mode") => {
            out.count += 1;
            let mut map = map.clone();
            // Of a map by name the name stands nowhere else.
            let missing = |map: &Map<String, Value>, name: &str| !map.get(name).is_some_and(Value::is_string);
            if let Some(key) = key {
                if trial_name(key).is_some() && missing(&map, "trial_name") {
                    map.insert("trial_name".to_string(), key.into());
                } else if trial_name(key).is_none() && missing(&map, "task_id") {
                    map.insert("task_id".to_string(), key.into());
                }
            }
            let bytes = serde_json::to_vec(&Value::Object(map)).unwrap_or_default();
            out.trials.extend(trial_result(&bytes).ok());
        }
        Value::Object(map) => {
            for (name, item) in map {
                // `results` and the like are no names of tasks.
                let inside = if item.is_array() || item.is_object() { Some(&**name) } else { None };
                let inside = inside.filter(|name| !matches!(*name, "results" | "trials" | "tasks"));
                trials(item, inside, depth - 1, out);
            }
        }
        _ => {}
    }
}

/// Reads `task_status.json`.
///
/// # Errors
/// See [`FileProblem`].
pub fn status(bytes: &[u8]) -> Result<Vec<TaskStatus>, FileProblem> {
    let mut out = Vec::new();
    tasks(&parse(bytes)?, None, DEPTH, &mut out);
    Ok(out)
}

fn tasks(value: &Value, key: Option<&str>, depth: usize, out: &mut Vec<TaskStatus>) {
    if depth == 0 || out.len() >= KEPT {
        return;
    }
    let text = |map: &Map<String, Value>, name: &str| {
        map.get(name).and_then(Value::as_str).filter(|t| !t.is_empty()).map(|t| Arc::<str>::from(&*clean(t)))
    };
    match value {
        Value::Array(items) => items.iter().for_each(|item| tasks(item, key, depth - 1, out)),
        Value::Object(map) if map.get("status").is_some_and(Value::is_string) => {
            let trial = text(map, "trial_name");
            let named = ["task_id", "task_name", "task"].iter().find_map(|name| text(map, name));
            let of_trial = || trial.as_deref().and_then(trial_name).map(|n| Arc::from(n.task));
            let Some(task) = named.or_else(|| key.map(Arc::from)).or_else(of_trial) else { return };
            let success = text(map, "status").is_some_and(|s| s.eq_ignore_ascii_case("success"));
            out.push(TaskStatus { task, trial, success, outcome: text(map, "outcome") });
        }
        Value::Object(map) => {
            for (name, item) in map {
                match item {
                    // The shortest form: task → status.
                    Value::String(word) if matches!(&**word, "success" | "failed") => out.push(TaskStatus {
                        task: Arc::from(&*clean(name)),
                        trial: None,
                        success: word == "success",
                        outcome: None,
                    }),
                    _ => tasks(item, Some(name.as_str()), depth - 1, out),
                }
            }
        }
        _ => {}
    }
}

/// How often replies ended for which reason, out of `eval_factory_metrics.json`: the maps under a key that
/// speaks of finish reasons, summed.
///
/// # Errors
/// See [`FileProblem`].
pub fn finish_reasons(bytes: &[u8]) -> Result<Vec<(String, u64)>, FileProblem> {
    let mut out = Vec::new();
    reasons(&parse(bytes)?, DEPTH + 2, &mut out);
    out.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    Ok(out)
}

fn reasons(value: &Value, depth: usize, out: &mut Vec<(String, u64)>) {
    if depth == 0 {
        return;
    }
    let add = |out: &mut Vec<(String, u64)>, reason: &str, n: u64| {
        let full = out.len() >= REASONS;
        match out.iter_mut().find(|(known, _)| known == reason) {
            Some(known) => known.1 = known.1.saturating_add(n),
            None if full => {}
            None => out.push((clean(reason).into_owned(), n)),
        }
    };
    match value {
        Value::Array(items) => items.iter().for_each(|item| reasons(item, depth - 1, out)),
        Value::Object(map) => {
            for (key, item) in map {
                match (key.strip_prefix("finish_reason"), item) {
                    (Some(_), Value::Object(counts)) if counts.values().all(Value::is_u64) => {
                        counts.iter().for_each(|(reason, n)| add(out, reason, n.as_u64().unwrap_or(0)));
                    }
                    (Some(rest), Value::Number(n)) => {
                        let reason = rest.trim_start_matches(['s', '_', '.', '/', '-']);
                        if let Some(n) = n.as_u64().filter(|_| !reason.is_empty()) {
                            add(out, reason, n);
                        }
                    }
                    _ => {}
                }
            }
            for (key, item) in map {
                let told = key.starts_with("finish_reason")
                    && item.as_object().is_some_and(|counts| counts.values().all(Value::is_u64));
                if !told {
                    reasons(item, depth - 1, out);
                }
            }
        }
        _ => {}
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_maps_tell_the_same() {
        let forms = [
            r#"{"results":[{"trial_name":"a.1-of-2.r","task_id":"a","is_resolved":true}],"accuracy":1.0}"#,
            r#"{"a.1-of-2.r":{"is_resolved":true,"failure_mode":"none"}}"#,
            r#"{"results":{"a":[{"trial_name":"a.1-of-2.r","is_resolved":true}]}}"#,
            r#"[{"trial_name":"a.1-of-2.r","is_resolved":true,"passed":false,"score":0}]"#,
        ];
        for form in forms {
            let read = results(form.as_bytes()).unwrap();
            let trial = read.trials.first().unwrap();
            assert_eq!((trial.name.as_deref(), &*trial.task), (Some("a.1-of-2.r"), "a"), "{form}");
            assert_eq!(trial.result.rewards.primary(), Some(1.0));
            assert_eq!(trial.result.exception, None);
        }
        assert!(results(b"{\"results\":[]}").unwrap().trials.is_empty());
        assert!(results(b"{\"x\":1}").is_err() && results(b"{\"res").is_err());
    }

    #[test]
    fn states_of_tasks_are_read() {
        let forms = [
            r#"{"a":{"status":"success","outcome":"none","trial_name":"a.2-of-4"},"b":{"status":"failed","outcome":"token_limit_exceeded"}}"#,
            r#"[{"task_id":"a","status":"success","outcome":"none","trial_name":"a.2-of-4"},
                {"task_id":"b","status":"failed","outcome":"token_limit_exceeded"}]"#,
        ];
        for form in forms {
            let read = status(form.as_bytes()).unwrap();
            let short: Vec<_> = read.iter().map(|t| (&*t.task, t.success, t.trial.as_deref())).collect();
            assert_eq!(short, [("a", true, Some("a.2-of-4")), ("b", false, None)], "{form}");
            assert_eq!(read.last().unwrap().outcome.as_deref(), Some("token_limit_exceeded"));
        }
        assert_eq!(status(br#"{"a":"success"}"#).unwrap().len(), 1);
    }

    #[test]
    fn reasons_are_summed() {
        let read = finish_reasons(br#"{"m":{"finish_reason":{"stop":10,"length":2}},"n":{"finish_reason_length":3}}"#);
        assert_eq!(read.unwrap(), [("stop".to_string(), 10), ("length".to_string(), 5)]);
        assert_eq!(finish_reasons(b"{\"a\":[1]}").unwrap(), []);
    }
}
