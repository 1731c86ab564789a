//! The diagnoses: raised, told anew, over.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::serving::state::clock::{Seconds, stamp};
use crate::serving::{Diagnosis, DiagnosisKind, ReplicaKey, Severity, SourceId};

/// Diagnoses that are over and kept.
const CLOSED: usize = 256;
/// Diagnoses that hold at once; more tell nobody anything.
const OPEN: usize = 1_024;
/// Seconds between two changes of the figures of an open diagnosis.
const PACE: Seconds = 1.0;

/// What a diagnosis is of.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::serving) struct Key {
    pub kind: DiagnosisKind,
    pub server: Arc<str>,
    pub replica: Option<ReplicaKey>,
}

/// What a rule found.
pub(in crate::serving) struct Finding {
    pub severity: Severity,
    pub source: SourceId,
    pub figures: BTreeMap<&'static str, f64>,
    pub text: String,
    pub advice: &'static str,
}

#[derive(Debug, Clone)]
struct Open {
    diagnosis: Diagnosis,
    told: Seconds,
}

/// All diagnoses, bounded.
#[derive(Debug, Default)]
pub(in crate::serving) struct Book {
    open: BTreeMap<Key, Open>,
    closed: VecDeque<Diagnosis>,
    /// Counts every change.
    pub revision: u64,
}

impl Book {
    /// True where the figures of an open diagnosis are fresh enough not to be worked out again.
    pub(in crate::serving) fn told(&self, key: &Key, t: Seconds) -> bool {
        self.open.get(key).is_some_and(|open| (0.0..PACE).contains(&(t - open.told)))
    }

    pub(in crate::serving) fn is_open(&self, key: &Key) -> bool {
        self.open.contains_key(key)
    }

    pub(in crate::serving) fn open_of(&self, key: &Key) -> Option<&Diagnosis> {
        self.open.get(key).map(|open| &open.diagnosis)
    }

    /// Raises a diagnosis, or tells an open one anew. `since` None: at a time that can not be placed.
    pub(in crate::serving) fn raise(&mut self, key: Key, finding: Finding, since: Option<Seconds>, t: Seconds) {
        self.revision += 1;
        if let Some(open) = self.open.get_mut(&key) {
            let d = &mut open.diagnosis;
            d.severity = finding.severity;
            d.source = finding.source;
            // Told first by a line without a time, then by one that has one.
            d.since = d.since.or(since.and_then(stamp));
            d.figures = finding.figures;
            if *d.text != *finding.text {
                d.text = Arc::from(finding.text);
            }
            if *d.advice != *finding.advice {
                d.advice = Arc::from(finding.advice);
            }
            open.told = t;
            return;
        }
        if self.open.len() >= OPEN {
            return;
        }
        let diagnosis = Diagnosis {
            kind: key.kind,
            severity: finding.severity,
            source: finding.source,
            replica: key.replica.clone(),
            server: key.server.clone(),
            since: since.and_then(stamp),
            until: None,
            over: false,
            figures: finding.figures,
            text: Arc::from(finding.text),
            advice: Arc::from(finding.advice),
        };
        self.open.insert(key, Open { diagnosis, told: t });
    }

    /// Says that one is over; nothing where it was not open.
    pub(in crate::serving) fn lower(&mut self, key: &Key, until: Option<Seconds>) {
        if let Some(open) = self.open.remove(key) {
            self.revision += 1;
            let mut diagnosis = open.diagnosis;
            diagnosis.over = true;
            let until = until.and_then(stamp);
            // Not before it began, whatever the clock did.
            diagnosis.until = match (diagnosis.since, until) {
                (Some(since), Some(until)) => Some(until.max(since)),
                _ => None,
            };
            if self.closed.len() >= CLOSED {
                self.closed.pop_front();
            }
            self.closed.push_back(diagnosis);
        }
    }

    /// Says that all of a server's are over which `which` chooses.
    pub(in crate::serving) fn lower_all(&mut self, server: &str, which: impl Fn(&Key) -> bool, until: Option<Seconds>) {
        let keys: Vec<Key> = self.open.keys().filter(|key| *key.server == *server && which(key)).cloned().collect();
        keys.iter().for_each(|key| self.lower(key, until));
    }

    /// Those that hold, worst first.
    pub(in crate::serving) fn open(&self) -> impl Iterator<Item = &Diagnosis> {
        self.open.values().map(|open| &open.diagnosis)
    }

    /// Those that are over, oldest first.
    pub(in crate::serving) fn closed(&self) -> impl Iterator<Item = &Diagnosis> {
        self.closed.iter()
    }

    /// Bytes on the heap, about.
    pub(in crate::serving) fn heap(&self) -> usize {
        let one = |d: &Diagnosis| size_of::<Diagnosis>() + d.text.len() + d.advice.len() + d.figures.len() * 64;
        self.open.values().map(|open| one(&open.diagnosis)).sum::<usize>() + self.closed.iter().map(one).sum::<usize>()
    }
}
