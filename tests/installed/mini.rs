//! mini-swe-agent itself, in a container that has it (`tb-mini:1`), against the scripted model server: to a
//! reward, to a context that is exceeded, to the end of its time.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::{SECRET, files, pilothouse, ran, tell};
use crate::support::{shared, skipped};
use crate::yard::{Yard, docker, engine};

const IMAGE: &str = "[environment]\ndocker_image = \"tb-mini:1\"";

/// The scripted model server, ended with this.
struct Server(Child, u16);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn serve(yard: &Yard, shared: &std::path::Path) -> Server {
    // A port that was free a moment ago.
    let port = TcpListener::bind("0.0.0.0:0").unwrap().local_addr().unwrap().port();
    let mut python = Command::new("python3");
    python.arg(shared.join("data/tools/scripted_llm.py")).args(["--host", "0.0.0.0", "--port", &port.to_string()]);
    python.arg("--log").arg(yard.temp.path().join("requests.jsonl"));
    let child = python.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let server = Server(child, port);
    let begin = Instant::now();
    while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(begin.elapsed() < Duration::from_secs(20), "the server does not listen");
        std::thread::sleep(Duration::from_millis(50));
    }
    server
}

#[test]
fn mini_swe_agent_runs_to_each_of_its_ends() {
    let Some(shared) = shared() else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    if let Err(why) = runtime.block_on(engine()) {
        return skipped(&format!("in containers: {why}"));
    }
    if docker(&["images", "-q", "tb-mini:1"]).trim().is_empty() {
        // Built from gigabytes of Python packages: minutes, so that it is not asked for.
        println!("SKIPPED: mini-swe-agent: no image tb-mini:1 (data/tools/build-base-image.sh)");
        return;
    }
    let mut yard = Yard::new();
    // Its start takes seconds of a processor, and more where that is busy.
    for (name, timeout) in [("hello-file", 240), ("ctx-forever", 240), ("slow-think", 40)] {
        let check = match name {
            "hello-file" => {
                "grep -qx 'Hello, world!' /app/hello.txt && r=1 || r=0; echo $r > /logs/verifier/reward.txt"
            }
            _ => "pgrep -f mini-swe-agent && r=1 || r=0; echo $r > /logs/verifier/reward.txt",
        };
        yard = yard.task(name, "exit 1", check, &format!("[agent]\ntimeout_sec = {timeout}\n{IMAGE}"));
        tell(&yard, &format!("[tb:{name}]\n\nCreate /app/hello.txt whose only line is `Hello, world!`.\n"));
    }
    let server = serve(&yard, &shared);
    let base = format!("api_base=http://host.docker.internal:{}/v1", server.1);
    let args =
        ["-a", "mini-swe-agent", "-m", "openai/scripted-1", "--ak", &base, "--ae", "LITELLM_LOCAL_MODEL_COST_MAP=True"];
    let args = [&args[..], &["--ek", "extra_hosts=host.docker.internal:host-gateway"]].concat();
    let out = pilothouse(&yard, &args, &[("OPENAI_API_KEY", SECRET)]);
    let ran = ran(&yard, &out);

    // To a reward: its tokens are those that the server tells of.
    assert_eq!(ran.end("hello-file"), (Some(1.0), None), "{}\n{}", ran.said, ran.message("hello-file"));
    let log = BufReader::new(fs::File::open(yard.temp.path().join("requests.jsonl")).unwrap());
    let log: Vec<Value> = log.lines().map(|line| serde_json::from_str(&line.unwrap()).unwrap()).collect();
    let told = |task: &str, name: &str| {
        let of_task = log.iter().filter(|asked| asked["task"] == task && asked[name].is_u64());
        of_task.map(|asked| asked[name].as_f64().unwrap()).sum::<f64>()
    };
    let used = ran.used("hello-file");
    assert_eq!(
        (used[0], used[2]),
        (Some(told("hello-file", "prompt_tokens")), Some(told("hello-file", "completion_tokens")))
    );
    assert_eq!(used[3], None, "nobody knows the price");
    assert_eq!(ran.metadata("hello-file")["n_episodes"], 3);
    let info = &ran.result("hello-file")["agent_info"];
    assert_eq!((info["name"].as_str(), info["version"].as_str()), (Some("mini-swe-agent"), Some("2.4.6")));
    let trajectory = ran.trajectory("hello-file");
    let steps = trajectory["steps"].as_array().unwrap();
    let sources: Vec<&str> = steps.iter().map(|step| step["source"].as_str().unwrap()).collect();
    assert_eq!(sources, ["system", "user", "agent", "agent", "agent"]);
    assert_eq!(steps[3]["tool_calls"][0]["arguments"]["command"], "echo 'Hello, world!' > /app/hello.txt");
    assert_eq!(steps[3]["observation"]["results"][0]["source_call_id"], steps[3]["tool_calls"][0]["tool_call_id"]);
    assert_eq!(trajectory["final_metrics"]["total_prompt_tokens"].as_f64(), used[0]);

    // To a context that is exceeded: its own words say so, and it is graded.
    assert_eq!(
        ran.end("ctx-forever"),
        (Some(0.0), Some("ContextWindowExceededError")),
        "{}",
        ran.message("ctx-forever")
    );
    assert!(ran.message("ctx-forever").contains("Command failed (exit 1)"), "{}", ran.message("ctx-forever"));

    // To the end of its time: nothing of it is left when the tests run, and what it used is known.
    assert_eq!(ran.end("slow-think"), (Some(0.0), Some("AgentTimeoutError")), "{}", ran.said);
    let known = ran.used("slow-think")[0].unwrap_or(0.0);
    assert_eq!(known, told("slow-think", "prompt_tokens"));
    let trajectory = ran.trajectory("slow-think");
    assert_eq!(trajectory["agent"]["name"], "mini-swe-agent");

    for path in files(&yard.dir()) {
        let bytes = fs::read(&path).unwrap();
        assert!(memchr::memmem::find(&bytes, SECRET.as_bytes()).is_none(), "{}", path.display());
    }
    if let Ok(pythons) = std::env::var("PILOTHOUSE_HARBOR_PYTHON") {
        let script = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/interop/trajectory.py");
        for python in pythons.split(':').filter(|python| !python.is_empty()) {
            let paths =
                ["hello-file", "ctx-forever", "slow-think"].map(|task| ran.agent_dir(task).join("trajectory.json"));
            let out = Command::new(python).arg(&script).args(paths).output().unwrap();
            let text = String::from_utf8_lossy(&out.stdout);
            assert!(out.status.success() || text.starts_with("harbor 0.21."), "{text}");
        }
    }
}
