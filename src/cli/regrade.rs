//! `pilothouse regrade`: the verifier of a trial runs again in its held container, without the agent.
//!
//! | part | what it does |
//! |---|---|
//! | [`source`] | the trial, its task, what is held of it; or why not, and what can be done instead |
//! | [`act`](mod@act) | the regrade itself: woken, graded, written down, put back to sleep |

pub mod act;
pub mod source;

use std::io::{IsTerminal, Write as _};
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};

use self::act::{Done, Failed, NetworkWish, Wish, words_of};
use self::source::{Refused, Source};
use super::{FINE, NEEDS_PERSON, SIGNAL, USAGE, load};
use crate::environment::docker::DockerEngine;
use crate::environment::{Held, HeldKind};
use crate::harbor::write::regrade::next_number;
use crate::job::text::{clean, json_for_terminal, path_text};
use crate::job::{Stamp, time};

/// Run the verifier of a trial again, in its held container, without the agent.
///
/// `run` holds the container of a native trial whose verifier can not be trusted: paused, with the agent's
/// processes and files as they were. It is woken, the tests are put in anew, the verifier runs, and the
/// container goes back to sleep. What comes of it is regrade-<n>.json in the trial's directory, never
/// result.json; `tally` takes it into the score `corrected`, never into `raw`.
///
/// Where only a snapshot is left, a new container is started of it: processes, and what lay in memory, are
/// lost, and the regrade says so. For a trial of Harbor's the command that can help is shown.
///
/// Exit code: 0 the verifier gave a reward, 1 it gave none or something needs a person, 2 wrong arguments or
/// nothing to grade again, 130 stopped by a signal.
#[derive(Debug, Clone, Args)]
pub struct RegradeArgs {
    /// Directory of the trial
    #[arg(value_name = "TRIAL_DIR")]
    pub dir: PathBuf,
    /// Another limit of the verifier in seconds; 0: none
    #[arg(long, value_name = "SECONDS", value_parser = super::run::floor)]
    pub timeout: Option<f64>,
    /// The network meanwhile: keep (as it was), none, or another of the engine's by its name (bridge)
    #[arg(long, value_name = "NETWORK", default_value = "keep")]
    pub network: String,
    /// A proxy for the verifier's downloads (http_proxy, https_proxy)
    #[arg(long, value_name = "URL")]
    pub proxy: Option<String>,
    /// A variable of the tests; of NAME alone the value is this process's. May be given several times
    #[arg(short = 'e', long = "env", value_name = "NAME[=VALUE]")]
    pub env: Vec<String>,
    /// Why, for the journal and the record
    #[arg(long, value_name = "TEXT", default_value = "the verifier's answer was not to be trusted")]
    pub reason: String,
    /// Remove the container, or the snapshot, afterwards; else it is held on
    #[arg(long)]
    pub release: bool,
    /// In the snapshot, though the container is held
    #[arg(long)]
    pub snapshot: bool,
    /// Where the task is, if not where it was
    #[arg(long, value_name = "DIR")]
    pub task: Option<PathBuf>,
    /// Though the task has changed since: such a regrade is listed and counts for nothing
    #[arg(long)]
    pub changed_task: bool,
    /// Only say what would be done
    #[arg(long)]
    pub dry_run: bool,
    /// Do not ask (needed when standard input is no terminal)
    #[arg(short = 'y', long)]
    pub yes: bool,
    /// Print one JSON document (schema_version 1)
    #[arg(long)]
    pub json: bool,
}

impl RegradeArgs {
    fn wish(&self) -> Result<Wish, String> {
        let network = match self.network.as_str() {
            "keep" => NetworkWish::Keep,
            "none" => NetworkWish::None,
            "" | "host" => return Err("--network: keep, none, or the name of a network of the engine's".to_string()),
            name => NetworkWish::Named(name.to_string()),
        };
        let mut env = Vec::new();
        for text in &self.env {
            let (name, value) = match text.split_once('=') {
                Some((name, value)) => (name, value.to_string()),
                None => match crate::harbor::task::host_variable(text) {
                    Some(value) => (text.as_str(), value),
                    None => return Err(format!("--env {}: no such variable here", clean(text))),
                },
            };
            if name.is_empty() || name.contains('\0') || value.contains('\0') {
                return Err(format!("--env {}: NAME or NAME=VALUE", clean(name)));
            }
            env.push((name.to_string(), value));
        }
        Ok(Wish {
            timeout: self.timeout.map(|s| if s == 0.0 { f64::INFINITY } else { s }),
            network,
            proxy: self.proxy.clone(),
            env,
            why: self.reason.clone(),
            release: self.release,
            changed_task: self.changed_task,
            from_snapshot: self.snapshot,
        })
    }
}

/// Runs the command; the exit code.
pub fn run(args: &RegradeArgs) -> u8 {
    let wish = match args.wish() {
        Ok(wish) => wish,
        Err(why) => return refuse(args, &Refused { why, offers: Vec::new() }),
    };
    match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime.block_on(act_on(args, &wish)),
        Err(error) => {
            load::complain("regrade", &[format!("no event loop: {error}")]);
            NEEDS_PERSON
        }
    }
}

async fn act_on(args: &RegradeArgs, wish: &Wish) -> u8 {
    let engine = match DockerEngine::connect().await {
        Ok(engine) => Some(engine),
        // What is Harbor's needs none to be told so.
        Err(error) => return refuse(args, &without_engine(args, &error.to_string())),
    };
    let Some(engine) = engine else { return NEEDS_PERSON };
    let state = super::state_dir();
    let source = match Source::look(&args.dir, args.task.as_deref(), state.as_deref(), &engine).await {
        Ok(source) => source,
        Err(refused) => return refuse(args, &refused),
    };
    let Some(state) = state else {
        let why = "no place for locks and journals: set HOME or PILOTHOUSE_STATE_DIR".to_string();
        return refuse(args, &Refused { why, offers: Vec::new() });
    };
    say(args, &plan(&source, wish).join("\n"));
    if args.dry_run {
        return FINE;
    }
    if !args.yes {
        if !std::io::stdin().is_terminal() {
            let why = "nothing is done: standard input is no terminal, so give -y".to_string();
            return refuse(args, &Refused { why, offers: Vec::new() });
        }
        if !super::stop::ask("Run the verifier again?") {
            return FINE;
        }
    }
    let signals = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()), signal(SignalKind::hangup()));
    let (Ok(mut interrupt), Ok(mut terminate), Ok(mut hangup)) = signals else {
        load::complain("regrade", &["signals can not be caught".to_string()]);
        return NEEDS_PERSON;
    };
    let stop = async {
        // A lost terminal ends nothing.
        loop {
            tokio::select! {
                _ = interrupt.recv() => return,
                _ = terminate.recv() => return,
                _ = hangup.recv() => {}
            }
        }
    };
    let tell = |line: &str| say(args, line);
    match act::act(&source, wish, (&engine, &state), stop, &tell).await {
        Ok(done) => {
            if wish.release {
                let gone: Vec<&Held> = source.held.iter().filter(|h| h.kept.name == done.file.environment).collect();
                super::held::tidy(&engine, &gone).await.iter().for_each(|line| tell(line));
            }
            if args.json {
                load::print(&document(&source, &done));
            } else {
                load::print(&format!("{}\n", words(&done).join("\n")));
            }
            if done.file.exception_info.is_none() { FINE } else { NEEDS_PERSON }
        }
        Err(Failed::Stopped) => {
            say(args, "stopped: nothing was written, the container is held on");
            SIGNAL
        }
        Err(Failed::Refused(why)) => {
            refuse(args, &Refused { why, offers: Vec::new() });
            NEEDS_PERSON
        }
    }
}

/// Docker is away: whether that matters.
fn without_engine(args: &RegradeArgs, error: &str) -> Refused {
    match Source::of_harbor(&args.dir) {
        Some(refused) => refused,
        None => Refused { why: error.to_string(), offers: Vec::new() },
    }
}

/// What is done, line by line: for people, before they are asked.
pub fn plan(source: &Source, wish: &Wish) -> Vec<String> {
    let held = match wish.from_snapshot {
        true => source.held.iter().rev().find(|h| h.kind == HeldKind::Snapshot),
        false => source.best(),
    };
    let mut out = vec![format!("trial {}", clean(&source.trial))];
    let reward = source.result.rewards.primary().map_or("no reward".to_string(), |r| format!("reward {r}"));
    let kind = source.result.exception_type().map(|kind| format!(", {}", clean(kind))).unwrap_or_default();
    out.push(format!("its result: {reward}{kind}; it stays as it is"));
    for regrade in &source.before {
        out.push(format!("before: {}", clean(&regrade.words())));
    }
    match held {
        None => out.push("nothing of it is held".to_string()),
        Some(held) => {
            out.push(held_line(held, Stamp::now()));
            out.push(match held.kind {
                HeldKind::Container => {
                    "the container is woken, what the verifier left running is ended, /tests is made anew; the agent \
                     does not run again"
                        .to_string()
                }
                HeldKind::Snapshot => "a new container is started of the snapshot: processes, and what lay in memory, \
                                       are lost, and the regrade says so"
                    .to_string(),
            });
        }
    }
    let limit = wish.timeout.or(source.limit).filter(|s| s.is_finite());
    let limit = limit.map_or("without a limit".to_string(), |s| format!("for at most {}", time::words(s)));
    let mut how = vec![format!("the verifier runs {limit}")];
    match &wish.network {
        NetworkWish::Keep => how.push("network as it was".to_string()),
        other => how.push(format!("network {}", clean(other.word()))),
    }
    if wish.proxy.is_some() {
        how.push("with a proxy".to_string());
    }
    if !wish.env.is_empty() {
        let names: Vec<_> = wish.env.iter().map(|(name, _)| clean(name)).collect();
        how.push(format!("variables {}", names.join(", ")));
    }
    out.push(how.join(", "));
    let dir = clean(&path_text(&source.dir)).into_owned();
    let n = self::source::folder(&source.dir).ok().and_then(|folder| next_number(&folder).ok());
    let n = n.map_or("<n>".to_string(), |n| n.to_string());
    out.push(format!("what comes of it is written to {dir}/regrade-{n}.json"));
    out.push(match wish.release {
        true => "then it is removed".to_string(),
        false => "then it is held on, paused".to_string(),
    });
    if source.task_changed {
        out.push("! its task has changed since: the regrade would count for nothing".to_string());
    }
    out
}

/// A held thing in a line.
pub fn held_line(held: &Held, now: Stamp) -> String {
    let age = held.since.map_or("-".to_string(), |since| time::words(time::age(since, now).as_secs_f64()));
    let expired = if held.expired(now) { ", expired" } else { "" };
    let why = match held.why() {
        why if why.is_empty() => "why is not on record".to_string(),
        why => why,
    };
    format!("{} {} ({}), held for {age}{expired}: {why}", held.kind.word(), clean(&held.kept.name), held.state())
}

/// The outcome, line by line.
pub fn words(done: &Done) -> Vec<String> {
    let file = &done.file;
    let before = match (&file.original.reward, &file.original.exception_type) {
        (Some(reward), _) => format!("raw {reward}"),
        (None, Some(kind)) => format!("raw no reward ({})", clean(kind)),
        (None, None) => "raw no reward".to_string(),
    };
    let now = match (&file.exception_info, &file.verifier_result) {
        (Some(x), _) => format!("{}: {}", clean(&x.exception_type), clean(&x.exception_message)),
        (None, Some(result)) => words_of(result.rewards.as_ref()),
        (None, None) => "no reward".to_string(),
    };
    let lost = if file.processes_lost { " (processes lost)" } else { "" };
    vec![
        format!("{before}, regrade {}: {now}{lost}", file.n),
        format!("written to {}", clean(&path_text(&done.path))),
        done.after.clone(),
    ]
}

fn document(source: &Source, done: &Done) -> String {
    let mut value = serde_json::to_value(&done.file).unwrap_or(Value::Null);
    if let Some(fields) = value.as_object_mut() {
        fields.insert("trial_dir".to_string(), json!(path_text(&source.dir)));
        fields.insert("file".to_string(), json!(path_text(&done.path)));
        fields.insert("after".to_string(), json!(done.after));
        fields.insert("refused".to_string(), Value::Null);
    }
    text(&value)
}

fn text(value: &Value) -> String {
    let text = serde_json::to_string_pretty(value).unwrap_or_default();
    format!("{}\n", json_for_terminal(&text))
}

/// Says why nothing is done, and what can be.
fn refuse(args: &RegradeArgs, refused: &Refused) -> u8 {
    if args.json {
        let offers: Vec<Value> =
            refused.offers.iter().map(|(command, what)| json!({"command": command, "what": what})).collect();
        let dir = path_text(Path::new(&args.dir));
        load::print(&text(&json!({
            "schema_version": 1, "trial_dir": dir, "refused": refused.why, "offers": offers,
        })));
        return USAGE;
    }
    load::complain("regrade", std::slice::from_ref(&refused.why));
    for (command, what) in &refused.offers {
        load::complain("regrade", &[format!("  {command}"), format!("    {what}")]);
    }
    USAGE
}

fn say(args: &RegradeArgs, line: &str) {
    if args.json {
        let _ = writeln!(std::io::stderr(), "{line}");
    } else {
        load::print(&format!("{line}\n"));
    }
}
