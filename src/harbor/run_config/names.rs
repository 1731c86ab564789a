//! Names of jobs and trials, and the order in which trials are planned.

use std::path::Path;

/// A job's name when none is given: the local time, to the second.
pub fn job_name(now: jiff::civil::DateTime) -> String {
    now.strftime("%Y-%m-%d__%H-%M-%S").to_string()
}

/// Digits and letters without those that look alike; trial names end in seven of them.
pub const ALPHABET: &[u8; 57] = b"23456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz";

/// A trial's name: the task's short name, at most 32 characters and without `_` and `-` at their end,
/// and seven random characters. `random` gives a number below its argument.
pub fn trial_name(task: &str, random: &mut dyn FnMut(u32) -> u32) -> String {
    let short = task.rsplit('/').next().unwrap_or(task);
    let head: String = short.chars().take(32).collect();
    let mut name = format!("{}__", head.trim_end_matches(['_', '-']));
    for _ in 0..7 {
        let at = random(ALPHABET.len() as u32) as usize % ALPHABET.len();
        name.push(char::from(ALPHABET.get(at).copied().unwrap_or(b'2')));
    }
    name
}

/// The short name of a task in a directory: the directory's name, after links and `..` are resolved
/// where it exists.
pub fn task_short_name(path: &Path) -> Option<String> {
    let real = std::fs::canonicalize(path).ok();
    let path = real.as_deref().unwrap_or(path);
    path.file_name().map(|name| name.to_string_lossy().into_owned())
}

/// One planned trial, by index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Planned {
    /// From 0.
    pub attempt: u32,
    /// Index of the task.
    pub task: usize,
    /// Index of the agent.
    pub agent: usize,
}

/// All trials in Harbor's order: attempts, in each the tasks, for each the agents.
pub fn plan(n_attempts: u32, tasks: usize, agents: usize) -> impl Iterator<Item = Planned> {
    (0..n_attempts).flat_map(move |attempt| {
        (0..tasks).flat_map(move |task| (0..agents).map(move |agent| Planned { attempt, task, agent }))
    })
}
