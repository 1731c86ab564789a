//! The plan of a requeue as data: what is drawn, printed, asked about and then started.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value, json};

pub use super::config::Difference;
use super::config::{self, Change};
use super::quoted;
use super::select::{Pick, Refused};
use crate::job::JobKey;
use crate::job::text::{clean, mask_secrets};

/// Which program runs the new job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Harness {
    /// Harbor.
    Harbor {
        /// The program; None where none was found.
        program: Option<PathBuf>,
        /// Its version, where it said one.
        installed: Option<String>,
        /// Version that ran the old job.
        ran: Option<String>,
    },
    /// Pilothouse itself.
    Own {
        /// The program.
        program: PathBuf,
    },
}

/// One trial of the plan.
pub type Row = Pick;

/// A new job that is ready to be started.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// The job that its trials come from.
    pub job: JobKey,
    /// That job's directory, absolute.
    pub source: PathBuf,
    /// That job's name.
    pub source_name: Arc<str>,
    /// That job's id.
    pub source_id: Option<Arc<str>>,
    /// What runs the new one.
    pub harness: Harness,
    /// The trials that are run again.
    pub rows: Vec<Row>,
    /// What differs from how they were run before.
    pub differs: Vec<Difference>,
    /// Name of the new job.
    pub name: String,
    /// Its directory, which is not there yet.
    pub dir: PathBuf,
    /// Its config, a JSON document without secrets.
    pub config: String,
    /// Where that is written when it starts.
    pub config_path: PathBuf,
    /// Where the program is started: relative paths of the config count from there.
    pub cwd: PathBuf,
    /// The exact command, program first.
    pub command: Vec<String>,
    /// Variables of this host that the job reads and that are not set: export them first.
    pub missing: Vec<String>,
    /// Why it can not be started, beside those.
    pub problems: Vec<String>,
    /// What to know before it is started.
    pub warnings: Vec<String>,
    /// The operator's reason, where one was given.
    pub reason: Option<Arc<str>>,
}

impl Plan {
    /// The command as one types it.
    pub fn line(&self) -> String {
        let words: Vec<String> = self.command.iter().map(|w| quoted(w)).collect();
        format!("cd {} && {}", quoted(&self.cwd.to_string_lossy()), words.join(" "))
    }

    /// Everything that keeps it from being started, a line each.
    pub fn obstacles(&self) -> Vec<String> {
        let mut out = self.problems.clone();
        if !self.missing.is_empty() {
            let names = self.missing.join(", ");
            out.push(format!("keys are not on disk: export {names} and try again"));
        }
        out
    }

    /// True when it can be started.
    pub fn is_ready(&self) -> bool {
        self.problems.is_empty() && self.missing.is_empty() && !self.rows.is_empty()
    }

    /// The plan as JSON; every text safe for a terminal.
    pub fn json(&self) -> Value {
        let text = |s: &str| clean(&mask_secrets(s)).into_owned();
        let rows: Vec<Value> = self
            .rows
            .iter()
            .map(|row| {
                json!({
                    "trial": text(&row.trial), "task": text(&row.task), "class": row.class.map(|c| c.word()),
                    "why": text(&row.why), "attempts": row.attempts, "failed_alike": row.alike, "forced": row.forced,
                })
            })
            .collect();
        let differs: Vec<Value> = self
            .differs
            .iter()
            .map(|d| json!({"field": text(&d.field), "was": text(&d.was), "now": text(&d.now)}))
            .collect();
        let (harness, installed, ran) = match &self.harness {
            Harness::Harbor { installed, ran, .. } => ("harbor", installed.as_deref(), ran.as_deref()),
            Harness::Own { .. } => ("pilothouse", None, None),
        };
        json!({
            "from": text(&self.source.to_string_lossy()), "job_name": text(&self.name),
            "job_dir": text(&self.dir.to_string_lossy()), "harness": harness,
            "harness_version": installed.map(text), "harness_version_of_job": ran.map(text), "trials": rows,
            "differs": differs, "command": text(&self.line()), "config": text(&self.config_path.to_string_lossy()),
            "reason": self.reason.as_deref().map(text), "missing_variables": self.missing,
            "problems": self.problems.iter().map(|p| text(p)).collect::<Vec<_>>(),
            "warnings": self.warnings.iter().map(|w| text(w)).collect::<Vec<_>>(),
        })
    }
}

/// Name of the next requeue of a job, after its directory: `<job>-requeue-<n>`, counted on from requeues
/// themselves. `taken` says whether a name is in use.
pub fn next_name(job: &str, taken: &dyn Fn(&str) -> bool) -> String {
    let root = match job.rsplit_once("-requeue-") {
        Some((root, n)) if !root.is_empty() && !n.is_empty() && n.chars().all(|c| c.is_ascii_digit()) => root,
        _ => job,
    };
    // Whatever the directory is called, the new name is one for every shell and every viewer.
    let plain = |c: char| if c.is_alphanumeric() || "._-+=@,".contains(c) { c } else { '_' };
    let root: String = root.trim_start_matches(['.', '-']).chars().map(plain).take(60).collect();
    let root = if root.is_empty() { "job".to_string() } else { root };
    let names = (1..u32::MAX).map(|n| format!("{root}-requeue-{n}"));
    names.into_iter().find(|name| !taken(name)).unwrap_or_else(|| format!("{root}-requeue"))
}

/// What a plan needs to know of one trial.
#[derive(Debug, Clone, PartialEq)]
pub struct Trial {
    /// Why it is run again.
    pub pick: Pick,
    /// Its config.
    pub config: Value,
}

/// Everything about a job that a plan is made of.
#[derive(Debug, Clone, PartialEq)]
pub struct Material {
    /// The job.
    pub job: JobKey,
    /// Its directory, absolute.
    pub source: PathBuf,
    /// Its name.
    pub name: Arc<str>,
    /// Its id.
    pub id: Option<Arc<str>>,
    /// Its `config.json`.
    pub config: Option<Value>,
    /// The trials.
    pub trials: Vec<Trial>,
    /// What runs the new job.
    pub harness: Harness,
    /// Where its program is started.
    pub cwd: PathBuf,
    /// Differences of the tasks: changed, gone.
    pub tasks: Vec<Difference>,
    /// What is wrong, what is to be known.
    pub problems: Vec<String>,
    /// What to know.
    pub warnings: Vec<String>,
}

/// What is asked for beside the trials.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Ask {
    /// Another address of the model.
    pub api_base: Option<String>,
    /// Trials at a time.
    pub n_concurrent: Option<u32>,
    /// The operator's reason.
    pub reason: Option<Arc<str>>,
    /// The directory that configs are written to.
    pub configs: PathBuf,
    /// Names that other plans have taken already.
    pub reserved: Vec<String>,
}

/// One plan for each config that the trials were run with: mostly one. `taken` says whether a name is in
/// use in the jobs dir, `set` whether a variable of this host is set.
pub fn plans(material: &Material, ask: &Ask, taken: &dyn Fn(&str) -> bool, set: &dyn Fn(&str) -> bool) -> Vec<Plan> {
    let mut groups: BTreeMap<String, Vec<&Trial>> = BTreeMap::new();
    let mut order: Vec<String> = Vec::new();
    for trial in &material.trials {
        let group = config::group_of(&trial.config);
        if !groups.contains_key(&group) {
            order.push(group.clone());
        }
        groups.entry(group).or_default().push(trial);
    }
    let jobs_dir = material.source.parent().map_or_else(|| PathBuf::from("."), Path::to_path_buf);
    let mut out: Vec<Plan> = Vec::new();
    for group in order {
        let Some(trials) = groups.get(&group) else { continue };
        let Some(first) = trials.first() else { continue };
        let dir_name = material.source.file_name().unwrap_or_default().to_string_lossy();
        let name = next_name(&dir_name, &|name| taken(name) || out.iter().any(|plan| plan.name == name));
        let change = Change {
            name: name.clone(),
            jobs_dir: jobs_dir.to_string_lossy().into_owned(),
            api_base: ask.api_base.clone(),
            n_concurrent: ask.n_concurrent,
        };
        let tasks: Vec<Value> = trials.iter().filter_map(|t| config::task_of(&t.config)).collect();
        let mut problems = material.problems.clone();
        for trial in trials.iter().filter(|t| config::task_of(&t.config).is_none()) {
            problems.push(format!("{}: its config names no task", trial.pick.trial));
        }
        let built = config::build(material.config.as_ref(), &first.config, tasks, &change);
        problems.extend(built.problems);
        let mut differs = built.differs;
        differs.extend(material.tasks.clone());
        let mut warnings = material.warnings.clone();
        let config_path = ask.configs.join(format!("{name}.json"));
        let command = command(&material.harness, &config_path);
        if let Harness::Harbor { program, installed, ran } = &material.harness {
            if program.is_none() {
                let line =
                    "no harbor program: name it with --harbor PATH or in PILOTHOUSE_HARBOR, or put it on the PATH";
                problems.push(line.to_string());
            }
            if let (Some(installed), Some(ran)) = (installed, ran)
                && installed != ran
            {
                differs.push(Difference::new("harbor", ran, installed));
                warnings.push(format!("the job was run by Harbor {ran}, and this is {installed}: compare with care"));
            }
        }
        out.push(Plan {
            job: material.job,
            source: material.source.clone(),
            source_name: material.name.clone(),
            source_id: material.id.clone(),
            harness: material.harness.clone(),
            rows: trials.iter().map(|t| t.pick.clone()).collect(),
            differs,
            dir: jobs_dir.join(&name),
            name,
            config: serde_json::to_string_pretty(&built.config).unwrap_or_default(),
            config_path,
            cwd: material.cwd.clone(),
            command,
            missing: built.variables.into_iter().filter(|name| !set(name)).collect(),
            problems,
            warnings,
            reason: ask.reason.clone(),
        });
    }
    out
}

fn command(harness: &Harness, config: &Path) -> Vec<String> {
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let words = |program: String, more: &[&str]| {
        let mut out = vec![program, "run".to_string(), "-c".to_string(), text(config)];
        out.extend(more.iter().map(|w| (*w).to_string()));
        out
    };
    match harness {
        Harness::Harbor { program, .. } => {
            words(program.as_deref().map_or_else(|| "harbor".to_string(), text), &["-y"])
        }
        Harness::Own { program } => words(text(program), &["--headless", "-y"]),
    }
}

/// What is told of a whole wish: its plans and what is not in them.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Prepared {
    /// The new jobs.
    pub plans: Vec<Plan>,
    /// What was wanted and is not run.
    pub refused: Vec<Refused>,
    /// What else there is to say.
    pub notes: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_count_on_and_lead_nowhere() {
        let free = |_: &str| false;
        assert_eq!(next_name("run", &free), "run-requeue-1");
        assert_eq!(next_name("run-requeue-4", &|n| n == "run-requeue-1"), "run-requeue-2");
        assert_eq!(next_name("run-requeue-x", &free), "run-requeue-x-requeue-1");
        assert_eq!(next_name("../a b\u{1b}[0m", &free), "_a_b__0m-requeue-1");
        assert_eq!(next_name("..", &free), "job-requeue-1");
        assert!(next_name(&"é".repeat(300), &free).len() < 200);
    }
}
