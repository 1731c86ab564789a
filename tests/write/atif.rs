//! Trajectories as they are written: valid for Harbor, found by our own reader, whole at any time.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use pilothouse::harbor::TrajectoryIndex;
use pilothouse::harbor::write::atif::{
    Agent, AudioType, By, Content, FinalMetrics, Head, ImageType, Metrics, Outcome, Part, Step, SubagentRef, Tail,
    ToolCall, Turn, Version, Writer,
};
use pilothouse::harbor::write::{Folder, Scrub, WriteError};
use serde_json::{Map, Value, json};

use super::made::{SECRET, at};
use super::support;

fn map(value: Value) -> Map<String, Value> {
    value.as_object().unwrap().clone()
}

fn head(session: &str, version: Version) -> Head {
    let agent = Agent {
        name: "pilothouse-terminus".to_string(),
        version: "1.0.0".to_string(),
        model_name: Some("openai/scripted-1".to_string()),
        tool_definitions: vec![json!({"type": "function", "function": {"name": "bash_command"}})],
        extra: map(json!({"parser": "json", "seed": [1, 2, 3]})),
    };
    Head { version, session_id: Some(session.to_string()), trajectory_id: None, agent }
}

fn call(id: &str, keys: &str) -> ToolCall {
    let arguments = map(json!({"duration": 0.1, "keystrokes": keys}));
    ToolCall { id: id.to_string(), function: "bash_command".to_string(), arguments, ..ToolCall::default() }
}

/// A step with everything that a step of an agent can have.
fn full() -> Step {
    let turn = Turn {
        model_name: Some("scripted-1".to_string()),
        reasoning_effort: Some("high".to_string()),
        reasoning_content: Some("First I look.".to_string()),
        tool_calls: vec![call("call_0_1", "ls\n"), call("call_0_2", "\u{3}")],
        metrics: Some(Metrics {
            prompt_tokens: Some(767),
            completion_tokens: Some(99),
            cached_tokens: Some(0),
            cost_usd: Some(0.000_965),
            prompt_token_ids: Some(vec![1, 22, 333]),
            completion_token_ids: Some(vec![]),
            logprobs: Some(vec![-0.5, -1.0, 0.0]),
            extra: map(json!({"reasoning_tokens": 12})),
        }),
        llm_call_count: std::num::NonZeroU32::new(1),
    };
    let mut step = Step::agent("Analysis: nothing.\nPlan: look.", turn);
    step.timestamp = Some(at(2.0));
    step.observation = vec![
        Outcome { of_call: Some(1), content: Some("a \"b\" \\ \t \u{1b}[31m \u{0}".into()), ..Outcome::default() },
        Outcome { of_call: Some(7), content: Some("no such call".into()), ..Outcome::default() },
        Outcome { extra: map(json!({"exit_code": 0})), ..Outcome::default() },
    ];
    step
}

fn tail(steps: u64) -> Tail {
    let final_metrics = FinalMetrics {
        total_prompt_tokens: Some(767 * steps),
        total_completion_tokens: Some(99 * steps),
        total_cached_tokens: Some(0),
        total_cost_usd: Some(0.009_259),
        total_steps: Some(steps),
        extra: map(json!({"lost_tokens": 3})),
    };
    Tail { final_metrics: Some(final_metrics), ..Tail::default() }
}

fn user(text: &str) -> Step {
    Step { timestamp: Some(at(1.0)), ..Step::user(text) }
}

fn folder(dir: &Path) -> Arc<Folder> {
    Arc::new(Folder::open(dir).unwrap())
}

/// A trajectory with a summary and its three helpers' files; their paths, the main one's first.
fn all_kinds(dir: &Path, version: Version) -> Vec<PathBuf> {
    let (folder, scrub) = (folder(dir), Scrub::default());
    let mut main = Writer::begin(Arc::clone(&folder), "trajectory.json", &head("s", version), &scrub).unwrap();
    main.push(&user("Write a file.")).unwrap();
    main.push(&full()).unwrap();
    let mut files = vec![dir.join("trajectory.json")];
    let mut refs = Vec::new();
    for part in ["summary", "questions", "answers"] {
        let (name, session) = (format!("trajectory.summarization-1-{part}.json"), format!("s-summarization-1-{part}"));
        let mut writer = Writer::begin(Arc::clone(&folder), &name, &head(&session, version), &scrub).unwrap();
        writer.copy(&main, 0..9, "metrics are in the main trajectory").unwrap();
        writer.push(&user("Summarise.")).unwrap();
        writer.push(&full()).unwrap();
        writer.finish(&tail(1)).unwrap();
        files.push(dir.join(&name));
        let extra = map(json!({"summary": format!("Step: {part}")}));
        refs.push(SubagentRef { session_id: Some(session), path: name, extra });
    }
    main.push(&Step { timestamp: Some(at(3.0)), ..Step::compaction("Summarised.", refs) }).unwrap();
    let picture = Part::Image(ImageType::Png, "screen.png".to_string());
    let mut parts = vec![Part::Text("Go on.".to_string()), picture];
    if version == Version::V1_8 {
        parts.push(Part::Audio(AudioType::Wav, "bell.wav".to_string(), Some(0.5)));
    }
    main.push(&Step { message: Content::Parts(parts), ..user("") }).unwrap();
    main.push(&Step { message: Content::default(), ..full() }).unwrap();
    let last = Tail { notes: Some("n".to_string()), extra: map(json!({"k": [[1], []]})), ..tail(2) };
    main.finish(&last).unwrap();
    files
}

#[test]
fn harbor_takes_trajectories_for_valid() {
    let Ok(pythons) = std::env::var("PILOTHOUSE_HARBOR_PYTHON") else {
        return support::skipped("PILOTHOUSE_HARBOR_PYTHON names no Python with Harbor (several: separated by colons)");
    };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/interop/trajectory.py");
    let temp = tempfile::tempdir().unwrap();
    let [new, old] = [Version::V1_8, Version::V1_7].map(|version| {
        let dir = temp.path().join(format!("{version:?}"));
        fs::create_dir(&dir).unwrap();
        all_kinds(&dir, version)
    });
    // The check can fail: a step less, a call that is not there.
    let wrong =
        [("\"step_id\": 2", "\"step_id\": 3"), ("\"source_call_id\": \"call_0_2\"", "\"source_call_id\": \"x\"")];
    let whole = fs::read_to_string(&old[0]).unwrap();
    let wrong: Vec<PathBuf> = (0..wrong.len())
        .map(|n| {
            let (path, (before, after)) = (temp.path().join(format!("wrong-{n}.json")), wrong[n]);
            fs::write(&path, whole.replacen(before, after, 1)).unwrap();
            path
        })
        .collect();
    for python in pythons.split(':') {
        let out = Command::new(python).arg(&script).args([&old[..], &new[..], &wrong[..]].concat()).output().unwrap();
        let text = [&*out.stdout, &*out.stderr].map(String::from_utf8_lossy).join("\n");
        let ok = |files: &[PathBuf]| {
            let said = |file: &&PathBuf| text.lines().any(|line| line == format!("OK {}", file.display()));
            files.iter().filter(said).count()
        };
        let knows = if text.starts_with("harbor 0.21.") { 0 } else { 4 };
        assert_eq!((ok(&old), ok(&new), ok(&wrong)), (4, knows, 0), "{python}\n{text}");
        println!("{}: 4 of ATIF-v1.7, {knows} of ATIF-v1.8", text.lines().next().unwrap());
    }
}

#[test]
fn our_reader_finds_what_was_written() {
    let temp = tempfile::tempdir().unwrap();
    let files = all_kinds(temp.path(), Version::V1_8);
    let mut index = TrajectoryIndex::new(File::open(&files[0]).unwrap());
    while !index.build_slice(1 << 20).unwrap() {}
    assert!(index.is_whole());
    let head = index.head().clone();
    assert_eq!(head.schema_version.as_deref(), Some("ATIF-v1.8"));
    assert_eq!((head.session_id.as_deref(), head.agent.as_deref()), (Some("s"), Some("pilothouse-terminus")));
    assert_eq!((head.totals.input, head.cost_usd), (Some(767 * 2), Some(0.009_259)));
    let progress = index.progress().unwrap();
    assert_eq!((progress.steps, progress.episodes), (5, 2));
    let ids: Vec<_> = index.steps().iter().map(|s| s.step_id).collect();
    assert_eq!(ids, (1..=5).map(Some).collect::<Vec<_>>());
    let step = index.step(1).unwrap();
    assert_eq!(step.tool_calls.len(), 2);
    assert_eq!((step.tool_calls[1].keystrokes.as_deref(), step.tool_calls[1].duration), (Some("\u{3}"), Some(0.1)));
    assert_eq!(step.reasoning.as_deref(), Some("First I look."));
    assert_eq!(step.observations[0].call_id.as_deref(), Some("call_0_2"));
    assert_eq!(step.observations[0].content, "a \"b\" \\ \t \u{1b}[31m \u{0}");
    assert_eq!((step.observations[1].call_id.as_deref(), step.metrics.cost_usd), (None, Some(0.000_965)));
    assert_eq!(index.step(2).unwrap().observations[0].subagents.len(), 3);
    // A helper's file: what it was told of the run is marked, and counted where it comes from.
    let value: Value = serde_json::from_slice(&fs::read(&files[3]).unwrap()).unwrap();
    let steps = value["steps"].as_array().unwrap();
    assert_eq!(steps.len(), 4);
    let told = |n: usize| (steps[n]["is_copied_context"] == true, steps[n].get("metrics").is_some());
    assert_eq!((told(0), told(1), told(2), told(3)), ((true, false), (true, false), (false, false), (false, true)));
    assert_eq!(
        (steps[0].get("extra"), &steps[1]["extra"]["note"]),
        (None, &json!("metrics are in the main trajectory"))
    );
    assert_eq!(steps[1]["tool_calls"], steps[3]["tool_calls"]);
    assert_eq!(steps[1]["timestamp"], "2026-11-29T19:30:02.123456Z");
    let mut index = TrajectoryIndex::new(File::open(&files[3]).unwrap());
    while !index.build_slice(1 << 20).unwrap() {}
    assert_eq!(index.progress().unwrap().episodes, 1);
}

#[test]
fn it_is_whole_after_every_step() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("trajectory.json");
    let mut writer =
        Writer::begin(folder(temp.path()), "trajectory.json", &head("s", Version::V1_8), &Scrub::default()).unwrap();
    writer.save(&tail(0)).unwrap();
    assert!(!path.exists(), "there is no trajectory without a step");
    for n in 1..=40 {
        assert_eq!(writer.push(&full()).unwrap(), n);
        writer.save(&tail(n)).unwrap();
        let value: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        assert_eq!(value["steps"].as_array().unwrap().len() as u64, n);
        assert_eq!(value["final_metrics"]["total_steps"].as_u64(), Some(n));
    }
    // A step that nobody has seen is not lost with the one who wrote it.
    writer.push(&user("the last")).unwrap();
    drop(writer);
    let value: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    assert_eq!(
        (value["steps"][40]["message"].as_str(), value["steps"][40]["step_id"].as_u64()),
        (Some("the last"), Some(41))
    );
    assert_eq!(fs::read_dir(temp.path()).unwrap().count(), 1, "nothing else is left");
}

#[test]
fn what_can_not_be_said_is_left_out_or_refused() {
    let temp = tempfile::tempdir().unwrap();
    let scrub = Scrub::new([SECRET.to_string()]);
    let mut writer = Writer::begin(folder(temp.path()), "t.json", &head(SECRET, Version::V1_7), &scrub).unwrap();
    let sound = Part::Audio(AudioType::Mpeg, "a.mp3".to_string(), None);
    let step = Step { message: Content::Parts(vec![sound]), ..user("") };
    let error = writer.push(&step).unwrap_err();
    assert!(matches!(&error, WriteError::Io { .. }) && error.to_string().contains("ATIF-v1.7"), "{error}");
    assert_eq!(writer.steps(), 0);
    let mut odd = full();
    let By::Agent(turn) = &mut odd.by else { panic!("no turn") };
    let metrics = turn.metrics.as_mut().unwrap();
    (metrics.cost_usd, metrics.logprobs) = (Some(f64::NAN), Some(vec![-1.0, f64::NEG_INFINITY]));
    turn.tool_calls[0].arguments.insert("keystrokes".to_string(), format!("export K={SECRET}\n").into());
    odd.message = Content::Text(format!("key: {SECRET}"));
    writer.push(&odd).unwrap();
    let notes = Some(SECRET.to_string());
    let final_metrics = Some(FinalMetrics { total_cost_usd: Some(f64::INFINITY), ..FinalMetrics::default() });
    writer.finish(&Tail { notes, final_metrics, ..Tail::default() }).unwrap();
    let text = fs::read_to_string(temp.path().join("t.json")).unwrap();
    assert!(!text.contains("sk-live-0123456789"), "{text}");
    let value: Value = serde_json::from_str(&text).unwrap();
    let written = &value["steps"][0];
    assert_eq!(written["tool_calls"][0]["arguments"]["keystrokes"], "export K=****\n");
    assert_eq!((written["message"].as_str(), value["session_id"].as_str()), (Some("key: ****"), Some("****")));
    assert!(written["metrics"].get("cost_usd").is_none() && written["metrics"].get("logprobs").is_none());
    assert_eq!(value["final_metrics"], json!({}));
    assert_eq!(value["schema_version"], "ATIF-v1.7");
}
