//! All jobs, one line each, and as JSON.
//!
//! The document of `jobs --json`, `schema_version` 1:
//!
//! | key | what |
//! |---|---|
//! | `roots[]` | `path`, `state` (`read`, `gone`, `failed`, `silent`: it does not answer), `why` in words or null, `file_system`, `jobs` found in it, `left_out` in words or null |
//! | `jobs[]` | in the order asked for: `dir`, `root`, `job_name`, `job_id`, `layout`, `harness`, `state` (`running`, `finished`, `interrupted`, `dead`, `reading`, `unreachable`), `state_evidence`, `state_inferred`, `last_write` (UTC) and `age_s` of it, `created`, `agents`, `models`, `datasets` |
//! | … `progress` | `done` (trials that ended), `planned`; null is unknown |
//! | … `scores` | `raw` and `graded`: `numerator`, `denominator`, `value` (null for denominator 0 or unknown); null when no file says them |
//! | … `figures` | `trials`: read from the trials; `result`: as the job's own result.json says; `result, at least`: which leaves out rewards of some trials that ended with an exception |
//! | … `owner` | `harness`, `pid`, `command`, `host` (null: this host); null when nobody is seen |
//! | … `rerun` | `scored`, `solved`, `begun` and `message` where it runs trials again that have a score already, which nobody asked for; null |
//! | … `problems[]` | `kind`, `path`, `message` |
//! | `attention[]` | what needs a person: `kind` (`rerun`, `dead`, `unreachable`, `root`), `path`, `message` |

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value, json};

use super::line;
use crate::job::roster::{Entry, OwnerLine, RootLine, RootState, Roster};
use crate::job::text::{json_for_terminal, path_text};
use crate::job::{Stamp, time};

/// What is printed.
#[derive(Debug, Clone, Copy)]
pub struct Report<'a> {
    /// All that is known.
    pub roster: &'a Roster,
    /// The jobs to print, in order.
    pub list: &'a [Arc<Entry>],
    /// The roots were named by the operator, just now: one that is not there is a mistake.
    pub named: bool,
    /// When it is told.
    pub now: Stamp,
}

/// One thing that needs a person.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Need {
    /// `rerun`, `dead`, `unreachable`, `root`.
    pub kind: &'static str,
    /// The job dir or root.
    pub path: PathBuf,
    /// What, in words.
    pub message: String,
}

impl Report<'_> {
    /// What needs a person: roots first.
    pub fn attention(&self) -> Vec<Need> {
        let root = |r: &RootLine| Some(Need { kind: "root", path: r.path.clone(), message: self.wrong(r)? });
        let job = |e: &Arc<Entry>| {
            let (kind, message) = e.needs(self.now)?;
            Some(Need { kind, path: e.dir.clone(), message })
        };
        self.roster.roots.iter().filter_map(root).chain(self.list.iter().filter_map(job)).collect()
    }

    /// Nobody waits any longer for a root that is still looked at.
    fn wrong(&self, root: &RootLine) -> Option<String> {
        let silent = root.busy.map(|since| {
            let words = time::words(time::age(since, self.now).as_secs_f64());
            format!("does not answer for {words}: what is listed of it may be a part")
        });
        silent.or_else(|| root.needs(self.now)).or_else(|| (self.named && gone(root)).then(|| GONE.to_string()))
    }

    /// For people.
    pub fn plain(&self) -> String {
        let mut rows: Vec<[String; 7]> =
            vec![["", "STATE", "ENDED", "RAW", "GRADED", "WRITTEN", "OWNER"].map(String::from)];
        for e in self.list {
            rows.push([
                if e.rerun.is_some() { "!".to_string() } else { String::new() },
                format!("{}{}", e.state.kind.word(), if e.state.inferred { "~" } else { "" }),
                format!("{}/{}{}", count(e.done), count(e.planned), if e.is_doubtful() { "~" } else { "" }),
                e.score.zip(e.planned).map_or("-".to_string(), |(s, planned)| share(s.passed, planned)),
                e.score.map_or("-".to_string(), |s| {
                    format!("{}{}", share(s.passed, s.graded), if s.at_least { "~" } else { "" })
                }),
                e.last_write.map_or("-".to_string(), |at| {
                    let words = time::words(time::age(at, self.now).as_secs_f64());
                    // One unit: `39 m` of `39 m 1 s`.
                    format!("{} ago", words.split(' ').take(2).collect::<Vec<_>>().join(" "))
                }),
                owner(e.owner.as_ref()),
            ]);
        }
        let widths: Vec<usize> =
            (0..7).map(|i| rows.iter().map(|r| r.get(i).map_or(0, |c| c.chars().count())).max().unwrap_or(0)).collect();
        let mut out = String::new();
        let name = |e: &Arc<Entry>| {
            let facts = [e.agents.join("+"), e.models.join("+"), e.datasets.join("+")];
            let facts: Vec<&str> = facts.iter().map(String::as_str).filter(|f| !f.is_empty()).collect();
            line(&format!("{}  {}", path_text(&e.dir), facts.join(" · "))).trim_end().to_string()
        };
        let names = std::iter::once("JOB".to_string()).chain(self.list.iter().map(name));
        for (row, name) in rows.iter().zip(names) {
            let cells: Vec<String> = row.iter().zip(&widths).map(|(c, w)| format!("{c:<w$}")).collect();
            out.push_str(cells.join("  ").trim_start_matches("  "));
            out.push_str(&format!("  {name}\n"));
        }
        out.push('\n');
        for r in &self.roster.roots {
            let n = self.roster.jobs.values().filter(|e| e.root == r.path).count();
            if gone(r) {
                out.push_str(&format!("{}: {GONE}\n", line(&path_text(&r.path))));
                continue;
            }
            let left_out = r.left_out.as_ref().map(|l| format!("; left out: {}", line(l))).unwrap_or_default();
            out.push_str(&format!(
                "{}: {n} job{}, {}{left_out}\n",
                line(&path_text(&r.path)),
                if n == 1 { "" } else { "s" },
                r.file_system
            ));
        }
        let attention = self.attention();
        if attention.is_empty() {
            out.push_str("nothing needs you\n");
        }
        for need in attention {
            out.push_str(&format!("! {}: {}\n", line(&path_text(&need.path)), line(&need.message)));
        }
        out
    }

    /// For programs.
    pub fn json(&self) -> String {
        let path = |path: &Path| path_text(path).into_owned();
        let roots: Vec<Value> = self
            .roster
            .roots
            .iter()
            .map(|r| {
                let state = match (&r.busy, &r.state) {
                    (Some(_), _) | (None, RootState::Reading) => "silent",
                    (None, RootState::Read(_)) => "read",
                    (None, RootState::Gone) => "gone",
                    (None, RootState::Failed(_)) => "failed",
                };
                json!({
                    "path": path(&r.path),
                    "state": state,
                    "why": self.wrong(r).or_else(|| gone(r).then(|| GONE.to_string())).map(|w| line(&w)),
                    "file_system": r.file_system,
                    "jobs": self.roster.jobs.values().filter(|e| e.root == r.path).count(),
                    "left_out": r.left_out,
                })
            })
            .collect();
        let attention: Vec<Value> = self
            .attention()
            .iter()
            .map(|n| json!({"kind": n.kind, "path": path(&n.path), "message": line(&n.message)}))
            .collect();
        let jobs: Vec<Value> = self.list.iter().map(|e| self.job(e)).collect();
        let document = json!({"schema_version": 1, "roots": roots, "jobs": jobs, "attention": attention});
        let mut text = serde_json::to_string_pretty(&document).unwrap_or_default();
        text.push('\n');
        json_for_terminal(&text).into_owned()
    }

    fn job(&self, e: &Entry) -> Value {
        let score = |n: u64, of: Option<u64>| {
            let value = of.filter(|of| *of > 0).map(|of| n as f64 / of as f64);
            json!({"numerator": n, "denominator": of, "value": value})
        };
        let texts = |list: &[Arc<str>]| list.iter().map(|t| line(t)).collect::<Vec<_>>();
        json!({
            "dir": path_text(&e.dir),
            "root": path_text(&e.root),
            "job_name": line(&e.name),
            "job_id": e.id.as_ref().map(|id| line(id)),
            "layout": e.layout.word(),
            "harness": e.harness.word(),
            "state": e.state.kind.word(),
            "state_evidence": line(&e.state.evidence),
            "state_inferred": e.state.inferred,
            "last_write": e.last_write.map(|at| at.to_string()),
            "age_s": e.last_write.map(|at| time::age(at, self.now).as_secs()),
            "created": e.created.map(|at| at.to_string()),
            "agents": texts(&e.agents),
            "models": texts(&e.models),
            "datasets": texts(&e.datasets),
            "progress": {"done": e.done, "planned": e.planned},
            "scores": e.score.map(|s| json!({"raw": score(s.passed, e.planned), "graded": score(s.passed, Some(s.graded))})),
            "figures": match (e.exact, e.score.is_some_and(|s| s.at_least)) {
                (true, _) => "trials",
                (false, true) => "result, at least",
                (false, false) => "result",
            },
            "owner": e.owner.as_ref().map(|o| json!({
                "harness": o.harness.word(),
                "pid": o.pid,
                "command": line(&o.command),
                "host": o.host.as_ref().map(|h| line(h)),
            })),
            "rerun": e.rerun.as_ref().map(|r| json!({
                "scored": r.scored, "solved": r.solved, "begun": r.begun, "message": line(&r.message),
            })),
            "problems": e.problems.iter().map(|p| json!({
                "kind": p.kind.word(), "path": line(&p.path), "message": line(&p.message),
            })).collect::<Vec<_>>(),
        })
    }
}

const GONE: &str = "no such directory (any more); --forget forgets it";

fn gone(root: &RootLine) -> bool {
    root.busy.is_none() && root.state == RootState::Gone
}

/// What became of a wish to forget.
pub fn forgotten(gone: &[PathBuf], not: &[&PathBuf], as_json: bool) -> String {
    let path = |p: &Path| path_text(p).into_owned();
    if as_json {
        let gone: Vec<String> = gone.iter().map(|p| path(p)).collect();
        let not: Vec<String> = not.iter().map(|p| path(p)).collect();
        let text = json!({"schema_version": 1, "forgotten": gone, "not_remembered": not}).to_string() + "\n";
        return json_for_terminal(&text).into_owned();
    }
    let mut out = String::new();
    gone.iter().for_each(|p| out.push_str(&format!("forgotten: {}\n", line(&path(p)))));
    not.iter().for_each(|p| out.push_str(&format!("was not remembered: {}\n", line(&path(p)))));
    out
}

fn count(n: Option<u64>) -> String {
    n.map_or("-".to_string(), |n| n.to_string())
}

fn share(n: u64, of: u64) -> String {
    if of == 0 { format!("{n}/{of}") } else { format!("{n}/{of} {:.1} %", 100.0 * n as f64 / of as f64) }
}

fn owner(owner: Option<&OwnerLine>) -> String {
    owner.map_or("-".to_string(), |o| {
        let host = o.host.as_ref().map(|h| format!(" on {}", line(h))).unwrap_or_default();
        format!("{} pid {}{host}", o.harness.word(), o.pid)
    })
}
