//! `pilothouse requeue <job dir>`: runs trials again in a new job.

mod text;

use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::{Value, json};

use super::{FINE, INFRA, NEEDS_PERSON, SIGNAL, USAGE, load};
use crate::follow::Options as FollowOptions;
use crate::harbor::Dir;
use crate::job::text::path_text;
use crate::job::{Class, Fleet, JobKey};
use crate::requeue::plan::{Ask, Prepared};
use crate::requeue::{Plan, Started, Surroundings, Terms, Wanted, prepare, source, start_with};
use crate::triage::Classifier;

/// How far a lineage is followed.
const GENERATIONS: usize = 20;
/// Between two looks at a job that was started.
const LOOK: Duration = Duration::from_millis(500);
/// What `--help` says at its end.
const ABOUT: &str = "\
Never in place: the old job stays as it is, and `pilothouse tally OLD NEW` counts both as one. Harbor's
jobs are run by the installed harbor (--harbor, PILOTHOUSE_HARBOR, or the PATH), pilothouse's own by this
program. The endpoint of the model is no part of what a trial is: --api-base replaces it.

What has a valid reward, ran into its time limit, failed by the agent's own doing, or failed the same way
three times over all requeues and retries stays as it is, unless --force --reason TEXT.

Keys are not on disk: those that the job's config names must be exported; on a terminal they are asked
for. They go into the new job's environment and into no file.

Exit codes: 0 all that was requeued has ended and nothing needs a person (or nothing was to be
requeued); 1 something does; 2 wrong arguments, a key that is not exported, or nothing that may be
requeued; 3 infrastructure errors among the new results; 130 stopped by a signal.";

/// Run trials again: a new, small job of the same harness with only their tasks.
///
/// Shows what would be run, what differs from before and the exact command, and asks first.
#[derive(Debug, Clone, Args)]
#[command(after_long_help = ABOUT)]
pub struct RequeueArgs {
    /// Job dirs; requeues of theirs that their journals name are read, too
    #[arg(required = true, value_name = "JOB_DIR")]
    pub dirs: Vec<PathBuf>,
    /// Run this trial again, by the name of its directory or of its task (repeatable)
    #[arg(long, value_name = "NAME")]
    pub trial: Vec<String>,
    /// Run all trials of class infra again, suspected or confirmed
    #[arg(long)]
    pub infra: bool,
    /// Run all trials again that have no reward for want of their surroundings: infra, cancelled, without
    /// result, or with an empty one
    #[arg(long)]
    pub unscored: bool,
    /// Another address of the model's endpoint
    #[arg(long, value_name = "URL")]
    pub api_base: Option<String>,
    /// Trials at a time, if not as many as before
    #[arg(short = 'n', long = "n-concurrent", value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub n_concurrent: Option<u32>,
    /// Run even what has a valid reward, had its time, or failed alike too often; needs --reason
    #[arg(long, requires = "reason")]
    pub force: bool,
    /// Why, for the journal
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
    /// What was wrong with the config or a key is mended: run trials of class config, too
    #[arg(long)]
    pub config_fixed: bool,
    /// The harbor program
    #[arg(long, value_name = "PATH")]
    pub harbor: Option<PathBuf>,
    /// Print the plan, start nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Print one JSON document (schema_version 1) at the end; all else on standard error
    #[arg(long)]
    pub json: bool,
    /// Do not ask before starting (needed when standard input is no terminal)
    #[arg(short = 'y', long)]
    pub yes: bool,
    /// Do not wait for the end
    #[arg(long)]
    pub detach: bool,
}

/// Runs the command; the exit code.
pub fn run(args: &RequeueArgs) -> u8 {
    let complain = |lines: &[String]| load::complain("requeue", lines);
    if args.trial.is_empty() && !args.infra && !args.unscored {
        complain(&["nothing is named: --trial NAME, --infra or --unscored".to_string()]);
        return USAGE;
    }
    if args.force && args.reason.as_deref().is_none_or(|r| r.trim().is_empty()) {
        complain(&["--force needs a reason: --reason TEXT".to_string()]);
        return USAGE;
    }
    let Some(state_dir) = super::state_dir() else {
        complain(&["no place for the config: set PILOTHOUSE_STATE_DIR, XDG_STATE_HOME or HOME".to_string()]);
        return USAGE;
    };
    let classifier = match super::classes::load(None) {
        Ok(classifier) => classifier,
        Err(error) => {
            complain(&[error.to_string()]);
            return USAGE;
        }
    };
    let (fleet, named) = match read(&args.dirs, &classifier) {
        Ok(read) => read,
        Err(errors) => {
            complain(&errors);
            return USAGE;
        }
    };
    let mut prepared = Prepared::default();
    let around = Surroundings::of(&state_dir, args.harbor.as_deref());
    for key in named {
        // Of a family each member names the same trials.
        if prepared.plans.iter().any(|plan| crate::requeue::select::family(&fleet, key).contains(&plan.job)) {
            continue;
        }
        let reserved = prepared.plans.iter().map(|plan| plan.name.clone()).collect();
        let ask = Ask { reserved, ..ask(args) };
        let one = prepare(&fleet, key, &wanted(args), &terms(args), &ask, &around, load::now());
        prepared.plans.extend(one.plans);
        prepared.refused.extend(one.refused);
        prepared.notes.extend(one.notes);
    }
    act(args, &state_dir, &prepared, &classifier)
}

fn wanted(args: &RequeueArgs) -> Wanted {
    let trials =
        args.trial.iter().map(|t| Arc::from(t.trim_end_matches('/').rsplit('/').next().unwrap_or(t))).collect();
    Wanted { trials, infra: args.infra, unscored: args.unscored }
}

fn terms(args: &RequeueArgs) -> Terms {
    let force = args.reason.as_deref().filter(|_| args.force).map(Arc::from);
    Terms { force, config_fixed: args.config_fixed, ..Terms::default() }
}

fn ask(args: &RequeueArgs) -> Ask {
    let reason = args.reason.as_deref().map(|r| Arc::from(r.trim()));
    Ask { api_base: args.api_base.clone(), n_concurrent: args.n_concurrent, reason, ..Ask::default() }
}

/// The jobs that were named with all that belongs to their lineage, classified.
fn read(dirs: &[PathBuf], classifier: &Classifier) -> Result<(Fleet, Vec<JobKey>), Vec<String>> {
    let absolute = |dir: &PathBuf| std::path::absolute(dir).unwrap_or_else(|_| dir.clone());
    let named: Vec<PathBuf> = dirs.iter().map(absolute).collect();
    let mut roots = named.clone();
    let mut fleet = load::scan(&roots, FollowOptions::default())?;
    for _ in 0..GENERATIONS {
        let more = source::relatives(&fleet);
        if more.is_empty() {
            break;
        }
        roots.extend(more);
        fleet = load::scan(&roots, FollowOptions::default())?;
    }
    load::classify(classifier, &mut fleet, load::now());
    let is_named = |dir: &Path| named.iter().any(|n| dir.starts_with(n));
    let keys = fleet.jobs().iter().filter(|j| is_named(&j.facts.dir)).map(|j| j.key).collect();
    Ok((fleet, keys))
}

/// Says a line: on standard output, or on standard error where that is for the document.
fn say(args: &RequeueArgs, text: &str) {
    let text = format!("{}\n", text.trim_end());
    if args.json {
        let _ = std::io::stderr().write_all(text.as_bytes());
    } else {
        load::print(&text);
    }
}

fn document(prepared: &Prepared, started: &[Value]) -> String {
    let clean = |s: &str| crate::job::text::clean(&crate::job::text::mask_secrets(s)).into_owned();
    let refused: Vec<Value> = prepared
        .refused
        .iter()
        .map(|r| json!({"trial": clean(&r.trial), "task": clean(&r.task), "why": clean(&r.why), "way": r.way.words()}))
        .collect();
    let document = json!({
        "schema_version": 1,
        "plans": prepared.plans.iter().map(Plan::json).collect::<Vec<_>>(),
        "refused": refused,
        "notes": prepared.notes.iter().map(|n| clean(n)).collect::<Vec<_>>(),
        "started": started,
    });
    format!("{}\n", serde_json::to_string_pretty(&document).unwrap_or_default())
}

fn act(args: &RequeueArgs, state_dir: &Path, prepared: &Prepared, classifier: &Classifier) -> u8 {
    say(args, &text::prepared(prepared));
    let mut started = Vec::new();
    let code = begin(args, state_dir, prepared, &mut started, classifier);
    if args.json {
        load::print(&document(prepared, &started));
    }
    code
}

fn begin(
    args: &RequeueArgs,
    state_dir: &Path,
    prepared: &Prepared,
    started: &mut Vec<Value>,
    classifier: &Classifier,
) -> u8 {
    let named = !args.trial.is_empty();
    if prepared.plans.is_empty() {
        // A sweep that finds nothing is good news; a name that may not be run is not.
        return if named || !prepared.refused.is_empty() { USAGE } else { FINE };
    }
    let asking = !args.dry_run && std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
    let problems = prepared.plans.iter().any(|plan| !plan.problems.is_empty());
    let keys = if asking && !problems { ask_keys(&prepared.plans) } else { Vec::new() };
    let given = |name: &String| keys.iter().any(|(key, _)| key == name);
    let met = |plan: &&Plan| plan.problems.is_empty() && plan.missing.iter().all(given);
    let obstacles: Vec<String> = prepared.plans.iter().filter(|plan| !met(plan)).flat_map(Plan::obstacles).collect();
    if !obstacles.is_empty() {
        let mut lines = obstacles;
        lines.dedup();
        load::complain("requeue", &lines);
        return USAGE;
    }
    if args.dry_run {
        return FINE;
    }
    let trials: usize = prepared.plans.iter().map(|p| p.rows.len()).sum();
    if !args.yes {
        if !std::io::stdin().is_terminal() {
            load::complain("requeue", &["nothing was started: standard input is no terminal: give -y".to_string()]);
            return USAGE;
        }
        if !super::stop::ask(&format!("Run {trials} trials again as planned?")) {
            return FINE;
        }
    }
    let mut code = FINE;
    for plan in &prepared.plans {
        match start_with(plan, state_dir, &keys) {
            Ok(mut job) => {
                say(args, &format!("started {} (pid {}), its output is in {}", plan.name, job.pid, job.log.display()));
                if !job.journal.starts_with(&plan.source) {
                    say(args, &format!("the job dir can not be appended to: noted in {}", job.journal.display()));
                }
                code = code.max(follow(args, &mut job, started, classifier));
            }
            Err(error) => {
                load::complain("requeue", &[error.to_string()]);
                code = code.max(NEEDS_PERSON);
            }
        }
    }
    let dirs: Vec<String> = prepared
        .plans
        .iter()
        .flat_map(|p| [&p.source, &p.dir])
        .map(|dir| crate::requeue::quoted(&dir.to_string_lossy()))
        .collect();
    let mut dirs = dirs;
    let mut seen = std::collections::BTreeSet::new();
    dirs.retain(|dir| seen.insert(dir.clone()));
    say(args, &format!("count all of it: pilothouse tally {}", dirs.join(" ")));
    code
}

/// Asks for the keys that are not on disk, without showing what is typed. They stay in memory.
fn ask_keys(plans: &[Plan]) -> Vec<(String, String)> {
    let names: std::collections::BTreeSet<&String> = plans.iter().flat_map(|plan| &plan.missing).collect();
    let mut out = Vec::new();
    for name in names {
        let name_shown = crate::job::text::clean(name);
        let value = hidden_line(&format!("{name_shown} is not set here; its value (not shown, empty to give up): "));
        let _ = writeln!(std::io::stderr());
        match value.filter(|value| !value.is_empty()) {
            Some(value) => out.push((name.clone(), value)),
            None => break,
        }
    }
    out
}

/// A line of standard input with the terminal's echo off. None when there is none, or after Ctrl-C, which
/// must not leave the terminal without its echo.
fn hidden_line(prompt: &str) -> Option<String> {
    use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, tcgetattr, tcsetattr};
    const CTRL_C: u8 = 3;
    let stdin = std::io::stdin();
    let before = tcgetattr(&stdin).ok()?;
    let mut silent = before.clone();
    silent.local_modes.remove(LocalModes::ECHO | LocalModes::ISIG);
    silent.special_codes[SpecialCodeIndex::VEOL] = CTRL_C;
    tcsetattr(&stdin, OptionalActions::Flush, &silent).ok()?;
    // Only now: whoever types at once is not shown either.
    let mut err = std::io::stderr();
    let _ = write!(err, "{prompt}").and_then(|()| err.flush());
    let mut line = Vec::new();
    let mut block = [0; 4096];
    while !line.ends_with(b"\n") && !line.ends_with(&[CTRL_C]) {
        match rustix::io::read(&stdin, &mut block) {
            Ok(n) if n > 0 => line.extend_from_slice(block.get(..n).unwrap_or_default()),
            _ => break,
        }
    }
    let _ = tcsetattr(&stdin, OptionalActions::Now, &before);
    let line = String::from_utf8(line).ok()?;
    let line = line.trim_end_matches(['\r', '\n']);
    (!line.contains(|c: char| c.is_control())).then(|| line.trim().to_string())
}

/// Waits: for the directory when detached, else for the end, with a line for each change.
fn follow(args: &RequeueArgs, job: &mut Started, started: &mut Vec<Value>, classifier: &Classifier) -> u8 {
    let mut ears = Ears::new();
    let total = job.plan().rows.len();
    let mut shown = usize::MAX;
    let began = Instant::now();
    let ended = loop {
        let ended = match job.look() {
            Ok(ended) => ended,
            Err(error) => {
                load::complain("requeue", &[error.to_string()]);
                break None;
            }
        };
        if job.begun() && !args.detach {
            let done = results(&job.dir);
            if done != shown {
                shown = done;
                say(
                    args,
                    &format!("{done} of {total} trials have ended, after {:.0} s", began.elapsed().as_secs_f64()),
                );
            }
        }
        if ended.is_some() || args.detach && job.begun() {
            break ended;
        }
        let heard = match &mut ears {
            Some(ears) => ears.wait(LOOK),
            None => {
                std::thread::sleep(LOOK);
                false
            }
        };
        if heard {
            say(args, &format!("{} goes on without being waited for (pid {})", job.plan().name, job.pid));
            started.push(
                json!({"job_dir": path_text(&job.dir), "pid": job.pid, "log": path_text(&job.log), "ended": null}),
            );
            return SIGNAL;
        }
    };
    started.push(json!({
        "job_dir": path_text(&job.dir), "pid": job.pid, "log": path_text(&job.log), "journal": path_text(&job.journal),
        "ended": ended.map(|status| status.to_string()),
    }));
    if args.detach && ended.is_none() {
        return FINE;
    }
    if !job.dir.is_dir() {
        let log = std::fs::read_to_string(&job.log).unwrap_or_default();
        let last: Vec<String> = log.lines().rev().take(5).map(str::to_string).collect();
        let mut lines = vec![format!("{} did not begin; the end of {}:", job.plan().name, job.log.display())];
        lines.extend(last.into_iter().rev());
        load::complain("requeue", &lines);
        return NEEDS_PERSON;
    }
    outcome(args, job, classifier)
}

/// Trials of a job that have a result.
fn results(dir: &Path) -> usize {
    let Ok(job) = Dir::open(dir) else { return 0 };
    let entries = job.list().unwrap_or_default();
    entries.iter().filter(|e| job.stat(&format!("{}/result.json", e.name.to_string_lossy())).is_ok()).count()
}

/// What came of the new job.
fn outcome(args: &RequeueArgs, job: &Started, classifier: &Classifier) -> u8 {
    let dirs = std::slice::from_ref(&job.dir);
    let Ok(fleet) = load::scan_classified(dirs, FollowOptions::default(), classifier) else { return NEEDS_PERSON };
    let Some(new) = fleet.jobs().first() else { return NEEDS_PERSON };
    let wanted = job.plan().rows.len();
    let (mut passed, mut infra, mut bare) = (0, 0, 0);
    for trial in new.trials.values() {
        let Some(result) = &trial.result else { continue };
        let class = new.class_of(trial).map(|c| c.class);
        passed += usize::from(result.grade() == crate::job::Grade::Passed);
        let of_surroundings = class.map_or(result.is_of_environment(), |class| class == Class::Infra);
        infra += usize::from(of_surroundings);
        bare += usize::from(!result.has_valid_reward() && !of_surroundings);
    }
    let ended = new.trials.values().filter(|t| t.result.is_some()).count();
    say(
        args,
        &format!("{}: {ended} of {wanted} trials have ended, {passed} passed, {infra} of them infra", new.facts.name),
    );
    match () {
        () if infra > 0 => INFRA,
        () if ended < wanted || bare > 0 => NEEDS_PERSON,
        () => FINE,
    }
}

/// The signals that end this process. The job does not hear of them.
struct Ears {
    runtime: tokio::runtime::Runtime,
    signals: Vec<tokio::signal::unix::Signal>,
}

impl Ears {
    fn new() -> Option<Ears> {
        use tokio::signal::unix::{SignalKind, signal};
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
        let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
        let signals = {
            let _inside = runtime.enter();
            kinds.into_iter().filter_map(|kind| signal(kind).ok()).collect()
        };
        Some(Ears { runtime, signals })
    }

    /// Waits; true when a signal came.
    fn wait(&mut self, time: Duration) -> bool {
        let signals = &mut self.signals;
        self.runtime.block_on(async {
            let heard = std::future::poll_fn(|context| {
                let any = signals.iter_mut().any(|signal| signal.poll_recv(context).is_ready());
                if any { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
            });
            tokio::time::timeout(time, heard).await.is_ok()
        })
    }
}
