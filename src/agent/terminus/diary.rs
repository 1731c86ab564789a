//! The agent's trajectory, and those of the calls that sum a conversation up.

use std::sync::Arc;

use serde_json::json;

use super::parse::Command;
use super::sums::{Sums, Tokens};
use crate::harbor::write::atif::{
    Agent, Extra, FILE, FinalMetrics, Head, Metrics, Outcome, Step, SubagentRef, Tail, ToolCall, Turn, Writer,
};
use crate::harbor::write::{Folder, Scrub, WriteError};

use super::options::Prices;

/// Said of copied steps that had metrics.
const COPIED: &str = "the metrics are in the trajectory that this was copied from";

/// Who writes.
#[derive(Debug, Clone)]
pub struct Author {
    /// Name of the agent.
    pub name: &'static str,
    /// Its version.
    pub version: &'static str,
    /// The model as the operator named it.
    pub model: String,
    /// Name of the run.
    pub session: String,
    /// What there is to say of the agent.
    pub extra: Extra,
    /// Prices of tokens.
    pub prices: Prices,
}

/// A trajectory that is being written. Where it can not be written the work goes on, and the reason is
/// kept.
#[derive(Debug)]
pub struct Diary {
    writer: Option<Writer>,
    author: Author,
    folder: Arc<Folder>,
    scrub: Scrub,
    faults: Vec<String>,
}

/// What an answer was, for a step.
#[derive(Debug, Clone, Default)]
pub struct Said {
    /// The model, by the server's word.
    pub model: Option<String>,
    /// What it thought.
    pub reasoning: Option<String>,
    /// Tokens of the episode.
    pub tokens: Tokens,
}

/// One of the calls that sum a conversation up.
#[derive(Debug, Clone)]
pub struct Helper<'a> {
    /// `summary`, `questions` or `answers`.
    pub kind: &'static str,
    /// Which summary, from 1.
    pub number: u32,
    /// How many steps of the main trajectory it knows.
    pub knows: usize,
    /// What was asked and answered before, and is known to it besides.
    pub before: Option<(&'a str, &'a str)>,
    /// What it was asked.
    pub prompt: &'a str,
    /// What it answered.
    pub answer: &'a str,
    /// Of the answer.
    pub said: Said,
}

impl Diary {
    /// Begins one.
    pub async fn begin(folder: Arc<Folder>, author: Author, scrub: Scrub) -> Diary {
        let mut diary = Diary { writer: None, author, folder, scrub, faults: Vec::new() };
        let head = diary.head(None);
        let (folder, scrub) = (Arc::clone(&diary.folder), diary.scrub.clone());
        let made = tokio::task::spawn_blocking(move || Writer::begin(folder, FILE, &head, &scrub)).await;
        match made {
            Ok(Ok(writer)) => diary.writer = Some(writer),
            Ok(Err(e)) => diary.faults.push(format!("no trajectory: {e}")),
            Err(_) => diary.faults.push("no trajectory: its writer ended".to_string()),
        }
        diary
    }

    fn head(&self, helper: Option<(&str, u32)>) -> Head {
        let Author { name, version, model, session, extra, .. } = &self.author;
        let (name, session, extra) = match helper {
            None => (name.to_string(), session.clone(), extra.clone()),
            Some((kind, number)) => {
                let mut about = Extra::new();
                about.insert("parent_session_id".into(), session.clone().into());
                about.insert("summarization_index".into(), number.into());
                (format!("{name}-summarization-{kind}"), format!("{session}-summarization-{number}-{kind}"), about)
            }
        };
        let agent =
            Agent { name, version: (*version).to_string(), model_name: Some(model.clone()), extra, ..Agent::default() };
        Head { session_id: Some(session), agent, ..Head::default() }
    }

    /// Why something was not written, once each.
    pub fn faults(&mut self) -> Vec<String> {
        std::mem::take(&mut self.faults)
    }

    /// Appends steps and shows them.
    pub async fn write(&mut self, steps: Vec<Step>, sums: &Sums) {
        let Some(mut writer) = self.writer.take() else { return };
        let tail = tail(&sums.all(), &self.author.prices);
        let work = move || {
            let done = steps.iter().try_for_each(|step| writer.push(step).map(drop)).and_then(|()| writer.save(&tail));
            (writer, done)
        };
        match tokio::task::spawn_blocking(work).await {
            Ok((writer, done)) => {
                self.writer = Some(writer);
                self.note(done);
            }
            Err(_) => self.faults.push("the trajectory ends here: its writer ended".to_string()),
        }
    }

    fn note(&mut self, done: Result<(), WriteError>) {
        if let Err(e) = done {
            self.faults.push(format!("trajectory: {e}"));
        }
    }

    /// Writes the trajectory of a call that sums the conversation up; gives how the main one names it.
    pub async fn helper(&mut self, helper: Helper<'_>, title: &str) -> SubagentRef {
        let Helper { kind, number, knows, before, prompt, answer, said } = helper;
        let file = format!("trajectory.summarization-{number}-{kind}.json");
        let head = self.head(Some((kind, number)));
        let session_id = head.session_id.clone();
        let mut steps = Vec::new();
        if let Some((asked, answered)) = before {
            steps.push(Step { copied: true, ..Step::user(asked) });
            let mut copy = Step { copied: true, ..Step::agent(answered, Turn::default()) };
            copy.extra.insert("note".into(), "from the trajectory of the summary; the metrics are there".into());
            steps.push(copy);
        }
        steps.push(Step::user(prompt));
        steps.push(Step::agent(answer, self.turn(&said, Vec::new(), true)));
        let mut end = tail(&said.tokens, &self.author.prices);
        if let Some(metrics) = &mut end.final_metrics {
            metrics.total_cached_tokens = metrics.total_cached_tokens.or(Some(0));
        }
        let main = self.writer.take();
        let (folder, scrub, name) = (Arc::clone(&self.folder), self.scrub.clone(), file.clone());
        let work = move || {
            let write = |main: Option<&Writer>| -> Result<(), WriteError> {
                let mut writer = Writer::begin(folder, &name, &head, &scrub)?;
                if let Some(main) = main {
                    writer.copy(main, 0..knows, COPIED)?;
                }
                for step in &steps {
                    writer.push(step)?;
                }
                writer.finish(&end)
            };
            let done = write(main.as_ref());
            (main, done)
        };
        match tokio::task::spawn_blocking(work).await {
            Ok((main, done)) => {
                self.writer = main;
                self.note(done);
            }
            Err(_) => self.faults.push("the trajectory ends here: its writer ended".to_string()),
        }
        let mut extra = Extra::new();
        extra.insert("summary".into(), title.into());
        SubagentRef { session_id, path: file, extra }
    }

    /// What a step of the agent has besides its message. `zero` keeps a cache of 0.
    fn turn(&self, said: &Said, tool_calls: Vec<ToolCall>, zero: bool) -> Turn {
        let tokens = &said.tokens;
        let told = tokens.told > 0;
        let cost = tokens.cost(&self.author.prices);
        let mut extra = Extra::new();
        if let Some(reasoning) = tokens.reasoning {
            extra.insert("reasoning_tokens".into(), reasoning.into());
        }
        let metrics = Metrics {
            prompt_tokens: Some(tokens.input),
            completion_tokens: Some(tokens.output),
            cached_tokens: tokens.cached.filter(|n| zero || *n > 0),
            cost_usd: (cost > 0.0).then_some(cost),
            extra,
            ..Metrics::default()
        };
        Turn {
            model_name: Some(said.model.clone().unwrap_or_else(|| self.author.model.clone())),
            reasoning_content: said.reasoning.clone(),
            tool_calls,
            metrics: (told || tokens.calls == 0).then_some(metrics),
            ..Turn::default()
        }
    }

    /// The step of an answer that could not be carried out.
    pub fn refused(&self, answer: &str, said: &Said, feedback: &str) -> Step {
        let mut step = Step::agent(answer, self.turn(said, Vec::new(), false));
        step.observation = vec![Outcome { content: Some(feedback.into()), ..Outcome::default() }];
        step
    }

    /// The step of an episode (from 0).
    pub fn episode(&self, episode: u64, done: &Done<'_>, said: &Said) -> Step {
        let parts = [("Analysis: ", done.analysis), ("Plan: ", done.plan)];
        let lines: Vec<String> =
            parts.iter().filter(|(_, text)| !text.is_empty()).map(|(name, text)| format!("{name}{text}")).collect();
        let mut calls = Vec::new();
        for (at, command) in done.commands.iter().enumerate() {
            let mut arguments = Extra::new();
            arguments.insert("keystrokes".into(), command.keystrokes.clone().into());
            arguments.insert("duration".into(), json!(command.duration));
            calls.push(ToolCall {
                id: format!("call_{episode}_{}", at + 1),
                function: "bash_command".into(),
                arguments,
                ..ToolCall::default()
            });
        }
        if done.complete {
            let id = format!("call_{episode}_task_complete");
            calls.push(ToolCall { id, function: "mark_task_complete".into(), ..ToolCall::default() });
        }
        // One output of several commands belongs to none of them.
        let of_call = (done.commands.len() == 1).then_some(0);
        let mut step = Step::agent(lines.join("\n"), self.turn(said, calls, false));
        step.observation = vec![Outcome { of_call, content: Some(done.observation.into()), ..Outcome::default() }];
        step
    }

    /// Shows it for the last time. Blocking.
    pub fn end(&mut self, sums: &Sums) {
        if let Some(writer) = self.writer.take() {
            let done = writer.finish(&tail(&sums.all(), &self.author.prices));
            self.note(done);
        }
    }
}

/// What an episode was.
#[derive(Debug, Clone)]
pub struct Done<'a> {
    /// What the model said of the state of things.
    pub analysis: &'a str,
    /// What it said it will do.
    pub plan: &'a str,
    /// What was typed, with the seconds that it was given.
    pub commands: &'a [Command],
    /// It said that it is done.
    pub complete: bool,
    /// What it is told.
    pub observation: &'a str,
}

fn tail(tokens: &Tokens, prices: &Prices) -> Tail {
    let cost = tokens.cost(prices);
    let known = tokens.calls == 0 || tokens.told > 0;
    let metrics = FinalMetrics {
        total_prompt_tokens: known.then_some(tokens.input),
        total_completion_tokens: known.then_some(tokens.output),
        total_cached_tokens: if tokens.calls == 0 { Some(0) } else { tokens.cached },
        total_cost_usd: (cost > 0.0).then_some(cost),
        ..FinalMetrics::default()
    };
    Tail { final_metrics: Some(metrics), ..Tail::default() }
}
