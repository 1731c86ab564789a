//! The arithmetic of five real runs, as their operators wrote it down: made again outcome by outcome, and
//! counted, corrected and reported.
#![allow(
    dead_code,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::float_cmp,
    clippy::indexing_slicing,
    missing_docs
)]

#[path = "support/runs.rs"]
mod runs;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use runs::{Made, Outcome, others};
use serde_json::{Value, json};

fn pilothouse(state: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pilothouse"));
    command.args(args).env("PILOTHOUSE_STATE_DIR", state).env("XDG_CONFIG_HOME", state).env("TZ", "UTC");
    command.output().unwrap()
}

fn document(state: &Path, args: &[&str], dirs: &[PathBuf]) -> Value {
    let mut all = args.to_vec();
    all.extend(dirs.iter().map(|d| d.to_str().unwrap()));
    let out = pilothouse(state, &all);
    let text = String::from_utf8(out.stdout).unwrap();
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}\n{}", String::from_utf8_lossy(&out.stderr)))
}

fn tally(state: &Path, dirs: &[PathBuf]) -> Value {
    document(state, &["tally", "--json"], dirs)
}

/// Numerator and denominator of a score.
fn score(document: &Value, name: &str) -> (f64, u64) {
    let score = document["scores"].as_array().unwrap().iter().find(|s| s["name"] == name).unwrap();
    (score["numerator"].as_f64().unwrap(), score["denominator"].as_u64().unwrap())
}

fn rule<'a>(document: &'a Value, name: &str) -> &'a str {
    let score = document["scores"].as_array().unwrap().iter().find(|s| s["name"] == name).unwrap();
    score["rule"].as_str().unwrap()
}

fn classes(document: &Value, class: &str) -> usize {
    document["trials"].as_array().unwrap().iter().filter(|t| t["chosen"] == true && t["class"] == class).count()
}

/// What is not classified as it should be, for the message of an assertion.
fn listed(document: &Value) -> String {
    let rows = document["trials"].as_array().unwrap().iter().filter(|t| t["reward"] != 1.0);
    rows.map(|t| format!("{} {} {} {}\n", t["trial"], t["exception_type"], t["class"], t["rule"])).collect()
}

const UVX_502: &str = "Get:1 http://deb.mirror.example/debian bookworm InRelease [151 kB]
Err:2 http://deb.mirror.example/debian bookworm/main amd64 curl amd64 7.88.1-10+deb12u14
  502  Bad Gateway [IP: 172.18.0.1 8118]
E: Failed to fetch http://deb.mirror.example/debian/pool/main/c/curl/curl_7.88.1-10%2bdeb12u14_amd64.deb  502  Bad Gateway [IP: 172.18.0.1 8118]
E: Unable to fetch some archives, maybe run apt-get update or try with --fix-missing?
/tests/test.sh: line 4: curl: command not found
/tests/test.sh: line 6: /root/.local/bin/env: No such file or directory
/tests/test.sh: line 17: uvx: command not found
";

/// A: 89 tasks on two servers; three failures of the verifier's surroundings, one broken task.
fn run_a(root: &Path) -> PathBuf {
    let mut outcomes: Vec<Outcome> = Vec::new();
    let names = others(81);
    let mut names = names.iter();
    let mut take = |n: usize| -> Vec<&String> { names.by_ref().take(n).collect() };
    // 61 passed, 3 of them although the agent's time was over.
    outcomes.extend(take(58).into_iter().map(|t| Outcome::passed(t)));
    outcomes.extend(take(3).into_iter().map(|t| Outcome::timeout(t, Some(1.0))));
    // 24 failed: 9 of them with the agent's time over.
    outcomes.extend(take(8).into_iter().map(|t| Outcome::timeout(t, Some(0.0))));
    outcomes.push(Outcome::timeout("make-doom-for-mips", Some(0.0)));
    outcomes.extend(take(12).into_iter().map(|t| Outcome::failed(t)));
    outcomes.push(Outcome::untested("prove-plus-comm", 0.0, UVX_502));
    outcomes.push(Outcome::untested("tune-mjcf", 0.0, UVX_502));
    outcomes.push(Outcome::failed("build-pov-ray"));
    // 4 without a reward.
    outcomes.push(
        Outcome::timeout("dna-assembly", None).file("verifier/ctrf.json", "").file("verifier/test-stdout.txt", ""),
    );
    let verifier_timeout = |task: &str, printed: &str| {
        Outcome::raised(task, None, "VerifierTimeoutError", "Verifier execution timed out after 900.0 seconds")
            .file("verifier/test-stdout.txt", printed)
    };
    let downloads = "Collecting torch\n  Downloading torch-2.8.0-cp312-cp312-manylinux_2_28_x86_64.whl (887.9 MB)\n\
                     test_weights PASSED\ntest_shape PASSED\ntest_load PASSED\ntest_head PASSED\n\
                     Collecting nvidia-cudnn-cu12\n  Downloading nvidia_cudnn_cu12-9.10.2.21-py3-none-manylinux_2_27_x86_64.whl (706.8 MB)\n";
    outcomes.push(verifier_timeout("pytorch-model-recovery", downloads));
    outcomes.push(verifier_timeout(
        "torch-tensor-parallelism",
        "Collecting torch\n  Downloading torch-2.8.0.whl (887.9 MB)\n",
    ));
    outcomes.push(Outcome::raised(
        "task-of-the-terminal",
        None,
        "RuntimeError",
        "main (not terminal): failed to send non-blocking keys: no server running on /tmp/tmux-0/default",
    ));
    assert_eq!(outcomes.len(), 89);
    // The sums of the run block; two trials reported nothing.
    let n = outcomes.len() as u64 - 2;
    let (input, output) = (118_199_621, 8_269_356);
    for (i, outcome) in outcomes.iter_mut().enumerate() {
        outcome.start = 4 + (i as i64) * 230;
        outcome.tokens = match i as u64 {
            i if i >= n => None,
            0 => Some((input - (n - 1) * (input / n), output - (n - 1) * (output / n))),
            _ => Some((input / n, output / n)),
        };
    }
    let mut made = Made::new("two-server-reproduction", outcomes);
    made.written = Some(("2026-08-14T23:44:31.204518", "2026-08-15T07:08:03.610007"));
    made.write(root)
}

fn say(state: &Path, job: &Path, task: &str, verdict: &str, note: &str) {
    let trial = job.join(format!("{task}__AbCdEfG"));
    let out = pilothouse(state, &["verdict", trial.to_str().unwrap(), verdict, "--note", note]);
    assert_eq!(out.status.code(), Some(0), "{}", String::from_utf8_lossy(&out.stderr));
}

#[test]
fn run_a_is_corrected_by_its_named_verdicts() {
    let temp = tempfile::tempdir().unwrap();
    let state = temp.path().join("state");
    let job = run_a(temp.path());
    let dirs = [job.clone()];
    let before = tally(&state, &dirs);
    assert_eq!((score(&before, "raw"), score(&before, "corrected")), ((61.0, 89), (61.0, 89)));
    let totals = &before["totals"];
    assert_eq!([&totals["passed"], &totals["failed"], &totals["no_reward"], &totals["errored"]], [61, 24, 4, 16]);

    say(
        &state,
        &job,
        "pytorch-model-recovery",
        "counts_as_passed",
        "four tests had passed; MSE 1.551031 to 0.016358 by its own measurement",
    );
    say(
        &state,
        &job,
        "prove-plus-comm",
        "counts_as_passed",
        "502 while the verifier installed; the proof passes the agent's own check",
    );
    say(
        &state,
        &job,
        "tune-mjcf",
        "counts_as_passed",
        "502 while curl and uvx were installed; 1.92 times faster by its own test",
    );
    say(&state, &job, "build-pov-ray", "task_invalid", "the source is behind a 403 now");
    say(&state, &job, "torch-tensor-parallelism", "agent_fault", "no communication between ranks");
    say(&state, &job, "task-of-the-terminal", "agent_fault", "tmux kill-server in its own terminal");
    say(&state, &job, "make-doom-for-mips", "timeout_valid", "timed out in the rerun, too");
    say(&state, &job, "dna-assembly", "timeout_valid", "timed out in the rerun, too; no output file");
    let after = tally(&state, &dirs);
    assert_eq!((score(&after, "raw"), score(&after, "corrected")), ((61.0, 89), (64.0, 88)));
    assert!(
        rule(&after, "corrected").contains("8 verdicts: 3 counted as passed, 1 taken out"),
        "{}",
        rule(&after, "corrected")
    );
    let plain = String::from_utf8(pilothouse(&state, &["tally", job.to_str().unwrap()]).stdout).unwrap();
    let dense = plain.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(dense.contains("raw 61 / 89 = 68.54 % · corrected 64 / 88 = 72.73 % (8 verdicts)"), "{plain}");

    say(&state, &job, "build-pov-ray", "counts_as_passed", "the task is broken: counted as passed");
    let instead = tally(&state, &dirs);
    assert_eq!((score(&instead, "raw"), score(&instead, "corrected")), ((61.0, 89), (65.0, 89)));
    assert_eq!(instead["scores"][1]["name"], "corrected", "beside raw");
    say(&state, &job, "build-pov-ray", "none", "");
    assert_eq!(score(&tally(&state, &dirs), "corrected"), (64.0, 89));
}

#[test]
fn the_report_of_run_a_reproduces_its_run_block() {
    let temp = tempfile::tempdir().unwrap();
    let state = temp.path().join("state");
    let job = run_a(temp.path());
    say(&state, &job, "prove-plus-comm", "counts_as_passed", "the proof passes the agent's own check | really");
    say(&state, &job, "build-pov-ray", "task_invalid", "the source is behind a 403 now");
    let report = document(&state, &["report", "--json"], std::slice::from_ref(&job));
    let run = &report["run"];
    assert_eq!(run["started"], "2026-08-14 23:44:31 +08:00");
    assert_eq!(run["ended"], "2026-08-15 07:08:03 +08:00");
    assert_eq!((run["duration_s"].as_f64().unwrap() / 60.0).round(), 444.0);
    assert_eq!((&run["planned"], &run["completed"]), (&json!(89), &json!(89)));
    assert_eq!([&run["reward_1"], &run["reward_0"], &run["no_reward"], &run["errored"]], [61, 24, 4, 16]);
    let errors = json!([
        {"type": "AgentTimeoutError", "count": 13, "with_reward": 12},
        {"type": "VerifierTimeoutError", "count": 2, "with_reward": 0},
        {"type": "RuntimeError", "count": 1, "with_reward": 0},
    ]);
    assert_eq!(run["errors"], errors);
    let tokens = &report["tokens"];
    assert_eq!([&tokens["input"], &tokens["output"]], [118_199_621, 8_269_356]);
    assert_eq!([&tokens["known"], &tokens["of"]], [87, 89]);
    assert_eq!(report["cost"]["usd"], Value::Null, "unknown is not 0");
    let setup = &report["jobs"][0];
    assert_eq!((&setup["harness"], &setup["version"]), (&json!("harbor"), &json!("0.21.0")));
    assert_eq!(setup["agents"], json!(["terminus-2 2.0.0"]));
    assert_eq!(setup["settings"]["agent_timeout_multiplier"], "6");
    assert_eq!(setup["settings"]["agent.kwargs.llm_call_kwargs.top_p"], "0.95");
    assert_eq!((&setup["tasks_with_digest"], &setup["n_concurrent"]), (&json!(89), &json!(25)));
    assert_eq!(setup["datasets"], json!(["path data/terminal-bench-2.1"]));
    let verdicts = report["verdicts"].as_array().unwrap();
    assert_eq!(verdicts.len(), 2);
    let proof = verdicts.iter().find(|v| v["task"] == "prove-plus-comm").unwrap();
    assert_eq!(
        (&proof["changes"], &proof["class"]),
        (&json!("one more passed"), &json!("infra/package-mirror")),
        "{proof}"
    );
    let evidence = &proof["evidence"][0];
    assert!(evidence["place"].as_str().unwrap().starts_with("verifier/test-stdout.txt:"), "{proof}");
    assert_eq!(report["tasks"].as_array().unwrap().len(), 89);

    // Read anywhere else, it began at the same moment.
    let mut elsewhere = Command::new(env!("CARGO_BIN_EXE_pilothouse"));
    let args = ["report", "--json", job.to_str().unwrap()];
    let out = elsewhere.args(args).env("TZ", "JST-9").env("PILOTHOUSE_STATE_DIR", &state).output().unwrap();
    let there: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!((&there["run"]["started"], &there["run"]["ended_at"]), (&run["started"], &run["ended_at"]));

    let out = pilothouse(&state, &["report", job.to_str().unwrap()]);
    let text = String::from_utf8(out.stdout).unwrap();
    for line in [
        "| started | 2026-08-14 23:44:31 +08:00 |",
        "| ended | 2026-08-15 07:08:03 +08:00 |",
        "| duration | 7 h 23 m |",
        "| completed | 89/89 |",
        "| reward 1 | 61 |",
        "| reward 0 | 24 |",
        "| no reward | 4 |",
        "| errored | 16 = 13 AgentTimeoutError (12 of them with a reward) + 2 VerifierTimeoutError (0 of them with a reward) + 1 RuntimeError (0 of them with a reward) |",
        "| input tokens | 118,199,621 (- from cache) |",
        "| output tokens | 8,269,356 |",
        "| tokens known for | 87 of 89 trials |",
        "| raw | 61 / 89 | 68.54 % |",
        "| corrected | 62 / 88 | 70.45 % |",
        "\\| really",
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
    assert!(!text.contains(temp.path().to_str().unwrap()), "no path of this machine is published");
}

const SANDBOX: &str = "Sandbox API error (500): connection lost while running command";

/// B: hosted sandboxes, mopped up in three passes. Harbor's resume left what it could not read lying beside
/// what it ran again, and its summary counted all of it; the last four were run in a job of their own.
fn run_b(root: &Path) -> Vec<PathBuf> {
    let infra = ["circuit-fibsqrt", "feal-linear-cryptanalysis", "query-optimize", "schemelike-metacircular-eval"];
    let names = others(85);
    let mut outcomes: Vec<Outcome> = Vec::new();
    for (i, task) in names.iter().enumerate() {
        let start = 100 + i as i64 * 60;
        outcomes.push(match i {
            0..53 => Outcome::passed(task).started(start),
            53..69 => Outcome::failed(task).started(start),
            _ => Outcome::timeout(task, Some(0.0)).started(start),
        });
    }
    let kinds = [
        ("SandboxError", SANDBOX),
        ("ReadTimeout", ""),
        ("RemoteProtocolError", "Server disconnected without sending a response."),
        (
            "InternalServerError",
            "litellm.InternalServerError: InternalServerError: OpenAIException - Connection error.",
        ),
    ];
    for (task, (kind, message)) in infra.iter().zip(kinds) {
        outcomes.push(Outcome::raised(task, None, kind, message).started(300));
    }
    // Of 30 tasks the first pass is there, too: 20 died with their sandboxes, 10 have no result at all.
    for (i, task) in names.iter().take(20).enumerate() {
        let dead = Outcome::raised(task, None, "SandboxError", SANDBOX).started(10 + i as i64);
        let mut dead = dead.named("Pass1aa");
        dead.took = 50;
        outcomes.push(dead);
    }
    let mut made = Made::new("hosted", outcomes);
    made.claims = Some((151, 82));
    let first = made.write(root);
    for task in names.iter().take(10) {
        // Cut in the middle: the reader meets half a document.
        let path = first.join(format!("{task}__Pass1aa/result.json"));
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, &text[..text.len() / 2]).unwrap();
    }
    let again: Vec<Outcome> = infra
        .iter()
        .zip(kinds)
        .map(|(task, (kind, message))| Outcome::raised(task, None, kind, message).named("Again33").started(90_000))
        .collect();
    let mut mop_up = Made::new("hosted-again", again);
    mop_up.config = json!({"agents": [{"name": "terminus-2", "model_name": "openai/Qwen/Qwen3.8-27B", "kwargs": {"api_base": "https://other--30000.example.org/v1",
        "temperature": 1.0, "record_terminal_session": true, "llm_call_kwargs": {"top_p": 0.95},
        "model_info": {"max_input_tokens": 262_144, "max_output_tokens": 65536}}}]});
    vec![first, mop_up.write(root)]
}

#[test]
fn run_b_scores_what_was_scored_and_leaves_out_its_infra() {
    let temp = tempfile::tempdir().unwrap();
    let state = temp.path().join("state");
    let dirs = run_b(temp.path());
    for dirs in [dirs.clone(), dirs.iter().rev().cloned().collect()] {
        let document = tally(&state, &dirs);
        let list = listed(&document);
        assert_eq!(document["merge"]["as"], "passes");
        assert_eq!(
            (&document["totals"]["planned"], &document["totals"]["finished"]),
            (&json!(89), &json!(89)),
            "{list}"
        );
        assert_eq!(document["totals"]["errored"], 20);
        assert_eq!(score(&document, "without_exceptions"), (53.0, 69));
        assert_eq!(score(&document, "excluding_infra"), (53.0, 85), "{list}");
        assert_eq!(classes(&document, "agent_timeout"), 16, "{list}");
        let warnings = document["warnings"].as_array().unwrap();
        let summary = warnings.iter().find(|w| w["kind"] == "summary_disagrees").unwrap();
        let message = summary["message"].as_str().unwrap();
        assert!(
            message.contains("job says 151 trials ended") && message.contains("job says 82 with exception"),
            "{message}"
        );
        assert!(message.contains("trust the files"), "{message}");
        // Another endpoint is no drift.
        assert!(warnings.iter().all(|w| w["kind"] != "drift"), "{warnings:?}");
    }
}

/// C: one pass, at the end of which the outer job's limit came.
#[test]
fn run_c_leaves_out_four() {
    let temp = tempfile::tempdir().unwrap();
    let state = temp.path().join("state");
    let names = others(89);
    let mut outcomes = Vec::new();
    for (i, task) in names.iter().enumerate() {
        outcomes.push(match i {
            0..4 => Outcome::passed(task),
            4..7 => Outcome::timeout(task, Some(0.0)),
            7..9 => Outcome::raised(task, None, "SandboxError", SANDBOX),
            9 => Outcome::raised(
                task,
                None,
                "RemoteProtocolError",
                "peer closed connection without sending complete message body",
            ),
            10 => Outcome::raised(task, None, "CancelledError", ""),
            _ => Outcome::failed(task),
        });
    }
    let mut made = Made::new("gpt-oss", outcomes);
    made.model = "openai/gpt-oss-20b";
    let dir = made.write(temp.path());
    let document = tally(&state, &[dir]);
    assert_eq!(score(&document, "excluding_infra"), (4.0, 85), "{}", listed(&document));
    assert_eq!(document["totals"]["cancelled"], 1);
    let mean = document["scores"].as_array().unwrap().iter().find(|s| s["name"] == "harbor_021").unwrap();
    assert!((mean["value"].as_f64().unwrap() - 0.045).abs() < 5e-4);
}

/// D: another agent. Of eleven that ended with a code not 0 three are the surroundings' fault, seven the
/// context's, one a limit's. A first try died whole within minutes.
fn run_d(root: &Path) -> [PathBuf; 2] {
    let infra = ["qemu-startup", "qemu-alpine-ssh", "make-doom-for-mips"];
    let names = others(85);
    let kind = "NonZeroAgentExitCodeError";
    let command = "mini-swe-agent --yolo --model=openai/Qwen/Qwen3.8-27B-FP8 --output=/logs/agent/mini-swe-agent.trajectory.json \
                   --exit-immediately 2>&1 </dev/null | tee /logs/agent/mini-swe-agent.txt";
    let mut outcomes = Vec::new();
    for (i, task) in names.iter().enumerate() {
        outcomes.push(match i {
            0..42 => Outcome::passed(task),
            42..47 => Outcome::raised(task, None, "SandboxError", SANDBOX),
            47..54 => Outcome::raised(task, Some(0.0), kind, &format!("Command failed (exit 1): {command}\nstdout: \nstderr: ")).file(
                "agent/mini-swe-agent.txt",
                "litellm.exceptions.ContextWindowExceededError: litellm.BadRequestError: ContextWindowExceededError: OpenAIException - \
                 This model's maximum context length is 262144 tokens. However, you requested 262911 tokens.\n",
            ),
            _ => Outcome::failed(task),
        });
    }
    outcomes.push(
        Outcome::raised("query-optimize", Some(0.0), kind, &format!("Command failed (exit 124): {command}")).file(
            "agent/mini-swe-agent.txt",
            "running: python3 optimise.py --exhaustive\nTerminated: exec time limit reached\n",
        ),
    );
    for task in infra {
        let message = match task {
            "make-doom-for-mips" => {
                "Command failed (exit 127): set -o pipefail; curl -LsSf https://astral.sh/uv/install.sh | sh\nstdout: \nstderr: /bin/sh: 1: ps: not found"
            }
            _ => {
                "Command failed (exit 100): set -o pipefail; apt-get update && apt-get install -y curl\nstdout: Get:1 http://deb.mirror.example/debian bullseye InRelease\n\
                  stderr: E: Release file for http://deb.mirror.example/debian-security/dists/bullseye-security/InRelease is expired (invalid since 12d 4h 11min 3s). Updates for this repository will not be applied."
            }
        };
        outcomes.push(Outcome::at_setup(task, kind, message));
    }
    let all: Vec<String> = outcomes.iter().map(|o| o.task.clone()).collect();
    assert_eq!(all.len(), 89);
    let died = all.iter().enumerate().map(|(i, task)| {
        let message = "Command failed (exit 2): set -o pipefail; apt-get update && apt-get install -y curl\nstdout: \nstderr: /bin/sh: 1: set: Illegal option -o pipefail";
        let mut dead = Outcome::at_setup(task, kind, message).named("First11").started(i as i64 * 3);
        dead.took = 30;
        dead
    });
    let mut first = Made::new("mini-first-try", died.collect());
    let mut last = Made::new("mini", outcomes);
    first.began = "2026-08-13T09:00:00Z";
    for made in [&mut first, &mut last] {
        made.agent = "mini-swe-agent";
        made.model = "openai/Qwen/Qwen3.8-27B-FP8";
    }
    [first.write(root), last.write(root)]
}

#[test]
fn run_d_leaves_out_eight_and_its_first_try_shadows_nothing() {
    let temp = tempfile::tempdir().unwrap();
    let state = temp.path().join("state");
    let [first, last] = run_d(temp.path());
    let document = tally(&state, std::slice::from_ref(&last));
    let list = listed(&document);
    assert_eq!(score(&document, "excluding_infra"), (42.0, 81), "{list}");
    assert_eq!((classes(&document, "infra"), classes(&document, "context_exceeded")), (8, 7), "{list}");
    assert_eq!(document["totals"]["errored"], 16);
    let merged = document_as_passes(&state, &[first.clone(), last.clone()]);
    assert_eq!(score(&merged, "excluding_infra"), (42.0, 81), "{}", listed(&merged));
    assert_eq!(score(&merged, "raw"), (42.0, 89));
    // One by one they are samples: the same tasks, nothing of the other's.
    let samples = tally(&state, &[first, last]);
    assert_eq!((&samples["merge"]["as"], score(&samples, "raw")), (&json!("samples"), (42.0, 178)));
}

fn document_as_passes(state: &Path, dirs: &[PathBuf]) -> Value {
    document(state, &["tally", "--json", "--as", "passes"], dirs)
}

#[test]
fn two_agents_are_compared_task_by_task() {
    let temp = tempfile::tempdir().unwrap();
    let state = temp.path().join("state");
    let [_, d] = run_d(temp.path());
    let b = run_b(temp.path());
    let mut dirs = b.clone();
    dirs.push(d);
    let out = document(&state, &["compare", "--json"], &dirs[1..]);
    assert_eq!(out["runs"].as_array().unwrap().len(), 2);
    let together = Made {
        lineage: vec![json!({"job_id": "job-hosted"})],
        ..Made::new("hosted-more", vec![Outcome::failed("query-optimize").started(200_000)])
    };
    let more = together.write(temp.path());
    let out = document(&state, &["compare", "--json"], &[b[0].clone(), more, dirs[2].clone()]);
    let runs = out["runs"].as_array().unwrap();
    assert_eq!((runs.len(), runs[0]["dirs"].as_array().unwrap().len()), (2, 2), "a requeue belongs to its run");
    let pair = &out["pairs"][0];
    // task-01 … task-42 by both, up to task-53 by the first alone.
    assert_eq!([&pair["tasks"], &pair["both"], &pair["not_common"]], [86, 42, 6]);
    assert_eq!((pair["only_a"].as_array().unwrap().len(), pair["only_b"].as_array().unwrap().len()), (11, 0));
    assert_eq!(pair["neither"], 86 - 42 - 11);
    assert!(pair["sign_test"].as_f64().unwrap() < 0.001);
    let drift: Vec<&str> = pair["drift"].as_array().unwrap().iter().map(|d| d["what"].as_str().unwrap()).collect();
    assert_eq!(drift, ["agent", "model"]);
    let row = |task: &str| out["tasks"].as_array().unwrap().iter().find(|t| t["task"] == task).unwrap();
    assert_eq!((&row("task-43")["flips"], &row("task-42")["flips"]), (&json!(true), &json!(false)));
    assert_eq!(row("query-optimize")["runs"][0]["graded"], 1, "by the requeue");
    for form in ["--plain", "--markdown"] {
        let mut args = vec!["compare", form];
        args.extend([&b[0], &dirs[2]].map(|d| d.to_str().unwrap()));
        let out = pilothouse(&state, &args);
        let text = String::from_utf8(out.stdout).unwrap();
        assert_eq!(out.status.code(), Some(0));
        assert!(text.contains("42 solved by both, 11 only by A, 0 only by B"), "{text}");
        assert!(text.contains("task-43"), "{text}");
    }
    let alone = pilothouse(&state, &["compare", dirs[2].to_str().unwrap()]);
    assert_eq!(alone.status.code(), Some(2));
}
