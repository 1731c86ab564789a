//! Real Harbor: trials whose image is not there, the image made, requeued by the same version.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::own::Place;
use super::support;
use support::harbor::{document, harbor, trial_dirs};

#[test]
fn harbor_0_21_runs_the_requeue() {
    requeue("0.21");
}

#[test]
fn harbor_0_26_runs_the_requeue() {
    requeue("0.26");
}

fn requeue(version: &'static str) {
    let Some(harbor) = harbor(version) else { return };
    let mark = format!("rq{}p{}", version.replace('.', ""), std::process::id());
    let place = Place::new(&mark, 1, 0.1, Some(&harbor.program));
    let out = fs::File::create(place.tmp.path().join("harbor.out")).unwrap();
    let mut first = std::process::Command::new(&harbor.program);
    first.args(["run", "-p", "tasks", "-a", "oracle", "-n", "2", "-o", "jobs", "--job-name", "first", "-y"]);
    first.current_dir(place.tmp.path()).env("HARBOR_TELEMETRY", "0").env("LITELLM_LOCAL_MODEL_COST_MAP", "True");
    let status =
        first.stdin(std::process::Stdio::null()).stdout(out.try_clone().unwrap()).stderr(out).status().unwrap();
    let log = || fs::read_to_string(place.tmp.path().join("harbor.out")).unwrap();
    assert!(status.success(), "{}", log());
    let before = place.results("first");
    assert_eq!(before.len(), 2, "{}", log());

    // Another version is said to be one.
    let plan = document(&place.run(&["requeue", "jobs/first", "--infra", "--dry-run", "--json"]));
    let one = &plan["plans"][0];
    assert_eq!(one["trials"][0]["task"], format!("{mark}-bad0"), "{plan:#}");
    assert_eq!((&one["harness"], one["warnings"].as_array().unwrap().len()), (&"harbor".into(), 0));
    assert!(one["harness_version"].as_str().unwrap().starts_with(version));
    assert_eq!(one["differs"].as_array().unwrap().len(), 0, "{plan:#}");

    place.make_image();
    let out = place.run(&["requeue", "jobs/first", "--infra", "-y", "--json"]);
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    let log = fs::read_to_string(place.tmp.path().join("state/requeue/first-requeue-1.log")).unwrap_or_default();
    assert_eq!(out.status.code(), Some(0), "{said}\n{log}");
    assert_eq!(trial_dirs(&place.job("first-requeue-1")).len(), 1);
    assert_eq!(place.results("first"), before);
    assert_eq!(place.journal("first-requeue-1")[0]["act"], "origin");

    let tally = document(&place.run(&["tally", "jobs/first", "jobs/first-requeue-1", "--json"]));
    assert_eq!(
        (&tally["merge"]["as"], &tally["totals"]["planned"], &tally["totals"]["passed"]),
        (&"passes".into(), &2.into(), &2.into()),
        "{tally:#}"
    );
    // The same agent, the same limits: the trials differ in nothing but their identity.
    let config = |job: &str| {
        let dir = trial_dirs(&place.job(job))
            .into_iter()
            .find(|d| d.file_name().unwrap().to_string_lossy().contains("-bad0"))
            .unwrap();
        let mut config: serde_json::Value =
            serde_json::from_slice(&fs::read(dir.join("result.json")).unwrap()).unwrap();
        let mut config = config["config"].take();
        for key in ["trial_name", "trials_dir", "job_id"] {
            config.as_object_mut().unwrap().remove(key);
        }
        config
    };
    assert_eq!(config("first"), config("first-requeue-1"));
}

/// A scripted model on a port of its own.
struct Model {
    child: std::process::Child,
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

#[test]
fn a_broken_endpoint_is_replaced_with_0_21() {
    endpoint("0.21");
}

#[test]
fn a_broken_endpoint_is_replaced_with_0_26() {
    endpoint("0.26");
}

/// One task is solved, the server fails in one, and refuses the key in one.
fn endpoint(version: &'static str) {
    let (Some(harbor), Some(shared)) = (harbor(version), support::shared()) else { return };
    let model = Model::start(&shared);
    let place =
        Place::new(&format!("ep{}p{}", version.replace('.', ""), std::process::id()), 0, 0.1, Some(&harbor.program));
    let tasks = place.tmp.path().join("tasks");
    fs::remove_dir_all(&tasks).unwrap();
    fs::create_dir(&tasks).unwrap();
    for task in ["hello-file", "llm-500", "llm-401"] {
        let status = Command::new("cp").arg("-r").arg(shared.join("data/tasks").join(task)).arg(&tasks).status();
        assert!(status.unwrap().success());
        let toml = tasks.join(task).join("task.toml");
        // The client tries again for a minute or two before it gives up.
        let text = fs::read_to_string(&toml).unwrap().replace("[agent]\ntimeout_sec = ", "[agent]\ntimeout_sec = 9");
        fs::write(toml, text).unwrap();
        let compose = tasks.join(task).join("environment/docker-compose.yaml");
        fs::create_dir_all(compose.parent().unwrap()).unwrap();
        fs::write(compose, "services:\n  main:\n    init: true\n").unwrap();
    }
    let out = fs::File::create(place.tmp.path().join("harbor.out")).unwrap();
    let mut first = Command::new(&harbor.program);
    first.args(["run", "-p", "tasks", "-a", "terminus-2", "-m", "openai/scripted-1", "-n", "3", "-o", "jobs"]);
    first.args(["--job-name", "first", "-y", "--ak", &format!("api_base={}", model.url("default"))]);
    first.args(["--ak", r#"model_info={"max_input_tokens": 32768, "max_output_tokens": 8192}"#]);
    first.args(["--ak", "record_terminal_session=false"]);
    first.current_dir(place.tmp.path()).env("HARBOR_TELEMETRY", "0").env("LITELLM_LOCAL_MODEL_COST_MAP", "True");
    first.env("OPENAI_API_KEY", "sk-scripted").stdin(Stdio::null()).stdout(out.try_clone().unwrap()).stderr(out);
    let status = first.status().unwrap();
    let log = fs::read_to_string(place.tmp.path().join("harbor.out")).unwrap();
    assert!(status.success(), "{log}");
    let before = place.results("first");

    // The key is not on disk: nothing is made without it.
    let url = model.url("solve");
    let mut command = place.command(&["requeue", "jobs/first", "--infra", "--api-base", &url, "-y"]);
    let out = command.env_remove("OPENAI_API_KEY").output().unwrap();
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.code() == Some(2) && said.contains("export OPENAI_API_KEY"), "{said}");

    let with_key = |args: &[&str]| place.command(args).env("OPENAI_API_KEY", "sk-scripted").output().unwrap();
    let out = with_key(&["requeue", "jobs/first", "--infra", "--api-base", &url, "-y", "--json"]);
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(0), "{said}");
    let done = document(&out);
    let rows = done["plans"][0]["trials"].as_array().unwrap();
    assert_eq!((rows.len(), &rows[0]["task"]), (1, &"llm-500".into()), "{done:#}");
    let differs = done["plans"][0]["differs"].as_array().unwrap();
    assert_eq!((differs.len(), &differs[0]["field"]), (1, &"agents[0].kwargs.api_base".into()), "{done:#}");

    // The refused key is the operator's own affair.
    let out = with_key(&["requeue", "jobs/first", "--trial", "llm-401", "--api-base", &url, "-y"]);
    assert_eq!(out.status.code(), Some(2), "{}", String::from_utf8_lossy(&out.stdout));
    let out = with_key(&["requeue", "jobs/first", "--trial", "llm-401", "--config-fixed", "--api-base", &url, "-y"]);
    assert_eq!(out.status.code(), Some(0), "{}", String::from_utf8_lossy(&out.stdout));
    assert_eq!(place.results("first"), before);

    let jobs = ["jobs/first", "jobs/first-requeue-1", "jobs/first-requeue-2"];
    let tally = document(&place.run(&[&["tally", "--json"][..], &jobs].concat()));
    let counted = (&tally["merge"]["as"], &tally["totals"]["planned"], &tally["totals"]["passed"]);
    assert_eq!(counted, (&"passes".into(), &3.into(), &3.into()), "{tally:#}");
    // Nothing that was written holds the key.
    let found =
        Command::new("grep").args(["-rl", "sk-scripted", "state", "jobs"]).current_dir(place.tmp.path()).output();
    assert_eq!(String::from_utf8_lossy(&found.unwrap().stdout), "");
}
