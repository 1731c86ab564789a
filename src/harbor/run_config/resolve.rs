//! Config files, then flags: from what an operator typed to the config of a job.

use std::fmt;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use super::flags::RunFlags;
use super::layers::{self, Format};
use super::node::{Entry, Node, Place, Problem, Value, set};
use super::retry::HarborVersion;
use super::types::RunConfig;
use super::unsupported::{Unsupported, WAY};
use super::{env_file, json_text, names, read};

/// Largest config that is read, in bytes.
const LARGEST: u64 = 8 << 20;

/// All that is wrong with a command line and its configs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct ConfigError {
    /// In the order in which they were found; at least one.
    pub problems: Vec<Problem>,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, problem) in self.problems.iter().enumerate() {
            let end = if i == 0 { "" } else { "\n" };
            write!(f, "{end}{problem}")?;
        }
        Ok(())
    }
}

impl From<Problem> for ConfigError {
    fn from(problem: Problem) -> Self {
        ConfigError { problems: vec![problem] }
    }
}

/// What [`resolve`] has to know of the surroundings.
pub struct Host<'h> {
    /// A file's bytes, or why there are none.
    pub read: &'h dyn Fn(&str) -> Result<Vec<u8>, String>,
    /// True for a directory that is a task rather than a directory of tasks.
    pub is_task: &'h dyn Fn(&Path) -> bool,
    /// Local time, for the job's name.
    pub now: jiff::civil::DateTime,
}

/// Reads a regular file of at most 8 MiB, without waiting for a FIFO.
///
/// # Errors
/// In words.
pub fn read_file(path: &str) -> Result<Vec<u8>, String> {
    let meta = std::fs::metadata(path).map_err(|e| e.to_string())?;
    if !meta.is_file() {
        return Err("not a regular file".to_string());
    }
    if meta.len() > LARGEST {
        return Err(format!("{} bytes, more than the {LARGEST} that are read", meta.len()));
    }
    let file = std::fs::File::open(path).map_err(|e| e.to_string())?;
    let mut bytes = Vec::new();
    file.take(LARGEST).read_to_end(&mut bytes).map_err(|e| e.to_string())?;
    Ok(bytes)
}

impl Host<'static> {
    /// This machine, now. A directory with a `task.toml` is a task.
    pub fn real() -> Host<'static> {
        Host { read: &read_file, is_task: &|path| path.join("task.toml").is_file(), now: jiff::Zoned::now().datetime() }
    }
}

/// A command line in the form of a job.
#[derive(Debug, Clone, PartialEq)]
pub struct Resolved {
    /// The config, complete.
    pub config: RunConfig,
    /// The variables of `--env-file`: they win over those of the process.
    pub env_file: Vec<(String, String)>,
    /// Flags that are refused. They are not part of `config`, so that even printing it would leave
    /// something out.
    pub refused_flags: Vec<Unsupported>,
}

impl Resolved {
    /// A variable for templates and for [`RunConfig::print_config`]: from the env file, else from the
    /// process.
    pub fn variable(&self, name: &str) -> Option<String> {
        let from_file = self.env_file.iter().rev().find(|(key, _)| key == name).map(|(_, value)| value.clone());
        from_file.or_else(|| crate::harbor::task::host_variable(name))
    }

    /// All that pilothouse can't do of it, flags first.
    pub fn unsupported(&self) -> Vec<Unsupported> {
        self.unsupported_beside(&[])
    }

    /// As [`Resolved::unsupported`], where there are further agents of these names.
    pub fn unsupported_beside(&self, agents: &[String]) -> Vec<Unsupported> {
        let mut out = self.refused_flags.clone();
        out.extend(super::unsupported::unsupported_beside(&self.config, agents));
        out
    }
}

/// Reads one config, without flags: a file that an operator wrote, or the `config.json` of a job. The
/// version's defaults fill what a sparse one leaves out; a job name that is not given stays empty.
///
/// # Errors
/// All that is wrong, by file and line.
pub fn read_config(bytes: &[u8], name: &str, version: HarborVersion) -> Result<RunConfig, ConfigError> {
    let root = layers::read(bytes, name, format_of(name)?)?;
    read::run_config(root, version).map_err(|problems| ConfigError { problems })
}

fn format_of(name: &str) -> Result<Format, Problem> {
    Format::of(name).ok_or_else(|| {
        let what = "a config is named .yaml, .yml or .json, which says how it is read";
        Problem::new(&Place::whole(name), what)
    })
}

/// Lays the flags over the configs that they name, and both over the defaults of a version.
///
/// # Errors
/// All that is wrong, by file and line or by flag.
pub fn resolve(flags: &RunFlags, version: HarborVersion, host: &Host<'_>) -> Result<Resolved, ConfigError> {
    let mut root: Vec<Entry> = Vec::new();
    let mut problems = Vec::new();
    for name in &flags.config {
        match layer(name, host) {
            Ok(entries) => layers::lay(&mut root, entries, ""),
            Err(problem) => problems.push(problem),
        }
    }
    let env_file = flags.env_file.as_deref().map_or(Ok(Vec::new()), |name| variables(name, host));
    let env_file = env_file.unwrap_or_else(|problem| {
        problems.push(problem);
        Vec::new()
    });
    let whole = flags.config.join(", ");
    let place = Place::whole(if whole.is_empty() { "flags" } else { &whole });
    let mut tree = Apply { root: Node::new(&place, Value::Map(root)), problems };
    tree.apply(flags, host);
    let Apply { root, mut problems } = tree;
    match read::run_config(root, version) {
        Ok(mut config) if problems.is_empty() => {
            if config.job_name.is_empty() {
                config.job_name = names::job_name(host.now);
            }
            let given = flags.harbor_only.given();
            let refused = given.into_iter().filter(|f| !matches!(*f, "--no-stream" | "--skip-credential-checks"));
            let refused_flags = refused.map(Unsupported::flag).collect();
            Ok(Resolved { config, env_file, refused_flags })
        }
        Ok(_) => Err(ConfigError { problems }),
        Err(more) => {
            problems.extend(more);
            Err(ConfigError { problems })
        }
    }
}

fn layer(name: &str, host: &Host<'_>) -> Result<Vec<Entry>, Problem> {
    let place = Place::whole(name);
    if name.starts_with("http://") || name.starts_with("https://") {
        return Err(Problem::new(&place, format!("a config by URL is not fetched: download it, or {WAY}")));
    }
    let format = format_of(name)?;
    let bytes = (host.read)(name).map_err(|why| Problem::new(&place, why))?;
    match layers::read(&bytes, name, format)?.value {
        Value::Map(entries) => Ok(entries),
        _ => Ok(Vec::new()),
    }
}

fn variables(name: &str, host: &Host<'_>) -> Result<Vec<(String, String)>, Problem> {
    let place = Place::whole(name);
    let bytes = (host.read)(name).map_err(|why| Problem::new(&place, why))?;
    let text = String::from_utf8(bytes).map_err(|_| Problem::new(&place, "not UTF-8 text"))?;
    env_file::read(&text, name)
}

/// `key=value` of `--ak`, `--ek`: the value as JSON where it is JSON, Python's three words, else text.
fn setting(flag: &str, item: &str) -> Result<Entry, Problem> {
    let place = Place::whole(flag);
    let (key, value) = pair(flag, item)?;
    let source: Arc<str> = flag.into();
    let value = match value.as_str() {
        "True" => Value::Bool(true),
        "False" => Value::Bool(false),
        "None" => Value::Null,
        text if serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok() => json_text::read(text, &source)?.value,
        text => Value::Str(text.to_string()),
    };
    Ok(Entry { key, node: Node::new(&place, value) })
}

fn pair(flag: &str, item: &str) -> Result<(String, String), Problem> {
    let place = Place::whole(flag);
    // The item itself is not repeated: it may be a key without a name.
    let (key, value) = item.split_once('=').ok_or_else(|| Problem::new(&place, "wants KEY=VALUE"))?;
    match key.trim() {
        "" => Err(Problem::new(&place, "wants KEY=VALUE, with something before the =")),
        key => Ok((key.to_string(), value.trim().to_string())),
    }
}

struct Apply {
    root: Node,
    problems: Vec<Problem>,
}

impl Apply {
    fn complain(&mut self, flag: &str, message: &str) {
        self.problems.push(Problem::new(&Place::whole(flag), message));
    }

    fn put(&mut self, section: &str, key: &str, flag: &str, value: Value) {
        let place = Place::whole(flag);
        let target = match section {
            "" => Some(&mut self.root),
            name => self.root.entry(name, || Node::new(&place, Value::Map(Vec::new()))),
        };
        if let Some(target) = target {
            target.set(key, Node::new(&place, value));
        }
    }

    /// Settings or variables, laid over what is there.
    fn put_all(&mut self, section: &str, key: &str, flag: &str, entries: &[Entry]) {
        let place = Place::whole(flag);
        let empty = || Node::new(&place, Value::Map(Vec::new()));
        if let Some(section) = self.root.entry(section, empty) {
            overlay(section, key, &place, entries);
        }
    }

    fn parsed(&mut self, items: &[String], parse: impl Fn(&str) -> Result<Entry, Problem>) -> Vec<Entry> {
        let mut entries = Vec::new();
        for item in items {
            match parse(item) {
                Ok(entry) => set(&mut entries, &entry.key.clone(), entry.node),
                Err(problem) => self.problems.push(problem),
            }
        }
        entries
    }

    fn settings(&mut self, flag: &str, items: &[String]) -> Vec<Entry> {
        self.parsed(items, |item| setting(flag, item))
    }

    fn variables(&mut self, flag: &str, items: &[String]) -> Vec<Entry> {
        self.parsed(items, |item| {
            pair(flag, item).map(|(key, value)| Entry { key, node: Node::text(&Place::whole(flag), value) })
        })
    }

    fn apply(&mut self, f: &RunFlags, host: &Host<'_>) {
        let text = |v: &Option<String>| v.clone().map(Value::Str);
        let int = |v: Option<u32>| v.map(|n| Value::Int(i128::from(n)));
        let list =
            |flag: &str, items: &[String]| (!items.is_empty()).then(|| Node::texts(&Place::whole(flag), items).value);
        let yes = |on: bool| on.then_some(Value::Bool(true));
        let either = |on: bool, off: bool| if on { Some(Value::Bool(true)) } else { off.then_some(Value::Bool(false)) };
        let number = |v: Option<f64>| v.map(Value::Float);
        let plain = [
            ("", "job_name", "--job-name", text(&f.job_name)),
            ("", "jobs_dir", "--jobs-dir", text(&f.jobs_dir)),
            ("", "n_attempts", "-k", int(f.n_attempts)),
            ("", "timeout_multiplier", "--timeout-multiplier", number(f.timeout_multiplier)),
            ("", "agent_timeout_multiplier", "--agent-timeout-multiplier", number(f.agent_timeout_multiplier)),
            ("", "verifier_timeout_multiplier", "--verifier-timeout-multiplier", number(f.verifier_timeout_multiplier)),
            (
                "",
                "agent_setup_timeout_multiplier",
                "--agent-setup-timeout-multiplier",
                number(f.agent_setup_timeout_multiplier),
            ),
            (
                "",
                "environment_build_timeout_multiplier",
                "--environment-build-timeout-multiplier",
                number(f.environment_build_timeout_multiplier),
            ),
            ("", "skip_credential_checks", "--skip-credential-checks", yes(f.harbor_only.skip_credential_checks)),
            ("", "debug", "--debug", yes(f.debug)),
            ("", "quiet", "--quiet", yes(f.quiet)),
            ("", "n_concurrent_trials", "-n", int(f.n_concurrent)),
            ("retry", "max_retries", "-r", int(f.max_retries)),
            ("retry", "include_exceptions", "--retry-include", list("--retry-include", &f.retry_include)),
            ("retry", "exclude_exceptions", "--retry-exclude", list("--retry-exclude", &f.retry_exclude)),
            ("environment", "force_build", "--force-build", either(f.force_build, f.no_force_build)),
            ("environment", "delete", "--delete", either(f.delete, f.no_delete)),
            ("environment", "cpu_enforcement_policy", "--cpus", text(&f.cpus)),
            ("environment", "memory_enforcement_policy", "--memory", text(&f.memory)),
            ("environment", "override_cpus", "--override-cpus", number(f.override_cpus)),
            ("environment", "override_memory_mb", "--override-memory-mb", int(f.override_memory_mb)),
            ("", "install_only", "--install-only", yes(f.install_only)),
            ("verifier", "disable", "--disable-verification", yes(f.disable_verification || f.install_only)),
            ("", "artifacts", "--artifact", list("--artifact", &f.artifact)),
        ];
        // A section that is no map is a problem of its own and must not swallow a flag.
        for (section, key, flag, value) in plain {
            if let Some(value) = value {
                self.put(section, key, flag, value);
            }
        }
        self.environment(f);
        let variables = self.variables("--ve", &f.ve);
        if !variables.is_empty() {
            self.put_all("verifier", "env", "--ve", &variables);
        }
        self.agents(f);
        self.tasks(f, host);
    }

    fn environment(&mut self, f: &RunFlags) {
        if let Some(env) = &f.env {
            // One of the two, and the config's choice of the other goes.
            let (kind, import) = match env.contains(':') {
                true => (Value::Null, Value::Str(env.clone())),
                false => (Value::Str(env.clone()), Value::Null),
            };
            self.put("environment", "type", "-e", kind);
            self.put("environment", "import_path", "-e", import);
        }
        if let Some(mounts) = &f.mounts {
            match json_text::read(mounts, &"--mounts".into()) {
                Ok(node) => self.put("environment", "mounts", "--mounts", node.value),
                Err(problem) => self.problems.push(problem),
            }
        }
        let settings = self.settings("--ek", &f.ek);
        if !settings.is_empty() {
            self.put_all("environment", "kwargs", "--ek", &settings);
        }
    }

    fn agents(&mut self, f: &RunFlags) {
        if let Some(name) = &f.agent {
            let one = |model: Option<&String>| {
                let mut entries =
                    vec![Entry { key: "name".into(), node: Node::text(&Place::whole("-a"), name.as_str()) }];
                if let Some(model) = model {
                    set(&mut entries, "model_name", Node::text(&Place::whole("-m"), model.as_str()));
                }
                Node::new(&Place::whole("-a"), Value::Map(entries))
            };
            let agents = match f.model.is_empty() {
                true => vec![one(None)],
                false => f.model.iter().map(|m| one(Some(m))).collect(),
            };
            self.put("", "agents", "-a", Value::List(agents));
        } else if !f.model.is_empty() {
            self.complain("-m", "says nothing without -a: Harbor leaves the model out then; name the agent, too");
        }
        let (settings, variables) = (self.settings("--ak", &f.ak), self.variables("--ae", &f.ae));
        if settings.is_empty() && variables.is_empty() && f.n_concurrent_agents.is_none() {
            return;
        }
        let place = Place::whole("flags");
        let default = || Node::new(&place, Value::List(vec![Node::new(&place, Value::Map(Vec::new()))]));
        let Some(Node { value: Value::List(agents), .. }) = self.root.entry("agents", default) else { return };
        for agent in agents {
            if !settings.is_empty() {
                overlay(agent, "kwargs", &Place::whole("--ak"), &settings);
            }
            if !variables.is_empty() {
                overlay(agent, "env", &Place::whole("--ae"), &variables);
            }
            if let Some(n) = f.n_concurrent_agents {
                let place = Place::whole("--n-concurrent-agents");
                agent.set("n_concurrent", Node::new(&place, Value::Int(i128::from(n))));
            }
        }
    }

    /// What is to be run: one of `--repo`, `-p`, `-t`, `-d`, which takes the place of the config's.
    fn tasks(&mut self, f: &RunFlags, host: &Host<'_>) {
        let filters = !f.include_task_name.is_empty() || !f.exclude_task_name.is_empty() || f.n_tasks.is_some();
        let given: Vec<&str> = [
            ("--repo", f.repo.is_some()),
            ("-p", f.path.is_some()),
            ("-t", f.task.is_some()),
            ("-d", f.dataset.is_some()),
        ]
        .into_iter()
        .filter_map(|(flag, given)| given.then_some(flag))
        .collect();
        match given.as_slice() {
            [] if filters => {
                return self.complain("-i/-x/-l", "choose from -p, -d or --repo, and none of them is given");
            }
            [] => return,
            [_] | ["--repo", "-p"] | ["--repo", "-d"] => {}
            [first, second, ..] => {
                return self.complain(first, &format!("and {second} exclude each other: one of them would be ignored"));
            }
        }
        let mut set_of = Vec::new();
        let mut put = |key: &str, flag: &str, value: Option<Value>| {
            if let Some(value) = value {
                set(&mut set_of, key, Node::new(&Place::whole(flag), value));
            }
        };
        let text = |v: &Option<String>| v.clone().map(Value::Str);
        let reference = f.dataset.as_deref().or(f.task.as_deref());
        let (name, version) = match reference.map(|r| r.split_once('@').map_or((r, None), |(n, v)| (n, Some(v)))) {
            Some((name, version)) => (Some(name), version),
            None => (None, None),
        };
        let package = f.repo.is_none() && name.is_some_and(|n| n.contains('/'));
        put("repo", "--repo", text(&f.repo));
        put("path", "-p", text(&f.path));
        put("name", given.last().unwrap_or(&"-d"), name.map(|n| Value::Str(n.to_string())));
        match (package || f.task.is_some(), version) {
            (true, version) => put("ref", "-d", Some(Value::Str(version.unwrap_or("latest").to_string()))),
            (false, version) => put("version", "-d", version.map(|v| Value::Str(v.to_string()))),
        }
        let single = f.task.is_some()
            || (f.repo.is_none() && f.path.as_deref().is_some_and(|path| (host.is_task)(Path::new(path))));
        if single {
            if filters {
                self.complain("-i/-x/-l", "choose from several tasks, and this is a single one");
            }
        } else {
            let names = |flag: &str, items: &[String]| {
                (!items.is_empty()).then(|| Node::texts(&Place::whole(flag), items).value)
            };
            put("task_names", "-i", names("-i", &f.include_task_name));
            put("exclude_task_names", "-x", names("-x", &f.exclude_task_name));
            put("n_tasks", "-l", f.n_tasks.map(|n| Value::Int(i128::from(n))));
        }
        let place = Place::whole(given.first().unwrap_or(&"flags"));
        let (key, other) = if single { ("tasks", "datasets") } else { ("datasets", "tasks") };
        self.root.remove(other);
        let node = Node::new(&place, Value::Map(set_of));
        self.root.set(key, Node::new(&place, Value::List(vec![node])));
    }
}

/// Lays entries over a map inside a map.
fn overlay(within: &mut Node, key: &str, place: &Place, entries: &[Entry]) {
    if let Some(map) = within.entry(key, || Node::new(place, Value::Map(Vec::new()))) {
        for entry in entries {
            map.set(&entry.key, entry.node.clone());
        }
    }
}
