//! What an operator can ask of a run, and what of it shows.

use std::fs;

use pilothouse::environment::Trouble;
use pilothouse::environment::docker::Isolation;
use pilothouse::harbor::write::config::{AgentConfig, Kwargs};
use pilothouse::job::policy::ErrorPolicyOverride;
use pilothouse::scheduler::DockerPlaces;
use serde_json::{Value, json as value};
use sha2::Digest;

use crate::support;
use crate::yard::{
    IMAGE, PASS, PASS_INSIDE, Yard, docker, engine, find, in_containers, json, left_of, nothing, trial_dir, until,
};

#[test]
fn a_job_adds_artifacts_instructions_and_variables() {
    let solve = "mkdir -p out/deep; echo 1 > out/a.txt; echo 2 > out/b.log; echo 3 > out/deep/c.log; echo x > single; \
        echo \"$FROM_AGENT $FROM_ENVIRONMENT $BOTH\"";
    let test = format!("echo \"$FROM_VERIFIER $BOTH\"; {PASS}");
    let hook = "[solution.env]\nBOTH = \"task\"\n[[verifier.collect]]\ncommand = \"echo hooked > $APP_DIR/out/hooked\"\n\
        [[verifier.collect]]\ncommand = \"exit 3\"";
    let yard = Yard::new().task("t", solve, &test, hook);
    let more = yard.temp.path().join("more.md");
    fs::write(&more, "Be quick.\n").unwrap();
    let mut config = yard.config("oracle", 1);
    config.artifacts = vec![
        value!({"source": "/app/out", "destination": "kept", "exclude": ["*.log"]}),
        "single".into(),
        "/app/out/a.txt".into(),
        value!({"source": "/app/single", "destination": "kept/a.txt"}),
        "/app/none".into(),
    ];
    config.extra_instruction_paths = vec![more.to_str().unwrap().to_string()];
    config.extra_instructions = vec!["And tidy.".to_string()];
    let pairs = |list: &[(&str, &str)]| list.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
    config.agents[0].env = pairs(&[("FROM_AGENT", "agent"), ("BOTH", "agent")]);
    config.environment.env = pairs(&[("FROM_ENVIRONMENT", "environment")]);
    config.verifier.env = pairs(&[("FROM_VERIFIER", "verifier"), ("BOTH", "verifier")]);
    let plan = yard.plan(config.clone()).unwrap();
    let told = plan.trials[0].instruction(&plan.trials[0].task.steps[0]);
    assert_eq!(told, "Do it.\n\n\nBe quick.\n\n\nAnd tidy.");
    assert!(yard.run(config, nothing).complete);
    let read = yard.read();
    assert_eq!(read.end("t"), (Some(1.0), None));
    let dir = find(&yard, &read, "t");
    let file = |name: &str| fs::read_to_string(dir.join(name)).unwrap();
    // The reference solution's own variables have the last word.
    assert_eq!(file("agent/oracle.txt"), "agent environment task\n");
    assert_eq!(file("verifier/test-stdout.txt"), "verifier verifier\n");
    assert_eq!((file("artifacts/kept/a.txt"), file("artifacts/kept/hooked")), ("1\n".into(), "hooked\n".into()));
    assert!(!dir.join("artifacts/kept/b.log").exists() && !dir.join("artifacts/kept/deep/c.log").exists());
    assert_eq!((file("artifacts/single"), file("artifacts/app/out/a.txt")), ("x\n".into(), "1\n".into()));
    let manifest = json(&dir.join("artifacts/manifest.json"));
    let status: Vec<&str> = manifest.as_array().unwrap().iter().map(|l| l["status"].as_str().unwrap()).collect();
    assert_eq!(status, ["empty", "ok", "ok", "ok", "skipped", "failed"]);
    assert_eq!(manifest[1]["exclude"], value!(["*.log"]));
    assert!(file("trial.log").contains("Collect hook exited with code 3"));
    let digest = |text: &str| {
        let hex: String = sha2::Sha256::digest(text.as_bytes()).iter().map(|b| format!("{b:02x}")).collect();
        format!("sha256:{hex}")
    };
    let locks = json(&dir.join("lock.json"))["extra_instructions"].clone();
    assert_eq!(locks[0]["digest"], digest("Be quick.\n"));
    assert_eq!((&locks[1]["digest"], locks[1].get("path")), (&digest("And tidy.").into(), None));
}

#[test]
fn limits_follow_overrides_caps_and_factors() {
    let yard = Yard::new().task("t", "sleep 60", PASS, "[agent]\ntimeout_sec = 500.0\n[verifier]\ntimeout_sec = 500.0");
    let ends = |name: &str, change: &dyn Fn(&mut pilothouse::harbor::write::config::JobConfig)| -> String {
        let mut config = yard.config("oracle", 1);
        config.job_name = name.to_string();
        change(&mut config);
        assert!(yard.run(config, nothing).complete);
        let dir = yard.temp.path().join("jobs").join(name);
        let trial = fs::read_dir(dir).unwrap().flatten().find(|e| e.path().is_dir()).unwrap();
        let result = json(&trial.path().join("result.json"));
        let message = result["exception_info"]["exception_message"].as_str().unwrap_or("-").to_string();
        format!("{} {message}", result["verifier_result"]["rewards"])
    };
    let late = |seconds: &str| format!("{{\"reward\":1.0}} Agent execution timed out after {seconds} seconds");
    assert_eq!(ends("override", &|c| c.agents[0].override_timeout_sec = Some(0.5)), late("0.5"));
    assert_eq!(
        ends("max", &|c| {
            c.agents[0].max_timeout_sec = Some(1.0);
            c.timeout_multiplier = 0.5;
        }),
        late("0.5")
    );
    assert_eq!(
        ends("own", &|c| {
            c.agents[0].max_timeout_sec = Some(1.0);
            c.timeout_multiplier = 50.0;
            c.agent_timeout_multiplier = Some(0.25);
        }),
        late("0.25")
    );
    let ungraded = ends("ungraded", &|c| {
        c.agents[0].override_timeout_sec = Some(0.5);
        c.verifier.disable = true;
    });
    assert_eq!(ungraded, "null Agent execution timed out after 0.5 seconds");
}

#[test]
fn agents_of_a_group_work_no_more_than_so_many_at_a_time() {
    let mut yard = Yard::new();
    let count = yard.temp.path().join("count");
    fs::create_dir(&count).unwrap();
    let at = count.display();
    for i in 0..4 {
        let solve = format!("touch {at}/$$; ls {at} | wc -l; sleep 0.4; rm {at}/$$");
        yard = yard.task(&format!("t{i}"), &solve, PASS, "[agent]\ntimeout_sec = 1.5");
    }
    let mut config = yard.config("oracle", 4);
    config.agents[0].n_concurrent = Some(1);
    let mut two = config.clone();
    two.agents.push(AgentConfig { n_concurrent: Some(2), ..two.agents[0].clone() });
    two.agents.iter_mut().for_each(|a| a.concurrency_group = Some("g".to_string()));
    assert!(yard.plan(two).unwrap_err().to_string().contains("different limits"));
    assert!(yard.run(config, nothing).complete);
    let read = yard.read();
    for i in 0..4 {
        // Its wait for the others is not its agent's time.
        assert_eq!(read.end(&format!("t{i}")), (Some(1.0), None));
        let output = find(&yard, &read, &format!("t{i}")).join("agent/oracle.txt");
        assert_eq!(fs::read_to_string(output).unwrap().trim(), "1");
    }
}

#[test]
fn a_reward_that_counts_is_not_tried_again_unless_the_operator_says_so() {
    let yard = Yard::new().task("t", "true", PASS, "[agent]\nuser = \"somebody\"");
    for named in [false, true] {
        let mut config = yard.config("oracle", 1);
        config.job_name = format!("job-{named}");
        (config.retry.max_retries, config.retry.min_wait_sec) = (1, 0.1);
        let own = ErrorPolicyOverride { should_retry: Some(true), ..ErrorPolicyOverride::default() };
        if named {
            config.override_error_policy.insert("RuntimeError".to_string(), own);
        }
        assert!(yard.run(config, nothing).complete);
        let read = yard.read_job(&format!("job-{named}"));
        assert_eq!(read.end("t"), (Some(1.0), Some("RuntimeError")));
        let dir = yard.temp.path().join("jobs").join(format!("job-{named}")).join(&*read.trial("t").name);
        // And the one before is kept whole.
        assert_eq!(dir.join("retries/1/result.json").exists(), named);
        assert_eq!(dir.join("retries/1/verifier/reward.txt").exists(), named);
    }
}

fn set(list: &[(&str, Value)]) -> Kwargs {
    list.iter().map(|(k, v)| (k.to_string(), v.clone())).collect()
}

#[test]
fn containers_are_as_the_operator_asks_and_the_record_says_so() {
    let solve = "cat /sys/fs/cgroup/pids/pids.max /sys/fs/cgroup/pids.max 2>/dev/null; cat /proc/1/comm; \
        grep -c pilot.example /etc/hosts; cat /mnt/data/file; (echo x > /mnt/data/new) 2>/dev/null || echo read-only; \
        echo mine > /mnt/own/made; nproc; id -un; pwd; touch /logs/agent/as-agent";
    let test = format!("id -u; touch /logs/verifier/as-verifier; {PASS_INSIDE}");
    let toml = "[environment]\ndocker_image = \"tb-base:1\"\nmemory_mb = 128\nstorage_mb = 1024\nworkdir = \"/var/tmp\"\n\
        [agent]\nuser = \"nobody\"\n[verifier]\nuser = \"1000\"";
    let yard = Yard::new().task("t", solve, &test, toml);
    let (data, own) = (yard.temp.path().join("data"), yard.temp.path().join("own"));
    for dir in [&data, &own] {
        fs::create_dir(dir).unwrap();
    }
    fs::write(data.join("file"), "data\n").unwrap();
    let mode = |dir: &std::path::Path, mode| {
        fs::set_permissions(dir, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
    };
    mode(yard.temp.path(), 0o755);
    mode(&own, 0o733);
    let mut config = yard.config("oracle", 1);
    config.environment.override_cpus = serde_json::Number::from_f64(1.0);
    config.environment.mounts = Some(vec![value!({"type": "bind", "source": own, "target": "/mnt/own"})]);
    config.environment.kwargs = set(&[
        ("pids_limit", 128.into()),
        ("init", false.into()),
        ("swap", true.into()),
        ("extra_hosts", "pilot.example:10.1.2.3".into()),
        ("volumes", format!("{}:/mnt/data", data.display()).into()),
        ("output_cap_mb", "3".into()),
    ]);
    let looked = std::cell::RefCell::new(String::new());
    let ran = in_containers(&yard, config, async |_, plan| {
        let name = plan.trials[0].config.trial_name.clone();
        let filter = format!("label={}={name}", pilothouse::environment::labels::TRIAL);
        let id = || docker(&["ps", "-q", "--filter", &filter]).trim().to_string();
        until(|| !id().is_empty()).await;
        let format = "{{.HostConfig.Memory}} {{.HostConfig.MemorySwap}} {{.HostConfig.NanoCpus}}";
        looked.replace(docker(&["inspect", "--format", format, &id()]));
    });
    let Some((done, id)) = ran else { return };
    assert!(done.complete);
    assert_eq!(looked.into_inner().trim(), "134217728 268435456 1000000000");
    let read = yard.read();
    assert_eq!(read.end("t"), (Some(1.0), None));
    let dir = find(&yard, &read, "t");
    let file = |name: &str| fs::read_to_string(dir.join(name)).unwrap();
    let said = file("agent/oracle.txt");
    let said: Vec<&str> = said.lines().collect();
    assert_eq!((said[0], said[2..5].join(" ")), ("128", "1 data read-only".to_string()), "{said:?}");
    assert_eq!(said[said.len() - 2..], ["nobody", "/var/tmp"], "{said:?}");
    assert!(!said[1].contains("init"), "{said:?}");
    assert_eq!(file("verifier/test-stdout.txt"), "1000\n");
    assert!(!data.join("new").exists() && own.join("made").exists());
    use std::os::unix::fs::MetadataExt;
    // The operator's own directory stays as it was; the trial's belong to us.
    assert_eq!(fs::metadata(&own).unwrap().mode() & 0o7777, 0o733);
    let note = json(&dir.join("pilothouse.json"));
    let text = note["environment"]["deviations"].to_string();
    for word in ["128 processes", "pilot.example", "/mnt/data", "3 MiB", "storage is not limited"] {
        assert!(text.contains(word), "{word}: {text}");
    }
    assert!(!text.contains("init") && !text.contains("includes swap"), "{text}");
    assert_eq!(note["commands"][0]["what"], "solution");
    assert!(file("trial.log").contains("128 processes"));
    assert_eq!(left_of(&id), "");
}

#[test]
fn every_trial_gets_a_network_of_its_own_where_that_is_asked_and_there_is_room() {
    let yard = Yard::new().task("one", "touch /logs/agent/here; sleep 3", PASS_INSIDE, IMAGE).task(
        "two",
        "touch /logs/agent/here; sleep 3",
        PASS_INSIDE,
        IMAGE,
    );
    let mut config = yard.config("oracle", 2);
    config.environment.kwargs =
        set(&[("network_per_trial", true.into()), ("network_pool", "10.214.97.0/28:29".into())]);
    let seen = std::cell::RefCell::new(Vec::new());
    let ran = in_containers(&yard, config.clone(), async |_, plan| {
        let there = |task: &str| trial_dir(&plan, task).join("agent/here").exists();
        until(|| there("one") && there("two")).await;
        let label = format!("label={}={}", pilothouse::environment::labels::JOB, plan.id);
        let ids = docker(&["network", "ls", "-q", "--filter", &label]);
        let format = "{{(index .IPAM.Config 0).Subnet}}";
        seen.borrow_mut().extend(ids.lines().map(|id| docker(&["network", "inspect", "--format", format, id])));
    });
    let Some((done, id)) = ran else { return };
    assert!(done.complete);
    let mut seen = seen.into_inner();
    seen.sort();
    assert_eq!(seen, ["10.214.97.0/29\n", "10.214.97.8/29\n"]);
    assert_eq!((yard.read().tally.totals.passed, left_of(&id)), (2, String::new()));
    // No room for both at a time: said before anything runs.
    config.environment.kwargs.insert("network_pool".to_string(), "10.214.97.16/29:29".into());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let engine = match engine().await {
            Ok(engine) => engine,
            Err(why) => return support::skipped(&why),
        };
        config.job_name = "small".to_string();
        let plan = yard.plan(config).unwrap();
        let error = DockerPlaces::open(engine.clone(), &plan, "tests").await.unwrap_err();
        assert_eq!(error.trouble, Trouble::AddressPool, "{error}");
        assert!(error.to_string().contains("network_pool"), "{error}");
        // Of one network for all the host is asked whether it keeps its containers apart.
        let plan = yard.plan(yard.config("oracle", 2)).unwrap();
        let places = DockerPlaces::open(engine, &plan, "tests").await.unwrap();
        let found = places.probe_isolation("tb-base:1").await.unwrap();
        assert!(matches!(found, Some(Isolation::Enforced | Isolation::NotEnforced)), "{found:?}");
        places.close().await.unwrap();
        assert_eq!(left_of(&plan.id), "");
    });
}
