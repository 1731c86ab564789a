//! Real Harbor, where it is installed: the programs that `PILOTHOUSE_HARBOR_0_21` and
//! `PILOTHOUSE_HARBOR_0_26` name, run on small tasks of a few seconds each.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// One installed Harbor.
pub struct Harbor {
    /// `0.21` or `0.26`.
    pub version: &'static str,
    /// Its program.
    pub program: PathBuf,
}

/// An image that tasks are based on, with bash in it; made by the tools beside the recorded data.
const IMAGE: &str = "tb-base:1";

/// Harbor of a version with everything that it needs; says so where something is missing.
pub fn harbor(version: &'static str) -> Option<Harbor> {
    let variable = format!("PILOTHOUSE_HARBOR_{}", version.replace('.', "_"));
    let Some(program) = std::env::var_os(&variable).map(PathBuf::from) else {
        super::skipped(&format!("Harbor {version} (set {variable} to its program)"));
        return None;
    };
    assert!(program.exists(), "{variable}: {} does not exist", program.display());
    if !docker(&["image", "inspect", IMAGE]).status.success() {
        super::skipped(&format!("Harbor {version}: no image {IMAGE}, or no Docker"));
        return None;
    }
    if !docker(&["compose", "version"]).status.success() {
        super::skipped(&format!("Harbor {version}: no docker compose (apt-get install docker-compose)"));
        return None;
    }
    Some(Harbor { version, program })
}

/// Runs the docker program.
pub fn docker(args: &[&str]) -> Output {
    Command::new("docker")
        .args(args)
        .stdin(Stdio::null())
        .output()
        .unwrap_or_else(|_| Command::new("false").output().unwrap())
}

/// Lines of what the docker program prints.
pub fn docker_lines(args: &[&str]) -> Vec<String> {
    let out = docker(args);
    assert!(out.status.success(), "docker {args:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8_lossy(&out.stdout).lines().map(str::to_string).collect()
}

/// A place with tasks and a directory for jobs.
pub struct Bench {
    pub dir: tempfile::TempDir,
    /// Tells the names of this test's trials from all others.
    pub mark: String,
    pub tasks: usize,
}

impl Bench {
    /// Makes `tasks` tasks whose oracle takes about `seconds`. The last one is built from a Dockerfile
    /// if `built`.
    pub fn new(mark: &str, tasks: usize, seconds: f64, built: bool) -> Bench {
        let dir = tempfile::tempdir().unwrap();
        let mark = format!("{mark}{}", std::process::id());
        for n in 0..tasks {
            let name = format!("{mark}-{n}");
            let task = dir.path().join("tasks").join(&name);
            let write = |file: &str, text: &str| {
                let path = task.join(file);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            };
            let build = built && n + 1 == tasks;
            let image = if build { String::new() } else { format!("docker_image = \"{IMAGE}\"\n") };
            write(
                "task.toml",
                &format!(
                    "version = \"1.0\"\n\n[task]\nname = \"stops/{name}\"\n\n[verifier]\ntimeout_sec = 60.0\n\n\
                     [agent]\ntimeout_sec = 120.0\n\n[environment]\nbuild_timeout_sec = 120.0\n{image}cpus = 1\n\
                     memory_mb = 256\nstorage_mb = 1024\n"
                ),
            );
            write("instruction.md", "Write a file.\n");
            write(
                "solution/solve.sh",
                &format!("#!/bin/bash\nsleep {seconds}\nmkdir -p /app && echo yes >/app/done\n"),
            );
            write(
                "tests/test.sh",
                "#!/bin/bash\nif [ -f /app/done ]; then echo 1; else echo 0; fi >/logs/verifier/reward.txt\n",
            );
            // Without an init the container's end takes ten seconds.
            write("environment/docker-compose.yaml", "services:\n  main:\n    init: true\n");
            if build {
                write("environment/Dockerfile", &format!("FROM {IMAGE}\nRUN echo {mark} >/built\n"));
            }
        }
        Bench { dir, mark, tasks }
    }

    pub fn jobs(&self) -> PathBuf {
        self.dir.path().join("jobs")
    }

    pub fn job(&self, name: &str) -> PathBuf {
        self.jobs().join(name)
    }

    fn command(&self, harbor: &Harbor, args: &[&str], out: &str) -> Command {
        // Whoever started the tests in the background of a script made SIGINT ignored, and so it stays.
        let mut command = Command::new("env");
        command.arg("--default-signal=INT").arg(&harbor.program).args(args).current_dir(self.dir.path());
        command.env("HARBOR_TELEMETRY", "0").env("LITELLM_LOCAL_MODEL_COST_MAP", "True");
        let log = fs::File::create(self.dir.path().join(out)).unwrap();
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        command
    }

    /// Begins a job.
    pub fn run(&self, harbor: &Harbor, job: &str) -> Child {
        let args = ["run", "-p", "tasks", "-a", "oracle", "-n", "2", "-o", "jobs", "--job-name", job, "-y"];
        self.command(harbor, &args, &format!("{job}.out")).spawn().unwrap()
    }

    /// Begins a job in a jobs dir of this name.
    pub fn run_in(&self, harbor: &Harbor, jobs: &str, job: &str) -> Child {
        let args = ["run", "-p", "tasks", "-a", "oracle", "-n", "2", "-o", jobs, "--job-name", job, "-y"];
        self.command(harbor, &args, &format!("{jobs}.out")).spawn().unwrap()
    }

    /// Resumes a job to its end.
    pub fn resume(&self, harbor: &Harbor, job: &str) {
        let at = format!("jobs/{job}");
        let out = format!("{job}.resumed");
        let status = self.command(harbor, &["job", "resume", "-p", &at], &out).status().unwrap();
        let said = fs::read_to_string(self.dir.path().join(out)).unwrap_or_default();
        assert!(status.success(), "harbor {} job resume: {status}\n{said}", harbor.version);
    }

    /// Runs Harbor in a directory of one's own; its exit and what it said.
    pub fn harbor_in(&self, harbor: &Harbor, cwd: &Path, args: &[&str]) -> (Option<i32>, String) {
        let mut command = self.command(harbor, args, "harbor.out");
        let status = command.current_dir(cwd).status().unwrap();
        let said = fs::read_to_string(self.dir.path().join("harbor.out")).unwrap_or_default();
        (status.code(), said)
    }

    /// Begins to resume a job, and waits until a trial is at work.
    pub fn resuming(&self, harbor: &Harbor, job: &str) -> Child {
        let at = format!("jobs/{job}");
        let mut child =
            self.command(harbor, &["job", "resume", "-p", &at], &format!("{job}.resuming")).spawn().unwrap();
        let until = Instant::now() + Duration::from_secs(90);
        while !trial_dirs(&self.job(job)).iter().any(|t| t.join("config.json").exists() && result(t).is_none()) {
            assert!(Instant::now() < until && child.try_wait().unwrap().is_none(), "nothing is resumed");
            std::thread::sleep(Duration::from_millis(50));
        }
        child
    }

    /// Waits until the job has a trial.
    pub fn begun(&self, job: &str) {
        let until = Instant::now() + Duration::from_secs(90);
        while trial_dirs(&self.job(job)).is_empty() {
            assert!(Instant::now() < until, "no trial begins: {}", self.said(job));
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    pub fn said(&self, job: &str) -> String {
        fs::read_to_string(self.dir.path().join(format!("{job}.out"))).unwrap_or_default()
    }

    /// Containers, networks and images of this test's trials, found without any of our code: the names
    /// begin with the mark.
    pub fn in_docker(&self) -> Left {
        let mine = |lines: Vec<String>| {
            let mut out: Vec<String> = lines.into_iter().filter(|n| n.starts_with(&self.mark)).collect();
            out.sort();
            out
        };
        Left {
            containers: mine(docker_lines(&["ps", "-a", "--format", "{{.Names}}"])),
            networks: mine(docker_lines(&["network", "ls", "--format", "{{.Name}}"])),
            images: mine(docker_lines(&["images", "--format", "{{.Repository}}:{{.Tag}}"])),
        }
    }

    /// Temporary directories with a file that names a trial of this test.
    pub fn in_tmp(&self) -> Vec<PathBuf> {
        let mut out = Vec::new();
        for dir in fs::read_dir(std::env::temp_dir()).unwrap().flatten() {
            let named = |e: fs::DirEntry| {
                e.file_name().to_string_lossy().starts_with(&self.mark)
                    || fs::read_to_string(e.path()).is_ok_and(|t| t.contains(&self.mark))
            };
            let name = dir.file_name().to_string_lossy().into_owned();
            if name.starts_with("tmp") && fs::read_dir(dir.path()).is_ok_and(|l| l.flatten().any(named)) {
                out.push(dir.path());
            }
        }
        out.sort();
        out
    }
}

impl Drop for Bench {
    /// Whatever went wrong, nothing of this test stays in the engine.
    fn drop(&mut self) {
        let left = self.in_docker();
        left.containers.iter().for_each(|name| drop(docker(&["rm", "-f", "-v", name])));
        left.networks.iter().for_each(|name| drop(docker(&["network", "rm", name])));
        left.images.iter().for_each(|name| drop(docker(&["rmi", name])));
    }
}

/// What an engine keeps of a test.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Left {
    pub containers: Vec<String>,
    pub networks: Vec<String>,
    pub images: Vec<String>,
}

/// Directories of a job.
pub fn trial_dirs(job: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(job).into_iter().flatten().flatten();
    let mut out: Vec<PathBuf> = entries.map(|e| e.path()).filter(|p| p.is_dir()).collect();
    out.sort();
    out
}

/// A trial's result as plain JSON.
pub fn result(trial: &Path) -> Option<Value> {
    serde_json::from_slice(&fs::read(trial.join("result.json")).ok()?).ok()
}

/// Runs pilothouse.
pub fn pilothouse(args: &[&str], state: &Path) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pilothouse"));
    command.args(args).env("PILOTHOUSE_STATE_DIR", state).stdin(Stdio::null());
    command.output().unwrap()
}

/// Its document.
pub fn document(out: &Output) -> Value {
    serde_json::from_slice(&out.stdout).unwrap_or_else(|e| {
        panic!("{e}\n{}\n{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr))
    })
}
