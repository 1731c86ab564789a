//! Task directories: what Harbor 0.21.0 and 0.26.0 make of the same files. Expected values were taken
//! from those versions' own models and digests.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use pilothouse::harbor::task::{
    EnvTemplate, EnvTemplates, Glob, Image, Listed, MinReward, Network, Os, RewardStrategy, Rewards, Selection,
    SelectionProblem, Task, TaskConfig, TaskProblem, Unsupported, User, VerifierMode, list, resolve_all, with_extra,
    without_canary,
};
use serde_json::Value;

fn write(dir: &Path, path: &str, text: impl AsRef<[u8]>) {
    let path = dir.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// A small valid task named `name` in `place`.
fn task(place: &Path, name: &str, toml: &str) -> PathBuf {
    let dir = place.join(name);
    write(&dir, "task.toml", toml);
    write(&dir, "instruction.md", "Do it.\n");
    write(&dir, "environment/Dockerfile", "FROM scratch\n");
    write(&dir, "tests/test.sh", "#!/bin/bash\n");
    write(&dir, "solution/solve.sh", "#!/bin/bash\n");
    dir
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// All tasks of a directory.
fn all_of(dir: &Path) -> Vec<Listed> {
    Selection::default().apply(list(dir).unwrap()).unwrap()
}

/// Every task of the recorded jobs that still lies there as it was: both figures are those that
/// Harbor wrote, and every such task was met.
#[test]
fn digests_of_recorded_tasks_are_harbors() {
    let Some(shared) = support::shared() else { return };
    let tasks = shared.join("data/tasks");
    let ours: BTreeMap<String, _> =
        all_of(&tasks).into_iter().map(|l| (l.name, l.task.unwrap().digests().unwrap())).collect();
    assert!(ours.len() >= 20, "{}", ours.len());
    // A job of another harness ran other tasks of the same names, and one made up its own.
    let known = |path: &Value| -> Option<String> {
        let name = path.as_str()?.strip_prefix("tasks/")?;
        ours.contains_key(name).then(|| name.to_string())
    };
    let (mut digests, mut checksums) = (BTreeMap::new(), BTreeMap::new());
    for job in fs::read_dir(shared.join("data/jobs")).unwrap().map(|e| e.unwrap().path()).filter(|p| p.is_dir()) {
        if job.join("lock.json").is_file() {
            for trial in json(&job.join("lock.json"))["trials"].as_array().unwrap() {
                let Some(at) = known(&trial["task"]["path"]) else { continue };
                assert_eq!(trial["task"]["digest"].as_str().unwrap(), ours[&at].digest, "{job:?} {at}");
                *digests.entry(at).or_insert(0) += 1;
            }
        }
        for trial in fs::read_dir(&job).unwrap().map(|e| e.unwrap().path()) {
            if !trial.join("result.json").is_file() {
                continue;
            }
            let result = json(&trial.join("result.json"));
            let Some(at) = known(&result["task_id"]["path"]) else { continue };
            assert_eq!(result["task_checksum"].as_str().unwrap(), ours[&at].checksum, "{trial:?}");
            *checksums.entry(at).or_insert(0) += 1;
        }
    }
    assert_eq!((digests.len(), checksums.len()), (ours.len(), ours.len()), "every task met in both files");
}

/// A tree with everything that the two figures treat differently: expected values are those of Harbor 0.21.0
/// and 0.26.0, which agree on it.
#[test]
fn digests_of_an_odd_tree_are_harbors() {
    let temp = tempfile::tempdir().unwrap();
    let dir = odd_tree(temp.path());
    let found = Task::load(&dir).unwrap().digests().unwrap();
    assert_eq!(found.digest, DEFAULT_DIGEST);
    assert_eq!(found.checksum, DEFAULT_CHECKSUM);
    write(&dir, ".gitignore", GITIGNORE);
    let found = Task::load(&dir).unwrap().digests().unwrap();
    assert_eq!(found.digest, IGNORED_DIGEST);
    assert_eq!(found.checksum, IGNORED_CHECKSUM);
}

const DEFAULT_DIGEST: &str = "sha256:2b681ccff00acca382a4f1a747b053fb7318401c9d521566ce6ae1fa798f451c";
const DEFAULT_CHECKSUM: &str = "c5e08c72b4b3297eb6e06d9812c45203a523a4dd7772bfbf3b845d8ec9b45781";
const IGNORED_DIGEST: &str = "sha256:b202fd1fbfec38220924251fcfbed18aab2ebb23fe7a78a8be58852d7aab3411";
const IGNORED_CHECKSUM: &str = "6824d06cd3d92f30f9a30a5228bcf9e259d4dbb23529047e67b1f885cb73f4b4";

const GITIGNORE: &str = "# rules\n\n*.log\n!keep.log\n/tests/data/*\nenvironment/**/b.txt\nout/\n[a-c]?.bin\n\\!odd \n\
                         [!x].tmp\nlib/*/deep\n**/any\n[]-].q\nopen[.z\n";

fn odd_tree(place: &Path) -> PathBuf {
    let dir = task(place, "odd", "[agent]\ntimeout_sec = 1\n");
    for path in [
        "README.md",
        "notes.txt",
        "tests/data/one",
        "tests/data/sub/two",
        "tests/x.log",
        "tests/keep.log",
        "environment/b.txt",
        "environment/deep/b.txt",
        "environment/deep/er/b.txt",
        "environment/c.txt",
        "environment/out/file",
        "environment/out2/file",
        "solution/out",
        "tests/ab.bin",
        "tests/dd.bin",
        "tests/a.bin",
        "tests/!odd",
        "tests/y.tmp",
        "tests/x.tmp",
        "environment/lib/a/deep/f",
        "environment/lib/a/b/deep/f",
        "solution/any",
        "solution/many",
        "tests/].q",
        "tests/-.q",
        "tests/a.q",
        "tests/open[.z",
        "tests/a.pyc",
        "tests/__pycache__/m",
        "environment/x~",
        "environment/.DS_Store",
        "tests/B",
        "tests/a",
        "tests/ä",
        "tests/Z/1",
        "tests/a.d/1",
        "tests/a-d/1",
        "steps/one/instruction.md",
        "environment/.swp",
        "solution/f.swo",
    ] {
        write(&dir, path, path);
    }
    fs::create_dir_all(dir.join("environment/empty/er")).unwrap();
    symlink("one", dir.join("tests/data/link")).unwrap();
    symlink("../environment/deep", dir.join("tests/linked")).unwrap();
    symlink("/nowhere/at/all", dir.join("environment/dangling")).unwrap();
    let fifo = std::process::Command::new("mkfifo").arg(dir.join("environment/fifo")).status().unwrap();
    assert!(fifo.success());
    dir
}

/// Reads a `task.toml`; problems in one text, empty where there are none.
fn read(toml: &str) -> (TaskConfig, String, Vec<String>) {
    let (config, problems, notes) = TaskConfig::read(&toml.parse().unwrap());
    (config, problems.join("; "), notes)
}

fn is_wrong(toml: &str, says: &str) {
    let (_, problems, _) = read(toml);
    assert!(problems.contains(says), "{toml:?} gives {problems:?}, not {says:?}");
}

fn fine(toml: &str) -> TaskConfig {
    let (config, problems, _) = read(toml);
    assert!(problems.is_empty(), "{toml:?} gives {problems:?}");
    config
}

#[test]
fn numbers_are_coerced_as_in_harbor() {
    let seconds = |v: &str| fine(&format!("[agent]\ntimeout_sec={v}")).agent.timeout_sec;
    for (written, value) in
        [("true", 1.0), ("900", 900.0), (r#"" 900 ""#, 900.0), (r#""1_000""#, 1000.0), (r#""1e3""#, 1000.0)]
    {
        assert_eq!(seconds(written), Some(value), "{written}");
    }
    // Harbor takes the first three and fails when the time comes.
    for written in ["inf", "nan", "-5", r#""abc""#, r#""""#, r#""_1""#, "1979-05-27", "[1]", "1e300"] {
        is_wrong(&format!("[agent]\ntimeout_sec={written}"), "agent.timeout_sec: ");
    }
    let memory = |v: &str| fine(&format!("[environment]\nmemory_mb={v}")).environment.memory_mb;
    for (written, value) in [("true", 1), ("2.0", 2), (r#""2""#, 2), (r#""2.0""#, 2), (r#"" 2_0 ""#, 20), ("0", 0)] {
        assert_eq!(memory(written), Some(value), "{written}");
    }
    for written in ["1.5", r#""2.5""#, r#""1e3""#, "-1", "1e300"] {
        is_wrong(&format!("[environment]\nmemory_mb={written}"), "environment.memory_mb: ");
    }
    let cpus = |v: &str| fine(&format!("[environment]\ncpus={v}")).environment.cpus;
    assert_eq!([cpus("2"), cpus("2.0"), cpus("1.5"), cpus(r#""1.5""#)], [Some(2.0), Some(2.0), Some(1.5), Some(1.5)]);
    is_wrong("[environment]\ncpus=inf", "environment.cpus");
    is_wrong("[environment]\ncpus=-1", "environment.cpus");
    let old = |v: &str| fine(&format!("[environment]\nmemory={v}")).environment.memory_mb;
    for (written, value) in [("2G", 2048), (" 2g ", 2048), ("1.5G", 1536), ("1e1K", 0), ("1_0M", 10), ("1 G", 1024)] {
        assert_eq!(old(&format!("{written:?}")), Some(value), "{written}");
    }
    assert_eq!(old("2"), None, "a number is ignored, as in Harbor");
    is_wrong("[environment]\nmemory=\"2GB\"", "is not a size");
    is_wrong("[environment]\nmemory=\"G\"", "is not a size");
    is_wrong("[environment]\nmemory=\"2G\"\nmemory_mb=1024", "says something else");
    is_wrong("[environment]\nmemory=\"2G\"\nmemory_mb=\"2048\"", "says something else");
    assert_eq!(fine("[environment]\nmemory=\"2G\"\nmemory_mb=2048.0").environment.memory_mb, Some(2048));
    assert_eq!(fine("[environment]\nstorage=\"10G\"").environment.storage_mb, Some(10240));
    let user = |v: &str| fine(&format!("[agent]\nuser={v}")).agent.user;
    assert_eq!(user("1000.0"), Some(User::Id(1000)));
    assert_eq!(user("\"1000\""), Some(User::Name("1000".into())));
    is_wrong("[agent]\nuser=1.5", "agent.user");
    is_wrong("[environment]\nenv={A=1}", "environment.env.A: 1 is not a string");
}

#[test]
fn networks_are_read_as_in_harbor() {
    let network = |toml: &str| fine(&format!("[environment]\n{toml}")).environment.network;
    for (written, open) in [
        ("true", true),
        ("false", false),
        ("0", false),
        ("1", true),
        (r#""no""#, false),
        (r#""TRUE""#, true),
        ("0.0", false),
    ] {
        let expected = if open { Network::Public } else { Network::None };
        assert_eq!(network(&format!("allow_internet={written}")), expected, "{written}");
    }
    is_wrong("[environment]\nallow_internet=2", "allow_internet");
    is_wrong("[environment]\nallow_internet=\"maybe\"", "allow_internet");
    assert_eq!(network("allow_internet=false\nnetwork_mode=\"public\""), Network::Public);
    assert_eq!(network("network_mode=\"no-network\""), Network::None);
    assert_eq!(network("network_mode=\"allowlist\""), Network::Allowlist(Vec::new()));
    is_wrong("[environment]\nnetwork_mode=\"Public\"", "one of no-network, public, allowlist");
    is_wrong("[environment]\nallowed_hosts=[\"a.b\"]", "only has a meaning with");
    is_wrong("[agent]\nallowed_hosts=[]", "only has a meaning with");
    let host = |h: &str| format!("[environment]\nnetwork_mode=\"allowlist\"\nallowed_hosts=[{h:?}]");
    for (written, kept) in [
        ("A.COM.", "a.com"),
        ("*.x", "*.x"),
        ("1.2.3.4", "1.2.3.4"),
        ("10.0.0.0/8", "10.0.0.0/8"),
        ("::1", "::1"),
        ("1.2.3", "1.2.3"),
        ("2001:db8::/32", "2001:db8::/32"),
        ("2001:DB8:0:0::1", "2001:db8::1"),
        ("01.2.3.4", "01.2.3.4"),
        ("0.0.0.0/0", "0.0.0.0/0"),
        ("10.0.0.0/255.0.0.0", "10.0.0.0/8"),
    ] {
        assert_eq!(fine(&host(written)).environment.network, Network::Allowlist(vec![kept.into()]), "{written}");
    }
    for written in [
        "a_b.com",
        "*",
        "10.0.0.1/8",
        "http://x",
        "x:80",
        "[::1]",
        "*.1.2.3.4",
        "fe80::1%eth0",
        "/x",
        "",
        "a..b",
        "-a.b",
        "1.2.3.4/255.255.255.0",
        "10.0.0.0/33",
    ] {
        is_wrong(&host(written), "allowed_hosts: ");
    }
}

#[test]
fn the_rest_is_checked_as_in_harbor() {
    assert_eq!(fine("").schema_version, "1.4");
    assert_eq!(fine("version=\"1.0\"").schema_version, "1.0");
    assert_eq!(fine("version=\"1.0\"\nschema_version=\"1.2\"").schema_version, "1.2");
    is_wrong("version=1.0", "version: 1 is not a string");
    is_wrong("[task]\nname=\"x\"", "is not org/name");
    is_wrong("[task]\nname=\"a/b..c\"", "is not org/name");
    is_wrong("[task]\nversion=\"1\"", "task.name: is required");
    is_wrong("[task]\nname=\"a/b\"\nversion=\"\"", "task.version: is empty");
    is_wrong("multi_step_reward_strategy=\"max\"", "one of mean, final");
    is_wrong("metadata=1", "metadata: 1 is not a table");
    is_wrong("artifacts=\"x\"", "artifacts: \"x\" is not a list");
    is_wrong("artifacts=[\"../x\"]", "\"..\"");
    is_wrong("artifacts=[{source=\"x\",service=\"db\"}]", "must be an absolute path");
    is_wrong("artifacts=[{source=\"/x\",destination=\"/y\"}]", "not a path below");
    is_wrong("artifacts=[{source=\"/x\",destination=\"manifest.json\"}]", "manifest.json");
    assert_eq!(fine("artifacts=[{source=\"x\",destination=\"\"}]").artifacts[0].destination, None);
    is_wrong("[environment.healthcheck]\ninterval_sec=1", "environment.healthcheck.command: is required");
    let health = fine("[environment.healthcheck]\ncommand=\"x\"\nretries=\"3\"").environment.healthcheck.unwrap();
    assert_eq!((health.interval_sec, health.timeout_sec, health.retries), (5.0, 30.0, 3));
    assert_eq!((health.start_period_sec, health.start_interval_sec), (0.0, 5.0));
    assert_eq!(fine("[environment]\nos=\"WINDOWS\"").environment.os, Os::Windows);
    is_wrong("[environment]\nos=\"mac\"", "linux or windows");
    is_wrong("[environment]\ngpu_types=\"T4\"", "not a list");
    is_wrong("[environment.tpu]\ntype=\"v4\"\ntopology=\"2x0\"", "environment.tpu");
    is_wrong("[verifier]\nenvironment_mode=\"shared\"\n[verifier.environment]", "environment_mode");
    assert_eq!(fine("[verifier.environment]\ncpus=1").verifier_mode(None), VerifierMode::Separate);
    is_wrong("[[environment.mcp_servers]]\nname=\"x\"", "url: is required");
    fine("[[environment.mcp_servers]]\nname=\"x\"\ntransport=\"http\"\nurl=\"u\"");
    for name in ["", "..", "a/b", "con.txt", "COM1", "a.", "a\\u0000b", "x*"] {
        is_wrong(&format!("[[steps]]\nname=\"{name}\""), "steps[0].name: ");
    }
    is_wrong("[[steps]]\nname=\"a\"\n[[steps]]\nname=\"A\"", "two are named");
    is_wrong("[[steps]]\nname=\"a\"\nmin_reward={a=\"x\"}", "min_reward");
    is_wrong("steps=1", "steps: 1 is not a list");
    // Everything that is wrong at once, and with what is unknown only noted.
    let (_, problems, notes) =
        read("tiemout=1\n[agent]\ntimeout_sec=\"x\"\nmodel=\"\\u001b[31m\"\n[verifier]\nuser=[]\n[metadata]\nany=1\n");
    assert!(problems.contains("agent.timeout_sec") && problems.contains("verifier.user"), "{problems}");
    assert_eq!(notes, ["agent.model is not known", "tiemout is not known"]);
}

#[test]
fn steps_override_and_must_reach() {
    let config = fine(
        "[agent]\ntimeout_sec=10\nuser=\"a\"\nnetwork_mode=\"no-network\"\n[verifier]\ntimeout_sec=20\nenv={A=\"1\",B=\"2\"}\n\
         [[steps]]\nname=\"one\"\nmin_reward=0.5\n\
         [[steps]]\nname=\"two\"\nmin_reward={x=\"1\",y=0}\nagent={timeout_sec=5,user=7,network_mode=\"public\"}\n\
         verifier={timeout_sec=6,env={B=\"3\",C=\"${X}\"},user=0}\n",
    );
    let (one, two) = (config.steps.first(), config.steps.get(1));
    assert_eq!((config.agent_timeout(one), config.agent_timeout(two)), (Some(10.0), Some(5.0)));
    // The task's own limit does not reach its steps.
    let verifier = [None, one, two].map(|s| config.verifier_timeout(s));
    assert_eq!(verifier, [20.0, 600.0, 6.0]);
    let toml = pilothouse::harbor::task_toml("[verifier]\ntimeout_sec=20\n[[steps]]\nname=\"one\"\n").unwrap();
    let limits = pilothouse::harbor::limits_of_step(&Default::default(), &toml, "one");
    assert_eq!(limits.verifier, Some(600.0));
    assert_eq!(config.agent_user(one), Some(&User::Name("a".into())));
    assert_eq!((config.agent_user(two), config.verifier_user(two)), (Some(&User::Id(7)), Some(&User::Id(0))));
    assert_eq!((config.agent_network(one), config.agent_network(two)), (&Network::None, &Network::Public));
    assert_eq!(config.verifier_network(one), &Network::Public);
    let env = resolve_all(&config.verifier_env(two), |v| (v == "X").then(|| "host".to_string())).unwrap();
    let env: Vec<_> = env.iter().map(|(k, v)| format!("{k}={v}")).collect();
    assert_eq!(env, ["A=1", "B=3", "C=host"]);

    let rewards = |pairs: &[(&str, f64)]| -> Rewards { pairs.iter().map(|(k, v)| (k.to_string(), *v)).collect() };
    let min = one.unwrap().min_reward.clone().unwrap();
    assert_eq!(min, MinReward::Reward(0.5));
    assert_eq!(min.unmet(Some(&rewards(&[("reward", 0.5)]))), None);
    assert_eq!(min.unmet(Some(&rewards(&[("x", 1.0)]))), Some(("reward", None, 0.5)));
    assert_eq!(min.unmet(None), Some(("reward", None, 0.5)));
    let keys = two.unwrap().min_reward.clone().unwrap();
    assert_eq!(keys.unmet(Some(&rewards(&[("x", 1.0), ("y", -1.0)]))), Some(("y", Some(-1.0), 0.0)));

    let ran = [Some(rewards(&[("reward", 1.0), ("x", 1.0)])), None, Some(rewards(&[("reward", 0.0)]))];
    assert_eq!(config.strategy().combine(&ran), Some(rewards(&[("reward", 0.5), ("x", 0.5)])));
    assert_eq!(RewardStrategy::Final.combine(&ran), Some(rewards(&[("reward", 0.0)])));
    assert_eq!(RewardStrategy::Final.combine(&ran[..2]), None);
    assert_eq!(RewardStrategy::Mean.combine(&[None]), None);
    assert_eq!(RewardStrategy::Mean.combine(&[]), None);
}

#[test]
fn templates_stand_for_whole_values() {
    let host = |v: &str| match v {
        "SET" => Some("value".to_string()),
        "EMPTY" => Some(String::new()),
        _ => None,
    };
    for (written, value) in [
        ("plain", "plain"),
        ("${SET}", "value"),
        ("${EMPTY}", ""),
        ("${EMPTY:-x}", ""),
        ("${UNSET:-x}", "x"),
        ("${UNSET:-}", ""),
        ("${UNSET:-a}b}", "a}b"),
        ("a${SET}", "a${SET}"),
        ("${SET}b", "${SET}b"),
        ("${}", "${}"),
        ("${SET:x}", "${SET:x}"),
        ("${SET}${SET}", "${SET}${SET}"),
        ("${UNSET:-a\nb}", "${UNSET:-a\nb}"),
        ("$SET", "$SET"),
    ] {
        assert_eq!(EnvTemplate::new(written).resolve(host).as_deref(), Ok(value), "{written}");
    }
    assert_eq!(EnvTemplate::new("${A:-b}").reads_host(), Some("A"));
    assert_eq!(EnvTemplate::new("a${A}").reads_host(), None);
    let all: EnvTemplates = [("KEY".to_string(), EnvTemplate::new("${API_TOKEN}"))].into();
    let missing = resolve_all(&all, host).unwrap_err();
    assert_eq!(missing.to_string(), "KEY needs the environment variable API_TOKEN, which is not set");
    assert_eq!(EnvTemplate::new("${API_TOKEN}").resolve(host).unwrap_err().variable, "API_TOKEN");
}

#[test]
fn instructions_lose_their_canary() {
    for (text, left) in [
        (
            "<!-- terminal-bench-canary GUID 1 -->\n# CANARY: x\n\n \nDo it.\n# canary stays\n",
            "Do it.\n# canary stays\n",
        ),
        ("# Title\ntext", "# Title\ntext"),
        ("\n\ntext", "text"),
        ("text <!-- canary -->", "text <!-- canary -->"),
        ("<!-- canary", "<!-- canary"),
        ("", ""),
    ] {
        assert_eq!(without_canary(text), left, "{text:?}");
    }
    assert_eq!(with_extra("a\n", &["b".into(), "c".into()]), "a\n\n\nb\n\nc");
    assert_eq!(with_extra("a", &[]), "a");
}

#[test]
fn a_task_says_what_a_run_needs() {
    let temp = tempfile::tempdir().unwrap();
    let dir = task(
        temp.path(),
        "plain",
        "version = \"1.0\"\n[environment]\ndocker_image = \"img:1\"\nmemory = \"2G\"\nfoo = 1\n",
    );
    write(&dir, "instruction.md", "# canary\r\n\r\nDo it.\r\n");
    let plain = Task::load(&dir).unwrap();
    assert_eq!((plain.name.as_str(), plain.short_name(), plain.why_not()), ("plain", "plain", None));
    assert_eq!(plain.notes, ["environment.foo is not known"]);
    let step = &plain.steps[0];
    assert_eq!(step.instruction, "Do it.\n");
    assert_eq!(
        (step.tests.as_slice(), step.test_script.as_deref()),
        (&["tests".to_string()][..], Some("tests/test.sh"))
    );
    assert_eq!((step.solution.as_deref(), step.solve_script.as_deref()), (Some("solution"), Some("solution/solve.sh")));
    assert_eq!((plain.image(false), plain.image(true)), (Image::Prebuilt("img:1"), Image::Build));

    let toml = "[task]\nname=\"org/many\"\n[[steps]]\nname=\"a\"\n[[steps]]\nname=\"b\"\n";
    let dir = task(temp.path(), "steps", toml);
    for path in
        ["steps/a/instruction.md", "steps/a/tests/test.sh", "steps/a/workdir/setup.sh", "steps/a/solution/solve.sh"]
    {
        write(&dir, path, "x");
    }
    assert_eq!(Task::load(&dir), Err(TaskProblem::Missing { path: "steps/b/instruction.md".into() }));
    write(&dir, "steps/b/instruction.md", "y");
    fs::create_dir(dir.join("steps/b/solution")).unwrap();
    let many = Task::load(&dir).unwrap();
    assert_eq!((many.name.as_str(), many.short_name(), many.steps.len()), ("org/many", "many", 2));
    let (a, b) = (&many.steps[0], &many.steps[1]);
    assert_eq!(a.tests, ["tests", "steps/a/tests"]);
    assert_eq!(a.test_script.as_deref(), Some("steps/a/tests/test.sh"));
    assert_eq!(
        (a.solve_script.as_deref(), a.workdir.as_deref()),
        (Some("steps/a/solution/solve.sh"), Some("steps/a/workdir"))
    );
    assert_eq!((b.test_script.as_deref(), b.instruction.as_str()), (Some("tests/test.sh"), "y"));
    assert_eq!((b.solution.as_deref(), b.solve_script.as_deref()), (Some("steps/b/solution"), None));
    assert_eq!(many.spec(b).unwrap().name, "b");
}

#[test]
fn recorded_tasks_are_read() {
    let Some(shared) = support::shared() else { return };
    let all = all_of(&shared.join("data/tasks"));
    for listed in &all {
        let task = listed.task.as_ref().unwrap();
        assert_eq!((task.why_not(), task.notes.as_slice()), (None, &[][..]), "{}", listed.name);
        assert_eq!((task.short_name(), task.lfs_pointers().unwrap().len()), (listed.name.as_str(), 0));
        assert_eq!(task.config.schema_version, "1.1");
    }
    let two = Task::load(&shared.join("data/tasks/two-steps")).unwrap();
    assert_eq!(two.steps.iter().map(|s| s.name.as_deref().unwrap()).collect::<Vec<_>>(), ["first", "second"]);
    assert_eq!(two.config.agent_timeout(two.spec(&two.steps[1])), Some(60.0));
    assert_eq!(two.config.reward_strategy, Some(RewardStrategy::Mean));
}

#[test]
fn what_pilothouse_can_not_run_is_named() {
    let temp = tempfile::tempdir().unwrap();
    let reasons = |name: &str, toml: &str, files: &[&str]| {
        let dir = task(temp.path(), name, toml);
        files.iter().for_each(|f| write(&dir, f, "x"));
        Task::load(&dir).unwrap().unsupported
    };
    assert_eq!(reasons("compose", "", &["environment/docker-compose.yaml"]), [Unsupported::ComposeFile]);
    assert_eq!(reasons("list", "[environment]\nnetwork_mode=\"allowlist\"", &[]), [Unsupported::AllowlistNetwork]);
    assert_eq!(reasons("phase", "[agent]\nnetwork_mode=\"no-network\"", &[]), [Unsupported::PhaseNetwork]);
    assert_eq!(reasons("gpus", "[environment]\ngpus=2", &[]), [Unsupported::Gpus(2)]);
    assert_eq!(reasons("no-gpus", "[environment]\ngpus=0", &[]), []);
    assert_eq!(reasons("sep", "[verifier]\nenvironment_mode=\"separate\"", &[]), [Unsupported::SeparateVerifier]);
    assert_eq!(reasons("side", "artifacts=[{source=\"/x\",service=\"db\"}]", &[]), [Unsupported::Service("db".into())]);
    assert_eq!(reasons("windows", "[environment]\nos=\"windows\"", &["tests/test.bat"]), [Unsupported::Windows]);
    let prior = reasons("prior", "", &["trajectory.json"]);
    assert_eq!((prior.as_slice(), prior[0].hinders_every_agent()), (&[Unsupported::PriorTrajectory][..], false));
    let ignore = "tests/data/.harborignore";
    assert_eq!(reasons("ignore", "", &[ignore]), [Unsupported::HarborIgnore(ignore.into())]);
    let found = Task::load(&temp.path().join("ignore")).unwrap();
    assert!(found.digests().is_err() && found.why_not().unwrap().contains(ignore));
    let tpu = reasons("tpu", "[environment.tpu]\ntype=\"v4\"\ntopology=\"2x2\"", &[]);
    assert_eq!(tpu, [Unsupported::Tpu("v4 2x2".into())]);
    assert_eq!(reasons("mcp", "[[environment.mcp_servers]]\nname=\"x\"\nurl=\"u\"", &[]), []);
}

#[test]
fn wrong_tasks_are_listed_with_their_reason() {
    let temp = tempfile::tempdir().unwrap();
    let at = temp.path();
    task(at, "good-b", "");
    task(at, "good-a", "");
    task(at, "toml", "[agent]\n  timeout_sec = = 3\n");
    task(at, "value", "[agent]\ntimeout_sec = \"\\u001b[31mx\"\n");
    fs::remove_file(task(at, "no-tests", "").join("tests/test.sh")).unwrap();
    fs::remove_file(task(at, "no-words", "").join("instruction.md")).unwrap();
    write(&task(at, "latin", ""), "instruction.md", b"\xff");
    fs::remove_dir_all(task(at, "no-env", "").join("environment")).unwrap();
    fs::remove_dir_all(task(at, "image", "[environment]\ndocker_image=\"x\"").join("environment")).unwrap();
    symlink("/etc", task(at, "leaves", "").join("solution/etc")).unwrap();
    symlink("..", task(at, "circle", "").join("tests/up")).unwrap();
    let fifo = task(at, "fifo", "").join("tests/test.sh");
    fs::remove_file(&fifo).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let fifo = task(at, "fifo-toml", "").join("task.toml");
    fs::remove_file(&fifo).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    write(&task(at, "huge", ""), "task.toml", vec![b'#'; (1 << 20) + 1]);
    fs::create_dir_all(at.join("empty")).unwrap();
    fs::create_dir_all(at.join(".git")).unwrap();
    write(at, "README.md", "x");
    let elsewhere = tempfile::tempdir().unwrap();
    symlink(task(elsewhere.path(), "real-name", ""), at.join("zz-linked")).unwrap();

    let all = all_of(at);
    let shown: Vec<String> = all
        .iter()
        .map(|l| format!("{}: {}", l.name, l.task.as_ref().map_or_else(ToString::to_string, |_| "fine".to_string())))
        .collect();
    assert_eq!(
        shown,
        [
            "circle: tests/up/tests leads round in a circle",
            "empty: task.toml is missing",
            "fifo: tests/test.sh: not a regular file",
            "fifo-toml: task.toml: a FIFO, not a regular file",
            "good-a: fine",
            "good-b: fine",
            "huge: task.toml: 1048577 bytes, more than the 1048576 that are read",
            "image: fine",
            "latin: instruction.md: not UTF-8",
            "leaves: solution/etc is a link that leads out of the task",
            "no-env: environment is missing",
            "no-tests: tests/test.sh is missing",
            "no-words: instruction.md is missing",
            "toml: task.toml line 2, column 17: extra `=`, expected nothing",
            "value: task.toml: agent.timeout_sec: \"␛[31mx\" is not a number of seconds",
            "real-name: fine",
        ]
    );
    // One task by its own directory; without verification no script is needed.
    assert_eq!(list(&at.join("good-a")).unwrap().len(), 1);
    assert_eq!(list(&at.join("toml")).unwrap()[0].name, "toml");
    assert!(Task::load_for(&at.join("no-tests"), false).is_ok());
    assert!(list(&at.join("nowhere")).is_err());

    let names = |selection: Selection| -> Vec<String> {
        selection.apply(list(at).unwrap()).unwrap().into_iter().map(|l| l.name).collect()
    };
    let words = |list: &[&str]| list.iter().map(ToString::to_string).collect::<Vec<_>>();
    let (include, exclude) = (words(&["good-*", "fifo", "real-nam[e]"]), words(&["*-b"]));
    assert_eq!(names(Selection { include, exclude, limit: None }), ["fifo", "good-a", "real-name"]);
    // Wrong ones do not use up the limit.
    let two = Selection { limit: Some(2), ..Selection::default() };
    assert_eq!(names(two), ["circle", "empty", "fifo", "fifo-toml", "good-a", "good-b"]);
    let none = Selection { include: words(&["absent*"]), ..Selection::default() };
    let Err(SelectionProblem::NoMatch { count, examples, .. }) = none.apply(list(at).unwrap()) else { panic!() };
    assert_eq!((count, examples.len()), (16, 5));
}

#[test]
fn globs_fit_as_pythons() {
    // Pattern, names that fit, names that do not: Python 3.13's fnmatch on POSIX.
    for (pattern, fit, not) in [
        ("*", &["", "a", "a/b", "\n"][..], &[][..]),
        ("a?c", &["abc", "a.c"], &["ac", "abbc", "ABC"]),
        ("[a-c]*", &["a", "bx"], &["d", "-"]),
        ("[!a-c]", &["d", "-", "/"], &["a", "dd"]),
        ("[]a]", &["]", "a"], &["[", ""]),
        ("[a-]", &["a", "-"], &["b"]),
        ("[", &["["], &["a"]),
        ("[z-a]", &[], &["z", "a", "-"]),
        ("[!z-a]", &["z", "/"], &[""]),
        ("[^a]", &["^", "a"], &["b"]),
        ("a**b", &["ab", "axxb"], &["a"]),
        ("x.y+(1)", &["x.y+(1)"], &["xzy+(1)"]),
        ("[a-b-d]", &["a", "b", "-", "d"], &["c"]),
        ("[&&~~--]", &["&", "~"], &["a"]),
    ] {
        let glob = Glob::new(pattern).unwrap();
        for name in fit {
            assert!(glob.matches(name), "{pattern} {name:?}");
        }
        for name in not {
            assert!(!glob.matches(name), "{pattern} {name:?}");
        }
    }
    let hostile = "a*".repeat(500) + "b";
    assert!(!Glob::new(&hostile).unwrap().matches(&"a".repeat(20_000)));
    assert!(Glob::new(&"?".repeat(3_000_000)).is_err());
}

#[test]
fn pointers_and_hostile_trees() {
    let temp = tempfile::tempdir().unwrap();
    let dir = task(temp.path(), "lfs", "");
    let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n";
    for path in ["environment/model.bin", "tests/deep/er/data", "solution/x", "elsewhere/x"] {
        write(&dir, path, pointer);
    }
    write(&dir, "tests/doc.md", format!("A pointer begins with\n{pointer}"));
    write(&dir, "tests/long", pointer.to_string() + &"x".repeat(2000));
    let found = Task::load(&dir).unwrap();
    assert_eq!(found.lfs_pointers().unwrap(), ["environment/model.bin", "solution/x", "tests/deep/er/data"]);

    // In the environment a link out of the task is only met when contents are read.
    let dir = task(temp.path(), "link", "");
    symlink("/etc/hostname", dir.join("environment/host")).unwrap();
    let found = Task::load(&dir).unwrap();
    assert_eq!(found.digests(), Err(TaskProblem::Leaves { path: "environment/host".into() }));
    let dir = task(temp.path(), "toml-link", "");
    fs::remove_file(dir.join("task.toml")).unwrap();
    symlink("/etc/hostname", dir.join("task.toml")).unwrap();
    assert_eq!(Task::load(&dir), Err(TaskProblem::Leaves { path: "task.toml".into() }));
    // Links inside are followed, absolute ones too.
    let dir = task(temp.path(), "inside", "");
    fs::rename(dir.join("instruction.md"), dir.join("real.md")).unwrap();
    symlink(fs::canonicalize(&dir).unwrap().join("real.md"), dir.join("instruction.md")).unwrap();
    assert_eq!(Task::load(&dir).unwrap().steps[0].instruction, "Do it.\n");
    // Links that double with each level: 2^40 paths, 40 directories.
    let dir = task(temp.path(), "bomb", "");
    for level in 0..40 {
        let at = dir.join(format!("tests/{level}"));
        fs::create_dir(&at).unwrap();
        symlink(format!("../{}", level + 1), at.join("a")).unwrap();
        symlink(format!("../{}", level + 1), at.join("b")).unwrap();
    }
    let begun = std::time::Instant::now();
    Task::load(&dir).unwrap().digests().unwrap();
    assert!(begun.elapsed().as_secs() < 10, "{:?}", begun.elapsed());
    let dir = task(temp.path(), "deep", "");
    fs::create_dir_all(dir.join("solution").join("d/".repeat(120))).unwrap();
    assert!(matches!(Task::load(&dir), Err(TaskProblem::TooLarge { .. })));
    // A name that is not UTF-8.
    let dir = task(temp.path(), "name", "");
    let name = <std::ffi::OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(b"\xff\x1b[31m");
    fs::write(dir.join("tests").join(name), "x").unwrap();
    let problem = Task::load(&dir).unwrap_err();
    assert!(matches!(problem, TaskProblem::NotUtf8 { .. }) && !problem.to_string().contains('\x1b'), "{problem}");
    // A rule that Harbor can not read either.
    for rule in ["!", "a\\", "[z-a]"] {
        let dir = task(temp.path(), "rules", "");
        write(&dir, ".gitignore", rule);
        let problem = Task::load(&dir).unwrap().digests().unwrap_err();
        assert!(problem.to_string().starts_with(".gitignore: pattern"), "{rule} {problem}");
    }
}

/// Writes the odd tree where Harbor's own code can be run over it; see `tests/task.rs`'s figures.
#[test]
#[ignore = "writes the tree whose figures are expected above to PILOTHOUSE_ODD_TREE"]
fn write_the_odd_tree() {
    let place = PathBuf::from(std::env::var_os("PILOTHOUSE_ODD_TREE").unwrap());
    odd_tree(&place);
    write(&place, "gitignore", GITIGNORE);
}
