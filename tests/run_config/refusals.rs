//! What is refused: by name, one by one, and each with the way to have it.

use clap::CommandFactory;
use pilothouse::harbor::run_config::{HarborOnly, HarborVersion, WAY, read_config, unsupported};

use crate::{Line, parse, resolve, resolve_with};

/// A config that has it, and the key that must be named.
const CONFIGS: &[(&str, &str)] = &[
    ("environment: {type: modal}", "environment.type: modal"),
    ("environment: {import_path: 'a:B'}", "environment.import_path"),
    ("environment: {stream: true}", "environment.stream"),
    ("environment: {cpu_enforcement_policy: Request}", "environment.cpu_enforcement_policy: request"),
    ("environment: {memory_enforcement_policy: guarantee}", "environment.memory_enforcement_policy: guarantee"),
    ("environment: {override_gpus: 1}", "environment.override_gpus"),
    ("environment: {override_tpu: {type: v6e, topology: 2x4}}", "environment.override_tpu"),
    ("environment: {mounts: [{type: volume, source: v, target: /v}]}", "environment.mounts[0].type: volume"),
    ("environment: {mounts: [{type: bind, source: /v, target: /v, bind: {selinux: z}}]}", "environment.mounts[0].bind"),
    ("environment: {extra_docker_compose: [x.yaml]}", "environment.extra_docker_compose"),
    ("environment: {kwargs: {keep_containers: true}}", "environment.kwargs.keep_containers"),
    ("environment: {extra_allowed_hosts: [example.org]}", "environment.extra_allowed_hosts"),
    ("verifier: {import_path: 'a:B'}", "verifier.import_path"),
    ("verifier: {kwargs: {a: 1}}", "verifier.kwargs"),
    ("verifier: {include_logs: ['*']}", "verifier.include_logs"),
    ("verifier: {exclude_logs: ['*']}", "verifier.exclude_logs"),
    ("verifier: {extra_allowed_hosts: [example.org]}", "verifier.extra_allowed_hosts"),
    ("metrics: [{type: max}]", "metrics[0]: max"),
    ("metrics: [{kwargs: {a: 1}}]", "metrics[0]: mean"),
    ("agents: []", "agents: []"),
    ("agents: [{name: claude-code}]", "agents[0].name: claude-code"),
    ("agents: [{}, {name: 'a:B'}]", "agents[1].name: a:B"),
    ("agents: [{import_path: 'a:B'}]", "agents[0].import_path"),
    ("agents: [{base_url: 'http://h'}]", "agents[0].base_url"),
    ("agents: [{model_api_key_name: K}]", "agents[0].model_api_key_name"),
    ("agents: [{model_api_format: openai_responses}]", "agents[0].model_api_format"),
    ("agents: [{skip_model_parsing: true}]", "agents[0].skip_model_parsing"),
    ("agents: [{skills: [s]}]", "agents[0].skills"),
    ("agents: [{resume_trajectory: true}]", "agents[0].resume_trajectory"),
    ("agents: [{load_trajectory: t.json}]", "agents[0].load_trajectory"),
    ("agents: [{extra_allowed_hosts: [h]}]", "agents[0].extra_allowed_hosts"),
    ("agents: [{include_logs: [l]}]", "agents[0].include_logs"),
    ("agents: [{exclude_logs: [l]}]", "agents[0].exclude_logs"),
    ("agents: [{kwargs: {a: 1}}]", "agents[0].kwargs.a"),
    ("agents: [{mcp_servers: [{name: m, url: 'http://h'}]}]", "agents[0].mcp_servers"),
    ("user_agent: {name: x, bridge: {kind: acp}}", "user_agent"),
    ("datasets: [{name: hello}]", "datasets[0].name: hello"),
    ("datasets: [{path: a}, {name: o/n}]", "datasets[1].name: o/n"),
    ("datasets: [{path: a, registry_url: 'http://h'}]", "datasets[0].registry_url"),
    ("datasets: [{path: a, registry_path: r.json}]", "datasets[0].registry_path"),
    ("datasets: [{path: a, version: '1'}]", "datasets[0].version"),
    ("datasets: [{path: a, ref: '1'}]", "datasets[0].ref"),
    ("datasets: [{repo: r, overwrite: true}]", "datasets[0].overwrite"),
    ("datasets: [{repo: r, download_dir: d}]", "datasets[0].download_dir"),
    ("tasks: [{name: o/n}]", "tasks[0].name: o/n"),
    ("tasks: [{path: p, git_url: u}]", "tasks[0].git_url"),
    ("tasks: [{path: p, overwrite: true}]", "tasks[0].overwrite"),
    ("tasks: [{path: p, download_dir: d}]", "tasks[0].download_dir"),
    ("artifacts: [{source: /a, service: db}]", "artifacts[0].service: db"),
    ("source_jobs: [{action: diff, type: local, path: j}]", "source_jobs[0].action: diff"),
];

#[test]
fn what_a_config_asks_for_in_vain_is_named() {
    for (text, what) in CONFIGS {
        let config = read_config(text.as_bytes(), "c.yaml", HarborVersion::V0_26).unwrap_or_else(|e| panic!("{e}"));
        let found = unsupported(&config);
        let names: Vec<&str> = found.iter().map(|u| u.what.as_str()).collect();
        assert_eq!(names, [*what], "{text}");
        assert!(found[0].to_string().ends_with(WAY), "{}", found[0]);
    }
}

#[test]
fn what_can_be_done_is_not_refused() {
    let args = "-p tasks -a nop -k 2 -n 3 --n-concurrent-agents 2 -r 1 --retry-exclude X -e local --ae A=1 --ve B=2 \
        --cpus limit --memory ignore --override-cpus 0.5 --override-memory-mb 64 --no-delete --force-build \
        --ek auto_mounting=true --artifact /a --disable-verification --install-only --debug -q -y \
        --skip-credential-checks --no-stream --timeout-multiplier 2 -i a -x b -l 3";
    let mut args: Vec<&str> = args.split_whitespace().collect();
    args.extend(["--mounts", r#"[{"type":"bind","source":"/h","target":"/c","bind":{"create_host_path":false}}]"#]);
    let resolved = resolve(&args);
    assert_eq!(resolved.unsupported(), Vec::new());
    assert_eq!(resolve(&["--repo", "https://example.org/r.git", "-p", "sub"]).unsupported(), Vec::new());
}

#[test]
fn flags_that_only_harbor_can_follow_are_named() {
    let command = Line::command();
    let known = HarborOnly::default();
    assert!(known.given().is_empty());
    let mut seen = 0;
    for arg in command.get_arguments().filter(|a| a.is_hide_set()) {
        let long = format!("--{}", arg.get_long().unwrap());
        let mut args = vec!["-p", "tasks", &long];
        if arg.get_action().takes_values() {
            args.push("value");
        }
        let refused = resolve(&args).refused_flags;
        seen += 1;
        if ["--no-stream", "--skip-credential-checks"].contains(&long.as_str()) {
            assert!(refused.is_empty(), "{long} asks for nothing");
            continue;
        }
        assert_eq!(refused.iter().map(|u| u.what.as_str()).collect::<Vec<_>>(), [long.as_str()]);
        assert!(refused[0].to_string().ends_with(WAY));
        for alias in arg.get_all_aliases().into_iter().flatten() {
            let given = parse(&[&format!("--{alias}"), "value"]).harbor_only.given();
            assert_eq!(given, [long.as_str()], "--{alias}");
        }
    }
    assert!(seen > 60, "{seen}");
}

/// A config that is wrong, and what has to be said; the first line is line 1.
const WRONG: &[(&str, &str)] = &[
    ("n_atempts: 3", "c.yaml:1: unknown key n_atempts in the job config"),
    ("a: 1\nb: 2", "c.yaml:1: unknown key a in the job config\nc.yaml:2: unknown key b in the job config"),
    ("agents:\n  - name: x\n    modelname: y", "c.yaml:3: unknown key agents[0].modelname in an agent"),
    ("environment:\n  kind: docker", "c.yaml:2: unknown key environment.kind in environment"),
    ("verifier: {disabled: true}", "c.yaml:1: unknown key verifier.disabled in verifier"),
    ("retry:\n\n  retries: 1", "c.yaml:3: unknown key retry.retries in retry"),
    ("datasets: [{path: a, n: 1}]", "c.yaml:1: unknown key datasets[0].n in a dataset"),
    ("orchestrator: {type: local}", "c.yaml:1: unknown key orchestrator.type in the job config"),
    ("plugins: [x]", "c.yaml:1: plugins: Harbor ignores this key"),
    ("n_concurrent_trials: 0", "c.yaml:1: n_concurrent_trials: a number instead of a whole number from 1"),
    ("n_attempts: 1.5", "c.yaml:1: n_attempts: a number instead of a whole number from 1"),
    ("quiet: maybe", "c.yaml:1: quiet: text instead of true or false"),
    ("quiet: null", "c.yaml:1: quiet: null instead of true or false"),
    ("timeout_multiplier: -1", "timeout_multiplier: a number instead of a number above 0"),
    ("timeout_multiplier: .inf", "c.yaml:1: a number out of range"),
    ("job_name: ../up", "c.yaml:1: job_name: not the name of a directory"),
    ("job_name: 5", "c.yaml:1: job_name: a number instead of text: put it in quotes"),
    ("jobs_dir: null", "c.yaml:1: jobs_dir: null instead of text"),
    ("schema_version: 2", "schema_version: only 1 is known"),
    ("agents: {name: x}", "c.yaml:1: agents: a map instead of a list"),
    ("agents: [x]", "c.yaml:1: agents[0]: text instead of a map"),
    ("environment: {type: dokcer}", "c.yaml:1: environment.type: dokcer, not one of docker, local, "),
    ("environment: {env: [A]}", "every item of a list must read KEY=VALUE"),
    ("environment: {env: {A: 1}}", "c.yaml:1: environment.env.A: a number instead of text: put it in quotes"),
    ("environment: {mounts: [{type: bind}]}", "environment.mounts[0].source is missing"),
    ("datasets: [{}]", "datasets[0]: path or name is needed"),
    ("datasets: [{path: a, name: b}]", "datasets[0]: path and name exclude each other"),
    ("datasets: [{path: a, version: b, ref: c}]", "datasets[0]: version and ref exclude each other"),
    ("datasets: [{repo: r, registry_url: u}]", "datasets[0]: repo and registry_url exclude each other"),
    ("datasets: [{repo: r, name: o/n}]", "datasets[0]: a name with repo has no slash"),
    ("datasets: [{repo: r, registry_path: p}]", "datasets[0]: registry_path wants a name with repo"),
    ("tasks: [{ref: x}]", "tasks[0]: ref wants a name"),
    ("tasks: [{path: x, git_commit_id: y}]", "tasks[0]: git_commit_id wants a git_url"),
    ("tasks: [{name: x}]", "tasks[0]: the name of a package reads org/name"),
    ("artifacts: [{source: /a/../b}]", "artifacts[0]: source must not climb"),
    ("artifacts: [{source: /a, destination: /b}]", "artifacts[0]: destination is a relative path"),
    ("artifacts: [{source: /a, destination: manifest.json}]", "artifacts[0]: destination is a relative path"),
    ("source_jobs: [{action: redo, type: local, path: p}]", "source_jobs[0].action: redo, not one of regrade, diff"),
    ("source_jobs: [{action: diff, type: hub}]", "source_jobs[0]: a hub job has a job_id and no path"),
    (
        "install_only: true\nsource_jobs: [{action: diff, type: local, path: p}]",
        "install_only can not be combined with source_jobs",
    ),
    ("user_agent: {name: x}", "user_agent.bridge is missing"),
    ("n_concurrent_trials: 2\nagents: [{n_concurrent: 3}]", "agents[0].n_concurrent is 3, more than"),
    ("agents: [{concurrency_group: g}]", "agents[0]: concurrency_group g without n_concurrent"),
    (
        "agents: [{concurrency_group: g, n_concurrent: 1}, {name: nop, concurrency_group: g, n_concurrent: 2}]",
        "agents[0] and agents[1] share a pool",
    ),
    ("agents: [{mcp_servers: [{name: m, transport: stdio}]}]", "agents[0].mcp_servers[0].command is missing"),
    ("agents: [{extra_allowed_hosts: ['http://h']}]", "agents[0].extra_allowed_hosts: host names"),
];

#[test]
fn wrong_configs_are_refused_by_file_and_line() {
    for (text, wanted) in WRONG {
        match read_config(text.as_bytes(), "c.yaml", HarborVersion::V0_26) {
            Ok(config) => panic!("{text}: accepted as {config:?}"),
            Err(e) => assert!(e.to_string().contains(wanted), "{text}:\n{e}\ninstead of\n{wanted}"),
        }
    }
}

#[test]
fn flags_that_would_be_ignored_are_refused() {
    for (args, wanted) in [
        (&["-m", "x", "-p", "tasks"][..], "-m: says nothing without -a"),
        (&["-i", "a"], "-i/-x/-l: choose from -p, -d or --repo"),
        (&["-p", "one-task", "-l", "2"], "-i/-x/-l: choose from several tasks"),
        (&["-t", "o/n", "-i", "x"], "-i/-x/-l: choose from several tasks"),
        (&["-p", "tasks", "-d", "x"], "-p: and -d exclude each other"),
        (&["-p", "tasks", "-t", "o/x"], "-p: and -t exclude each other"),
        (&["--repo", "r", "-t", "o/x"], "--repo: and -t exclude each other"),
        (&["--repo", "r", "-p", "a", "-d", "b"], "--repo: and -p exclude each other"),
        (&["--repo", "r", "-d", "o/n"], "a name with repo has no slash"),
        (&["-p", "tasks", "--ak", "x"], "--ak: wants KEY=VALUE"),
        (&["-p", "tasks", "--ae", "=x"], "--ae: wants KEY=VALUE"),
        (&["-p", "tasks", "--ek", "x=99999999999999999999999999999999999999999"], "--ek:1: a number out of range"),
        (&["-p", "tasks", "--mounts", "[{"], "--mounts:1: not JSON"),
        (&["-p", "tasks", "--mounts", "{}"], "--mounts: environment.mounts: a map instead of a list"),
        (&["-p", "tasks", "-e", "moon"], "-e: environment.type: moon, not one of docker"),
        (&["-p", "tasks", "--cpus", "much"], "--cpus: environment.cpu_enforcement_policy: much, not one of auto"),
        (&["-p", "tasks", "--timeout-multiplier", "0"], "--timeout-multiplier: timeout_multiplier: a number instead"),
        (&["-p", "tasks", "--job-name", "a/b"], "--job-name: job_name: not the name of a directory"),
        (&["-p", "tasks", "-n", "2", "--n-concurrent-agents", "3"], "agents[0].n_concurrent is 3, more than"),
        (&["-c", "https://example.org/c.yaml"], "a config by URL is not fetched"),
        (&["-c", "c.toml"], "c.toml: a config is named .yaml, .yml or .json"),
        (&["-c", "missing.yaml"], "missing.yaml: not there"),
        (&["-p", "tasks", "--env-file", "missing"], "missing: not there"),
    ] {
        let error = resolve_with(args, &[]).expect_err(&format!("{args:?}"));
        assert!(error.contains(wanted), "{args:?}: {error}");
    }
    // A value is never repeated in a complaint: it may be a key.
    let error = resolve_with(&["-p", "t", "--ae", "sk-0123456789"], &[]).unwrap_err();
    assert!(!error.contains("sk-0"), "{error}");
}
