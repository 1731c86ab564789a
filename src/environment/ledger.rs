//! What the commands of a trial came to: how each ended, and what the memory limit did meanwhile.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use serde::Serialize;

use super::{Ended, Environment, ExecEnd};

/// For the question how often the kernel killed for want of memory.
const LIMIT: Duration = Duration::from_secs(5);
/// Where the kernel counts that, in both versions of control groups.
const COUNTS: &str = "cat /sys/fs/cgroup/memory/memory.oom_control /sys/fs/cgroup/memory.events 2>/dev/null";
/// The exit code of a process that was killed.
const KILLED: i64 = 137;

/// One command.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Noted {
    /// What it was: `solution`, `tests`.
    pub what: String,
    /// The step of the trial, where it has several.
    pub step: Option<String>,
    /// Exit code; None when its time was over.
    pub exit_code: Option<i64>,
    /// Seconds.
    pub took_sec: f64,
    /// Kills for want of memory that the engine reported while it ran.
    pub oom_kills: u32,
    /// Kills for want of memory in the container so far by the kernel's count; None where that was not
    /// asked or can not be read.
    pub oom_kill_count: Option<u64>,
    /// Whether its output was cut at its cap.
    pub output_cut: bool,
}

impl Noted {
    /// In words, where there is anything to say besides the exit code.
    pub fn remark(&self) -> Option<String> {
        let mut out = Vec::new();
        if self.oom_kills > 0 || self.oom_kill_count.is_some_and(|n| n > 0) {
            let counted = self.oom_kill_count.map_or(String::new(), |n| format!("; the kernel counts {n}"));
            let exit = self.exit_code.map_or("its time was over".to_string(), |code| format!("exit code {code}"));
            out.push(format!("the memory limit killed ({exit}, {} reported{counted})", self.oom_kills));
        }
        if self.output_cut {
            out.push("its output was too long and was cut".to_string());
        }
        (!out.is_empty()).then(|| format!("{}: {}", self.what, out.join(", ")))
    }
}

/// The commands of a trial, in order.
#[derive(Debug, Default)]
pub struct Ledger(Mutex<Vec<Noted>>);

impl Ledger {
    /// Notes the end of a command. After one that was killed the kernel's own count is read, too.
    pub async fn note(&self, environment: &dyn Environment, what: &str, step: Option<&str>, end: &ExecEnd) -> Noted {
        let exit_code = match end.ended {
            Ended::Exited(code) => Some(code),
            Ended::TimedOut => None,
        };
        let mut noted = Noted {
            what: what.to_string(),
            step: step.map(str::to_string),
            exit_code,
            took_sec: (end.took.as_secs_f64() * 1000.0).round() / 1000.0,
            oom_kills: end.oom_kills,
            oom_kill_count: None,
            output_cut: end.output_cut,
        };
        if exit_code == Some(KILLED) || end.oom_kills > 0 {
            let counts = environment.probe(&["sh", "-c", COUNTS], None, LIMIT).await;
            noted.oom_kill_count = counts.ok().and_then(|answer| count(&answer.text));
        }
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(noted.clone());
        noted
    }

    /// All of them.
    pub fn all(&self) -> Vec<Noted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn count(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_count_is_read_in_both_forms() {
        assert_eq!(count("oom_kill_disable 0\nunder_oom 0\noom_kill 3\n"), Some(3));
        assert_eq!(count("low 0\nhigh 0\nmax 12\noom 4\noom_kill 2\noom_group_kill 0\n"), Some(2));
        assert_eq!(count(""), None);
    }
}
