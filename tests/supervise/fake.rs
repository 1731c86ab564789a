//! A program named harbor that does what a test tells it by its environment.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// What it does, in words of a shell: notes how it was started; then `FAKE_DO`.
const SCRIPT: &str = r#"#!/bin/sh
if [ "$1" = "--version" ]; then echo "${FAKE_VERSION:-0.26.0}"; exit 0; fi
if [ "$1" = "environment" ]; then echo '["docker", "daytona", "moonbase"]'; exit 0; fi
here="$FAKE_PLACE"
printf '%s\0' "$@" >"$here/args"
pwd >"$here/cwd"
in=$(readlink /proc/$$/fd/0) out=$(readlink /proc/$$/fd/1) err=$(readlink /proc/$$/fd/2) stat=$(cat /proc/$$/stat)
echo "$in" >"$here/stdin"
echo "$out" >"$here/stdout"
echo "$err" >"$here/stderr"
echo "$stat" >"$here/stat"
echo "key ${OPENAI_API_KEY}" >"$here/key"
case "$FAKE_DO" in
die)
  printf '\033[31mTraceback\033[0m: the key %s is no good\n' "$OPENAI_API_KEY"
  echo "token $FAKE_TOKEN, sk-live-0123456789abcdef0123" >&2
  exit "${FAKE_CODE:-1}"
  ;;
job)
  mkdir -p "$FAKE_DIR"
  exec 9>>"$FAKE_DIR/job.log"
  cp "$here"/template/* "$FAKE_DIR/"
  trap 'echo stopped; exit 130' INT
  while [ ! -e "$here/go" ]; do sleep 0.05; done
  exit "${FAKE_CODE:-0}"
  ;;
esac
"#;

/// A place with a fake harbor, a state dir and one task.
pub struct Place {
    pub tmp: tempfile::TempDir,
}

/// For something to come.
pub const SOON: Duration = Duration::from_secs(60);

pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + SOON;
    while !holds() {
        assert!(Instant::now() < end, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

pub fn write(path: PathBuf, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

impl Place {
    pub fn new() -> Place {
        let place = Place { tmp: tempfile::tempdir().unwrap() };
        let program = place.path("bin/harbor");
        write(program.clone(), SCRIPT);
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        fs::create_dir_all(place.path("home")).unwrap();
        place.template("watched", &["alpha-task", "beta-task"]);
        place.task("alpha-task", "docker_image = \"nowhere.example/alpha:1\"\n", "");
        place
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.tmp.path().join(name)
    }

    /// The files that the fake puts into its job dir.
    fn template(&self, name: &str, tasks: &[&str]) {
        let agent = json!({"name": "terminus-2", "model_name": "openai/x"});
        let trial = |task: &&str| json!({"task": {"name": task, "type": "local", "digest": "sha256:1", "path": format!("tasks/{task}")}, "agent": agent});
        let trials: Vec<Value> = tasks.iter().map(trial).collect();
        let at = self.path("template");
        write(
            at.join("config.json"),
            &json!({"job_name": name, "agents": [agent], "datasets": [{"path": "tasks"}]}).to_string(),
        );
        write(at.join("lock.json"), &json!({"schema_version": 3, "created_at": "2026-11-30T10:00:00Z", "harbor": {"version": "0.26.0"}, "n_concurrent_trials": 2, "trials": trials}).to_string());
        write(at.join("result.json"), &json!({"id": "job-1", "started_at": "2026-11-30T10:00:00", "finished_at": null, "n_total_trials": tasks.len(), "stats": {}}).to_string());
    }

    pub fn task(&self, name: &str, environment: &str, more: &str) {
        let dir = self.path("tasks").join(name);
        let toml = format!(
            "version = \"1.0\"\n\n[task]\nname = \"demo/{name}\"\n\n[verifier]\ntimeout_sec = 60.0\n\n[agent]\ntimeout_sec = 1800.0\n\n[environment]\n{environment}{more}"
        );
        write(dir.join("task.toml"), &toml);
        write(dir.join("instruction.md"), "Do it.\n");
        write(dir.join("environment/Dockerfile"), "FROM nowhere.example/base:1\n");
        write(dir.join("tests/test.sh"), "#!/bin/bash\necho 1 >/logs/verifier/reward.txt\n");
    }

    pub fn job(&self) -> PathBuf {
        self.path("jobs/watched")
    }

    /// The environment of everything here: no keys, no Docker, a home of its own.
    pub fn env(&self) -> Vec<(String, String)> {
        let path = |name: &str| self.path(name).to_string_lossy().into_owned();
        let old = std::env::var("PATH").unwrap_or_default();
        [
            ("PATH", format!("{}:{old}", path("bin"))),
            ("HOME", path("home")),
            ("PILOTHOUSE_STATE_DIR", path("state")),
            ("FAKE_PLACE", path("")),
            ("FAKE_DIR", path("jobs/watched")),
            ("FAKE_DO", "job".to_string()),
            ("DOCKER_HOST", format!("unix://{}", path("no-engine.sock"))),
        ]
        .map(|(name, value)| (name.to_string(), value))
        .to_vec()
    }

    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pilothouse"));
        command.env_clear().envs(self.env()).args(args).current_dir(self.tmp.path()).stdin(Stdio::null());
        command
    }

    pub fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// The fake ends.
    pub fn go(&self) {
        write(self.path("go"), "");
    }

    /// What `harbor list --json` says of the newest.
    pub fn newest(&self) -> Value {
        let out = self.run(&["harbor", "list", "--json"]);
        let all: Value = serde_json::from_slice(&out.stdout).unwrap_or_default();
        all["harbors"][0].clone()
    }

    /// The fake's own process.
    pub fn child(&self) -> u32 {
        u32::try_from(self.newest()["pid"].as_u64().unwrap()).unwrap()
    }

    /// The files in a directory below the state dir, read.
    pub fn kept(&self) -> String {
        fn walk(dir: &Path, out: &mut String) {
            for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
                match entry.path().is_dir() {
                    true => walk(&entry.path(), out),
                    // The child's own words are its own.
                    false if entry.path().extension().is_some_and(|e| e == "log") => {}
                    false => out.push_str(&fs::read_to_string(entry.path()).unwrap_or_default()),
                }
            }
        }
        let mut out = String::new();
        walk(&self.path("state"), &mut out);
        out
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // A fake that still waits ends by this, if the place were there; its directory goes first.
        self.go();
        std::thread::sleep(Duration::from_millis(120));
    }
}

pub fn alive(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

pub fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub fn document(out: &Output) -> Value {
    serde_json::from_slice(&out.stdout).unwrap_or_else(|e| panic!("{e}\n{}\n{}", text(&out.stdout), text(&out.stderr)))
}
