//! The health gate: why nothing begins now, by name. Pure; what is seen of the world is an argument.
//!
//! A gate that is closed costs no trial: nothing begins, not even a further attempt, and whatever runs
//! runs on. Whoever knows of a gate feeds it ([`super::Control::gate`], or the job's own look at the
//! engine and its disks).

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::job::Stamp;

/// What must be well for a trial to begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Gate {
    /// The Docker engine answers.
    Docker,
    /// There is room on the disks.
    Disk,
    /// The model's endpoint serves.
    Endpoint,
}

impl Gate {
    /// All of them.
    pub const ALL: [Gate; 3] = [Gate::Docker, Gate::Disk, Gate::Endpoint];

    /// Its name, in JSON, in the journal and on the screen.
    pub fn word(self) -> &'static str {
        match self {
            Gate::Docker => "docker",
            Gate::Disk => "disk",
            Gate::Endpoint => "endpoint",
        }
    }
}

/// A gate that is closed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Closed {
    /// Which.
    pub gate: Gate,
    /// Why, in words; safe to print.
    pub why: String,
    /// Since when.
    pub since: Stamp,
}

/// What changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Turned {
    /// It closed.
    Closed(Closed),
    /// It opened again.
    Opened(Closed),
}

/// All gates of a job.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Gates {
    closed: BTreeMap<Gate, Closed>,
}

impl Gates {
    /// Takes in how a gate stands: closed for a reason, or open. Gives what changed. Another reason for a
    /// gate that is closed already replaces the first one and is no change.
    pub fn set(&mut self, gate: Gate, why: Option<&str>, now: Stamp) -> Option<Turned> {
        match (why, self.closed.get_mut(&gate)) {
            (None, None) => None,
            (None, Some(_)) => self.closed.remove(&gate).map(Turned::Opened),
            (Some(why), Some(closed)) => {
                closed.why = why.to_string();
                None
            }
            (Some(why), None) => {
                let closed = Closed { gate, why: why.to_string(), since: now };
                self.closed.insert(gate, closed.clone());
                Some(Turned::Closed(closed))
            }
        }
    }

    /// Whether all are open.
    pub fn open(&self) -> bool {
        self.closed.is_empty()
    }

    /// Those that are closed.
    pub fn closed(&self) -> Vec<Closed> {
        self.closed.values().cloned().collect()
    }
}

/// How much must be free on the disks that a job writes to.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Floor {
    /// Bytes; 0: no floor.
    pub bytes: u64,
    /// Directories whose file systems are looked at, each with what lies there, in words.
    pub places: Vec<(PathBuf, String)>,
}

impl Floor {
    /// Bytes that must be free for a closed gate to open again: a little more than the floor, so that it
    /// does not swing.
    fn again(&self) -> u64 {
        self.bytes.saturating_add((self.bytes / 20).min(1 << 28))
    }

    /// Why the gate is closed by what is free (bytes by place, None where that can not be told); None: it
    /// is open. What is not known closes nothing.
    pub fn judge(&self, free: &[Option<u64>], closed: bool) -> Option<String> {
        let floor = if closed { self.again() } else { self.bytes };
        let short = |((_, what), free): (&(PathBuf, String), &Option<u64>)| {
            let free = free.filter(|free| *free < floor)?;
            Some(format!("{} free {what}, the floor is {}", size(free), size(self.bytes)))
        };
        self.places.iter().zip(free).find_map(short).filter(|_| self.bytes > 0)
    }
}

/// `1.5 GiB`, `12 MiB`.
fn size(bytes: u64) -> String {
    match bytes {
        b if b >= 1 << 30 => format!("{:.1} GiB", b as f64 / (1u64 << 30) as f64),
        b => format!("{} MiB", b >> 20),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gate_says_since_when_and_why() {
        let mut gates = Gates::default();
        let at = |s: i64| Stamp::from_second(s).unwrap_or_default();
        assert!(gates.open() && gates.set(Gate::Disk, None, at(1)).is_none());
        let closed = |why: &str| Closed { gate: Gate::Disk, why: why.into(), since: at(2) };
        assert_eq!(gates.set(Gate::Disk, Some("full"), at(2)), Some(Turned::Closed(closed("full"))));
        assert_eq!(gates.set(Gate::Disk, Some("fuller"), at(3)), None);
        assert_eq!(gates.closed(), [closed("fuller")]);
        gates.set(Gate::Endpoint, Some("gone"), at(4));
        assert_eq!(gates.set(Gate::Disk, None, at(5)), Some(Turned::Opened(closed("fuller"))));
        assert!(!gates.open());
        gates.set(Gate::Endpoint, None, at(6));
        assert!(gates.open());
    }

    #[test]
    fn a_floor_does_not_swing_and_the_unknown_closes_nothing() {
        let places = vec![("/jobs".into(), "for the job dir".into()), ("/docker".into(), "for Docker".into())];
        let floor = Floor { bytes: 1 << 30, places };
        let gib = 1u64 << 30;
        assert_eq!(floor.judge(&[Some(gib), None], false), None);
        let why = floor.judge(&[Some(2 * gib), Some(gib - 1)], false).unwrap_or_default();
        assert_eq!(why, "1023 MiB free for Docker, the floor is 1.0 GiB");
        assert!(floor.judge(&[Some(gib + 1), None], true).is_some(), "opens only with something to spare");
        assert_eq!(floor.judge(&[Some(gib + gib / 20), None], true), None);
        assert_eq!(Floor { bytes: 0, ..floor }.judge(&[Some(0), Some(0)], false), None);
    }
}
