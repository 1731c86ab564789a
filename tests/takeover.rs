//! Two owners and one job: the living one is left alone, a stopped one can be followed by another and
//! then writes nothing more, and one whose job dir goes away says so.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

#[path = "run/yard.rs"]
mod yard;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use yard::{PASS, Running, Yard, json, until};

const BEAT: [&str; 2] = ["--heartbeat", "0.1"];

/// A job whose second trial waits for a file.
fn at_work() -> (Yard, Running) {
    let yard = Yard::new();
    let go = yard.path().join("go");
    let wait = format!("touch \"$LOGS_DIR/agent/here\"; while [ ! -e {} ]; do sleep 0.05; done", go.display());
    let yard = yard.task("a-quick", "true", PASS, "").task("b-long", &wait, PASS, "").task("c-last", "true", PASS, "");
    let mut args = yard.usual();
    args.extend(["-n", "1", BEAT[0], BEAT[1]].map(str::to_string));
    let running = yard.spawn(&args, "first");
    until("the second trial", || {
        yard.results().into_keys().any(|name| yard.dir().join(name).join("agent/here").exists())
    });
    (yard, running)
}

fn let_go(yard: &Yard) {
    fs::write(yard.path().join("go"), "").unwrap();
}

/// Every path below a directory with its bytes and the time of its last change.
fn tree(dir: &Path) -> BTreeMap<String, (Vec<u8>, i64)> {
    let mut out = BTreeMap::new();
    for entry in fs::read_dir(dir).unwrap().flatten() {
        let (path, meta) = (entry.path(), entry.metadata().unwrap());
        let bytes = if meta.is_file() { fs::read(&path).unwrap() } else { Vec::new() };
        out.insert(path.display().to_string(), (bytes, meta.mtime_nsec() + meta.mtime() * 1_000_000_000));
        if meta.is_dir() {
            out.extend(tree(&path));
        }
    }
    out
}

#[test]
fn a_living_owner_is_not_disturbed() {
    let (yard, mut first) = at_work();
    for more in [&[][..], &["--take-over"]] {
        let mut second = yard.spawn(&yard.resume(more), "second");
        assert_eq!(second.wait().code(), Some(2), "{}", second.said());
        let said = second.said();
        assert!(said.contains("works on the job") && said.contains(&first.child.id().to_string()), "{said}");
    }
    let_go(&yard);
    assert_eq!(first.wait().code(), Some(0), "{}", first.said());
    assert_eq!(yard.results().len(), 3);
}

#[test]
fn a_stopped_owner_is_taken_over_on_a_person_s_word_and_then_writes_nothing_more() {
    let (yard, mut first) = at_work();
    first.signal(Signal::STOP);
    let mut refused = yard.spawn(&yard.resume(&BEAT), "refused");
    assert_eq!(refused.wait().code(), Some(2));
    let said = refused.said();
    assert!(said.contains(&format!("pid {}", first.child.id())) && said.contains("--take-over"), "{said}");
    assert!(said.contains("sign of life"), "{said}");
    let_go(&yard);
    let mut second = yard.spawn(&yard.resume(&[BEAT[0], BEAT[1], "--take-over"]), "second");
    assert_eq!(second.wait().code(), Some(0), "{}", second.said());
    let job = json(&yard.dir().join("result.json"));
    assert!(job["finished_at"].is_string() && job["stats"]["n_completed_trials"] == 3, "{job}");
    assert_eq!(yard.results().values().filter(|r| r.is_some()).count(), 3);
    let before = tree(&yard.dir());
    first.signal(Signal::CONT);
    assert_eq!(first.wait().code(), Some(1), "{}", first.said());
    let said = first.said();
    assert!(said.contains("has taken over the job") && said.contains("writes nothing more"), "{said}");
    assert_eq!(tree(&yard.dir()), before);
    assert_eq!(yard.processes(), [""; 0]);
}

#[test]
fn the_first_goes_on_while_the_second_works() {
    let (yard, mut first) = at_work();
    first.signal(Signal::STOP);
    let old: Vec<String> = yard.results().into_keys().collect();
    let mut second = yard.spawn(&yard.resume(&[BEAT[0], BEAT[1], "--take-over"]), "second");
    until("the second owner's own trial", || {
        let open = |name: &String| !old.contains(name) && yard.dir().join(name).join("agent/here").exists();
        yard.results().keys().any(open)
    });
    first.signal(Signal::CONT);
    assert_eq!(first.wait().code(), Some(1), "{}", first.said());
    let_go(&yard);
    assert_eq!(second.wait().code(), Some(0), "{}", second.said());
    let results = yard.results();
    assert!(results.len() == 3 && results.values().all(Option::is_some), "{:?}", results.keys());
}

#[test]
fn the_first_goes_on_while_the_second_clears_away() {
    let (yard, mut first) = at_work();
    first.signal(Signal::STOP);
    let mut second = yard.spawn(&yard.resume(&[BEAT[0], BEAT[1], "--take-over"]), "second");
    let pid = format!("\"pid\":{},", second.child.id());
    let lease = || fs::read_to_string(yard.dir().join("pilothouse.lease")).unwrap_or_default();
    until("the second's lease", || lease().contains(&pid));
    first.signal(Signal::CONT);
    let_go(&yard);
    assert_eq!(first.wait().code(), Some(1), "{}", first.said());
    assert_eq!(second.wait().code(), Some(0), "{}", second.said());
    let results = yard.results();
    assert!(results.len() == 3 && results.values().all(Option::is_some), "{:?}", results.keys());
    assert_eq!(yard.processes(), [""; 0]);
}

#[test]
fn an_owner_whose_job_dir_goes_away_says_so_and_stops() {
    let (yard, mut first) = at_work();
    fs::rename(yard.dir(), yard.path().join("elsewhere")).unwrap();
    let begin = Instant::now();
    let status = first.wait();
    assert!(begin.elapsed() < Duration::from_secs(20));
    assert_eq!(status.code(), Some(1), "{}", first.said());
    assert!(first.said().contains("its directory is gone"), "{}", first.said());
    assert!(!yard.dir().exists(), "made anew");
    assert_eq!(yard.processes(), [""; 0]);
}
