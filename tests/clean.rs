//! `pilothouse clean`: what dead owners left is found, mapped and removed; what is somebody else's stays.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use pilothouse::environment::{Labels, OwnerLabel, Role};
use serde_json::Value;
use support::harbor::{Bench, Left, docker, docker_lines, document, harbor, pilothouse};

/// Things of a document whose name or trial begins with a mark: kind, name.
fn of_mark<'a>(said: &'a Value, mark: &str) -> Vec<&'a Value> {
    let begins = |thing: &Value, key: &str| thing[key].as_str().is_some_and(|t| t.starts_with(mark));
    said["things"].as_array().unwrap().iter().filter(|t| begins(t, "name") || begins(t, "trial")).collect()
}

/// A project of somebody else's that only looks like a trial's: its name, its service, and a network.
struct Bystander {
    dir: tempfile::TempDir,
    project: String,
}

impl Bystander {
    fn start(mark: &str) -> Bystander {
        let dir = tempfile::tempdir().unwrap();
        let project = format!("{mark}-by__abc1234__env");
        let text = "services:\n  main:\n    image: tb-base:1\n    init: true\n    command: [sleep, '600']\n";
        fs::write(dir.path().join("docker-compose.yaml"), text).unwrap();
        let it = Bystander { dir, project };
        assert!(it.compose(&["up", "-d"]).status.success());
        it
    }

    fn compose(&self, args: &[&str]) -> Output {
        let mut command = Command::new("docker");
        command.args(["compose", "-p", &self.project]).args(args).current_dir(self.dir.path());
        command.stdin(Stdio::null()).output().unwrap()
    }

    fn is_there(&self) -> bool {
        let running = docker_lines(&["ps", "--format", "{{.Names}}"]);
        let networks = docker_lines(&["network", "ls", "--format", "{{.Name}}"]);
        running.contains(&format!("{}-main-1", self.project)) && networks.contains(&format!("{}_default", self.project))
    }
}

impl Drop for Bystander {
    fn drop(&mut self) {
        let _ = self.compose(&["down", "-t", "0"]);
    }
}

#[test]
fn what_a_killed_0_21_left_is_mapped_and_removed() {
    killed("0.21");
}

#[test]
fn what_a_killed_0_26_left_is_mapped_and_removed() {
    killed("0.26");
}

fn killed(version: &'static str) {
    let Some(harbor) = harbor(version) else { return };
    let bench = Bench::new(&format!("k{}x", version.replace('.', "")), 2, 60.0, true);
    let bystander = Bystander::start(&bench.mark);
    let by = [format!("{}-main-1", bystander.project), format!("{}_default", bystander.project)];
    let mut child = bench.run(&harbor, "killed");
    let until = Instant::now() + Duration::from_secs(120);
    // The bystander's own are among them.
    while bench.in_docker().containers.len() < 3 {
        assert!(Instant::now() < until && child.try_wait().unwrap().is_none(), "{}", bench.said("killed"));
        std::thread::sleep(Duration::from_millis(100));
    }
    let (state, jobs) = (bench.dir.path().join("state"), bench.jobs());
    let clean = |args: &[&str]| {
        let mut all = vec!["clean", "--harbor", "--json"];
        all.extend(args);
        let out = pilothouse(&all, &state);
        (document(&out), out.status.code())
    };

    // While it lives, nothing of it may go: neither with its job named nor without.
    for args in [&["--dry-run", jobs.to_str().unwrap()][..], &["--dry-run"]] {
        let (said, _) = clean(args);
        let mine = of_mark(&said, &bench.mark);
        assert!(mine.len() >= 4, "{said:#}");
        assert!(mine.iter().all(|t| t["removable"] == false && t["owner"] == "alive"), "{mine:#?}");
    }
    let (said, _) = clean(&["-y", jobs.to_str().unwrap()]);
    assert!(of_mark(&said, &bench.mark).iter().all(|t| t["removed"] == false), "{said:#}");

    child.kill().unwrap();
    child.wait().unwrap();
    let before = bench.in_docker();
    let temps = bench.in_tmp();
    assert_eq!((before.networks.len(), before.images.len()), (3, 1), "{before:?}");

    let (said, code) = clean(&["--dry-run", jobs.to_str().unwrap()]);
    assert_eq!(code, Some(1));
    let mut found = Left::default();
    let mut dirs = Vec::new();
    for thing in of_mark(&said, &bench.mark) {
        assert_eq!((&thing["removable"], &thing["removed"]), (&true.into(), &false.into()), "{thing:#}");
        let job = fs::canonicalize(bench.job("killed")).unwrap();
        assert_eq!(thing["job_dir"], job.to_str().unwrap(), "{thing:#}");
        assert!(job.join(thing["trial"].as_str().unwrap()).is_dir(), "{thing:#}");
        assert!(thing["age_sec"].as_u64().is_some_and(|age| age < 300), "{thing:#}");
        let name = thing["name"].as_str().unwrap().to_string();
        match thing["kind"].as_str().unwrap() {
            "container" => {
                assert_eq!(thing["running"], true, "{thing:#}");
                found.containers.push(name);
            }
            "network" => found.networks.push(name),
            "image" => {
                assert!(thing["bytes"].as_u64().is_some_and(|n| n > 1_000_000), "{thing:#}");
                found.images.push(name);
            }
            "temp_dir" => dirs.push(PathBuf::from(name)),
            other => panic!("{other}"),
        }
    }
    let without = |names: &[String]| names.iter().filter(|n| !by.contains(n)).cloned().collect::<Vec<_>>();
    let mut sorted = |list: &mut Vec<String>| list.sort();
    [&mut found.containers, &mut found.networks, &mut found.images].into_iter().for_each(&mut sorted);
    dirs.sort();
    assert_eq!(found.containers, without(&before.containers));
    assert_eq!(found.networks, without(&before.networks));
    assert_eq!(found.images, before.images);
    // Those that name no trial are known by the containers that were made from them.
    assert!(temps.iter().all(|t| dirs.contains(t)) && dirs.len() == 6, "{temps:?}\n{dirs:?}");
    assert_eq!(bench.in_docker(), before, "only looked at");

    let (said, code) = clean(&["-y", jobs.to_str().unwrap()]);
    assert!(of_mark(&said, &bench.mark).iter().all(|t| t["removed"] == true), "{said:#}");
    assert_eq!(code, Some(0));
    assert_eq!(
        bench.in_docker(),
        Left { containers: vec![by[0].clone()], networks: vec![by[1].clone()], images: Vec::new() }
    );
    assert!(dirs.iter().all(|d| !d.exists()));
    assert!(bystander.is_there(), "a bystander's project stays");
    // Removing is all that was done: the trials are where they were.
    assert_eq!(support::harbor::trial_dirs(&bench.job("killed")).len(), 2);
    let notes = fs::read_to_string(bench.job("killed").join("pilothouse.jsonl")).unwrap();
    assert_eq!(notes.lines().count(), of_mark(&said, &bench.mark).len());
}

fn starts(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit_once(')').unwrap().1.split_whitespace().nth(19).unwrap().parse().unwrap()
}

fn owner(pid: u32, started: u64, job_dir: &Path) -> OwnerLabel {
    OwnerLabel {
        pid,
        started,
        boot_id: fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap().trim().to_string(),
        pid_namespace: fs::read_link("/proc/self/ns/pid").unwrap().to_string_lossy().into_owned(),
        host: "here".to_string(),
        job_dir: job_dir.to_path_buf(),
    }
}

/// Ours by their labels: a dead owner's go, a living one's, an unknown one's and everybody else's stay.
#[test]
fn ours_go_when_their_owner_is_dead() {
    let Some(image) =
        ["pilothouse-test:1", "tb-base:1"].into_iter().find(|i| docker(&["image", "inspect", i]).status.success())
    else {
        support::skipped("clean: no small image, or no Docker");
        return;
    };
    let temp = tempfile::tempdir().unwrap();
    let mark = format!("cleanours{}", std::process::id());
    // Only these jobs are cleaned: nobody else's leftovers are touched by a test.
    let jobs = temp.path().join("jobs");
    for job in ["dead", "alive", "unknown"] {
        fs::create_dir_all(jobs.join(job)).unwrap();
        fs::write(jobs.join(job).join("config.json"), format!("{{\"job_name\": \"{job}\"}}")).unwrap();
        let result = format!("{{\"id\": \"{mark}-{job}\", \"n_total_trials\": 1, \"stats\": {{}}}}");
        fs::write(jobs.join(job).join("result.json"), result).unwrap();
    }
    let mut ended = Command::new("true").spawn().unwrap();
    let (dead, began) = (ended.id(), starts(ended.id()));
    ended.wait().unwrap();
    let me = std::process::id();
    let labels = |job: &str, owner: String| Labels {
        job: format!("{mark}-{job}"),
        trial: Some(format!("{mark}-{job}__abc")),
        owner,
        role: Role::Trial,
    };
    let things = [
        ("dead", labels("dead", owner(dead, began, &jobs.join("dead")).to_string())),
        ("alive", labels("alive", owner(me, starts(me), &jobs.join("alive")).to_string())),
        ("unknown", labels("unknown", "somebody".to_string())),
    ];
    let name = |which: &str| format!("{mark}-{which}");
    for (which, labels) in &things {
        let name = name(which);
        let mut args = vec!["create".to_string(), "--name".to_string(), name];
        for (key, value) in labels.pairs() {
            args.extend(["--label".to_string(), format!("{key}={value}")]);
        }
        args.extend([image.to_string(), "sleep".to_string(), "1".to_string()]);
        let made = docker(&args.iter().map(String::as_str).collect::<Vec<_>>());
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    }
    let other = name("other");
    assert!(docker(&["create", "--name", &other, image, "sleep", "1"]).status.success());
    let run = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pilothouse"));
        command.arg("clean").arg(&jobs).args(args).arg("--json").env("PILOTHOUSE_STATE_DIR", temp.path().join("state"));
        document(&command.current_dir(temp.path()).stdin(Stdio::null()).output().unwrap())
    };
    let verdicts = |said: &Value| -> Vec<(String, String, bool)> {
        let text = |t: &Value, key: &str| t[key].as_str().unwrap().to_string();
        let mut out: Vec<_> = of_mark(said, &mark)
            .iter()
            .map(|t| (text(t, "name"), text(t, "owner"), t["removed"].as_bool().unwrap()))
            .collect();
        out.sort();
        out
    };
    let expected = |removed: bool| {
        vec![
            (name("alive"), "alive".to_string(), false),
            (name("dead"), "dead".to_string(), removed),
            (name("unknown"), "unsure".to_string(), false),
        ]
    };
    // Without a word, and with --dry-run, nothing goes.
    let first = run(&[]);
    let dry = run(&["--dry-run", "-y"]);
    let there = docker_lines(&["ps", "-a", "--format", "{{.Names}}"]);
    let gone = run(&["-y"]);
    let left = docker_lines(&["ps", "-a", "--format", "{{.Names}}"]);
    for which in ["dead", "alive", "unknown", "other"] {
        docker(&["rm", "-f", &name(which)]);
    }
    assert_eq!(verdicts(&first), expected(false));
    assert_eq!(verdicts(&dry), expected(false));
    assert!(there.contains(&name("dead")));
    assert_eq!(verdicts(&gone), expected(true));
    assert!(!left.contains(&name("dead")));
    assert!(["alive", "unknown", "other"].iter().all(|n| left.contains(&name(n))), "{left:?}");
    let thing = of_mark(&gone, &mark).into_iter().find(|t| t["owner"] == "dead").unwrap();
    assert_eq!(thing["trial"], format!("{mark}-dead__abc"));
    assert_eq!(thing["job_id"], format!("{mark}-dead"));
}

/// Where no engine answers, that is said, and what can be seen is shown all the same.
#[test]
fn temporary_directories_and_the_quarantine_are_listed_without_an_engine() {
    let temp = tempfile::tempdir().unwrap();
    let tmp = temp.path().join("tmp");
    let mark = format!("cleantemp{}", std::process::id());
    let dir = |name: &str, file: &str, text: &str| {
        fs::create_dir_all(tmp.join(name)).unwrap();
        fs::write(tmp.join(name).join(file), text).unwrap();
    };
    let job = temp.path().join("jobs/j");
    let trial = format!("{mark}__aBc");
    fs::create_dir_all(job.join(&trial)).unwrap();
    fs::write(job.join("config.json"), r#"{"job_name": "j"}"#).unwrap();
    fs::write(job.join(&trial).join("trial.log"), "").unwrap();
    fs::write(job.join("job.log"), "").unwrap();
    dir("tmpone", &format!("{trial}__env-docker-compose-resources.json"), "{}");
    dir("tmptwo", "docker-compose-environment.json", "{}");
    dir("tmpmine", "letter.txt", "mine");
    let kept = temp.path().join("state/quarantine/some-id/old__abc");
    fs::create_dir_all(&kept).unwrap();
    fs::write(kept.join("trial.log"), "1234").unwrap();
    let run = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pilothouse"));
        command.args(["clean", "--harbor"]).args(args).env("PILOTHOUSE_STATE_DIR", temp.path().join("state"));
        command.env("DOCKER_HOST", "unix:///nowhere/docker.sock").env("TMPDIR", &tmp).current_dir(temp.path());
        command.stdin(Stdio::null()).output().unwrap()
    };
    let out = run(&["--json", "-y", "jobs"]);
    let said = document(&out);
    assert_eq!(out.status.code(), Some(1), "somebody has to look at the engine");
    assert!(said["unseen"][0].as_str().unwrap().contains("/nowhere/docker.sock"), "{said:#}");
    let one = of_mark(&said, &mark)[0];
    assert_eq!((&one["kind"], &one["removed"], &one["trial"]), (&"temp_dir".into(), &true.into(), &trial.into()));
    assert_eq!(one["job_dir"], fs::canonicalize(&job).unwrap().to_str().unwrap());
    assert!(!tmp.join("tmpone").exists() && tmp.join("tmpmine/letter.txt").exists());
    // What is not known to be of these jobs is not theirs.
    assert!(tmp.join("tmptwo").exists());
    assert_eq!(said["quarantine"][0]["place"], kept.to_str().unwrap());
    assert_eq!(said["quarantine"][0]["bytes"], 4);
    assert!(kept.exists());
    // A Harbor at work: a directory that names no trial may be of one that it is just starting.
    let script = temp.path().join("harbor");
    fs::write(&script, "exec 9>>jobs/j/job.log\nwhile :; do sleep 0.1 9>&-; done\n").unwrap();
    let mut living = Command::new("bash").arg(&script).arg("run").current_dir(temp.path()).spawn().unwrap();
    dir("tmpnew", "docker-compose-environment.json", "{}");
    std::thread::sleep(Duration::from_millis(300));
    let said = document(&run(&["--json", "--dry-run"]));
    let found = said["things"].as_array().unwrap().iter().find(|t| t["name"].as_str().unwrap().ends_with("/tmpnew"));
    living.kill().unwrap();
    living.wait().unwrap();
    assert_eq!(found.unwrap()["owner"], "unsure", "{said:#}");
    let out = run(&["--dry-run"]);
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(text.contains("in the quarantine") && text.contains("not seen:"), "{text}");
    assert_eq!(run(&["--dry-run", "absent"]).status.code(), Some(2));
}
