//! What to know before Harbor starts, each with its remedy. Pure: what had to be looked up comes as
//! [`Seen`].

use std::collections::BTreeSet;

use super::asked::{Asked, Worker};
use super::clouds::{Cloud, known, local};
use crate::harbor::run_config::HarborVersion;
use crate::requeue::config::key_of;

/// Trials at a time up to which remote sandboxes of this kind were seen to work well.
const SANDBOXES: u32 = 3;
/// Seconds after which an idle sandbox is taken away, where nothing else is said.
const IDLE: f64 = 600.0;
/// Names that a line lists.
const NAMED: usize = 4;

/// Something to know before the start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remark {
    /// Which, in JSON.
    pub kind: &'static str,
    /// Nothing starts before somebody has said yes.
    pub asks: bool,
    /// What is the matter.
    pub what: String,
    /// What can be done.
    pub remedy: String,
    /// Words for Harbor that are the remedy, where there are such.
    pub add: Vec<String>,
}

impl Remark {
    /// One that asks.
    pub fn asks(kind: &'static str, what: impl Into<String>, remedy: impl Into<String>) -> Remark {
        Remark { kind, asks: true, what: what.into(), remedy: remedy.into(), add: Vec::new() }
    }

    /// One that only tells.
    pub fn note(kind: &'static str, what: impl Into<String>, remedy: impl Into<String>) -> Remark {
        Remark { asks: false, ..Remark::asks(kind, what, remedy) }
    }

    fn adding(self, words: &[&str]) -> Remark {
        Remark { add: words.iter().map(|w| (*w).to_string()).collect(), ..self }
    }
}

/// What was looked up. What could not be looked up is None.
#[derive(Debug, Clone, Default)]
pub struct Seen {
    /// Variables that are set here, to something.
    pub variables: BTreeSet<String>,
    /// Files in the home directory that are there, of those that let one into a cloud.
    pub files: BTreeSet<String>,
    /// Networks that Docker has room for; why it does not answer.
    pub networks: Option<Result<u64, String>>,
    /// Addresses of models, and why they do not answer.
    pub bases: Vec<(String, Result<(), String>)>,
    /// Images of tasks, and the programs of tmux and asciinema that are not in them.
    pub images: Vec<(String, Vec<&'static str>)>,
    /// The names that this Harbor has, where it was asked.
    pub environments: Option<Vec<String>>,
    /// What a start over an old job would do.
    pub rerun: Option<Remark>,
}

/// All remarks, those that ask first.
pub fn remarks(asked: &Asked, seen: &Seen) -> Vec<Remark> {
    let mut out: Vec<Remark> = Vec::new();
    if let Some(flag) = asked.not_here {
        let what = format!("with {flag} this harbor is not the one that runs the trials");
        out.push(Remark::asks(
            "not_here",
            what,
            "run it without pilothouse, then attach the job dir where it is written",
        ));
    }
    out.extend(seen.rerun.clone());
    out.extend(consent(asked));
    out.extend(places(asked));
    for worker in &asked.workers {
        out.extend(key(worker, seen));
        out.extend(base(worker, asked, seen));
    }
    out.extend(live(asked));
    out.extend(networks(asked, seen));
    out.extend(images(asked, seen));
    out.extend(cloud(asked, seen));
    let unread = asked.unread.iter();
    out.extend(unread.map(|why| Remark::note("not_read", why.clone(), "harbor says what it makes of it")));
    out.dedup();
    out.sort_by_key(|r| !r.asks);
    out
}

/// Harbor asks before tasks may read variables of this host, and there is nobody to answer.
fn consent(asked: &Asked) -> Option<Remark> {
    if asked.yes || asked.not_here.is_some() {
        return None;
    }
    let mut names: BTreeSet<String> = BTreeSet::new();
    for task in &asked.tasks {
        let config = &task.config;
        let steps = task.steps.iter().flat_map(|step| config.verifier_env(task.spec(step)));
        let all = steps.chain(config.environment.env.clone()).chain(config.solution_env.clone());
        names.extend(all.filter_map(|(_, value)| value.reads_host().map(str::to_string)));
    }
    let remedy = "add -y, which allows it";
    if !names.is_empty() {
        let shown = shorten(&names.iter().map(String::as_str).collect::<Vec<_>>());
        let what = format!("no -y: tasks read {shown} of this host, harbor asks for it and nobody can answer");
        return Some(Remark::asks("no_yes", what, remedy).adding(&["-y"]));
    }
    let what = "no -y: where a task reads variables of this host, harbor asks and nobody can answer";
    let remark = Remark::note("no_yes", what, remedy).adding(&["-y"]);
    // Of tasks that are not here nothing is known.
    Some(Remark { asks: !asked.all_tasks, ..remark })
}

fn places(asked: &Asked) -> Option<Remark> {
    if !asked.relative {
        return None;
    }
    let dir = asked.dir().unwrap_or_else(|| asked.jobs_dir.join("<the time>"));
    let what = format!("the jobs dir is relative to where this is started: the job goes to {}", dir.display());
    Some(Remark::note("relative_dir", what, "give -o with an absolute path to have it elsewhere"))
}

/// The key that an agent needs.
fn key(worker: &Worker, seen: &Seen) -> Option<Remark> {
    if worker.without_model() {
        return None;
    }
    let model = worker.model.as_deref().unwrap_or_default();
    let name = worker.key_name.clone().or_else(|| key_of(model).map(String::from))?;
    let set = |name: &str| seen.variables.contains(name);
    let given = worker.env.get(&name).map(|value| match value.strip_prefix("${").and_then(|v| v.strip_suffix('}')) {
        Some(variable) => set(variable.split(':').next().unwrap_or(variable)),
        None => !value.is_empty(),
    });
    let kwarg = worker.kwargs.get("api_key").is_some_and(|v| v.as_str().is_some_and(|v| !v.is_empty()));
    if worker.on_host() {
        if set(&name) || given == Some(true) || kwarg {
            return None;
        }
        let what = format!("{name} is not exported: {} calls {model} from this host and needs it", worker.name);
        let remedy = format!("export {name}=… (EMPTY where the server takes any)");
        return Some(Remark::asks("key_missing", what, remedy));
    }
    let (worker_name, remedy) = (&worker.name, format!("--ae {name}=${name} passes it on"));
    match (given, set(&name)) {
        (Some(true), _) => None,
        _ if kwarg => None,
        (Some(false), _) | (None, false) => {
            let what = format!(
                "{name} is neither exported nor passed on: {worker_name} works in the container with {model} and needs it"
            );
            Some(Remark::asks("key_missing", what, format!("export {name}=…; {remedy}")))
        }
        (None, true) => {
            let what = format!(
                "{name} is exported, and not passed on by name: {worker_name} works in the container, and harbor passes on only what it knows of this agent"
            );
            Some(Remark::note("key_not_forwarded", what, remedy))
        }
    }
}

/// Where an agent's model is.
fn base(worker: &Worker, asked: &Asked, seen: &Seen) -> Vec<Remark> {
    let Some(base) = worker.base().filter(|_| !worker.without_model()) else { return Vec::new() };
    let mut out = Vec::new();
    if let Some((_, Err(why))) = seen.bases.iter().find(|(b, _)| *b == base) {
        let what = format!("the model of {} at {base} does not answer from here: {why}", worker.name);
        out.push(Remark::asks(
            "api_base",
            what,
            "start its server, or put the address right: --ak api_base=http://HOST:PORT/v1",
        ));
    }
    let host = base.split("://").nth(1).unwrap_or(&base).split(['/', ':']).next().unwrap_or_default();
    if !worker.on_host() && ["localhost", "127.0.0.1", "0.0.0.0"].contains(&host) {
        let what = format!("{} works in the container, where {host} is the container itself", worker.name);
        let remedy = match asked.environment.as_str() {
            "docker" | "podman" => {
                "give this host's address on the container network, or host.docker.internal with a compose override"
            }
            _ => "give an address that the sandbox reaches",
        };
        out.push(Remark::asks("api_base", what, remedy));
    }
    out
}

/// Whether agents' and verifiers' files are seen while they grow.
fn live(asked: &Asked) -> Option<Remark> {
    if asked.version == Some(HarborVersion::V0_21) || asked.version.is_none() {
        return None;
    }
    if !local(&asked.environment) {
        let what = format!("{}: logs and recordings come at the end of each phase, not live", asked.environment);
        return Some(Remark::note("live_logs", what, "terminus-2's trajectory is live all the same"));
    }
    let on = asked
        .environment_kwargs
        .get("auto_mounting")
        .is_some_and(|v| v.as_bool() == Some(true) || v == "true" || v == "True");
    if on {
        return None;
    }
    let what = "live logs are off: the terminal, the recording and the verifier's output are seen only at the end of \
                each phase";
    let remark = match asked.resumes {
        // Its config has to stay as it is.
        true => Remark::note("live_logs", what, "a resume can not change that"),
        false => Remark::note("live_logs", what, "add --ek auto_mounting=true").adding(&["--ek", "auto_mounting=true"]),
    };
    Some(remark)
}

/// One network for each trial at work.
fn networks(asked: &Asked, seen: &Seen) -> Option<Remark> {
    let at_once = u64::from(asked.concurrent).min(asked.trials.unwrap_or(u64::MAX));
    match seen.networks.as_ref()? {
        Err(why) => {
            let remedy = "start Docker, or look why it does not answer";
            Some(Remark::asks("docker", format!("Docker does not answer: {why}"), remedy))
        }
        Ok(free) if *free < at_once => {
            let what =
                format!("Docker has room for {free} more networks, and {at_once} trials at a time take one each");
            let remedy = "fewer at a time (-n), remove what is unused (pilothouse clean, docker network prune), or give \
                          Docker wider address pools";
            Some(Remark::asks("network_pool", what, remedy))
        }
        Ok(_) => None,
    }
}

/// Terminus works in tmux, and records with asciinema.
fn images(asked: &Asked, seen: &Seen) -> Option<Remark> {
    let terminus = asked.workers.iter().any(|w| w.name.starts_with("terminus"));
    let lacking: Vec<&(String, Vec<&'static str>)> = seen.images.iter().filter(|(_, l)| !l.is_empty()).collect();
    let (first, programs) = lacking.first().filter(|_| terminus)?;
    let many = if lacking.len() > 1 { format!(" and {} more", lacking.len() - 1) } else { String::new() };
    let what = format!(
        "image {first}{many} has no {}: harbor installs it in every trial before the agent begins, by the network",
        programs.join(" and no ")
    );
    Some(Remark::note("no_tmux", what, "put it into the image; without network such trials fail in agent setup"))
}

fn cloud(asked: &Asked, seen: &Seen) -> Vec<Remark> {
    let name = asked.environment.as_str();
    let mut out = Vec::new();
    // A class of one's own.
    if name.contains(':') || asked.resumes && asked.workers.is_empty() {
        return out;
    }
    let listed = seen.environments.as_ref().map(|names| names.iter().any(|n| n == name));
    if !listed.unwrap_or_else(|| known(name, asked.version)) {
        let what = format!("this harbor has no environment {name}");
        let remedy = match &seen.environments {
            Some(names) => format!("it has: {}", shorten(&names.iter().map(String::as_str).collect::<Vec<_>>())),
            None => "see `harbor run --help`".to_string(),
        };
        out.push(Remark::asks("environment", what, remedy));
        return out;
    }
    let Some(cloud) = Cloud::of(name, asked.version) else { return out };
    let given = ["api_key", "auth", "token"].iter().any(|k| asked.environment_kwargs.contains_key(*k));
    if !given && !cloud.open(|k| seen.variables.contains(k), |f| seen.files.contains(f)) {
        let what =
            format!("{name} wants to know who you are, and nothing here says it: harbor would stop before it begins");
        let remedy = format!("{}; harbor has to be installed as harbor[{name}]", cloud.wanted());
        out.push(Remark::asks("credentials", what, remedy));
    }
    let what = format!(
        "{name}: a sandbox that harbor can not end, or did not, goes on costing until it is idle for long enough"
    );
    let remedy = match name {
        "hf-sandbox" => "count them against the running trials: hf jobs ps --filter label=hf-sandbox=1",
        _ => "count them against the running trials, with the provider's own tool",
    };
    out.push(Remark::note("leaks", what, remedy));
    if name == "hf-sandbox" {
        out.extend(hf(asked));
    }
    out
}

/// What goes wrong most often in these sandboxes.
fn hf(asked: &Asked) -> Vec<Remark> {
    let mut out = Vec::new();
    let idle = asked.environment_kwargs.get("job_timeout").map(ToString::to_string);
    let idle = idle.map(|text| text.trim_matches('"').to_ascii_lowercase());
    let seconds = match idle.as_deref() {
        Some("none" | "off") => None,
        Some(text) => Some(span(text).unwrap_or(IDLE)),
        None => Some(IDLE),
    };
    let longest = asked.tasks.iter().filter_map(|t| t.config.agent_timeout(None)).fold(0.0, f64::max);
    let one_call = asked.workers.iter().any(|w| !w.on_host() && !w.without_model());
    if let Some(seconds) = seconds.filter(|s| one_call && (longest == 0.0 || *s < longest)) {
        let what = format!(
            "hf-sandbox ends a sandbox after {seconds:.0} s without a call, and an agent that works inside is one long \
             call: it dies at work (RemoteProtocolError, SandboxError)"
        );
        out.push(Remark::note("idle_timeout", what, "add --ek job_timeout=2h").adding(&["--ek", "job_timeout=2h"]));
    }
    if asked.concurrent > SANDBOXES {
        let what =
            format!("{} sandboxes at a time: at 8 most trials were seen to fail, at {SANDBOXES} few", asked.concurrent);
        out.push(Remark::note("concurrency", what, format!("-n {SANDBOXES}")));
    }
    let bare: Vec<&str> =
        asked.tasks.iter().filter(|t| t.config.environment.docker_image.is_none()).map(|t| t.short_name()).collect();
    if !bare.is_empty() {
        let what = format!(
            "hf-sandbox takes only tasks with [environment].docker_image, and these have none: {}",
            shorten(&bare)
        );
        out.push(Remark::asks("no_image", what, "give them one, or leave them out (-x)"));
    }
    out
}

/// `90`, `90s`, `15m`, `2h`, `1d`: seconds.
fn span(text: &str) -> Option<f64> {
    let text = text.trim();
    let (number, unit) = match text.char_indices().last()? {
        (at, 's') => (text.get(..at)?, 1.0),
        (at, 'm') => (text.get(..at)?, 60.0),
        (at, 'h') => (text.get(..at)?, 3600.0),
        (at, 'd') => (text.get(..at)?, 86_400.0),
        _ => (text, 1.0),
    };
    number.parse::<f64>().ok().map(|n| n * unit)
}

fn shorten(names: &[&str]) -> String {
    let head = names.iter().take(NAMED).copied().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(NAMED) {
        0 => head,
        more => format!("{head} and {more} more"),
    }
}
