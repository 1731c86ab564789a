//! Real Harbor: a job with Terminus-2 and a scripted model under our care from its start to its last
//! requeue; and in between the resume that runs solved trials again, foreseen and then told.

use std::collections::BTreeSet;
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use crate::fake::{alive, document, text};
use crate::support;
use crate::support::harbor::{Harbor, docker, docker_lines, harbor};
use crate::support::pty::{Pty, key};

/// For anything that Harbor does.
const LONG: Duration = Duration::from_secs(120);

#[test]
fn a_job_in_our_care_0_21() {
    care("0.21");
}

#[test]
fn a_job_in_our_care_0_26() {
    care("0.26");
}

/// A scripted model on a port of its own.
struct Model {
    child: Child,
    port: u16,
}

impl Model {
    fn start(shared: &Path) -> Model {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut command = Command::new("python3");
        command.arg(shared.join("data/tools/scripted_llm.py")).args(["--port", &port.to_string()]);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let until = Instant::now() + Duration::from_secs(30);
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(Instant::now() < until, "no scripted model");
            std::thread::sleep(Duration::from_millis(50));
        }
        Model { child, port }
    }

    fn url(&self, profile: &str) -> String {
        format!("http://127.0.0.1:{}/m/{profile}/v1", self.port)
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

struct Yard {
    dir: tempfile::TempDir,
    mark: String,
    harbor: Harbor,
}

impl Yard {
    /// Two tasks that are solved at once and one at which the model thinks for ever; their names carry a
    /// mark, by which everything of theirs in the engine is known.
    fn new(harbor: Harbor, shared: &Path) -> Yard {
        let dir = tempfile::tempdir().unwrap();
        let mark = format!("sv{}p{}", harbor.version.replace('.', ""), std::process::id());
        for task in ["hello-file", "count-errors", "slow-think"] {
            let to = dir.path().join("tasks").join(format!("{mark}-{task}"));
            fs::create_dir_all(to.parent().unwrap()).unwrap();
            let status = Command::new("cp").arg("-r").arg(shared.join("data/tasks").join(task)).arg(&to).status();
            assert!(status.unwrap().success());
            let toml = fs::read_to_string(to.join("task.toml")).unwrap();
            let toml = toml
                .replace("[agent]\ntimeout_sec = ", "[agent]\ntimeout_sec = 9")
                .replace(&format!("/{task}\""), &format!("/{mark}-{task}\""));
            fs::write(to.join("task.toml"), toml).unwrap();
            // Without an init the container's end takes ten seconds.
            fs::create_dir_all(to.join("environment")).unwrap();
            fs::write(to.join("environment/docker-compose.yaml"), "services:\n  main:\n    init: true\n").unwrap();
            let test = to.join("tests/test.sh");
            let script = fs::read_to_string(&test).unwrap();
            fs::write(&test, script.replacen('\n', "\nsleep 1\n", 1)).unwrap();
        }
        for place in ["here", "there"] {
            fs::create_dir(dir.path().join(place)).unwrap();
        }
        Yard { dir, mark, harbor }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn state(&self) -> String {
        self.path("state").to_string_lossy().into_owned()
    }

    fn command(&self, place: &str, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pilothouse"));
        command.args(args).current_dir(self.path(place)).stdin(Stdio::null());
        command.env("PILOTHOUSE_STATE_DIR", self.state()).env("PILOTHOUSE_HARBOR", &self.harbor.program);
        command.env("OPENAI_API_KEY", "sk-scripted-0123456789").env("HARBOR_TELEMETRY", "0");
        command.env("LITELLM_LOCAL_MODEL_COST_MAP", "True");
        command
    }

    fn run(&self, place: &str, args: &[&str]) -> Output {
        self.command(place, args).output().unwrap()
    }

    fn screen(&self, place: &str, args: &[&str]) -> Pty {
        let quoted: Vec<String> = args.iter().map(|a| format!("'{a}'")).collect();
        let line = format!(
            "cd '{}' && exec '{}' {}",
            self.path(place).display(),
            env!("CARGO_BIN_EXE_pilothouse"),
            quoted.join(" ")
        );
        let (state, program) = (self.state(), self.harbor.program.to_string_lossy().into_owned());
        let env = [
            ("PILOTHOUSE_STATE_DIR", state.as_str()),
            ("PILOTHOUSE_HARBOR", program.as_str()),
            ("OPENAI_API_KEY", "sk-scripted-0123456789"),
            ("HARBOR_TELEMETRY", "0"),
            ("LITELLM_LOCAL_MODEL_COST_MAP", "True"),
        ];
        Pty::spawn("/bin/sh", &["-c", &line], 120, 36, &env)
    }

    fn status(&self, dirs: &[&Path]) -> Value {
        let mut args = vec!["status", "--json"];
        args.extend(dirs.iter().map(|d| d.to_str().unwrap()));
        serde_json::from_slice(&self.run("here", &args).stdout).unwrap_or_default()
    }

    /// Phase and reward of the trial of a task.
    fn trial(&self, status: &Value, task: &str) -> (String, Option<f64>) {
        let trials = status["trials"].as_array().cloned().unwrap_or_default();
        let name = format!("{}-{task}__", self.mark);
        let found = trials.iter().find(|t| t["trial"].as_str().is_some_and(|n| n.starts_with(&name)));
        let phase = found.and_then(|t| t["phase"].as_str()).unwrap_or("queued").to_string();
        (phase, found.and_then(|t| t["reward"].as_f64()))
    }

    fn newest(&self) -> Value {
        let out = self.run("here", &["harbor", "list", "--json"]);
        serde_json::from_slice::<Value>(&out.stdout).unwrap_or_default()["harbors"][0].clone()
    }
}

impl Drop for Yard {
    /// Whatever went wrong, nothing of this test stays at work or in the engine.
    fn drop(&mut self) {
        let pid = self.newest()["pid"].as_i64().and_then(|pid| i32::try_from(pid).ok());
        if let (Some(pid), true) = (pid, std::thread::panicking()) {
            let _ = rustix::process::Pid::from_raw(pid).map(|p| rustix::process::kill_process_group(p, Signal::KILL));
        }
        let mine = |lines: Vec<String>| lines.into_iter().filter(|n| n.starts_with(&self.mark)).collect::<Vec<_>>();
        mine(docker_lines(&["ps", "-a", "--format", "{{.Names}}"]))
            .iter()
            .for_each(|n| drop(docker(&["rm", "-f", "-v", n])));
        mine(docker_lines(&["network", "ls", "--format", "{{.Name}}"]))
            .iter()
            .for_each(|n| drop(docker(&["network", "rm", n])));
    }
}

#[track_caller]
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + LONG;
    while !holds() {
        assert!(Instant::now() < end, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn edit(path: &Path, from: &str, to: &str) {
    let text = fs::read_to_string(path).unwrap();
    assert!(text.contains(from), "{}", path.display());
    fs::write(path, text.replace(from, to)).unwrap();
}

fn care(version: &'static str) {
    let (Some(harbor), Some(shared)) = (harbor(version), support::shared()) else { return };
    let model = Model::start(&shared);
    let yard = Yard::new(harbor, &shared);
    let tasks = yard.path("tasks").to_string_lossy().into_owned();
    // Answers take a moment, so that every phase is seen.
    let (old, new) = (model.url("default+delay=1"), model.url("solve+delay=60"));
    let base = format!("api_base={old}");
    let mut words =
        vec!["harbor", "--fix", "--yes", "run", "-p", &tasks, "-a", "terminus-2", "-m", "openai/scripted-1"];
    words.extend(["-n", "3", "--job-name", "care", "-y", "--ak", &base, "--ak", "record_terminal_session=false"]);
    words.extend(["--ak", r#"model_info={"max_input_tokens": 32768, "max_output_tokens": 8192}"#]);
    let pty = yard.screen("here", &words);
    let job = yard.path("here/jobs/care");
    // From the first moment on: some phases are short.
    let mut phases: BTreeSet<String> = BTreeSet::new();
    let look = |phases: &mut BTreeSet<String>| {
        let status = yard.status(&[&job]);
        let of = ["hello-file", "count-errors", "slow-think"].map(|t| yard.trial(&status, t));
        phases.extend(of.iter().map(|(phase, _)| phase.clone()));
        of
    };
    until("the job on the screen", || {
        look(&mut phases);
        pty.text().contains("slow-think") && pty.text().contains("running")
    });
    let pid = u32::try_from(yard.newest()["pid"].as_u64().unwrap()).unwrap();
    let recorded = yard.newest()["harbor_version"].as_str().unwrap().to_string();
    assert!(recorded.starts_with(version), "{recorded}");

    // Through all phases: two are solved, one goes on.
    until("two solved, one at work", || {
        let of = look(&mut phases);
        of[..2].iter().all(|(phase, reward)| phase == "done" && *reward == Some(1.0)) && of[2].0 == "agent_running"
    });
    for phase in ["agent_running", "done"] {
        assert!(phases.contains(phase), "{phases:?}");
    }
    let before = ["starting", "environment_setup", "agent_setup"].iter().any(|p| phases.contains(*p));
    let after = ["verifying", "tearing_down"].iter().any(|p| phases.contains(*p));
    assert!(before && after, "{phases:?}");
    pty.wait_for("2 passed", LONG);

    // The screen dies and its terminal is closed: nothing happens to the job.
    pty.kill(Signal::KILL);
    drop(pty);
    assert!(alive(pid));
    let mut pty = yard.screen("there", &["harbor", "attach", &pid.to_string()]);
    pty.wait_for("2 passed", LONG);
    pty.send("q");
    pty.wait_for("leave it running", LONG);
    pty.send(key::END);
    pty.send(key::ENTER);
    // The dialog of the stop: who it is, what it costs; the harmless answer has the focus.
    pty.wait_for("Stays behind", LONG);
    // The second way is by SIGINT, which leaves no phantoms.
    pty.send(key::END);
    pty.wait_until("SIGINT chosen", LONG, |text| text.contains("SIGINT"));
    pty.send(key::ENTER);
    until("its end", || yard.newest()["state"] == "ended");
    assert_eq!(yard.newest()["exit_code"], 130);
    pty.wait_for("0 phantoms", LONG);
    drop(pty);
    let audit = document(&yard.run("here", &["stop", job.to_str().unwrap(), "--audit-only", "--json"]));
    assert_eq!(audit["audit"]["findings"], serde_json::json!([]), "{audit:#}");
    let mine =
        docker_lines(&["ps", "-a", "--format", "{{.Names}}"]).into_iter().filter(|n| n.starts_with(&yard.mark)).count();
    assert_eq!(mine, 0);

    astray(&yard, &job, (&old, &new));

    // What is missing is run by a requeue, and the whole is solved.
    let url = model.url("solve");
    let out = yard.run("here", &["requeue", "jobs/care", "--unscored", "--api-base", &url, "-y", "--json"]);
    assert_eq!(out.status.code(), Some(0), "{}\n{}", text(&out.stderr), text(&out.stdout));
    let tally = document(&yard.run("here", &["tally", "jobs/care", "jobs/care-requeue-1", "--json"]));
    let counted = (&tally["totals"]["planned"], &tally["totals"]["passed"]);
    assert_eq!(counted, (&3.into(), &3.into()), "{tally:#}");
    // Nothing that was written holds the key.
    let found = Command::new("grep")
        .args(["-rl", "sk-scripted", "state", "here", "there"])
        .current_dir(yard.dir.path())
        .output();
    assert_eq!(text(&found.unwrap().stdout), "");
}

/// The model has a new address, which is put into the job's own files alone, and the job is gone on with
/// from another directory: foreseen before, told while it happens.
fn astray(yard: &Yard, job: &Path, (old, new): (&str, &str)) {
    let keep = ["config.json", "lock.json"].map(|file| (job.join(file), fs::read(job.join(file)).unwrap()));
    for (path, _) in &keep {
        edit(path, old, new);
    }
    // Harbor 0.21 deletes what was cancelled before it looks where it is: kept aside, and put back.
    let aside = yard.path("aside");
    assert!(Command::new("cp").arg("-a").args([job, &aside]).status().unwrap().success());
    let results = |job: &Path| -> Vec<Vec<u8>> {
        let solved = |t: &PathBuf| !t.to_string_lossy().contains("slow-think");
        let dirs = support::harbor::trial_dirs(job).into_iter().filter(solved);
        dirs.filter_map(|t| fs::read(t.join("result.json")).ok()).collect()
    };
    let before = results(job);
    assert_eq!(before.len(), 2);
    let dir = job.to_str().unwrap();
    // Before: where it was started, it refuses, and the field is named.
    let preview =
        document(&yard.run("here", &["resume-preview", dir, "--harbor-version", yard.harbor.version, "--json"]));
    let one = &preview["previews"][0];
    assert_eq!(one["ending"], "refuses", "{preview:#}");
    assert!(one["fields"].to_string().contains("api_base"), "{preview:#}");
    let refused = yard.run("here", &["harbor", "--json", "job", "resume", "-p", dir, "-y"]);
    let said = text(&refused.stderr);
    assert!(refused.status.code() == Some(2) && said.contains("api_base") && said.contains("then refuses"), "{said}");
    // From elsewhere everything is run again, in a directory that nobody watches.
    let config = job.join("config.json");
    let config = config.to_str().unwrap();
    let words: &[&str] = match yard.harbor.version {
        "0.21" => &["job", "resume", "-p", dir, "-y"],
        _ => &["job", "start", "-c", config, "-y"],
    };
    let check: Vec<&str> = ["harbor", "--check", "--json"].iter().chain(words).copied().collect();
    let foreseen = document(&yard.run("there", &check));
    let remarks = foreseen["remarks"].as_array().unwrap();
    let asks = remarks.iter().find(|r| ["resume", "job_exists"].contains(&r["kind"].as_str().unwrap())).unwrap();
    let what = asks["what"].as_str().unwrap();
    assert!(asks["asks"] == true && what.contains("there/jobs/care") && what.contains('2'), "{asks:#}");

    let start: Vec<&str> = ["harbor", "--detach", "--json", "--yes"].iter().chain(words).copied().collect();
    let out = yard.run("there", &start);
    let begun = document(&out);
    let stray = yard.path("there/jobs/care");
    let writes = Path::new(begun["harbor"]["job_dir"].as_str().unwrap()).canonicalize().unwrap();
    assert_eq!(writes, stray.canonicalize().unwrap(), "{begun:#}");
    if yard.harbor.version == "0.21" {
        assert!(
            begun["harbor"]["unexpected_dir"] == true && text(&out.stderr).contains("! it writes into"),
            "{begun:#}"
        );
    }
    until("it is at work", || stray.join("lock.json").exists());
    // While it happens: with the count, whichever of the two is watched.
    let alarm = |dirs: &[&Path]| -> Option<String> {
        let status = yard.status(dirs);
        let found = status["attention"].as_array()?.iter().find(|a| a["kind"] == "rerun")?;
        found["message"].as_str().map(str::to_string)
    };
    let mut said = None;
    until("the alarm", || {
        said = alarm(&[job, &stray]);
        said.is_some()
    });
    assert!(said.as_ref().unwrap().contains("2 trials of it have one in"), "{said:?}");
    let watched = alarm(&[job]).unwrap();
    assert!(watched.contains("2 trials with a score") && watched.contains("there/jobs/care"), "{watched}");
    let pty = yard.screen("there", &["attach", stray.to_str().unwrap(), dir]);
    pty.wait_for("busy with what has a score already", LONG);
    drop(pty);
    let out = yard.run("there", &["stop", stray.to_str().unwrap(), "-y", "--mend", "--json"]);
    assert_eq!(document(&out)["stop"]["ended"], true, "{}", text(&out.stderr));
    until("its end is noted", || yard.newest()["state"] == "ended");
    assert_eq!(alarm(&[job, &stray]), None);
    assert_eq!(results(job), before);
    fs::remove_dir_all(job).unwrap();
    fs::rename(&aside, job).unwrap();
    for (path, bytes) in keep {
        fs::write(path, bytes).unwrap();
    }
}

/// An image of a few files, made without a registry.
fn image(name: &str, files: &[&str]) {
    let dir = tempfile::tempdir().unwrap();
    for file in files.iter().chain(&["etc/name"]) {
        crate::fake::write(dir.path().join(file), name);
    }
    let line = format!("tar c -C '{}' . | docker import - '{name}'", dir.path().display());
    assert!(Command::new("sh").args(["-c", &line]).stdout(Stdio::null()).status().unwrap().success());
}

#[test]
fn docker_is_looked_at_before_the_start() {
    if !docker(&["version"]).status.success() {
        assert!(std::env::var("CI").as_deref() != Ok("true"), "Docker is missing");
        return support::skipped("no Docker");
    }
    let place = crate::fake::Place::new();
    let id = std::process::id();
    let (bare, full) = (format!("pilothouse-sv-bare:{id}"), format!("pilothouse-sv-full:{id}"));
    image(&bare, &[]);
    image(&full, &["usr/bin/tmux", "usr/bin/asciinema"]);
    let remarks = |words: &[&str]| -> Vec<Value> {
        let mut command =
            place.command(&["harbor", "--check", "--json", "run", "-y", "-p", "tasks", "-a", "terminus-2"]);
        command.env_remove("DOCKER_HOST");
        for name in ["DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CONFIG"] {
            command.envs(std::env::var(name).ok().map(|value| (name, value)));
        }
        document(&command.args(words).output().unwrap())["remarks"].as_array().unwrap().clone()
    };
    let of = |all: &[Value], kind: &str| all.iter().find(|r| r["kind"] == kind).cloned();
    place.task("alpha-task", &format!("docker_image = \"{full}\"\n"), "");
    let fine = remarks(&[]);
    assert!(of(&fine, "docker").is_none() && of(&fine, "no_tmux").is_none(), "{fine:#?}");
    assert!(of(&fine, "network_pool").is_none(), "{fine:#?}");
    // One that has them not, one that is built on such a one.
    place.task("beta-task", &format!("docker_image = \"{bare}\"\n"), "");
    let lacking = of(&remarks(&[]), "no_tmux").unwrap();
    let what = lacking["what"].as_str().unwrap();
    assert!(what.contains(&bare) && what.contains("tmux and no asciinema"), "{lacking}");
    place.task("beta-task", "", "");
    crate::fake::write(place.path("tasks/beta-task/environment/Dockerfile"), &format!("FROM {bare}\nRUN true\n"));
    assert!(of(&remarks(&[]), "no_tmux").is_some());
    // More at a time than there is room for.
    let many = of(&remarks(&["-n", "100000", "-k", "100000"]), "network_pool").unwrap();
    assert!(many["asks"] == true && many["what"].as_str().unwrap().contains("100000 trials at a time"), "{many}");
    let left = docker_lines(&["ps", "-a", "--filter", "label=pilothouse.job=preflight", "--format", "{{.Image}}"]);
    assert!(!left.contains(&bare) && !left.contains(&full), "{left:?}");
    docker(&["rmi", &bare, &full]);
}
