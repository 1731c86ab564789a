//! Rows of the list of what operators struggle with: each a small job dir.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use pilothouse::job::slots::Rule;
use pilothouse::job::{AlarmLimits, Classification, Flag, Fleet, Stamp, alarms, tally};
use serde_json::Value;

use crate::labels::classified;
use crate::stage::{At, PYTEST_FAILED, Trial, job, planned};

fn class<'a>(fleet: &'a Fleet, task: &str) -> &'a Classification {
    let job = &fleet.jobs()[0];
    let trial = &job.trials[format!("{task}__AbCdEfG").as_str()];
    job.class_of(trial).unwrap()
}

fn one(trial: Trial) -> (tempfile::TempDir, Fleet) {
    let temp = tempfile::tempdir().unwrap();
    let fleet = classified(&job(temp.path(), "row", &[trial]));
    (temp, fleet)
}

fn kinds(fleet: &Fleet) -> Vec<(String, String)> {
    let now = Stamp::now();
    let tally = tally::count_side_by_side(fleet, Rule::default(), now);
    tally.warnings.iter().map(|w| (w.kind.word().to_string(), w.message.clone())).collect()
}

fn warning(fleet: &Fleet, kind: &str) -> String {
    let kinds = kinds(fleet);
    kinds.iter().find(|(k, _)| k == kind).unwrap_or_else(|| panic!("no {kind} in {kinds:?}")).1.clone()
}

/// The binary's JSON and exit code.
fn run(args: &[&str]) -> (Value, i32) {
    let out = std::process::Command::new(env!("CARGO_BIN_EXE_pilothouse"))
        .args(args)
        .env("XDG_CONFIG_HOME", "/nonexistent")
        .output()
        .unwrap();
    let value = serde_json::from_slice(&out.stdout).unwrap_or(Value::Null);
    (value, out.status.code().unwrap())
}

/// A job as the follower sees it while its owner may be alive.
fn alive(dir: &Path) -> Fleet {
    let mut fleet = Fleet::default();
    let options = pilothouse::follow::Options::default();
    let mut follower = pilothouse::follow::Follower::new(vec![dir.to_path_buf()], options);
    follower.scan_once(&mut |events| {
        events.into_iter().for_each(|event| fleet.apply(event));
        true
    });
    let key = fleet.jobs()[0].key;
    let liveness = pilothouse::job::Liveness {
        owner: Some((4_000_000, "harbor".into())),
        owner_search_conclusive: true,
        owner_left: None,
        last_write: Some(Stamp::now()),
        ..Default::default()
    };
    fleet.apply(pilothouse::job::JobEvent::Liveness(key, liveness));
    fleet
}

fn age(path: &Path, seconds: u64) {
    let then = SystemTime::now() - Duration::from_secs(seconds);
    let times = fs::FileTimes::new().set_modified(then).set_accessed(then);
    fs::File::open(path).unwrap().set_times(times).unwrap();
}

fn alarms_of(fleet: &Fleet, now: Stamp) -> Vec<alarms::Alarm> {
    alarms::of_job(&fleet.jobs()[0], &AlarmLimits::default(), now)
}

#[test]
fn row_21_a_job_that_never_starts_a_trial() {
    let temp = tempfile::tempdir().unwrap();
    let dir = planned(temp.path(), "row", &[], 89, false);
    let fleet = alive(&dir);
    let created = fleet.jobs()[0].facts.created.unwrap();
    let at = |minutes: u64| alarms_of(&fleet, created + Duration::from_secs(minutes * 60));
    assert!(at(5).is_empty(), "{:?}", at(5));
    let alarm = &at(40)[0];
    assert_eq!(alarm.kind.word(), "not_started");
    assert!(alarm.message.contains("89") && alarm.message.contains("40"), "{alarm:?}");
}

fn open_trial(dir: &Path, name: &str) -> std::path::PathBuf {
    let trial = dir.join(name);
    fs::create_dir_all(&trial).unwrap();
    let task = name.split("__").next().unwrap();
    let config = serde_json::json!({"task": {"path": format!("tasks/{task}")}, "trial_name": name, "agent": {"name": "terminus-2",
        "override_timeout_sec": 900.0}});
    fs::write(trial.join("config.json"), config.to_string()).unwrap();
    trial
}

#[test]
fn row_22_an_agent_that_writes_nothing_for_hours() {
    let temp = tempfile::tempdir().unwrap();
    let dir = planned(temp.path(), "row", &[], 1, false);
    let trial = open_trial(&dir, "later-0__AbCdEfG");
    fs::create_dir_all(trial.join("agent")).unwrap();
    let begin = Stamp::now() - Duration::from_secs(7_500);
    let steps = serde_json::json!({"schema_version": "ATIF-v1.7", "session_id": "s", "agent": {"name": "t", "version": "2"},
        "steps": [{"step_id": 1, "timestamp": begin.to_string(), "source": "user", "message": "x"},
            {"step_id": 2, "timestamp": begin.to_string(), "source": "agent", "message": "y"}]});
    fs::write(trial.join("agent/trajectory.json"), steps.to_string()).unwrap();
    let quiet = |seconds| {
        for path in ["config.json", "agent/trajectory.json", "agent", ""] {
            age(&trial.join(path), seconds);
        }
        let found = alarms_of(&alive(&dir), Stamp::now());
        found.into_iter().find(|a| a.kind.word() == "silent").map(|a| (a.trial, a.message))
    };
    let (trial, said) = quiet(7_400).unwrap();
    assert_eq!(trial.as_deref(), Some("later-0__AbCdEfG"));
    assert!(said.contains("2 h 3 m"), "{said}");
    assert_eq!(quiet(600), None);
}

#[test]
fn row_25_an_environment_that_does_not_come_up() {
    let temp = tempfile::tempdir().unwrap();
    let dir = planned(temp.path(), "row", &[], 1, false);
    let trial = open_trial(&dir, "slow__AbCdEfG");
    age(&trial.join("config.json"), 700);
    let fleet = alive(&dir);
    let alarm = &alarms_of(&fleet, Stamp::now())[0];
    assert_eq!(alarm.kind.word(), "slow_start");
    assert!(alarm.message.contains("environment setup for 11") && alarm.message.contains("slow__"), "{alarm:?}");
    // A trial that began a minute ago raises nothing.
    age(&trial.join("config.json"), 60);
    assert!(alarms_of(&alive(&dir), Stamp::now()).is_empty());
}

#[test]
fn row_26_an_agent_beyond_its_limit() {
    let temp = tempfile::tempdir().unwrap();
    let dir = planned(temp.path(), "row", &[], 1, false);
    let trial = open_trial(&dir, "slow__AbCdEfG");
    fs::create_dir_all(trial.join("agent")).unwrap();
    let begin = Stamp::now() - Duration::from_secs(3_000);
    let steps = serde_json::json!({"schema_version": "ATIF-v1.7", "session_id": "s", "agent": {"name": "t", "version": "2"},
        "steps": [{"step_id": 1, "timestamp": begin.to_string(), "source": "user", "message": "x"},
            {"step_id": 2, "timestamp": begin.to_string(), "source": "agent", "message": "y"}]});
    fs::write(trial.join("agent/trajectory.json"), steps.to_string()).unwrap();
    let fleet = alive(&dir);
    let found = alarms_of(&fleet, Stamp::now());
    assert_eq!(found[0].kind.word(), "over_budget", "{found:?}");
    assert!(found[0].message.contains("50") && found[0].message.contains("15"), "{found:?}");
}

#[test]
fn row_27_a_timeout_message_that_disagrees_with_the_clock() {
    let trial =
        Trial::new("clock").raised(At::Agent, "AgentTimeoutError", "Agent execution timed out after 1800.0 seconds");
    let (_temp, fleet) = one(trial.took(200).reward(0.0).stdout(PYTEST_FAILED));
    let said = class(&fleet, "clock");
    assert_eq!((said.class.word(), said.flags.clone()), ("unclassified", vec![Flag::TimeoutDisagrees]));
    assert!(warning(&fleet, "timeout_disagrees").contains("clock__AbCdEfG"));
}

#[test]
fn rows_29_30_57_a_wall_reached_while_thinking() {
    let trial =
        Trial::new("think").raised(At::Agent, "AgentTimeoutError", "Agent execution timed out after 3600.0 seconds");
    let (_temp, fleet) = one(trial.took(3_600).tokens(Some((2_400, 650)), Some(2)).reward(0.0).stdout(PYTEST_FAILED));
    let said = class(&fleet, "think");
    assert_eq!((said.class.word(), said.sub.as_deref()), ("agent_timeout", Some("runaway")));
    assert!(said.flags.contains(&Flag::FewTokens) && said.flags.contains(&Flag::Runaway));
    let texts: Vec<&str> = said.evidence.iter().map(|e| &*e.text).collect();
    assert!(texts.iter().any(|t| t.contains("650 output tokens in 3600 s")), "{texts:?}");
    assert!(warning(&fleet, "few_tokens").contains("long timeout"));
}

#[test]
fn rows_29_30_how_long_before_the_wall_something_was_done_last() {
    let trial =
        Trial::new("wall").raised(At::Agent, "AgentTimeoutError", "Agent execution timed out after 3600.0 seconds");
    let trial = trial.took(3_600).tokens(Some((90_000, 61_000)), Some(20)).reward(0.0).stdout(PYTEST_FAILED);
    let (temp, fleet) = one(trial);
    let path = temp.path().join("row");
    assert!(class(&fleet, "wall").evidence.iter().all(|e| !e.text.contains("last step")));
    let end = fleet.jobs()[0].trials["wall__AbCdEfG"].result.as_ref().unwrap().spans.agent.finished.unwrap();
    let step = |id: u64, at: Stamp| serde_json::json!({"step_id": id, "timestamp": at.to_string(), "source": "agent", "message": "m"});
    let before = |minutes: u64| end - Duration::from_secs(60 * minutes);
    let steps = serde_json::json!({"schema_version": "ATIF-v1.7", "session_id": "s",
        "agent": {"name": "t", "version": "2"}, "steps": [step(1, before(58)), step(2, before(46))]});
    fs::create_dir_all(path.join("wall__AbCdEfG/agent")).unwrap();
    fs::write(path.join("wall__AbCdEfG/agent/trajectory.json"), steps.to_string()).unwrap();
    let fleet = classified(&path);
    let last = class(&fleet, "wall").evidence.iter().find(|e| e.text.contains("last step")).unwrap().clone();
    assert_eq!(&*last.path, "agent/trajectory.json");
    assert!(last.text.contains("46 m"), "{last:?}");
}

/// Three of five trials at their wall, one more at work, under limits of an hour and ten minutes.
fn walls(root: &Path) -> Fleet {
    let wall = |n: u32| {
        Trial::new(&format!("wall-{n}"))
            .raised(At::Agent, "AgentTimeoutError", "Agent execution timed out after 10800.0 seconds")
            .took(10_800)
            .reward(0.0)
            .stdout(PYTEST_FAILED)
    };
    let dir = planned(root, "row", &[wall(1), wall(2), wall(3)], 5, false);
    let trial = open_trial(&dir, "slow__AbCdEfG");
    let config = serde_json::json!({"task": {"path": "tasks/slow"}, "trial_name": "slow__AbCdEfG",
        "agent": {"name": "terminus-2", "override_timeout_sec": 10800.0}, "verifier": {"override_timeout_sec": 600.0}});
    fs::write(trial.join("config.json"), config.to_string()).unwrap();
    alive(&dir)
}

#[test]
fn row_23_nothing_but_timeouts_is_an_alarm_with_the_worst_case() {
    let temp = tempfile::tempdir().unwrap();
    let fleet = walls(temp.path());
    let found = alarms_of(&fleet, Stamp::now());
    let alarm = found.iter().find(|a| a.kind.word() == "all_timeouts").unwrap_or_else(|| panic!("{found:?}"));
    assert!(alarm.message.contains("all 3 ended of 5 planned"), "{alarm:?}");
    assert!(alarm.message.contains("worst case for the rest: "), "{alarm:?}");
    // One that was solved at its wall, and it is no alarm.
    let mut solved = fleet.jobs()[0].trials["wall-2__AbCdEfG"].clone();
    let mut result = (**solved.result.as_ref().unwrap()).clone();
    result.rewards = pilothouse::job::Rewards::Keys(vec![("reward".into(), pilothouse::job::RewardValue::Number(1.0))]);
    solved.result = Some(result.into());
    let mut fleet = fleet;
    let key = fleet.jobs()[0].key;
    fleet.apply(pilothouse::job::JobEvent::Trial(key, Box::new(solved)));
    assert!(alarms_of(&fleet, Stamp::now()).iter().all(|a| a.kind.word() != "all_timeouts"));
}

#[test]
fn row_24_a_trial_that_nobody_will_finish_is_orphaned_and_left_as_it_is() {
    let temp = tempfile::tempdir().unwrap();
    let dir = planned(temp.path(), "row", &[], 1, false);
    let trial = open_trial(&dir, "later-0__AbCdEfG");
    age(&trial.join("config.json"), 40 * 86_400);
    for name in ["config.json", "lock.json", "result.json"] {
        age(&dir.join(name), 40 * 86_400);
    }
    age(&trial, 40 * 86_400);
    age(&dir, 40 * 86_400);
    let before = fs::read(trial.join("config.json")).unwrap();
    let (document, code) = run(&["triage", "--json", dir.to_str().unwrap()]);
    let only = &document["trials"][0];
    assert_eq!((only["class"].as_str(), code), (Some("orphaned"), 1), "{document}");
    assert_eq!(fs::read(trial.join("config.json")).unwrap(), before);
    assert_eq!(fs::read_dir(&trial).unwrap().count(), 1, "nothing is made or removed");
}

#[test]
fn row_33_a_job_that_outlasts_the_time_around_it() {
    let temp = tempfile::tempdir().unwrap();
    let fleet = walls(temp.path());
    let now = Stamp::now();
    let with = |hours: u64| {
        let deadline = Some(now + Duration::from_secs(3_600 * hours));
        let found = alarms::of_job(&fleet.jobs()[0], &AlarmLimits { deadline, ..AlarmLimits::default() }, now);
        found.into_iter().find(|a| a.kind.word() == "deadline").map(|a| a.message)
    };
    assert!(with(1).unwrap().contains("will not end before"), "{:?}", with(1));
    assert_eq!(with(100), None);
    // The option takes a time or a span, and says so.
    let dir = temp.path().join("row");
    let dir = dir.to_str().unwrap();
    assert!(matches!(run(&["status", "--json", "--deadline", "+2h30m", dir]).1, 0 | 1));
    assert!(matches!(run(&["status", "--json", "--deadline", "2026-11-30T18:00:00Z", dir]).1, 0 | 1));
    assert_eq!(run(&["status", "--json", "--deadline", "soon", dir]).1, 2);
}

#[test]
fn row_56_tokens_of_trials_at_work_are_summed_as_they_grow() {
    let temp = tempfile::tempdir().unwrap();
    let dir = planned(temp.path(), "row", &[], 2, false);
    for (name, output) in [("later-0__AbCdEfG", 650), ("later-1__AbCdEfG", 1_200)] {
        let trial = open_trial(&dir, name);
        fs::create_dir_all(trial.join("agent")).unwrap();
        let steps = serde_json::json!({"schema_version": "ATIF-v1.7", "session_id": "s",
            "agent": {"name": "t", "version": "2"}, "final_metrics": {"total_prompt_tokens": 40_000,
            "total_completion_tokens": output},
            "steps": [{"step_id": 1, "timestamp": Stamp::now().to_string(), "source": "user", "message": "x"},
                {"step_id": 2, "timestamp": Stamp::now().to_string(), "source": "agent", "message": "y"}]});
        fs::write(trial.join("agent/trajectory.json"), steps.to_string()).unwrap();
    }
    let fleet = alive(&dir);
    let tokens = tally::count_side_by_side(&fleet, Rule::default(), Stamp::now()).tokens;
    assert_eq!((tokens.live.input, tokens.live.output), (Some(80_000), Some(1_850)), "{tokens:?}");
    assert_eq!((tokens.sum.output, tokens.of), (None, 0), "what is at work is no part of what has ended");
}

#[test]
fn row_31_a_timeout_with_a_reward_is_a_pass() {
    let trial =
        Trial::new("wall").raised(At::Agent, "AgentTimeoutError", "Agent execution timed out after 1200.0 seconds");
    let (_temp, fleet) =
        one(trial.reward(1.0).stdout("===== test session starts =====\ncollected 1 item\n1 passed in 1s\n"));
    let said = class(&fleet, "wall");
    assert_eq!((said.class.word(), said.flags.is_empty()), ("passed", true));
}

#[test]
fn row_35_no_subnet_left() {
    let text = "Docker compose command failed\nstderr: Error response from daemon: all predefined address pools have been fully subnetted";
    let (_temp, fleet) = one(Trial::new("pools").raised(At::Environment, "RuntimeError", text));
    let said = class(&fleet, "pools");
    assert_eq!((said.class.word(), said.sub.as_deref()), ("infra", Some("docker-network")));
    assert_eq!(said.evidence[0].path.as_ref(), "exception.txt");
    assert_eq!(said.evidence[0].line, Some(5));
}

#[test]
fn row_36_an_empty_metrics_list() {
    let (temp, _) = one(Trial::new("first").raised(At::Agent, "RuntimeError", "x"));
    let path = temp.path().join("row/result.json");
    let mut result: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    result["stats"]["evals"] =
        serde_json::json!({"a__m__d": {"n_trials": 0, "n_errors": 1, "metrics": [], "reward_stats": {}}});
    fs::write(&path, result.to_string()).unwrap();
    let (document, code) = run(&["triage", "--json", temp.path().join("row").to_str().unwrap()]);
    assert_eq!((document["trials"][0]["class"].as_str(), code), (Some("unclassified"), 1));
}

#[test]
fn rows_38_39_a_verifier_that_never_ran_its_tests() {
    let cases = [
        ("uv", "curl: (6) Could not resolve host: astral.sh\n/tests/test.sh: line 20: uvx: command not found\n"),
        (
            "proxy",
            "E: Failed to fetch http://deb.mirror.example/x  502  Bad Gateway\n/tests/test.sh: line 9: curl: command not found\n",
        ),
    ];
    let temp = tempfile::tempdir().unwrap();
    let trials: Vec<Trial> = cases.iter().map(|(name, text)| Trial::new(name).stdout(text)).collect();
    let fleet = classified(&job(temp.path(), "row", &trials));
    for (name, _) in cases {
        let said = class(&fleet, name);
        assert_eq!((said.class.word(), said.flags.clone()), ("infra", vec![Flag::TestsNeverRan]), "{name}");
        assert_eq!(said.evidence[0].path.as_ref(), "verifier/test-stdout.txt");
    }
    assert!(warning(&fleet, "tests_never_ran").starts_with("2 trials"));
}

#[test]
fn row_41_the_reward_on_disk_counts_more_than_words() {
    let trial =
        Trial::new("words").raised(At::Agent, "RuntimeError", "infrastructure error: 502 Bad Gateway, rate limit");
    let (_temp, fleet) = one(trial.reward(1.0).stdout("1 passed in 1s\n"));
    assert_eq!(class(&fleet, "words").class.word(), "passed");
}

#[test]
fn row_42_a_type_of_ones_own() {
    let temp = tempfile::tempdir().unwrap();
    let dir = job(temp.path(), "row", &[Trial::new("new").raised(At::Agent, "OrbitalError", "lost in space")]);
    let (before, code) = run(&["triage", "--json", dir.to_str().unwrap()]);
    assert_eq!((before["trials"][0]["class"].as_str(), code), (Some("unclassified"), 1));
    let own = temp.path().join("own.toml");
    fs::write(&own, "[rules.orbit]\nexception = [\"Orbital*\"]\nmatch = [{ in = [\"message\"], any = ['lost in space'] }]\nclass = \"infra\"\nsub = \"orbit\"\nwhy = \"our provider\"\n").unwrap();
    let (after, code) = run(&["triage", "--json", "--classes", own.to_str().unwrap(), dir.to_str().unwrap()]);
    let trial = &after["trials"][0];
    assert_eq!((trial["class"].as_str(), trial["rule"].as_str(), code), (Some("infra"), Some("orbit"), 3));
    assert_eq!(trial["evidence"][0]["path"], "exception.txt");
    assert_eq!(trial["evidence"][0]["line"], 4);
}

#[test]
fn row_43_non_zero_exits_are_split_by_evidence() {
    let exit = |name: &str, log: &str| {
        let trial = Trial::new(name).raised(
            At::Verifier,
            "NonZeroAgentExitCodeError",
            "Command failed (exit 1): mini-swe-agent",
        );
        trial.reward(0.0).mini(log).stdout(PYTEST_FAILED)
    };
    let setup = |name: &str, output: &str| {
        Trial::new(name).raised(
            At::Setup,
            "NonZeroAgentExitCodeError",
            &format!("Command failed (exit 100): install\n{output}"),
        )
    };
    let temp = tempfile::tempdir().unwrap();
    let trials = [
        setup("expired", "E: Release file for http://x/InRelease is expired (invalid since 12d)"),
        setup("no-ps", "/bin/sh: 1: ps: not found"),
        exit("window", "litellm.ContextWindowExceededError: This model's maximum context length is 262144 tokens\n"),
        exit("cut", "Terminated: exec time limit reached\n"),
        exit("nothing-known", "step 12\n"),
    ];
    let fleet = classified(&job(temp.path(), "row", &trials));
    let said = |task: &str| (class(&fleet, task).class.word(), class(&fleet, task).sub.clone());
    assert_eq!(said("expired"), ("infra", Some("package-mirror".into())));
    assert_eq!(said("no-ps"), ("infra", Some("image".into())));
    assert_eq!(said("window"), ("context_exceeded", None));
    assert_eq!(said("cut"), ("agent_timeout", None));
    assert_eq!(said("nothing-known"), ("unclassified", None));
    // Harbor counts the reward of all of these and tries none again.
    assert!(class(&fleet, "expired").harbor_differs.is_some_and(|p| p.has_valid_reward && !p.should_retry));
    assert_eq!(class(&fleet, "window").harbor_differs, None);
}

#[test]
fn rows_44_50_all_trials_die_alike_within_minutes() {
    let temp = tempfile::tempdir().unwrap();
    let trials: Vec<Trial> = (0..8)
        .map(|i| {
            let text = "Command failed (exit 2): set -o pipefail; apt-get update\nstdout: \nstderr: /bin/sh: 1: set: Illegal option -o pipefail";
            let mut trial = Trial::new(&format!("task-{i}")).raised(At::Setup, "NonZeroAgentExitCodeError", text);
            trial.start = i * 40;
            trial
        })
        .collect();
    let dir = planned(temp.path(), "row", &trials, 89, false);
    let fleet = classified(&dir);
    let message = warning(&fleet, "systemic");
    assert!(message.contains("8 of 8 ended trials failed alike, 9 % of all 89 planned"), "{message}");
    assert!(message.contains("shell"), "{message}");
    let (document, code) = run(&["status", "--json", dir.to_str().unwrap()]);
    assert_eq!(code, 3);
    let kinds: Vec<&str> =
        document["attention"].as_array().unwrap().iter().filter_map(|a| a["kind"].as_str()).collect();
    assert!(kinds.contains(&"systemic") && kinds.contains(&"infra_burst"), "{kinds:?}");
}

#[test]
fn row_44_failures_of_different_kinds_are_not_systemic() {
    let temp = tempfile::tempdir().unwrap();
    let trials: Vec<Trial> = (0..10)
        .map(|i| {
            if i < 4 {
                Trial::new(&format!("t-{i}")).raised(
                    At::Agent,
                    "RuntimeError",
                    &format!("odd {}", ["a", "b", "c", "d"][i]),
                )
            } else {
                Trial::new(&format!("t-{i}")).stdout(PYTEST_FAILED)
            }
        })
        .collect();
    let fleet = classified(&job(temp.path(), "row", &trials));
    assert!(kinds(&fleet).iter().all(|(k, _)| k != "systemic"), "{:?}", kinds(&fleet));
}

#[test]
fn row_45_finished_without_one_token() {
    let temp = tempfile::tempdir().unwrap();
    let silent = Trial::new("silent-model").tokens(Some((0, 0)), Some(6)).stdout(PYTEST_FAILED);
    let key = Trial::new("bad-key")
        .tokens(Some((0, 0)), Some(2))
        .log("LLM interaction: litellm.AuthenticationError: Incorrect API key provided\n");
    let oracle = {
        let mut trial = Trial::new("no-model").tokens(None, None).stdout(PYTEST_FAILED);
        trial.agent = "oracle";
        trial
    };
    let fleet = classified(&job(temp.path(), "row", &[silent, key.stdout(PYTEST_FAILED), oracle]));
    assert_eq!(class(&fleet, "silent-model").class.word(), "infra");
    assert_eq!(class(&fleet, "bad-key").class.word(), "config");
    assert_eq!(class(&fleet, "no-model").class.word(), "failed");
    assert!(warning(&fleet, "zero_tokens").starts_with("2 trials"));
    assert!(warning(&fleet, "config").contains("bad-key"));
}

#[test]
fn row_46_a_run_of_one_unknown_error() {
    // 59 of 80, as the run on the leaderboard had them.
    let temp = tempfile::tempdir().unwrap();
    let trials: Vec<Trial> = (0..80)
        .map(|i| {
            let mut trial = match i {
                0..59 => Trial::new(&format!("t-{i}")).raised(
                    At::Agent,
                    "UnknownAgentError",
                    &format!("agent failed in session {i}"),
                ),
                59..65 => Trial::new(&format!("t-{i}")).reward(1.0).stdout("1 passed in 1s\n"),
                _ => Trial::new(&format!("t-{i}")).stdout(PYTEST_FAILED),
            };
            trial.agent_seconds = 60;
            trial
        })
        .collect();
    let fleet = classified(&job(temp.path(), "row", &trials));
    assert!(warning(&fleet, "systemic").contains("59 of 80 ended trials failed alike, 74 % of all 80 planned"));
}

#[test]
fn row_47_rewards_that_are_no_number() {
    let temp = tempfile::tempdir().unwrap();
    let dir = job(temp.path(), "row", &[Trial::new("keys").stdout("{\"a\": 0.5}\n")]);
    let path = dir.join("keys__AbCdEfG/result.json");
    let mut result: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    result["verifier_result"] = serde_json::json!({"rewards": {"a": 0.5, "b": 1}});
    fs::write(&path, result.to_string()).unwrap();
    let fleet = classified(&dir);
    assert_eq!(class(&fleet, "keys").class.word(), "unclassified");
    assert!(warning(&fleet, "no_primary_reward").contains("a, b"));
}

#[test]
fn row_49_a_reason_and_a_next_step_for_each() {
    let temp = tempfile::tempdir().unwrap();
    let dir = job(
        temp.path(),
        "row",
        &[
            Trial::new("solved").reward(1.0).stdout("1 passed in 1s\n"),
            Trial::new("wrong").stdout(PYTEST_FAILED),
            Trial::new("gate").raised(At::Agent, "InternalServerError", "504 Gateway Time-out"),
        ],
    );
    let (document, code) = run(&["triage", "--json", dir.to_str().unwrap()]);
    assert_eq!((document["schema_version"].as_u64(), code), (Some(1), 3));
    assert_eq!((document["total"]["trials"].as_u64(), document["total"]["listed"].as_u64()), (Some(3), Some(2)));
    let trials = document["trials"].as_array().unwrap();
    assert_eq!(trials[0]["class"], "infra", "worst first");
    for trial in trials {
        assert!(trial["evidence"][0]["path"].is_string() && trial["action"].is_string() && trial["why"].is_string());
    }
    let (only, code) = run(&["triage", "--json", "--class", "failed", dir.to_str().unwrap()]);
    assert_eq!((only["trials"].as_array().unwrap().len(), code), (1, 0));
}

#[test]
fn row_19_faults_within_minutes_of_each_other() {
    let temp = tempfile::tempdir().unwrap();
    let trials: Vec<Trial> = (0..12)
        .map(|i| {
            let mut trial = if i % 3 == 0 {
                Trial::new(&format!("t-{i}")).raised(At::Environment, "SandboxError", "connection lost")
            } else {
                Trial::new(&format!("t-{i}")).stdout(PYTEST_FAILED)
            };
            trial.start = i * 60;
            trial.agent_seconds = 30;
            trial
        })
        .collect();
    let dir = job(temp.path(), "row", &trials);
    let message = warning(&classified(&dir), "infra_burst");
    assert!(message.contains("4 faults") && message.contains("sandbox 4"), "{message}");
    assert_eq!(run(&["status", "--json", dir.to_str().unwrap()]).1, 3);
}

#[test]
fn row_52_escapes_of_a_log_do_not_reach_the_evidence() {
    let log = "\u{1b}]0;owned\u{7}\u{1b}[31mcurl: (6) Could not resolve host: \u{202e}astral.sh\u{1b}[0m\nuvx: command not found\nAPI_KEY=sk-secret-000000000\n";
    let (_temp, fleet) = one(Trial::new("escape").stdout(log));
    let said = class(&fleet, "escape");
    assert_eq!(said.class.word(), "infra");
    for excerpt in &said.evidence {
        assert!(!excerpt.text.chars().any(|c| c.is_control() || c == '\u{202e}'), "{excerpt:?}");
        assert!(!excerpt.text.contains("sk-secret"), "{excerpt:?}");
    }
}

#[test]
fn row_53_unknown_tokens_are_not_zero() {
    let trial =
        Trial::new("nulls").raised(At::Agent, "AgentTimeoutError", "Agent execution timed out after 1200.0 seconds");
    let (_temp, fleet) = one(trial.tokens(None, None).reward(0.0).stdout(PYTEST_FAILED));
    let said = class(&fleet, "nulls");
    assert_eq!((said.class.word(), said.flags.is_empty()), ("agent_timeout", true));
    assert!(said.evidence.iter().any(|e| e.text.contains("tokens not known")), "{:?}", said.evidence);
}

#[test]
fn suspicious_passes_are_flagged() {
    let temp = tempfile::tempdir().unwrap();
    let good = "1 passed in 1s\n";
    let dir = job(
        temp.path(),
        "row",
        &[
            Trial::new("thin").reward(1.0).tokens(Some((900, 20)), Some(1)).stdout(good),
            Trial::new("free").reward(1.0).tokens(Some((0, 0)), Some(4)).stdout(good),
            Trial::new("mute").reward(1.0),
            Trial::new("early").reward(1.0).stdout(good),
            Trial::new("clean").reward(1.0).stdout(good),
        ],
    );
    // The verifier began long after the reward was written; the result came after it.
    let trial = dir.join("early__AbCdEfG");
    let set = |path: &Path, second: i64| {
        let at = SystemTime::UNIX_EPOCH + Duration::from_secs(second as u64);
        fs::File::options().write(true).open(path).unwrap().set_modified(at).unwrap();
    };
    set(&trial.join("verifier/reward.txt"), 1_790_000_100);
    set(&trial.join("result.json"), 1_790_002_000);
    let fleet = classified(&dir);
    let flags = |task: &str| class(&fleet, task).flags.clone();
    assert_eq!(flags("thin"), [Flag::ThinPass]);
    assert_eq!(flags("free"), [Flag::ThinPass]);
    assert_eq!(flags("mute"), [Flag::PassWithoutOutput]);
    assert_eq!(flags("early"), [Flag::RewardBeforeVerifier]);
    assert!(class(&fleet, "clean").is_clean_pass());
    assert_eq!(class(&fleet, "thin").sub.as_deref(), Some("suspicious"));
    assert!(warning(&fleet, "suspicious_pass").starts_with("4 trials"));
    assert_eq!(run(&["status", "--json", dir.to_str().unwrap()]).1, 1);
}

#[test]
fn an_agent_that_ended_its_own_terminal_is_named() {
    let text = "failed to send non-blocking keys: command=\"tmux send-keys\", stdout='no server running on /tmp/tmux-0/default\\n'";
    let (_temp, fleet) = one(Trial::new("kill").raised(At::Agent, "RuntimeError", text));
    assert_eq!(class(&fleet, "kill").flags, [Flag::TerminalKilled]);
    assert!(warning(&fleet, "terminal_killed").contains("kill__AbCdEfG"));
}
