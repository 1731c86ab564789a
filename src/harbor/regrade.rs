//! `regrade-<n>.json` of a trial: a file of our own, read as tolerantly as Harbor's.

use std::sync::Arc;

use serde_json::Value;

use super::dir::{Dir, OpenError};
use super::early::rewards_of;
pub use crate::job::regrade::file_name;
use crate::job::text::mask_secrets;
use crate::job::{Exception, Regrade, time};

/// Regrades of one trial that are read: more than anybody makes.
pub const MOST: u32 = 99;
/// Largest file that is read, in bytes.
const CAP: u64 = 1 << 20;
/// Characters kept of what somebody wrote.
const TEXT: usize = 400;

/// The regrades in a trial's directory (`prefix` empty), or in the one called `prefix` in a job dir, oldest
/// first. Numbers are given without gaps, so that the first one that is not there ends the look. One that
/// can not be read (a link, a FIFO, a torn file) says nothing and is passed over.
pub fn regrades(dir: &Dir, prefix: &str) -> Vec<Regrade> {
    let mut out = Vec::new();
    for n in 1..=MOST {
        let name = file_name(n);
        let rel = if prefix.is_empty() { name } else { format!("{prefix}/{name}") };
        match dir.read_all(&rel, CAP) {
            Ok(bytes) => out.extend(regrade(n, &bytes.data)),
            Err(OpenError::Missing | OpenError::Vanished) => break,
            Err(_) => {}
        }
    }
    out
}

/// Reads one; None for what is none of ours.
pub fn regrade(n: u32, bytes: &[u8]) -> Option<Regrade> {
    let value: Value = serde_json::from_slice(bytes).ok()?;
    value.get("schema_version").and_then(Value::as_u64)?;
    let text = |value: Option<&Value>| -> Arc<str> {
        let text: String = value.and_then(Value::as_str).unwrap_or_default().chars().take(TEXT).collect();
        Arc::from(&*mask_secrets(&text))
    };
    let stamp = |key: &str| value.get(key).and_then(Value::as_str).and_then(time::parse).map(|read| read.at);
    let flag = |key: &str| value.get(key).and_then(Value::as_bool).unwrap_or(false);
    let exception = value
        .get("exception_info")
        .filter(|x| !x.is_null())
        .map(|x| Exception { kind: text(x.get("exception_type")), message: text(x.get("exception_message")) });
    Some(Regrade {
        n,
        result_id: value.get("trial_id").and_then(Value::as_str).filter(|id| !id.is_empty()).map(Arc::from),
        rewards: rewards_of(value.get("verifier_result").and_then(|v| v.get("rewards"))),
        exception,
        started: stamp("started_at"),
        finished: stamp("finished_at"),
        operator: text(value.get("operator")),
        why: text(value.get("why")),
        processes_lost: flag("processes_lost"),
        task_changed: flag("task_changed"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_none_of_ours_says_nothing() {
        for bytes in [&b"{"[..], b"[]", b"{\"n\": 1}", b"\xff\xfe", b"null"] {
            assert_eq!(regrade(1, bytes), None, "{bytes:?}");
        }
        let odd = br#"{"schema_version": 1, "verifier_result": {"rewards": {"reward": "1"}}, "operator": 5}"#;
        let read = regrade(3, odd);
        assert!(read.is_some_and(|r| r.n == 3 && !r.is_valid() && r.reward().is_none()));
        let fine = br#"{"schema_version": 1, "trial_id": "a", "verifier_result": {"rewards": {"reward": 1}}}"#;
        assert!(regrade(1, fine).is_some_and(|r| r.is_valid() && r.reward() == Some(1.0)));
        let changed = br#"{"schema_version": 1, "task_changed": true, "verifier_result": {"rewards": {"reward": 1}}}"#;
        assert!(regrade(1, changed).is_some_and(|r| !r.is_valid()));
    }
}
