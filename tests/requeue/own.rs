//! Jobs of pilothouse's own: trials without an image, the image made, requeued; a requeue that is killed in
//! between loses nothing.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::support;
use support::harbor::{docker, docker_lines, document, trial_dirs};

/// An image that is there, with bash in it.
const IMAGE: &str = "tb-base:1";

/// A place with tasks whose image may not be there, and with jobs.
pub struct Place {
    pub tmp: tempfile::TempDir,
    /// The image that is not there at first.
    pub missing: String,
    program: Option<PathBuf>,
}

impl Place {
    /// One good task, and `bad` ones of the image that is not there.
    pub fn new(mark: &str, bad: usize, seconds: f64, harbor: Option<&Path>) -> Place {
        let tmp = tempfile::tempdir().unwrap();
        let missing = format!("pilothouse-requeue-{mark}-{}:1", std::process::id());
        let place = Place { tmp, missing, program: harbor.map(Path::to_path_buf) };
        place.task(&format!("{mark}-good"), IMAGE, 0.1);
        (0..bad).for_each(|n| place.task(&format!("{mark}-bad{n}"), &place.missing, seconds));
        place
    }

    fn task(&self, name: &str, image: &str, seconds: f64) {
        let task = self.tmp.path().join("tasks").join(name);
        for (file, text) in [
            (
                "task.toml",
                format!(
                    "version = \"1.0\"\n[task]\nname = \"requeue/{name}\"\n[agent]\ntimeout_sec = 300.0\n[environment]\n\
                     docker_image = \"{image}\"\nbuild_timeout_sec = 120.0\ncpus = 1\nmemory_mb = 256\nstorage_mb = 1024\n"
                ),
            ),
            ("instruction.md", "Wait.\n".to_string()),
            ("solution/solve.sh", format!("#!/bin/bash\nsleep {seconds}\necho yes >/done\n")),
            (
                "tests/test.sh",
                "#!/bin/bash\nif [ -f /done ]; then echo 1; else echo 0; fi >/logs/verifier/reward.txt\n".to_string(),
            ),
            (
                "environment/docker-compose.yaml",
                "services:\n  main:\n    init: true\n    pull_policy: never\n".to_string(),
            ),
        ] {
            let path = task.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            // Only Harbor reads the compose file.
            if !file.contains("compose") || self.program.is_some() {
                fs::write(path, text).unwrap();
            }
        }
    }

    pub fn job(&self, name: &str) -> PathBuf {
        self.tmp.path().join("jobs").join(name)
    }

    pub fn make_image(&self) {
        assert!(docker(&["tag", IMAGE, &self.missing]).status.success());
    }

    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pilothouse"));
        command.args(args).current_dir(self.tmp.path()).stdin(Stdio::null());
        command.env("PILOTHOUSE_STATE_DIR", self.tmp.path().join("state")).env("USER", "tester");
        command.env("HARBOR_TELEMETRY", "0").env("LITELLM_LOCAL_MODEL_COST_MAP", "True");
        if let Some(program) = &self.program {
            command.env("PILOTHOUSE_HARBOR", program);
        }
        command
    }

    pub fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// A requeue at work; what it says goes to a file.
    pub fn begin(&self, args: &[&str]) -> Child {
        let said = fs::File::create(self.tmp.path().join("said")).unwrap();
        self.command(args).stdout(said.try_clone().unwrap()).stderr(said).spawn().unwrap()
    }

    pub fn said(&self) -> String {
        fs::read_to_string(self.tmp.path().join("said")).unwrap_or_default()
    }

    /// Waits until something is so.
    pub fn until(&self, what: &str, is: impl Fn() -> bool) {
        let until = Instant::now() + Duration::from_secs(120);
        while !is() {
            assert!(Instant::now() < until, "{what}\n{}", self.said());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Lines of a job's journal.
    pub fn journal(&self, job: &str) -> Vec<Value> {
        let text = fs::read_to_string(self.job(job).join("pilothouse.jsonl")).unwrap_or_default();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Every result of a job, byte for byte.
    pub fn results(&self, job: &str) -> BTreeMap<String, Vec<u8>> {
        let of = |dir: PathBuf| {
            let bytes = fs::read(dir.join("result.json")).ok()?;
            Some((dir.file_name().unwrap().to_string_lossy().into_owned(), bytes))
        };
        trial_dirs(&self.job(job)).into_iter().filter_map(of).collect()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        for job in fs::read_dir(self.tmp.path().join("jobs")).into_iter().flatten().flatten() {
            let result = fs::read(job.path().join("result.json")).ok();
            let result: Option<Value> = result.and_then(|bytes| serde_json::from_slice(&bytes).ok());
            let Some(id) = result.as_ref().and_then(|r| r["id"].as_str()) else { continue };
            let label = format!("label={}={id}", pilothouse::environment::labels::JOB);
            for container in docker_lines(&["ps", "-aq", "--filter", &label]) {
                docker(&["rm", "-f", "-v", &container]);
            }
            for network in docker_lines(&["network", "ls", "-q", "--filter", &label]) {
                docker(&["network", "rm", &network]);
            }
        }
        docker(&["rmi", &self.missing]);
    }
}

/// The engine and an image for tasks; says so where they are missing.
pub fn engine() -> Option<()> {
    let there = docker(&["image", "inspect", IMAGE]).status.success();
    if !there {
        support::skipped(&format!("no image {IMAGE}, or no Docker"));
    }
    there.then_some(())
}

fn text(out: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr))
}

#[test]
fn infra_is_requeued_and_merged_and_a_killed_requeue_loses_nothing() {
    let Some(()) = engine() else { return };
    let place = Place::new("own", 2, 8.0, None);
    let out = place.run(&[
        "run",
        "-p",
        "tasks",
        "-a",
        "oracle",
        "-n",
        "3",
        "-o",
        "jobs",
        "--job-name",
        "own",
        "-y",
        "--headless",
        "--no-preflight",
    ]);
    assert_eq!(out.status.code(), Some(3), "{}", text(&out));
    let before = place.results("own");

    // The plan alone makes nothing.
    let plan = document(&place.run(&["requeue", "jobs/own", "--infra", "--dry-run", "--json"]));
    let one = &plan["plans"][0];
    let tasks: Vec<&str> = one["trials"].as_array().unwrap().iter().map(|t| t["task"].as_str().unwrap()).collect();
    assert_eq!(
        (tasks, &one["harness"], &one["job_name"]),
        (vec!["own-bad0", "own-bad1"], &"pilothouse".into(), &"own-requeue-1".into())
    );
    assert!(!place.job("own-requeue-1").exists() && place.journal("own").is_empty());
    // Without a word or -y nothing is started.
    let out = place.run(&["requeue", "jobs/own", "--infra"]);
    assert_eq!(out.status.code(), Some(2), "{}", text(&out));
    assert!(!place.job("own-requeue-1").exists());

    place.make_image();
    let mut child = place.begin(&["requeue", "jobs/own", "--infra", "-y"]);
    place.until("a trial begins", || {
        trial_dirs(&place.job("own-requeue-1")).iter().any(|t| t.join("config.json").exists())
    });
    child.kill().unwrap();
    child.wait().unwrap();
    let said = place.said();
    let pid =
        said.split("(pid ").nth(1).and_then(|s| s.split(')').next()).unwrap_or_else(|| panic!("{said}")).to_string();
    assert!(Path::new("/proc").join(&pid).exists(), "the job goes on without the one who started it");

    // While it works nothing is started twice.
    let out = place.run(&["requeue", "jobs/own", "--infra", "-y"]);
    assert!(text(&out).contains("works on its task"), "{}", text(&out));
    assert_eq!(out.status.code(), Some(2));

    // Killed, too: a second try does all of it.
    assert!(Command::new("kill").args(["-9", &pid]).status().unwrap().success());
    place.until("it is gone", || !fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|s| !s.contains(") Z")));
    let out = place.run(&["requeue", "jobs/own", "--infra", "-y", "--json"]);
    assert_eq!(out.status.code(), Some(0), "{}", text(&out));
    let done = document(&out);
    assert_eq!(done["plans"][0]["job_name"], "own-requeue-2");
    assert_eq!(done["plans"][0]["trials"].as_array().unwrap().len(), 2);

    assert_eq!(place.results("own"), before, "the first job's results are as they were");
    let out = place.run(&["tally", "jobs/own", "jobs/own-requeue-1", "jobs/own-requeue-2", "--json"]);
    let tally = document(&out);
    assert_eq!(
        (&tally["merge"]["as"], &tally["totals"]["planned"], &tally["totals"]["passed"]),
        (&"passes".into(), &3.into(), &3.into()),
        "{tally:#}"
    );

    let journal = place.journal("own");
    let acts: Vec<&str> = journal.iter().map(|line| line["act"].as_str().unwrap()).collect();
    assert_eq!(acts, ["requeue"; 4]);
    assert!(
        journal
            .iter()
            .all(|l| l["operator"].as_str().unwrap().starts_with("tester")
                && l["why"].as_str().unwrap().contains("infra")),
        "{journal:#?}"
    );
    let origin = place.journal("own-requeue-2");
    assert_eq!(origin[0]["act"], "origin");
    assert_eq!(origin[0]["place"].as_str().unwrap(), place.job("own").canonicalize().unwrap().to_str().unwrap());

    // Nothing is left to do.
    let out = place.run(&["requeue", "jobs/own", "--infra"]);
    assert!(text(&out).contains("nothing to run again") && out.status.code() == Some(0), "{}", text(&out));
}
