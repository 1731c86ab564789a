//! What holds when the writer is killed, stopped or starved: each test starts this very program again
//! as the writer.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use pilothouse::harbor::write::lease::{Process, Reading, Standing, read};
use pilothouse::harbor::write::{Claim, Claimant, Folder, Lease, May, Modes, Observer, WriteError, clean_temps};
use pilothouse::job::Stamp;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::made::{self, End};
use crate::support;

const BIG: usize = 300_000;

/// The writer's side, one program for each test. Does nothing unless a test started it.
#[test]
fn helper() {
    let (Ok(role), Ok(dir)) = (std::env::var("PILOTHOUSE_TEST_ROLE"), std::env::var("PILOTHOUSE_TEST_DIR")) else {
        return;
    };
    let dir = Path::new(&dir);
    match role.as_str() {
        "scribble" => scribble(dir),
        "own" => own(dir),
        "small" => small(dir),
        other => panic!("{other}"),
    }
}

fn start(role: &str, dir: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "crash::helper", "--nocapture", "--test-threads=1"])
        .envs([("PILOTHOUSE_TEST_ROLE", role)])
        .env("PILOTHOUSE_TEST_DIR", dir)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

fn pid(child: &Child) -> Pid {
    Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap()
}

/// Writes files over and over.
fn scribble(dir: &Path) {
    let folder = Folder::open(dir).unwrap();
    let trial = folder.make_or_open("trial__AAAAAAA", 0o755).unwrap();
    let mut n = folder.dir().list().unwrap().len() as u64 * 1000;
    loop {
        n += 1;
        let text = serde_json::json!({"n": n, "fill": "x".repeat(BIG), "end": n}).to_string();
        folder.replace("result.json", text.as_bytes()).unwrap();
        trial.replace("config.json", text.as_bytes()).unwrap();
        match trial.write_once(&format!("once-{}.json", n % 50), text.as_bytes()) {
            Ok(()) | Err(WriteError::Exists { .. }) => {}
            Err(other) => panic!("{other}"),
        }
    }
}

fn whole(path: &Path) -> Option<u64> {
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return None,
        Err(e) => panic!("{e}"),
    };
    let value: Value = serde_json::from_slice(&bytes).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    assert_eq!(value["n"], value["end"]);
    assert_eq!(value["fill"].as_str().unwrap().len(), BIG);
    value["n"].as_u64()
}

#[test]
fn a_killed_writer_leaves_the_old_file_or_the_new_one() {
    let temp = tempfile::tempdir().unwrap();
    let folder = Folder::open(temp.path()).unwrap();
    let mut leftovers = 0;
    let mut once: Vec<Option<u64>> = vec![None; 50];
    let mut before = None;
    for round in 0..30_u64 {
        let mut child = start("scribble", temp.path());
        let waited = Instant::now();
        // It writes: the file is another one than the round before had.
        while whole(&temp.path().join("result.json")) == before && waited.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(Duration::from_millis(2));
        }
        // Moments that fall differently into the writer's loop.
        std::thread::sleep(Duration::from_micros(20_000 + (round * 7919) % 23_000));
        child.kill().unwrap();
        child.wait().unwrap();
        before = whole(&temp.path().join("result.json"));
        assert!(before.is_some());
        let trial = temp.path().join("trial__AAAAAAA");
        whole(&trial.join("config.json"));
        for (n, seen) in once.iter_mut().enumerate() {
            let now = whole(&trial.join(format!("once-{n}.json")));
            assert!(seen.is_none() || *seen == now, "a file that is written once has changed");
            *seen = now;
        }
        // The next start.
        let removed = clean_temps(&folder).unwrap();
        leftovers += removed.len();
        let names = |path: &Path| {
            std::fs::read_dir(path).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect::<Vec<_>>()
        };
        let left: Vec<String> = [names(temp.path()), names(&trial)].concat();
        assert!(left.iter().all(|name| !name.starts_with('.')), "{left:?}");
    }
    assert!(leftovers > 0, "no kill hit a write, so nothing was tested");
    assert!(once.iter().any(Option::is_some));
}

/// Owns a job and writes until somebody else does, then says why it stops.
fn own(dir: &Path) {
    let folder = Folder::open(dir).unwrap();
    let who = Claimant { interval: Duration::from_millis(50), ..Claimant::default() };
    let mut lease = Lease::create(&folder, &who, Stamp::now()).unwrap();
    println!("\nowner: holds");
    for n in 0_u64.. {
        std::thread::sleep(Duration::from_millis(20));
        let done =
            lease.beat(&folder, Stamp::now()).and_then(|()| folder.replace("beat.txt", n.to_string().as_bytes()));
        if let Err(error) = done {
            println!("owner: {error}");
            return;
        }
    }
}

fn wait_for_line(reader: &mut impl BufRead, part: &str) -> String {
    let mut line = String::new();
    loop {
        line.clear();
        assert!(reader.read_line(&mut line).unwrap() > 0, "it ended without {part:?}");
        if line.contains(part) {
            return line;
        }
    }
}

#[test]
fn a_stopped_owner_that_goes_on_writes_nothing_more_and_says_why() {
    let temp = tempfile::tempdir().unwrap();
    let folder = Folder::open(temp.path()).unwrap();
    let mut child = start("own", temp.path());
    let mut out = BufReader::new(child.stdout.take().unwrap());
    wait_for_line(&mut out, "owner: holds");
    let begin = Instant::now();
    let mut observer = Observer::default();
    let who = Claimant::default();
    let mut claim = |may| Lease::claim(&folder, &who, may, &mut observer, begin.elapsed(), Stamp::now()).unwrap();
    // Alive: refused, however long one looks.
    while begin.elapsed() < Duration::from_millis(400) {
        assert!(matches!(claim(May::TakeSilent), Claim::Wait(..)), "the owner lives");
        std::thread::sleep(Duration::from_millis(30));
    }
    kill_process(pid(&child), Signal::STOP).unwrap();
    let mut looked = 0;
    loop {
        match claim(May::TakeStale) {
            Claim::Wait(..) => std::thread::sleep(Duration::from_millis(20)),
            Claim::Silent(note) => {
                assert_eq!(note.pid, child.id());
                break;
            }
            Claim::Mine(_) => panic!("the process is there: only a person may take its job"),
        }
        looked += 1;
        assert!(looked < 500);
    }
    let Claim::Mine(mut mine) = claim(May::TakeSilent) else { panic!("refused") };
    let beat = || -> u64 { std::fs::read_to_string(temp.path().join("beat.txt")).unwrap().parse().unwrap() };
    let before = beat();
    kill_process(pid(&child), Signal::CONT).unwrap();
    let words = wait_for_line(&mut out, "owner: ");
    assert!(words.contains("has taken over the job"), "{words}");
    assert!(words.contains("writes nothing more"), "{words}");
    assert!(child.wait().unwrap().success());
    // A write that it had begun when it was stopped may come to its end; none begins.
    assert!((before..=before + 1).contains(&beat()), "{before} became {}", beat());
    // The late beat went nowhere.
    let Ok(Reading::Note(note)) = read(folder.dir()) else { panic!("no lease") };
    assert_eq!(note.token, mine.note().token);
    mine.beat(&folder, Stamp::now()).unwrap();
}

#[test]
fn the_job_of_a_killed_owner_is_free_after_three_intervals() {
    let temp = tempfile::tempdir().unwrap();
    let folder = Folder::open(temp.path()).unwrap();
    let mut child = start("own", temp.path());
    let mut out = BufReader::new(child.stdout.take().unwrap());
    wait_for_line(&mut out, "owner: holds");
    child.kill().unwrap();
    let Ok(Reading::Note(note)) = read(folder.dir()) else { panic!("no lease") };
    // Dead, but not collected by its parent yet: gone all the same.
    std::thread::sleep(Duration::from_millis(50));
    if cfg!(target_os = "linux") {
        assert_eq!(note.process(), Process::Gone);
    }
    child.wait().unwrap();
    let begin = Instant::now();
    let mut observer = Observer::default();
    assert!(matches!(observer.look(&note, note.process(), begin.elapsed()), Standing::Held(_)));
    loop {
        let claim =
            Lease::claim(&folder, &Claimant::default(), May::TakeStale, &mut observer, begin.elapsed(), Stamp::now());
        match claim.unwrap() {
            Claim::Mine(_) => break,
            Claim::Wait(..) => std::thread::sleep(Duration::from_millis(10)),
            Claim::Silent(_) => panic!("it is dead"),
        }
        assert!(begin.elapsed() < Duration::from_secs(10));
    }
    assert!(begin.elapsed() >= Duration::from_millis(140), "{:?}", begin.elapsed());
}

/// A job on a file system of 512 KiB that is filled and freed; and one that can not be written to.
fn small(dir: &Path) {
    let mut made = made::begin(dir, "job", &["a", "b", "c"]);
    let (trial, other) = (made.start(0), made.start(1));
    made.job.flush().unwrap();
    let before = std::fs::read(made.dir.join("result.json")).unwrap();
    let mut fill = Vec::new();
    while let Ok(()) = made.job.folder().write_once(&format!("fill-{}", fill.len()), &vec![b'x'; 16_384]) {
        fill.push(made.dir.join(format!("fill-{}", fill.len())));
    }
    for size in [4096, 1024] {
        let _ = std::fs::write(made.dir.join(format!("rest-{size}")), vec![b'x'; size * 8]);
    }
    let result = made.result(0, &End::reward(1.0));
    let error = made.job.end_trial(&trial, &result, made::at(9.0)).unwrap_err();
    assert!(matches!(error, WriteError::NoSpace { .. }), "{error}");
    assert!(error.to_string().contains("result.json: no space left"), "{error}");
    assert!(!trial.folder().path().join("result.json").exists());
    assert_eq!(std::fs::read(made.dir.join("result.json")).unwrap(), before);
    assert_eq!(clean_temps(made.job.folder()).unwrap(), Vec::<String>::new(), "a failed write cleans up");
    // Nor is a trial begun by half: it can be begun again.
    let (config, lock) = made.plan[2].clone();
    let error = made.job.begin_trial(&config, &lock, Modes::default(), made::at(20.0)).unwrap_err();
    assert!(matches!(error, WriteError::NoSpace { .. }), "{error}");
    assert!(!made.dir.join(&config.trial_name).exists());
    fill.iter().for_each(|path| std::fs::remove_file(path).unwrap());
    made.job.end_trial(&trial, &result, made::at(9.0)).unwrap();
    made.end(1, &other, &End::reward(1.0));
    let third = made.start(2);
    made.end(2, &third, &End::reward(1.0));
    let frozen = dir.join("frozen");
    std::fs::create_dir(&frozen).unwrap();
    assert!(Command::new("mount").args(["-t", "tmpfs", "-o", "ro", "none"]).arg(&frozen).status().unwrap().success());
    let error = Folder::open(&frozen).unwrap().replace("result.json", b"{}").unwrap_err();
    assert!(matches!(error, WriteError::ReadOnly { .. }), "{error}");
    let Err(error) = made::try_begin(&frozen, "job", &["a"]) else { panic!("written") };
    assert!(matches!(error, WriteError::ReadOnly { .. }), "{error}");
    println!("\nsmall: done");
}

#[test]
fn a_full_or_read_only_file_system_is_named_and_leaves_the_old_files() {
    let temp = tempfile::tempdir().unwrap();
    let script = "mount -t tmpfs -o size=512k none \"$PILOTHOUSE_TEST_DIR\" || exit 77\nexec \"$@\"";
    let spawned = Command::new("unshare")
        .args(["-r", "-m", "sh", "-c", script, "sh"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "crash::helper", "--nocapture"])
        .env("PILOTHOUSE_TEST_ROLE", "small")
        .env("PILOTHOUSE_TEST_DIR", temp.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut child) = spawned else { return support::skipped("no unshare, so no small file system") };
    let (mut out, mut err) = (String::new(), String::new());
    child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
    child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
    let status = child.wait().unwrap();
    if status.code() == Some(77) || err.contains("unshare failed") || err.contains("Operation not permitted") {
        return support::skipped("no name spaces or no mount, so no small file system");
    }
    assert!(status.success() && out.contains("small: done"), "{out}\n{err}");
}
