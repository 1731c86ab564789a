//! Who works on a job: a Harbor or a pilothouse on this host, somebody elsewhere, or nobody.
//!
//! Jobs of our own say it in their lease. Harbor writes neither pid nor host, but holds `job.log` open
//! from the first moment to the last; the command line and the working directory are looked at as a
//! check that the process is what it seems to be.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::process::{self, Disposition, Facts};
use crate::follow::fstype;
use crate::follow::owner::Census;
use crate::harbor::Dir;
use crate::harbor::write::lease::{self, LeaseNote, Process, Reading};
use crate::job::text::{clean, mask_secrets};
use crate::job::{Stamp, time};

/// Characters of a command line that are shown.
const COMMAND_CHARS: usize = 400;
/// A job on a file system that other machines write to counts as left alone after this silence.
pub const QUIET_ELSEWHERE: Duration = Duration::from_secs(900);

/// Which program works on a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Program {
    /// Harbor.
    Harbor,
    /// Pilothouse itself.
    Pilothouse,
    /// Something that holds the job's log open and is neither by its command line.
    Other,
}

/// What a Harbor process was told to do: decides how it takes signals.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verb {
    /// `harbor run`, `harbor job start`.
    Run,
    /// `harbor job resume`.
    Resume,
    /// `harbor trial start`.
    TrialStart,
    /// Another sub-command, in its words; empty when there is none to be seen.
    Other(String),
}

impl Verb {
    /// As one types it, without the program's name.
    pub fn words(&self) -> &str {
        match self {
            Verb::Run => "run",
            Verb::Resume => "job resume",
            Verb::TrialStart => "trial start",
            Verb::Other(words) => words,
        }
    }
}

/// A living process that works on a job. Texts are safe for a terminal and hold no secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// Its number on this host.
    pub pid: u32,
    /// Its start in clock ticks since boot; tells it from a later one with the same number.
    pub started: u64,
    /// Wall-clock time of its start.
    pub began: Option<Stamp>,
    /// Which program it is.
    pub program: Program,
    /// What it was told to do.
    pub verb: Verb,
    /// Its command line, shortened.
    pub command: String,
    /// Its working directory: what a later `harbor job resume` has to be started in.
    pub cwd: Option<PathBuf>,
    /// User that it runs as.
    pub uid: Option<u32>,
    /// `stdout`, `stderr`: those that go into a pipe.
    pub pipes: Vec<&'static str>,
    /// What SIGTERM does to it.
    pub term: Disposition,
    /// What SIGINT does to it.
    pub int: Disposition,
    /// How it was found, in words.
    pub evidence: String,
    /// What speaks against it, in words; nothing where all agrees.
    pub doubts: Vec<String>,
}

impl Owner {
    /// `harbor run (pid 123)`.
    pub fn name(&self) -> String {
        let program = match self.program {
            Program::Harbor => "harbor",
            Program::Pilothouse => "pilothouse",
            Program::Other => self.command.split(' ').next().unwrap_or("a process"),
        };
        let verb = self.verb.words();
        let gap = if verb.is_empty() { "" } else { " " };
        format!("{program}{gap}{verb} (pid {})", self.pid)
    }

    /// Whether it still lives.
    pub fn lives(&self) -> bool {
        process::start_time(self.pid) == Some(self.started)
    }
}

/// What a search for an owner came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// It is on this host.
    Here(Box<Owner>),
    /// Somebody works on it on another host or in another container, who can not be signalled from
    /// here; in words.
    Elsewhere(String),
    /// Nobody; the evidence in words.
    Nobody(String),
    /// Nobody on this host, but there may be others who write there. Why, and how long ago anything was
    /// written.
    Unknown(String, Option<Duration>),
}

impl Found {
    /// The owner, if it is on this host.
    pub fn here(&self) -> Option<&Owner> {
        match self {
            Found::Here(owner) => Some(owner),
            _ => None,
        }
    }

    /// Why nothing of the job may be moved or removed now; None when it may.
    pub fn forbids(&self) -> Option<String> {
        match self {
            Found::Here(owner) => Some(format!("{} works on it", owner.name())),
            Found::Elsewhere(who) => Some(format!("{who} works on it")),
            Found::Nobody(_) => None,
            Found::Unknown(_, Some(quiet)) if *quiet >= QUIET_ELSEWHERE => None,
            Found::Unknown(why, quiet) => {
                let last = quiet.map(|q| format!(", last write {} ago", time::words(q.as_secs_f64())));
                Some(format!("{why}{}: somebody may work on it", last.unwrap_or_default()))
            }
        }
    }

    /// The evidence for it, in words.
    pub fn evidence(&self) -> &str {
        match self {
            Found::Here(owner) => &owner.evidence,
            Found::Elsewhere(words) | Found::Nobody(words) | Found::Unknown(words, _) => words,
        }
    }

    /// In words.
    pub fn words(&self) -> String {
        match self {
            Found::Here(owner) => format!("{}: {}", owner.name(), owner.evidence),
            Found::Elsewhere(who) => who.clone(),
            Found::Nobody(why) => format!("nobody: {why}"),
            Found::Unknown(why, _) => why.clone(),
        }
    }
}

/// Looks for the process that works on a job.
pub fn find_owner(job_dir: &Path) -> Found {
    find_owner_in(job_dir, &Census::take())
}

/// As [`find_owner`], by a census that was taken a moment ago.
pub fn find_owner_in(job_dir: &Path, census: &Census) -> Found {
    let lease = match Dir::open(job_dir).and_then(|dir| lease::read(&dir)) {
        Ok(Reading::Note(note)) if !note.released => Some(note),
        _ => None,
    };
    if let Some(note) = &lease {
        match note.process() {
            Process::There => return Found::Here(Box::new(by_lease(note))),
            Process::Elsewhere => match beat_age(note) {
                // Clocks of two hosts differ; twice the patience forgives some of it.
                Some(age) if age > note.patience() * 2 => {}
                _ => return Found::Elsewhere(clean(&format!("pilothouse, {}", note.holder())).into_owned()),
            },
            Process::Gone => {}
        }
    }
    let seen = census.holders(job_dir);
    let mut owners: Vec<Owner> =
        seen.iter().filter_map(|o| o.started.map(|started| by_log(o.pid, started, job_dir))).collect();
    // Of several who hold the log, the harness; of several of those, the first: its children came later.
    owners.sort_by_key(|o| (o.program == Program::Other, o.started));
    if let Some(owner) = owners.into_iter().next() {
        return Found::Here(Box::new(owner));
    }
    let search = census.search(job_dir, fstype::of(job_dir).local);
    let has_log = job_dir.join("job.log").symlink_metadata().is_ok();
    match (search.conclusive, has_log, &lease) {
        (true, ..) => {
            let astray = search.stray.filter(|stray| !stray.here).map(|stray| {
                let writes = stray.writes.display().to_string();
                format!("; {} (pid {}) was told it, and writes into {}", stray.command, stray.pid, clean(&writes))
            });
            Found::Nobody(format!("no process on this host holds its job.log open{}", astray.unwrap_or_default()))
        }
        (false, false, Some(note)) if note.process() == Process::Gone => {
            Found::Nobody(clean(&format!("the holder of its lease, {}, is gone", note.holder())).into_owned())
        }
        (false, true, _) => Found::Unknown(
            "no process that can be seen from here holds its job.log open, but others may write there".to_string(),
            quiet(job_dir),
        ),
        (false, false, _) => {
            Found::Unknown("it has no job.log by which to find who works on it".to_string(), quiet(job_dir))
        }
    }
}

fn by_lease(note: &LeaseNote) -> Owner {
    let facts = process::look(note.pid, note.started);
    let evidence = format!("its lease (pilothouse.lease) names pid {}, which lives", note.pid);
    Owner { program: Program::Pilothouse, ..owner(note.pid, note.started, facts, evidence) }
}

fn by_log(pid: u32, started: u64, job_dir: &Path) -> Owner {
    let facts = process::look(pid, started);
    let evidence = format!("pid {pid} holds {} open for writing", clean(&job_dir.join("job.log").to_string_lossy()));
    let doubts = doubts(&facts, job_dir);
    Owner { doubts, ..owner(pid, started, facts, evidence) }
}

fn owner(pid: u32, started: u64, facts: Facts, evidence: String) -> Owner {
    let (program, verb) = recognise(&facts.argv);
    let line = facts.argv.join(" ");
    let masked = mask_secrets(&line);
    let mut command = clean(&masked).into_owned();
    if let Some((cut, _)) = command.char_indices().nth(COMMAND_CHARS) {
        command.truncate(cut);
        command.push('…');
    }
    Owner {
        pid,
        started,
        began: facts.began,
        program,
        verb,
        command,
        cwd: facts.cwd,
        uid: facts.uid,
        pipes: facts.pipes,
        term: facts.term,
        int: facts.int,
        evidence,
        doubts: Vec::new(),
    }
}

/// Program and sub-command by the words of a command line: `python …/harbor job resume -p x`.
pub fn recognise(argv: &[String]) -> (Program, Verb) {
    let base =
        |word: &String| Path::new(word).file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    // The interpreter and its flags come before the script.
    let named = |name: &str| argv.iter().take(6).position(|w| base(w) == name);
    let module = argv
        .iter()
        .position(|w| w == "-m")
        .filter(|at| argv.get(at + 1).is_some_and(|m| m == "harbor" || m.starts_with("harbor.")));
    let (program, at) = match (named("pilothouse"), named("harbor").or(named("hb")), module) {
        (Some(at), _, _) if at == 0 => (Program::Pilothouse, at),
        (_, Some(at), _) => (Program::Harbor, at),
        (_, _, Some(at)) => (Program::Harbor, at + 1),
        _ => return (Program::Other, Verb::Other(String::new())),
    };
    let mut words = argv.iter().skip(at + 1).map(String::as_str).skip_while(|w| w.starts_with('-'));
    let verb = match (words.next().unwrap_or_default(), words.next().unwrap_or_default()) {
        ("run", _) | ("job" | "jobs", "start") => Verb::Run,
        ("job" | "jobs", "resume") => Verb::Resume,
        ("trial" | "trials", "start") => Verb::TrialStart,
        (one, other) if !other.is_empty() && !other.starts_with('-') && one.len() < 20 => {
            Verb::Other(clean(&format!("{one} {other}")).chars().take(40).collect())
        }
        (one, _) => Verb::Other(clean(one).chars().take(40).collect()),
    };
    (program, verb)
}

/// What of the command line and the working directory does not fit this job.
fn doubts(facts: &Facts, job_dir: &Path) -> Vec<String> {
    let mut out = Vec::new();
    let (program, verb) = recognise(&facts.argv);
    if facts.argv.is_empty() {
        out.push("its command line can not be read".to_string());
        return out;
    }
    if program == Program::Other {
        out.push("its command line names neither harbor nor pilothouse".to_string());
    }
    let value = |names: &[&str]| {
        let mut words = facts.argv.iter();
        while let Some(word) = words.next() {
            if names.contains(&word.as_str()) {
                return words.next().cloned();
            }
            if let Some((name, value)) = word.split_once('=')
                && names.contains(&name)
            {
                return Some(value.to_string());
            }
        }
        None
    };
    let name = job_dir.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    if program == Program::Harbor
        && verb == Verb::Resume
        && let (Some(told), Some(cwd)) = (value(&["-p", "--job-path"]), &facts.cwd)
    {
        let there = std::fs::canonicalize(cwd.join(&told)).ok();
        if there.is_some() && there != std::fs::canonicalize(job_dir).ok() {
            out.push(clean(&format!("it was told to resume {told}, and this is another job dir")).into_owned());
        }
    }
    if program == Program::Harbor && verb == Verb::Run {
        if let Some(said) = value(&["--job-name"]).filter(|said| *said != name) {
            out.push(clean(&format!("it was started with --job-name {said}, and this is {name}")).into_owned());
        }
        let under = value(&["-o", "--jobs-dir"]);
        if let (Some(under), Some(cwd)) = (under, &facts.cwd) {
            let said = cwd.join(under);
            let there = std::fs::canonicalize(&said).ok();
            let parent = std::fs::canonicalize(job_dir).ok().and_then(|p| p.parent().map(Path::to_path_buf));
            if there.is_some() && parent.is_some() && there != parent {
                out.push(clean(&format!("it was started for jobs in {}", said.display())).into_owned());
            }
        }
    }
    out
}

fn beat_age(note: &LeaseNote) -> Option<Duration> {
    let at: Stamp = note.at.parse().ok()?;
    Some(time::age(at, Stamp::now()))
}

/// How long ago anything at the top of the job dir, or of one of its trials, was written.
fn quiet(job_dir: &Path) -> Option<Duration> {
    let dir = Dir::open(job_dir).ok()?;
    let mut newest = dir.stat("").ok()?.modified;
    for entry in dir.list().ok()? {
        let Some(name) = entry.name.to_str() else { continue };
        let times =
            [name.to_string(), format!("{name}/trial.log"), format!("{name}/agent"), format!("{name}/verifier")];
        for path in times {
            if let Ok(meta) = dir.stat(&path) {
                newest = newest.max(meta.modified);
            }
        }
    }
    Some(time::age(newest, Stamp::now()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_string).collect()
    }

    #[test]
    fn the_command_line_tells_program_and_verb() {
        let verb = |line: &str| recognise(&words(line));
        assert_eq!(verb("/x/bin/python /x/bin/harbor run -p tasks"), (Program::Harbor, Verb::Run));
        assert_eq!(verb("/x/python -I /x/harbor jobs start -c c.yaml"), (Program::Harbor, Verb::Run));
        assert_eq!(verb("python3 /x/harbor --debug job resume -p d"), (Program::Harbor, Verb::Resume));
        assert_eq!(verb("python3 -m harbor.cli.main trial start"), (Program::Harbor, Verb::TrialStart));
        assert_eq!(verb("python3 /x/harbor check t"), (Program::Harbor, Verb::Other("check t".into())));
        assert_eq!(verb("/usr/bin/pilothouse run -p t").0, Program::Pilothouse);
        assert_eq!(verb("tee -a job.log").0, Program::Other);
        assert_eq!(verb("python my_own_runner.py").0, Program::Other);
    }
}
