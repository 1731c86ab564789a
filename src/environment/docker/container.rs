//! One container for one trial.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bollard::query_parameters::{InspectContainerOptions, RemoveContainerOptionsBuilder};
use tokio::sync::watch;

use super::super::error::tidy;
use super::super::subnet::Pool;
use super::super::{
    Act, Caps, Command, Description, EnvError, Environment, Exclude, ExecEnd, Fetched, FileBytes, Labels, Life, Mount,
    ProbeAnswer, Pty, PtyCommand, Role, SnapshotAsk, TakenAside, Trouble, Upload, pack::Packed,
};
use super::events::Seen;
use super::images::BuildSpec;
use super::networks::JobNetwork;
use super::{DockerEngine, calls, create, ownership_refusal};

/// Most processes in a container when nothing else is said. The engine's own default is no limit: a
/// fork bomb would take the machine down.
pub const PIDS_DEFAULT: i64 = 4096;

/// Longest answer of a container that is asked whether it answers.
const ANSWER: Duration = Duration::from_secs(10);
/// Longest final change of owner.
const HAND_OVER: Duration = Duration::from_secs(60);
/// Longest wait for a removal that somebody else began.
const REMOVAL: Duration = Duration::from_secs(45);

/// What a container is connected to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NetworkChoice {
    /// Nothing but itself.
    None,
    /// The network of that name.
    Named(String),
    /// One of its own, cut from this range (the engine's own choice when None); made at the start and
    /// removed at the stop.
    Own(Option<Pool>),
}

/// Where an image comes from.
#[derive(Debug, Clone)]
pub enum ImageSource {
    /// It is here.
    Here,
    /// It is pulled where it is not here.
    Pull,
    /// It is built; [`ContainerSpec::image`] is its name.
    Build(BuildSpec),
}

/// What a container is made from.
#[derive(Debug, Clone)]
pub struct ContainerSpec {
    /// Image name or id.
    pub image: String,
    /// Where it comes from.
    pub source: ImageSource,
    /// Whose it is; its name is made from the trial's.
    pub labels: Labels,
    /// Processors; None: no limit.
    pub cpus: Option<f64>,
    /// Bytes of memory; None: no limit.
    pub memory: Option<u64>,
    /// As much swap again; else the memory limit includes swap.
    pub swap: bool,
    /// Most processes.
    pub pids: i64,
    /// An init as PID 1, which reaps orphans.
    pub init: bool,
    /// Directories of this machine that are visible inside. Writable ones are opened to every user.
    pub mounts: Vec<Mount>,
    /// The operator's own: visible inside as they are, neither opened nor handed over.
    pub volumes: Vec<Mount>,
    /// Variables of every process.
    pub env: Vec<(String, String)>,
    /// Working directory; None: the image's.
    pub workdir: Option<String>,
    /// What it is connected to.
    pub network: NetworkChoice,
    /// `name:address` lines for its hosts file.
    pub extra_hosts: Vec<String>,
    /// User and group that the mounted directories are handed over to; None where that is root.
    pub owner: Option<(u32, u32)>,
    /// What differs besides from how Harbor starts one, a line each, for the record.
    pub remarks: Vec<String>,
}

impl ContainerSpec {
    /// A container of an image, without limits other than [`PIDS_DEFAULT`], with an init and no network.
    pub fn new(image: &str, labels: Labels) -> ContainerSpec {
        ContainerSpec {
            image: image.to_string(),
            source: ImageSource::Here,
            labels,
            cpus: None,
            memory: None,
            swap: false,
            pids: PIDS_DEFAULT,
            init: true,
            mounts: Vec::new(),
            volumes: Vec::new(),
            env: Vec::new(),
            workdir: None,
            network: NetworkChoice::None,
            extra_hosts: Vec::new(),
            owner: None,
            remarks: Vec::new(),
        }
    }
}

/// The proxy variables among the given ones, in both spellings, for [`ContainerSpec::env`] and
/// [`BuildSpec::args`](super::BuildSpec::args).
pub fn proxy_variables(get: impl Fn(&str) -> Option<String>) -> Vec<(String, String)> {
    let mut out = Vec::new();
    for name in ["HTTP_PROXY", "HTTPS_PROXY", "FTP_PROXY", "NO_PROXY", "ALL_PROXY"] {
        let lower = name.to_ascii_lowercase();
        if let Some(value) = get(name).or_else(|| get(&lower)).filter(|v| !v.is_empty()) {
            out.push((name.to_string(), value.clone()));
            out.push((lower, value));
        }
    }
    out
}

/// What an engine says about a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    Running,
    Paused,
    /// Ended or removed; the exit code where known.
    Ended(Option<i64>),
}

/// A trial's container.
#[derive(Debug)]
pub struct DockerEnvironment {
    engine: DockerEngine,
    spec: ContainerSpec,
    name: String,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) id: Option<String>,
    pub(super) seen: Option<watch::Receiver<Seen>>,
    suspect: Option<String>,
    /// Something ran in it.
    ran: bool,
    pub(super) stopped: bool,
    /// Where its commands start, as the engine says.
    pub(super) home: Option<String>,
    /// Its own network, once it is made.
    pub(super) network: Option<JobNetwork>,
}

impl DockerEnvironment {
    /// A container that is not made yet.
    ///
    /// # Errors
    /// Mounts under an engine that would give files to the wrong owner, or that does not see this
    /// machine's files.
    pub fn new(engine: DockerEngine, spec: ContainerSpec) -> Result<DockerEnvironment, EnvError> {
        if !spec.mounts.is_empty() || !spec.volumes.is_empty() {
            if let Some(refusal) = ownership_refusal(&engine.facts().security) {
                return Err(refusal);
            }
            if !engine.address().is_local() {
                let detail = format!("the engine at {} does not see this machine's directories", engine.address());
                let remedy = "run pilothouse on the engine's machine";
                return Err(EnvError::new(Trouble::Unsupported, "mount directories", &detail, remedy));
            }
        }
        let name = create::container_name(&spec.labels);
        Ok(DockerEnvironment { engine, spec, name, state: Mutex::default() })
    }

    pub(super) fn engine(&self) -> &DockerEngine {
        &self.engine
    }

    pub(super) fn spec(&self) -> &ContainerSpec {
        &self.spec
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The container's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Why it is suspect, if it is.
    pub fn suspicion(&self) -> Option<String> {
        self.state().suspect.clone()
    }

    /// Kills for want of memory seen in it so far.
    pub fn oom_kills(&self) -> u32 {
        self.seen().map_or(0, |s| s.borrow().oom)
    }

    pub(super) fn seen(&self) -> Option<watch::Receiver<Seen>> {
        self.state().seen.clone()
    }

    pub(super) fn suspect(&self, why: &str) {
        self.state().suspect.get_or_insert_with(|| why.to_string());
    }

    /// Something ran in it: its image is of use.
    pub(super) fn has_run(&self) {
        self.state().ran = true;
    }

    /// The error of a container that ended. Where nothing ever ran in it the image is at fault, and says why.
    pub(super) async fn ended(&self, call: &str, id: &str, code: Option<i64>) -> EnvError {
        if self.state().ran {
            return died(call, code);
        }
        let log = self.log_tail(id).await;
        let detail = format!("it ended at once with exit code {}: {log}", code.unwrap_or(-1));
        let remedy = "the image's entrypoint must run its arguments, and the image must have sh";
        EnvError::new(Trouble::Died, &format!("start container {}", self.name), &detail, remedy)
    }

    pub(super) fn id(&self, call: &str) -> Result<String, EnvError> {
        let state = self.state();
        match &state.id {
            Some(id) if !state.stopped => Ok(id.clone()),
            _ => Err(EnvError::new(Trouble::NotRunning, call, "the container is not started, or stopped", "")),
        }
    }

    /// The id of a container that is believed to answer: a suspect one is asked first.
    pub(super) async fn ready(&self, call: &str) -> Result<String, EnvError> {
        let id = self.id(call)?;
        let code = self.seen().and_then(|s| s.borrow().died);
        if let Some(code) = code {
            return Err(self.ended(call, &id, Some(code)).await);
        }
        if self.suspicion().is_none() {
            return Ok(id);
        }
        match self.look_alive().await? {
            Life::Alive => Ok(id),
            Life::Suspect(why) => {
                let remedy = "the container is given up and removed";
                Err(EnvError::new(Trouble::Suspect, call, &format!("the container does not answer: {why}"), remedy))
            }
            Life::Dead(code) => Err(self.ended(call, &id, code).await),
            Life::Absent => Err(died(call, None)),
        }
    }

    /// The engine's word about it.
    pub(super) async fn inspected(&self, id: &str) -> Result<Found, EnvError> {
        let asked = self.engine.docker().inspect_container(id, None::<InspectContainerOptions>);
        match self.engine.call(&calls::INSPECT, &self.name, asked).await {
            Ok(found) => {
                // Without a directory of the image's own commands start at the root.
                let home = found.config.and_then(|c| c.working_dir).filter(|d| d.starts_with('/'));
                self.state().home = Some(home.unwrap_or_else(|| "/".to_string()));
                let state = found.state.unwrap_or_default();
                Ok(match (state.running, state.paused) {
                    (Some(true), Some(true)) => Found::Paused,
                    (Some(true), _) => Found::Running,
                    _ => Found::Ended(state.exit_code),
                })
            }
            Err(e) if e.trouble == Trouble::NotFound => Ok(Found::Ended(self.seen().and_then(|s| s.borrow().died))),
            Err(e) => Err(e),
        }
    }

    /// Its address in a network.
    pub(super) async fn address_in(&self, network: &str) -> Result<Option<String>, EnvError> {
        let id = self.id("inspect container")?;
        let asked = self.engine.docker().inspect_container(&id, None::<InspectContainerOptions>);
        let found = self.engine.call(&calls::INSPECT, &self.name, asked).await?;
        let networks = found.network_settings.and_then(|n| n.networks).unwrap_or_default();
        Ok(networks.get(network).and_then(|n| n.ip_address.clone()).filter(|a| !a.is_empty()))
    }

    pub(super) async fn look_alive(&self) -> Result<Life, EnvError> {
        let Ok(id) = self.id("inspect container") else { return Ok(Life::Absent) };
        match self.inspected(&id).await {
            Ok(Found::Running) => {}
            Ok(Found::Paused) => {
                let why = "somebody paused it";
                self.suspect(why);
                return Ok(Life::Suspect(why.to_string()));
            }
            Ok(Found::Ended(code)) => return Ok(Life::Dead(code)),
            Err(e) if e.trouble == Trouble::TimedOut => {
                self.suspect(&e.to_string());
                return Ok(Life::Suspect(e.to_string()));
            }
            Err(e) => return Err(e),
        }
        match self.ask(&id, &["sh", "-c", ":"], None, ANSWER).await {
            Ok(_) => {
                self.state().suspect = None;
                Ok(Life::Alive)
            }
            Err(e) if e.trouble == Trouble::Died => Ok(Life::Dead(self.seen().and_then(|s| s.borrow().died))),
            Err(e) if e.trouble == Trouble::Unreachable => Err(e),
            Err(e) => {
                self.suspect(&e.to_string());
                Ok(Life::Suspect(e.to_string()))
            }
        }
    }

    async fn give(&self) -> Result<(), EnvError> {
        let Some((uid, gid)) = self.spec.owner.filter(|(uid, _)| *uid != 0) else { return Ok(()) };
        let writable: Vec<&str> = self.spec.mounts.iter().filter(|m| !m.read_only).map(|m| m.inside.as_str()).collect();
        if writable.is_empty() {
            return Ok(());
        }
        let call = "hand mounted files over";
        let owner = format!("{uid}:{gid}");
        // -h: a link itself, never what it leads to; -R does not follow links it meets.
        let mut argv = vec!["chown", "-R", "-h", &owner, "--"];
        argv.extend(writable);
        let answer = match self.ready(call).await {
            Ok(id) => self.ask(&id, &argv, Some("0"), HAND_OVER).await?,
            // Only a container can give away what root of a container wrote: another one does it.
            Err(e) if matches!(e.trouble, Trouble::Died | Trouble::Suspect | Trouble::NotRunning) => {
                let mut spec = ContainerSpec::new(&self.spec.image, self.spec.labels.with_role(Role::Probe));
                spec.mounts = self.spec.mounts.clone();
                spec.init = self.spec.init;
                let other = DockerEnvironment::new(self.engine.clone(), spec)?;
                let answer = async {
                    other.bring_up().await?;
                    other.ask(&other.id(call)?, &argv, Some("0"), HAND_OVER).await
                };
                let answer = answer.await;
                let gone = other.end().await;
                let answer = answer?;
                gone?;
                answer
            }
            Err(e) => return Err(e),
        };
        if answer.exit == 0 {
            return Ok(());
        }
        let remedy = format!("as root: chown -R -h {owner} on the trial directory");
        Err(EnvError::new(Trouble::Denied, call, &answer.text, &remedy))
    }

    /// Removed by force, which kills at once: PID 1 does not react to gentler signals, and waiting for that
    /// costs ten seconds. By name where no id is known: a creation whose answer never came may have happened.
    async fn end(&self) -> Result<(), EnvError> {
        let id = {
            let mut state = self.state();
            state.stopped = true;
            state.id.clone()
        };
        let target = id.clone().unwrap_or_else(|| self.name.clone());
        let removed = remove_container(&self.engine, &target, &self.name).await;
        if removed.is_ok() {
            self.forget(id.as_deref());
        }
        let network = self.state().network.clone();
        match network {
            Some(network) => removed.and(self.engine.remove_network(&network).await),
            None => removed,
        }
    }

    /// Another name than it would get if it were made.
    pub(super) fn call_it(&mut self, name: &str) {
        self.name = name.to_string();
    }

    pub(super) fn forget(&self, id: Option<&str>) {
        if let Some(id) = id {
            self.engine.inner.watch.end(id);
        }
    }
}

impl Drop for DockerEnvironment {
    fn drop(&mut self) {
        // The container itself is found by its labels.
        let id = self.state().id.clone();
        self.forget(id.as_deref());
    }
}

/// Removes a container by force and waits until it is gone.
pub(super) async fn remove_container(engine: &DockerEngine, target: &str, name: &str) -> Result<(), EnvError> {
    let options = RemoveContainerOptionsBuilder::default().force(true).v(true).build();
    match engine.call(&calls::REMOVE, name, engine.docker().remove_container(target, Some(options))).await {
        Ok(()) => Ok(()),
        Err(e) if e.trouble == Trouble::NotFound => Ok(()),
        // Somebody else removes it already.
        Err(e) if e.trouble == Trouble::Conflict => {
            let deadline = tokio::time::Instant::now() + REMOVAL;
            while tokio::time::Instant::now() < deadline {
                let asked = engine.docker().inspect_container(target, None::<InspectContainerOptions>);
                match engine.call(&calls::INSPECT, name, asked).await {
                    Err(e) if e.trouble == Trouble::NotFound => return Ok(()),
                    Err(e) => return Err(e),
                    Ok(_) => tokio::time::sleep(Duration::from_millis(100)).await,
                }
            }
            Err(e)
        }
        Err(e) => Err(e),
    }
}

pub(super) fn died(call: &str, code: Option<i64>) -> EnvError {
    let detail = match code {
        Some(code) if code >= 0 => format!("the container is not running any more (exit code {code})"),
        _ => "the container is not running any more".to_string(),
    };
    EnvError::new(Trouble::Died, call, &detail, "look who stopped it: the engine's log, another user, a restart")
}

impl Environment for DockerEnvironment {
    fn start(&self) -> Act<'_, ()> {
        Box::pin(self.bring_up())
    }

    fn exec<'a>(&'a self, command: &'a Command) -> Act<'a, ExecEnd> {
        Box::pin(self.run(command))
    }

    fn probe<'a>(&'a self, argv: &'a [&'a str], user: Option<&'a str>, limit: Duration) -> Act<'a, ProbeAnswer> {
        Box::pin(async move {
            let id = self.ready("probe").await?;
            self.ask(&id, argv, user, limit).await
        })
    }

    fn upload<'a>(&'a self, from: Upload, to: &'a str) -> Act<'a, Packed> {
        Box::pin(self.put(from, to))
    }

    fn download_file<'a>(&'a self, from: &'a str, cap: u64) -> Act<'a, FileBytes> {
        Box::pin(self.take_file(from, cap))
    }

    fn download_part<'a>(&'a self, from: &'a str, into: PathBuf, caps: Caps, without: Exclude) -> Act<'a, Fetched> {
        Box::pin(async move { self.take_tree(from, &into, caps, without).await })
    }

    fn is_alive(&self) -> Act<'_, Life> {
        Box::pin(self.look_alive())
    }

    fn hand_over(&self) -> Act<'_, ()> {
        Box::pin(self.give())
    }

    fn hold(&self, since: crate::job::Stamp) -> Act<'_, TakenAside> {
        Box::pin(self.hold_now(since))
    }

    fn snapshot<'a>(&'a self, ask: &'a SnapshotAsk) -> Act<'a, TakenAside> {
        Box::pin(self.copy_now(ask))
    }

    fn stop(&self) -> Act<'_, ()> {
        Box::pin(self.end())
    }

    fn open_pty<'a>(&'a self, command: &'a PtyCommand) -> Act<'a, Pty> {
        Box::pin(self.begin_pty(command))
    }

    fn pty_end<'a>(&'a self, id: &'a str) -> Act<'a, Option<i64>> {
        Box::pin(self.end_of_pty(id))
    }

    fn size_pty<'a>(&'a self, id: &'a str, cols: u16, rows: u16) -> Act<'a, ()> {
        Box::pin(self.resize_pty(id, cols, rows))
    }

    fn home(&self) -> Option<String> {
        self.state().home.clone()
    }

    fn locate(&self, path: &str) -> String {
        path.to_string()
    }

    fn describe(&self) -> Description {
        let spec = &self.spec;
        let mut summary = format!("docker {} (engine {})", spec.image, self.engine.facts().version);
        if let Some(cpus) = spec.cpus {
            summary.push_str(&format!(", {cpus} cpus"));
        }
        if let Some(memory) = spec.memory {
            summary.push_str(&format!(", {} MiB", memory >> 20));
        }
        summary.push_str(match &spec.network {
            NetworkChoice::None => ", no network",
            NetworkChoice::Named(_) => ", job network",
            NetworkChoice::Own(_) => ", network of its own",
        });
        let mut deviations = vec![format!("at most {} processes", spec.pids)];
        if spec.init {
            deviations.push("an init is PID 1".to_string());
        }
        if spec.memory.is_some() && !spec.swap {
            deviations.push("the memory limit includes swap".to_string());
        }
        deviations.push("what PID 1 prints is kept up to 1 MiB".to_string());
        deviations.extend(spec.remarks.iter().map(|remark| tidy(remark)));
        Description { kind: "docker", summary: tidy(&summary), id: self.state().id.clone(), deviations }
    }
}
