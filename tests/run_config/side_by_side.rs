//! The same command lines through real Harbor: its resolved config and ours, value by value.
//!
//! Harbor is found by `PILOTHOUSE_HARBOR_0_26` and `PILOTHOUSE_HARBOR_0_21` (paths of the program).

use std::fs;
use std::path::Path;
use std::process::Command;

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

fn harbor(program: &str, dir: &Path, args: &[&str]) -> Value {
    let mut command = Command::new(program);
    command.arg("run").args(args).args(["--job-name", "j", "--print-config"]).current_dir(dir);
    let out = command.env("HARBOR_TELEMETRY", "0").env("LITELLM_LOCAL_MODEL_COST_MAP", "True").output().unwrap();
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let begin = text.find('{').unwrap_or(0);
    serde_json::from_str(&text[begin..])
        .unwrap_or_else(|e| panic!("{args:?}: {e}\n{text}{}", String::from_utf8_lossy(&out.stderr)))
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
    for (_, args) in LINES {
        let theirs = harbor(&program, dir.path(), args);
        let config = ours(dir.path(), args, HarborVersion::V0_26);
        assert_eq!(config.to_json(&no_env), theirs, "{args:?}");
        // What we print, Harbor reads as the same: both forms.
        for (format, name) in [(Format::Json, "p.json"), (Format::Yaml, "p.yaml")] {
            fs::write(dir.path().join(name), config.print_config(format, &no_env).text).unwrap();
            assert_eq!(harbor(&program, dir.path(), &["-c", name]), theirs, "{args:?} through {name}");
        }
    }
}

#[test]
fn harbor_0_21_resolves_the_same() {
    let Ok(program) = std::env::var("PILOTHOUSE_HARBOR_0_21") else {
        return skipped("no Harbor 0.21 (PILOTHOUSE_HARBOR_0_21)");
    };
    let dir = place();
    for (_, args) in LINES.iter().filter(|(newer, _)| !newer) {
        let theirs = harbor(&program, dir.path(), args);
        let config = ours(dir.path(), args, HarborVersion::V0_21);
        let read = |value: &Value| read_config(value.to_string().as_bytes(), "x.json", HarborVersion::V0_21).unwrap();
        // Secrets are masked in both; so compare what is left in ours.
        let expected = read(&theirs);
        assert_eq!(read(&config.to_json(&no_env)), expected, "{args:?}");
        fs::write(dir.path().join("p.json"), config.print_config(Format::Json, &no_env).text).unwrap();
        assert_eq!(read(&harbor(&program, dir.path(), &["-c", "p.json"])), expected, "{args:?} printed");
    }
}
