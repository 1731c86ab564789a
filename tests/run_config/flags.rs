//! Layers, flags over them, settings, variables and secrets.

use std::path::Path;

use pilothouse::harbor::run_config::{Format, HarborVersion, Host, Resolved, is_sensitive_name, template_name};
use serde_json::json;

use crate::{no_env, parse, resolve, resolve_with};

fn files(args: &[&str], files: &[(&str, &str)]) -> Resolved {
    resolve_with(args, files).unwrap_or_else(|e| panic!("{args:?}: {e}"))
}

#[test]
fn later_configs_lie_over_earlier_ones() {
    let a = "n_attempts: 2\nquiet: true\nenvironment: {type: docker, env: {A: a, B: b}}\nagents: [{name: nop}]\n\
             artifacts: [/a]\nretry: {exclude_exceptions: [X]}\ndatasets: [{path: one}]\n";
    let b = r#"{"n_attempts": 3, "environment": {"env": {"B": "c"}}, "agents": [{"name": "oracle"}],
                "artifacts": ["/b"], "retry": {"exclude_exceptions": ["Y"]}, "datasets": []}"#;
    let config = files(&["-c", "a.yaml", "-c", "b.json", "-k", "4"], &[("a.yaml", a), ("b.json", b)]).config;
    assert_eq!((config.n_attempts, config.quiet), (4, true));
    let env: Vec<(&str, &str)> = config.environment.env.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    assert_eq!(env, [("A", "a"), ("B", "c")]);
    let names: Vec<_> = config.agents.iter().map(|a| a.name.as_deref().unwrap()).collect();
    assert_eq!(names, ["nop", "oracle"], "lists of things grow");
    assert_eq!(config.artifacts.len(), 1, "other lists are replaced");
    assert_eq!(config.retry.exclude_exceptions.unwrap(), ["X", "Y"]);
    assert!(config.datasets.is_empty(), "an empty list empties");
    // The order of layers counts.
    let config = files(&["-c", "b.json", "-c", "a.yaml"], &[("a.yaml", a), ("b.json", b)]).config;
    assert_eq!(config.n_attempts, 2);
}

#[test]
fn a_choice_takes_the_other_out() {
    let a = ("a.yaml", "environment: {import_path: 'm:C'}");
    let b = ("b.yaml", "environment: {type: docker}");
    let kind = |args: &[&str]| {
        let environment = files(args, &[a, b]).config.environment;
        (environment.kind, environment.import_path)
    };
    assert_eq!(kind(&["-c", "a.yaml"]), (None, Some("m:C".into())));
    assert_eq!(kind(&["-c", "a.yaml", "-c", "b.yaml"]), (Some("docker".into()), None));
    assert_eq!(kind(&["-c", "b.yaml", "-c", "a.yaml"]), (None, Some("m:C".into())));
    assert_eq!(kind(&["-c", "a.yaml", "-e", "local"]), (Some("local".into()), None));
    assert_eq!(kind(&["-c", "b.yaml", "-e", "x:Y"]), (None, Some("x:Y".into())));
}

#[test]
fn problems_of_all_layers_are_told_at_once() {
    let error =
        resolve_with(&["-c", "a.yaml", "-c", "b.json", "--ak", "x"], &[("a.yaml", "x: 1"), ("b.json", "{\"y\":\n[}")]);
    let error = error.unwrap_err();
    assert_eq!(error.lines().count(), 3, "{error}");
    for part in ["a.yaml:1: unknown key x", "b.json:2: not JSON", "--ak: wants KEY=VALUE"] {
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn old_keys_are_understood() {
    let text = "orchestrator: {n_concurrent_trials: 7, quiet: true, retry: {max_retries: 2}}\n\
                environment: {mounts_json: [{type: bind, source: /a, target: /b}], env: ['A = x '], suppress_override_warnings: true}\n\
                datasets: [{name: n, registry: {url: 'http://h', path: p}}]\nquiet: false";
    let config = files(&["-c", "c.yml"], &[("c.yml", text)]).config;
    assert_eq!((config.n_concurrent_trials, config.quiet, config.retry.max_retries), (7, false, 2));
    assert_eq!(config.environment.mounts.unwrap()[0].target, "/b");
    assert_eq!(config.environment.env, [("A".to_string(), "x".to_string())]);
    assert_eq!(config.datasets[0].registry_url.as_deref(), Some("http://h"));
}

#[test]
fn settings_are_json_where_they_are_json() {
    let args = [
        "-p",
        "tasks",
        "-a",
        "terminus-2",
        "--ak",
        "n=3",
        "--ak",
        "f=1e-6",
        "--ak",
        "b=true",
        "--ak",
        "p=False",
        "--ak",
        "none=None",
        "--ak",
        "null=null",
        "--ak",
        "s=plain text",
        "--ak",
        "q=\"3\"",
        "--ak",
        "l=[1,{\"a\":2}]",
        "--ak",
        "zero=007",
        "--ak",
        "eq=a=b",
        "--ak",
        " sp = x ",
        "--ak",
        "n=4",
        "--ak",
        "empty=",
    ];
    let agent = &resolve(&args).config.agents[0];
    let value = |key: &str| agent.kwarg(key).map(|n| n.value.to_json()).unwrap();
    assert_eq!(value("n"), json!(4), "the last counts");
    assert_eq!(value("f"), json!(1e-6));
    assert_eq!(
        (value("b"), value("p"), value("none"), value("null")),
        (json!(true), json!(false), json!(null), json!(null))
    );
    assert_eq!((value("s"), value("q")), (json!("plain text"), json!("3")));
    assert_eq!(value("l"), json!([1, {"a": 2}]));
    assert_eq!(
        (value("zero"), value("eq"), value("sp"), value("empty")),
        (json!("007"), json!("a=b"), json!("x"), json!(""))
    );
    // Variables are always text.
    let agent = &resolve(&["-p", "tasks", "--ae", "A=3", "--ae", "B= {x} "]).config.agents[0];
    assert_eq!(agent.env, [("A".to_string(), "3".to_string()), ("B".to_string(), "{x}".to_string())]);
}

#[test]
fn models_give_one_agent_each_and_tasks_replace_tasks() {
    let base = ("c.yaml", "agents: [{name: nop, kwargs: {a: 1}}]\ndatasets: [{path: old}]\ntasks: [{path: older}]");
    let config = files(&["-c", "c.yaml", "-a", "x", "-m", "p/a", "-m", "b", "-p", "tasks"], &[base]).config;
    let models: Vec<_> = config.agents.iter().map(|a| a.model_name.as_deref().unwrap()).collect();
    assert_eq!(models, ["p/a", "b"]);
    assert!(config.agents[0].kwargs.is_empty(), "-a begins anew");
    assert_eq!((config.datasets.len(), config.tasks.len()), (1, 0));
    assert_eq!(config.datasets[0].path.as_deref(), Some(Path::new("tasks")));
    let config = files(&["-c", "c.yaml", "-p", "./x/one-task/"], &[base]).config;
    // The stub of a host takes what ends in `task` for a task.
    assert_eq!((config.datasets.len(), config.tasks.len()), (1, 0));
    let config = files(&["-c", "c.yaml", "-p", "./x/one-task"], &[base]).config;
    assert_eq!((config.datasets.len(), config.tasks.len()), (0, 1));
    assert_eq!(config.tasks[0].path.as_deref(), Some(Path::new("x/one-task")));
}

#[test]
fn opposite_flags_the_last_counts() {
    let delete = |args: &[&str]| {
        let all: Vec<&str> = ["-p", "tasks"].iter().chain(args).copied().collect();
        resolve(&all).config.environment.delete
    };
    assert!(delete(&[]) && delete(&["--no-delete", "--delete"]));
    assert!(!delete(&["--delete", "--no-delete"]));
    assert!(!resolve(&["-p", "t", "--disable-verification", "--enable-verification"]).config.verifier.disable);
    assert!(resolve(&["-p", "t", "--install-only"]).config.verifier.disable);
}

#[test]
fn secrets_are_not_printed() {
    let args = [
        "-p",
        "tasks",
        "-a",
        "nop",
        "--ae",
        "SHORT_KEY=hunter2hunter2",
        "--ae",
        "OPENAI_API_KEY=abcdefghijklmnopqrstuvwxyz0123",
        "--ae",
        "FROM_HOST_TOKEN=held-by-the-host",
        "--ae",
        "TEMPLATE_KEY=${OTHER:-x}",
        "--ae",
        "MAX_TOKENS=4096",
        "--ae",
        "HARMLESS=sk-0123456789abcdef",
        "--ve",
        "PASSWORD=verysecret",
        "--ak",
        "api_key=sk-fedcba9876543210",
        "--ak",
        "fallback_api_key=EMPTY",
        "--ak",
        "api_base=http://user:hunter22@h/v1",
        "--ak",
        "deep={\"list\":[{\"auth_token\":\"deepsecret1\"}],\"input_cost_per_token\":0}",
    ];
    let env = |name: &str| (name == "FROM_HOST_TOKEN").then(|| "held-by-the-host".to_string());
    let config = resolve(&args).config;
    for format in [Format::Json, Format::Yaml] {
        let printed = config.print_config(format, &env);
        for secret in
            ["hunter2", "ijklmnop", "held-by-the-host", "0123456789abcdef", "verysecret", "fedcba", "deepsecret"]
        {
            assert!(!printed.text.contains(secret), "{secret} in\n{}", printed.text);
        }
        for kept in ["${FROM_HOST_TOKEN}", "${OTHER:-x}", "4096", "EMPTY", "abcd****123"] {
            assert!(printed.text.contains(kept), "{kept} not in\n{}", printed.text);
        }
        assert_eq!(
            printed.masked,
            [
                "verifier.env.PASSWORD",
                "agents[0].kwargs.api_key",
                "agents[0].kwargs.api_base",
                "agents[0].kwargs.deep.list[0].auth_token",
                "agents[0].env.SHORT_KEY",
                "agents[0].env.OPENAI_API_KEY",
                "agents[0].env.HARMLESS",
            ]
        );
    }
    assert!(is_sensitive_name("x_token") && is_sensitive_name("Authorization") && !is_sensitive_name("n_tokens"));
    assert_eq!(template_name("${A:-b}"), Some("A"));
    assert_eq!((template_name("${A} "), template_name("x${A}"), template_name("${}")), (None, None, None));
}

#[test]
fn env_files_are_read() {
    let text =
        "# keys\nexport A=1\nB = 'two # \\n' # note\nC=\"x\\n\\\"y\\\"\nz\"\n\nD=plain value # note\nE=\nF=#\nA=2\n";
    let resolved = files(&["-p", "tasks", "--env-file", ".env"], &[(".env", text)]);
    let get = |name: &str| resolved.variable(name).unwrap();
    assert_eq!((get("A"), get("B"), get("C")), ("2".into(), "two # \\n".into(), "x\n\"y\"\nz".into()));
    assert_eq!((get("D"), get("E"), get("F")), ("plain value".into(), String::new(), String::new()));
    for (text, wanted) in [
        ("A=1\nsk-0123456789abcdef", ".env:2: not NAME=value"),
        ("A='x", ".env:1: a quote that does not end"),
        ("A='x' y", ".env:1: something after the closing quote"),
        ("sk 1=x", ".env:1: not the name of a variable"),
    ] {
        let error = resolve_with(&["-p", "tasks", "--env-file", ".env"], &[(".env", text)]).unwrap_err();
        assert!(error.contains(wanted) && !error.contains("sk"), "{error}");
    }
}

#[test]
fn the_resolved_form_is_complete() {
    let args = [
        "-p",
        "tasks",
        "-a",
        "nop",
        "-k",
        "3",
        "-n",
        "2",
        "--ak",
        "x=[1,2]",
        "--ae",
        "A=1",
        "-e",
        "docker",
        "-r",
        "2",
        "--retry-exclude",
        "ValueError",
        "--override-cpus",
        "1.5",
        "--artifact",
        "/out",
        "-i",
        "a*",
        "--agent-timeout-multiplier",
        "6",
        "--ek",
        "auto_mounting=true",
        "--mounts",
        r#"[{"type":"bind","source":"/h","target":"/c","read_only":true}]"#,
    ];
    insta::assert_snapshot!("resolved_flags", resolve(&args).config.print_config(Format::Yaml, &no_env).text);
}

#[test]
fn the_real_host_reads_regular_files_only() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_string_lossy().into_owned();
    std::fs::write(path("c.yaml"), "n_attempts: 5").unwrap();
    std::fs::create_dir_all(dir.path().join("t")).unwrap();
    std::fs::write(path("t/task.toml"), "").unwrap();
    std::fs::create_dir(path("d.yaml")).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, path("f.yaml"), rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    std::fs::File::create(path("huge.yaml")).unwrap().set_len(300 << 20).unwrap();
    let host = Host::real();
    let run = |config: &str, task: &str| {
        let flags = parse(&["-c", &path(config), "-p", &path(task)]);
        pilothouse::harbor::run_config::resolve(&flags, HarborVersion::V0_26, &host)
    };
    let resolved = run("c.yaml", "t").unwrap();
    assert_eq!((resolved.config.n_attempts, resolved.config.tasks.len()), (5, 1));
    assert_eq!(resolved.config.job_name.len(), "2026-01-01__00-00-00".len());
    for (name, wanted) in
        [("d.yaml", "not a regular file"), ("f.yaml", "not a regular file"), ("huge.yaml", "more than")]
    {
        let error = run(name, "t").unwrap_err().to_string();
        assert!(error.contains(wanted), "{error}");
    }
}
