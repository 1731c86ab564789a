//! One owner at a time, a job dir that goes away, and a safe place for what has to leave it.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use pilothouse::follow::{Follower, Options};
use pilothouse::harbor::write::lease::{Process, Reading, Standing, read, standing};
use pilothouse::harbor::write::{Claimant, Folder, Lease, Modes, Observer, WriteError, ids, quarantine};
use pilothouse::job::fleet::StateKind;
use pilothouse::job::{Fleet, Stamp};

use crate::made::{End, at, begin};

#[test]
fn a_lease_is_held_by_one() {
    let temp = tempfile::tempdir().unwrap();
    let folder = Folder::open(temp.path()).unwrap();
    let who = Claimant { interval: Duration::from_secs(10), scheduler_job: Some("slurm-\u{1b}[1m42".to_string()) };
    let mut first = Lease::create(&folder, &who, at(0.0)).unwrap();
    assert!(matches!(Lease::create(&folder, &who, at(0.0)), Err(WriteError::Exists { .. })));
    let note = first.note().clone();
    assert_eq!(note.scheduler_job.as_deref(), Some("slurm-[1m42"));
    if cfg!(target_os = "linux") {
        assert_eq!(note.process(), Process::There);
    }
    // The rule, on the reader's own clock.
    let s = Duration::from_secs;
    assert_eq!(standing(&note, s(29), Process::Gone), Standing::Held(s(1)));
    assert_eq!(standing(&note, s(30), Process::Gone), Standing::Stale);
    assert_eq!(standing(&note, s(30), Process::Elsewhere), Standing::Stale);
    assert_eq!(standing(&note, s(300), Process::There), Standing::Silent);
    let mut observer = Observer::default();
    assert_eq!(observer.look(&note, Process::Elsewhere, s(100)), Standing::Held(s(30)));
    assert_eq!(observer.look(&note, Process::Elsewhere, s(129)), Standing::Held(s(1)));
    first.beat(&folder, at(1.0)).unwrap();
    let Ok(Reading::Note(later)) = read(folder.dir()) else { panic!("no lease") };
    assert_eq!(later.beat, note.beat + 1);
    assert_eq!(observer.look(&later, Process::Elsewhere, s(131)), Standing::Held(s(30)));
    assert_eq!(observer.look(&later, Process::Elsewhere, s(161)), Standing::Stale);
    for interval in [f64::NAN, -1.0, 0.0, 1e300] {
        let odd = pilothouse::harbor::write::lease::LeaseNote { interval_sec: interval, ..note.clone() };
        assert!(odd.patience() <= s(3 * 3600) && odd.patience() > Duration::ZERO);
    }

    // Of many who saw the same stale lease one wins.
    let won: Vec<Lease> = std::thread::scope(|scope| {
        let takers: Vec<_> =
            (0..16).map(|_| scope.spawn(|| Lease::take_over(&folder, &who, &later, at(2.0)))).collect();
        let ended = takers.into_iter().map(|t| t.join().unwrap());
        ended
            .filter_map(|r| match r {
                Ok(lease) => Some(lease),
                Err(WriteError::Exists { .. }) => None,
                Err(other) => panic!("{other}"),
            })
            .collect()
    });
    assert_eq!(won.len(), 1);
    let words = first.beat(&folder, at(3.0)).unwrap_err().to_string();
    assert!(words.contains("has taken over the job"), "{words}");
    won[0].check(&folder).unwrap();
    // One who looked long ago can not take it from the new holder.
    assert!(matches!(Lease::take_over(&folder, &who, &later, at(4.0)), Err(WriteError::Exists { .. })));
    won[0].check(&folder).unwrap();
    // Deleted, or damaged: the holder stops.
    fs::write(temp.path().join("pilothouse.lease"), "{").unwrap();
    assert!(matches!(won[0].check(&folder), Err(WriteError::Lease { .. })));
    fs::remove_file(temp.path().join("pilothouse.lease")).unwrap();
    let words = won[0].check(&folder).unwrap_err().to_string();
    assert!(words.contains("is gone"), "{words}");
    let leftovers: BTreeSet<_> =
        fs::read_dir(temp.path()).unwrap().map(|e| e.unwrap().file_type().unwrap().is_file()).collect();
    assert!(!leftovers.contains(&false), "never a directory in a job dir");
}

#[test]
fn who_has_lost_the_job_writes_nothing_more() {
    let temp = tempfile::tempdir().unwrap();
    let mut made = begin(temp.path(), "lost", &["a", "b"]);
    let mut trial = made.start(0);
    made.job.flush().unwrap();
    let Ok(Reading::Note(note)) = read(made.job.folder().dir()) else { panic!("no lease") };
    let folder = Folder::open(&made.dir).unwrap();
    let _new = Lease::take_over(&folder, &Claimant::default(), &note, at(5.0)).unwrap();
    let before = fs::read(made.dir.join("result.json")).unwrap();
    let result = made.result(0, &End::reward(1.0));
    let error = made.job.end_trial(&trial, &result, at(9.0)).unwrap_err();
    assert!(matches!(error, WriteError::Lease { .. }), "{error}");
    assert!(made.job.finish(at(10.0)).is_err() && made.job.beat(at(10.0)).is_err() && made.job.log("x").is_err());
    assert!(trial.log("x").is_err() && trial.exception("x").is_err());
    let (config, lock) = made.plan[1].clone();
    assert!(made.job.begin_trial(&config, &lock, Modes::default(), at(11.0)).is_err());
    assert_eq!(fs::read(made.dir.join("result.json")).unwrap(), before);
    assert!(!trial.folder().path().join("result.json").exists());
}

#[test]
fn a_vanished_job_dir_is_a_clear_stop() {
    let temp = tempfile::tempdir().unwrap();
    for how in ["deleted", "moved", "replaced"] {
        let mut made = begin(temp.path(), how, &["a"]);
        let trial = made.start(0);
        let away = temp.path().join(format!("{how}-away"));
        match how {
            "deleted" => fs::remove_dir_all(&made.dir).unwrap(),
            _ => fs::rename(&made.dir, &away).unwrap(),
        }
        if how == "replaced" {
            fs::create_dir(&made.dir).unwrap();
        }
        let result = made.result(0, &End::reward(1.0));
        let error = made.job.end_trial(&trial, &result, at(9.0)).unwrap_err();
        assert!(matches!(error, WriteError::Vanished { .. }), "{how}: {error}");
        assert!(error.to_string().contains(how) && error.to_string().contains("put it back"), "{error}");
        assert!(made.job.finish(at(10.0)).is_err());
        assert_eq!(made.dir.exists(), how == "replaced");
        assert!(!made.dir.join("result.json").exists());
    }
}

#[test]
fn quarantine_copies_before_it_removes() {
    let temp = tempfile::tempdir().unwrap();
    let (job, state) = (temp.path().join("job"), temp.path().join("state/pilothouse"));
    let outside = temp.path().join("outside");
    fs::create_dir_all(&outside).unwrap();
    fs::write(outside.join("precious"), "stays").unwrap();
    let make = || {
        let trial = job.join("a__AAAAAAA");
        fs::create_dir_all(trial.join("agent/deep/er")).unwrap();
        fs::write(trial.join("agent/deep/er/log"), vec![7; 200_000]).unwrap();
        fs::write(trial.join("agent/deep/er").join(std::ffi::OsString::from("na\u{1b}me")), "odd").unwrap();
        symlink(&outside, trial.join("agent/out")).unwrap();
        symlink("/nowhere", trial.join("agent/dangling")).unwrap();
        assert!(Command::new("mkfifo").arg(trial.join("agent/pipe")).status().unwrap().success());
    };
    make();
    let folder = Folder::open(&job).unwrap();
    let id = ids::uuid().unwrap();
    let moved = quarantine(&folder, "a__AAAAAAA", &state, &id).unwrap();
    assert_eq!(moved.place, state.join("quarantine").join(&id).join("a__AAAAAAA"));
    assert_eq!(moved.left_out, [moved.place.join("agent/pipe")]);
    assert!(!job.join("a__AAAAAAA").exists());
    assert_eq!(fs::read(moved.place.join("agent/deep/er/log")).unwrap(), vec![7; 200_000]);
    assert_eq!(fs::read_link(moved.place.join("agent/out")).unwrap(), outside);
    assert_eq!(fs::read_to_string(outside.join("precious")).unwrap(), "stays");
    assert_eq!(fs::metadata(state.join("quarantine")).unwrap().permissions().mode() & 0o777, 0o700);
    // The same name again gets a number; the first stays.
    make();
    let again = quarantine(&folder, "a__AAAAAAA", &state, &id).unwrap();
    assert_eq!(again.place.file_name().unwrap(), "a__AAAAAAA.1");
    let names: BTreeSet<_> =
        fs::read_dir(state.join("quarantine").join(&id)).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names.len(), 2, "{names:?}");
    // A file alone; and what can not be copied stays where it is.
    fs::write(job.join("note"), "x").unwrap();
    assert_eq!(fs::read_to_string(quarantine(&folder, "note", &state, &id).unwrap().place).unwrap(), "x");
    make();
    fs::write(temp.path().join("file"), "").unwrap();
    assert!(quarantine(&folder, "a__AAAAAAA", &temp.path().join("file/x"), &id).is_err());
    for bad in ["", "..", "a/b"] {
        assert!(
            quarantine(&folder, bad, &state, &id).is_err() && quarantine(&folder, "a__AAAAAAA", &state, bad).is_err()
        );
    }
    assert!(job.join("a__AAAAAAA/agent/deep/er/log").exists());
    let mut deep = job.join("deep");
    fs::create_dir(&deep).unwrap();
    for _ in 0..150 {
        deep.push("d");
        fs::create_dir(&deep).unwrap();
    }
    let words = quarantine(&folder, "deep", &state, &id).unwrap_err().to_string();
    assert!(words.contains("nothing was moved") && deep.exists(), "{words}");
}

fn state(dir: &Path) -> (StateKind, String) {
    let mut fleet = Fleet::default();
    Follower::new(vec![dir.to_path_buf()], Options::default()).scan_once(&mut |events| {
        events.into_iter().for_each(|event| fleet.apply(event));
        true
    });
    let state = fleet.jobs()[0].state(Stamp::now());
    (state.kind, state.evidence)
}

#[test]
fn a_reader_believes_the_lease() {
    let temp = tempfile::tempdir().unwrap();
    let mut made = begin(temp.path(), "followed", &["a", "b"]);
    let trial = made.start(0);
    let (kind, why) = state(&made.dir);
    assert_eq!(kind, StateKind::Running);
    assert!(why.contains(&format!("pilothouse (pid {})", std::process::id())), "{why}");
    made.end(0, &trial, &End::reward(1.0));
    made.job.leave(at(20.0)).unwrap();
    // At once: no silence has to be waited for.
    let (kind, why) = state(&made.dir);
    assert_eq!(kind, StateKind::Interrupted, "{why}");
    assert!(why.contains("gave the job back"), "{why}");

    let lease = made.dir.join("pilothouse.lease");
    let mut note: serde_json::Value = serde_json::from_slice(&fs::read(&lease).unwrap()).unwrap();
    note["released"] = false.into();
    // Of its process only the number is left, with another process behind it.
    note["started"] = 1.into();
    fs::write(&lease, note.to_string()).unwrap();
    let (kind, why) = state(&made.dir);
    assert_eq!(kind, StateKind::Interrupted, "{why}");
    assert!(why.contains(&format!("(pid {}) is gone", std::process::id())), "{why}");
    // On another host: believed as long as it beats.
    note["boot_id"] = "another".into();
    note["host"] = "node-7\u{1b}[2J".into();
    fs::write(&lease, note.to_string()).unwrap();
    let (kind, why) = state(&made.dir);
    assert_eq!(kind, StateKind::Running, "{why}");
    assert!(why.starts_with("pilothouse on node-7") && !why.contains(char::is_control), "{why}");
}
