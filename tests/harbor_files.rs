//! Directories full of traps, and trajectories of any size.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, missing_docs)]

mod support;

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use pilothouse::harbor::trajectory::{Source, split_message, trajectory_files};
use pilothouse::harbor::{self, Dir, EntryKind, OpenError, ProblemReason, TrajectoryIndex};
use proptest::prelude::*;
use serde_json::{Value, json};

fn index(path: &Path) -> TrajectoryIndex {
    let mut index = TrajectoryIndex::new(File::open(path).unwrap());
    assert!(index.build_slice(u64::MAX).unwrap());
    index
}

fn index_of(bytes: &[u8]) -> TrajectoryIndex {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(bytes).unwrap();
    let mut index = TrajectoryIndex::new(file);
    index.build_slice(u64::MAX).unwrap();
    index
}

#[test]
fn nothing_leads_out_of_a_dir() {
    let temp = tempfile::tempdir().unwrap();
    let root = temp.path().join("job");
    fs::create_dir_all(root.join("trial/agent")).unwrap();
    fs::write(root.join("trial/result.json"), b"{}").unwrap();
    fs::write(root.join("trial/agent/log.txt"), b"0123456789").unwrap();
    fs::write(temp.path().join("outside"), b"secret").unwrap();
    symlink(temp.path().join("outside"), root.join("trial/config.json")).unwrap();
    symlink("agent", root.join("trial/linked")).unwrap();
    symlink("/nowhere", root.join("trial/broken")).unwrap();
    fs::hard_link(temp.path().join("outside"), root.join("trial/hard")).unwrap();
    let status = std::process::Command::new("mkfifo").arg(root.join("trial/fifo")).status().unwrap();
    assert!(status.success());
    let _socket = std::os::unix::net::UnixListener::bind(root.join("trial/socket")).unwrap();

    let begun = Instant::now();
    let dir = Dir::open(&root).unwrap();
    let trial = dir.sub("trial").unwrap();
    assert_eq!(dir.read("trial/result.json", 10).unwrap().data, b"{}");
    assert_eq!(trial.read("agent/log.txt", 4).unwrap().data, b"0123");
    assert!(trial.read("agent/log.txt", 4).unwrap().truncated);
    assert!(!trial.read("agent/log.txt", 10).unwrap().truncated);
    assert!(matches!(trial.read_all("agent/log.txt", 9), Err(OpenError::TooLarge { size: 10, cap: 9 })));
    let tail = trial.read_tail("agent/log.txt", 3).unwrap();
    assert_eq!((tail.data.as_slice(), tail.truncated), (&b"789"[..], true));

    assert!(matches!(trial.read("config.json", 10), Err(OpenError::Symlink)));
    assert!(matches!(trial.read("broken", 10), Err(OpenError::Symlink)));
    assert!(matches!(trial.read("linked/log.txt", 10), Err(OpenError::Symlink)));
    assert!(dir.sub("trial/linked").is_err());
    assert!(matches!(trial.read("agent", 10), Err(OpenError::NotRegular("a directory"))));
    assert!(matches!(trial.read("fifo", 10), Err(OpenError::NotRegular("a FIFO"))));
    assert!(matches!(trial.read("socket", 10), Err(OpenError::NotRegular(_))));
    assert!(matches!(trial.read("absent", 10), Err(OpenError::Missing)));
    assert!(matches!(trial.read("result.json/x", 10), Err(OpenError::Missing)));
    for wrong in ["../trial/result.json", "/etc/passwd", "agent/../../x", "", "a\0b"] {
        assert!(trial.read(wrong, 10).is_err(), "{wrong:?}");
        assert!(trial.sub(wrong).is_err(), "{wrong:?}");
    }
    assert_eq!(trial.read("hard", 10).unwrap().data, b"secret");
    assert_eq!(trial.stat("hard").unwrap().links, 2);
    assert!(begun.elapsed() < Duration::from_secs(2), "a FIFO must not block");

    let mut kinds: Vec<(String, EntryKind)> =
        trial.list().unwrap().into_iter().map(|e| (e.name.into_string().unwrap(), e.kind)).collect();
    kinds.sort_by(|a, b| a.0.cmp(&b.0));
    use EntryKind::{Dir as D, File as F, Other, Symlink as L};
    let wanted = [
        ("agent", D),
        ("broken", L),
        ("config.json", L),
        ("fifo", Other),
        ("hard", F),
        ("linked", L),
        ("result.json", F),
        ("socket", Other),
    ];
    assert_eq!(kinds, wanted.map(|(n, k)| (n.to_string(), k)));

    let meta = trial.stat("agent/log.txt").unwrap();
    let std = fs::metadata(root.join("trial/agent/log.txt")).unwrap();
    assert_eq!((meta.size, meta.inode, meta.device, meta.uid), (10, std.ino(), std.dev(), std.uid()));
    assert_eq!(meta.mtime_nanos, i128::from(std.mtime()) * 1_000_000_000 + i128::from(std.mtime_nsec()));
    assert_eq!(meta.modified.as_second(), std.mtime());
    assert_eq!(trial.stat("").unwrap().kind, EntryKind::Dir);
    assert_eq!(trial.stat("config.json").unwrap().kind, EntryKind::Symlink);
    assert_eq!(trial.stat("absent").unwrap_err().kind(), io::ErrorKind::NotFound);
    assert_eq!(trial.stat("agent/absent").unwrap_err().kind(), io::ErrorKind::NotFound);
    assert!(trial.stat("linked/log.txt").is_err());
    // The operator's own path may be a link.
    symlink(&root, temp.path().join("alias")).unwrap();
    assert!(Dir::open(&temp.path().join("alias")).is_ok());
    assert!(Dir::open(&root.join("trial/result.json")).is_err());
    // An open dir stays what it is when its name goes to something else.
    fs::rename(root.join("trial"), root.join("moved")).unwrap();
    symlink("/", root.join("trial")).unwrap();
    assert_eq!(trial.read("result.json", 10).unwrap().data, b"{}");
    assert!(dir.sub("trial").is_err());
}

#[test]
fn a_denied_file_names_its_owner_and_the_next_step() {
    let temp = tempfile::tempdir().unwrap();
    let path = temp.path().join("result.json");
    fs::write(&path, b"{}").unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).unwrap();
    let uid = fs::metadata(&path).unwrap().uid();
    let text = OpenError::Denied { owner: Some(0) }.to_string();
    assert_eq!(text, "permission denied (owner root): run as root or chmod");
    if uid == 0 {
        support::skipped("in part: root may read everything");
        return;
    }
    let error = Dir::open(temp.path()).unwrap().read("result.json", 10).unwrap_err();
    assert!(matches!(error, OpenError::Denied { owner: Some(owner) } if owner == uid), "{error}");
}

/// Trajectories of a trial that count: the step's own ones where there are steps.
fn trajectories(trial: &Path) -> Vec<PathBuf> {
    let mut out: Vec<PathBuf> = fs::read_dir(trial.join("steps"))
        .map(|list| list.map(|e| e.unwrap().path()).collect())
        .unwrap_or_else(|_| vec![trial.to_path_buf()]);
    out.sort();
    out.iter().map(|p| p.join("agent/trajectory.json")).filter(|p| p.is_file()).collect()
}

#[test]
fn recorded_trajectories_count_as_the_results_say() {
    let Some(shared) = support::shared() else { return };
    let jobs = shared.join("data/jobs");
    let truth: Value = serde_json::from_slice(&fs::read(jobs.join("truth.json")).unwrap()).unwrap();
    let (mut seen, mut behind) = (0, 0);
    for (job, facts) in truth.as_object().unwrap() {
        for (trial, truth) in facts["trials"].as_object().unwrap() {
            let episodes = &truth["n_episodes"];
            let wanted: Vec<u64> = match episodes.as_array() {
                Some(list) => list.iter().filter_map(Value::as_u64).collect(),
                None => episodes.as_u64().into_iter().collect(),
            };
            for (n, path) in trajectories(&jobs.join(job).join(trial)).iter().enumerate() {
                let bytes = fs::read(path).unwrap();
                let value: Value = serde_json::from_slice(&bytes).unwrap();
                let steps = value["steps"].as_array().unwrap();
                let index = index(path);
                assert!(index.is_whole() && index.steps().len() == steps.len(), "{path:?}");
                for (i, (place, step)) in index.steps().iter().zip(steps).enumerate() {
                    let range = place.offset as usize..(place.offset + place.len) as usize;
                    assert_eq!(&serde_json::from_slice::<Value>(&bytes[range]).unwrap(), step, "{path:?}");
                    assert_eq!(place.step_id.map(u64::from), step["step_id"].as_u64());
                    assert_eq!(place.source.word(), step["source"].as_str().unwrap());
                    assert_eq!(place.tool_calls as usize, step["tool_calls"].as_array().map_or(0, Vec::len));
                    assert_eq!(place.prompt_tokens, step["metrics"]["prompt_tokens"].as_u64());
                    assert_eq!(place.completion_tokens, step["metrics"]["completion_tokens"].as_u64());
                    assert_eq!(place.timestamp.is_some(), step["timestamp"].is_string());
                    let read = index.step(i).unwrap();
                    assert_eq!(read.message, step["message"].as_str().unwrap());
                    assert_eq!(read.timestamp, place.timestamp);
                    assert_eq!(read.reasoning.as_deref(), step["reasoning_content"].as_str());
                    assert_eq!(read.tool_calls.len(), place.tool_calls as usize);
                    for (call, wanted) in
                        read.tool_calls.iter().zip(step["tool_calls"].as_array().into_iter().flatten())
                    {
                        assert_eq!(call.keystrokes.as_deref(), wanted["arguments"]["keystrokes"].as_str());
                        assert_eq!(call.duration, wanted["arguments"]["duration"].as_f64());
                    }
                    let results = step["observation"]["results"].as_array();
                    assert_eq!(read.observations.len(), results.map_or(0, Vec::len));
                    for (observation, wanted) in read.observations.iter().zip(results.into_iter().flatten()) {
                        assert_eq!(observation.content, wanted["content"].as_str().unwrap_or(""));
                        let refs = wanted["subagent_trajectory_ref"].as_array().map_or(0, Vec::len);
                        assert_eq!(observation.subagents.len(), refs);
                    }
                }
                let progress = harbor::progress(&File::open(path).unwrap()).unwrap();
                assert_eq!(progress.steps as usize, steps.len());
                assert_eq!(progress.tokens.input, value["final_metrics"]["total_prompt_tokens"].as_u64());
                if let Some(wanted) = wanted.get(n) {
                    // The episode that was cut off counts there and left no step here.
                    let here = u64::from(progress.episodes);
                    assert!(here == *wanted || here + 1 == *wanted, "{path:?}: {here} of {wanted}");
                    behind += usize::from(here != *wanted);
                    seen += 1;
                }
            }
        }
    }
    assert!(seen > 80 && behind > 0 && behind < seen / 2, "{seen} {behind}");
}

#[test]
fn a_torn_trajectory_gives_its_whole_steps() {
    let Some(shared) = support::shared() else { return };
    let dir = shared.join("data/jobs/b26-terminus2-mix-0.26.0");
    let trial =
        fs::read_dir(dir).unwrap().map(|e| e.unwrap().path()).find(|p| p.to_string_lossy().contains("hello-file"));
    let bytes = fs::read(trial.unwrap().join("agent/trajectory.json")).unwrap();
    let whole = index_of(&bytes);
    assert_eq!(whole.head().schema_version.as_deref(), Some("ATIF-v1.8"));
    assert_eq!(whole.head().agent.as_deref(), Some("terminus-2"));
    let body = bytes.trim_ascii_end().len();
    for end in (0..bytes.len()).step_by(13).chain(body - 5..=bytes.len()) {
        let index = index_of(&bytes[..end]);
        assert_eq!(index.steps(), &whole.steps()[..index.steps().len()], "{end}");
        match index.progress() {
            Ok(progress) => assert!(end >= body && progress == whole.progress().unwrap(), "{end}"),
            Err(problem) => assert!(problem.may_heal() && end < body, "{end}: {problem:?}"),
        }
    }
    for (text, kind) in [
        ("", ProblemReason::Empty),
        (" \n", ProblemReason::Empty),
        ("[]", ProblemReason::Foreign),
        ("{}", ProblemReason::Foreign),
        ("{\"steps\": 3}", ProblemReason::Foreign),
        ("{\"steps\": []}{}", ProblemReason::NotJson),
        ("<html>", ProblemReason::Foreign),
        ("{\"steps\": [", ProblemReason::Torn),
    ] {
        assert_eq!(index_of(text.as_bytes()).progress().unwrap_err().kind, kind, "{text}");
    }
    assert_eq!(index_of(b"\xef\xbb\xbf{\"steps\":[]}").progress().unwrap().steps, 0);
}

#[test]
fn odd_steps_are_read_leniently() {
    let value = json!({
        "steps": [
            {"step_id": 1, "source": "user", "message": [{"type": "text", "text": "hello"}, {"type": "image", "source": {"media_type": "image/png", "path": "a.png"}}]},
            {"step_id": "2", "source": "robot", "message": 5, "tool_calls": {"a": 1}, "metrics": [], "observation": "x", "unknown": {"steps": [{}]}},
            {"step_id": 3, "source": "agent", "message": "Analysis: fine\nPlan: go on", "is_copied_context": true,
             "tool_calls": [{"function_name": "search", "arguments": "plain"}, {"function_name": "bash_command", "arguments": {"keystrokes": "ls\n", "duration": 0.5}}],
             "metrics": {"prompt_tokens": 10, "completion_tokens": 2, "prompt_token_ids": [[1, 2], {"prompt_tokens": 99}]},
             "observation": {"results": [{"source_call_id": "c", "content": [{"text": "one"}], "subagent_trajectory_ref": {"session_id": "s", "trajectory_path": "t.json"}}]}},
            {"source": "agent", "metrics": {"prompt_tokens": 7, "completion_tokens": 1.0}, "timestamp": "2026-08-30T15:44:31+00:00"},
            "not a step",
        ],
        "agent": {"name": "x", "extra": {"name": "y"}},
    });
    let index = index_of(value.to_string().as_bytes());
    assert_eq!(index.steps().len(), 4);
    assert_eq!(index.head().agent.as_deref(), Some("x"));
    let progress = index.progress().unwrap();
    // Copied context is no episode of this file, and its tokens were counted where it comes from.
    assert_eq!((progress.steps, progress.episodes), (4, 1));
    assert_eq!((progress.tokens.input, progress.tokens.output), (Some(7), Some(1)));
    assert_eq!(progress.last_step, "2026-08-30T15:44:31Z".parse().ok());
    assert_eq!(index.steps()[2].prompt_tokens, Some(10));
    let step = |n| index.step(n).unwrap();
    assert_eq!(step(0).message, "hello\n[image/png a.png]");
    assert_eq!((step(1).message.as_str(), step(1).source, step(1).tool_calls.len()), ("5", Source::Other, 0));
    let third = step(2);
    assert_eq!(split_message(&third.message), Some(("fine", "go on")));
    assert_eq!(third.tool_calls[0].arguments, "\"plain\"");
    assert_eq!((third.tool_calls[1].keystrokes.as_deref(), third.tool_calls[1].duration), (Some("ls\n"), Some(0.5)));
    assert_eq!(third.observations[0].content, "one");
    assert_eq!(third.observations[0].subagents[0].path.as_deref(), Some("t.json"));
    assert!(index.step(4).is_err());
    assert_eq!(split_message("Planning"), None);

    let names = [
        "x.json",
        "trajectory.cont-10.json",
        "trajectory.json",
        "trajectory.cont-2.json",
        "trajectory.cont-.json",
        "trajectory.summarization-1-questions.json",
        "trajectory.summarization-1-summary.json",
        "trajectory.summarization-1-x.json",
    ];
    let files = trajectory_files(names);
    assert!(files.main);
    assert_eq!(files.continuations, [(2, names[3].to_string()), (10, names[1].to_string())]);
    assert_eq!(files.summarizations, [(1, "summary", names[6].to_string()), (1, "questions", names[5].to_string())]);
}

#[test]
fn long_texts_are_cut_with_a_word() {
    let cap = 256 * 1024;
    for (unit, shift) in
        [("x", 0), ("\\n", 1), ("\\\\", 1), ("\\u00e9", 5), ("\\ud83d\\ude00", 7), ("é", 1), ("任", 2), ("🧪", 3)]
    {
        for lead in 0..=shift {
            let text = format!("{}{}", "x".repeat(lead), unit.repeat(cap / unit.len() + 100));
            let json =
                format!(r#"{{"steps": [{{"source": "agent", "message": "{text}", "reasoning_content": "kept"}}]}}"#);
            let step = index_of(json.as_bytes()).step(0).unwrap();
            let (kept, rest) = step.message.rsplit_once("… ").unwrap_or_else(|| panic!("{unit} {lead}"));
            let dropped: usize = rest.strip_suffix(" more bytes").unwrap().parse().unwrap();
            let char = serde_json::from_str::<String>(&format!("\"{unit}\"")).unwrap();
            assert!(kept.trim_start_matches('x').replace(&char, "").is_empty(), "{unit} {lead}");
            let units = (text.len() - lead - dropped) / unit.len();
            assert_eq!(kept.len(), lead + units * char.len(), "{unit} {lead}");
            assert_eq!(step.reasoning.as_deref(), Some("kept"));
        }
    }
}

#[test]
fn condensed_files_parse_like_whole_ones() {
    let temp = tempfile::tempdir().unwrap();
    let dir = Dir::open(temp.path()).unwrap();
    let condensed = |bytes: &[u8]| {
        fs::write(temp.path().join("result.json"), bytes).unwrap();
        dir.read_condensed("result.json", 1 << 20).unwrap().data
    };
    // Every way in which a value that is left out can end, and keys that only look like it.
    let text = r#"{"rollout_details" : [1, {"a": "]\\"}, "\""], "n": 1, "all_messages":"x\\\"}", "k": ["rollout_details", "b"],
        "model_usage": null, "m": {"trial_results": -1.5e3}, "\"all_messages": [2], "exception_traceback": [], "z": {}, "trial_results":{}}"#;
    let wanted = json!({
        "rollout_details": null, "n": 1, "all_messages": null, "k": ["rollout_details", "b"], "model_usage": null,
        "m": {"trial_results": null}, "\"all_messages": [2], "exception_traceback": null, "z": {}, "trial_results": null,
    });
    assert_eq!(serde_json::from_slice::<Value>(&condensed(text.as_bytes())).unwrap(), wanted);
    for end in 0..text.len() {
        let cut = condensed(&text.as_bytes()[..end]);
        assert!(serde_json::from_slice::<Value>(&cut).is_err(), "{end}");
    }
    let ids = vec!["123456, 7.5e-3"; 200_000].join(", ");
    let big = format!(
        r#"{{"id": "a", "task_name": "t", "other": "{}", "agent_result": {{"n_input_tokens": 5, "rollout_details": [{{"ids": [[{ids}]]}}]}}}}"#,
        "x".repeat(600_000)
    );
    let small = condensed(big.as_bytes());
    assert!(small.len() < 300_000, "{}", small.len());
    assert_eq!(harbor::trial_result(&small).unwrap(), harbor::trial_result(big.as_bytes()).unwrap());
    assert!(matches!(dir.read_condensed("result.json", 1000), Err(OpenError::TooLarge { cap: 1000, .. })));
    let Some(shared) = support::shared() else { return };
    let mut seen = 0;
    for trial in fs::read_dir(shared.join("data/jobs/b26-terminus2-mix-0.26.0")).unwrap().map(|e| e.unwrap().path()) {
        let Ok(bytes) = fs::read(trial.join("result.json")) else { continue };
        assert_eq!(harbor::trial_result(&condensed(&bytes)).unwrap(), harbor::trial_result(&bytes).unwrap());
        seen += 1;
    }
    assert_eq!(seen, 23);
}

/// A trajectory with token ids, of about this many bytes; the number of steps in it.
fn big(file: &File, bytes: u64) -> u32 {
    let mut out = BufWriter::with_capacity(1 << 20, file);
    let ids = vec!["151643,\n          -0.000123"; 4000].join(",\n          ");
    let screen = "root@host:/app# make \\\"all\\\"\\n\\tcc -o x x.c\\n".repeat(1500);
    let (mut written, mut n) = (0, 0_u32);
    out.write_all(b"{\n  \"schema_version\": \"ATIF-v1.7\",\n  \"steps\": [\n").unwrap();
    while written < bytes {
        n += 1;
        let step = format!(
            "    {}{{\"step_id\": {n}, \"timestamp\": \"2026-08-30T15:44:31.5+00:00\", \"source\": \"agent\", \"message\": \"{screen}\",\n      \"tool_calls\": [{{\"function_name\": \"bash_command\", \"arguments\": {{\"keystrokes\": \"}}]\"}}}}],\n      \"metrics\": {{\"prompt_tokens\": 100, \"completion_tokens\": 7, \"prompt_token_ids\": [{ids}]}}}}\n",
            if n > 1 { "," } else { "" }
        );
        written += step.len() as u64;
        out.write_all(step.as_bytes()).unwrap();
    }
    out.write_all(b"  ]\n}\n").unwrap();
    out.flush().unwrap();
    n
}

#[test]
fn a_huge_trajectory_is_paged_in_little_memory() {
    // 300 MB with optimisation; 30 MB without, where scanning is some twenty times slower.
    let bytes: u64 = if cfg!(debug_assertions) { 30_000_000 } else { 300_000_000 };
    let file = tempfile::tempfile().unwrap();
    let steps = big(&file, bytes);
    let mut index = TrajectoryIndex::new(file);
    assert!(!index.build_slice(1_000_000).unwrap());
    assert!(index.bytes_read() < 2_000_000 && !index.steps().is_empty());
    assert_eq!(index.step(0).unwrap().tool_calls[0].keystrokes.as_deref(), Some("}]"));
    assert_eq!(index.progress().unwrap_err().kind, ProblemReason::Torn);
    let begun = Instant::now();
    while !index.build_slice(8_000_000).unwrap() {}
    let rate = bytes as f64 / 1e6 / begun.elapsed().as_secs_f64();
    println!("{rate:.0} MB/s, {steps} steps, index of {} kB", index.memory() / 1000);
    let progress = index.progress().unwrap();
    assert_eq!((progress.steps, progress.episodes), (steps, steps));
    assert_eq!(progress.tokens.output, Some(7 * u64::from(steps)));
    assert!(index.memory() < 1_000_000, "{}", index.memory());
    assert_eq!(index.step(steps as usize - 1).unwrap().step_id, Some(steps));
}

proptest! {
    #[test]
    fn noise_never_panics_the_scanner(words in prop::collection::vec(prop::sample::select(vec![
        "{", "}", "[", "]", ",", ":", "\"", "\\", "\\u00", "\"steps\":[", "{\"step_id\":", "1", "\"source\":\"agent\"", "\"metrics\":{",
        "\"tool_calls\":[{", "\"message\":\"", "\"timestamp\":\"2026", "\u{e9}", "\u{feff}", " ", "\"arguments\":{}", "NaN",
    ]), 0..80), cut in 0usize..400) {
        let bytes = words.concat().into_bytes();
        let index = index_of(bytes.get(..cut).unwrap_or(&bytes));
        let _ = index.progress();
        for n in 0..index.steps().len().min(5) {
            let _ = index.step(n);
        }
    }

    /// Whatever a strict parser accepts, the scanner finds the same steps in.
    #[test]
    fn the_scanner_agrees_with_a_parser(messages in prop::collection::vec(".{0,40}", 0..20), pretty: bool) {
        let steps: Vec<Value> = messages.iter().enumerate()
            .map(|(n, m)| json!({"step_id": n, "source": "agent", "message": m, "extra": {"k\"{": [m, {"a": [m]}]}}))
            .collect();
        let value = json!({"notes": {"steps": [{}]}, "steps": steps, "zzz": messages});
        let text = if pretty { serde_json::to_string_pretty(&value).unwrap() } else { value.to_string() };
        let index = index_of(text.as_bytes());
        prop_assert_eq!(index.progress().unwrap().steps as usize, messages.len());
        for (n, message) in messages.iter().enumerate() {
            let step = index.step(n).unwrap();
            prop_assert_eq!(&step.message, message);
            prop_assert_eq!(step.step_id, Some(n as u32));
        }
    }
}
