//! The real router before workers that only look like ones: what it says of them through death and return.
//!
//! `PILOTHOUSE_ROUTER_PYTHON` names a Python that has `sglang-router`.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use pilothouse::job::Stamp;
use pilothouse::serving::source::{self, Options};
use pilothouse::serving::{
    Circuit, Demand, DiagnosisKind, Engine, Observation, Place, Replica, Seen, Serving, Source, State, Thresholds,
    Worker,
};

use super::poll::Watch;
use crate::support::servers::Fake;
use crate::support::skipped;

/// The router needs three probes, a second apart, to believe a death.
const SOON: Duration = Duration::from_secs(20);

/// The router's process, ended with the test.
struct Router {
    child: Child,
    port: u16,
    metrics: u16,
    log: PathBuf,
    _dir: tempfile::TempDir,
}

fn python() -> Option<PathBuf> {
    let found = std::env::var_os("PILOTHOUSE_ROUTER_PYTHON").map(PathBuf::from);
    if found.is_none() {
        assert!(std::env::var("CI").as_deref() != Ok("true"), "PILOTHOUSE_ROUTER_PYTHON is not set");
        skipped("the real router (set PILOTHOUSE_ROUTER_PYTHON to a Python that has sglang-router)");
    }
    found
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

impl Router {
    fn start(python: &PathBuf, workers: &[&Fake], more: &[&str]) -> Router {
        let (port, metrics) = (free_port(), free_port());
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("router.log");
        let out = std::fs::File::create(&log).unwrap();
        let mut command = Command::new(python);
        command.args(["-m", "sglang_router.launch_router", "--host", "127.0.0.1", "--policy", "round_robin"]);
        command.args(["--port", &port.to_string(), "--prometheus-port", &metrics.to_string()]);
        command.args(["--prometheus-host", "127.0.0.1", "--retry-max-retries", "2"]);
        command.args(["--health-check-interval-secs", "1", "--health-failure-threshold", "3"]);
        command.args(["--health-success-threshold", "2", "--health-check-timeout-secs", "2"]);
        command.args(["--cb-failure-threshold", "3", "--cb-success-threshold", "1", "--cb-timeout-duration-secs", "2"]);
        command.args(more).arg("--worker-urls").args(workers.iter().map(|w| w.url()));
        command.stdin(Stdio::null()).stdout(out.try_clone().unwrap()).stderr(out).process_group(0);
        let child = command.spawn().unwrap();
        Router { child, port, metrics, log, _dir: dir }
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// A chat through it; its status.
    fn chat(&self) -> u16 {
        let body = r#"{"model":"tiny-model","messages":[{"role":"user","content":"x"}]}"#;
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(SOON)).unwrap();
        let head = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: router\r\nconnection: close\r\ncontent-type: application/json\r\n\
             content-length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(head.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer.split(' ').nth(1).unwrap().parse().unwrap()
    }
}

impl Drop for Router {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        let _ = rustix::process::kill_process_group(pid, rustix::process::Signal::KILL);
        let _ = self.child.wait();
        if std::thread::panicking() {
            let log = std::fs::read_to_string(&self.log).unwrap_or_default();
            let lines: Vec<&str> = log.lines().collect();
            println!("the router's last lines:\n{}", lines[lines.len().saturating_sub(30)..].join("\n"));
        }
    }
}

/// What came, and what it adds up to.
struct Bridge {
    watch: Watch,
    state: Serving,
    fed: usize,
}

impl Bridge {
    fn new(sources: Vec<Source>, options: &Options) -> Bridge {
        let state = Serving::new(sources.clone(), Thresholds::default());
        Bridge { watch: Watch::of(sources, options), state, fed: 0 }
    }

    fn feed(&mut self) {
        for observation in &self.watch.seen[self.fed..] {
            self.state.observe(observation);
        }
        self.fed = self.watch.seen.len();
        self.state.tick(Stamp::now(), &Demand::default());
    }

    /// Waits for something to be seen.
    async fn seen<T>(&mut self, what: &str, pick: impl FnMut(&Observation) -> Option<T>) -> T {
        let found = self.watch.until(what, SOON, pick).await;
        self.feed();
        found
    }

    /// Waits for the state to become so.
    async fn becomes(&mut self, what: &str, is: impl Fn(&Serving) -> bool) {
        let began = Instant::now();
        loop {
            self.feed();
            if is(&self.state) {
                return;
            }
            if began.elapsed() > SOON {
                let rows: Vec<_> = self
                    .state
                    .replicas()
                    .map(|r| (r.key.clone(), r.state, r.evidence.clone(), r.router.clone()))
                    .collect();
                let open: Vec<_> = self.state.open().map(|d| (d.kind, d.text.clone())).collect();
                panic!("{what}: {rows:#?} {open:#?}");
            }
            self.watch.take(Duration::from_millis(100)).await;
        }
    }

    async fn worker(&mut self, what: &str, url: &str, is: impl Fn(&Worker) -> bool) {
        self.seen(what, |o| match &o.seen {
            Seen::Workers(workers) => workers.iter().any(|w| *w.url == *url && is(w)).then_some(()),
            _ => None,
        })
        .await;
    }

    async fn readiness(&mut self, want: (u32, u32)) {
        self.seen(&format!("readiness {want:?}"), |o| match o.seen {
            Seen::Readiness { healthy, total } => ((healthy, total) == want).then_some(()),
            _ => None,
        })
        .await;
    }
}

fn row<'a>(state: &'a Serving, url: &str) -> Option<&'a Replica> {
    state.replicas().find(|r| r.key.worker.as_deref() == Some(url))
}

fn holds(state: &Serving, kind: DiagnosisKind) -> bool {
    state.open().any(|d| d.kind == kind)
}

fn circuit(state: &Serving, url: &str) -> Option<Circuit> {
    row(state, url)?.router.as_ref()?.worker.circuit
}

#[tokio::test]
async fn a_real_router_is_shown_right_through_death_and_return() {
    let Some(python) = python() else { return };
    let (one, two) = (Fake::sglang(), Fake::sglang());
    two.load(4, 1, 80_000);
    let router = Router::start(&python, &[&one, &two], &[]);
    let specs = [router.url(), format!("metrics:http://127.0.0.1:{}", router.metrics)];
    let specs: Vec<_> = specs.iter().map(|s| source::parse(s).unwrap()).collect();
    let options = Options { poll: Duration::from_millis(500), ..Options::default() };
    let mut bridge = Bridge::new(source::sources(&specs), &options);
    let (first, second) = (one.url(), two.url());

    // Both well: the router's word, and the workers' own.
    bridge.readiness((2, 2)).await;
    let engine = bridge.watch.seen.iter().find_map(|o| match &o.seen {
        Seen::Info(info) => Some(info.engine),
        _ => None,
    });
    assert_eq!(engine, Some(Some(Engine::Router)));
    for _ in 0..4 {
        assert_eq!(router.chat(), 200);
    }
    bridge.worker("healthy", &first, |w| w.healthy == Some(true) && w.model.as_deref() == Some("tiny-model")).await;
    bridge
        .becomes("closed circuits", |s| {
            circuit(s, &first) == Some(Circuit::Closed) && circuit(s, &second) == Some(Circuit::Closed)
        })
        .await;
    bridge.becomes("the second's load", |s| row(s, &second).is_some_and(|r| r.figures().running == Some(4))).await;
    bridge.becomes("limits", |s| row(s, &first).is_some_and(|r| r.limits.max_running == Some(48))).await;
    bridge
        .becomes("states", |s| {
            row(s, &first).is_some_and(|r| matches!(r.state, State::Idle | State::Ready))
                && row(s, &second).is_some_and(|r| matches!(r.state, State::Decoding | State::Saturated))
        })
        .await;
    assert!(!holds(&bridge.state, DiagnosisKind::DeadWorkers) && !holds(&bridge.state, DiagnosisKind::OpenCircuit));

    // One dies: its own silence comes first, then the circuit, then the router's word.
    bridge.watch.forget();
    one.kill();
    let died = Instant::now();
    bridge
        .seen("its own silence", |o| match &o.seen {
            Seen::OfWorker { worker, seen } if **worker == *first => {
                matches!(**seen, Seen::Unreached { .. }).then_some(())
            }
            _ => None,
        })
        .await;
    assert!(died.elapsed() < Duration::from_secs(5), "{:?}", died.elapsed());
    // The router tries another worker: clients do not notice.
    for _ in 0..8 {
        assert_eq!(router.chat(), 200);
    }
    bridge.worker("an open circuit", &first, |w| w.circuit == Some(Circuit::Open)).await;
    bridge.readiness((1, 2)).await;
    bridge.worker("unhealthy", &first, |w| w.healthy == Some(false)).await;
    bridge.becomes("its row is dead", |s| row(s, &first).is_some_and(|r| r.state == State::Dead)).await;
    bridge.becomes("dead workers", |s| holds(s, DiagnosisKind::DeadWorkers)).await;
    assert!(row(&bridge.state, &second).is_some_and(|r| r.state != State::Dead));

    // It returns with a shorter context.
    bridge.watch.forget();
    one.set(|f| f.context = 8192);
    one.revive();
    bridge
        .seen("its new context", |o| match &o.seen {
            Seen::OfWorker { worker, seen } if **worker == *first => match &**seen {
                Seen::Info(info) => (info.limits.context == Some(8192)).then_some(()),
                _ => None,
            },
            _ => None,
        })
        .await;
    bridge.readiness((2, 2)).await;
    let began = Instant::now();
    while circuit(&bridge.state, &first) != Some(Circuit::Closed) {
        assert!(began.elapsed() < SOON, "{:?}", circuit(&bridge.state, &first));
        assert_eq!(router.chat(), 200);
        bridge.watch.take(Duration::from_millis(300)).await;
        bridge.feed();
    }
    bridge
        .becomes("its row lives", |s| {
            row(s, &first).is_some_and(|r| r.state != State::Dead && r.limits.context == Some(8192))
        })
        .await;
    bridge.becomes("no dead workers", |s| !holds(s, DiagnosisKind::DeadWorkers)).await;

    // One answers with errors and passes its probes: only the circuit shows it.
    bridge.watch.forget();
    two.set(|f| f.failing = true);
    let began = Instant::now();
    while circuit(&bridge.state, &second) != Some(Circuit::Open) {
        assert!(began.elapsed() < SOON, "{:?}", circuit(&bridge.state, &second));
        router.chat();
        bridge.watch.take(Duration::from_millis(300)).await;
        bridge.feed();
    }
    bridge.becomes("an open circuit", |s| holds(s, DiagnosisKind::OpenCircuit)).await;
    bridge.readiness((2, 2)).await;
    two.set(|f| f.failing = false);

    // Both die, then the router itself.
    bridge.watch.forget();
    one.kill();
    two.kill();
    bridge.readiness((0, 2)).await;
    bridge
        .becomes("both rows are dead", |s| {
            [&first, &second].iter().all(|url| row(s, url).is_some_and(|r| r.state == State::Dead))
        })
        .await;
    drop(router);
    bridge.watch.forget();
    bridge
        .seen("the router's own death", |o| match &o.seen {
            Seen::Unreached { path, .. } => (*path != "/metrics").then_some(()),
            _ => None,
        })
        .await;
    for fake in [&one, &two] {
        for request in fake.requests() {
            assert!(request.method != "POST" || request.path == "/v1/chat/completions", "{request:?}");
        }
    }
}

#[tokio::test]
async fn a_real_router_that_knows_ranks_and_wants_a_key_is_read() {
    let Some(python) = python() else { return };
    let worker = Fake::sglang();
    worker.set(|f| f.ranks = vec![Default::default(); 2]);
    worker.set(|f| f.ranks[1].running = 3);
    let key = std::env::var("CARGO_PKG_NAME").expect("run by cargo");
    let router = Router::start(&python, &[&worker], &["--dp-aware", "--api-key", &key]);
    let sources = |url: String| source::sources(&[source::parse(&url).unwrap()]);
    let options = Options { poll: Duration::from_millis(500), ..Options::default() };
    let keyed = Options { api_key_env: Some("CARGO_PKG_NAME".to_string()), ..options.clone() };
    let mut bridge = Bridge::new(sources(router.url()), &keyed);
    bridge.readiness((2, 2)).await;
    let url = worker.url();
    let ranks = bridge.seen("its ranks", |o| match &o.seen {
        Seen::Workers(workers) => Some(workers.iter().map(|w| (w.url.to_string(), w.rank)).collect::<Vec<_>>()),
        _ => None,
    });
    assert_eq!(ranks.await, [(url.clone(), Some(0)), (url.clone(), Some(1))]);
    bridge
        .becomes("rank 1 decodes", |s| {
            let mut rows = s.replicas().filter(|r| r.key.worker.as_deref() == Some(&url));
            rows.any(|r| r.key.rank == Some(1) && r.figures().running == Some(3))
        })
        .await;
    // Without the key its workers stay hidden, which is told.
    let mut bridge = Bridge::new(sources(router.url()), &options);
    bridge
        .seen("the missing key", |o| match &o.seen {
            Seen::Unreached { how: pilothouse::serving::Unreached::Unauthorised, why, .. } => Some(why.to_string()),
            _ => None,
        })
        .await;
    bridge.readiness((2, 2)).await;
    assert!(bridge.watch.seen.iter().all(|o| !matches!(o.seen, Seen::Workers(_))));
    let place = Place::Http(router.url().into());
    assert!(sources(router.url()).iter().all(|s| s.place == place));
}
