//! A job: what its own files say of it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use super::roster::Standing;
use super::settings::Settings;
use super::time::Stamp;
use super::trial::Problem;

/// Which program's layout a directory has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Layout {
    /// Harbor 0.1-0.26.
    #[default]
    Harbor,
    /// Classic terminal-bench: a run directory, or what was kept of one.
    Classic,
    /// The same inside the evaluation wrapper around terminal-bench-hard.
    Hard,
}

impl Layout {
    /// The word in JSON.
    pub fn word(self) -> &'static str {
        match self {
            Layout::Harbor => "harbor",
            Layout::Classic => "terminal-bench",
            Layout::Hard => "terminal-bench-hard",
        }
    }

    /// Whether trials are those of classic terminal-bench, below their tasks' directories.
    pub fn is_classic(self) -> bool {
        self != Layout::Harbor
    }

    /// The file that holds the job's own result.
    pub fn result_file(self) -> &'static str {
        match self {
            Layout::Harbor => "result.json",
            Layout::Classic => "results.json",
            Layout::Hard => "tb_results.json",
        }
    }

    /// The file that says when the job ended.
    pub fn end_file(self) -> &'static str {
        if self.is_classic() { "run_metadata.json: end_time" } else { "result.json: finished_at" }
    }

    /// The log that who works on the job holds open.
    pub fn log_file(self) -> &'static str {
        if self.is_classic() { "run.log" } else { "job.log" }
    }

    /// A trial's result.
    pub fn trial_file(self) -> &'static str {
        if self.is_classic() { "results.json" } else { "result.json" }
    }
}

/// The program that ran a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Harness {
    /// Harbor.
    #[default]
    Harbor,
    /// This one, in Harbor's layout: its lease lies in the job dir.
    Pilothouse,
    /// Classic terminal-bench.
    TerminalBench,
}

impl Harness {
    /// The word in JSON and reports.
    pub fn word(self) -> &'static str {
        match self {
            Harness::Harbor => "harbor",
            Harness::Pilothouse => "pilothouse",
            Harness::TerminalBench => "terminal-bench",
        }
    }
}

/// One group of equal planned trials: a task, for one agent and model, `n` times.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Planned {
    /// Task short name, as [`super::trial::Trial::task`].
    pub task: Arc<str>,
    /// Agent name.
    pub agent: Option<Arc<str>>,
    /// Model name.
    pub model: Option<Arc<str>>,
    /// Content digest, where the lock has one.
    pub digest: Option<Arc<str>>,
    /// How many trials of it are planned (attempts).
    pub n: u32,
}

/// `result.json` of the job, both generations of stats.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct JobSummary {
    /// `n_total_trials`.
    pub n_total: Option<u64>,
    /// Trials whose end was recorded, cancelled ones included.
    pub n_completed: Option<u64>,
    /// Trials with an exception.
    pub n_errored: Option<u64>,
    /// Running by Harbor's own count.
    pub n_running: Option<u64>,
    /// Not started by Harbor's own count.
    pub n_pending: Option<u64>,
    /// Cancelled.
    pub n_cancelled: Option<u64>,
    /// Retries so far.
    pub n_retries: Option<u64>,
    /// First start. Harbor writes the job's times in the local time of its machine, without zone: read
    /// with `zone_offset`, else as the local time of this machine.
    pub started: Option<Stamp>,
    /// Last rewrite.
    pub updated: Option<Stamp>,
    /// End; only written when all trials ended.
    pub finished: Option<Stamp>,
    /// The times were written without zone.
    pub naive: bool,
    /// What the local time of the machine that ran the job was ahead of UTC, in seconds, by comparison
    /// with `lock.json`.
    pub zone_offset: Option<i32>,
    /// Mean reward as Harbor states it, per evals key: the metric `reward`, else `mean`, else the
    /// only one.
    pub means: BTreeMap<Arc<str>, f64>,
    /// Passed and graded as Harbor lists them by trial name, each name once: the reward `reward`, else the
    /// only one. None where it lists none.
    pub standing: Option<Standing>,
}

/// What `config.json`, `lock.json` and `result.json` of a job say.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct JobFacts {
    /// The job dir.
    pub dir: PathBuf,
    /// Layout.
    pub layout: Layout,
    /// Job name from the config, else the directory's name.
    pub name: Arc<str>,
    /// Job id of `result.json`.
    pub id: Option<Arc<str>>,
    /// Version of Harbor from the lock; of a classic run that of terminal-bench.
    pub harbor_version: Option<Arc<str>>,
    /// Agent names, in order, without repeats.
    pub agents: Vec<Arc<str>>,
    /// Model names, in order, without repeats.
    pub models: Vec<Arc<str>>,
    /// Where jobs go, as its config has it: often relative to the directory that the job was started in.
    /// None where it does not say; Harbor takes `jobs` then.
    pub jobs_dir: Option<Arc<str>>,
    /// Dataset labels.
    pub datasets: Vec<Arc<str>>,
    /// Trials at a time.
    pub n_concurrent: Option<u32>,
    /// Planned trials in plan order, equal neighbours not joined; from the lock.
    pub planned: Option<Vec<Planned>>,
    /// Start: `lock.json.created_at` (UTC), else the summary's.
    pub created: Option<Stamp>,
    /// The job's own result.
    pub summary: Option<JobSummary>,
    /// The program that ran it.
    pub harness: Harness,
    /// How its trials were run.
    pub settings: Arc<Settings>,
    /// Commits of the tasks' repositories, `url commit`, from the lock.
    pub commits: Vec<Arc<str>>,
    /// Jobs that this one names as its origin: job dirs or ids (`source_jobs`).
    pub lineage: Vec<Arc<str>>,
    /// Which file the plan was read from, where it is not the layout's own.
    pub planned_by: Option<&'static str>,
    /// Problems with the job's own files.
    pub problems: Vec<Problem>,
}

impl JobFacts {
    /// Number of planned trials and the file that says so. None when neither file tells.
    pub fn n_planned(&self) -> Option<(u64, &'static str)> {
        if let Some(planned) = &self.planned {
            let lock = if self.layout.is_classic() { "tb.lock" } else { "lock.json" };
            return Some((planned.iter().map(|p| u64::from(p.n)).sum(), self.planned_by.unwrap_or(lock)));
        }
        let summary = if self.layout.is_classic() { "run_metadata.json" } else { "result.json" };
        self.summary.as_ref().and_then(|s| s.n_total).map(|n| (n, summary))
    }
}

/// A process that was told to go on with one job dir and writes into another one: `harbor job resume` of
/// 0.21 does so when it is started in another directory, and so does a start from an old job's config.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stray {
    /// The process, by which two jobs of it are known to belong together.
    pub pid: u32,
    /// Its sub-command, as one types it: `harbor job resume`.
    pub command: Arc<str>,
    /// The job dir that it was told, absolute.
    pub meant: PathBuf,
    /// The job dir that it writes into, absolute.
    pub writes: PathBuf,
    /// This job is the one that it writes into; else the one that it was told.
    pub here: bool,
}

/// What speaks for and against a living owner of the job, as observed by the follower.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Liveness {
    /// Process on this host that holds the job's log open: pid and command name.
    pub owner: Option<(u32, Arc<str>)>,
    /// True when this host's processes could be looked at and the directory is on a local file
    /// system, so that finding no owner means something.
    pub owner_search_conclusive: bool,
    /// Why there is certainly no owner, in words, where the last one left a record of it (its lease).
    pub owner_left: Option<Arc<str>>,
    /// A process that was told this job dir and writes elsewhere, or was told another and writes here.
    pub stray: Option<Stray>,
    /// Newest modification time met in the job dir.
    pub last_write: Option<Stamp>,
}
