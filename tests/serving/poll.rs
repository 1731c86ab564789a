//! Servers that are asked: what is found, what their deaths and troubles look like, and what never leaks.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use pilothouse::serving::source::{self, Handle, Options};
use pilothouse::serving::{Circuit, Engine, Load, Observation, Place, Seen, ServerInfo, Source, SourceId, Unreached};
use tokio::sync::mpsc;

use crate::support::servers::Fake;

/// Generous: the machine may be busy. What must be seen at once is measured where it is.
const SOON: Duration = Duration::from_secs(15);

pub struct Watch {
    rx: mpsc::Receiver<Vec<Observation>>,
    pub seen: Vec<Observation>,
    pub handle: Handle,
    taken: usize,
}

impl Watch {
    pub fn new(specs: &[&str], options: &Options) -> Watch {
        let specs: Vec<_> = specs.iter().map(|s| source::parse(s).unwrap()).collect();
        Watch::of(source::sources(&specs), options)
    }

    pub fn of(sources: Vec<Source>, options: &Options) -> Watch {
        let (tx, rx) = mpsc::channel(source::WAITING);
        let handle = source::start(sources, options, tx);
        Watch { rx, seen: Vec::new(), handle, taken: 0 }
    }

    /// The next observation from now on that is of that kind.
    pub async fn until<T>(
        &mut self,
        what: &str,
        limit: Duration,
        mut pick: impl FnMut(&Observation) -> Option<T>,
    ) -> T {
        let began = Instant::now();
        loop {
            while let Some(observation) = self.seen.get(self.taken) {
                self.taken += 1;
                if let Some(found) = pick(observation) {
                    return found;
                }
            }
            let left = limit.saturating_sub(began.elapsed());
            match tokio::time::timeout(left, self.rx.recv()).await {
                Ok(Some(batch)) => self.seen.extend(batch),
                Ok(None) => panic!("{what}: everything has ended"),
                Err(_) => panic!(
                    "{what}: not within {limit:?}; the last: {:#?}",
                    self.seen.iter().rev().take(6).collect::<Vec<_>>()
                ),
            }
        }
    }

    /// Takes what comes for a while.
    pub async fn take(&mut self, time: Duration) {
        let until = tokio::time::Instant::now() + time;
        while let Ok(Some(batch)) = tokio::time::timeout_at(until, self.rx.recv()).await {
            self.seen.extend(batch);
        }
    }

    /// What came before is not looked at any more.
    pub fn forget(&mut self) {
        while let Ok(batch) = self.rx.try_recv() {
            self.seen.extend(batch);
        }
        self.taken = self.seen.len();
    }

    async fn info(&mut self) -> ServerInfo {
        self.until("info", SOON, |o| match &o.seen {
            Seen::Info(info) => Some(info.clone()),
            _ => None,
        })
        .await
    }

    async fn load(&mut self, what: &str, pick: impl Fn(&Load) -> bool) -> Load {
        self.until(what, SOON, |o| match &o.seen {
            Seen::Loads(loads) => loads.iter().find(|l| pick(l)).copied(),
            _ => None,
        })
        .await
    }

    async fn unreached(&mut self, how: Unreached) -> (&'static str, Arc<str>) {
        self.until(&format!("{how:?}"), SOON, |o| match &o.seen {
            Seen::Unreached { path, how: h, why } if *h == how => Some((*path, why.clone())),
            _ => None,
        })
        .await
    }
}

fn quick() -> Options {
    Options { poll: Duration::from_millis(300), ..Options::default() }
}

/// Reads by the variables that cargo sets for tests: a key and an admin key.
fn keyed() -> (Options, String, String) {
    let (key, admin) = ("CARGO_PKG_DESCRIPTION", "CARGO_PKG_LICENSE");
    let value = |name: &str| std::env::var(name).expect("run by cargo");
    let options = Options { api_key_env: Some(key.to_string()), admin_key_env: Some(admin.to_string()), ..quick() };
    (options, value(key), value(admin))
}

fn only_gets(fakes: &[&Fake]) {
    for request in fakes.iter().flat_map(|f| f.requests()) {
        assert_eq!((request.method.as_str(), request.body.as_str()), ("GET", ""), "{}", request.path);
    }
}

#[tokio::test]
async fn sglang_is_found_without_deprecated_paths() {
    let server = Fake::sglang();
    server.load(3, 2, 90_000);
    let mut watch = Watch::new(&[&format!("{}/v1", server.url())], &quick());
    let info = watch.info().await;
    assert_eq!((info.engine, info.version.as_deref()), (Some(Engine::Sglang), Some("0.5.23")));
    assert_eq!((info.model.as_deref(), info.limits.context), (Some("tiny-model"), Some(131_072)));
    assert_eq!((info.limits.max_running, info.limits.capacity), (Some(48), Some(400_000)));
    let load = watch.load("a load", |l| l.figures.running == Some(3)).await;
    assert_eq!((load.figures.queued, load.figures.tokens, load.rank), (Some(2), Some(90_000), None));
    let counted = watch.load("counters", |l| l.counters.generated.is_some()).await;
    assert_eq!(counted.counters.retracted, Some(0.0));
    watch.take(Duration::from_secs(1)).await;
    // Counters come from one page, figures from the other.
    let (mut figures, mut counters) = (0, 0);
    for observation in watch.seen.iter().skip(4) {
        let Seen::Loads(loads) = &observation.seen else { continue };
        figures += usize::from(loads[0].figures.running.is_some());
        counters += usize::from(loads[0].counters.generated.is_some());
        assert!(!(loads[0].figures.running.is_some() && loads[0].counters.generated.is_some()), "{loads:?}");
    }
    assert!(figures >= 2 && counters >= 2, "{figures} {counters}");
    for path in ["/get_server_info", "/get_load", "/get_model_info", "/version", "/readiness"] {
        assert_eq!(server.asked(path), 0, "{path}");
    }
    assert_eq!(server.asked("/server_info"), 1);
    only_gets(&[&server]);
}

#[tokio::test]
async fn an_old_sglang_is_asked_by_its_old_paths() {
    let server = Fake::sglang();
    server.set(|f| {
        f.metrics = false;
        f.answers.insert("/server_info".into(), (404, String::new()));
        f.answers.insert("/v1/loads".into(), (404, String::new()));
        let info = r#"{"model_path":"/models/m","version":"0.4.6.post5","max_running_requests":16,"dp_size":1,"max_total_num_tokens":5000}"#;
        f.answers.insert("/get_server_info".into(), (200, info.into()));
        let load = r#"[{"dp_rank":0,"num_reqs":5,"num_waiting_reqs":1,"num_tokens":900}]"#;
        f.answers.insert("/get_load".into(), (200, load.into()));
    });
    let mut watch = Watch::new(&[&server.url()], &quick());
    let info = watch.info().await;
    assert_eq!((info.version.as_deref(), info.limits.max_running), (Some("0.4.6.post5"), Some(16)));
    assert_eq!(info.limits.context, Some(131_072), "from its models");
    let load = watch.load("a load", |l| l.figures.running.is_some()).await;
    assert_eq!((load.figures.running, load.figures.queued), (Some(4), Some(1)));
    assert_eq!(server.asked("/v1/loads"), 0);
}

#[tokio::test]
async fn vllm_is_found_and_its_counters_move() {
    let server = Fake::vllm();
    server.load(4, 9, 300_000);
    let mut watch = Watch::new(&[&server.url()], &quick());
    let info = watch.info().await;
    assert_eq!((info.engine, info.version.as_deref()), (Some(Engine::Vllm), Some("0.32.0")));
    assert_eq!(info.limits.context, Some(131_072));
    let first = watch.load("a load", |l| l.figures.running == Some(4)).await;
    assert_eq!((first.figures.queued, first.figures.kv), (Some(9), Some(0.75)));
    assert_eq!(first.limits.capacity, Some(400_000));
    let before = first.counters.generated.unwrap();
    watch.load("tokens", |l| l.counters.generated.is_some_and(|n| n > before + 10.0)).await;
    server.set(|f| f.ranks[0].retracted = 7);
    watch.load("preemptions", |l| l.counters.retracted == Some(7.0)).await;
    assert_eq!(server.asked("/server_info") + server.asked("/v1/loads"), 0);
    only_gets(&[&server]);
}

#[tokio::test]
async fn ranks_are_kept_apart() {
    let server = Fake::sglang();
    server.set(|f| f.ranks = vec![Default::default(); 8]);
    server.set(|f| f.ranks[5].running = 11);
    let mut watch = Watch::new(&[&server.url()], &quick());
    assert_eq!(watch.info().await.dp_size, Some(8));
    let load = watch.load("rank 5", |l| l.figures.running == Some(11)).await;
    assert_eq!(load.rank, Some(5));
    let load = watch.load("its counter", |l| l.rank == Some(5) && l.counters.generated.is_some()).await;
    assert!(load.counters.generated.unwrap() > 0.0);
}

#[tokio::test]
async fn a_router_is_read_with_its_circuits_and_workers() {
    let (one, gone) = (Fake::sglang(), "http://127.0.0.1:9".to_string());
    one.load(5, 0, 1000);
    let (router, metrics) = Fake::router(&[one.url(), gone.clone()]);
    router.set_worker(&gone, |w| w.running = 6);
    let specs = [router.url(), format!("metrics:{}", metrics.url())];
    let mut watch = Watch::new(&[&specs[0], &specs[1]], &quick());
    assert_eq!(watch.info().await.engine, Some(Engine::Router));
    // One that can be reached speaks for itself, the other through the router.
    let running = |url: String, n: u32| {
        move |o: &Observation| match &o.seen {
            Seen::OfWorker { worker, seen } if **worker == *url => match &**seen {
                Seen::Loads(loads) => (loads[0].figures.running == Some(n)).then_some(()),
                _ => None,
            },
            _ => None,
        }
    };
    watch.until("the worker's own word", SOON, running(one.url(), 5)).await;
    watch.until("the merged page", SOON, running(gone.clone(), 6)).await;
    let info = watch.seen.iter().any(|o| {
        matches!(&o.seen, Seen::OfWorker { worker, seen }
        if **worker == *one.url() && matches!(&**seen, Seen::Info(i) if i.limits.max_running == Some(48)))
    });
    assert!(info);
    router.set_worker(&gone, |w| (w.circuit, w.healthy) = (1, false));
    let open = watch.until("an open circuit", SOON, |o| match &o.seen {
        Seen::Workers(workers) => workers.iter().find(|w| w.circuit == Some(Circuit::Open)).cloned(),
        _ => None,
    });
    assert_eq!(open.await.url.as_ref(), gone);
    let (healthy, total) = watch
        .until("readiness", SOON, |o| match o.seen {
            Seen::Readiness { healthy, total } if healthy == 1 => Some((healthy, total)),
            _ => None,
        })
        .await;
    assert_eq!((healthy, total), (1, 2));
    router.set_worker(&one.url(), |w| w.healthy = false);
    let none = watch.until("no worker", SOON, |o| match o.seen {
        Seen::Readiness { healthy: 0, total } => Some(total),
        _ => None,
    });
    assert_eq!(none.await, 2, "a 503 does not say of how many");
    // A worker that never answered is nobody's trouble; one that did is.
    let of = |o: &Observation, url: &str| matches!(&o.seen, Seen::OfWorker { worker, seen } if **worker == *url && matches!(**seen, Seen::Unreached { .. }));
    assert!(!watch.seen.iter().any(|o| of(o, &gone)));
    one.kill();
    watch.until("its death", SOON, |o| of(o, &one.url()).then_some(())).await;
    assert_eq!(router.asked("/list_workers") + router.asked("/get_loads") + router.asked("/metrics"), 0);
    only_gets(&[&one, &router, &metrics]);
}

#[tokio::test]
async fn death_and_return_with_a_shorter_context_are_seen() {
    for server in [Fake::sglang(), Fake::vllm()] {
        let mut watch = Watch::new(&[&server.url()], &Options::default());
        watch.info().await;
        watch.load("a load", |_| true).await;
        server.kill();
        let began = Instant::now();
        let (_, why) = watch.unreached(Unreached::Refused).await;
        assert!(!why.contains("127.0.0.1"), "{why}");
        watch.unreached(Unreached::Refused).await;
        assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
        server.set(|f| (f.context, f.version) = (8192, "9.9.9".into()));
        server.revive();
        let info = watch.info().await;
        assert_eq!((info.limits.context, info.version.as_deref()), (Some(8192), Some("9.9.9")));
        watch.load("a load", |_| true).await;
    }
}

#[tokio::test]
async fn a_restart_between_two_polls_is_seen() {
    for server in [Fake::sglang(), Fake::vllm()] {
        server.set(|f| f.ranks[0].generated = 50_000.0);
        let mut watch = Watch::new(&[&server.url()], &Options { poll: Duration::from_secs(1), ..Options::default() });
        watch.info().await;
        watch.load("counters", |l| l.counters.generated.is_some()).await;
        watch.load("counters", |l| l.counters.generated.is_some()).await;
        watch.forget();
        server.kill();
        server.set(|f| f.context = 4096);
        server.revive();
        assert_eq!(watch.info().await.limits.context, Some(4096));
    }
}

#[tokio::test]
async fn what_hangs_costs_nothing_else() {
    let (hung, well) = (Fake::sglang(), Fake::sglang());
    well.set(|f| {
        f.slow.insert("/v1/loads".into(), Duration::from_secs(600));
    });
    let mut watch = Watch::new(&[&format!("a={}", hung.url()), &format!("b={}", well.url())], &quick());
    watch.load("a load", |_| true).await;
    hung.hang();
    watch.forget();
    let before = (hung.asked("/v1/loads"), well.asked("/metrics"));
    // Longer than two time-outs, on a busy machine too.
    watch.take(Duration::from_secs(7)).await;
    let late: Vec<_> = watch
        .seen
        .iter()
        .filter_map(|o| match &o.seen {
            Seen::Unreached { path, how: Unreached::TimedOut, why } => Some((o.source, *path, why.to_string())),
            _ => None,
        })
        .collect();
    let (a, b) = (SourceId(0), SourceId(1));
    for (source, path) in [(a, "/v1/loads"), (a, "/metrics"), (b, "/v1/loads")] {
        assert!(late.iter().any(|l| (l.0, l.1) == (source, path)), "{late:?}");
    }
    assert!(!late.iter().any(|l| (l.0, l.1) == (b, "/metrics")), "{late:?}");
    assert!(well.asked("/metrics") - before.1 >= 8, "its other path goes on");
    assert!(hung.asked("/v1/loads") - before.0 <= 5, "a hung one is not swamped");
    // It comes back as it was: nothing was restarted.
    hung.unhang();
    watch.forget();
    watch.until("its load", SOON, |o| (o.source == a && matches!(o.seen, Seen::Loads(_))).then_some(())).await;
}

#[tokio::test]
async fn a_stuck_engine_shows_by_the_age_of_its_load() {
    let server = Fake::sglang();
    server.load(1, 0, 196);
    let mut watch = Watch::new(&[&server.url()], &quick());
    let young = watch.load("a load", |l| l.age.is_some()).await;
    assert!(young.age.unwrap() < 1.0, "{young:?}");
    server.set(|f| f.stuck = true);
    let old = watch.load("an old load", |l| l.age.is_some_and(|age| age > 2.0)).await;
    assert_eq!(old.figures.running, Some(1));
}

#[tokio::test]
async fn health_is_asked_seldom() {
    let (well, ill) = (Fake::sglang(), Fake::vllm());
    ill.set(|f| f.healthy = false);
    let mut watch = Watch::new(&[&format!("a={}", well.url()), &format!("b={}", ill.url())], &quick());
    let mut found = Vec::new();
    let all = watch.until("both", SOON, |o| {
        if let Seen::Health(well) = o.seen {
            found.push((o.source, well));
        }
        (found.len() == 2).then(|| found.clone())
    });
    let mut all = all.await;
    all.sort();
    assert_eq!(all, [(SourceId(0), true), (SourceId(1), false)]);
    watch.take(Duration::from_secs(2)).await;
    assert_eq!((well.asked("/health"), ill.asked("/health")), (1, 1));
}

#[tokio::test]
async fn keys_are_shown_to_their_own_server_only_and_never_told() {
    let (options, key, admin) = keyed();
    let worker = Fake::sglang();
    let (router, metrics) = Fake::router(&[worker.url()]);
    let server = Fake::sglang();
    for fake in [&router, &server] {
        fake.set(|f| (f.api_key, f.admin_key) = (Some(key.clone()), Some(admin.clone())));
    }
    let specs = [format!("r={}", router.url()), format!("s={}", server.url())];
    let mut watch = Watch::new(&[&specs[0], &specs[1]], &options);
    watch.until("the worker", SOON, |o| matches!(&o.seen, Seen::OfWorker { .. }).then_some(())).await;
    watch.load("a load", |_| true).await;
    watch.take(Duration::from_millis(500)).await;
    assert!(worker.requests().len() >= 2);
    assert!(worker.requests().iter().all(|r| r.authorization.is_none()), "the router named it, not the operator");
    assert!(server.requests().iter().all(|r| r.authorization.as_deref() == Some(&format!("Bearer {key}"))));
    let told = format!("{:?}{:?}", watch.seen, options);
    assert!(!told.contains(&key) && !told.contains(&format!("\"{admin}\"")), "{told}");
    drop(metrics);
    // Without it, and with a wrong one.
    for options in [quick(), Options { api_key_env: Some("CARGO_PKG_NAME".into()), ..quick() }] {
        let mut watch = Watch::new(&[&server.url()], &options);
        let (path, why) = watch.unreached(Unreached::Unauthorised).await;
        assert_eq!(path, "/v1/models");
        assert!(why.contains("401") && why.contains("key"), "{why}");
        // The metrics are open, and tell.
        let load = watch.load("a load", |l| l.figures.running.is_some()).await;
        assert!(load.counters.generated.is_some());
    }
    assert!(Options { api_key_env: Some("NO_SUCH_VARIABLE_HERE".into()), ..quick() }.problems()[0].contains("NO_SUCH"));
}

/// Answers every request with these bytes and counts them.
fn raw(answer: impl Fn(usize) -> Vec<u8> + Send + 'static) -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let count = Arc::new(AtomicUsize::new(0));
    let counted = count.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(&answer(counted.fetch_add(1, Ordering::SeqCst)));
        }
    });
    (url, count)
}

#[tokio::test]
async fn answers_that_are_none_are_told_apart() {
    let server = Fake::sglang();
    let page = || "<html>login</html>".to_string();
    server.set(|f| {
        f.answers.insert("/v1/loads".into(), (200, page()));
        f.answers.insert("/metrics".into(), (500, page()));
    });
    let mut watch = Watch::new(&[&server.url()], &quick());
    assert_eq!(watch.unreached(Unreached::Garbled).await.0, "/v1/loads");
    let mut watch = Watch::new(&[&server.url()], &quick());
    assert_eq!(watch.unreached(Unreached::Status(500)).await.0, "/metrics");
    // No HTTP at all; an end in the middle; no end.
    let (url, _) = raw(|_| b"SSH-2.0-OpenSSH_9.2\r\n".to_vec());
    let mut watch = Watch::new(&[&url], &quick());
    watch.unreached(Unreached::Garbled).await;
    let (url, _) = raw(|_| b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{".to_vec());
    let mut watch = Watch::new(&[&url], &quick());
    watch.until("half an answer", SOON, |o| matches!(o.seen, Seen::Unreached { .. }).then_some(())).await;
    let (url, _) = raw(|_| [b"HTTP/1.1 200 OK\r\n\r\n".as_slice(), &vec![b' '; 20 << 20]].concat());
    let mut watch = Watch::new(&[&url], &quick());
    let (_, why) = watch.unreached(Unreached::Garbled).await;
    assert!(why.contains("8 MiB"), "{why}");
}

#[tokio::test]
async fn a_path_that_breaks_its_connections_is_no_death() {
    let models = r#"{"object":"list","data":[{"id":"m","owned_by":"vllm","max_model_len":4096}]}"#;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = asked.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut head = [0; 4096];
            let n = stream.read(&mut head).unwrap_or(0);
            let head = String::from_utf8_lossy(&head[..n]).into_owned();
            if head.starts_with("GET /v1/models") {
                counted.fetch_add(1, Ordering::SeqCst);
                let answer =
                    format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{models}", models.len());
                let _ = stream.write_all(answer.as_bytes());
            }
        }
    });
    let mut watch = Watch::new(&[&url], &quick());
    assert_eq!(watch.info().await.engine, Some(Engine::Vllm));
    watch
        .until("a broken connection", SOON, |o| {
            matches!(o.seen, Seen::Unreached { path: "/metrics", .. }).then_some(())
        })
        .await;
    watch.take(Duration::from_secs(2)).await;
    assert!(asked.load(Ordering::SeqCst) <= 2, "it is not looked for all the time");
}

#[tokio::test]
async fn nothing_is_followed_elsewhere() {
    let (other, asked) = raw(|_| b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n".to_vec());
    let head = format!("HTTP/1.1 302 Found\r\nlocation: {other}/v1/models\r\ncontent-length: 0\r\n\r\n");
    let (url, _) = raw(move |_| head.clone().into_bytes());
    let (options, ..) = keyed();
    let mut watch = Watch::new(&[&url], &options);
    watch.unreached(Unreached::Status(302)).await;
    watch.take(Duration::from_secs(1)).await;
    assert_eq!(asked.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn one_request_can_be_ended_and_nothing_else_is_changed() {
    let (options, key, admin) = keyed();
    let (server, worker, vllm) = (Fake::sglang(), Fake::sglang(), Fake::vllm());
    let (router, _metrics) = Fake::router(&[worker.url()]);
    server.set(|f| (f.api_key, f.admin_key) = (Some(key.clone()), Some(admin.clone())));
    let named = |name: &str, fake: &Fake| format!("{name}={}", fake.url());
    let specs = [named("s", &server), named("r", &router), named("v", &vllm)];
    let specs: Vec<&str> = specs.iter().map(String::as_str).collect();
    let mut watch = Watch::new(&specs, &options);
    for source in 0..3 {
        watch
            .until("info", SOON, |o| (matches!(o.seen, Seen::Info(_)) && o.source == SourceId(source)).then_some(()))
            .await;
        watch.taken = 0;
    }
    let done = watch.handle.abort("s", None, "episode-17-turn-3").await;
    assert!(done.done && done.words.contains("episode-17-turn-3"), "{done:?}");
    let posts = |fake: &Fake| fake.requests().into_iter().filter(|r| r.method != "GET").collect::<Vec<_>>();
    let [post] = posts(&server).try_into().unwrap();
    assert_eq!((post.path.as_str(), post.body.as_str()), ("/abort_request", r#"{"rid":"episode-17-turn-3"}"#));
    assert_eq!(post.authorization, Some(format!("Bearer {admin}")));
    // A router needs the worker; a worker that it names is asked itself.
    let no = watch.handle.abort("r", None, "x").await;
    assert!(!no.done && no.words.contains("worker"), "{no:?}");
    assert!(watch.handle.abort("r", Some(&worker.url()), "x").await.done);
    assert_eq!(posts(&worker).len(), 1);
    assert_eq!(posts(&router).len(), 0);
    // vLLM without that path, then with it.
    let no = watch.handle.abort("v", None, "x").await;
    assert!(!no.done && posts(&vllm).is_empty(), "{no:?}");
    vllm.set(|f| {
        let routes = r#"{"paths":{"/inference/v1/abort_requests":{"post":{}}}}"#;
        f.answers.insert("/openapi.json".into(), (200, routes.into()));
        f.answers.insert("/inference/v1/abort_requests".into(), (200, String::new()));
    });
    assert!(watch.handle.abort("v", None, "chatcmpl-1").await.done);
    assert_eq!(posts(&vllm)[0].body, r#"{"request_ids":["chatcmpl-1"]}"#);
    assert!(!watch.handle.abort("nobody", None, "x").await.done);
    assert!(!watch.handle.abort("s", None, "a\nb").await.done);
    // The plain key alone is refused.
    let plain = Watch::new(&[&named("s", &server)], &Options { admin_key_env: None, ..options.clone() });
    let no = plain.handle.abort("s", None, "x").await;
    assert!(!no.done && no.words.contains("admin key"), "{no:?}");
    server.kill();
    let no = watch.handle.abort("s", None, "x").await;
    assert!(!no.done && no.words.contains("refused"), "{no:?}");
    assert!(!format!("{no:?}{plain}", plain = no.words).contains(&key));
}

#[test]
fn sources_are_named_by_their_values() {
    let place = |value: &str| source::parse(value).map(|s| (s.name.map(|n| n.to_string()), s.place));
    let http = |url: &str| Place::Http(url.into());
    let file = |path: &str| Place::File(std::path::PathBuf::from(path).into());
    let unnamed = |place| Ok((None, place));
    assert_eq!(place("http://localhost:30000/v1/"), unnamed(http("http://localhost:30000")));
    assert_eq!(place("https://gpu.example/llm/v1"), unnamed(http("https://gpu.example/llm")));
    assert_eq!(place("localhost:30000"), unnamed(http("http://localhost:30000")));
    assert_eq!(place("a=HTTP://H:1"), Ok((Some("a".into()), http("http://h:1"))));
    assert_eq!(place("metrics:http://h:29000"), unnamed(Place::Metrics("http://h:29000/metrics".into())));
    assert_eq!(place("r=metrics:http://h:29000/m"), Ok((Some("r".into()), Place::Metrics("http://h:29000/m".into()))));
    assert_eq!(place("/var/log/sglang.log"), unnamed(file("/var/log/sglang.log")));
    assert_eq!(place("logs/a=b.log"), unnamed(file("logs/a=b.log")));
    assert_eq!(place("file:a=b.log"), unnamed(file("a=b.log")));
    assert_eq!(place("x=docker:sglang-1"), Ok((Some("x".into()), Place::Container("sglang-1".into()))));
    assert_eq!(place("cmd:ssh gpu7 tail -F /x=y.log"), unnamed(Place::Command("ssh gpu7 tail -F /x=y.log".into())));
    for bad in ["", "a=", "file:", "docker: ", "cmd:", "ftp://h/x", "http://", "metrics:h"] {
        assert!(source::parse(bad).is_err(), "{bad}");
    }
    for secret in ["http://me:hunter22@h:1", "http://tok@h:1", "http://h:1?api_key=hunter22"] {
        let error = source::parse(secret).unwrap_err().to_string();
        assert!(error.contains("--serving-key-env") && !error.contains("hunter22"), "{error}");
    }
    let names = |values: &[&str]| {
        let specs: Vec<_> = values.iter().map(|v| source::parse(v).unwrap()).collect();
        source::sources(&specs).iter().map(|s| (s.id.0, s.server.to_string())).collect::<Vec<_>>()
    };
    let own = |names: &[&str]| names.iter().enumerate().map(|(n, s)| (n as u16, s.to_string())).collect::<Vec<_>>();
    assert_eq!(names(&["http://h:1", "a.log", "metrics:http://h:2"]), own(&["h:1", "h:1", "h:1"]));
    assert_eq!(names(&["http://h:1", "a.log", "b.log"]), own(&["h:1", "a.log", "b.log"]));
    assert_eq!(names(&["http://h:1", "http://h:2", "x/a.log"]), own(&["h:1", "h:2", "a.log"]));
    assert_eq!(names(&["x/a.log", "y/a.log"]), own(&["a.log", "a.log (2)"]));
    assert_eq!(names(&["g=http://h:1", "g=docker:c", "other.log"]), own(&["g", "g", "other.log"]));
    assert_eq!(names(&["http://h:1", "http://h:1/v1", "http://h:1/"]), own(&["h:1"]));
    assert!(!names(&["cmd:curl -H 'Authorization: Bearer abcdefgh1234'"])[0].1.contains("abcdefgh"));
}

#[test]
fn a_jobs_address_is_guessed_and_public_services_are_left_alone() {
    let guess = |base: &str| {
        source::guess(base).map(|s| match s.place {
            Place::Http(url) => url.to_string(),
            other => panic!("{other:?}"),
        })
    };
    assert_eq!(guess("http://10.0.0.7:30000/v1").as_deref(), Some("http://10.0.0.7:30000"));
    assert_eq!(guess("http://host.docker.internal:8000/v1").as_deref(), Some("http://127.0.0.1:8000"));
    assert_eq!(guess("http://user:hunter22@gpu7:8000/v1?x=1").as_deref(), Some("http://gpu7:8000"));
    assert_eq!(guess("https://llm.example:8443/v1").as_deref(), Some("https://llm.example:8443"));
    for none in ["https://api.example/v1", "", "gpt", "unix:/x", "https://u:p@api.example/v1"] {
        assert_eq!(guess(none), None, "{none}");
    }
}
