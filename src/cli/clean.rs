//! `pilothouse clean`: what dead owners left on this host.

use std::io::{IsTerminal, Write as _};
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};

use super::stop::text::size;
use super::{FINE, NEEDS_PERSON, USAGE, load};
use crate::audit::leftovers::{self, Fate, Item, Leftover, Leftovers, Maker, Scope, World};
use crate::audit::{self, Mended, quarantined};
use crate::environment::EnvError;
use crate::environment::docker::DockerEngine;
use crate::follow::discover::{DirKind, kind};
use crate::job::text::{clean, json_for_terminal, path_text};
use crate::job::time;

/// Where Harbor puts jobs when nothing else is said.
const JOBS: &str = "jobs";
/// Job dirs that are taken from one directory.
const MOST: usize = 10_000;

/// List what dead trials left on this host, and remove it: containers, networks, volumes, images built
/// for one trial, temporary and scratch directories.
///
/// Ours are found by their labels, Harbor's by the files that their Compose projects were made from;
/// both are mapped to job and trial. A thing goes only when its owner is proved dead, and only if it was
/// shown. What somebody living has, what nothing is proved of, and other Compose projects stay. The
/// quarantine is listed and never emptied.
///
/// Exit code: 0 nothing is left, 1 something is left or could not be looked at, 2 wrong arguments.
#[derive(Debug, Clone, Args)]
pub struct CleanArgs {
    /// Only what belongs to these jobs: job dirs, or directories of jobs. Without them everything on this
    /// host, mapped to jobs by labels and mounts and to those in ./jobs by their trials' names too
    /// (Harbor 0.26 mounts nothing by default)
    #[arg(value_name = "DIR")]
    pub dirs: Vec<PathBuf>,
    /// Harbor's things too
    #[arg(long)]
    pub harbor: bool,
    /// Only list
    #[arg(long)]
    pub dry_run: bool,
    /// Do not ask before removing what is listed (needed when standard input is no terminal)
    #[arg(short = 'y', long)]
    pub yes: bool,
    /// Print one JSON document (schema_version 1) at the end
    #[arg(long)]
    pub json: bool,
}

/// Runs the command; the exit code.
pub fn run(args: &CleanArgs) -> u8 {
    let jobs = match job_dirs(&args.dirs) {
        Ok(jobs) => jobs,
        Err(line) => {
            load::complain("clean", &[line]);
            return USAGE;
        }
    };
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            load::complain("clean", &[format!("no event loop: {error}")]);
            return NEEDS_PERSON;
        }
    };
    runtime.block_on(act(args, jobs))
}

/// The jobs in the directories that were named.
fn job_dirs(dirs: &[PathBuf]) -> Result<Vec<PathBuf>, String> {
    let standard = [PathBuf::from(JOBS)];
    let (dirs, named) = if dirs.is_empty() { (&standard[..], false) } else { (dirs, true) };
    let mut out = Vec::new();
    for dir in dirs {
        if named && !dir.is_dir() {
            return Err(format!("{}: no such directory: name a job dir or a directory of jobs", dir.display()));
        }
        match kind(dir) {
            Ok(DirKind::Job) => out.push(dir.clone()),
            Ok(_) => out.extend(below(dir)),
            Err(error) if named => {
                return Err(format!("{}: {error}: name a job dir or a directory of jobs", dir.display()));
            }
            Err(_) => {}
        }
    }
    Ok(out)
}

fn below(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten().take(MOST);
    entries.map(|e| e.path()).filter(|p| kind(p).is_ok_and(|k| k == DirKind::Job)).collect()
}

async fn act(args: &CleanArgs, jobs: Vec<PathBuf>) -> u8 {
    let engine = DockerEngine::connect().await;
    let engine: Result<&DockerEngine, &EnvError> = engine.as_ref();
    let mut world = World::look(&jobs);
    let state = super::state_dir();
    let scope = Scope { job_dirs: jobs, ours: true, harbor: args.harbor, state_dir: state.clone() };
    let mut found = leftovers::collect(&scope, &mut world, engine).await;
    if !args.dirs.is_empty() {
        found.things.retain(|thing| world.knows(thing));
    }
    let kept = state.as_deref().map(quarantined).unwrap_or_default();
    let mut removed: Vec<(usize, Result<Mended, String>)> = Vec::new();

    say(args, &list(&found, args.harbor));
    say(args, &quarantine(&kept));
    let n = found.things.iter().filter(|t| t.removable()).count();
    if n > 0 && may_remove(args, n) {
        match &state {
            None => {
                load::complain("clean", &["no place for the journal: set HOME or PILOTHOUSE_STATE_DIR".to_string()])
            }
            Some(state) => {
                for (at, thing) in found.things.iter().enumerate().filter(|(_, t)| t.removable()) {
                    let done = audit::remove_leftover(thing, state, engine).await.map_err(|e| e.to_string());
                    let line = match &done {
                        Ok(done) => format!("{} {}: {}", thing.kind.word(), thing.name, done.done),
                        Err(why) => format!("{} {}: not removed: {}", thing.kind.word(), thing.name, clean(why)),
                    };
                    say(args, &line);
                    removed.push((at, done));
                }
            }
        }
    }
    if args.json {
        load::print(&document(&found, &kept, &removed));
    }
    let gone = removed.iter().filter(|(_, done)| done.is_ok()).count();
    if found.unseen.is_empty() && gone == n { FINE } else { NEEDS_PERSON }
}

fn say(args: &CleanArgs, text: &str) {
    let text = text.trim_end();
    if text.is_empty() {
        return;
    }
    let text = format!("{text}\n");
    if args.json {
        let _ = std::io::stderr().write_all(text.as_bytes());
    } else {
        load::print(&text);
    }
}

fn may_remove(args: &CleanArgs, n: usize) -> bool {
    if args.dry_run {
        return false;
    }
    if args.yes {
        return true;
    }
    if !std::io::stdin().is_terminal() {
        say(args, "nothing is removed: standard input is no terminal, so give -y");
        return false;
    }
    super::stop::ask(&format!("Remove the {n} listed as removable?"))
}

/// What was found, in two parts.
fn list(found: &Leftovers, harbor: bool) -> String {
    let mut out = String::new();
    let (held, others): (Vec<&Leftover>, Vec<&Leftover>) =
        found.things.iter().partition(|t| matches!(t.fate, Fate::Held(_)));
    let (dead, rest): (Vec<&Leftover>, Vec<&Leftover>) = others.into_iter().partition(|t| t.removable());
    let whose = if harbor { "ours and Harbor's" } else { "ours; --harbor adds Harbor's" };
    out.push_str(&format!("{} removable ({whose})\n", dead.len()));
    dead.iter().for_each(|thing| out.push_str(&line(thing)));
    if !rest.is_empty() {
        out.push_str(&format!("{} stay\n", rest.len()));
        rest.iter().for_each(|thing| out.push_str(&line(thing)));
    }
    if !held.is_empty() {
        out.push_str(&format!("{} held for regrades: no leftovers, pilothouse held removes them\n", held.len()));
        held.iter().for_each(|thing| out.push_str(&line(thing)));
    }
    for line in &found.unseen {
        out.push_str(&format!("not seen: {}\n", clean(line)));
    }
    out
}

fn line(thing: &Leftover) -> String {
    let maker = match thing.maker {
        Maker::Ours => "pilothouse",
        Maker::Harbor => "harbor",
    };
    let age = thing.age.map_or("-".to_string(), |s| time::words(s as f64));
    let bytes = thing.bytes.map_or("-".to_string(), size);
    let job = thing.job_dir.as_ref().map(|d| clean(&d.to_string_lossy()).into_owned()).or(thing.job_id.clone());
    let (job, trial) = (job.unwrap_or("-".to_string()), thing.trial.as_deref().unwrap_or("-"));
    let paused = matches!(&thing.item, Item::Kept(kept) if kept.paused);
    let state = match (thing.running, paused) {
        (true, _) => " running",
        (_, true) => " paused",
        _ => "",
    };
    let why = match &thing.fate {
        Fate::Dead(why) => why.clone(),
        Fate::Alive(who) => format!("in use: {who}"),
        Fate::Unsure(why) => format!("not proved: {why}"),
        Fate::Held(why) => format!("held {why} (pilothouse held remove)"),
    };
    format!(
        "  {:<9} {}{state}  age {age}, {bytes}  {maker}\n            job {job}  trial {trial}\n            {}; {why}\n",
        thing.kind.word(),
        thing.name,
        thing.evidence
    )
}

fn quarantine(kept: &[audit::Kept]) -> String {
    if kept.is_empty() {
        return String::new();
    }
    let bytes: u64 = kept.iter().filter_map(|k| k.bytes).sum();
    let mut out = format!("{} in the quarantine ({}), kept\n", kept.len(), size(bytes));
    for kept in kept {
        let age = kept.age.map_or("-".to_string(), |s| time::words(s as f64));
        let bytes = kept.bytes.map_or("-".to_string(), size);
        out.push_str(&format!("  {}  age {age}, {bytes}\n", clean(&kept.place.to_string_lossy())));
    }
    out
}

fn document(found: &Leftovers, kept: &[audit::Kept], removed: &[(usize, Result<Mended, String>)]) -> String {
    let things: Vec<Value> = found
        .things
        .iter()
        .enumerate()
        .map(|(at, thing)| {
            let (fate, why) = match &thing.fate {
                Fate::Dead(why) => ("dead", why),
                Fate::Alive(why) => ("alive", why),
                Fate::Unsure(why) => ("unsure", why),
                Fate::Held(why) => ("held", why),
            };
            let done = removed.iter().find(|(n, _)| *n == at).map(|(_, done)| done);
            json!({
                "kind": thing.kind.word().replace(' ', "_"),
                "name": thing.name,
                "maker": if thing.maker == Maker::Ours { "pilothouse" } else { "harbor" },
                "job_dir": thing.job_dir.as_deref().map(path_text),
                "job_id": thing.job_id,
                "trial": thing.trial,
                "age_sec": thing.age,
                "bytes": thing.bytes,
                "running": thing.running,
                "evidence": thing.evidence,
                "owner": fate,
                "why": why,
                "removable": thing.removable(),
                "removed": done.is_some_and(Result::is_ok),
                "error": done.and_then(|d| d.as_ref().err()),
            })
        })
        .collect();
    let kept: Vec<Value> =
        kept.iter().map(|k| json!({"place": path_text(&k.place), "age_sec": k.age, "bytes": k.bytes})).collect();
    let value = json!({"schema_version": 1, "things": things, "unseen": found.unseen, "quarantine": kept});
    let text = serde_json::to_string_pretty(&value).unwrap_or_default();
    format!("{}\n", json_for_terminal(&text))
}
