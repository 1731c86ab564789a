//! `pilothouse harbor list` and `pilothouse harbor attach`: what was started so.

use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::{HarborArgs, headless, shown, start};
use crate::cli::{Common, FINE, NEEDS_PERSON, USAGE, load};
use crate::job::text::{clean, mask_secrets};
use crate::supervise::{Record, State};

/// Lines of output that are shown of one that failed.
const TAIL: usize = 20;

fn state_dir() -> Option<PathBuf> {
    let found = crate::cli::state_dir();
    if found.is_none() {
        load::complain("harbor", &["no state dir: set HOME or PILOTHOUSE_STATE_DIR".to_string()]);
    }
    found
}

/// The words after the command, without our flags, which may stand there, too.
fn words(args: &HarborArgs) -> Result<(Vec<String>, bool), String> {
    let words = args.words.iter().skip(1).map(|w| w.to_string_lossy().into_owned());
    let (flags, words): (Vec<String>, Vec<String>) = words.partition(|w| w.starts_with('-'));
    let json = args.json || flags.iter().any(|f| f == "--json");
    match flags.iter().find(|f| *f != "--json") {
        Some(other) => Err(format!("{other}: only --json may stand here; other flags come before the command")),
        None => Ok((words, json)),
    }
}

/// Lists all of them, the newest first.
pub fn list(args: &HarborArgs) -> u8 {
    let Some(state_dir) = state_dir() else { return USAGE };
    let json = match words(args) {
        Ok((words, json)) if words.is_empty() => json,
        Ok(_) => {
            load::complain("harbor", &["list takes no arguments".to_string()]);
            return USAGE;
        }
        Err(why) => {
            load::complain("harbor", &[why]);
            return USAGE;
        }
    };
    let all = Record::all(&state_dir);
    if json {
        let list: Vec<Value> = all.iter().map(Record::json).collect();
        let whole = json!({"schema_version": 1, "harbors": list});
        load::print(&format!("{}\n", serde_json::to_string_pretty(&whole).unwrap_or_default()));
        return FINE;
    }
    if all.is_empty() {
        load::print("no harbor was started by pilothouse here\n");
        return FINE;
    }
    let mut out = String::new();
    for record in &all {
        let safe = |text: &str| clean(&mask_secrets(text)).into_owned();
        let dir = record.job_dir.as_ref().map_or("no job dir".to_string(), |d| safe(&d.to_string_lossy()));
        let mark = if record.unexpected() { ", not where it was asked to" } else { "" };
        let version = safe(record.version.as_deref().unwrap_or("-"));
        out.push_str(&format!(
            "{} pid {}  {}\n  {dir}{mark}\n  harbor {version} {}\n  output {}\n",
            safe(&record.began.chars().take(19).collect::<String>()),
            record.child.pid,
            record.state().words(),
            safe(&record.args.join(" ")),
            safe(&record.log.to_string_lossy()),
        ));
    }
    load::print(&out);
    FINE
}

/// How the harbor of a job dir ended that was started from here, where that is worth a word.
pub fn how_it_ended(dir: &Path) -> Option<String> {
    let record = Record::find(&crate::cli::state_dir()?, dir.to_str()?)?;
    match record.state() {
        State::Ended(ended) if ended.code == Some(0) => None,
        State::Ended(_) | State::Gone => {
            Some(format!("harbor {}; its output: {}", record.state().words(), record.log.display()))
        }
        State::Runs | State::Elsewhere => None,
    }
}

/// Shows one of them again, or tells how it ended.
pub fn attach(args: &HarborArgs, common: &Common) -> u8 {
    let Some(state_dir) = state_dir() else { return USAGE };
    let (word, json) = match words(args) {
        Ok((words, json)) => match words.as_slice() {
            [one] => (one.clone(), json),
            _ => {
                load::complain("harbor", &["attach takes one job dir, pid or id; see harbor list".to_string()]);
                return USAGE;
            }
        },
        Err(why) => {
            load::complain("harbor", &[why]);
            return USAGE;
        }
    };
    let Some(record) = Record::find(&state_dir, &word) else {
        let line = format!("{word}: pilothouse started no such harbor; a job dir of others: pilothouse attach {word}");
        load::complain("harbor", &[line]);
        return USAGE;
    };
    let state = record.state();
    let secrets = start::environment_secrets();
    let begun = |record: Record| start::Begun {
        record,
        remarks: Vec::new(),
        secrets: secrets.clone(),
        state_dir: state_dir.clone(),
    };
    if record.job_dir.is_none() && state != State::Runs {
        super::say(&format!("harbor {} before it made a job dir; its last words:", state.words()));
        let lines = record.tail(TAIL, &secrets);
        lines.iter().for_each(|line| super::say(&format!("  | {line}")));
        if json {
            load::print(&start::document(&begun(record), &lines, None));
        }
        return NEEDS_PERSON;
    }
    if json || args.headless || !(std::io::stdout().is_terminal() && std::io::stdin().is_terminal()) {
        let args = HarborArgs { json, ..args.clone() };
        return headless::follow(&args, begun(record));
    }
    if record.job_dir.is_none() {
        return start::wait(&args.clone(), begun(record), common);
    }
    if state != State::Runs {
        super::say(&format!("harbor {}; its output: {}", state.words(), record.log.display()));
    }
    shown::show(&args.serving, common, &record, &state_dir)
}
