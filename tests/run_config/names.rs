//! Names, the order of trials, and what is retried.

use pilothouse::harbor::run_config::{
    ALPHABET, ErrorPolicyOverride, HarborVersion, RetryConfig, job_name, plan, policy, read_config, retryable,
    trial_name,
};

#[test]
fn a_job_is_named_by_the_local_time() {
    assert_eq!(job_name(jiff::civil::date(2026, 8, 3).at(7, 8, 3, 999)), "2026-08-03__07-08-03");
    assert_eq!(crate::resolve(&["-p", "tasks"]).config.job_name, "2026-08-30__07-08-03");
}

#[test]
fn a_trial_is_named_by_its_task() {
    let mut n = 0;
    let mut next = |below: u32| {
        n += 1;
        (n * 9) % below
    };
    let name = trial_name("org/hello-file", &mut next);
    let (head, tail) = name.split_once("__").unwrap();
    assert_eq!(head, "hello-file");
    assert_eq!(tail.len(), 7);
    assert!(tail.bytes().all(|b| ALPHABET.contains(&b)), "{tail}");
    let mut zero = |_: u32| 0;
    assert_eq!(trial_name(&"x".repeat(40), &mut zero), format!("{}__2222222", "x".repeat(32)));
    // Cut first, then stripped: of 31 letters and two dashes one dash survives the cut and goes.
    assert_eq!(trial_name(&format!("{}--tail", "x".repeat(31)), &mut zero), format!("{}__2222222", "x".repeat(31)));
    assert_eq!(trial_name("任务_-", &mut zero), "任务__2222222");
    // The last index is the last letter, and a random source that breaks its promise breaks nothing.
    assert!(trial_name("t", &mut |below| below - 1).ends_with("zzzzzzz"));
    assert_eq!(trial_name("t", &mut |_| u32::MAX).len(), "t__".len() + 7);
}

#[test]
fn recorded_trials_carry_such_names() {
    let Some(shared) = crate::support::shared() else { return };
    let mut seen = 0;
    for job in std::fs::read_dir(shared.join("data/jobs")).unwrap().flatten() {
        for entry in std::fs::read_dir(job.path()).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let Some((head, tail)) = name.rsplit_once("__").filter(|_| entry.path().is_dir()) else { continue };
            let config = std::fs::read(entry.path().join("config.json")).unwrap_or_default();
            let Ok(config) = serde_json::from_slice::<serde_json::Value>(&config) else { continue };
            let Some(path) = config["task"]["path"].as_str() else { continue };
            let indices: Vec<u32> =
                tail.bytes().map(|b| ALPHABET.iter().position(|a| *a == b).unwrap() as u32).collect();
            let mut left = indices.into_iter();
            assert_eq!(trial_name(path, &mut |_| left.next().unwrap()), name, "{head}");
            seen += 1;
        }
    }
    assert!(seen > 100, "{seen} trials");
}

#[test]
fn trials_are_planned_by_attempt_then_task_then_agent() {
    let order: Vec<_> = plan(2, 2, 2).map(|p| (p.attempt, p.task, p.agent)).collect();
    assert_eq!(order, [(0, 0, 0), (0, 0, 1), (0, 1, 0), (0, 1, 1), (1, 0, 0), (1, 0, 1), (1, 1, 0), (1, 1, 1)]);
    assert_eq!(plan(3, 0, 2).count(), 0);
}

#[test]
fn versions_retry_different_things() {
    let (old, new) = (HarborVersion::V0_21, HarborVersion::V0_26);
    for (name, in_old, in_new) in [
        ("RuntimeError", true, true),
        ("ApiUsageLimitError", false, true),
        ("NonZeroAgentExitCodeError", true, false),
        ("CancelledError", true, false),
        ("AgentTimeoutError", false, false),
        ("InternalServerError", true, true),
        ("AuthenticationError", true, false),
        ("EnvironmentStartTimeoutError", true, true),
    ] {
        assert_eq!(retryable(old, &[name]), in_old, "0.21 {name}");
        assert_eq!(retryable(new, &[name]), in_new, "0.26 {name}");
        assert_eq!(policy(old, name).should_retry, in_old, "0.21 {name}");
        assert_eq!(policy(new, name).should_retry, in_new, "0.26 {name}");
    }
    assert!(!retryable::<&str>(new, &[]));
    // A step that can't be retried holds the trial back since 0.26.
    assert!(retryable(old, &["RuntimeError", "AgentTimeoutError"]));
    assert!(!retryable(new, &["RuntimeError", "AgentTimeoutError"]));
}

#[test]
fn policies_say_what_is_graded_and_what_counts() {
    let new = |name| policy(HarborVersion::V0_26, name);
    assert!(!new("HealthcheckError").should_grade);
    assert!(new("RateLimitError").should_grade && !new("RateLimitError").has_valid_reward);
    assert!(new("AgentTimeoutError").should_grade && new("AgentTimeoutError").has_valid_reward);
    assert!(new("SomethingNew").should_retry && new("SomethingNew").should_grade);
    assert!(policy(HarborVersion::V0_21, "AgentTimeoutError").should_grade);
    assert!(!policy(HarborVersion::V0_21, "RateLimitError").should_grade);
    let over = ErrorPolicyOverride { has_valid_reward: Some(false), ..ErrorPolicyOverride::default() };
    let changed = new("AgentTimeoutError").with(&over);
    assert!(changed.should_grade && !changed.has_valid_reward);
}

#[test]
fn filters_and_waits() {
    let include = Some(vec!["RuntimeError".into(), "AgentTimeoutError".into()]);
    let mut retry = RetryConfig { include_exceptions: include, ..RetryConfig::default() };
    assert!(retry.retryable(HarborVersion::V0_26, &["RuntimeError"]));
    assert!(!retry.retryable(HarborVersion::V0_26, &["ValueError"]));
    assert!(!retry.retryable(HarborVersion::V0_26, &["AgentTimeoutError"]), "exclude wins");
    retry.exclude_exceptions = None;
    assert!(retry.retryable(HarborVersion::V0_26, &["AgentTimeoutError"]));
    retry.include_exceptions = Some(Vec::new());
    assert!(retry.retryable(HarborVersion::V0_26, &["ValueError"]), "an empty list is no filter");
    assert_eq!([0, 1, 9].map(|n| retry.wait_sec(n)), [1.0, 1.0, 1.0]);
    retry.wait_multiplier = 3.0;
    assert_eq!([0, 1, 2, 3, 4, u32::MAX].map(|n| retry.wait_sec(n)), [1.0, 3.0, 9.0, 27.0, 60.0, 60.0]);
}

#[test]
fn error_policies_change_the_default_excludes_only() {
    let read = |text: &str| read_config(text.as_bytes(), "c.yaml", HarborVersion::V0_26).unwrap().retry;
    let policy = "override_error_policy: {AgentTimeoutError: {should_retry: true}, RuntimeError: {should_retry: no}}\n";
    let retry = read(policy);
    assert!(retry.retryable(HarborVersion::V0_26, &["AgentTimeoutError"]));
    assert!(!retry.retryable(HarborVersion::V0_26, &["RuntimeError"]));
    let retry = read(&format!("{policy}retry: {{exclude_exceptions: [ValueError]}}"));
    assert_eq!(retry.exclude_exceptions.as_deref(), Some(&["ValueError".to_string()][..]));
}
