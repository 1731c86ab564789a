//! `run.log` of a classic run: the only place that says why a trial failed of which no file was kept, and
//! which limit an agent ran into. Read as it grows, line by line; nothing of it is kept but these words.

use std::collections::HashMap;

use super::project;
use crate::job::text::{clean, mask_secrets, strip_ansi};

/// Longest line that is looked at; of longer ones the rest is dropped.
const LINE: usize = 16 << 10;
/// Trials and tasks that are remembered.
const KEPT: usize = 50_000;
/// Characters of what is remembered of one.
const WORDS: usize = 360;

/// What the log said so far.
#[derive(Debug, Clone, Default)]
pub struct RunLog {
    /// A line that has no end yet.
    part: Vec<u8>,
    /// Its rest is dropped.
    long: bool,
    /// The Compose project whose failure is being told.
    failing: Option<String>,
    /// The last words of an engine, by Compose project.
    engine: HashMap<String, String>,
    /// What a harness threw, by Compose project, and by task where none is named.
    threw: HashMap<String, String>,
    threw_task: HashMap<String, String>,
    /// Lines of the parser by task.
    parse: HashMap<String, String>,
    /// Limits in seconds that agents and tests ran into, by task.
    agent: HashMap<String, f64>,
    tests: HashMap<String, f64>,
    /// Grows with everything that is remembered.
    revision: u64,
}

fn keep<T>(map: &mut HashMap<String, T>, key: String, value: T) {
    if map.len() < KEPT || map.contains_key(&key) {
        map.insert(key, value);
    }
}

fn short(text: &str) -> String {
    let text = strip_ansi(text.trim());
    clean(&mask_secrets(&text)).chars().take(WORDS).collect()
}

impl RunLog {
    /// Reads on.
    pub fn feed(&mut self, bytes: &[u8]) {
        for piece in bytes.split_inclusive(|b| *b == b'\n') {
            let (text, ends) = piece.strip_suffix(b"\n").map_or((piece, false), |text| (text, true));
            if !self.long {
                let room = LINE.saturating_sub(self.part.len());
                self.part.extend_from_slice(text.get(..room).unwrap_or(text));
                self.long = text.len() > room;
            }
            if ends {
                let line = std::mem::take(&mut self.part);
                self.long = false;
                self.line(&String::from_utf8_lossy(&line));
            }
        }
    }

    /// Something new was remembered whenever this changes.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    fn line(&mut self, line: &str) {
        let before = self.revision;
        self.revision += 1;
        if line.contains("Docker compose command failed") {
            self.failing = Some(String::new());
        } else if let Some(rest) = line.split_once("Command: docker compose -p ").map(|(_, rest)| rest)
            && self.failing.is_some()
        {
            self.failing = rest.split_whitespace().next().map(of_project);
        } else if let Some(rest) = line.trim_start().strip_prefix("STDERR:")
            && let Some(failing) = self.failing.take().filter(|name| !name.is_empty())
        {
            keep(&mut self.engine, failing, short(rest));
        } else if let Some((_, rest)) = line.split_once("Harness execution failed for ") {
            let (path, said) = rest.split_once(": ").unwrap_or((rest, ""));
            let task = path.trim_end_matches('/').rsplit('/').next().unwrap_or_default().to_string();
            let words = short(said.trim_start_matches(['(', '"', '\'']));
            match project_in(said) {
                Some(name) => keep(&mut self.threw, name, words),
                None => keep(&mut self.threw_task, task, words),
            }
        } else if let Some((limit, task)) = timed_out(line, "Agent timed out after ") {
            keep(&mut self.agent, task, limit);
        } else if let Some((limit, task)) = timed_out(line, "Test command timed out after ") {
            keep(&mut self.tests, task, limit);
        } else if let Some((_, rest)) = line.split_once("Error parsing results for task ")
            && let Some((task, said)) = rest.split_once(": ")
        {
            keep(&mut self.parse, task.to_string(), short(said));
        } else {
            self.revision = before;
        }
    }

    /// What it says of a trial that ended with this failure mode.
    pub fn words(&self, trial: &str, task: &str, mode: &str) -> Option<String> {
        match mode {
            "agent_timeout" => self.agent.get(task).map(|limit| format!("the agent timed out after {limit} s")),
            "test_timeout" => self.tests.get(task).map(|limit| format!("the tests timed out after {limit} s")),
            "parse_error" => self.parse.get(task).cloned(),
            _ => {
                let name = project(trial);
                let threw = self.threw.get(&name);
                match (self.engine.get(&name).filter(|words| !words.is_empty()), threw) {
                    (Some(engine), _) => Some(format!("docker compose failed: {engine}")),
                    (None, Some(threw)) => Some(threw.clone()),
                    (None, None) => self.threw_task.get(task).cloned(),
                }
            }
        }
        .filter(|words| !words.is_empty())
    }

    /// The agent's limit of a task in seconds, where one of its agents ran into it.
    pub fn agent_limit(&self, task: &str) -> Option<f64> {
        self.agent.get(task).copied()
    }

    /// The same of its tests.
    pub fn test_limit(&self, task: &str) -> Option<f64> {
        self.tests.get(task).copied()
    }
}

/// Limit and task out of `… timed out after 360.0s for task x.`.
fn timed_out(line: &str, begin: &str) -> Option<(f64, String)> {
    let (_, rest) = line.split_once(begin)?;
    let (limit, task) = rest.split_once("s for task ")?;
    let limit = limit.parse::<f64>().ok().filter(|n| n.is_finite() && *n > 0.0)?;
    Some((limit, task.trim_end().trim_end_matches('.').to_string()))
}

/// The name of a project without what some harnesses append to it.
fn of_project(name: &str) -> String {
    name.strip_suffix("__client").unwrap_or(name).to_ascii_lowercase()
}

/// The Compose project in a command that was printed as a list.
fn project_in(said: &str) -> Option<String> {
    let (_, rest) = said.split_once("'-p', '")?;
    rest.split_once('\'').map(|(name, _)| of_project(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_and_limits_are_found() {
        let text = "Running task: x\n\
            Agent timed out after 360.0s for task raman.easy.\n\
            Test command timed out after 60s for task slow.\n\
            Error parsing results for task odd: No short summary. Look\n\
            Docker compose command failed with exit code 1\n\
            Command: docker compose -p a-1-of-2-r1__client -f /x build\n\
            STDOUT: much\nmore\n\
            STDERR: failed to solve: lookup mirror: i/o timeout\n\
            Harness execution failed for /tasks/a: Command '['docker', 'compose', '-p', 'a-1-of-2-r1__client', 'build']' failed\n\
            Harness execution failed for /tasks/b: (\"Error creating docker client: x\", 'y')\n";
        let mut log = RunLog::default();
        // Whatever the pieces are in which it comes.
        for piece in text.as_bytes().chunks(7) {
            log.feed(piece);
        }
        assert_eq!(log.agent_limit("raman.easy"), Some(360.0));
        assert_eq!(log.test_limit("slow"), Some(60.0));
        let words = |trial: &str, task: &str, mode: &str| log.words(trial, task, mode).unwrap_or_default();
        assert_eq!(words("raman.easy.1-of-1", "raman.easy", "agent_timeout"), "the agent timed out after 360 s");
        assert_eq!(words("odd.1-of-1", "odd", "parse_error"), "No short summary. Look");
        assert!(words("a.1-of-2.r1", "a", "unknown_agent_error").starts_with("docker compose failed: failed to solve"));
        assert!(words("b.2-of-2.r1", "b", "unknown_agent_error").starts_with("Error creating docker client"));
        assert_eq!(log.words("a.2-of-2.r1", "a", "unknown_agent_error"), None);
        let before = log.revision();
        log.feed(&[b'x'; 100_000]);
        log.feed(b"\nAgent timed out after nans for task t.\n");
        assert_eq!(log.revision(), before);
    }
}
