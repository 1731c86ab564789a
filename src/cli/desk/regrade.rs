//! Regrades on the screen's word: what is held, and a process of its own that runs the verifier again. It
//! goes on when the screen is left.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use serde_json::Value;

use super::Shared;
use crate::app::helm::{News, Regradable, RegradeProgress};
use crate::cli::regrade::act::{NetworkWish, Wish};
use crate::cli::regrade::plan;
use crate::cli::regrade::source::{Refused, Source};
use crate::environment::docker::DockerEngine;
use crate::job::TrialKey;
use crate::job::text::clean;

/// Most bytes taken of what the process prints.
const PRINTED: u64 = 4 << 20;

/// What is held of a trial, and what a regrade would do.
pub(super) fn look(dir: &Path) -> Regradable {
    let no = |why: String| Regradable::No { why, offers: Vec::new() };
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return no(format!("no event loop: {error}")),
    };
    let wish = Wish {
        timeout: None,
        network: NetworkWish::Keep,
        proxy: None,
        env: Vec::new(),
        why: String::new(),
        release: false,
        changed_task: false,
        from_snapshot: false,
    };
    let found = runtime.block_on(async {
        let engine = match DockerEngine::connect().await {
            Ok(engine) => engine,
            Err(error) => {
                let refused = Source::of_harbor(dir);
                return Err(refused.unwrap_or(Refused { why: error.to_string(), offers: Vec::new() }));
            }
        };
        Source::look(dir, None, crate::cli::state_dir().as_deref(), &engine).await
    });
    match found {
        Ok(source) if source.task_changed => no(format!(
            "its task has changed since ({}): pilothouse regrade --changed-task runs it all the same, and it counts \
             for nothing",
            clean(&source.task.dir.to_string_lossy())
        )),
        Ok(source) => {
            let kind = source.best().map_or("container", |held| held.kind.word()).to_string();
            let mut lines = plan(&source, &wish);
            // The trial is named above, and what happens afterwards is the operator's choice.
            lines.retain(|line| !line.starts_with("trial ") && !line.starts_with("then it is "));
            Regradable::Yes { lines, kind }
        }
        Err(Refused { why, offers }) => Regradable::No { why, offers },
    }
}

impl Shared {
    /// Starts it, and tells what becomes of it.
    pub(super) fn regrade(&self, trial: &TrialKey, dir: &Path, release: bool) {
        let tell = |progress| self.tell(News::Regrade(trial.clone(), progress));
        let program = match std::env::current_exe() {
            Ok(program) => program,
            Err(error) => return tell(RegradeProgress::Failed(error.to_string())),
        };
        let mut command = Command::new(program);
        command.arg("regrade").arg(dir).args(["--yes", "--json", "--reason", "asked for on the screen"]);
        if release {
            command.arg("--release");
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let mut child = match command.spawn() {
            Ok(child) => child,
            Err(error) => return tell(RegradeProgress::Failed(error.to_string())),
        };
        // What it says on its way, then its document; neither fills a pipe before the other is read: the
        // document comes last, and is small.
        let mut last = String::new();
        if let Some(said) = child.stderr.take() {
            for line in BufReader::new(said.take(PRINTED)).lines().map_while(Result::ok) {
                let line = clean(&line).into_owned();
                tell(RegradeProgress::Told(Arc::from(line.as_str())));
                last = line;
            }
        }
        let mut printed = Vec::new();
        if let Some(out) = child.stdout.take() {
            let _ = out.take(PRINTED).read_to_end(&mut printed);
        }
        let ended = child.wait();
        let document: Value = serde_json::from_slice(&printed).unwrap_or(Value::Null);
        tell(match (outcome(&document), ended) {
            (Some(done), _) => done,
            (None, Ok(status)) => RegradeProgress::Failed(format!("{status}; {last}")),
            (None, Err(error)) => RegradeProgress::Failed(error.to_string()),
        });
    }
}

/// What a document says.
fn outcome(document: &Value) -> Option<RegradeProgress> {
    let text = |path: &[&str]| path.iter().try_fold(document, |at, key| at.get(key))?.as_str().map(clean);
    if let Some(why) = text(&["refused"]) {
        return Some(RegradeProgress::Failed(why.into_owned()));
    }
    let n = document.get("n")?.as_u64()?;
    let number = |value: Option<&Value>| value.and_then(Value::as_f64).map(|n| n.to_string());
    let raw = number(document.get("original").and_then(|o| o.get("reward"))).unwrap_or("no reward".to_string());
    let rewards = document.get("verifier_result").and_then(|v| v.get("rewards")).and_then(Value::as_object);
    let primary = rewards.and_then(|r| r.get("reward").or_else(|| if r.len() == 1 { r.values().next() } else { None }));
    let now = match text(&["exception_info", "exception_type"]) {
        Some(kind) => kind.into_owned(),
        None => number(primary).unwrap_or("no reward".to_string()),
    };
    let after = text(&["after"]).unwrap_or_default();
    Some(RegradeProgress::Done(format!("raw {raw}, regrade {n}: {now}; {after}")))
}
