//! Alarms on their way to somebody who does not look at the screen: what is told, and what has been.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

use crate::job::{Stamp, text};

/// Version of the JSON.
const SCHEMA: u32 = 1;
/// Texts are cut at so many characters: a line must fit into a pipe.
const TEXT: usize = 1000;
/// Alarms that a summary names.
const NAMED: usize = 10;
/// Alarms whose telling is remembered.
const KEPT: usize = 4096;

/// One alarm, as the notify command gets it.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Alert {
    /// Kind, as in the headless JSON.
    pub kind: String,
    /// `warning`, `error` or `fatal`.
    pub severity: String,
    /// What is the case, in a sentence.
    pub text: String,
    /// What can be done; empty when the text says it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub advice: String,
    /// The job that it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// The trial that it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trial: Option<String>,
    /// The server that it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// Its replica.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replica: Option<String>,
    /// Since when, UTC.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// The figures that it rests on.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub figures: BTreeMap<&'static str, f64>,
    /// When it was told, UTC.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<String>,
}

#[derive(Serialize)]
struct Event<'a> {
    schema_version: u32,
    event: &'static str,
    #[serde(flatten)]
    alert: &'a Alert,
}

#[derive(Serialize)]
struct Summary<'a> {
    schema_version: u32,
    event: &'static str,
    text: String,
    alarms: &'a [Alert],
    more: usize,
}

impl Alert {
    /// One line of JSON.
    pub fn json(&self) -> String {
        let cut = |text: &str| text::clean(&text::mask_secrets(text)).chars().take(TEXT).collect();
        let alert = Alert { text: cut(&self.text), advice: cut(&self.advice), ..self.clone() };
        serde_json::to_string(&Event { schema_version: SCHEMA, event: "alarm", alert: &alert }).unwrap_or_default()
    }
}

/// Several alarms in one line of JSON: the first ones, and how many there were besides.
pub fn summary(alerts: &[Alert], more: usize) -> String {
    let shown: Vec<Alert> = alerts
        .iter()
        .take(NAMED)
        .map(|a| Alert {
            text: text::clean(&text::mask_secrets(&a.text)).chars().take(TEXT / 4).collect(),
            advice: String::new(),
            ..a.clone()
        })
        .collect();
    let all = alerts.len() + more;
    let summary = Summary {
        schema_version: SCHEMA,
        event: "alarms",
        text: format!("{all} alarms within a minute"),
        alarms: &shown,
        more: all - shown.len(),
    };
    serde_json::to_string(&summary).unwrap_or_default()
}

/// Which alarms were told. An alarm is told once while it lasts, and again when it comes back after
/// [`AGAIN`] seconds: one that flickers is one alarm.
#[derive(Debug, Clone, Default)]
pub struct Told {
    /// When each was last there.
    seen: BTreeMap<Arc<str>, Stamp>,
}

/// Seconds after which an alarm that was gone is a new one.
const AGAIN: f64 = 600.0;

impl Told {
    /// Notes that an alarm is there; true when it is new.
    pub fn is_new(&mut self, id: &str, now: Stamp) -> bool {
        let gone = |then: &Stamp| crate::job::time::seconds_between(*then, now).is_some_and(|s| s >= AGAIN);
        let new = self.seen.get(id).is_none_or(gone);
        if self.seen.len() >= KEPT && !self.seen.contains_key(id) {
            let oldest = self.seen.iter().min_by_key(|(_, at)| **at).map(|(id, _)| id.clone());
            oldest.map(|id| self.seen.remove(&id));
        }
        self.seen.insert(id.into(), now);
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alarm_that_flickers_is_one_alarm() {
        let at = |s: i64| Stamp::from_second(1_800_000_000 + s).unwrap_or(Stamp::UNIX_EPOCH);
        let mut told = Told::default();
        assert!(told.is_new("a", at(0)));
        assert!(!told.is_new("a", at(500)));
        assert!(!told.is_new("a", at(1000)));
        assert!(told.is_new("b", at(1000)));
        assert!(told.is_new("a", at(1600)));
    }

    #[test]
    fn unknown_fields_are_left_out() {
        let alert =
            Alert { kind: "hang".into(), severity: "error".into(), text: "it hangs".into(), ..Alert::default() };
        assert_eq!(
            alert.json(),
            r#"{"schema_version":1,"event":"alarm","kind":"hang","severity":"error","text":"it hangs"}"#
        );
    }
}
