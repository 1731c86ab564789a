//! A container with a terminal in it, and a tmux beside it.

use std::future::Future;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use pilothouse::environment::docker::{ContainerSpec, DockerEngine, DockerEnvironment};
use pilothouse::environment::{Environment, Labels, Role, Upload};
use pilothouse::terminal::{Recording, Session, SessionSpec};

use super::support;

/// The image of the recorded tasks: Debian 12 with bash, python, less and tmux 3.3a.
pub const IMAGE: &str = "tb-base:1";

/// Runs a test on the kind of runtime that the program has.
pub fn block<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let done = runtime.block_on(async { tokio::time::timeout(Duration::from_secs(280), work).await });
    runtime.shutdown_timeout(Duration::from_secs(2));
    done.expect("the test hangs")
}

/// An engine that has the image; None, said aloud, where there is none.
pub async fn engine(image: &str) -> Option<DockerEngine> {
    static WHY_NOT: OnceLock<()> = OnceLock::new();
    let skip = |why: &str| {
        WHY_NOT.get_or_init(|| support::skipped(&format!("terminals in Docker: {why}")));
    };
    let engine = match DockerEngine::connect().await {
        Ok(engine) => engine,
        Err(e) => {
            skip(&e.to_string());
            return None;
        }
    };
    if engine.image(image).await.unwrap().is_none() {
        skip(&format!("no image {image}"));
        return None;
    }
    Some(engine)
}

/// A container that goes even when its test fails half-way.
pub struct Up {
    pub env: Arc<DockerEnvironment>,
    pub name: String,
}

impl Drop for Up {
    fn drop(&mut self) {
        let _ = std::process::Command::new("docker").args(["rm", "-f", &self.name]).output();
    }
}

/// A started container of the image.
pub async fn up(what: &str) -> Option<Up> {
    up_from(IMAGE, what, |_| {}).await
}

pub async fn up_from(image: &str, what: &str, with: impl FnOnce(&mut ContainerSpec)) -> Option<Up> {
    let engine = engine(image).await?;
    let labels = Labels {
        job: format!("test-terminal-{}-{what}", std::process::id()),
        trial: Some(format!("{what}__abc")),
        owner: "tests".to_string(),
        role: Role::Trial,
    };
    let mut spec = ContainerSpec::new(image, labels);
    spec.env = vec![("LANG".to_string(), "C.UTF-8".to_string())];
    with(&mut spec);
    let up = Up::of(DockerEnvironment::new(engine, spec).unwrap());
    up.env.start().await.unwrap();
    Some(up)
}

impl Up {
    /// A container that is not started yet.
    pub fn of(env: DockerEnvironment) -> Up {
        Up { name: env.name().to_string(), env: Arc::new(env) }
    }

    pub async fn open(&self) -> Session {
        self.open_with(SessionSpec::default(), None).await
    }

    pub async fn open_with(&self, spec: SessionSpec, recording: Option<Recording>) -> Session {
        let session = Session::open(self.env.clone(), spec, recording).await.unwrap();
        assert!(session.settle(QUIET, Duration::from_secs(20)).await, "no prompt: {}", session.screen());
        session
    }

    /// What a script prints in the container, beside the terminal.
    pub async fn said(&self, script: &str) -> String {
        let limit = Duration::from_secs(60);
        let answer = self.env.probe(&["sh", "-c", script], Some("0"), limit).await.unwrap();
        answer.text.replace("\r\n", "\n")
    }

    pub async fn put(&self, path: &str, bytes: &[u8]) {
        self.env.upload(Upload::Bytes(bytes.to_vec(), 0o755), path).await.unwrap();
    }

    /// A whole file of the container.
    pub async fn file(&self, path: &str) -> Vec<u8> {
        self.env.download_file(path, 64 << 20).await.unwrap().data
    }

    /// Waits until a script ends well.
    pub async fn until(&self, what: &str, script: &str) {
        let deadline = std::time::Instant::now() + Duration::from_secs(60);
        loop {
            let answer = self.env.probe(&["sh", "-c", script], Some("0"), Duration::from_secs(20)).await.unwrap();
            if answer.exit == 0 {
                return;
            }
            assert!(std::time::Instant::now() < deadline, "never: {what}: {}", answer.text);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// Silence after which a program is taken to wait for keys.
pub const QUIET: Duration = Duration::from_millis(250);

/// Types and waits for silence.
pub async fn run(session: &mut Session, keys: &str) {
    session.send(keys).await.unwrap();
    begun(keys).await;
    assert!(session.settle(QUIET, Duration::from_secs(60)).await, "never quiet after {keys:?}");
}

/// Where a `sleep` was typed: waits until it is at work, since a key that comes before is the shell's. Its length
/// is its name: no two tests have the same. One that is on another machine is waited for for a while.
pub async fn begun(keys: &str) {
    let Some(command) = keys.strip_suffix('\n').filter(|keys| keys.starts_with("sleep ") && !keys.contains('&')) else {
        return;
    };
    for _ in 0..100 {
        if support::proc::runs(command) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Waits for a text on the screen or above it.
pub async fn seen(session: &Session, text: &str) {
    let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
    let mut changes = session.view().changes();
    while !session.capture().whole().contains(text) {
        let more = tokio::time::timeout_at(deadline, changes.changed()).await;
        assert!(more.is_ok(), "never seen: {text:?} in\n{}", session.screen());
    }
}
