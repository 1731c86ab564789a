//! What the files of a trial without result show. Nothing of a classic run is a sign of life but that files
//! grow.

use std::time::Duration;

use super::super::probe::{Counters, FileId, Identity, Look, Memory, STABLE_AGE, Seen, Sighting};
use super::Run;
use crate::harbor::classic::episodes;
use crate::harbor::dir::{Dir, EntryKind, Meta};
use crate::job::{Evidence, FileFact, Problem, Stamp, Trial, time};

/// What is looked at, in this order.
const FILES: [&str; 9] = [
    "",
    "panes/pre-agent.txt",
    "panes/post-agent.txt",
    "panes/post-test.txt",
    "sessions/agent.cast",
    "sessions/tests.cast",
    "agent-logs",
    "sessions/agent.log",
    "commands.txt",
];

/// What is remembered of an unfinished trial.
#[derive(Debug)]
pub(in super::super) struct Unfinished {
    identity: Option<Identity>,
    files: Vec<Option<FileId>>,
    episodes: (u64, i128, u64),
    /// Newest modification time met.
    pub newest: Option<Stamp>,
    shown: Box<Trial>,
}

impl Unfinished {
    /// True when nothing that was looked at last time differs now.
    pub fn unchanged(&self, look: &Look<'_>, name: &str) -> bool {
        let path = |rel: &str| if rel.is_empty() { name.to_string() } else { format!("{name}/{rel}") };
        let same =
            FILES.iter().zip(&self.files).all(|(rel, id)| look.stat(&path(rel)).as_ref().map(FileId::from) == *id);
        // Its episodes are written into directories of their own.
        same && (self.episodes == (0, 0, 0)
            || look.job.sub(name).is_ok_and(|dir| {
                Counters::add(&look.counters.lists);
                self.episodes == episodes::stamp(&dir, &episodes::numbers(&dir))
            }))
    }
}

/// One look at everything but the result.
pub(super) fn look(
    run: &Run,
    look: &Look<'_>,
    dir: &Dir,
    name: &str,
    memory: &mut Memory,
    broken: Option<Problem>,
) -> Sighting {
    let identity = Identity::of(dir);
    let before = memory.classic.take();
    let restarted = before.as_ref().is_some_and(|known| known.identity != identity);
    let metas: Vec<Option<Meta>> = FILES
        .iter()
        .map(|rel| {
            Counters::add(&look.counters.stats);
            dir.stat(rel).ok()
        })
        .collect();
    let meta = |rel: &str| FILES.iter().position(|file| *file == rel).and_then(|at| metas.get(at)?.as_ref());
    let file = |rel: &str| meta(rel).filter(|m| m.kind == EntryKind::File);
    let fact = |m: &Meta| FileFact { size: m.size, modified: m.modified };
    let numbers = match meta("agent-logs") {
        Some(m) if m.kind == EntryKind::Dir => {
            Counters::add(&look.counters.lists);
            episodes::numbers(dir)
        }
        _ => Vec::new(),
    };
    let stamp = episodes::stamp(dir, &numbers);
    let newest = metas.iter().flatten().map(|m| m.modified).max();
    let newest = newest.max(Stamp::from_nanosecond(stamp.1).ok().filter(|_| stamp.1 > 0));

    let (up, cast) = (file("panes/pre-agent.txt"), file("sessions/agent.cast"));
    let mut e = Evidence {
        began: meta("").map(|m| m.modified),
        // The directory is all that there is while the image is built.
        config: up.or(meta("")).map(fact),
        log_started: up.is_some(),
        newest,
        ..Evidence::default()
    };
    e.shown_by = Some(if up.is_some() { "panes/pre-agent.txt" } else { "." });
    let grew = |m: &Meta| up.is_some_and(|up| m.modified > up.modified && m.size > 0);
    if let Some(cast) = cast.filter(|m| grew(m)) {
        e.cast = Some(fact(cast));
        e.shown_by = Some("sessions/agent.cast");
    }
    if let Some(typed) = file("commands.txt").filter(|m| grew(m)) {
        e.agent_output = true;
        if e.cast.is_none() {
            e.cast = Some(fact(typed));
            e.shown_by = Some("commands.txt");
        }
    }
    if let Some(progress) = episodes::progress(dir, &numbers) {
        e.trajectory = Some(progress);
        e.stepped = progress.last_step;
        e.shown_by = Some("agent-logs");
    }
    for over in ["panes/post-agent.txt", "sessions/tests.cast", "panes/post-test.txt"] {
        if let Some(m) = file(over) {
            e.manifest = e.manifest.or(Some(m.modified));
            e.shown_by = Some(over);
        }
    }
    e.verifier_output = file("panes/post-test.txt").or(file("sessions/tests.cast")).map(fact);

    let mut trial = run.blank(name);
    trial.limits = run.limits_of(&trial.task);
    trial.unreadable = broken.is_some();
    trial.problems = broken.into_iter().collect();
    trial.evidence = Some(Box::new(e));
    let young = newest.is_some_and(|at| time::age(at, look.now) < STABLE_AGE) && !look.last;
    let same = before.as_ref().is_some_and(|known| *known.shown == trial);
    memory.settled_problem = None;
    memory.classic = Some(Box::new(Unfinished {
        identity,
        files: metas.iter().map(|m| m.as_ref().map(FileId::from)).collect(),
        episodes: stamp,
        newest,
        shown: Box::new(trial.clone()),
    }));
    Sighting {
        seen: if same { Seen::Same } else { Seen::Trial(Box::new(trial)) },
        restarted,
        newest,
        // What changes twice in one tick of the clock does not show.
        again: young.then_some(Duration::from_millis(500)),
    }
}
