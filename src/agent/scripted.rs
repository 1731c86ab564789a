//! The agent that types what a script says: keystrokes with durations, in a terminal that is recorded
//! like any agent's. It calls no model.
//!
//! # The script
//! `solution/keys.json` of the task (of a step, its own `solution/keys.json`, else the task's): a list in
//! the order of typing.
//! ```json
//! [
//!   {"keys": "vi notes\n", "wait": 1},
//!   {"keys": "ihello", "wait": 0.5, "episode": 1},
//!   {"keys": "Escape"},
//!   {"keys": ":wq\n", "wait": 2}
//! ]
//! ```
//!
//! | field | what it is |
//! |---|---|
//! | `keys` | exactly the name of a key as tmux has it (`C-c`, `Enter`, `Up`; see [`crate::terminal::keys`]), or text that is typed as it is; empty only waits |
//! | `wait` | seconds until the next ones are typed, from when these are; 1 where it is missing, at most a day |
//! | `episode` | the episode that begins with them, from 0; higher than the one before. Where it is missing they belong to the present one; the first is 0 |
//!
//! Every episode has its marker in the recording. The agent has no say in the reward: when the script is
//! at its end its work is done, and the tests judge.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::de::{Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use tokio::time::{Instant, sleep};

use super::{Agent, Stage, Work, of_environment};
use crate::harbor::task::{Task, TaskStep};
use crate::harbor::write::raised::Raised;
use crate::harbor::write::result::AgentResult;
use crate::job::Stamp;
use crate::job::text::clean;
use crate::job::work::Doing;
use crate::terminal::{FILE_CAP, Recording, Session, SessionSpec};

/// Its name.
pub const NAME: &str = "scripted";
/// The script's name in a solution.
pub const FILE: &str = "keys.json";
/// Its raw bytes are where a Terminus-2 has them: readers know that name.
const PANE: &str = "terminus_2";
/// Longest script: 4 MiB.
const LONGEST: u64 = 4 << 20;
/// Seconds from one line to the next where the script says nothing.
const WAIT: f64 = 1.0;
/// Longest wait, in seconds.
const LONGEST_WAIT: f64 = 86_400.0;
/// For the first prompt: silence …
const QUIET: Duration = Duration::from_millis(150);
/// … and the most that is waited for it.
const PROMPT: Duration = Duration::from_secs(5);
/// While it waits, how often it looks whether the shell is there.
const LOOK: Duration = Duration::from_secs(1);
const DURING: &str = "the script's run";

/// Types what the task's script says.
#[derive(Debug, Clone, Copy)]
pub struct Scripted;

/// A line of a script.
#[derive(Debug, Clone, PartialEq)]
pub struct Keys {
    /// A key's name, or text.
    pub keys: String,
    /// Until the next line, from when these were typed.
    pub wait: Duration,
    /// Its episode, from 0.
    pub episode: u32,
}

/// A script: what is typed, in order.
#[derive(Debug, Clone, PartialEq)]
pub struct Script(pub Vec<Keys>);

/// Why there is no script to play, safe to show: the file, the line where one is wrong, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{at}: {why}; {remedy}")]
pub struct ScriptProblem {
    /// File, with line and column where there are any.
    at: String,
    why: String,
    remedy: &'static str,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawKeys {
    keys: String,
    #[serde(default, deserialize_with = "wait")]
    wait: Option<Duration>,
    #[serde(default)]
    episode: Option<u32>,
}

fn wait<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    let seconds = f64::deserialize(from)?;
    let given = Some(seconds).filter(|s| (0.0..=LONGEST_WAIT).contains(s));
    let given = given.ok_or_else(|| D::Error::custom(format!("a wait of {seconds} s: 0 to {LONGEST_WAIT}")))?;
    Ok(Some(Duration::from_secs_f64(given)))
}

impl<'de> Deserialize<'de> for Script {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Script, D::Error> {
        struct Lines;
        impl<'de> Visitor<'de> for Lines {
            type Value = Script;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of keys")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Script, A::Error> {
                let mut script: Vec<Keys> = Vec::new();
                while let Some(RawKeys { keys, wait, episode: given }) = list.next_element()? {
                    let last = script.last().map(|line| line.episode);
                    let episode = match (last, given) {
                        (_, None) => last.unwrap_or(0),
                        (Some(last), Some(given)) if given <= last => {
                            let why = format!("episode {given} behind episode {last}: they only go up");
                            return Err(A::Error::custom(why));
                        }
                        (None, Some(given)) if given > 0 => {
                            return Err(A::Error::custom(format!("the first episode is 0, not {given}")));
                        }
                        (_, Some(given)) => given,
                    };
                    let wait = wait.unwrap_or(Duration::from_secs_f64(WAIT));
                    script.push(Keys { keys, wait, episode });
                }
                if script.is_empty() {
                    return Err(A::Error::custom("no keys"));
                }
                Ok(Script(script))
            }
        }
        from.deserialize_seq(Lines)
    }
}

impl Script {
    /// The script of a step.
    ///
    /// # Errors
    /// See [`ScriptProblem`].
    pub fn of(task: &Task, step: &TaskStep) -> Result<Script, ScriptProblem> {
        let path = format!("{}/{FILE}", step.solution.as_deref().unwrap_or("solution"));
        let shown = clean(&task.dir.join(&path).to_string_lossy()).into_owned();
        let problem =
            |at: &str, why: String, remedy| ScriptProblem { at: at.to_string(), why: clean(&why).into_owned(), remedy };
        let text = match task.text(&path, LONGEST) {
            Ok(Some(text)) => text,
            Ok(None) => {
                let remedy = "write [{\"keys\": \"ls\\n\", \"wait\": 1}] there, leave the task out with -x, or take another agent";
                return Err(problem(&shown, "the scripted agent has no script".to_string(), remedy));
            }
            Err(e) => {
                let why = format!("{e} (at most {} MiB of text)", LONGEST >> 20);
                return Err(problem(&shown, why, "make it a file of JSON"));
            }
        };
        Script::parse(&text).map_err(|(line, column, why)| {
            let remedy = "mend it: a list of {\"keys\": text or a key's name, \"wait\": seconds, \"episode\": number}";
            problem(&format!("{shown}:{line}:{column}"), why, remedy)
        })
    }

    /// Reads a script; where it is wrong: line and column, from 1, and what.
    fn parse(text: &str) -> Result<Script, (usize, usize, String)> {
        serde_json::from_str(text.trim_start_matches('\u{feff}')).map_err(|e| {
            let whole = e.to_string();
            let place = format!(" at line {} column {}", e.line(), e.column());
            (e.line().max(1), e.column().max(1), whole.strip_suffix(&place).unwrap_or(&whole).to_string())
        })
    }
}

impl Agent for Scripted {
    fn name(&self) -> &str {
        NAME
    }

    fn version(&self) -> &str {
        "1.0.0"
    }

    fn setup<'a>(&'a self, _: &'a Stage<'a>) -> Work<'a, ()> {
        Box::pin(async { Ok(()) })
    }

    fn run<'a>(&'a self, stage: &'a Stage<'a>) -> Work<'a, AgentResult> {
        Box::pin(play(stage))
    }
}

async fn play(stage: &Stage<'_>) -> Result<AgentResult, Raised> {
    let failed = |e| of_environment(&e, DURING);
    // It was looked at when the job was planned, and may have changed since.
    let (task, step) = (stage.task.clone(), stage.step.clone());
    let script = apart(move || Script::of(&task, &step)).await?;
    let script = script.map_err(|e| Raised::new("ValueError", &e.to_string(), DURING))?;
    let mut desk = stage.desk.terminal().await;
    let spec = spec(stage);
    // A step may have another user than the one before.
    if let Some(other) = desk.take_if(|session| *session.spec() != spec) {
        other.close().await;
    }
    let session = match &mut *desk {
        Some(session) => {
            // Of the step before: the same shell, another recording.
            session.record(Some(begin_recording(stage).await?));
            session
        }
        empty => empty.insert(open(stage, spec).await?),
    };
    session.settle(QUIET, PROMPT).await;
    let mut present = None;
    let (mut entered, mut reopened) = (0_u32, 0_u32);
    for Keys { keys, wait, episode } in &script.0 {
        let until = Instant::now() + *wait;
        if present != Some(*episode) {
            present = Some(*episode);
            entered += 1;
            session.mark(u64::from(*episode));
        }
        stage.desk.report(report(entered, reopened));
        let since = Stamp::now();
        stage.desk.tell(|work| {
            work.episode = Some(entered);
            work.doing = Doing::Command { keys: keys.clone(), wait: wait.as_secs_f64(), since };
        });
        let sent = session.send(keys).await.map_err(failed)?;
        if sent.reopened.is_some() {
            reopened += 1;
            stage.desk.report(report(entered, reopened));
        }
        loop {
            // A container that is gone is told of at once, and not by the next keys.
            session.standing().await.map_err(failed)?;
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            sleep(left.min(LOOK)).await;
        }
    }
    Ok(report(entered, reopened))
}

async fn begin_recording(stage: &Stage<'_>) -> Result<Recording, Raised> {
    let (logs, cap) = (Arc::clone(stage.logs), stage.output_cap.min(FILE_CAP));
    let recording = apart(move || Recording::begin(&logs, PANE, cap)).await?;
    recording.map_err(|e| Raised::new("OSError", &e.to_string(), DURING))
}

fn spec(stage: &Stage<'_>) -> SessionSpec {
    let config = &stage.task.config;
    SessionSpec {
        user: config.agent_user(stage.task.spec(stage.step)).map(ToString::to_string),
        workdir: config.environment.workdir.clone(),
        env: stage.env.clone().into_iter().collect(),
    }
}

async fn open(stage: &Stage<'_>, spec: SessionSpec) -> Result<Session, Raised> {
    let recording = begin_recording(stage).await?;
    let opened = Session::open(Arc::clone(stage.environment), spec, Some(recording)).await;
    opened.map_err(|e| of_environment(&e, DURING))
}

/// What has no place in an asynchronous task.
async fn apart<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Raised> {
    tokio::task::spawn_blocking(work).await.map_err(|e| Raised::new("OSError", &e.to_string(), DURING))
}

fn report(episodes: u32, reopened: u32) -> AgentResult {
    let mut metadata = serde_json::Map::new();
    metadata.insert("n_episodes".to_string(), episodes.into());
    if reopened > 0 {
        metadata.insert("shells_reopened".to_string(), reopened.into());
    }
    AgentResult { metadata: Some(metadata), ..AgentResult::default() }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn scripts_are_read_with_their_defaults() {
        let text = r#"[{"keys": "ls\n", "wait": 0.5}, {"keys": "C-c", "episode": 2}, {"keys": "", "wait": 0}]"#;
        let line = |keys: &str, ms, episode| Keys { keys: keys.to_string(), wait: Duration::from_millis(ms), episode };
        let expected = vec![line("ls\n", 500, 0), line("C-c", 1000, 2), line("", 0, 2)];
        assert_eq!(Script::parse(text), Ok(Script(expected)));
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        let deep = "[".repeat(100_000);
        for (text, line, why) in [
            ("", 1, "EOF"),
            ("{}", 1, "a list of keys"),
            ("[]", 1, "no keys"),
            ("[\n{\"keys\": \"a\"},\n{\"keys\": 3}]", 3, "invalid type: integer"),
            ("[\n\n{\"key\": \"a\"}]", 3, "unknown field `key`"),
            ("[\n{\"wait\": 1}]", 2, "missing field `keys`"),
            ("[\n{\"keys\": \"a\", \"wait\": -1}]", 2, "a wait of -1 s"),
            ("[\n{\"keys\": \"a\", \"wait\": 1e300}]", 2, "a wait of"),
            ("[{\"keys\": \"a\", \"wait\": null}]", 1, "invalid type: null"),
            ("[{\"keys\": \"a\", \"episode\": -1}]", 1, "-1"),
            ("[{\"keys\": \"a\", \"episode\": 1}]", 1, "the first episode is 0"),
            ("[{\"keys\": \"a\"},\n{\"keys\": \"a\", \"episode\": 0}]", 2, "they only go up"),
            ("[{\"keys\": \"a\"}]\n]", 2, "trailing characters"),
            ("[{\"keys\": \"a\u{7}\"}]", 1, "control character"),
            (&*deep, 1, ""),
        ] {
            let (at, _, said) = Script::parse(text).unwrap_err();
            assert!(at == line && said.contains(why), "{text:.40}: {at} {said}");
        }
    }
}
