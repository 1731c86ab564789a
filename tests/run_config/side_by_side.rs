//! The same command lines through real Harbor: its resolved config and ours, value by value.
//!
//! Harbor is found by `PILOTHOUSE_HARBOR_0_26` and `PILOTHOUSE_HARBOR_0_21` (paths of the program). All
//! command lines go through one process of its Python (`tests/interop/print_config.py`), which takes
//! seconds; with `PILOTHOUSE_HARBOR_FULL=1` each starts the program itself, which takes minutes.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use pilothouse::harbor::run_config::{Format, HarborVersion, Host, RunConfig, read_config, resolve as resolve_flags};
use serde_json::Value;

use crate::support::skipped;
use crate::{no_env, parse};

const LAYER_A: &str = "\
n_concurrent_trials: 25
agent_timeout_multiplier: \"6\"
quiet: off
environment: {type: docker, cpu_enforcement_policy: AUTO, env: {A: x, MY_KEY: abcdefghijklmnopqrstuvwxyz0123}}
retry: {max_retries: 1_0, exclude_exceptions: [ValueError]}
agents:
  - &agent
    name: terminus-2
    model_name: openai/m
    kwargs: {temperature: 1.0, tiny: 1e-6, octal: 010, clock: 1:30, big: 1.0e+3, \"no\": no, date: \"2026-08-30\"}
  - <<: *agent
    model_name: openai/n
    n_concurrent: 3
datasets: [{path: ./tasks/, task_names: [a*]}]
";
const LAYER_B: &str = r#"{"environment": {"type": "modal", "kwargs": {"x": [1, {"y": null}]}, "delete": false},
 "datasets": [{"name": "hello@1", "ref": null}, {"repo": "https://example.org/r.git", "path": "sub"}],
 "retry": {"exclude_exceptions": ["KeyError"], "wait_multiplier": 2},
 "metrics": [{"type": "max"}], "artifacts": ["/a", {"source": "/b", "exclude": ["*.o"]}],
 "verifier": {"max_timeout_sec": 9}, "tasks": [{"name": "o/n", "ref": "3"}],
 "source_jobs": [{"action": "regrade", "type": "local", "path": "jobs/x"}]}"#;
const LAYER_C: &str = "environment: {import_path: 'a:B'}\nagents: []\nextra_instructions: [\"\\U0001F600 \\x1b\"]\n";

/// Command lines; those that only 0.26 knows are marked.
const LINES: &[(bool, &[&str])] = &[
    (false, &["-c", "a.yaml"]),
    (false, &["-c", "b.json"]),
    (true, &["-c", "a.yaml", "-c", "b.json"]),
    (true, &["-c", "a.yaml", "-c", "b.json", "-c", "c.yaml"]),
    (
        false,
        &["-c", "a.yaml", "-p", "tasks", "--ak", "tiny=2", "-n", "30", "--n-concurrent-agents", "4", "-e", "docker"],
    ),
    (true, &["-c", "full-run-A.yaml"]),
    (false, &["-p", "tasks"]),
    (false, &["-p", "tasks/one-task", "-a", "nop", "-k", "3", "-n", "2"]),
    (false, &["-p", "tasks", "-a", "terminus-2", "-m", "a/b", "-m", "c", "--ak", "x=[1,2]", "--ak", "y= {\"a\":1.0}"]),
    (false, &["-p", "tasks", "--ak", "t=True", "--ak", "n=None", "--ak", "s=1e3", "--ak", "j=\"q\"", "--ak", "u=01"]),
    (false, &["-p", "tasks", "--ae", "A= b=c ", "--ae", "API_TOKEN=abcdefghijklmnopqrstuvwxyz0123", "--ve", "V=1"]),
    (false, &["-d", "hello@2", "-i", "a*", "-i", "b", "-x", "c", "-l", "7"]),
    (false, &["-d", "org/name", "-l", "1"]),
    (false, &["-t", "org/name@sha256:00"]),
    (false, &["--repo", "https://example.org/r.git", "-p", "sub/", "-i", "x"]),
    (false, &["-p", "tasks", "-e", "modal", "--ek", "a=1", "--no-delete", "--force-build", "--cpus", "limit"]),
    (false, &["-p", "tasks", "-e", "mod:Class", "--memory", "ignore", "--override-memory-mb", "512"]),
    (false, &["-p", "tasks", "-r", "3", "--retry-include", "B", "--retry-include", "A", "--retry-exclude", "C"]),
    (false, &["-p", "tasks", "--timeout-multiplier", "2", "--agent-timeout-multiplier", "6", "--debug", "-q"]),
    (false, &["-p", "tasks", "--verifier-timeout-multiplier", "3", "--agent-setup-timeout-multiplier", "4.5"]),
    (false, &["-p", "tasks", "--environment-build-timeout-multiplier", "5", "-o", "out//x/", "--artifact", "/a"]),
    (false, &["-p", "tasks", "--disable-verification"]),
    (false, &["-p", "tasks", "--install-only", "--n-concurrent-agents", "2"]),
    (false, &["-p", "tasks", "--mounts", r#"[{"type":"bind","source":"/h","target":"/c","read_only":true}]"#]),
    (true, &["-p", "tasks", "--override-cpus", "1.5"]),
    (true, &["-p", "tasks", "--override-cpus", "2"]),
];

/// What a Harbor prints for each command line.
fn harbor(program: &str, dir: &Path, lines: &[Vec<&str>]) -> Vec<Value> {
    let whole = lines.iter().map(|args| [args.as_slice(), &["--job-name", "j", "--print-config"]].concat());
    let texts: Vec<(String, String)> = if std::env::var("PILOTHOUSE_HARBOR_FULL").is_ok_and(|full| full == "1") {
        let run = |args: Vec<&str>| {
            let mut command = Command::new(program);
            command.arg("run").args(args).current_dir(dir).env("HARBOR_TELEMETRY", "0");
            let out = command.env("LITELLM_LOCAL_MODEL_COST_MAP", "True").output().unwrap();
            let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
            (text(&out.stdout), text(&out.stderr))
        };
        whole.map(run).collect()
    } else {
        let python = Path::new(program).with_file_name("python");
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/interop/print_config.py");
        let mut command = Command::new(&python);
        command.arg(script).current_dir(dir).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap_or_else(|e| panic!("{}: {e}", python.display()));
        let text: String = whole.map(|args| format!("{}\n", serde_json::json!(args))).collect();
        // It answers only when it has all.
        child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        let out = child.wait_with_output().unwrap();
        let answers = String::from_utf8_lossy(&out.stdout).into_owned();
        assert!(out.status.success(), "{answers}{}", String::from_utf8_lossy(&out.stderr));
        let answers = answers.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let text = |value: &Value| value.as_str().unwrap().to_string();
        answers.map(|answer| (text(&answer["out"]), text(&answer["err"]))).collect()
    };
    assert_eq!(texts.len(), lines.len());
    let read = |(args, (out, err)): (&Vec<&str>, (String, String))| {
        let begin = out.find('{').unwrap_or(0);
        serde_json::from_str(&out[begin..]).unwrap_or_else(|e| panic!("{args:?}: {e}\n{out}{err}"))
    };
    lines.iter().zip(texts).map(read).collect()
}

fn place() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in [("a.yaml", LAYER_A), ("b.json", LAYER_B), ("c.yaml", LAYER_C)] {
        fs::write(dir.path().join(name), text).unwrap();
    }
    if let Some(shared) = crate::support::shared() {
        fs::copy(shared.join("data/configs/full-run-A.yaml"), dir.path().join("full-run-A.yaml")).unwrap();
        let task = dir.path().join("tasks/one-task");
        copy(&shared.join("data/tasks/hello-file"), &task);
    }
    dir
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().flatten() {
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

fn ours(dir: &Path, args: &[&str], version: HarborVersion) -> RunConfig {
    let read = |name: &str| fs::read(dir.join(name)).map_err(|e| e.to_string());
    let host = Host {
        read: &read,
        is_task: &|path: &Path| dir.join(path).join("task.toml").is_file(),
        now: jiff::civil::date(2026, 1, 1).at(0, 0, 0, 0),
    };
    let args: Vec<&str> = args.iter().copied().chain(["--job-name", "j"]).collect();
    resolve_flags(&parse(&args), version, &host).unwrap_or_else(|e| panic!("{args:?}: {e}")).config
}

#[test]
fn the_newest_harbor_resolves_the_same() {
    let Ok(program) = std::env::var("PILOTHOUSE_HARBOR_0_26") else {
        return skipped("no Harbor 0.26 (PILOTHOUSE_HARBOR_0_26)");
    };
    let dir = place();
    let configs: Vec<RunConfig> = LINES.iter().map(|(_, args)| ours(dir.path(), args, HarborVersion::V0_26)).collect();
    // What we print, Harbor reads as the same: both forms.
    let mut printed = Vec::new();
    for (i, config) in configs.iter().enumerate() {
        for (format, end) in [(Format::Json, "json"), (Format::Yaml, "yaml")] {
            let name = format!("printed-{i}.{end}");
            fs::write(dir.path().join(&name), config.print_config(format, &no_env).text).unwrap();
            printed.push(name);
        }
    }
    let lines = LINES.iter().map(|(_, args)| args.to_vec());
    let lines: Vec<Vec<&str>> = lines.chain(printed.iter().map(|name| vec!["-c", name])).collect();
    let theirs = harbor(&program, dir.path(), &lines);
    let (typed, read) = theirs.split_at(LINES.len());
    for (i, config) in configs.iter().enumerate() {
        assert_eq!(config.to_json(&no_env), typed[i], "{:?}", lines[i]);
        for back in &read[2 * i..][..2] {
            assert_eq!(*back, typed[i], "{:?} printed", lines[i]);
        }
    }
}

#[test]
fn harbor_0_21_resolves_the_same() {
    let Ok(program) = std::env::var("PILOTHOUSE_HARBOR_0_21") else {
        return skipped("no Harbor 0.21 (PILOTHOUSE_HARBOR_0_21)");
    };
    let dir = place();
    let mut lines: Vec<Vec<&str>> = LINES.iter().filter(|(newer, _)| !newer).map(|(_, args)| args.to_vec()).collect();
    let configs: Vec<RunConfig> = lines.iter().map(|args| ours(dir.path(), args, HarborVersion::V0_21)).collect();
    let names: Vec<String> = (0..configs.len()).map(|i| format!("printed-{i}.json")).collect();
    for (config, name) in configs.iter().zip(&names) {
        fs::write(dir.path().join(name), config.print_config(Format::Json, &no_env).text).unwrap();
    }
    lines.extend(names.iter().map(|name| vec!["-c", name.as_str()]));
    let theirs = harbor(&program, dir.path(), &lines);
    let read = |value: &Value| read_config(value.to_string().as_bytes(), "x.json", HarborVersion::V0_21).unwrap();
    for (i, config) in configs.iter().enumerate() {
        // Secrets are masked in both; so compare what is left in ours.
        let expected = read(&theirs[i]);
        assert_eq!(read(&config.to_json(&no_env)), expected, "{:?}", lines[i]);
        assert_eq!(read(&theirs[configs.len() + i]), expected, "{:?} printed", lines[i]);
    }
}
