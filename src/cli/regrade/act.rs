//! One regrade, from the lock to the file.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::source::{Source, folder};
use crate::environment::docker::{ContainerSpec, DockerEngine, DockerEnvironment, HeldFacts, NetworkChoice};
use crate::environment::{Environment, Held, HeldKind, HeldRecords, Labels, Ledger, Mount, OwnerLabel, Role};
use crate::harbor::run_config::is_sensitive_name;
use crate::harbor::task::Network;
use crate::harbor::write::held::APART;
use crate::harbor::write::raised::Raised;
use crate::harbor::write::regrade::{
    Original, RegradeException, RegradeFile, RegradeSettings, drop_logs, keep_logs, next_number, write,
};
use crate::harbor::write::result::{RewardMap, Utc, VerifierResult};
use crate::harbor::write::{Folder, Scrub};
use crate::job::Stamp;
use crate::job::text::clean;
use crate::journal::{Journal, Note, REGRADE, operator};
use crate::verifier::{OUTPUT_CAP, Verification, clear, verify};

/// For a question of our own inside.
const QUESTION: Duration = Duration::from_secs(10);
/// Where the directory of a snapshot's verifier is made.
const COPY: &str = "regrade";

/// What is asked for.
#[derive(Debug, Clone, PartialEq)]
pub struct Wish {
    /// Another limit in seconds; None: the trial's own.
    pub timeout: Option<f64>,
    /// The network meanwhile.
    pub network: NetworkWish,
    /// A proxy for HTTP and HTTPS.
    pub proxy: Option<String>,
    /// Variables of the tests.
    pub env: Vec<(String, String)>,
    /// The operator's reason.
    pub why: String,
    /// The container or snapshot is removed afterwards.
    pub release: bool,
    /// The task may be another one than the trial's.
    pub changed_task: bool,
    /// In the snapshot, though the container is held.
    pub from_snapshot: bool,
}

/// The network of the container meanwhile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NetworkWish {
    /// As it is.
    Keep,
    /// None at all.
    None,
    /// This one of the engine's, too.
    Named(String),
}

impl NetworkWish {
    /// The word.
    pub fn word(&self) -> &str {
        match self {
            NetworkWish::Keep => "keep",
            NetworkWish::None => "none",
            NetworkWish::Named(name) => name,
        }
    }
}

/// What became of it.
#[derive(Debug, Clone, PartialEq)]
pub struct Done {
    /// The document as it was written.
    pub file: RegradeFile,
    /// Its place.
    pub path: PathBuf,
    /// What became of the container or snapshot, in words.
    pub after: String,
}

/// Why it came to nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Failed {
    /// In words; nothing was changed, or it was put back.
    Refused(String),
    /// A signal came.
    Stopped,
}

impl From<String> for Failed {
    fn from(why: String) -> Failed {
        Failed::Refused(why)
    }
}

/// Runs the verifier again; `stop` ends it early, `tell` hears what is being done.
///
/// # Errors
/// See [`Failed`].
pub async fn act(
    source: &Source,
    wish: &Wish,
    (engine, state_dir): (&DockerEngine, &Path),
    stop: impl Future<Output = ()>,
    tell: &dyn Fn(&str),
) -> Result<Done, Failed> {
    if source.task_changed && !wish.changed_task {
        let dir = clean(&source.task.dir.to_string_lossy()).into_owned();
        return Err(Failed::Refused(format!(
            "the task {dir} is another one than the trial's (its checksum differs): put it back, or allow it with \
             --changed-task: the regrade is then listed and counts for nothing"
        )));
    }
    let held = match wish.from_snapshot {
        true => source.held.iter().rev().find(|h| h.kind == HeldKind::Snapshot),
        false => source.best(),
    };
    let held = held.ok_or_else(|| "no such thing is held of it: see pilothouse held".to_string())?;
    let busy = || format!("{} is being graded again by another process", held.kept.name);
    let _lock = HeldRecords::of(state_dir).lock(&held.kept.id).map_err(|e| e.to_string())?.ok_or_else(busy)?;
    let trial = folder(&source.dir)?;
    let n = next_number(&trial).map_err(|e| e.to_string())?;
    let mut journal = Journal::open(&source.job_dir, Some(state_dir), &source.job_id)
        .map_err(|e| format!("not noted, so not done: {e}"))?;
    let mut note = Note::now(REGRADE, &source.trial, &wish.why);
    note.trial = Some(source.trial.clone());
    note.result_id = source.result.id.as_deref().map(str::to_string);
    note.result = format!("regrade {n} begins in the {} {}", held.kind.word(), held.kept.name);
    journal.write(&note).map_err(|e| format!("not noted, so not done: {e}"))?;
    let mut ended = |result: &str| {
        note.time = Stamp::now().to_string();
        note.result = result.to_string();
        if let Err(error) = journal.write(&note) {
            tell(&format!("the end is not noted: {error}"));
        }
    };
    let work = Work { source, wish, engine, held, trial: &trial, n };
    match work.run(stop, tell).await {
        Ok((file, after)) => {
            let words = match (&file.verifier_result, &file.exception_info) {
                (_, Some(exception)) => exception.exception_type.clone(),
                (Some(result), None) => words_of(result.rewards.as_ref()),
                _ => "no reward".to_string(),
            };
            ended(&format!("regrade {n}: {words}; {after}"));
            if wish.release {
                let _ = HeldRecords::of(state_dir).forget(&held.kept.id);
            }
            let path = source.dir.join(crate::harbor::regrade::file_name(n));
            Ok(Done { file, path, after })
        }
        Err(failed) => {
            ended(&match &failed {
                Failed::Refused(why) => format!("regrade {n} came to nothing: {why}"),
                Failed::Stopped => format!("regrade {n} was stopped"),
            });
            Err(failed)
        }
    }
}

/// Rewards in a few words.
pub fn words_of(rewards: Option<&RewardMap>) -> String {
    let list: Vec<String> = rewards.into_iter().flatten().map(|(k, v)| format!("{} {v}", clean(k))).collect();
    if list.is_empty() { "no reward".to_string() } else { list.join(", ") }
}

struct Work<'a> {
    source: &'a Source,
    wish: &'a Wish,
    engine: &'a DockerEngine,
    held: &'a Held,
    trial: &'a Folder,
    n: u32,
}

/// Where it happens, and how that is put back.
struct Room {
    environment: DockerEnvironment,
    logs: Arc<Folder>,
    facts: HeldFacts,
}

impl Work<'_> {
    async fn run(&self, stop: impl Future<Output = ()>, tell: &dyn Fn(&str)) -> Result<(RegradeFile, String), Failed> {
        let room = match self.held.kind {
            HeldKind::Container => self.wake(tell).await,
            HeldKind::Snapshot => self.start(tell).await,
        }?;
        let done = self.grade(&room, stop, tell).await;
        let after = self.leave(&room, done.is_ok(), tell).await;
        let file = done?;
        Ok((file, after?))
    }

    fn spec(&self, image: &str, labels: Labels, facts: &HeldFacts) -> ContainerSpec {
        let mut spec = ContainerSpec::new(image, labels);
        spec.memory = facts.memory;
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        spec.owner = (uid != 0).then_some((uid, gid));
        spec
    }

    /// Wakes the held container and looks whether it is what it should be.
    async fn wake(&self, tell: &dyn Fn(&str)) -> Result<Room, Failed> {
        let id = self.held.kept.id.as_str();
        let facts = self.engine.held_facts(id).await.map_err(|e| e.to_string())?;
        if !facts.running {
            return Err(Failed::Refused(format!(
                "the container {} has ended (a restart of Docker or of this machine ends all): there is nothing to run \
                 the verifier in",
                self.held.kept.name
            )));
        }
        let logs = self.trial.sub(APART).and_then(|apart| apart.sub("verifier")).map_err(|e| {
            format!("{e}: the directory that the container writes to is not in this trial's (was it copied?)")
        })?;
        let mut spec = self.spec(&facts.image, self.held.kept.labels.clone(), &facts);
        spec.mounts =
            vec![Mount { host: logs.path().to_path_buf(), inside: "/logs/verifier".to_string(), read_only: false }];
        tell("waking the container");
        self.engine.unpause(id).await.map_err(|e| e.to_string())?;
        let environment = DockerEnvironment::adopt(self.engine.clone(), spec, id, &self.held.kept.name).await;
        let checked = match environment {
            Ok(environment) => match self.same(&environment, &logs).await {
                Ok(()) => Ok(environment),
                Err(why) => Err(why),
            },
            Err(e) => Err(e.to_string()),
        };
        match checked {
            Ok(environment) => Ok(Room { environment, logs: Arc::new(logs), facts }),
            Err(why) => {
                let _ = self.engine.pause(id).await;
                Err(Failed::Refused(why))
            }
        }
    }

    /// What the container writes to is what is read here: by the number of the directory, where it can tell.
    async fn same(&self, environment: &DockerEnvironment, logs: &Folder) -> Result<(), String> {
        environment.end_verifier().await.map_err(|e| e.to_string())?;
        let inode = logs.dir().stat("").map_err(|e| format!("{}: {e}", logs.path().display()))?.inode;
        let argv = ["sh", "-c", "stat -c %i /logs/verifier 2>/dev/null || ls -di /logs/verifier"];
        let told = environment.probe(&argv, Some("0"), QUESTION).await.map_err(|e| e.to_string())?.text;
        let there: Option<u64> = told.split_whitespace().next().and_then(|word| word.parse().ok());
        match there {
            Some(there) if there != inode => Err(format!(
                "the container writes to another directory than {}: this trial's directory is a copy",
                logs.path().display()
            )),
            _ => Ok(()),
        }
    }

    /// A new container of the snapshot.
    async fn start(&self, tell: &dyn Fn(&str)) -> Result<Room, Failed> {
        let source = self.source;
        let wrong = |e: crate::harbor::write::WriteError| e.to_string();
        let made = self.trial.make_or_open(COPY, 0o755).map_err(wrong)?;
        let logs = made.make_or_open(&format!("{}-{}", self.n, std::process::id()), 0o755).map_err(wrong)?;
        let owner = OwnerLabel::mine(&source.job_dir).to_string();
        let labels = Labels { job: source.job_id.clone(), trial: Some(source.trial.clone()), owner, role: Role::Trial };
        let mut spec = self.spec(&self.held.kept.name, labels, &HeldFacts::default());
        let config = &source.task.config.environment;
        spec.memory = config.memory_mb.map(|mb| mb.saturating_mul(1 << 20));
        spec.cpus = config.cpus;
        spec.workdir.clone_from(&config.workdir);
        let mount = |name: &str, inside: &str, read_only| Mount {
            host: source.dir.join(name),
            inside: inside.to_string(),
            read_only,
        };
        spec.mounts = vec![
            Mount { host: logs.path().to_path_buf(), inside: "/logs/verifier".to_string(), read_only: false },
            mount("agent", "/logs/agent", true),
            mount("artifacts/logs/artifacts", "/logs/artifacts", true),
        ];
        spec.mounts.retain(|m| m.host.is_dir());
        // The job's own network is gone with the job, as a rule: the engine's is as good for a verifier.
        spec.network = match (&self.wish.network, &config.network) {
            (NetworkWish::None, _) | (NetworkWish::Keep, Network::None) => NetworkChoice::None,
            (NetworkWish::Keep, _) => NetworkChoice::Named("bridge".to_string()),
            (NetworkWish::Named(name), _) => NetworkChoice::Named(name.clone()),
        };
        tell("starting a container of the snapshot: processes, and what lay in memory, are lost");
        let environment = DockerEnvironment::new(self.engine.clone(), spec).map_err(|e| e.to_string())?;
        if let Err(e) = environment.start().await {
            let _ = environment.stop().await;
            return Err(Failed::Refused(e.to_string()));
        }
        Ok(Room { environment, logs: Arc::new(logs), facts: HeldFacts::default() })
    }

    /// Connects it as it is wished.
    async fn connect(&self, room: &Room) -> Result<(), String> {
        let id = self.held.kept.id.as_str();
        if self.held.kind == HeldKind::Snapshot {
            return Ok(());
        }
        let done = match &self.wish.network {
            NetworkWish::Keep => Ok(()),
            NetworkWish::None => {
                let mut done = Ok(());
                for network in &room.facts.networks {
                    done = done.and(self.engine.disconnect_from_network(id, network).await);
                }
                done
            }
            NetworkWish::Named(name) => {
                if room.facts.networks.is_empty() {
                    let _ = self.engine.disconnect_from_network(id, "none").await;
                }
                self.engine.connect_to_network(id, name).await
            }
        };
        done.map_err(|e| e.to_string())
    }

    /// Puts its networks back.
    async fn disconnect(&self, room: &Room) -> Result<(), String> {
        let id = self.held.kept.id.as_str();
        let done = match &self.wish.network {
            NetworkWish::Keep => Ok(()),
            NetworkWish::None => {
                let mut done = Ok(());
                for network in &room.facts.networks {
                    done = done.and(self.engine.connect_to_network(id, network).await);
                }
                done
            }
            NetworkWish::Named(name) if room.facts.networks.contains(name) => Ok(()),
            NetworkWish::Named(name) => self.engine.disconnect_from_network(id, name).await,
        };
        done.map_err(|e| e.to_string())
    }

    async fn grade(
        &self,
        room: &Room,
        stop: impl Future<Output = ()>,
        tell: &dyn Fn(&str),
    ) -> Result<RegradeFile, Failed> {
        let (source, wish) = (self.source, self.wish);
        let what = "the verifier's later run";
        self.connect(room).await?;
        clear(&room.environment, what).await.map_err(|raised| raised.message)?;
        let step = source.task.steps.first().ok_or_else(|| "the task has no step".to_string())?;
        let seconds = wish.timeout.or(source.limit);
        let mut env = source.env.clone();
        if let Some(proxy) = &wish.proxy {
            for name in ["http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"] {
                env.push((name.to_string(), proxy.clone()));
            }
        }
        env.extend(wish.env.iter().cloned());
        let secrets = env.iter().filter(|(name, _)| is_sensitive_name(name)).map(|(_, value)| value.clone());
        let scrub = Scrub::new(secrets.chain(wish.proxy.iter().filter(|p| p.contains('@')).cloned()));
        let ledger = Ledger::default();
        let verification = Verification {
            task: &source.task,
            step,
            env,
            limit: seconds.and_then(|s| Duration::try_from_secs_f64(s).ok()),
            logs: &room.logs,
            output_cap: OUTPUT_CAP,
            ledger: &ledger,
            mark: true,
            judge: false,
        };
        tell(&match seconds.filter(|s| s.is_finite()) {
            Some(seconds) => format!("running the verifier, for at most {seconds} s"),
            None => "running the verifier".to_string(),
        });
        let started = Stamp::now();
        let verified: Result<RewardMap, Raised> = tokio::select! {
            biased;
            () = stop => return Err(Failed::Stopped),
            verified = verify(&room.environment, &verification) => verified.rewards,
        };
        let finished = Stamp::now();
        let logs = keep_logs(self.trial, self.n, room.logs.dir(), &scrub).map_err(|e| e.to_string())?;
        let (rewards, exception) = match verified {
            Ok(rewards) => (Some(VerifierResult { rewards: Some(rewards) }), None),
            Err(raised) => (None, Some(raised)),
        };
        let mut given: Vec<String> = wish.env.iter().map(|(name, _)| name.clone()).collect();
        given.sort();
        let file = RegradeFile {
            schema_version: 1,
            n: self.n,
            trial_name: source.trial.clone(),
            trial_id: source.result.id.as_deref().map(str::to_string),
            job_id: Some(source.job_id.clone()),
            task_checksum: source.checksum.clone(),
            task_changed: source.task_changed,
            kind: self.held.kind.word().to_string(),
            processes_lost: self.held.kind == HeldKind::Snapshot,
            environment: self.held.kept.name.clone(),
            started_at: Utc(started),
            finished_at: Utc(finished),
            operator: operator(),
            why: scrub.text(&wish.why),
            settings: RegradeSettings {
                timeout_sec: seconds.filter(|s| s.is_finite()),
                network: wish.network.word().to_string(),
                proxy: wish.proxy.is_some(),
                env: given,
            },
            verifier_result: rewards,
            exception_info: exception.map(|raised| RegradeException {
                exception_type: raised.kind,
                exception_message: scrub.text(&raised.message),
            }),
            original: Original {
                reward: source.result.rewards.primary(),
                exception_type: source.result.exception_type().map(|kind| kind.to_string()),
            },
            logs,
            pilothouse_version: env!("CARGO_PKG_VERSION").to_string(),
        };
        if let Err(error) = write(self.trial, &file, &scrub) {
            drop_logs(self.trial, &file.logs);
            return Err(Failed::Refused(error.to_string()));
        }
        Ok(file)
    }

    /// Puts it back to sleep, or removes it.
    async fn leave(&self, room: &Room, done: bool, tell: &dyn Fn(&str)) -> Result<String, Failed> {
        let id = self.held.kept.id.as_str();
        let name = &self.held.kept.name;
        let copy = self.held.kind == HeldKind::Snapshot;
        if copy {
            if let Err(e) = room.environment.stop().await {
                tell(&format!("the container of the snapshot stays: {e}"));
            }
            let _ = std::fs::remove_dir_all(room.logs.path());
            // Only when nothing else is in it.
            let _ = std::fs::remove_dir(self.source.dir.join(COPY));
        } else if let Err(e) = room.environment.end_verifier().await {
            tell(&e.to_string());
        }
        if done && self.wish.release {
            let gone = match copy {
                true => self.engine.remove_image_named(name).await,
                false => self.engine.remove_by_id(id, name).await,
            };
            return Ok(match gone {
                Ok(()) => format!("the {} {name} was removed", self.held.kind.word()),
                Err(e) => format!("the {} {name} stays: {e}", self.held.kind.word()),
            });
        }
        if copy {
            return Ok(format!("the snapshot {name} is kept"));
        }
        if let Err(e) = self.disconnect(room).await {
            tell(&format!("its networks could not be put back: {e}"));
        }
        match self.engine.pause(id).await {
            Ok(()) => Ok(format!("the container {name} is held on")),
            Err(e) => Ok(format!("the container {name} is held on, but not paused: {e}")),
        }
    }
}
