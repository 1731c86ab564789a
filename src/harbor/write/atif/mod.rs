//! Trajectories in the Agent Trajectory Interchange Format, written while an agent works.
//!
//! The file is whole at any time, and a step costs what it is long: what was written stays as it is, and
//! only what stands behind the steps is written again ([`super::twin`]). Memory holds a place for each step
//! and the step that comes. Laid out as Harbor lays it out, in its order of fields; what is not known is left
//! out. Steps are numbered here, so that there is no gap. Known secrets are masked in every text.
//!
//! # Versions
//! What is written is [`Version::V1_8`], which Harbor 0.26 takes for valid. Harbor 0.21 shows it in its
//! viewer, but its validator knows no version beyond 1.7. Since 1.8 has nothing more than sounds, the same
//! trajectory without any can be declared as [`Version::V1_7`]; a sound is then refused. Trajectories of
//! helpers stand in files of their own beside this one, which both versions read, and never inside it.
//!
//! ```no_run
//! # use std::sync::Arc;
//! # use pilothouse::harbor::write::{Folder, Scrub, WriteError, atif::*};
//! # fn write(agent_dir: Arc<Folder>, scrub: &Scrub) -> Result<(), WriteError> {
//! let agent = Agent { name: "a".into(), version: "1".into(), ..Agent::default() };
//! let head = Head { session_id: Some("s".into()), agent, ..Head::default() };
//! let mut file = Writer::begin(agent_dir, "trajectory.json", &head, scrub)?;
//! file.push(&Step::user("Write a file."))?;
//! file.push(&Step::agent("Analysis: …", Turn::default()))?;
//! file.save(&Tail::default())?;
//! file.finish(&Tail::default())
//! # }
//! ```

use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::atomic::{Folder, WriteError};
use super::scrub::Scrub;
use super::twin::Twin;

mod layout;
mod types;

use types::Written;
pub use types::{
    Agent, AudioType, By, Content, Extra, FinalMetrics, Head, ImageType, Metrics, Outcome, Part, Step, SubagentRef,
    Tail, ToolCall, Turn, Version,
};

/// Its name in a trial's `agent/`.
pub const FILE: &str = "trajectory.json";
/// Levels that a step stands deep.
const STEP_LEVEL: usize = 2;

/// A trajectory that grows. Blocking: each call may wait for the disk.
///
/// Dropping it shows what was pushed since it was saved last, if that can be.
#[derive(Debug)]
pub struct Writer {
    twin: Twin,
    scrub: Scrub,
    version: Version,
    /// Offset and length of each step.
    places: Vec<(u64, usize)>,
    tail: Tail,
    /// Steps that nobody sees yet.
    unseen: bool,
}

impl Writer {
    /// Begins a trajectory; nothing is seen of it before it is saved.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub fn begin(folder: Arc<Folder>, name: &str, head: &Head, scrub: &Scrub) -> Result<Writer, WriteError> {
        let mut twin = Twin::begin(folder, name)?;
        let head_text = scrub.json(laid_out(head, 0, twin.path())?);
        // Its last brace closes the whole document, further on.
        let open = head_text.trim_end_matches('}').trim_end();
        twin.append(format!("{open},\n  \"steps\": [").as_bytes())?;
        let version = head.version;
        Ok(Writer { twin, scrub: scrub.clone(), version, places: Vec::new(), tail: Tail::default(), unseen: false })
    }

    /// Steps so far.
    pub fn steps(&self) -> u64 {
        self.places.len() as u64
    }

    /// Bytes so far, without what stands behind the steps.
    pub fn bytes(&self) -> u64 {
        self.twin.len()
    }

    /// Appends a step, and gives it its number, from 1.
    ///
    /// # Errors
    /// See [`WriteError`]; then the step is not in it. A sound where the version has none is an error.
    pub fn push(&mut self, step: &Step) -> Result<u64, WriteError> {
        if self.version == Version::V1_7 && step.sounds() {
            let why = io::Error::new(io::ErrorKind::InvalidInput, "there is no sound in ATIF-v1.7");
            return Err(WriteError::of(self.twin.path(), &why));
        }
        let number = self.steps() + 1;
        let text = laid_out(&Written::of(step, number), STEP_LEVEL, self.twin.path())?;
        self.append(text)
    }

    /// Appends steps of another trajectory as what was known before: marked as copies and without metrics,
    /// which are counted where they come from; `note` says so where there were any. Numbers of steps from
    /// 0; those that are not there are left out.
    ///
    /// # Errors
    /// See [`WriteError`]; then the steps before the one that failed are in it.
    pub fn copy(&mut self, from: &Writer, steps: Range<usize>, note: &str) -> Result<(), WriteError> {
        for at in steps.start..steps.end.min(from.places.len()) {
            let Some((offset, len)) = from.places.get(at).copied() else { break };
            let bytes = from.twin.read(offset, len)?;
            let wrong = |e: serde_json::Error| WriteError::of(from.twin.path(), &io::Error::other(e));
            let mut step: Copied<'_> = serde_json::from_slice(&bytes).map_err(wrong)?;
            step.step_id = self.steps() + 1;
            step.is_copied_context = true;
            if step.metrics.take().is_some() {
                step.extra.insert("note".to_string(), note.into());
            }
            let text = laid_out(&step, STEP_LEVEL, self.twin.path())?;
            self.append(text)?;
        }
        Ok(())
    }

    fn append(&mut self, step: String) -> Result<u64, WriteError> {
        let step = self.scrub.json(step);
        let before = if self.places.is_empty() { "\n    " } else { ",\n    " };
        let at = self.twin.len() + before.len() as u64;
        self.twin.append(format!("{before}{step}").as_bytes())?;
        self.places.push((at, step.len()));
        self.unseen = true;
        Ok(self.steps())
    }

    /// Shows all steps so far, with this behind them. Nothing is shown before there is a step: the format
    /// has no trajectory without one.
    ///
    /// # Errors
    /// See [`WriteError`]; then what was seen before is seen still, and nothing is lost of the rest.
    pub fn save(&mut self, tail: &Tail) -> Result<(), WriteError> {
        self.tail = tail.clone();
        self.show()
    }

    fn show(&mut self) -> Result<(), WriteError> {
        if self.places.is_empty() {
            return Ok(());
        }
        let tail = self.scrub.json(laid_out(&self.tail, 0, self.twin.path())?);
        let fields = tail.strip_prefix('{').unwrap_or_default();
        let end = if fields.len() > 1 { format!("\n  ],{fields}") } else { "\n  ]\n}".to_string() };
        self.twin.show(end.as_bytes())?;
        self.unseen = false;
        Ok(())
    }

    /// Shows it for the last time.
    ///
    /// # Errors
    /// See [`WriteError`].
    pub fn finish(mut self, tail: &Tail) -> Result<(), WriteError> {
        self.save(tail)?;
        self.twin.finish()
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if self.unseen {
            // Nobody is there to be told.
            let _ = self.show();
        }
    }
}

/// A step of another trajectory, its values as they stand there.
#[derive(Deserialize, Serialize)]
struct Copied<'a> {
    step_id: u64,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    timestamp: Option<&'a RawValue>,
    #[serde(borrow)]
    source: &'a RawValue,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    model_name: Option<&'a RawValue>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    reasoning_effort: Option<&'a RawValue>,
    #[serde(borrow)]
    message: &'a RawValue,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<&'a RawValue>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    tool_calls: Option<&'a RawValue>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    observation: Option<&'a RawValue>,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    metrics: Option<&'a RawValue>,
    #[serde(default)]
    is_copied_context: bool,
    #[serde(borrow, skip_serializing_if = "Option::is_none")]
    llm_call_count: Option<&'a RawValue>,
    #[serde(default, skip_serializing_if = "serde_json::Map::is_empty")]
    extra: Extra,
}

fn laid_out(value: &impl Serialize, level: usize, path: &Path) -> Result<String, WriteError> {
    layout::text(value, level).map_err(|e| WriteError::of(path, &io::Error::other(e)))
}
