//! Programs that are installed in a trial's place and run there to their end, by a file that says how:
//! see [`spec`]. The program has the say; what it prints, its exit code and the files that it leaves in
//! `/logs/agent` are what is known of it.
//!
//! | part | what it does |
//! |---|---|
//! | [`spec`] | the file of an agent |
//! | [`options`] | what can be set |
//! | [`script`] | shell text around the file's own |
//! | [`errors`] | what last words mean |
//! | [`record`], [`mini`] | tokens and trajectory of what it left |
//!
//! Keys come from `--ae` or this machine, by the names that the file lists, and go into the one command
//! that runs it, as variables. They are in no command line, and known to what masks texts.
//!
//! # What differs from Harbor
//!
//! | Harbor | here |
//! |---|---|
//! | `bash`, always | `sh`, unless the file asks for `bash` |
//! | output through a pipe into a file | written there by the command itself; its exit code is the program's |
//! | after a timeout it works on while the tests run | its processes are ended first (`--ak end_after_timeout=false`: not) |
//! | tokens of a run that was cut short are lost | counted by what is in its files then |
//! | a cost of 0 for a price that nobody knows | none |
//! | reasoning in the trajectory is the message once more | what the server gave as reasoning |

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use super::{Agent, Cut, Stage, Work, of_environment};
use crate::environment::{Command, Ended, ExecEnd, Noted, OnTimeout, OutputFile, Upload};
use crate::harbor::task::{EnvTemplate, host_variable};
use crate::harbor::write::config::AgentConfig;
use crate::harbor::write::raised::Raised;
use crate::harbor::write::result::AgentResult;
use crate::harbor::write::{Folder, Scrub};
use crate::job::Stamp;
use crate::job::text::{clean, strip_ansi};
use crate::job::work::Doing;

pub mod errors;
pub mod mini;
pub mod options;
pub mod record;
pub mod script;
pub mod spec;

use options::Options;
use record::{Author, Used};
use spec::{Found, ModelUse, Origin, Shell, Spec, Who};

const SETUP: &str = "the agent's setup";
const DURING: &str = "the agent's run";
/// Where its instruction is, inside.
const HOME: &str = "/installed-agent";
/// Its files, inside.
const LOGS: &str = "/logs/agent";
/// What its installation printed, in `agent/`.
const SETUP_LOGS: &str = "setup";
/// For a question of the file (is it there, which version).
const QUESTION: Duration = Duration::from_secs(60);
/// For a short question of our own.
const SHORT: Duration = Duration::from_secs(30);
/// Between two looks at what it used so far, at least.
const LOOK: Duration = Duration::from_secs(5);
/// A look may take this part of the time between two.
const PATIENCE: u32 = 50;
/// Bytes of what it printed that are searched for what they mean.
const LAST: u64 = 1 << 20;
/// Longest version, in characters.
const VERSION: usize = 64;

/// A program that works in the trial's place.
pub struct Installed {
    found: Found,
    options: Options,
    model: Option<String>,
    /// Variables of the run that are secrets.
    keys: Vec<(String, String)>,
    /// Variables of this machine that the file passes on.
    passed: Vec<(String, String)>,
}

impl std::fmt::Debug for Installed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Installed")
            .field("name", &self.found.spec.name)
            .field("model", &self.model)
            .finish_non_exhaustive()
    }
}

/// Names of all agents that a file describes, sorted.
pub fn names() -> Vec<String> {
    spec::names()
}

/// The agent of a config, where there is a file for its name; everything is looked at, and nothing begun.
///
/// # Errors
/// All that is wrong, a line each, safe to show.
pub fn of(config: &AgentConfig) -> Option<Result<Installed, Vec<String>>> {
    match spec::find(config.name.as_deref()?) {
        Ok(found) => Some(Installed::with(found?, config)),
        Err(problem) => Some(Err(vec![problem.to_string()])),
    }
}

/// A variable: the operator's for agents, else this machine's.
fn variable(config: &AgentConfig, name: &str) -> Option<String> {
    let own = config.env.get(name).map(|value| EnvTemplate::new(value).resolve(host_variable).ok());
    own.unwrap_or_else(|| host_variable(name)).filter(|value| !value.trim().is_empty())
}

impl Installed {
    fn with(found: Found, config: &AgentConfig) -> Result<Installed, Vec<String>> {
        let spec = &found.spec;
        let mut wrong = Vec::new();
        let mut kwargs = config.kwargs.clone();
        if let Some(base) = &config.base_url {
            if spec.options.contains_key("api_base") {
                kwargs.entry("api_base").or_insert_with(|| Value::String(base.clone()));
            } else {
                wrong.push(format!("base_url: {} has no setting api_base", spec.name));
            }
        }
        let options = Options::of(spec, &kwargs).unwrap_or_else(|lines| {
            wrong.extend(lines);
            Options::default()
        });
        if config.model_api_format.is_some() {
            wrong.push("model_api_format: the program has its own way to a model".to_string());
        }
        let model = config.model_name.clone().filter(|model| !model.trim().is_empty());
        let provider = model.as_deref().and_then(|model| model.split_once('/')).map(|(provider, _)| provider);
        match (spec.model, &model) {
            (ModelUse::Required, None) => wrong.push("no model: name it with -m provider/name".to_string()),
            (ModelUse::Required, Some(model)) if provider.is_none() && !config.skip_model_parsing => {
                wrong.push(format!("model {}: provider/name, such as openai/{0}", clean(model)));
            }
            (ModelUse::None, Some(_)) => wrong.push(format!("a model (-m): {} takes none", spec.name)),
            _ => {}
        }
        let lists = ["any", provider.unwrap_or_default()].map(|name| spec.keys.get(name));
        let names: Vec<&String> = lists.into_iter().flatten().flatten().collect();
        let mut keys = Vec::new();
        match (&config.model_api_key_name, names.as_slice()) {
            (None, []) => {}
            (Some(named), []) => wrong.push(format!("model_api_key_name {}: {} takes no key", clean(named), spec.name)),
            (Some(named), [.., last]) => match variable(config, named) {
                Some(value) => keys.push(((*last).clone(), value)),
                None => wrong.push(format!("no key: {} is not set", clean(named))),
            },
            (None, names) => match names.iter().find_map(|name| Some(((*name).clone(), variable(config, name)?))) {
                Some(key) => keys.push(key),
                None => {
                    let names: Vec<&str> = names.iter().map(|name| name.as_str()).collect();
                    let names = names.join(" or ");
                    wrong.push(format!(
                        "no key: set {names} here, or with --ae; any word where the server asks for none"
                    ));
                }
            },
        }
        let passed = spec.run.pass.iter().filter(|name| !config.env.contains_key(*name));
        let passed = passed.filter_map(|name| Some((name.clone(), host_variable(name)?))).collect();
        if wrong.is_empty() { Ok(Installed { found, options, model, keys, passed }) } else { Err(wrong) }
    }

    /// What of its variables must not be written anywhere.
    pub fn secrets(&self) -> impl Iterator<Item = String> + '_ {
        self.keys.iter().map(|(_, value)| value.clone())
    }

    fn spec(&self) -> &Spec {
        &self.found.spec
    }

    fn scrub(&self, stage: &Stage<'_>) -> Scrub {
        stage.scrub.and(self.secrets())
    }

    fn user(&self, stage: &Stage<'_>, who: Who) -> Option<String> {
        match who {
            Who::Root => Some("root".to_string()),
            Who::Agent => stage.task.config.agent_user(stage.task.spec(stage.step)).map(ToString::to_string),
        }
    }

    /// What scripts are told, as variables that are not exported.
    fn variables(&self, stage: &Stage<'_>) -> Vec<(String, String)> {
        let model = self.model.clone().unwrap_or_default();
        let (provider, model_name) = model.split_once('/').unwrap_or(("", &model));
        let mut out = vec![
            ("provider".to_string(), provider.to_string()),
            ("model_name".to_string(), model_name.to_string()),
            ("version".to_string(), self.options.version.clone().unwrap_or_default()),
            ("session".to_string(), record::session(stage.logs.path())),
            ("logs".to_string(), stage.environment.locate(LOGS)),
        ];
        out.push(("model".to_string(), model.clone()));
        out.extend(self.options.own.iter().map(|(name, value)| (format!("opt_{name}"), value.clone())));
        out
    }

    /// Variables of the run: the file's, what is passed on, what is set; the operator's have the last word.
    fn env(&self, stage: &Stage<'_>) -> Vec<(String, String)> {
        let run = &self.spec().run;
        let mut env: BTreeMap<String, String> = run.env.clone();
        env.extend(self.passed.iter().cloned());
        env.extend(self.options.env.clone());
        env.extend(self.keys.iter().cloned());
        env.extend(stage.env.clone());
        for same in &run.same {
            if let Some(value) = same.iter().find_map(|name| env.get(name)).cloned() {
                same.iter().for_each(|name| {
                    env.entry(name.clone()).or_insert_with(|| value.clone());
                });
            }
        }
        env.insert(script::MARK.to_string(), self.spec().name.clone());
        env.into_iter().collect()
    }

    /// Runs a script of the installation; gives its exit code and what it printed.
    async fn step(&self, stage: &Stage<'_>, step: &Step<'_>) -> Result<(Option<i64>, Words), Raised> {
        let setup = &self.spec().setup;
        let mut env: BTreeMap<String, String> = setup.env.clone();
        env.extend(stage.env.clone());
        let file = format!("{SETUP_LOGS}/{}", step.file);
        let command = Command {
            shell: step.shell.word().to_string(),
            user: self.user(stage, step.who),
            env: env.into_iter().collect(),
            timeout: step.limit,
            on_timeout: OnTimeout::Kill,
            output: Some(OutputFile { path: format!("{LOGS}/{file}"), cap: stage.output_cap }),
            ..Command::new(&script::with_variables(&self.variables(stage), None, step.script))
        };
        let end = stage.environment.exec(&command).await.map_err(|e| of_environment(&e, SETUP))?;
        let exit = match end.ended {
            Ended::Exited(code) => Some(code),
            Ended::TimedOut => None,
        };
        let logs = Arc::clone(stage.logs);
        Ok((exit, apart(SETUP, move || Words::of(&logs, &file)).await?))
    }

    async fn prepare(&self, stage: &Stage<'_>) -> Result<(), Raised> {
        let setup = &self.spec().setup;
        let logs = Arc::clone(stage.logs);
        // The agent's own user may have to write there.
        let made = apart(SETUP, move || logs.make_or_open(SETUP_LOGS, 0o777).map(drop)).await?;
        made.map_err(|e| Raised::new("OSError", &e.to_string(), SETUP))?;
        if setup.shell == Shell::Bash || self.spec().run.shell == Shell::Bash {
            let asked = stage.environment.probe(&["sh", "-c", "command -v bash"], None, SHORT).await;
            if asked.map_err(|e| of_environment(&e, SETUP))?.exit != 0 {
                let why = format!("{} needs bash, which the image does not have", self.spec().name);
                return Err(Raised::new("RuntimeError", &why, SETUP));
            }
        }
        let wanted = self.options.version.as_deref();
        let mut version = None;
        let mut there = self.options.skip_install;
        if let (false, Some(check)) = (there, &setup.check) {
            let step = Step { limit: Some(QUESTION), ..Step::of(check, "check.txt", setup) };
            there = self.step(stage, &step).await?.0 == Some(0);
            if there {
                version = self.version_there(stage).await?;
                there = wanted.is_none() || wanted == version.as_deref();
            }
        }
        if !there {
            if let Some(needs) = script::needs(&setup.needs) {
                let step = Step { who: Who::Root, ..Step::of(&needs, "needs.txt", setup) };
                self.succeed(stage, &step).await?;
            }
            if let Some(install) = &setup.install {
                self.succeed(stage, &Step::of(install, "install.txt", setup)).await?;
            }
            version = None;
        }
        if version.is_none() {
            version = self.version_there(stage).await?;
        }
        if let Some(version) = version {
            stage.desk.found_version(&version);
        }
        Ok(())
    }

    /// A part of the installation that has to succeed.
    async fn succeed(&self, stage: &Stage<'_>, step: &Step<'_>) -> Result<(), Raised> {
        let (exit, words) = self.step(stage, step).await?;
        if exit == Some(0) {
            return Ok(());
        }
        let raised = errors::failed(&self.spec().errors, step.script, exit.unwrap_or(-1), &words, SETUP);
        Err(Raised { message: self.scrub(stage).text(&raised.message), ..raised })
    }

    /// The version that is there, where the file knows how to find out.
    async fn version_there(&self, stage: &Stage<'_>) -> Result<Option<String>, Raised> {
        let setup = &self.spec().setup;
        let Some(version) = &setup.version else { return Ok(None) };
        let step = Step { limit: Some(QUESTION), ..Step::of(version, "version.txt", setup) };
        let (exit, words) = self.step(stage, &step).await?;
        Ok(version_of(&words.last).filter(|_| exit == Some(0)))
    }

    async fn work(&self, stage: &Stage<'_>) -> Result<AgentResult, Raised> {
        let spec = self.spec();
        let file = format!("{HOME}/instruction.md");
        let upload = Upload::Bytes(stage.instruction.as_bytes().to_vec(), 0o644);
        stage.environment.upload(upload, &file).await.map_err(|e| of_environment(&e, DURING))?;
        let file = stage.environment.locate(&file);
        let text = script::with_variables(&self.variables(stage), Some((stage.instruction, &file)), &spec.run.command);
        let command = Command {
            shell: spec.run.shell.word().to_string(),
            user: self.user(stage, Who::Agent),
            workdir: stage.task.config.environment.workdir.clone(),
            env: self.env(stage),
            output: Some(OutputFile { path: format!("{LOGS}/{}", spec.output()), cap: stage.output_cap }),
            ..Command::new(&text)
        };
        let doing = Doing::Command { keys: spec.name.clone(), wait: 0.0, since: Stamp::now() };
        stage.desk.tell(|work| {
            work.doing = doing;
            work.told = Some(Stamp::now());
        });
        let end = self.watched(stage, &command).await?;
        let step = stage.step.name.as_deref();
        let noted = stage.ledger.note(&**stage.environment, "agent", step, &end).await;
        let (mut result, mut remarks) = self.gather(stage, DURING).await?;
        remarks.extend(noted.remark());
        self.add(&mut result, &remarks, &[], Some(&noted));
        let Ended::Exited(exit) = end.ended else {
            return Err(Raised::new("RuntimeError", "it has no limit of its own, and ended by one", DURING));
        };
        if exit == 0 {
            return Ok(result);
        }
        // A failure has no result of its own.
        stage.desk.report(result);
        let (logs, output) = (Arc::clone(stage.logs), spec.output());
        let words = apart(DURING, move || Words::of(&logs, &output)).await?;
        let mut raised = errors::failed(&spec.errors, &spec.run.command, exit, &words, DURING);
        if let Some(remark) = noted.remark() {
            raised.message.push_str(&format!("\n{remark}"));
        }
        Err(Raised { message: self.scrub(stage).text(&raised.message), ..raised })
    }

    /// Waits for the program; meanwhile it asks the place something now and then, lest that be taken for
    /// idle, and looks what was used so far.
    async fn watched(&self, stage: &Stage<'_>, command: &Command) -> Result<ExecEnd, Raised> {
        let alive = async {
            let pause = Duration::from_secs(u64::from(self.options.keep_alive_sec));
            if pause.is_zero() {
                std::future::pending::<()>().await;
            }
            loop {
                tokio::time::sleep(pause).await;
                // Whatever it answers: the command itself shows when something is wrong.
                let _ = stage.environment.probe(&["sh", "-c", ":"], None, SHORT).await;
            }
        };
        let look = async {
            let mut pause = LOOK;
            let mut seen = None;
            loop {
                tokio::time::sleep(pause).await;
                let Some(file) = self.telling() else { continue };
                let (logs, spec) = (Arc::clone(stage.logs), self.spec().clone());
                let before = seen;
                let looked = apart(DURING, move || {
                    let began = Instant::now();
                    let now = logs.dir().stat(&file).ok().map(|meta| (meta.mtime_nanos, meta.size));
                    let used = (now != before && now.is_some()).then(|| record::used(&spec, &logs).0);
                    (now, used, began.elapsed())
                });
                let Ok((now, used, took)) = looked.await else { continue };
                (seen, pause) = (now, LOOK.max(took * PATIENCE));
                if let Some(used) = used.filter(|used| used.input.is_some() || used.output.is_some()) {
                    self.tell(stage, &used);
                }
            }
        };
        tokio::select! {
            end = stage.environment.exec(command) => end.map_err(|e| of_environment(&e, DURING)),
            () = alive => Err(Raised::new("RuntimeError", "it ends never", DURING)),
            () = look => Err(Raised::new("RuntimeError", "it ends never", DURING)),
        }
    }

    /// The file that tells of tokens, if one does.
    fn telling(&self) -> Option<String> {
        let spec = self.spec();
        let tokens = spec.tokens.as_ref().map(|tokens| tokens.file.clone());
        tokens.or_else(|| spec.trajectory.as_ref().map(|record| record.file.clone()))
    }

    fn tell(&self, stage: &Stage<'_>, used: &Used) {
        stage.desk.tell(|work| {
            work.episode = used.calls.filter(|n| *n > 0).or(work.episode);
            work.tokens.input = used.input.unwrap_or(0);
            work.tokens.cached = used.cached.unwrap_or(0);
            work.tokens.output = used.output.unwrap_or(0);
            work.tokens.reasoning = used.reasoning.unwrap_or(0);
            work.told = Some(Stamp::now());
        });
    }

    /// Takes what it left: the result, and the trajectory.
    async fn gather(&self, stage: &Stage<'_>, during: &'static str) -> Result<(AgentResult, Vec<String>), Raised> {
        let author = Author {
            session: record::session(stage.logs.path()),
            version: stage.desk.version().or_else(|| self.options.version.clone()),
            model: self.model.clone(),
            instruction: stage.instruction.to_string(),
        };
        let (spec, logs, scrub) = (self.spec().clone(), Arc::clone(stage.logs), self.scrub(stage));
        let keys: Vec<String> = self.secrets().collect();
        let (used, remarks) = apart(during, move || {
            let mut remarks = record::mask(&spec, &logs, &keys);
            let (used, more) = record::used(&spec, &logs);
            remarks.extend(more);
            remarks.extend(record::write(&spec, &logs, &author, &used, &scrub));
            (used, remarks)
        })
        .await?;
        self.tell(stage, &used);
        let mut result = used.result(self.model.as_deref());
        if let Some(calls) = used.calls {
            result.metadata.get_or_insert_default().insert("n_episodes".to_string(), calls.into());
        }
        Ok((result, remarks))
    }

    /// What a result has to say of the agent and how it ended.
    fn add(&self, result: &mut AgentResult, remarks: &[String], deviations: &[String], noted: Option<&Noted>) {
        let metadata = result.metadata.get_or_insert_default();
        if let Some(noted) = noted {
            metadata.insert("exit_code".to_string(), noted.exit_code.into());
            if noted.oom_kills > 0 || noted.oom_kill_count.is_some() {
                metadata.insert("oom_kills".to_string(), noted.oom_kills.into());
                metadata.insert("oom_kill_count".to_string(), noted.oom_kill_count.into());
            }
        }
        if !remarks.is_empty() {
            let remarks: Vec<String> = remarks.iter().map(|remark| clean(remark).into_owned()).collect();
            metadata.insert("remark".to_string(), remarks.join("; ").into());
        }
        let file = match &self.found.origin {
            Origin::Shipped => json!("shipped"),
            Origin::Own(_) => json!("own"),
        };
        let mut about = Map::new();
        about.insert("agent_file".to_string(), json!({"of": file, "sha256": self.found.sha256}));
        about.insert("deviations".to_string(), deviations.into());
        metadata.insert("pilothouse".to_string(), about.into());
    }

    /// After its time was over or it was stopped.
    async fn after(&self, stage: &Stage<'_>, cut: Cut) -> Result<(), Raised> {
        let mut deviations = Vec::new();
        let mut remarks = Vec::new();
        // Here what was given up is gone already.
        let own = stage.environment.describe().kind == "local";
        if cut == Cut::TimeUp && self.options.end_after_timeout && !own {
            let mark = format!("{}={}", script::MARK, self.spec().name);
            let asked = stage.environment.probe(&["sh", "-c", script::END, "sh", &mark], Some("0"), SHORT).await;
            match asked.map(|answer| (answer.text.trim().parse::<u32>(), answer.text)) {
                Ok((Ok(0), _)) => {}
                Ok((Ok(n), _)) => deviations.push(format!("{n} processes of the agent were ended before the tests")),
                Ok((Err(_), text)) => remarks.push(format!("its processes were not ended: {}", clean(text.trim()))),
                Err(e) => remarks.push(format!("its processes were not ended: {e}")),
            }
        }
        let (mut result, more) = self.gather(stage, DURING).await?;
        remarks.extend(more);
        self.add(&mut result, &remarks, &deviations, None);
        stage.desk.report(result);
        Ok(())
    }
}

impl Agent for Installed {
    fn name(&self) -> &str {
        &self.found.spec.name
    }

    fn version(&self) -> &str {
        self.options.version.as_deref().unwrap_or("unknown")
    }

    fn setup<'a>(&'a self, stage: &'a Stage<'a>) -> Work<'a, ()> {
        Box::pin(self.prepare(stage))
    }

    fn run<'a>(&'a self, stage: &'a Stage<'a>) -> Work<'a, AgentResult> {
        Box::pin(self.work(stage))
    }

    fn settle<'a>(&'a self, stage: &'a Stage<'a>, cut: Cut) -> Work<'a, ()> {
        Box::pin(self.after(stage, cut))
    }
}

/// A script of an installation.
struct Step<'a> {
    script: &'a str,
    /// Its output, in `agent/setup/`.
    file: &'static str,
    who: Who,
    shell: Shell,
    /// None: the limit of the whole setup.
    limit: Option<Duration>,
}

impl<'a> Step<'a> {
    fn of(script: &'a str, file: &'static str, setup: &spec::Setup) -> Step<'a> {
        Step { script, file, who: setup.user, shell: setup.shell, limit: None }
    }
}

/// What a command printed: its beginning, and its end, which may be all of it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Words {
    /// The first bytes, where they are not in the end.
    pub first: String,
    /// The end.
    pub last: String,
    /// Bytes between the two.
    pub skipped: u64,
}

impl Words {
    /// Of a file in `agent/`; nothing where there is none to be read.
    fn of(logs: &Folder, file: &str) -> Words {
        let plain = |bytes: &[u8]| {
            let text = String::from_utf8_lossy(bytes);
            let lines = text.split('\n').map(|line| clean(&strip_ansi(line)).into_owned());
            lines.collect::<Vec<_>>().join("\n")
        };
        let Ok(end) = logs.dir().read_tail(file, LAST) else { return Words::default() };
        let last = plain(&end.data);
        if !end.truncated {
            return Words { last, ..Words::default() };
        }
        let first = logs.dir().read(file, 4096).map(|bytes| plain(&bytes.data)).unwrap_or_default();
        Words { skipped: end.meta.size.saturating_sub(LAST + 4096), first, last }
    }
}

/// The version in what a command printed: the first word that looks like one, else its first line.
fn version_of(text: &str) -> Option<String> {
    let looks = |word: &&str| word.starts_with(|c: char| c.is_ascii_digit()) && word.contains('.');
    let line = text.lines().map(str::trim).find(|line| !line.is_empty())?;
    let words = line.split_whitespace().map(|word| word.trim_matches(|c: char| "(),;v".contains(c)));
    let found = words.into_iter().find(looks).unwrap_or(line);
    Some(clean(found).chars().take(VERSION).collect())
}

/// What has no place in an asynchronous task.
async fn apart<T: Send + 'static>(
    during: &'static str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Raised> {
    tokio::task::spawn_blocking(work).await.map_err(|e| Raised::new("OSError", &e.to_string(), during))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_found_in_what_programs_print() {
        for (text, version) in [
            ("2.4.6\n", Some("2.4.6")),
            ("\nmini-swe-agent version 2.4.6 (python 3.12)", Some("2.4.6")),
            ("tool v1.0-beta, built today", Some("1.0-beta")),
            ("nightly", Some("nightly")),
            (" \n", None),
        ] {
            assert_eq!(version_of(text).as_deref(), version, "{text}");
        }
    }
}
