//! Grading: runs a task's tests in the agent's environment and reads the reward that they leave.
//!
//! What is read was written by processes of the task: a reward is taken from a regular file of at most
//! [`REWARD_BYTES`], never through a link, and never from before the tests ran.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, timeout};

use crate::environment::{
    Command, Ended, EnvError, Environment, Ledger, Noted, OnTimeout, OutputFile, Upload, VERIFIER_MARK, quoted,
};
use crate::harbor::task::{Task, TaskStep, host_variable, resolve_all};
use crate::harbor::write::Folder;
use crate::harbor::write::raised::Raised;
use crate::harbor::write::result::RewardMap;

mod reward;
pub mod trust;

pub use reward::{REWARD_BYTES, read_reward};

const DURING: &str = "the verifier's run";
/// Most bytes kept of what the tests print: 256 MiB.
pub const OUTPUT_CAP: u64 = 256 << 20;
/// Where the tests' rewards are.
const REWARDS: [&str; 2] = ["reward.json", "reward.txt"];
/// After its limit, for a verifier's processes to be killed and the environment to say so.
const GRACE: Duration = Duration::from_secs(15);

/// What is to be verified, and how.
pub struct Verification<'a> {
    /// The task.
    pub task: &'a Task,
    /// The step of it.
    pub step: &'a TaskStep,
    /// The operator's variables for the tests; they win over the task's.
    pub env: Vec<(String, String)>,
    /// Limit of the whole; None: none.
    pub limit: Option<Duration>,
    /// The trial's `verifier/`, which is `/logs/verifier` inside.
    pub logs: &'a Arc<Folder>,
    /// Most bytes kept of what the tests print; [`OUTPUT_CAP`] where nothing else is said.
    pub output_cap: u64,
    /// Where the end of the tests is noted.
    pub ledger: &'a Ledger,
    /// Its processes get a variable of ours ([`VERIFIER_MARK`]), by which they can be found and ended.
    pub mark: bool,
    /// Says whether the answer can be trusted.
    pub judge: bool,
}

/// What a verification came to.
#[derive(Debug)]
pub struct Verified {
    /// The rewards, or why there are none, by Harbor's names: `AddTestsDirError`, `VerifierTimeoutError`,
    /// `RewardFileNotFoundError`, `RewardFileEmptyError`, `VerifierOutputParseError`, `FileNotFoundError` (no
    /// test script), `ValueError` (a variable of the host that is not set), `RuntimeError` (the environment).
    pub rewards: Result<RewardMap, Raised>,
    /// Why that can not be trusted, where it was asked for.
    pub doubt: Option<String>,
}

/// Runs the tests and reads their reward.
pub async fn verify(environment: &dyn Environment, what: &Verification<'_>) -> Verified {
    let noted = tests(environment, what).await;
    let (logs, judge) = (Arc::clone(what.logs), what.judge);
    let read = move || {
        let rewards = noted.and_then(|noted| {
            // What became of the tests is the reason why there is no reward.
            read_reward(logs.dir()).map_err(|raised| match noted.remark() {
                Some(remark) => Raised { message: format!("{} ({remark})", raised.message), ..raised },
                None => raised,
            })
        });
        let doubt = if judge { trust::doubt_of(&rewards, logs.dir()) } else { None };
        Ok(Verified { rewards, doubt })
    };
    aside(read).await.unwrap_or_else(|raised| Verified { rewards: Err(raised), doubt: None })
}

/// Runs the tests under their limit.
async fn tests(environment: &dyn Environment, what: &Verification<'_>) -> Result<Noted, Raised> {
    let over = || {
        let seconds = what.limit.unwrap_or_default().as_secs_f64();
        let message = format!("Verifier execution timed out after {seconds:?} seconds");
        Raised::new("VerifierTimeoutError", &message, DURING)
    };
    let deadline = what.limit.map(|limit| Instant::now() + limit);
    let ran = match what.limit {
        // The tests have a limit of their own, which comes first; this is for all the rest.
        Some(limit) => match timeout(limit + GRACE, run(environment, what, deadline)).await {
            Ok(done) => done?,
            Err(_) => return Err(over()),
        },
        None => run(environment, what, None).await?,
    };
    ran.ok_or_else(over)
}

/// File work on a thread that may wait for a disk.
async fn aside<T: Send + 'static>(work: impl FnOnce() -> Result<T, Raised> + Send + 'static) -> Result<T, Raised> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|e| Err(Raised::new("OSError", &e.to_string(), DURING)))
}

/// Runs the tests; None when their time was over.
async fn run(
    environment: &dyn Environment,
    what: &Verification<'_>,
    deadline: Option<Instant>,
) -> Result<Option<Noted>, Raised> {
    let Verification { task, step, .. } = *what;
    let Some(script) = &step.test_script else {
        return Err(Raised::new("FileNotFoundError", "No test script found", DURING));
    };
    let failed = |e: EnvError| Raised::new("RuntimeError", &e.to_string(), DURING);
    let name = script.rsplit('/').next().unwrap_or(script);
    let upload = async {
        let mut runnable = true;
        for tests in &step.tests {
            let up = environment.upload(Upload::Scripts(task.dir.join(tests), name.to_string()), "/tests").await;
            runnable &= up.map_err(|e| Raised::new("AddTestsDirError", &e.to_string(), DURING))?.program;
        }
        Ok::<_, Raised>(runnable)
    };
    // Both before the tests run; neither waits for the other.
    let (forgotten, uploaded) = tokio::join!(forget_rewards(environment, what.logs), upload);
    forgotten?;
    let runnable = uploaded?;
    let script = quoted(&environment.locate(&format!("/tests/{name}")));
    // Most test scripts are not executable in their repositories.
    if !runnable || step.tests.is_empty() {
        let root = Some("root".to_string());
        environment
            .exec(&Command { user: root, ..Command::new(&format!("chmod +x {script}")) })
            .await
            .map_err(failed)?;
    }
    let spec = task.spec(step);
    let own = resolve_all(&task.config.verifier_env(spec), host_variable);
    let own = own.map_err(|e| Raised::new("ValueError", &e.to_string(), DURING))?;
    let mark = what.mark.then(|| (VERIFIER_MARK.to_string(), "1".to_string()));
    let command = Command {
        user: task.config.verifier_user(spec).map(ToString::to_string),
        workdir: task.config.environment.workdir.clone(),
        env: own.into_iter().chain(what.env.iter().cloned()).chain(mark).collect(),
        timeout: deadline.map(|at| at.saturating_duration_since(Instant::now())),
        on_timeout: OnTimeout::Kill,
        output: Some(OutputFile { path: "/logs/verifier/test-stdout.txt".to_string(), cap: what.output_cap }),
        ..Command::new(&format!("({script})"))
    };
    // The exit code says nothing: only the reward counts.
    let end = environment.exec(&command).await.map_err(failed)?;
    let noted = what.ledger.note(environment, "tests", step.name.as_deref(), &end).await;
    if end.ended == Ended::TimedOut {
        return Ok(None);
    }
    environment.hand_over().await.map_err(failed)?;
    Ok(Some(noted))
}

/// Empties the directories of the verifier, the tests and what they left.
///
/// # Errors
/// `RuntimeError`: the environment.
pub async fn clear(environment: &dyn Environment, during: &str) -> Result<(), Raised> {
    let dirs = ["/logs/verifier", "/tests"].map(|dir| quoted(&environment.locate(dir)));
    // Whatever is in them; never what a link leads to.
    let script = format!(
        "for d in {}; do [ -L \"$d\" ] && rm -f -- \"$d\"; mkdir -p -- \"$d\"; \
         for f in \"$d\"/* \"$d\"/.[!.]* \"$d\"/..?*; do {{ [ -e \"$f\" ] || [ -L \"$f\" ]; }} && rm -rf -- \"$f\"; done; \
         done; chmod 777 {}; :",
        dirs.join(" "),
        dirs.first().map(String::as_str).unwrap_or_default(),
    );
    let command = Command { user: Some("root".to_string()), ..Command::new(&script) };
    environment.exec(&command).await.map_err(|e| Raised::new("RuntimeError", &e.to_string(), during))?;
    Ok(())
}

/// Removes rewards that are there before the tests run: an agent could have written them.
async fn forget_rewards(environment: &dyn Environment, logs: &Arc<Folder>) -> Result<(), Raised> {
    let failed = |why: &str| Raised::new("RuntimeError", why, DURING);
    let there = || {
        let logs = Arc::clone(logs);
        aside(move || {
            let gone = |name: &&str| matches!(logs.dir().stat(name), Err(e) if e.kind() == ErrorKind::NotFound);
            Ok(REWARDS.into_iter().find(|name| !gone(name)))
        })
    };
    if there().await?.is_none() {
        return Ok(());
    }
    let paths = REWARDS.map(|name| quoted(&environment.locate(&format!("/logs/verifier/{name}"))));
    let remove = Command::new(&format!("rm -rf -- {}", paths.join(" ")));
    let remove = Command { user: Some("root".to_string()), ..remove };
    environment.exec(&remove).await.map_err(|e| failed(&e.to_string()))?;
    match there().await? {
        Some(name) => Err(failed(&format!("a {name} from before the tests could not be removed"))),
        None => Ok(()),
    }
}
