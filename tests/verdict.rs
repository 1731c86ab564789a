//! Verdicts and the journal: written, merged, read again, wherever they had to go.
#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::indexing_slicing,
    missing_docs
)]

#[path = "support/jobs.rs"]
mod made;
mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use made::write_job;
use pilothouse::follow::{Follower, Options};
use pilothouse::job::{Fleet, Job, JobEvent, Notebook, Verdict};
use pilothouse::journal::{JOURNAL, Saying, Subject, Verdicts};
use serde_json::Value;

struct Place {
    temp: tempfile::TempDir,
}

impl Place {
    fn new() -> Place {
        Place { temp: tempfile::tempdir().unwrap() }
    }

    fn job(&self, name: &str) -> PathBuf {
        let tasks = [("one", Some(0.0)), ("two", None), ("three", Some(1.0)), ("four", Some(0.0))];
        write_job(self.temp.path(), name, &tasks, true)
    }

    fn state(&self) -> PathBuf {
        self.temp.path().join("state")
    }

    fn command(&self, operator: &str, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pilothouse"));
        command.args(args).env("PILOTHOUSE_STATE_DIR", self.state()).env("USER", operator).env_remove("SUDO_USER");
        command
    }

    fn verdict(&self, operator: &str, dirs: &[PathBuf], rest: &[&str]) -> Output {
        let mut args = vec!["verdict"];
        args.extend(dirs.iter().map(|d| d.to_str().unwrap()));
        args.extend(rest);
        self.command(operator, &args).output().unwrap()
    }

    fn fleet(&self, dir: &Path) -> Fleet {
        let mut fleet = Fleet::default();
        let options = Options { owner: false, state_dir: Some(self.state()), ..Options::default() };
        Follower::new(vec![dir.to_path_buf()], options).scan_once(&mut |events| {
            events.into_iter().for_each(|event| fleet.apply(event));
            true
        });
        fleet
    }

    fn notebook(&self, dir: &Path) -> Notebook {
        self.fleet(dir).jobs()[0].notebook.clone()
    }

    fn verdict_of(&self, dir: &Path, task: &str) -> Option<Verdict> {
        let fleet = self.fleet(dir);
        let job = &fleet.jobs()[0];
        job.verdict_of(&job.trials[&*format!("{task}__AbCdEfG")])
    }
}

fn trial(job: &Path, task: &str) -> PathBuf {
    job.join(format!("{task}__AbCdEfG"))
}

fn ok(out: &Output) -> String {
    let text = String::from_utf8(out.stdout.clone()).unwrap();
    assert_eq!(out.status.code(), Some(0), "{text}{}", String::from_utf8_lossy(&out.stderr));
    text
}

fn copy(from: &Path, to: &Path) {
    assert!(Command::new("cp").arg("-r").args([from, to]).status().unwrap().success());
}

#[test]
fn a_verdict_is_set_changed_and_taken_back_and_all_words_are_kept() {
    let place = Place::new();
    let job = place.job("j");
    let text = ok(&place.verdict("ann", &[trial(&job, "one")], &["agent_fault", "--note", "it never tried"]));
    assert!(text.contains("one__AbCdEfG: agent_fault (was none)") && text.contains(JOURNAL), "{text}");
    ok(&place.verdict("bob", &[trial(&job, "one"), trial(&job, "two")], &["infra_confirmed"]));
    assert_eq!(place.verdict_of(&job, "one"), Some(Verdict::InfraConfirmed));
    assert_eq!(place.verdict_of(&job, "two"), Some(Verdict::InfraConfirmed));
    let text = ok(&place.verdict("ann", &[trial(&job, "one")], &["none", "--json"]));
    let document: Value = serde_json::from_str(&text).unwrap();
    let said = &document["verdicts"][0];
    assert_eq!((&said["verdict"], said["was"].as_str()), (&Value::Null, Some("infra_confirmed")));
    assert_eq!(said["instead_of_job_dir"], Value::Null);
    assert_eq!(place.verdict_of(&job, "one"), None);
    let notebook = place.notebook(&job);
    let words = notebook.words("one__AbCdEfG");
    assert_eq!(words.len(), 3);
    assert_eq!((&*words[0].note, words[0].verdict), ("it never tried", Some(Verdict::AgentFault)));
    assert!(words[0].operator.starts_with("ann@") && words[1].operator.starts_with("bob@"), "{words:?}");
    assert!(words.iter().all(|w| w.result_id.is_some()));
    let again = ok(&place.verdict("ann", &[trial(&job, "one")], &["none"]));
    assert!(again.contains("no verdict to take back"), "{again}");
    assert_eq!(place.notebook(&job).len(), 4, "nothing was written for nothing");
}

#[test]
fn wrong_words_and_wrong_directories_write_nothing() {
    let place = Place::new();
    let job = place.job("j");
    let out = place.verdict("ann", &[trial(&job, "one")], &["passed"]);
    let stderr = String::from_utf8(out.stderr).unwrap();
    assert_eq!(out.status.code(), Some(2));
    for verdict in Verdict::ALL {
        assert!(stderr.contains(verdict.word()), "{stderr}");
    }
    assert!(stderr.contains("none"));
    let stray = place.temp.path().join("stray");
    fs::create_dir(&stray).unwrap();
    for bad in [job.clone(), stray, place.temp.path().join("not-there"), job.join("config.json")] {
        let out = place.verdict("ann", &[trial(&job, "one"), bad.clone()], &["agent_fault"]);
        assert_eq!(out.status.code(), Some(2), "{bad:?}");
        assert!(String::from_utf8_lossy(&out.stderr).contains(&*bad.to_string_lossy()));
    }
    assert!(!job.join(JOURNAL).exists() && !place.state().join("journal").exists());
}

#[test]
fn a_secret_in_a_note_is_not_written() {
    let place = Place::new();
    let job = place.job("j");
    let key = ["sk-", "proj-", "0123456789abcdefghijklmnopqrstuv"].concat();
    ok(&place.verdict("ann", &[trial(&job, "one")], &["agent_fault", "--note", &format!("the key {key} was wrong")]));
    let text = fs::read_to_string(job.join(JOURNAL)).unwrap();
    assert!(text.contains("was wrong") && !text.contains(&key), "{text}");
}

#[test]
fn journals_of_two_copies_merge_without_loss_in_either_order() {
    let place = Place::new();
    let ours = place.job("ours");
    let theirs = place.temp.path().join("theirs");
    ok(&place.verdict("ann", &[trial(&ours, "one")], &["agent_fault"]));
    copy(&ours, &theirs);
    ok(&place.verdict("ann", &[trial(&ours, "two")], &["inconclusive", "--note", "ann first"]));
    ok(&place.verdict("bob", &[trial(&theirs, "two")], &["infra_confirmed", "--note", "bob later"]));
    ok(&place.verdict("bob", &[trial(&theirs, "four")], &["counts_as_passed"]));
    ok(&place.verdict("ann", &[trial(&ours, "one")], &["none"]));
    // What was said in a copy holds there, too.
    assert_eq!(place.verdict_of(&theirs, "one"), Some(Verdict::AgentFault));
    let read = |dir: &Path| fs::read_to_string(dir.join(JOURNAL)).unwrap();
    let (a, b) = (read(&ours), read(&theirs));
    let mut notebooks = Vec::new();
    let torn = "{\"schema_version\":1,\"time\":\"2026-08-0";
    for text in [format!("{a}{b}"), format!("{b}{a}"), format!("{}{b}", a.trim_end()), format!("{a}{torn}{b}")] {
        fs::write(ours.join(JOURNAL), text).unwrap();
        assert_eq!(place.verdict_of(&ours, "one"), None);
        assert_eq!(place.verdict_of(&ours, "two"), Some(Verdict::InfraConfirmed));
        assert_eq!(place.verdict_of(&ours, "four"), Some(Verdict::CountsAsPassed));
        notebooks.push(place.notebook(&ours));
    }
    assert!(notebooks.iter().all(|notebook| *notebook == notebooks[0]), "{notebooks:?}");
    assert_eq!(notebooks[0].len(), 5);
    assert_eq!(notebooks[0].words("two__AbCdEfG").len(), 2);
}

#[test]
fn many_processes_that_write_at_once_lose_nothing() {
    let place = Place::new();
    let job = place.job("j");
    let tasks = ["one", "two", "three", "four"];
    let mut children = Vec::new();
    for round in 0..5 {
        for (at, operator) in ["ann", "bob"].iter().enumerate() {
            let dirs: Vec<PathBuf> = tasks.iter().map(|t| trial(&job, t)).collect();
            let mut args = vec!["verdict"];
            args.extend(dirs.iter().map(|d| d.to_str().unwrap()));
            let verdict = Verdict::ALL[(round + at) % 7].word();
            let note = format!("{operator} {round}");
            args.extend([verdict, "--note", &note]);
            children.push(place.command(operator, &args).stdout(std::process::Stdio::null()).spawn().unwrap());
        }
    }
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    let notebook = place.notebook(&job);
    for task in tasks {
        let mut notes: Vec<String> =
            notebook.words(&format!("{task}__AbCdEfG")).iter().map(|w| w.note.to_string()).collect();
        notes.sort();
        notes.dedup();
        assert_eq!(notes.len(), 10, "{task}: {notes:?}");
    }
    let text = fs::read_to_string(job.join(JOURNAL)).unwrap();
    assert!(text.lines().all(|line| serde_json::from_str::<Value>(line).is_ok()));
    assert_eq!(text.lines().count(), 40);
}

#[test]
fn lines_that_are_wrong_cost_themselves_alone() {
    let place = Place::new();
    let job = place.job("j");
    ok(&place.verdict("ann", &[trial(&job, "one")], &["agent_fault"]));
    let good = fs::read_to_string(job.join(JOURNAL)).unwrap();
    let with = |trial: &str, rest: &str| {
        format!("{{\"act\":\"verdict\",\"time\":\"2026-08-01T10:00:00Z\",\"trial\":{trial:?},{rest}}}\n")
    };
    let mut bytes = Vec::new();
    bytes.extend_from_slice(b"[1, 2]\nnot json at all\n\"text\"\n{}\n{\"act\": 5}\n\0\0\0\0\n\xff\xfe\n");
    bytes.extend_from_slice(with("two__AbCdEfG", "\"verdict\":\"made_up_later\"").as_bytes());
    bytes.extend_from_slice(with("two__AbCdEfG", "\"verdict\":[\"agent_fault\"]").as_bytes());
    bytes.extend_from_slice(b"{\"act\":\"sing\",\"time\":\"2026-08-01T10:00:00Z\",\"trial\":\"two__AbCdEfG\",\"verdict\":\"agent_fault\"}\n");
    bytes.extend_from_slice(
        b"{\"act\":\"verdict\",\"time\":\"yesterday\",\"trial\":\"two__AbCdEfG\",\"verdict\":\"agent_fault\"}\n",
    );
    bytes.extend_from_slice(&[b"{\"x\":\"".as_slice(), &vec![b'a'; 300_000], b"\"}\n"].concat());
    bytes.extend_from_slice(&[0; 4096]);
    bytes.extend_from_slice(good.as_bytes());
    bytes.extend_from_slice(b"{\"act\":\"verdict\",\"time\":\"2030-01-01T00:00:00Z\",\"trial\":\"one__AbC");
    fs::write(job.join(JOURNAL), &bytes).unwrap();
    let notebook = place.notebook(&job);
    assert_eq!((notebook.len(), place.verdict_of(&job, "one")), (1, Some(Verdict::AgentFault)));
    // The next word closes the torn line.
    ok(&place.verdict("bob", &[trial(&job, "one")], &["task_invalid"]));
    assert_eq!(place.verdict_of(&job, "one"), Some(Verdict::TaskInvalid));
    let text = fs::read(job.join(JOURNAL)).unwrap();
    assert!(text.starts_with(&bytes), "nothing that was there is changed");
}

#[test]
fn a_journal_of_300_megabytes_is_read_from_its_end() {
    let place = Place::new();
    let job = place.job("j");
    let file = fs::File::create(job.join(JOURNAL)).unwrap();
    file.set_len(300 << 20).unwrap();
    drop(file);
    ok(&place.verdict("ann", &[trial(&job, "one")], &["agent_fault"]));
    let begin = Instant::now();
    let fleet = place.fleet(&job);
    assert!(begin.elapsed() < Duration::from_secs(10));
    let job = &fleet.jobs()[0];
    assert_eq!(job.verdict_of(&job.trials["one__AbCdEfG"]), Some(Verdict::AgentFault));
    assert!(
        job.facts.problems.iter().any(|p| p.message.contains("only its last lines are read")),
        "{:?}",
        job.facts.problems
    );
}

#[test]
fn a_word_on_one_attempt_does_not_hold_for_the_next_in_the_same_directory() {
    let place = Place::new();
    let job = place.job("j");
    ok(&place.verdict("ann", &[trial(&job, "one")], &["counts_as_passed"]));
    let path = trial(&job, "one").join("result.json");
    let mut result: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    result["id"] = "another-attempt".into();
    fs::write(&path, result.to_string()).unwrap();
    assert_eq!(place.verdict_of(&job, "one"), None);
    assert_eq!(place.notebook(&job).len(), 1);
}

/// A journal of a job dir that can not be written to, of several kinds.
fn obstructed(place: &Place, kind: &str) -> PathBuf {
    let job = place.job(kind);
    let journal = job.join(JOURNAL);
    match kind {
        "directory" => fs::create_dir(&journal).unwrap(),
        "link" => std::os::unix::fs::symlink("/nowhere/at/all", &journal).unwrap(),
        "fifo" => assert!(Command::new("mkfifo").arg(&journal).status().unwrap().success()),
        _ => {
            fs::write(place.temp.path().join("other"), "mine").unwrap();
            fs::hard_link(place.temp.path().join("other"), &journal).unwrap();
        }
    }
    job
}

#[test]
fn where_the_job_dir_can_not_be_written_to_the_state_dir_is_and_that_is_said() {
    for kind in ["directory", "link", "fifo", "hard link"] {
        let place = Place::new();
        let job = obstructed(&place, kind);
        falls_back(&place, &job, kind);
    }
}

fn falls_back(place: &Place, job: &Path, kind: &str) {
    let out = place.verdict("ann", &[trial(job, "one")], &["counts_as_passed", "--note", "seen", "--json"]);
    let document: Value = serde_json::from_str(&ok(&out)).unwrap();
    let said = &document["verdicts"][0];
    let to = PathBuf::from(said["written_to"].as_str().unwrap());
    assert!(to.starts_with(place.state().join("journal")), "{kind}: {to:?}");
    assert!(said["instead_of_job_dir"].as_str().unwrap().contains("can not be written"), "{kind}: {said}");
    let stderr = String::from_utf8(out.stderr).unwrap();
    assert!(stderr.contains(&*to.to_string_lossy()), "{kind}: {stderr}");
    assert_eq!(place.verdict_of(job, "one"), Some(Verdict::CountsAsPassed), "{kind}");
    let without = Options { owner: false, ..Options::default() };
    let mut fleet = Fleet::default();
    Follower::new(vec![job.to_path_buf()], without).scan_once(&mut |events| {
        events.into_iter().for_each(|event| fleet.apply(event));
        true
    });
    assert!(fleet.jobs()[0].notebook.is_empty(), "{kind}: what lies in the state dir is read from there alone");
    // With no state dir either, nothing pretends.
    let nowhere = place.temp.path().join("a-file");
    fs::write(&nowhere, "").unwrap();
    let mut command = place.command("ann", &["verdict", trial(job, "two").to_str().unwrap(), "agent_fault"]);
    let out = command.env("PILOTHOUSE_STATE_DIR", nowhere.join("x")).output().unwrap();
    assert_eq!(out.status.code(), Some(1), "{kind}");
    assert!(String::from_utf8_lossy(&out.stderr).contains("not written down"), "{kind}");
    assert_eq!(place.notebook(job).len(), 1);
}

struct Mounted(PathBuf);

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

fn mount(args: &[&str]) -> bool {
    Command::new("mount").args(args).output().is_ok_and(|out| out.status.success())
}

#[test]
fn a_read_only_file_system_and_a_full_one_fall_back_visibly() {
    let place = Place::new();
    let disk = place.temp.path().join("disk");
    fs::create_dir(&disk).unwrap();
    let at = disk.to_str().unwrap();
    if !mount(&["-t", "tmpfs", "-o", "size=1m", "tmpfs", at]) {
        support::skipped("mounting needs root");
        return;
    }
    let _mounted = Mounted(disk.clone());
    let tasks = [("one", Some(0.0)), ("two", None)];
    let job = write_job(&disk, "j", &tasks, true);
    // Full: the file can be opened, and what is appended finds no room.
    fs::write(job.join(JOURNAL), "").unwrap();
    let filling = Command::new("dd")
        .args(["if=/dev/zero", &format!("of={at}/fill"), "bs=4096"])
        .stderr(std::process::Stdio::null())
        .status()
        .unwrap();
    assert!(!filling.success(), "the disk is full");
    falls_back(&place, &job, "full");
    fs::remove_file(disk.join("fill")).unwrap();
    fs::remove_dir_all(place.state()).unwrap();
    assert!(mount(&["-o", "remount,ro", at]));
    falls_back(&place, &job, "read-only");
}

/// Follows until the notebook fits, or time is over.
fn follow(place: &Place, dir: &Path, options: Options, act: impl FnOnce(), fits: impl Fn(&Job) -> bool) {
    let options = Options { owner: false, state_dir: Some(place.state()), ..options };
    let follower = Follower::new(vec![dir.to_path_buf()], options);
    let remote = follower.remote();
    let (tell, told) = mpsc::sync_channel::<Vec<JobEvent>>(256);
    let thread = std::thread::spawn(move || follower.run(Box::new(move |batch| tell.send(batch).is_ok())));
    let mut fleet = Fleet::default();
    let until = Instant::now() + Duration::from_secs(20);
    let mut act = Some(act);
    loop {
        if let Ok(batch) = told.recv_timeout(Duration::from_millis(50)) {
            batch.into_iter().for_each(|event| fleet.apply(event));
        }
        if fleet.jobs().first().is_some_and(|job| job.settled)
            && let Some(act) = act.take()
        {
            act();
        }
        if act.is_none() && fleet.jobs().first().is_some_and(&fits) {
            break;
        }
        assert!(Instant::now() < until, "never: {:?}", fleet.jobs().first().map(|j| &j.notebook));
    }
    remote.stop();
    drop(told);
    thread.join().unwrap();
}

#[test]
fn what_is_said_while_a_job_is_watched_is_seen() {
    let polled = Options { poll: Some(Duration::from_millis(100)), ..Options::default() };
    for options in [Options::default(), polled] {
        let place = Place::new();
        let job = place.job("j");
        let one = |job: &Job| job.verdict_of(&job.trials["one__AbCdEfG"]);
        let say = || drop(ok(&place.verdict("ann", &[trial(&job, "one")], &["agent_fault"])));
        follow(&place, &job, options.clone(), say, |job| one(job) == Some(Verdict::AgentFault));
        let say = || drop(ok(&place.verdict("ann", &[trial(&job, "one")], &["none"])));
        follow(&place, &job, options.clone(), say, |job| job.notebook.len() == 2 && one(job).is_none());
        // In the state dir, too.
        let blocked = obstructed(&place, "link");
        ok(&place.verdict("ann", &[trial(&blocked, "two")], &["agent_fault"]));
        let say = || drop(ok(&place.verdict("ann", &[trial(&blocked, "one")], &["agent_fault"])));
        follow(&place, &blocked, options, say, |job| one(job) == Some(Verdict::AgentFault));
    }
}

#[test]
fn many_at_once_are_one_write_and_come_back_as_they_were_said() {
    let place = Place::new();
    let job = place.job("j");
    let fleet = place.fleet(&job);
    let of = &fleet.jobs()[0];
    let subjects: Vec<Subject> = of.trials.values().map(|t| Subject::of(of, t)).collect();
    let verdicts = Verdicts::new(&of.facts, Some(&place.state()));
    let written = verdicts.say(&subjects, Saying::Verdict(Verdict::InfraConfirmed), "the proxy was down").unwrap();
    assert_eq!((written.words.len(), written.instead.is_none()), (4, true));
    let long = "x".repeat(10_000);
    let noted = verdicts.say(&subjects[..1], Saying::Note, &long).unwrap();
    let mut here = Notebook::default();
    written.words.into_iter().chain(noted.words).for_each(|word| here.add(word));
    assert_eq!(place.notebook(&job), here, "what the screen adds at once is what it reads later");
    assert_eq!(place.verdict_of(&job, "four"), Some(Verdict::InfraConfirmed));
    assert!(of.trials.values().all(|t| here.verdict(t).is_some()), "a note leaves the verdict");
}
