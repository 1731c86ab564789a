//! Harbor task directories, read completely: `task.toml` of both generations, instructions, and what
//! of the files around them a run needs to know (format of Harbor 0.21 and 0.26).
//!
//! A task that Harbor would silently leave out is a [`TaskProblem`] here, with the reason; one that
//! Harbor could run and pilothouse can not (yet) says so by name in [`Task::unsupported`].

mod config;
mod digest;
mod env;
mod glob;
mod list;
mod network;
mod parse;
mod read;
mod rewards;
mod sha256;
mod tree;

use std::path::{Path, PathBuf};

pub use config::{
    AgentSpec, Artifact, CollectHook, DEFAULT_BUILD_SEC, DEFAULT_VERIFIER_SEC, EnvironmentSpec, Healthcheck,
    MAIN_SERVICE, McpServer, McpTransport, Os, Package, StepSpec, TaskConfig, Tpu, User, VerifierMode, VerifierSpec,
};
pub use digest::Digests;
pub use env::{EnvTemplate, EnvTemplates, MissingVariable, host_variable, lay_over, resolve_all};
pub use glob::{BadPattern, Glob};
pub use list::{Candidate, Listed, Selection, SelectionProblem, list};
pub use network::Network;
pub use rewards::{MinReward, RewardStrategy, Rewards};

pub(crate) use config::table;
use read::shown;
use tree::{Budget, Kind, Tree};

/// SHA-256 in 64 lower-case hexadecimal digits.
pub(crate) fn sha256_hex(bytes: &[u8]) -> String {
    sha256::Sha256::hex_of(bytes)
}

/// Longest `task.toml` that is read: 1 MiB.
const MAX_TOML: u64 = 1 << 20;
/// Longest instruction that is read: 16 MiB.
const MAX_INSTRUCTION: u64 = 16 << 20;

/// Why a directory is no task that could run. The texts are safe to show.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TaskProblem {
    /// Something that must be there is not.
    #[error("{path} is missing")]
    Missing {
        /// Path in the task.
        path: String,
    },
    /// Something that is there and can not be read.
    #[error("{path}: {why}")]
    Unreadable {
        /// Path in the task, or of it.
        path: String,
        /// The reason.
        why: String,
    },
    /// `task.toml` is not TOML.
    #[error("task.toml line {line}, column {column}: {message}")]
    Toml {
        /// Line, from 1.
        line: usize,
        /// Column in characters, from 1.
        column: usize,
        /// What is wrong there.
        message: String,
    },
    /// `task.toml` says something that it may not say; everything that was found.
    #[error("task.toml: {}", .0.join("; "))]
    Invalid(Vec<String>),
    /// A link that leads out of the task.
    #[error("{path} is a link that leads out of the task")]
    Leaves {
        /// Path in the task.
        path: String,
    },
    /// Links that lead round in a circle.
    #[error("{path} leads round in a circle")]
    Cycle {
        /// Path in the task.
        path: String,
    },
    /// A name that is not UTF-8; Harbor can not deal with such a task.
    #[error("{path}: the name is not UTF-8")]
    NotUtf8 {
        /// Path in the task.
        path: String,
    },
    /// More than any task should be.
    #[error("too large: {what}")]
    TooLarge {
        /// What there is too much of.
        what: String,
    },
}

/// Why a task that Harbor can run can not be run by pilothouse itself.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unsupported {
    /// `environment/docker-compose.yaml`.
    #[error("a compose file (environment/docker-compose.yaml)")]
    ComposeFile,
    /// Another service than the main one in an artifact or a collect hook.
    #[error("the compose service {0:?}")]
    Service(String),
    /// A verifier in a container of its own.
    #[error("a separate verifier")]
    SeparateVerifier,
    /// A network with a list of hosts.
    #[error("an allow-list network")]
    AllowlistNetwork,
    /// A phase with another network than its environment's.
    #[error("a network that differs between phases")]
    PhaseNetwork,
    /// Graphics processors.
    #[error("{0} GPUs")]
    Gpus(u64),
    /// A TPU slice.
    #[error("a TPU ({0})")]
    Tpu(String),
    /// Windows containers.
    #[error("Windows containers")]
    Windows,
    /// `trajectory.json`: what an agent did before (oracle and nop go without, as in Harbor).
    #[error("a prior trajectory (trajectory.json)")]
    PriorTrajectory,
    /// `.harborignore` rules (Harbor 0.26).
    #[error("ignore rules ({0})")]
    HarborIgnore(String),
}

impl Unsupported {
    /// Whether it stands in the way of an agent that calls no model (`oracle`, `nop`), too.
    pub fn hinders_every_agent(&self) -> bool {
        *self != Unsupported::PriorTrajectory
    }
}

/// Where the image of an environment comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Image<'a> {
    /// A prebuilt one, by reference.
    Prebuilt(&'a str),
    /// Built from `environment/Dockerfile`.
    Build,
    /// The task names none.
    None,
}

/// What one agent run and its verifier need: the whole task, or one of its `[[steps]]`. Paths are
/// relative to the task's directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskStep {
    /// Name of the step; None for a task of one step.
    pub name: Option<String>,
    /// What the agent is told, canary lines taken out.
    pub instruction: String,
    /// Directories that go to `/tests`, a later one over the earlier.
    pub tests: Vec<String>,
    /// The script that Harbor runs as `/tests/test.sh`; None where verification was not asked for, or
    /// the verifier is separate.
    pub test_script: Option<String>,
    /// The directory that the oracle gets as `/solution`.
    pub solution: Option<String>,
    /// The oracle's script in it; a step that has a directory without one has none.
    pub solve_script: Option<String>,
    /// What goes to the working directory before the step, `setup.sh` among it.
    pub workdir: Option<String>,
}

/// A task that could run.
#[derive(Debug, Clone, PartialEq)]
pub struct Task {
    /// Its directory, absolute and without links.
    pub dir: PathBuf,
    /// `org/name`, else the directory's name.
    pub name: String,
    /// What `task.toml` says.
    pub config: TaskConfig,
    /// Its steps in order; one for a task without `[[steps]]`.
    pub steps: Vec<TaskStep>,
    /// Whether there is an `environment/Dockerfile`.
    pub dockerfile: bool,
    /// Whether `environment/` holds anything at all.
    pub environment_files: bool,
    /// Keys that nobody knows (Harbor ignores them, typos among them) and other oddities.
    pub notes: Vec<String>,
    /// What keeps pilothouse from running it.
    pub unsupported: Vec<Unsupported>,
}

impl Task {
    /// Reads a task that is to be verified.
    ///
    /// # Errors
    /// See [`TaskProblem`].
    pub fn load(dir: &Path) -> Result<Task, TaskProblem> {
        Task::load_for(dir, true)
    }

    /// Reads a task; without verification it needs no test script.
    ///
    /// # Errors
    /// See [`TaskProblem`].
    pub fn load_for(dir: &Path, verified: bool) -> Result<Task, TaskProblem> {
        let tree = Tree::open(dir)?;
        let missing = |path: &str| TaskProblem::Missing { path: shown(path) };
        let text = tree.text("task.toml", MAX_TOML)?.ok_or_else(|| missing("task.toml"))?;
        let table = table(&text).map_err(|(line, column, message)| TaskProblem::Toml { line, column, message })?;
        let (config, problems, mut notes) = TaskConfig::read(&table);
        if !problems.is_empty() {
            return Err(TaskProblem::Invalid(problems));
        }
        if text.starts_with('\u{feff}') {
            notes.push("task.toml begins with a byte order mark, which Harbor refuses".into());
        }
        let environment = tree.find("environment", Kind::Dir)?;
        if environment.is_none() && config.environment.docker_image.is_none() {
            return Err(missing("environment"));
        }
        let mut budget = Budget::new();
        for path in ["tests", "solution", "steps"] {
            tree.check(path, &mut budget)?;
        }
        let steps =
            config.runs().map(|step| files_of(&tree, &config, step, verified)).collect::<Result<Vec<_>, _>>()?;
        let in_environment = |name: &str| tree.find(&format!("environment/{name}"), Kind::File);
        let dockerfile = in_environment("Dockerfile")?.is_some();
        let environment_files = environment.is_some()
            && std::fs::read_dir(tree.root.join("environment")).is_ok_and(|mut entries| entries.next().is_some());
        let mut unsupported = Vec::new();
        if in_environment("docker-compose.yaml")?.is_some() {
            unsupported.push(Unsupported::ComposeFile);
        }
        unsupported.extend(of_config(&config));
        let first = config.steps.first().map(|s| format!("steps/{}/trajectory.json", s.name));
        if tree.find(first.as_deref().unwrap_or("trajectory.json"), Kind::File)?.is_some() {
            unsupported.push(Unsupported::PriorTrajectory);
        }
        unsupported.extend(digest::harbor_ignore(&tree)?.map(Unsupported::HarborIgnore));
        let own = || tree.root.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let name = config.package.as_ref().map_or_else(own, |p| p.name.clone());
        Ok(Task { dir: tree.root, name, config, steps, dockerfile, environment_files, notes, unsupported })
    }

    /// A text of the task, UTF-8, of at most `cap` bytes; None where there is none.
    ///
    /// # Errors
    /// [`TaskProblem::Unreadable`] for one that is no regular file or longer, [`TaskProblem::Leaves`] for
    /// a link that leads out of the task.
    pub fn text(&self, path: &str, cap: u64) -> Result<Option<String>, TaskProblem> {
        Tree::open(&self.dir)?.text(path, cap)
    }

    /// The name without its organisation.
    pub fn short_name(&self) -> &str {
        self.name.rsplit('/').next().unwrap_or(&self.name)
    }

    /// What `task.toml` says about a step; None for a task of one step.
    pub fn spec(&self, step: &TaskStep) -> Option<&StepSpec> {
        self.config.steps.iter().find(|s| Some(&s.name) == step.name.as_ref())
    }

    /// Where the image comes from; `force_build` prefers the Dockerfile to a prebuilt one.
    pub fn image(&self, force_build: bool) -> Image<'_> {
        match &self.config.environment.docker_image {
            Some(image) if !(force_build && self.dockerfile) => Image::Prebuilt(image),
            _ if self.dockerfile => Image::Build,
            _ => Image::None,
        }
    }

    /// What keeps pilothouse from running it, in one line; None if nothing does.
    pub fn why_not(&self) -> Option<String> {
        let words: Vec<String> = self.unsupported.iter().map(|u| shown(&u.to_string())).collect();
        (!words.is_empty()).then(|| format!("needs {}", words.join(", ")))
    }
}

/// An instruction with further ones behind it, as `--extra-instruction` gives them.
pub fn with_extra(instruction: &str, extra: &[String]) -> String {
    let parts: Vec<&str> = std::iter::once(instruction).chain(extra.iter().map(String::as_str)).collect();
    parts.join("\n\n")
}

/// An instruction without the marker lines at its beginning that keep benchmarks out of training
/// data, and without the blank lines after them.
pub fn without_canary(text: &str) -> String {
    let canary = |line: &str| {
        let line = line.trim().to_ascii_lowercase();
        let inside = match line.strip_prefix("<!--") {
            Some(rest) => rest.strip_suffix("-->"),
            None => line.strip_prefix('#'),
        };
        inside.is_some_and(|i| i.contains("canary"))
    };
    let lines = text.split('\n').skip_while(|l| canary(l)).skip_while(|l| l.trim().is_empty());
    lines.collect::<Vec<_>>().join("\n")
}

fn files_of(
    tree: &Tree,
    config: &TaskConfig,
    step: Option<&StepSpec>,
    verified: bool,
) -> Result<TaskStep, TaskProblem> {
    let base = step.map_or(String::new(), |s| format!("steps/{}/", s.name));
    let instruction = format!("{base}instruction.md");
    let text = tree.text(&instruction, MAX_INSTRUCTION)?;
    let text = text.ok_or_else(|| TaskProblem::Missing { path: shown(&instruction) })?;
    let dir = |path: String| tree.find(&path, Kind::Dir).map(|found| found.map(|_| path));
    // A step's own files go over those of the task.
    let mut places = vec![format!("{base}tests")];
    if step.is_some() {
        places.insert(0, "tests".into());
    }
    let mut tests = Vec::new();
    for place in places {
        tests.extend(dir(place)?);
    }
    let script_of = |dir: &str, name: &str, os: Os| {
        let path = format!("{dir}/{name}.{}", if os == Os::Windows { "bat" } else { "sh" });
        tree.at(&path).and_then(|node| match node.map(|n| n.kind) {
            Some(Kind::File) => Ok(Some(path)),
            Some(Kind::Dir | Kind::Other) => {
                Err(TaskProblem::Unreadable { path: shown(&path), why: "not a regular file".into() })
            }
            Some(Kind::Dangling) | None => Ok(None),
        })
    };
    let mut test_script = None;
    if verified && config.verifier_mode(step) == VerifierMode::Shared {
        let os = config.verifier_os(step);
        for place in tests.iter().rev() {
            if test_script.is_none() {
                test_script = script_of(place, "test", os)?;
            }
        }
        if test_script.is_none() {
            let name = if os == Os::Windows { "tests/test.bat" } else { "tests/test.sh" };
            let own = step.map_or(String::new(), |_| format!("{base}{name} or "));
            return Err(TaskProblem::Missing { path: shown(&format!("{own}{name}")) });
        }
    }
    let own = match step {
        Some(_) => dir(format!("{base}solution"))?,
        None => None,
    };
    let solution = match own {
        Some(own) => Some(own),
        None => dir("solution".into())?,
    };
    let solve_script = match &solution {
        Some(dir) => script_of(dir, "solve", config.environment.os)?,
        None => None,
    };
    let workdir = match step {
        Some(_) => dir(format!("{base}workdir"))?,
        None => None,
    };
    Ok(TaskStep {
        name: step.map(|s| s.name.clone()),
        instruction: without_canary(&text),
        tests,
        test_script,
        solution,
        solve_script,
        workdir,
    })
}

/// What a `task.toml` asks for that pilothouse can not give.
fn of_config(config: &TaskConfig) -> Vec<Unsupported> {
    let mut out = Vec::new();
    let mut add = |reason: Unsupported| {
        if !out.contains(&reason) {
            out.push(reason);
        }
    };
    let environment = &config.environment;
    if environment.os == Os::Windows {
        add(Unsupported::Windows);
    }
    if let Some(gpus) = environment.gpus.filter(|n| *n > 0) {
        add(Unsupported::Gpus(gpus));
    }
    if let Some(tpu) = &environment.tpu {
        add(Unsupported::Tpu(format!("{} {}", tpu.kind, tpu.topology)));
    }
    let is_list = |network: &Network| matches!(network, Network::Allowlist(_));
    if is_list(&environment.network) {
        add(Unsupported::AllowlistNetwork);
    }
    for step in config.runs() {
        if config.verifier_mode(step) == VerifierMode::Separate {
            add(Unsupported::SeparateVerifier);
        }
        for network in [config.agent_network(step), config.verifier_network(step)] {
            if is_list(network) {
                add(Unsupported::AllowlistNetwork);
            } else if *network != environment.network {
                add(Unsupported::PhaseNetwork);
            }
        }
    }
    let verifiers = config.steps.iter().map(|s| &s.verifier).chain([&config.verifier]);
    let hooks = verifiers.flat_map(|v| v.collect.iter().map(|c| c.service.as_str()));
    let kept = config.steps.iter().flat_map(|s| &s.artifacts).chain(&config.artifacts);
    for service in hooks.chain(kept.filter_map(|a| a.service.as_deref())) {
        if service != MAIN_SERVICE {
            add(Unsupported::Service(service.to_string()));
        }
    }
    out
}
