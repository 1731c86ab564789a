//! Logs that are followed: files in all their fates, commands, a container.

use std::fs::{self, OpenOptions};
use std::path::Path;
use std::time::{Duration, Instant};

use pilothouse::job::Stamp;
use pilothouse::serving::source::{self, Options};
use pilothouse::serving::{Event, LineKind, Observation, Place, Seen, Source, SourceId};

use super::poll::Watch;
use crate::support;
use crate::support::server_log::ServerLog;

const SOON: Duration = Duration::from_secs(15);

fn at(path: &Path) -> Vec<Source> {
    vec![Source { id: SourceId(0), server: "s".into(), place: Place::File(path.into()) }]
}

fn run(command: &str) -> Vec<Source> {
    vec![Source { id: SourceId(0), server: "s".into(), place: Place::Command(command.into()) }]
}

fn tokens(observation: &Observation) -> Option<u64> {
    match &observation.seen {
        Seen::Line(line) => match &line.kind {
            LineKind::Decode(batch) => batch.figures.tokens,
            _ => None,
        },
        _ => None,
    }
}

async fn decode(watch: &mut Watch, want: u64) -> Observation {
    watch.until(&format!("decode of {want}"), SOON, |o| (tokens(o) == Some(want)).then(|| o.clone())).await
}

async fn reset(watch: &mut Watch) {
    watch.until("a reset", SOON, |o| matches!(o.seen, Seen::LogReset).then_some(())).await;
}

async fn lost(watch: &mut Watch) -> String {
    watch
        .until("a loss", SOON, |o| match &o.seen {
            Seen::LogLost(why) => Some(why.to_string()),
            _ => None,
        })
        .await
}

fn decoded(watch: &Watch) -> Vec<u64> {
    watch.seen.iter().filter_map(tokens).collect()
}

#[tokio::test]
async fn a_log_is_read_from_before_and_followed() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = ServerLog::new(&dir.path().join("a.log"));
    log.start(400_000, 48, 131_072);
    log.decode(1, 100, 1000, 60.0, 0);
    let mut watch = Watch::of(at(log.path()), &Options::default());
    let limits = watch.until("limits", SOON, |o| match &o.seen {
        Seen::Line(line) => match line.kind {
            LineKind::Event(Event::Limits(limits)) => Some(limits),
            _ => None,
        },
        _ => None,
    });
    assert_eq!(limits.await.max_running, Some(48));
    decode(&mut watch, 100).await;
    for n in 0..3000 {
        log.decode(2, 1000 + n, 400_000, 60.0, 1);
    }
    decode(&mut watch, 3999).await;
    let want: Vec<u64> = [100].into_iter().chain(1000..4000).collect();
    assert_eq!(decoded(&watch), want, "all, once, in their order");
    // A line counts when it has ended.
    log.raw(b"[2026-11-29 19:50:00] Decode batch, #running-req: 1, #token: 77, token");
    watch.take(Duration::from_millis(500)).await;
    log.raw(b" usage: 0.01, gen throughput (token/s): 1.00, #queue-req: 0\n");
    decode(&mut watch, 77).await;
    let told = format!("{:?}", watch.seen);
    assert!(!told.contains("KEY-IN-THE-LOG"), "the key of the start line");
}

#[tokio::test]
async fn a_log_is_followed_through_rotation_cuts_and_absence() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = ServerLog::new(&dir.path().join("a.log"));
    log.decode(1, 1, 1000, 60.0, 0);
    let mut watch = Watch::of(at(log.path()), &Options::default());
    decode(&mut watch, 1).await;
    log.decode(1, 2, 1000, 60.0, 0);
    log.rotate();
    log.decode(1, 3, 1000, 60.0, 0);
    decode(&mut watch, 2).await;
    reset(&mut watch).await;
    decode(&mut watch, 3).await;
    log.truncate();
    watch.take(Duration::from_millis(500)).await;
    log.decode(1, 4, 1000, 60.0, 0);
    reset(&mut watch).await;
    decode(&mut watch, 4).await;
    // Cut and filled again beyond the place, between two looks.
    log.truncate();
    for n in 5..200 {
        log.prefill(n, n, 1, 0);
    }
    log.decode(1, 200, 1000, 60.0, 0);
    reset(&mut watch).await;
    decode(&mut watch, 200).await;
    let path = log.path().to_path_buf();
    fs::remove_file(&path).unwrap();
    assert!(lost(&mut watch).await.contains("no such file"));
    let mut log = ServerLog::new(&path);
    log.decode(1, 201, 1000, 60.0, 0);
    reset(&mut watch).await;
    decode(&mut watch, 201).await;
    assert_eq!(decoded(&watch), [1, 2, 3, 4, 200, 201]);
}

#[tokio::test]
async fn what_is_no_file_is_said_and_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("later.log");
    let mut watch = Watch::of(at(&path), &Options::default());
    assert!(lost(&mut watch).await.contains("no such file"));
    let real = dir.path().join("real.log");
    let mut log = ServerLog::new(&real);
    log.decode(1, 9, 1000, 60.0, 0);
    std::os::unix::fs::symlink(&real, &path).unwrap();
    decode(&mut watch, 9).await;
    // The link is set on another file, as some do in place of a rotation.
    let mut next = ServerLog::new(&dir.path().join("next.log"));
    next.decode(1, 10, 1000, 60.0, 0);
    fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink(next.path(), &path).unwrap();
    decode(&mut watch, 10).await;
    let mut watch = Watch::of(at(dir.path()), &Options::default());
    assert!(lost(&mut watch).await.contains("directory"));
    let pipe = dir.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let mut watch = Watch::of(at(&pipe), &Options::default());
    assert!(lost(&mut watch).await.contains("pipe"));
    let mut watch = Watch::of(at(Path::new("/dev/zero")), &Options::default());
    assert!(lost(&mut watch).await.contains("regular"));
}

#[tokio::test]
async fn hostile_bytes_cost_their_line_only() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = ServerLog::new(&dir.path().join("a.log"));
    log.raw(&vec![b'x'; 10 << 20]);
    log.raw(b"\n\xff\xfe\x00\x1b[2J\x9b1m\n");
    log.raw(&[b"Decode batch, ".as_slice(), &b"#token: 1, ".repeat(400_000), b"\n"].concat());
    log.decode(1, 5, 1000, 60.0, 0);
    let mut watch = Watch::of(at(log.path()), &Options { backlog: 64 << 20, ..Options::default() });
    decode(&mut watch, 5).await;
    log.raw(&vec![0; 5 << 20]);
    log.raw(b"\n");
    log.decode(1, 6, 1000, 60.0, 0);
    decode(&mut watch, 6).await;
    for observation in &watch.seen {
        let Seen::Line(line) = &observation.seen else { continue };
        let text = line.text.as_deref().unwrap_or_default();
        assert!(text.len() <= 4096 && !text.contains('\u{1b}'), "{text:?}");
    }
}

#[tokio::test]
async fn the_start_of_the_server_is_read_where_the_backlog_begins_later() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = ServerLog::new(&dir.path().join("a.log"));
    log.start(111, 1, 1);
    for n in 0..3000 {
        log.decode(1, 10_000 + n, 400_000, 60.0, 0);
    }
    log.start(222_222, 7, 4096);
    for n in 0..9000 {
        log.decode(1, 20_000 + n, 400_000, 60.0, 0);
    }
    let length = fs::metadata(log.path()).unwrap().len();
    assert!(length > 1 << 20, "{length}");
    let mut watch = Watch::of(at(log.path()), &Options { backlog: 100_000, ..Options::default() });
    decode(&mut watch, 28_999).await;
    let limits: Vec<_> = watch
        .seen
        .iter()
        .filter_map(|o| match &o.seen {
            Seen::Line(line) => match line.kind {
                LineKind::Event(Event::Limits(limits)) => limits.max_running,
                _ => None,
            },
            _ => None,
        })
        .collect();
    assert_eq!(limits, [7], "of the last start");
    let decoded = decoded(&watch);
    assert!(decoded.len() < 6000 && decoded.windows(2).all(|w| w[0] < w[1]), "{}", decoded.len());
}

#[tokio::test]
async fn lines_of_another_zone_are_placed_by_their_arrival() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = ServerLog::east(&dir.path().join("a.log"), 8);
    log.decode(1, 1, 1000, 60.0, 0);
    let mut watch = Watch::of(at(log.path()), &Options::default());
    let old = decode(&mut watch, 1).await;
    assert_eq!(old.at, None, "nothing tells the zone of what was there before");
    log.decode(1, 2, 1000, 60.0, 0);
    let live = decode(&mut watch, 2).await.at.unwrap();
    assert!(Stamp::now().duration_since(live).as_secs_f64().abs() < 3.0, "{live}");
    // The named zone is taken at once.
    let zone = pilothouse::serving::clock::zone("UTC+8");
    let mut watch = Watch::of(at(log.path()), &Options { zone, ..Options::default() });
    let placed = decode(&mut watch, 1).await.at.unwrap();
    assert!(Stamp::now().duration_since(placed).as_secs_f64().abs() < 10.0, "{placed}");
    // A log that was written to for long tells by the time of its file; a copy does not.
    let minutes = |m: i64| Stamp::now() + jiff::SignedDuration::from_mins(m);
    let file = OpenOptions::new().append(true).open(log.path()).unwrap();
    let old = minutes(-600) + jiff::SignedDuration::from_hours(8);
    log.raw(
        format!(
            "[{}] Decode batch, #running-req: 1, #token: 3, gen throughput (token/s): 1.00, #queue-req: 0\n",
            old.strftime("%Y-%m-%d %H:%M:%S")
        )
        .as_bytes(),
    );
    file.set_modified(minutes(-600).into()).unwrap();
    let mut watch = Watch::of(at(log.path()), &Options::default());
    let placed = decode(&mut watch, 3).await.at.unwrap();
    assert!(minutes(-600).duration_since(placed).as_secs_f64().abs() < 10.0, "{placed}");
    let copy = dir.path().join("copy.log");
    fs::write(&copy, fs::read(log.path()).unwrap()).unwrap();
    let mut watch = Watch::of(at(&copy), &Options::default());
    assert_eq!(decode(&mut watch, 3).await.at, None);
}

#[tokio::test]
async fn nobody_who_listens_ends_the_reading() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = ServerLog::new(&dir.path().join("a.log"));
    for n in 0..150_000 {
        log.raw(format!("line {n}\n").as_bytes());
    }
    let (tx, mut rx) = tokio::sync::mpsc::channel(2);
    let handle = source::start(at(log.path()), &Options::default(), tx);
    // Batches are small, and reading waits for whoever takes them.
    let first = rx.recv().await.unwrap();
    assert!(first.len() <= 256, "{}", first.len());
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(rx.len() <= 2);
    drop(handle);
    let end = async { while rx.recv().await.is_some() {} };
    tokio::time::timeout(SOON, end).await.expect("its thread has ended");
}

fn alive(pid: &str) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z"))
}

#[tokio::test]
async fn a_command_is_followed_restarted_and_ended() {
    let mut watch = Watch::of(
        run(
            "echo '[2026-11-29 19:50:00] Decode batch, #running-req: 1, #token: 5, gen throughput (token/s): 1.00, #queue-req: 0'; \
             echo \"cannot go on: api_key=hunter2222\" >&2; exit 3",
        ),
        &Options::default(),
    );
    let began = Instant::now();
    decode(&mut watch, 5).await;
    let why = lost(&mut watch).await;
    assert!(why.contains("status 3") && why.contains("cannot go on") && !why.contains("hunter"), "{why}");
    reset(&mut watch).await;
    decode(&mut watch, 5).await;
    assert!(began.elapsed() >= Duration::from_secs(1), "not at once");
    assert!(!format!("{:?}", watch.seen).contains("hunter2222"));
    // All of its processes end with it.
    let mut watch = Watch::of(run("sleep 1000 & echo pids $$ $!; wait"), &Options::default());
    let pids = watch
        .until("pids", SOON, |o| match &o.seen {
            Seen::Line(line) => line.text.as_deref()?.strip_prefix("pids ").map(str::to_string),
            _ => None,
        })
        .await;
    let pids: Vec<&str> = pids.split_whitespace().collect();
    assert!(pids.len() == 2 && pids.iter().all(|pid| alive(pid)));
    drop(watch);
    let began = Instant::now();
    while pids.iter().any(|pid| alive(pid)) {
        assert!(began.elapsed() < SOON, "{pids:?} live on");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let mut watch = Watch::of(run("no-such-program-here -f"), &Options::default());
    assert!(lost(&mut watch).await.contains("status 127"));
    // Its input is empty.
    let mut watch = Watch::of(run("cat; echo end"), &Options::default());
    watch.until("its end", SOON, |o| matches!(o.seen, Seen::LogLost(_)).then_some(())).await;
}

#[tokio::test]
async fn old_lines_of_a_command_are_placed_by_the_first_fresh_one() {
    let dir = tempfile::tempdir().unwrap();
    let mut log = ServerLog::east(&dir.path().join("a.log"), -5);
    let hour = jiff::SignedDuration::from_hours(1);
    let old = Stamp::now() - hour - hour * 5;
    log.raw(
        format!(
            "[{}] Decode batch, #running-req: 1, #token: 1, gen throughput (token/s): 1.00, #queue-req: 0\n",
            old.strftime("%Y-%m-%d %H:%M:%S")
        )
        .as_bytes(),
    );
    let command = format!("sleep 0.7; tail -n 10 -F {}", log.path().display());
    let mut watch = Watch::of(run(&command), &Options::default());
    watch.take(Duration::from_millis(1700)).await;
    log.decode(1, 2, 1000, 60.0, 0);
    let old = decode(&mut watch, 1).await.at.unwrap();
    assert!((Stamp::now() - hour).duration_since(old).as_secs_f64().abs() < 10.0, "{old}");
    let live = decode(&mut watch, 2).await.at.unwrap();
    assert!(Stamp::now().duration_since(live).as_secs_f64().abs() < 5.0, "{live}");
}

#[tokio::test]
async fn a_container_is_followed_through_its_restarts() {
    let docker = support::harbor::docker;
    if !docker(&["image", "inspect", "tb-base:1"]).status.success() {
        return support::skipped("the log of a container: no image tb-base:1, or no Docker");
    }
    let name = format!("pilothouse-serving-log-{}", std::process::id());
    let decode_line = |n: u32| {
        format!(
            "echo \"[2026-11-29 19:50:00] Decode batch, #running-req: 1, #token: {n}, gen throughput (token/s): 1.00, #queue-req: 0\""
        )
    };
    let script = format!(
        "{}; head -c 40000 /dev/zero | tr '\\0' x; echo; {} >&2; exec sleep 1000",
        decode_line(1),
        decode_line(2)
    );
    let sources = vec![Source { id: SourceId(0), server: "s".into(), place: Place::Container(name.as_str().into()) }];
    let mut watch = Watch::of(sources, &Options::default());
    let why = lost(&mut watch).await;
    assert!(why.to_lowercase().contains("no such container"), "{why}");
    assert!(docker(&["run", "-d", "--init", "--name", &name, "tb-base:1", "sh", "-c", &script]).status.success());
    let ended = {
        reset(&mut watch).await;
        let mut found = [false; 2];
        let at = watch.until("both streams", SOON, |o| {
            let n = tokens(o)?;
            found[n as usize - 1] = true;
            (found == [true; 2]).then_some(o.at)
        });
        at.await
    };
    // The engine says when: the stamp's zone is found out by it, here with a stamp of another day.
    assert!(ended.is_none_or(|at| at <= Stamp::now()));
    assert!(docker(&["stop", "-t", "1", &name]).status.success());
    let why = watch
        .until("its end", Duration::from_secs(15), |o| match &o.seen {
            Seen::LogLost(why) => Some(why.to_string()),
            _ => None,
        })
        .await;
    assert!(why.contains("has ended"), "{why}");
    watch.take(Duration::from_secs(3)).await;
    let before = decoded(&watch).len();
    assert_eq!(before, 2, "nothing twice");
    assert!(docker(&["start", &name]).status.success());
    reset(&mut watch).await;
    decode(&mut watch, 1).await;
    assert!(docker(&["rm", "-f", &name]).status.success());
    lost(&mut watch).await;
    let long = watch
        .seen
        .iter()
        .filter(|o| matches!(&o.seen, Seen::Line(l) if l.text.as_deref().is_some_and(|t| t.starts_with("xxxx"))));
    assert_eq!(long.count(), 2, "a long line is one line");
}
