//! What a trial shows before its `result.json`: the reward file and `exception.txt`.

use std::sync::Arc;

use super::json::{self, Entries, Object, Scalar};
use crate::job::{RewardValue, Rewards};

/// One reward as read; None where the file says null.
pub(super) fn reward_value(value: &Scalar<'_>) -> Option<RewardValue> {
    if value.is_none() {
        return None;
    }
    Some(match value.f64() {
        Some(n) => RewardValue::Number(n),
        None => RewardValue::Unreadable(value.shown().into()),
    })
}

/// Rewards that are JSON already: an object of numbers, of which at most 1000 are kept.
pub(super) fn rewards_of(value: Option<&serde_json::Value>) -> Rewards {
    let Some(map) = value.and_then(serde_json::Value::as_object) else { return Rewards::None };
    let read = |value: &serde_json::Value| match value.as_f64() {
        Some(n) if n.is_finite() => RewardValue::Number(n),
        _ => unreadable(&value.to_string()),
    };
    Rewards::Keys(map.iter().take(1000).map(|(key, value)| (Arc::from(&**key), read(value))).collect())
}

/// Reads `verifier/reward.txt`: one number, under the key `reward` as Harbor keeps it. An empty file
/// is no reward (yet).
pub fn reward_txt(bytes: &[u8]) -> Rewards {
    let text = String::from_utf8_lossy(bytes.get(..4096).unwrap_or(bytes));
    let text = text.trim_start_matches('\u{feff}').trim();
    if text.is_empty() {
        return Rewards::None;
    }
    let value = match text.parse::<f64>() {
        Ok(n) if n.is_finite() => RewardValue::Number(n),
        _ => unreadable(text),
    };
    Rewards::Keys(vec![(Arc::from("reward"), value)])
}

fn unreadable(text: &str) -> RewardValue {
    RewardValue::Unreadable(text.chars().take(40).collect::<String>().into())
}

/// Reads `verifier/reward.json`: a flat map of numbers. It counts more than `reward.txt` where both
/// exist. An empty or torn file is no reward (yet); any other that is no map gives one unreadable
/// value.
pub fn reward_json(bytes: &[u8]) -> Rewards {
    let read = json::lenient(bytes, |body| {
        json::document::<Object<'_, Entries<'_, Scalar<'_>>>>(body).map(|root| match root {
            Object::Some(entries) => entries
                .0
                .iter()
                .map(|(key, value)| {
                    (Arc::from(&**key), reward_value(value).unwrap_or(RewardValue::Unreadable("null".into())))
                })
                .collect(),
            Object::Other(other) => vec![(Arc::from("reward"), RewardValue::Unreadable(other.shown().into()))],
        })
    });
    match read {
        Ok((keys, _)) => Rewards::Keys(keys),
        Err(problem) if problem.may_heal() => Rewards::None,
        Err(_) => Rewards::Keys(vec![(Arc::from("reward"), unreadable(&String::from_utf8_lossy(bytes)))]),
    }
}

const HEADER: &str = "Traceback (most recent call last):";

/// The exception's class name out of `exception.txt` (or the end of one): of the last traceback in a
/// chain the first line that is not indented, `Name: message` or `package.module.Name`; without any
/// traceback a first line of that form. What follows in the message does not count, however much
/// it looks like one.
pub fn exception_kind(bytes: &[u8]) -> Option<Arc<str>> {
    let text = String::from_utf8_lossy(bytes);
    let mut found: Option<&str> = None;
    let (mut in_trace, mut chained) = (false, false);
    for line in text.lines() {
        // Groups of exceptions are drawn with a bar.
        let group = line.starts_with("  + Exception Group Traceback");
        let line = line.strip_prefix("  | ").unwrap_or(line);
        if line == HEADER || group {
            in_trace = found.is_none() || chained;
            chained = false;
        } else if line.starts_with("  File \"") {
            in_trace = in_trace || found.is_none();
        } else if line.starts_with("The above exception was the direct cause")
            || line.starts_with("During handling of the above exception")
        {
            chained = true;
        } else if line.trim().is_empty() || line.starts_with([' ', '\t']) {
            continue;
        } else if in_trace {
            found = class_name(line).or(found);
            in_trace = false;
        } else {
            chained = false;
        }
    }
    found
        .or_else(|| {
            // A bare `Name: message`; prose such as `stdout: …` begins in lower case.
            let first = text.lines().find(|l| !l.trim().is_empty())?;
            class_name(first).filter(|n| n.starts_with(|c: char| c.is_ascii_uppercase()))
        })
        .map(Arc::from)
}

fn class_name(line: &str) -> Option<&str> {
    let head = line.split_once(':').map_or(line, |(head, _)| head).trim_end();
    let plain = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | '<' | '>');
    if head.is_empty() || head.len() > 200 || !head.chars().all(plain) {
        return None;
    }
    let name = head.rsplit('.').next()?;
    name.starts_with(|c: char| c.is_alphabetic() || c == '_').then_some(name)
}
