//! What a program left in `agent/`: its tokens, and a trajectory in the interchange format made of its own
//! record. Everything there may be written by whoever is in the container: regular files only, under caps,
//! and what is odd in one is passed over.

use std::collections::BTreeMap;
use std::io::{BufReader, Read};
use std::path::Path;
use std::sync::Arc;

use serde_json::Value;

use super::mini;
use super::spec::{RecordForm, Spec, TokenForm, Tokens};
use crate::harbor::write::atif::{Agent, Content, Extra, FILE, FinalMetrics, Head, Outcome, Step, Tail, Turn, Writer};
use crate::harbor::write::result::{AgentResult, ModelUsage};
use crate::harbor::write::{Folder, Scrub};

/// Largest record that is converted: 256 MiB.
pub const LARGEST: u64 = 256 << 20;
/// Largest file with tokens: 64 MiB.
const TOKENS: u64 = 64 << 20;
/// Bytes of what was printed that stand in a trajectory without a record.
const PRINTED: u64 = 10_000;
/// Shorter keys are no keys.
const SHORTEST_KEY: usize = 8;

/// What was used so far. Unknown is None.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Used {
    /// Prompt tokens, cached ones included.
    pub input: Option<u64>,
    /// Of those, from the cache.
    pub cached: Option<u64>,
    /// Completion tokens.
    pub output: Option<u64>,
    /// Of those, reasoning.
    pub reasoning: Option<u64>,
    /// US dollars; None where it is not known, and for 0 with tokens: a price that nobody knows.
    pub cost: Option<f64>,
    /// Answers of the model.
    pub calls: Option<u32>,
}

impl Used {
    /// For a result, under the model's name.
    pub fn result(&self, model: Option<&str>) -> AgentResult {
        let usage = || {
            let usage = ModelUsage {
                n_input_tokens: self.input?,
                n_cache_tokens: self.cached.unwrap_or(0),
                n_output_tokens: self.output?,
                cost_usd: self.cost,
            };
            Some(BTreeMap::from([(model?.to_string(), usage)]))
        };
        AgentResult {
            n_input_tokens: self.input,
            n_cache_tokens: self.cached,
            n_output_tokens: self.output,
            cost_usd: self.cost,
            model_usage: usage(),
            ..AgentResult::default()
        }
    }

    /// For the end of a trajectory of so many steps.
    pub fn totals(&self, steps: u64) -> FinalMetrics {
        let mut extra = Extra::new();
        if let Some(reasoning) = self.reasoning {
            extra.insert("total_reasoning_tokens".to_string(), reasoning.into());
        }
        FinalMetrics {
            total_prompt_tokens: self.input,
            total_completion_tokens: self.output,
            total_cached_tokens: self.cached,
            total_cost_usd: self.cost,
            total_steps: Some(steps),
            extra,
        }
    }
}

/// Whose trajectory it is.
#[derive(Debug, Clone)]
pub struct Author {
    /// Name of the run.
    pub session: String,
    /// Its version, where it is known.
    pub version: Option<String>,
    /// The model as the operator named it.
    pub model: Option<String>,
    /// What it was told.
    pub instruction: String,
}

/// What was used, by the files that are there now; and how much was looked at for it. Blocking.
pub fn used(spec: &Spec, logs: &Folder) -> (Used, Vec<String>) {
    let mut remarks = Vec::new();
    let mut out = Used::default();
    match &spec.trajectory {
        Some(record) if record.form == RecordForm::MiniSweAgent => match open(logs, &record.file) {
            Ok(Some(file)) => match mini::used(BufReader::new(file)) {
                Ok(used) => out = used,
                Err(e) => remarks.push(format!("{}: {e}", record.file)),
            },
            Ok(None) => {}
            Err(why) => remarks.push(why),
        },
        Some(record) => {
            if let Ok(bytes) = logs.dir().read_condensed(&record.file, TOKENS)
                && let Ok(value) = serde_json::from_slice::<Value>(&bytes.data)
            {
                let total = |name: &str| value.pointer(&format!("/final_metrics/total_{name}"));
                out.input = total("prompt_tokens").and_then(Value::as_u64);
                out.output = total("completion_tokens").and_then(Value::as_u64);
                out.cached = total("cached_tokens").and_then(Value::as_u64);
                out.cost = total("cost_usd").and_then(Value::as_f64);
            }
        }
        None => {}
    }
    if let Some(tokens) = &spec.tokens {
        match logs.dir().read_all(&tokens.file, TOKENS) {
            Ok(bytes) => fill(&mut out, tokens, &bytes.data),
            Err(crate::harbor::OpenError::Missing) => {}
            Err(e) => remarks.push(format!("{}: {e}", tokens.file)),
        }
    }
    (out, remarks)
}

/// Takes keys out of the files that the program left: what it prints is its own, and may be one. Blocking.
pub fn mask(spec: &Spec, logs: &Folder, keys: &[String]) -> Vec<String> {
    let named = spec.trajectory.iter().map(|t| &t.file).chain(spec.tokens.iter().map(|t| &t.file));
    let files: Vec<String> = named.cloned().chain([spec.output()]).collect();
    let mut remarks = Vec::new();
    for file in files {
        if let Err(why) = mask_file(logs, &file, keys) {
            remarks.push(format!("{file}: {why}"));
        }
    }
    remarks
}

fn mask_file(logs: &Folder, name: &str, keys: &[String]) -> Result<(), String> {
    // Shorter ones are everyday words.
    let keys: Vec<&[u8]> = keys.iter().map(String::as_bytes).filter(|key| key.len() >= SHORTEST_KEY).collect();
    let longest = keys.iter().map(|key| key.len()).max().unwrap_or(0);
    let Ok(mut file) = logs.dir().open_file(name) else { return Ok(()) };
    let (mut block, mut kept, mut found) = (vec![0; 256 * 1024], 0, false);
    while longest > 0 && !found {
        let space = block.get_mut(kept..).unwrap_or_default();
        let n = file.read(space).map_err(|e| e.to_string())?;
        let seen = block.get(..kept + n).unwrap_or_default();
        found = keys.iter().any(|key| memchr::memmem::find(seen, key).is_some());
        if n == 0 {
            break;
        }
        // A key may lie across two blocks.
        let end = kept + n;
        kept = end.min(longest - 1);
        block.copy_within(end - kept..end, 0);
    }
    if !found {
        return Ok(());
    }
    let whole =
        logs.dir().read_all(name, LARGEST).map_err(|e| format!("a key is in it, and it can not be read: {e}"))?;
    let masked = keys.iter().fold(whole.data, |data, key| replaced(&data, key));
    logs.replace(name, &masked).map_err(|e| format!("a key is in it, and it can not be taken out: {e}"))
}

fn replaced(data: &[u8], key: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(data.len());
    let mut from = 0;
    for at in memchr::memmem::find_iter(data, key) {
        out.extend_from_slice(data.get(from..at).unwrap_or_default());
        out.extend_from_slice(b"****");
        from = at + key.len();
    }
    out.extend_from_slice(data.get(from..).unwrap_or_default());
    out
}

/// A record to be read from its beginning; None where there is none.
fn open(logs: &Folder, name: &str) -> Result<Option<impl Read + use<>>, String> {
    match logs.dir().open_file(name) {
        Ok(file) => {
            let size = file.metadata().map_or(0, |m| m.len());
            if size > LARGEST {
                return Err(format!("{name}: {size} bytes, more than the {LARGEST} that are read"));
            }
            Ok(Some(file.take(LARGEST)))
        }
        Err(crate::harbor::OpenError::Missing) => Ok(None),
        Err(e) => Err(format!("{name}: {e}")),
    }
}

/// Tokens of a file that the agent's own tells of.
fn fill(out: &mut Used, tokens: &Tokens, bytes: &[u8]) {
    let mut take = |value: &dyn Fn(&'static str) -> Option<f64>, sum: bool| {
        let add = |into: &mut Option<u64>, found: Option<f64>| {
            if let Some(found) = found.filter(|n| (0.0..9e15).contains(n)) {
                *into = Some(found as u64 + into.filter(|_| sum).unwrap_or(0));
            }
        };
        add(&mut out.input, value("input"));
        add(&mut out.cached, value("cached"));
        add(&mut out.output, value("output"));
        if let Some(cost) = value("cost").filter(|c| c.is_finite() && *c > 0.0) {
            out.cost = Some(cost + out.cost.filter(|_| sum).unwrap_or(0.0));
        }
    };
    let pointer = |name: &str| match name {
        "input" => tokens.input.as_deref(),
        "cached" => tokens.cached.as_deref(),
        "output" => tokens.output.as_deref(),
        _ => tokens.cost.as_deref(),
    };
    let of_json = |document: &Value, name: &str| document.pointer(pointer(name)?)?.as_f64();
    match tokens.form {
        TokenForm::Json => {
            if let Ok(document) = serde_json::from_slice::<Value>(bytes) {
                take(&|name| of_json(&document, name), false);
            }
        }
        TokenForm::Jsonl => {
            for line in bytes.split(|byte| *byte == b'\n') {
                if let Ok(document) = serde_json::from_slice::<Value>(line) {
                    take(&|name| of_json(&document, name), tokens.sum);
                }
            }
        }
        TokenForm::Text => {
            let text = String::from_utf8_lossy(bytes);
            let places = tokens.pattern.iter().flat_map(|pattern| pattern.captures_iter(&text));
            for found in places {
                let number = |name: &str| found.name(name)?.as_str().replace([',', '_'], "").parse::<f64>().ok();
                take(&|name| number(name), tokens.sum);
            }
        }
    }
}

/// Writes the trajectory, of its own record or of what it printed. Blocking. Gives what it has to say.
pub fn write(spec: &Spec, logs: &Arc<Folder>, author: &Author, used: &Used, scrub: &Scrub) -> Vec<String> {
    let record = spec.trajectory.as_ref();
    let written = match record.map(|record| (record.form, open(logs, &record.file), &record.file)) {
        Some((RecordForm::MiniSweAgent, Ok(Some(file)), name)) => {
            mini::convert(BufReader::new(file), logs, author, used, scrub).map_err(|e| format!("{name}: {e}"))
        }
        Some((RecordForm::Atif, Ok(Some(mut file)), name)) => {
            // As it is: what it says is its own.
            let mut bytes = Vec::new();
            let read = file.read_to_end(&mut bytes).map_err(|e| format!("{name}: {e}"));
            read.and_then(|_| logs.replace(FILE, &bytes).map_err(|e| e.to_string()))
        }
        Some((_, Err(why), _)) => Err(why),
        Some((_, Ok(None), _)) | None => Err(String::new()),
    };
    let Err(why) = written else { return Vec::new() };
    let mut remarks: Vec<String> = Some(why).filter(|w| !w.is_empty()).into_iter().collect();
    if let Err(e) = printed(spec, logs, author, used, scrub) {
        remarks.push(e.to_string());
    }
    remarks
}

/// A trajectory of two steps: what it was told, and the end of what it printed.
fn printed(
    spec: &Spec,
    logs: &Arc<Folder>,
    author: &Author,
    used: &Used,
    scrub: &Scrub,
) -> Result<(), crate::harbor::write::WriteError> {
    let printed = logs.dir().read_tail(&spec.output(), PRINTED).ok();
    let text = printed.as_ref().map(|bytes| String::from_utf8_lossy(&bytes.data).into_owned()).unwrap_or_default();
    let mut writer = Writer::begin(Arc::clone(logs), FILE, &head(spec, author), scrub)?;
    let told = Step { timestamp: None, ..Step::user(author.instruction.clone()) };
    writer.push(&told)?;
    let mut step = Step::agent("", Turn { model_name: author.model.clone(), ..Turn::default() });
    step.timestamp = None;
    step.observation = vec![Outcome { content: Some(Content::Text(text)), ..Outcome::default() }];
    writer.push(&step)?;
    let notes = format!(
        "{} left no record of its steps: the second step has the last {PRINTED} bytes of what it printed",
        spec.name
    );
    let tail = Tail { notes: Some(notes), final_metrics: Some(used.totals(writer.steps())), ..Tail::default() };
    writer.finish(&tail)
}

/// The head of an agent's trajectory.
pub fn head(spec: &Spec, author: &Author) -> Head {
    head_of(&spec.name, author.version.clone(), author)
}

pub(super) fn head_of(name: &str, version: Option<String>, author: &Author) -> Head {
    let agent = Agent {
        name: name.to_string(),
        version: version.unwrap_or_else(|| "unknown".to_string()),
        model_name: author.model.clone(),
        ..Agent::default()
    };
    Head { session_id: Some(author.session.clone()), agent, ..Head::default() }
}

/// Name of a trial's run, by its `agent/`: as Harbor 0.26 names it.
pub fn session(logs: &Path) -> String {
    let mut parts = logs.components().rev().map(|part| part.as_os_str().to_string_lossy());
    let (_, parent, steps) = (parts.next(), parts.next().unwrap_or_default(), parts.next());
    match steps.as_deref() {
        // Of several steps each has its own: `<trial>/steps/<step>/agent`.
        Some("steps") => format!("{}__{parent}__agent", parts.next().unwrap_or_default()),
        _ => format!("{parent}__agent"),
    }
}
