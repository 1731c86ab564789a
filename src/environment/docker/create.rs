//! The making of a container: its image, its network, the request, the start.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use bollard::models::{ContainerCreateBody, HostConfig, HostConfigLogConfig, Mount as EngineMount, MountType};
use bollard::query_parameters::{CreateContainerOptionsBuilder, LogsOptionsBuilder, StartContainerOptions};
use futures_util::StreamExt;
use rustix::fs::{Mode, OFlags};

use super::super::error::tidy;
use super::super::{EnvError, Labels, Mount, Role, Trouble, plain_path};
use super::calls;
use super::container::{DockerEnvironment, Found, ImageSource, NetworkChoice, remove_container};

/// Longest wait for an engine that is away: it may be restarting.
const AWAY: Duration = Duration::from_secs(60);
/// Before a start is tried again that failed for a reason of the engine's own.
const AGAIN: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(4)];
/// Between two looks whether it is back.
const KNOCK: Duration = Duration::from_millis(500);

impl DockerEnvironment {
    /// Waits for an engine that is away for a while: what has not begun is not lost to a restart.
    async fn await_engine(&self) -> Result<(), EnvError> {
        let deadline = tokio::time::Instant::now() + AWAY;
        loop {
            match self.engine().ping().await {
                Err(e) if e.trouble == Trouble::Unreachable && tokio::time::Instant::now() < deadline => {
                    tokio::time::sleep(KNOCK).await;
                }
                other => return other,
            }
        }
    }

    async fn bring_image(&self) -> Result<(), EnvError> {
        let (engine, image) = (self.engine(), &self.spec().image);
        match &self.spec().source {
            ImageSource::Here => Ok(()),
            ImageSource::Pull => engine.pull_if_missing(image, &|_| {}).await.map(drop),
            ImageSource::Build(spec) => engine.build(spec, &|_| {}).await.map(drop),
        }
    }

    /// The name of the network that it is to be in, made where it has its own.
    async fn bring_network(&self) -> Result<String, EnvError> {
        Ok(match &self.spec().network {
            NetworkChoice::None => "none".to_string(),
            NetworkChoice::Named(name) => name.clone(),
            NetworkChoice::Own(pool) => {
                let labels = Labels { role: Role::Network, ..self.spec().labels.clone() };
                let network = self.engine().new_network(self.name(), &labels, pool.as_ref()).await?;
                let name = network.name.clone();
                self.state().network = Some(network);
                name
            }
        })
    }

    pub(super) async fn bring_up(&self) -> Result<(), EnvError> {
        if self.state().id.is_some() || self.state().stopped {
            let detail = "a container is started once";
            return Err(EnvError::new(Trouble::Conflict, &format!("start container {}", self.name()), detail, ""));
        }
        let changes = self.engine().inner.watch.changes();
        open_mounts(&self.spec().mounts)?;
        look_at(&self.spec().volumes)?;
        let id = self.begin().await?;
        if self.spec().labels.role == Role::Probe {
            // Asked for what it is asked for, and nothing else.
            return Ok(());
        }
        // Where commands start is asked once for an image. That a container ended at once shows at the first
        // command, if not by the engine's events before: a question for each would cost a trial time.
        let known = match &self.spec().workdir {
            None => self.engine().inner.watch.home(&self.spec().image),
            workdir => workdir.clone().filter(|w| w.starts_with('/')),
        };
        if known.is_some() {
            self.state().home = known;
            return Ok(());
        }
        match self.inspected(&id).await? {
            Found::Running | Found::Paused => {}
            Found::Ended(code) => return Err(self.ended("start a container", &id, code).await),
        }
        let home = self.state().home.clone();
        if let Some(home) = home.filter(|_| self.spec().workdir.is_none()) {
            self.engine().inner.watch.learn_home(&self.spec().image, home, changes);
        }
        Ok(())
    }

    /// Makes the container and starts it. The image is looked for, and an engine that is away waited for, only
    /// when the engine says so: nearly always both are there, and every question costs a trial time. An engine
    /// that is about to go says anything, and nothing began: so it is tried again.
    async fn begin(&self) -> Result<String, EnvError> {
        let built = matches!(self.spec().source, ImageSource::Build(_));
        if built || matches!(self.spec().network, NetworkChoice::Own(_)) {
            self.await_engine().await?;
        }
        if built {
            self.bring_image().await?;
        }
        let network = self.bring_network().await?;
        let mut brought = false;
        let mut pauses = AGAIN.into_iter();
        loop {
            let error = match self.make_and_start(&network).await {
                Ok(id) => return Ok(id),
                Err(e) => e,
            };
            match error.trouble {
                Trouble::Image if !brought => {
                    brought = true;
                    self.bring_image().await?;
                }
                Trouble::Unreachable | Trouble::Engine => {
                    let Some(pause) = pauses.next() else { return Err(error) };
                    tracing::warn!(%error, "tried again");
                    tokio::time::sleep(pause).await;
                    self.await_engine().await?;
                    // It may have been made, whatever the answer was.
                    remove_container(self.engine(), self.name(), self.name()).await?;
                    let id = self.state().id.take();
                    self.forget(id.as_deref());
                }
                _ => return Err(error),
            }
        }
    }

    async fn make_and_start(&self, network: &str) -> Result<String, EnvError> {
        let options = CreateContainerOptionsBuilder::default().name(self.name()).build();
        let created = self.engine().docker().create_container(Some(options), self.request(network.to_string())?);
        let id = self.engine().call(&calls::CREATE, self.name(), created).await?.id;
        let seen = self.engine().inner.watch.begin(&id);
        {
            let mut state = self.state();
            state.id = Some(id.clone());
            state.seen = Some(seen);
        }
        let started = self.engine().docker().start_container(&id, None::<StartContainerOptions>);
        self.engine().call(&calls::START, self.name(), started).await?;
        Ok(id)
    }

    fn request(&self, network: String) -> Result<ContainerCreateBody, EnvError> {
        let spec = self.spec();
        let mut mounts = Vec::new();
        for mount in spec.mounts.iter().chain(&spec.volumes) {
            let host = mount.host.to_str().ok_or_else(|| {
                EnvError::new(Trouble::Path, "mount a directory", "its path is not UTF-8", "rename it")
            })?;
            mounts.push(EngineMount {
                target: Some(plain_path("mount a directory", &mount.inside)?),
                source: Some(host.to_string()),
                typ: Some(MountType::BIND),
                read_only: Some(mount.read_only),
                ..EngineMount::default()
            });
        }
        let memory = spec.memory.and_then(|m| i64::try_from(m).ok());
        let log =
            HashMap::from([("max-size".to_string(), "1m".to_string()), ("max-file".to_string(), "1".to_string())]);
        let host = HostConfig {
            // Rounded to what the scheduler of the kernel can tell apart.
            #[allow(clippy::cast_possible_truncation)]
            nano_cpus: spec.cpus.map(|c| (c.clamp(0.0, 1e6) * 1e9).round() as i64),
            memory,
            memory_swap: if spec.swap { memory.map(|m| m.saturating_mul(2)) } else { memory },
            pids_limit: Some(spec.pids),
            init: Some(spec.init),
            mounts: Some(mounts),
            network_mode: Some(network),
            extra_hosts: (!spec.extra_hosts.is_empty()).then(|| spec.extra_hosts.clone()),
            log_config: Some(HostConfigLogConfig { typ: Some("json-file".to_string()), config: Some(log) }),
            ..HostConfig::default()
        };
        Ok(ContainerCreateBody {
            image: Some(spec.image.clone()),
            cmd: Some(vec!["sh".to_string(), "-c".to_string(), "exec sleep infinity".to_string()]),
            env: Some(spec.env.iter().map(|(k, v)| format!("{k}={v}")).collect()),
            working_dir: spec.workdir.clone(),
            labels: Some(spec.labels.pairs().into_iter().collect()),
            host_config: Some(host),
            ..ContainerCreateBody::default()
        })
    }

    pub(super) async fn log_tail(&self, id: &str) -> String {
        let options = LogsOptionsBuilder::default().stdout(true).stderr(true).tail("5").build();
        let mut words = String::new();
        let read = async {
            let mut stream = std::pin::pin!(self.engine().docker().logs(id, Some(options)));
            while let Some(Ok(piece)) = stream.next().await {
                words.push_str(&String::from_utf8_lossy(&piece.into_bytes()));
                if words.len() > 4096 {
                    break;
                }
            }
        };
        let _ = tokio::time::timeout(calls::LOGS.limit, read).await;
        if words.is_empty() { "it said nothing".to_string() } else { tidy(&words) }
    }
}

/// A name that engines take, told from an earlier attempt's by its end.
pub(super) fn container_name(labels: &Labels) -> String {
    let stem = labels.trial.as_deref().unwrap_or(&labels.job);
    let stem: String = stem
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-') { c } else { '-' })
        .take(64)
        .collect();
    let nanos = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |d| d.as_nanos());
    let salt = nanos ^ (u128::from(std::process::id()) << 20);
    format!("pilothouse-{stem}-{:08x}", salt & 0xffff_ffff)
}

/// Looks at the sources of mounts, and opens the writable ones to the users inside.
fn open_mounts(mounts: &[Mount]) -> Result<(), EnvError> {
    look_at(mounts)?;
    for mount in mounts {
        let call = format!("mount {} at {}", mount.host.display(), mount.inside);
        let wrong = |e: rustix::io::Errno| {
            let detail = format!("{}: {}", mount.host.display(), std::io::Error::from(e));
            EnvError::new(Trouble::Mount, &call, &detail, "make the directory before the start; links are not followed")
        };
        if mount.read_only {
            continue;
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let dir = rustix::fs::open(&mount.host, flags, Mode::empty()).map_err(wrong)?;
        rustix::fs::fchmod(&dir, Mode::from_raw_mode(0o777)).map_err(wrong)?;
    }
    Ok(())
}

/// Whether the sources of mounts are there.
fn look_at(mounts: &[Mount]) -> Result<(), EnvError> {
    for mount in mounts {
        let call = format!("mount {} at {}", mount.host.display(), mount.inside);
        if !mount.host.is_absolute() {
            return Err(EnvError::new(Trouble::Path, &call, "the path is not absolute", "give an absolute path"));
        }
        rustix::fs::stat(&mount.host).map_err(|e| {
            let detail = format!("{}: {}", mount.host.display(), std::io::Error::from(e));
            EnvError::new(Trouble::Mount, &call, &detail, "make the directory before the start")
        })?;
    }
    Ok(())
}
