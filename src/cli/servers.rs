//! The model servers beside a screen: which are read, by a thread of its own, and who is told of alarms.

use std::time::Duration;

use clap::Args;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use crate::app::effect::Effect;
use crate::app::helm::Abort;
use crate::app::model::Model;
use crate::app::servers::guess::Guess;
use crate::serving::source::{self, Options, Spec};
use crate::serving::{Observation, Serving, Source, Thresholds};

/// Flags of the screens that watch a job.
#[derive(Debug, Clone, Default, Args)]
pub struct ServingArgs {
    /// A model server beside the trials, as often as there are: [NAME=]http://HOST:PORT, metrics:URL, a
    /// log (a path, docker:CONTAINER, cmd:COMMAND); the same NAME is the same server. Without any, the
    /// endpoint that the running job names is read where it is on this network
    #[arg(long, value_name = "SPEC", help_heading = "Serving")]
    pub serving: Vec<String>,
    /// Environment variable that holds the servers' API key
    #[arg(long, value_name = "NAME", help_heading = "Serving")]
    pub serving_key_env: Option<String>,
    /// Environment variable that holds the servers' admin key, for the abort of a request
    #[arg(long, value_name = "NAME", help_heading = "Serving")]
    pub serving_admin_key_env: Option<String>,
    /// Zone in which the servers' logs were written: UTC, +08:00, Asia/Shanghai, local; without it the lines
    /// are placed by when they arrive
    #[arg(long, value_name = "ZONE", value_parser = super::serving::tz, help_heading = "Serving")]
    pub serving_tz: Option<jiff::tz::TimeZone>,
    /// Read no endpoint that the job names
    #[arg(long, help_heading = "Serving")]
    pub no_guess: bool,
    /// No bell for new alarms
    #[arg(long, help_heading = "Alarms")]
    pub no_bell: bool,
    /// Run this for each new alarm, with the alarm as a line of JSON on its standard input; 10 s at most,
    /// six times a minute at most, the rest is summed up
    #[arg(long, value_name = "COMMAND", env = "PILOTHOUSE_NOTIFY", hide_env_values = true, help_heading = "Alarms")]
    pub notify: Option<String>,
}

/// Batches of observations that may wait for the screen.
const QUEUE: usize = 64;
/// How long a screen may keep the readers waiting, once; then it misses what it does not take.
const PATIENCE: Duration = Duration::from_secs(5);

enum Wish {
    Read(Vec<Source>),
    Also(Source),
    Abort(Box<Abort>, oneshot::Sender<Result<String, String>>),
}

/// The way to the thread that reads.
#[derive(Debug, Clone)]
pub struct Remote {
    wishes: mpsc::Sender<Wish>,
}

impl Remote {
    /// Has one more source read.
    pub fn also(&self, source: Source) {
        if self.wishes.try_send(Wish::Also(source)).is_err() {
            tracing::error!("nobody reads the model servers");
        }
    }

    /// Has these sources read, instead of those before; nothing is begun anew that is read already.
    pub fn read(&self, sources: Vec<Source>) {
        if self.wishes.try_send(Wish::Read(sources)).is_err() {
            tracing::error!("nobody reads the model servers");
        }
    }

    /// Ends one request at its server; waits for the answer and gives it in words.
    ///
    /// # Errors
    /// Why it was not done, in words.
    pub fn abort(&self, abort: Abort) -> Result<String, String> {
        let gone = || "nobody reads the model servers any more".to_string();
        let (tell, told) = oneshot::channel();
        self.wishes.try_send(Wish::Abort(Box::new(abort), tell)).map_err(|_| gone())?;
        told.blocking_recv().unwrap_or_else(|_| Err(gone()))
    }
}

/// What a screen needs of them.
#[derive(Debug)]
pub struct Servers {
    /// The way to the thread that reads.
    pub remote: Remote,
    /// What it reads.
    pub heard: mpsc::Receiver<Vec<Observation>>,
    /// The notify command.
    pub notify: Option<String>,
    sources: Vec<Source>,
    thresholds: Thresholds,
    bell: bool,
    guess: bool,
    ear: Option<mpsc::Receiver<Vec<Observation>>>,
}

/// One who hears what the servers are seen to do beside the screen, and as long as he likes.
#[derive(Debug)]
pub struct Ear {
    /// The way to the thread that reads.
    pub remote: Remote,
    /// What it reads.
    pub heard: mpsc::Receiver<Vec<Observation>>,
    /// What was named.
    pub sources: Vec<Source>,
    /// From when on something is a diagnosis.
    pub thresholds: Thresholds,
    /// The endpoints that the job names may be read, too.
    pub guess: bool,
}

impl ServingArgs {
    /// Says that without a screen nobody watches the servers, where somebody asked for it by a flag.
    pub fn complain_without_screen(&self) {
        if !self.serving.is_empty() {
            super::complain("--serving needs a screen: without one, pilothouse serving --watch reads model servers");
        }
    }

    /// Starts the thread; nothing is read yet.
    ///
    /// # Errors
    /// A source, zone or variable that can not be used, in words.
    pub fn prepare(&self) -> Result<Servers, String> {
        let of = |(n, value): (usize, &String)| {
            // The value is not repeated: somebody may have put a key into it.
            source::parse(value).map_err(|why| format!("--serving, value {}: {why}", n + 1))
        };
        let specs: Result<Vec<Spec>, String> = self.serving.iter().enumerate().map(of).collect();
        let sources = source::sources(&specs?);
        let options = Options {
            api_key_env: self.serving_key_env.clone(),
            admin_key_env: self.serving_admin_key_env.clone(),
            zone: self.serving_tz.clone(),
            ..Options::default()
        };
        if let Some(problem) = options.problems().into_iter().next() {
            return Err(problem);
        }
        let thresholds = super::serving::thresholds(None).map_err(|e| e.to_string())?;
        let (remote, heard, ear) = start(options).map_err(|e| format!("no thread to read the model servers: {e}"))?;
        Ok(Servers {
            remote,
            heard,
            notify: self.notify.clone().filter(|command| !command.trim().is_empty()),
            sources,
            thresholds,
            bell: !self.no_bell,
            guess: !self.no_guess,
            ear: Some(ear),
        })
    }
}

impl Servers {
    /// The place beside the screen; once.
    pub fn ear(&mut self) -> Option<Ear> {
        Some(Ear {
            remote: self.remote.clone(),
            heard: self.ear.take()?,
            sources: self.sources.clone(),
            thresholds: self.thresholds.clone(),
            guess: self.guess,
        })
    }

    /// Prepares the model; the effects are run at once.
    pub fn prepare(&self, model: &mut Model) -> Vec<Effect> {
        model.servers.alarms.bell = self.bell;
        model.servers.alarms.notify = self.notify.is_some();
        model.servers.thresholds = self.thresholds.clone();
        model.serving = Serving::new(self.sources.clone(), self.thresholds.clone());
        if self.sources.is_empty() {
            model.servers.guess = if self.guess { Guess::Wanted } else { Guess::No };
            return Vec::new();
        }
        vec![Effect::Serve(self.sources.clone())]
    }
}

type Heard = mpsc::Receiver<Vec<Observation>>;

fn start(options: Options) -> std::io::Result<(Remote, Heard, Heard)> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (wishes, mut wished) = mpsc::channel::<Wish>(QUEUE);
    let (tell, told) = mpsc::channel(QUEUE);
    let (screen, on_screen) = mpsc::channel(QUEUE);
    let (ear, in_ear) = mpsc::channel(QUEUE);
    // A thread of its own: whatever a server does, the screen draws and takes keys.
    std::thread::Builder::new().name("serving".into()).spawn(move || {
        runtime.block_on(async move {
            tokio::spawn(hand_on(told, screen, ear));
            let mut reading: Vec<Source> = Vec::new();
            let mut handles: Vec<source::Handle> = Vec::new();
            while let Some(wish) = wished.recv().await {
                match wish {
                    Wish::Read(sources) if sources.iter().all(|s| reading.contains(s)) => {}
                    Wish::Read(sources) => {
                        handles.clear();
                        reading.clone_from(&sources);
                        handles.push(source::start(sources, &options, tell.clone()));
                    }
                    Wish::Also(source) if reading.contains(&source) => {}
                    Wish::Also(source) => {
                        reading.push(source.clone());
                        handles.push(source::start(vec![source], &options, tell.clone()));
                    }
                    Wish::Abort(abort, done) => {
                        let worker = abort.worker.as_deref();
                        // Whoever reads that server; else the first says that nobody does.
                        let handle = handles.iter().find(|h| h.knows(&abort.server)).or(handles.first());
                        let result = match handle {
                            Some(handle) => {
                                let acted = handle.abort(&abort.server, worker, &abort.rid).await;
                                let words = acted.words.to_string();
                                if acted.done { Ok(words) } else { Err(words) }
                            }
                            None => Err("no server is read".to_string()),
                        };
                        let _ = done.send(result);
                    }
                }
            }
        });
    })?;
    Ok((Remote { wishes }, on_screen, in_ear))
}

/// Hands on what is read, to both or to whoever is there. A screen that stands still holds nobody up for
/// long: it misses what it does not take.
async fn hand_on(mut told: Heard, screen: mpsc::Sender<Vec<Observation>>, ear: mpsc::Sender<Vec<Observation>>) {
    let mut patient = true;
    while let Some(batch) = told.recv().await {
        if !ear.is_closed() {
            let _ = ear.send(batch.clone()).await;
        }
        if screen.is_closed() {
            if ear.is_closed() {
                return;
            }
            continue;
        }
        patient = match screen.try_send(batch) {
            Ok(()) => true,
            Err(mpsc::error::TrySendError::Full(batch)) if patient || ear.is_closed() => match ear.is_closed() {
                // Nobody else waits.
                true => screen.send(batch).await.is_ok(),
                false => matches!(timeout(PATIENCE, screen.send(batch)).await, Ok(Ok(()))),
            },
            Err(_) => false,
        };
    }
}
