//! Two harbors and two pilothouses at once on one machine, with the same tasks and the same job name: every
//! act hits its own target only.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::support;
use support::harbor::{Bench, docker_lines, document, harbor, pilothouse, result, trial_dirs};

const LONG: Duration = Duration::from_secs(180);

/// One job at work.
struct Job {
    dir: PathBuf,
    child: Child,
}

impl Job {
    fn arg(&self) -> &str {
        self.dir.to_str().unwrap()
    }

    fn names(&self) -> Vec<String> {
        trial_dirs(&self.dir).iter().map(|t| t.file_name().unwrap().to_string_lossy().into_owned()).collect()
    }

    fn lives(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// What is its own, as seen from outside: containers and networks by the names or labels that hold a trial of
    /// it, and its files, but for those that change by themselves while it runs.
    fn own(&self) -> Own {
        let trials: Vec<String> = self.names().iter().map(|n| n.to_lowercase()).collect();
        let mine = |args: &[&str]| -> Vec<String> {
            let lines = docker_lines(args).into_iter().map(|l| l.to_lowercase());
            // The name alone: labels come in any order.
            let named = lines.filter(|l| trials.iter().any(|t| l.contains(t.as_str())));
            let mut out: Vec<String> = named.map(|l| l.split(' ').next().unwrap().to_string()).collect();
            out.sort();
            out
        };
        let mut files = BTreeMap::new();
        let mut todo = vec![self.dir.clone()];
        while let Some(dir) = todo.pop() {
            for entry in fs::read_dir(&dir).unwrap().flatten() {
                let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
                if path.is_dir() {
                    todo.push(path);
                    continue;
                }
                let moves = name.ends_with(".log") || name.ends_with(".lease") || name.contains("tmp");
                let moves = moves || dir == self.dir && name == "result.json";
                let text = if moves { Vec::new() } else { fs::read(&path).unwrap_or_default() };
                if !name.contains("tmp") {
                    files.insert(path, text);
                }
            }
        }
        Own {
            containers: mine(&["ps", "--format", "{{.Names}} {{.Labels}}"]),
            networks: mine(&["network", "ls", "--format", "{{.Name}} {{.Labels}}"]),
            files,
        }
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct Own {
    containers: Vec<String>,
    networks: Vec<String>,
    files: BTreeMap<PathBuf, Vec<u8>>,
}

/// What is no longer as it was, in few words.
fn changed(before: &[Own], after: &[Own]) -> Vec<String> {
    let mut out = Vec::new();
    for (a, b) in before.iter().zip(after) {
        if a.containers != b.containers || a.networks != b.networks {
            out.push(format!("{:?} {:?} -> {:?} {:?}", a.containers, a.networks, b.containers, b.networks));
        }
        let paths: std::collections::BTreeSet<&PathBuf> = a.files.keys().chain(b.files.keys()).collect();
        let odd = paths.into_iter().filter(|path| a.files.get(*path) != b.files.get(*path));
        out.extend(odd.map(|path| path.display().to_string()));
    }
    out
}

const NOTHING: [&str; 0] = [];

fn until(what: &str, mut met: impl FnMut() -> bool) {
    let until = Instant::now() + LONG;
    while !met() {
        assert!(Instant::now() < until, "{what} never came");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Ends every pilothouse job of the test, whatever went wrong.
struct Last<'a>(&'a [PathBuf], &'a Path);

impl Drop for Last<'_> {
    fn drop(&mut self) {
        for dir in self.0 {
            let _ = pilothouse(&["clean", "-y", dir.to_str().unwrap()], self.1);
        }
    }
}

#[test]
fn of_four_jobs_at_once_each_act_hits_its_own() {
    let (Some(old), Some(new)) = (harbor("0.21"), harbor("0.26")) else { return };
    let bench = Bench::new("several", 2, 300.0, false);
    let state = bench.dir.path().join("state");
    let places = ["h21", "h26", "p1", "p2"].map(|name| bench.dir.path().join(name).join("same"));
    let ours = [places[2].clone(), places[3].clone()];
    let _last = Last(&ours, &state);
    // The same tasks, without the compose file that makes Harbor's containers end at once.
    for n in 0..bench.tasks {
        let (from, to) =
            ["tasks", "plain"].map(|d| bench.dir.path().join(d).join(format!("{}-{n}", bench.mark))).into();
        for file in ["task.toml", "instruction.md", "solution/solve.sh", "tests/test.sh"] {
            fs::create_dir_all(to.join(file).parent().unwrap()).unwrap();
            fs::copy(from.join(file), to.join(file)).unwrap();
        }
        fs::create_dir_all(to.join("environment")).unwrap();
        fs::write(to.join("environment/Dockerfile"), "FROM tb-base:1\n").unwrap();
    }
    let run = |jobs: &str| {
        let mut command = Command::new("env");
        command.args(["--default-signal=INT", env!("CARGO_BIN_EXE_pilothouse"), "run", "-p", "plain", "-a", "oracle"]);
        command.args(["-n", "2", "-o", jobs, "--job-name", "same", "-y", "--headless", "-e", "docker"]);
        let out = fs::File::create(bench.dir.path().join(format!("{jobs}.out"))).unwrap();
        command.stdin(Stdio::null()).stdout(out.try_clone().unwrap()).stderr(out);
        command.current_dir(bench.dir.path()).env("PILOTHOUSE_STATE_DIR", &state).spawn().unwrap()
    };
    let [h21, h26, p1, p2] = &places;
    let job = |dir: &PathBuf, child| Job { dir: dir.clone(), child };
    let mut h21 = job(h21, bench.run_in(&old, "h21", "same"));
    let mut h26 = job(h26, bench.run_in(&new, "h26", "same"));
    let mut p1 = job(p1, run("p1"));
    let mut p2 = job(p2, run("p2"));
    // All at work: two containers each.
    until("four jobs at work", || {
        for job in [&mut h21, &mut h26, &mut p1, &mut p2] {
            let said =
                || ["h21", "h26", "p1", "p2"].map(|j| fs::read_to_string(bench.dir.path().join(format!("{j}.out"))));
            assert!(job.lives(), "{} ended: {:#?}", job.arg(), said());
        }
        // The oracle of Harbor runs once its log says so; a container alone is not enough for files to rest.
        [&h21, &h26, &p1, &p2].iter().all(|job| job.names().len() == 2 && job.own().containers.len() == 2)
    });
    until("quiet files", || {
        let look = || [&h21, &h26, &p1, &p2].map(Job::own);
        let before = look();
        std::thread::sleep(Duration::from_secs(2));
        changed(&before, &look()).is_empty()
    });

    // The list names each with its own process.
    let listed = document(&pilothouse(&["jobs", "--json", bench.dir.path().to_str().unwrap()], &state));
    for (job, harness) in [(&h21, "harbor"), (&h26, "harbor"), (&p1, "pilothouse"), (&p2, "pilothouse")] {
        let line = listed["jobs"].as_array().unwrap().iter().find(|j| j["dir"] == job.arg());
        let line = line.unwrap_or_else(|| panic!("{} is not listed: {listed:#}", job.arg()));
        assert_eq!((&line["state"], &line["owner"]["harness"]), (&"running".into(), &harness.into()), "{line:#}");
        assert_eq!(line["owner"]["pid"], pid_of(job), "{line:#}");
    }

    // Steering one: the other neither pauses nor loses the trial of the same task.
    let others = [h21.own(), h26.own(), p2.own()];
    let ctl = |job: &Job, args: &[&str]| {
        let mut all = vec!["ctl", job.arg()];
        all.extend(args);
        let out = pilothouse(&all, &state);
        assert!(out.status.success(), "{args:?}: {}", String::from_utf8_lossy(&out.stderr));
        document(&out)
    };
    ctl(&p1, &["pause", "--json"]);
    assert_eq!(paused(&ctl(&p1, &["status", "--json"])), Some(true));
    assert_eq!(paused(&ctl(&p2, &["status", "--json"])), Some(false));
    let task = format!("{}-0", bench.mark);
    ctl(&p1, &["cancel", &task, "-y", "--json"]);
    until("the cancelled trial's end", || p1.own().containers.len() == 1);
    assert_eq!(changed(&others, &[h21.own(), h26.own(), p2.own()]), NOTHING, "a cancel in p1 touched another job");

    // Harbor 0.21 is stopped and mended.
    let others = [h26.own(), p1.own(), p2.own()];
    let said = document(&pilothouse(&["stop", h21.arg(), "-y", "--mend", "--json"], &state));
    assert_eq!(said["owner"]["process"]["pid"], pid_of(&h21), "{said:#}");
    assert_eq!(said["stop"]["ended"], true, "{said:#}");
    until("the end of Harbor 0.21", || !h21.lives());
    assert_eq!(h21.own().containers, [""; 0]);
    assert!(h26.lives() && p1.lives() && p2.lives());
    assert_eq!(changed(&others, &[h26.own(), p1.own(), p2.own()]), NOTHING, "the stop of h21 touched another job");

    // A pilothouse is stopped, what it left is cleaned, its trials would be run again: its own alone.
    let others = [h26.own(), p2.own()];
    let said = document(&pilothouse(&["stop", p1.arg(), "-y", "--json"], &state));
    assert_eq!(said["owner"]["process"]["pid"], p1.child.id(), "{said:#}");
    until("the end of p1", || !p1.lives());
    let cleaned = pilothouse(&["clean", "-y", "--harbor", "--json", p1.arg(), h21.arg()], &state);
    assert!(cleaned.status.code().is_some_and(|code| code < 2), "{}", String::from_utf8_lossy(&cleaned.stderr));
    let plan = pilothouse(&["requeue", p1.arg(), "--unscored", "--dry-run", "--json"], &state);
    let planned = document(&plan).to_string();
    for name in p1.names() {
        assert!(planned.contains(&name), "{name}: {planned}");
    }
    for name in p2.names().iter().chain(&h26.names()) {
        assert!(!planned.contains(name.as_str()), "{name}: {planned}");
    }
    assert_eq!(changed(&others, &[h26.own(), p2.own()]), NOTHING, "acts on p1 touched another job");
    assert_eq!(paused(&ctl(&p2, &["status", "--json"])), Some(false));

    // Each journal tells of its own job, and those that nobody acted on have none.
    let acts = |job: &Job| {
        let text = fs::read_to_string(job.dir.join("pilothouse.jsonl")).unwrap_or_default();
        text.lines().map(|l| serde_json::from_str::<Value>(l).unwrap()["act"].as_str().unwrap().to_string()).collect()
    };
    let (of_h21, of_p1): (Vec<String>, Vec<String>) = (acts(&h21), acts(&p1));
    assert!(of_h21.contains(&"stop".to_string()), "{of_h21:?}");
    for act in ["pause", "cancel", "stop"] {
        assert!(of_p1.iter().any(|a| a.contains(act)), "{act}: {of_p1:?}");
    }
    assert_eq!([acts(&h26), acts(&p2)], [Vec::<String>::new(), Vec::new()]);

    // The other two are stopped at the same time, each by its own.
    let dirs = [h26.arg().to_string(), p2.arg().to_string()];
    let stops = dirs.map(|dir| {
        let state = state.clone();
        std::thread::spawn(move || document(&pilothouse(&["stop", &dir, "-y", "--mend", "--json"], &state)))
    });
    let [of_h26, of_p2] = stops.map(|stop| stop.join().unwrap());
    assert_eq!(of_h26["owner"]["process"]["pid"], pid_of(&h26), "{of_h26:#}");
    assert_eq!(of_p2["owner"]["process"]["pid"], p2.child.id(), "{of_p2:#}");
    until("the end of both", || !h26.lives() && !p2.lives());
    for trial in trial_dirs(&p2.dir) {
        assert_eq!(result(&trial).unwrap()["exception_info"]["exception_type"], "CancelledError");
    }
    let left = bench.in_docker();
    assert_eq!((left.containers, left.networks), (Vec::new(), Vec::new()));
}

/// The process of a job; `env` became it.
fn pid_of(job: &Job) -> u32 {
    job.child.id()
}

fn paused(said: &Value) -> Option<bool> {
    // However deep it stands in the answer.
    let text = said.to_string();
    [true, false].into_iter().find(|b| text.contains(&format!("\"paused\":{b}")))
}
