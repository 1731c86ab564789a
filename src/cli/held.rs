//! `pilothouse held`: what is held for regrades on this host, and its removal.

use std::io::{IsTerminal, Write as _};

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::{FINE, NEEDS_PERSON, USAGE, load};
use crate::environment::docker::DockerEngine;
use crate::environment::held::held_of;
use crate::environment::{EnvError, Held, HeldRecords, Kept, KeptKind, OwnerLabel};
use crate::harbor::write::lease::Process;
use crate::job::Stamp;
use crate::job::text::{clean, json_for_terminal, path_text};
use crate::journal::{Journal, Note};

/// List the containers and snapshots that are held on this host for regrades, whoever's run made them.
///
/// A run removes what it holds when its age is over, as long as it runs; afterwards nobody does: what is too
/// old is listed as expired until `held remove`. Where the engine keeps something without a record in the
/// state dir (another user's run, a lost state dir), it is listed all the same.
///
/// Exit code: 0 nothing is expired or gone, 1 something is or could not be looked at, 2 wrong arguments.
#[derive(Debug, Clone, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct HeldArgs {
    /// What to do; else list
    #[command(subcommand)]
    pub act: Option<HeldAct>,
    /// Print one JSON document (schema_version 1)
    #[arg(long)]
    pub json: bool,
}

/// What can be done with held things.
#[derive(Debug, Clone, Subcommand)]
pub enum HeldAct {
    /// Remove held containers and snapshots, with networks and images that only they needed
    Remove(RemoveArgs),
}

/// Which are removed; of several words each narrows.
#[derive(Debug, Clone, Args)]
#[command(group(clap::ArgGroup::new("which").required(true).multiple(true)))]
pub struct RemoveArgs {
    /// Names, ids, names of trials, or their directories
    #[arg(value_name = "NAME", group = "which")]
    pub names: Vec<String>,
    /// Those whose age is over
    #[arg(long, group = "which")]
    pub expired: bool,
    /// Those of this job: its directory or id
    #[arg(long, value_name = "JOB", group = "which")]
    pub job: Vec<String>,
    /// All of them on this host, whoever's they are
    #[arg(long, group = "which", conflicts_with_all = ["names", "job", "expired"])]
    pub all: bool,
    /// Do not ask (needed when standard input is no terminal)
    #[arg(short = 'y', long)]
    pub yes: bool,
    /// Print one JSON document (schema_version 1)
    #[arg(long)]
    pub json: bool,
}

impl RemoveArgs {
    fn wants(&self, held: &Held, now: Stamp) -> bool {
        let trial = held.kept.labels.trial.as_deref().unwrap_or_default();
        let dir = held.job_dir();
        let real = |path: &str| std::fs::canonicalize(path).ok();
        let named = |name: &String| {
            let id = held.kept.id.trim_start_matches("sha256:");
            let short = name.trim_start_matches("sha256:");
            let of_dir = dir.as_ref().map(|d| d.join(trial)).is_some_and(|at| real(name).is_some_and(|r| r == at));
            *name == held.kept.name || *name == trial || (short.len() >= 6 && id.starts_with(short)) || of_dir
        };
        let of_job = |job: &String| {
            let by_dir = dir.as_ref().is_some_and(|dir| real(job).is_some_and(|real| real == *dir));
            *job == held.kept.labels.job || by_dir
        };
        // Each narrows: what is named, of these jobs, past its age.
        (self.names.is_empty() || self.names.iter().any(named))
            && (self.job.is_empty() || self.job.iter().any(of_job))
            && (!self.expired || held.expired(now))
    }
}

/// Runs the command; the exit code.
pub fn run(args: &HeldArgs) -> u8 {
    match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime.block_on(async {
            match &args.act {
                None => list(args).await,
                Some(HeldAct::Remove(remove)) => removal(remove).await,
            }
        }),
        Err(error) => {
            load::complain("held", &[format!("no event loop: {error}")]);
            NEEDS_PERSON
        }
    }
}

/// What the engine keeps of ours, and what of it is held.
async fn look() -> Result<(DockerEngine, Vec<Kept>, Vec<Held>), EnvError> {
    let engine = DockerEngine::connect().await?;
    let kept = engine.kept(None).await?;
    let records = super::state_dir().map(|dir| HeldRecords::of(&dir).read()).unwrap_or_default();
    let held = held_of(&kept, &records);
    Ok((engine, kept, held))
}

/// Records of what the engine does not have any more.
fn lost(engine: &DockerEngine, held: &[Held]) -> Vec<crate::environment::HeldRecord> {
    let records = super::state_dir().map(|dir| HeldRecords::of(&dir).read()).unwrap_or_default();
    let here = engine.address().to_string();
    records.into_iter().filter(|r| r.engine == here && !held.iter().any(|h| h.kept.id == r.id)).collect()
}

async fn list(args: &HeldArgs) -> u8 {
    let (engine, _, held) = match look().await {
        Ok(found) => found,
        Err(error) => {
            load::complain("held", &[error.to_string()]);
            return NEEDS_PERSON;
        }
    };
    let now = Stamp::now();
    let lost = lost(&engine, &held);
    if args.json {
        let things: Vec<Value> = held.iter().map(|h| one(h, now)).collect();
        let lost: Vec<Value> =
            lost.iter().map(|r| json!({"name": r.name, "trial": r.trial, "since": r.since})).collect();
        load::print(&text(&json!({"schema_version": 1, "held": things, "lost": lost})));
    } else {
        load::print(&plain(&held, now));
        for record in &lost {
            let (name, trial) = (clean(&record.name), clean(&record.trial));
            load::print(&format!("lost: {name} of {trial} was held and is not there any more; its record goes now\n"));
        }
    }
    if let Some(state) = super::state_dir() {
        for record in &lost {
            let _ = HeldRecords::of(&state).forget(&record.id);
        }
    }
    let needs = held.iter().any(|h| h.expired(now) || h.state() == "ended") || !lost.is_empty();
    if needs { NEEDS_PERSON } else { FINE }
}

fn plain(held: &[Held], now: Stamp) -> String {
    if held.is_empty() {
        return "nothing is held\n".to_string();
    }
    let mut out = format!("{} held for regrades\n", held.len());
    for held in held {
        let memory = held.record.as_ref().and_then(|r| r.memory);
        let memory = memory.map_or("-".to_string(), super::stop::text::size);
        let bytes = held.kept.bytes.or(held.record.as_ref().and_then(|r| r.bytes));
        let bytes = bytes.map_or("-".to_string(), super::stop::text::size);
        let dir = held.job_dir().map_or("-".to_string(), |d| clean(&path_text(&d)).into_owned());
        let trial = clean(held.kept.labels.trial.as_deref().unwrap_or("-")).into_owned();
        let until = held.until().map_or("-".to_string(), |until| format!("{until:.0}"));
        out.push_str(&format!("  {}\n", super::regrade::held_line(held, now)));
        out.push_str(&format!("      memory {memory}, disk {bytes}, until {until}\n      {dir}/{trial}\n"));
    }
    out.push_str("pilothouse regrade TRIAL_DIR runs the verifier again; pilothouse held remove NAME removes\n");
    out
}

fn one(held: &Held, now: Stamp) -> Value {
    let record = held.record.as_ref();
    json!({
        "kind": held.kind.word(),
        "id": held.kept.id,
        "name": held.kept.name,
        "state": held.state(),
        "job_id": held.kept.labels.job,
        "job_dir": held.job_dir().as_deref().map(path_text),
        "trial": held.kept.labels.trial,
        "since": held.since.map(|s| s.to_string()),
        "until": held.until().map(|s| s.to_string()),
        "expired": held.expired(now),
        "why": held.why(),
        "memory_bytes": record.and_then(|r| r.memory),
        "disk_bytes": held.kept.bytes,
        "on_record": record.is_some(),
        "owner_alive": owner_lives(held),
    })
}

/// Whether the run that made it lives; None: nobody can tell from here.
fn owner_lives(held: &Held) -> Option<bool> {
    let owner = OwnerLabel::parse(&held.kept.labels.owner)?;
    match Process::of(&owner.boot_id, &owner.pid_namespace, owner.pid, owner.started) {
        Process::There => Some(true),
        Process::Gone => Some(false),
        Process::Elsewhere => None,
    }
}

fn text(value: &Value) -> String {
    let text = serde_json::to_string_pretty(value).unwrap_or_default();
    format!("{}\n", json_for_terminal(&text))
}

async fn removal(args: &RemoveArgs) -> u8 {
    let say = |line: &str| {
        if args.json {
            let _ = writeln!(std::io::stderr(), "{line}");
        } else {
            load::print(&format!("{line}\n"));
        }
    };
    let (engine, _, held) = match look().await {
        Ok(found) => found,
        Err(error) => {
            load::complain("held", &[error.to_string()]);
            return NEEDS_PERSON;
        }
    };
    let now = Stamp::now();
    let wanted: Vec<&Held> = held.iter().filter(|h| args.wants(h, now)).collect();
    let named =
        |name: &&String| !held.iter().any(|h| RemoveArgs { names: vec![(*name).clone()], ..nothing() }.wants(h, now));
    let unknown: Vec<&String> = args.names.iter().filter(named).collect();
    if let Some(name) = unknown.first() {
        load::complain("held", &[format!("{}: nothing of that name is held", clean(name))]);
        return USAGE;
    }
    for held in &wanted {
        say(&format!("  {}", super::regrade::held_line(held, now)));
    }
    let mut removed = Vec::new();
    if wanted.is_empty() {
        say("nothing to remove");
    } else if may(args, wanted.len(), &say) {
        for held in &wanted {
            let done = remove(&engine, held).await;
            match &done {
                Ok(words) => say(words),
                Err(why) => say(&format!("{}: not removed: {}", clean(&held.kept.name), clean(why))),
            }
            removed.push((held.kept.name.clone(), done));
        }
        for line in tidy(&engine, &wanted).await {
            say(&line);
        }
    }
    if args.json {
        let list: Vec<Value> = removed
            .iter()
            .map(|(name, done)| json!({"name": name, "removed": done.is_ok(), "error": done.as_ref().err()}))
            .collect();
        load::print(&text(&json!({"schema_version": 1, "asked": wanted.len(), "removed": list})));
    }
    let gone = removed.iter().filter(|(_, done)| done.is_ok()).count();
    if gone == wanted.len() { FINE } else { NEEDS_PERSON }
}

fn nothing() -> RemoveArgs {
    RemoveArgs { names: Vec::new(), expired: false, job: Vec::new(), all: false, yes: false, json: false }
}

fn may(args: &RemoveArgs, n: usize, say: &dyn Fn(&str)) -> bool {
    if args.yes {
        return true;
    }
    if !std::io::stdin().is_terminal() {
        say("nothing is removed: standard input is no terminal, so give -y");
        return false;
    }
    super::stop::ask(&format!("Remove {n}? The verifier can not run again in what is removed."))
}

/// Removes one, and notes it. Nothing is removed that somebody is at.
async fn remove(engine: &DockerEngine, held: &Held) -> Result<String, String> {
    let state = super::state_dir().ok_or("no place for the journal: set HOME or PILOTHOUSE_STATE_DIR")?;
    let records = HeldRecords::of(&state);
    let lock = records.lock(&held.kept.id).map_err(|e| e.to_string())?;
    let Some(_lock) = lock else { return Err("it is being graded again right now".to_string()) };
    engine.remove_kept(&held.kept).await.map_err(|e| e.to_string())?;
    records.forget(&held.kept.id).map_err(|e| e.to_string())?;
    let words = format!("{} {} removed", held.kind.word(), clean(&held.kept.name));
    let mut note = Note::now("remove", &held.kept.name, "a held thing, asked for by the operator");
    note.trial.clone_from(&held.kept.labels.trial);
    note.result.clone_from(&words);
    let journal = match held.job_dir().filter(|dir| dir.is_dir()) {
        Some(dir) => Journal::open(&dir, Some(&state), &held.kept.labels.job),
        None => Journal::in_state(&state, &held.kept.labels.job),
    };
    match journal.and_then(|mut journal| journal.write(&note)) {
        Ok(()) => Ok(words),
        Err(error) => Ok(format!("{words}; that is not noted: {error}")),
    }
}

/// Networks and images that only the removed ones needed: of jobs of which nothing is held any more, whose
/// run is gone, and that have no container left.
pub(super) async fn tidy(engine: &DockerEngine, removed: &[&Held]) -> Vec<String> {
    let mut out = Vec::new();
    let mut jobs: Vec<&str> = removed.iter().map(|h| h.kept.labels.job.as_str()).collect();
    jobs.sort_unstable();
    jobs.dedup();
    for job in jobs {
        let Ok(kept) = engine.kept(Some(job)).await else { continue };
        let alive = removed.iter().any(|h| h.kept.labels.job == job && owner_lives(h) != Some(false));
        let used = kept.iter().any(|k| k.kind == KeptKind::Container) || !held_of(&kept, &[]).is_empty();
        let dir = removed.iter().find(|h| h.kept.labels.job == job).and_then(|h| h.job_dir());
        let worked =
            dir.filter(|dir| dir.is_dir()).is_some_and(|dir| crate::audit::find_owner(&dir).forbids().is_some());
        let whole = !(alive || used || worked);
        // A network that one trial had for itself goes with what was held of that trial.
        let own = |thing: &Kept| {
            let trial = thing.labels.trial.as_deref();
            let was = removed.iter().any(|h| h.kept.labels.job == job && h.kept.labels.trial.as_deref() == trial);
            let is = kept.iter().any(|k| k.kind == KeptKind::Container && k.labels.trial.as_deref() == trial);
            thing.kind == KeptKind::Network && trial.is_some() && was && !is
        };
        for thing in kept.iter().filter(|thing| whole || own(thing)) {
            let words = format!("{} {}", thing.kind.word(), clean(&thing.name));
            out.push(match engine.remove_kept(thing).await {
                Ok(()) => format!("{words} removed: nothing held needs it any more"),
                Err(e) => format!("{words} stays: {e}"),
            });
        }
    }
    out
}
