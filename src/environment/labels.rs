//! What we made says whose it is: the labels, and what they tell about things left behind.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use crate::harbor::write::lease;
use crate::job::Stamp;

/// Label: the job's id.
pub const JOB: &str = "pilothouse.job";
/// Label: the trial's directory name; absent on what belongs to the whole job.
pub const TRIAL: &str = "pilothouse.trial";
/// Label: who made it, so that two owners of one job can be told apart.
pub const OWNER: &str = "pilothouse.owner";
/// Label: what for.
pub const ROLE: &str = "pilothouse.role";

/// Label of a snapshot: the second since 1970 from which on it is kept.
pub const SINCE: &str = "pilothouse.held-since";

/// What a thing is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// A trial's container.
    Trial,
    /// A short-lived container that asks something.
    Probe,
    /// A job's network.
    Network,
    /// An image built from a task's Dockerfile.
    Image,
    /// An image of a trial's container from before its tests.
    Snapshot,
}

impl Role {
    /// The word in the label.
    pub fn word(self) -> &'static str {
        match self {
            Role::Trial => "trial",
            Role::Probe => "probe",
            Role::Network => "network",
            Role::Image => "image",
            Role::Snapshot => "snapshot",
        }
    }

    fn parse(word: &str) -> Option<Role> {
        [Role::Trial, Role::Probe, Role::Network, Role::Image, Role::Snapshot].into_iter().find(|r| r.word() == word)
    }
}

/// What [`OWNER`] holds: the process that made a thing, so that anybody on its host can find out whether
/// it still lives, and the job dir, so that a thing can be mapped to it.
///
/// As text: `pid=12 started=345 boot=<id> pidns=<n> host=<name> dir=<path>`; the path comes last and may
/// hold blanks.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct OwnerLabel {
    /// The process.
    pub pid: u32,
    /// Its start in clock ticks since boot.
    pub started: u64,
    /// The boot of its kernel.
    pub boot_id: String,
    /// Its process name space.
    pub pid_namespace: String,
    /// Its host, for people.
    pub host: String,
    /// The job dir, absolute.
    pub job_dir: PathBuf,
}

impl OwnerLabel {
    /// This process, at work on a job.
    pub fn mine(job_dir: &Path) -> OwnerLabel {
        let me = lease::myself();
        OwnerLabel {
            pid: me.pid,
            started: me.started,
            boot_id: me.boot_id,
            pid_namespace: me.pid_namespace,
            host: me.host,
            job_dir: std::path::absolute(job_dir).unwrap_or_else(|_| job_dir.to_path_buf()),
        }
    }

    /// Reads what a label holds; None for anything else.
    pub fn parse(text: &str) -> Option<OwnerLabel> {
        let (head, job_dir) = text.split_once(" dir=")?;
        let field = |name: &str| head.split(' ').find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
        Some(OwnerLabel {
            pid: field("pid")?.parse().ok()?,
            started: field("started")?.parse().ok()?,
            boot_id: field("boot")?.to_string(),
            pid_namespace: field("pidns")?.to_string(),
            host: field("host")?.to_string(),
            job_dir: PathBuf::from(job_dir),
        })
    }
}

impl fmt::Display for OwnerLabel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = |text: &str| text.replace(char::is_whitespace, "_");
        let (boot, namespace, host) = (word(&self.boot_id), word(&self.pid_namespace), word(&self.host));
        let (pid, started, dir) = (self.pid, self.started, self.job_dir.display());
        write!(f, "pid={pid} started={started} boot={boot} pidns={namespace} host={host} dir={dir}")
    }
}

/// Whose a thing is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Labels {
    /// The job's id.
    pub job: String,
    /// The trial's directory name.
    pub trial: Option<String>,
    /// Who made it (host, process, token: the owner's own words).
    pub owner: String,
    /// What for.
    pub role: Role,
}

impl Labels {
    /// As the engine keeps them.
    pub fn pairs(&self) -> BTreeMap<String, String> {
        let mut out = BTreeMap::from([
            (JOB.to_string(), self.job.clone()),
            (OWNER.to_string(), self.owner.clone()),
            (ROLE.to_string(), self.role.word().to_string()),
        ]);
        if let Some(trial) = &self.trial {
            out.insert(TRIAL.to_string(), trial.clone());
        }
        out
    }

    /// The same job and owner, for another purpose.
    pub fn with_role(&self, role: Role) -> Labels {
        let trial = if matches!(role, Role::Network | Role::Image) { None } else { self.trial.clone() };
        Labels { job: self.job.clone(), trial, owner: self.owner.clone(), role }
    }
}

/// The kinds of things an engine keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KeptKind {
    /// A container.
    Container,
    /// A network.
    Network,
    /// An image.
    Image,
}

impl KeptKind {
    /// One word.
    pub fn word(self) -> &'static str {
        match self {
            KeptKind::Container => "container",
            KeptKind::Network => "network",
            KeptKind::Image => "image",
        }
    }
}

/// A thing as an engine lists it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Its kind.
    pub kind: KeptKind,
    /// The engine's id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Seconds since 1970 by the engine's clock, where known.
    pub created: Option<i64>,
    /// Bytes of its own, where known.
    pub bytes: Option<u64>,
    /// True when it runs and is not paused (containers).
    pub running: bool,
    /// True when it is paused.
    pub paused: bool,
}

/// A thing of ours, mapped to job and trial.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// Its kind.
    pub kind: KeptKind,
    /// The engine's id.
    pub id: String,
    /// Its name; hostile until cleaned.
    pub name: String,
    /// Whose it is.
    pub labels: Labels,
    /// Seconds since it was made, by the engine's clock; None when unknown.
    pub age: Option<u64>,
    /// Bytes of its own; None when unknown.
    pub bytes: Option<u64>,
    /// True when it runs and is not paused.
    pub running: bool,
    /// True when it is paused.
    pub paused: bool,
    /// Since when it is kept, of a snapshot.
    pub since: Option<Stamp>,
}

/// What of a listing is ours, `now` being the engine's clock: containers first, then networks (which
/// go only without containers), then images; the oldest first. Things without our job label, or with
/// a role we do not know, are not ours to touch.
pub fn ours(listed: Vec<Listed>, now: i64) -> Vec<Kept> {
    let mut out: Vec<Kept> = listed
        .into_iter()
        .filter_map(|thing| {
            let job = thing.labels.get(JOB).filter(|j| !j.is_empty())?.clone();
            let role = Role::parse(thing.labels.get(ROLE)?)?;
            let fits = matches!(
                (thing.kind, role),
                (KeptKind::Container, Role::Trial | Role::Probe)
                    | (KeptKind::Network, Role::Network)
                    | (KeptKind::Image, Role::Image | Role::Snapshot)
            );
            let labels = Labels {
                job,
                trial: thing.labels.get(TRIAL).filter(|t| !t.is_empty()).cloned(),
                owner: thing.labels.get(OWNER).cloned().unwrap_or_default(),
                role,
            };
            let age = thing.created.and_then(|c| u64::try_from(now.saturating_sub(c)).ok());
            // A container made from an image of ours inherits the image's labels: role `image`.
            fits.then_some(Kept {
                kind: thing.kind,
                id: thing.id,
                name: thing.name,
                labels,
                age,
                bytes: thing.bytes,
                running: thing.running,
                paused: thing.paused,
                since: thing.labels.get(SINCE).and_then(|s| Stamp::from_second(s.parse().ok()?).ok()),
            })
        })
        .collect();
    out.sort_by(|a, b| (a.kind, b.age, &a.name).cmp(&(b.kind, a.age, &b.name)));
    out
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn listed(kind: KeptKind, name: &str, created: Option<i64>, labels: &[(&str, &str)]) -> Listed {
        let labels = labels.iter().map(|(k, v)| ((*k).to_string(), (*v).to_string())).collect();
        let (id, name) = (format!("id-{name}"), name.to_string());
        Listed { kind, id, name, labels, created, bytes: Some(7), running: true, paused: false }
    }

    #[test]
    fn an_owner_survives_its_label() {
        let owner = OwnerLabel {
            pid: 12,
            started: 345,
            boot_id: "b-1".into(),
            pid_namespace: "pid:[1]".into(),
            host: "h".into(),
            job_dir: "/a b/jobs/x dir=y".into(),
        };
        assert_eq!(OwnerLabel::parse(&owner.to_string()), Some(owner));
        assert_eq!(OwnerLabel::parse("tests"), None);
    }

    #[test]
    fn only_what_says_job_and_role_is_ours() {
        let trial = [(JOB, "j"), (TRIAL, "t__1"), (OWNER, "o"), (ROLE, "trial")];
        let found = ours(
            vec![
                listed(KeptKind::Network, "net", Some(50), &[(JOB, "j"), (ROLE, "network")]),
                listed(KeptKind::Container, "young", Some(90), &trial),
                listed(KeptKind::Container, "old", Some(10), &trial),
                // Ahead of the engine's own clock.
                listed(KeptKind::Container, "future", Some(200), &trial),
                listed(KeptKind::Container, "theirs", Some(1), &[("com.docker.compose.project", "x__env")]),
                listed(KeptKind::Container, "no-role", Some(1), &[(JOB, "j")]),
                listed(KeptKind::Container, "no-job", Some(1), &[(JOB, ""), (ROLE, "trial")]),
                // Somebody's container of an image that we built carries the image's labels.
                listed(KeptKind::Container, "inherited", Some(1), &[(JOB, "j"), (ROLE, "image")]),
            ],
            100,
        );
        let names: Vec<(&str, Option<u64>)> = found.iter().map(|k| (k.name.as_str(), k.age)).collect();
        assert_eq!(names, [("old", Some(90)), ("young", Some(10)), ("future", None), ("net", Some(50))]);
        assert_eq!(found.first().unwrap().labels.pairs(), listed(KeptKind::Image, "", None, &trial).labels);
    }
}
