//! Verdicts are kept apart from the run, requeues refused with the command that would do it, the resume told
//! before anybody does it.

use std::ffi::OsStr;
use std::fs;

use serde_json::Value;

use super::made::Run;
use super::{json_in, pilothouse, print_of, row, score};

#[test]
fn a_verdict_counts_and_nothing_is_written_into_the_run() {
    let temp = tempfile::tempdir().unwrap();
    let (runs, state) = (temp.path().join("runs"), temp.path().join("state"));
    fs::create_dir(&runs).unwrap();
    let mut run = Run::begin(&runs, "r1", &["a", "b", "c"], 1);
    let trial = run.end("a", 1, None, "parse_error");
    run.end("b", 1, Some(true), "unset");
    let before = print_of(&runs);
    let args: Vec<&OsStr> =
        vec!["verdict".as_ref(), trial.as_os_str(), "counts_as_passed".as_ref(), "--note".as_ref(), "seen".as_ref()];
    let out = pilothouse(&state, &args);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let (document, _) = json_in(&state, "tally", &[], std::slice::from_ref(&run.dir));
    assert_eq!(row(&document, &run.trial("a", 1).0)["verdict"], "counts_as_passed");
    assert_eq!(score(&document, "corrected")["numerator"], 2.0);
    assert_eq!(score(&document, "raw")["numerator"], 1.0);
    assert_eq!(print_of(&runs), before, "the run is as it was");
    // Of a trial without directory, too.
    run.known(run.result("c", 1, None, "test_timeout"));
    let alone = run.trial("c", 1).1;
    let out = pilothouse(&state, &["verdict".as_ref(), alone.as_os_str(), "task_invalid".as_ref()]);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let (document, _) = json_in(&state, "tally", &[], std::slice::from_ref(&run.dir));
    assert_eq!(row(&document, &run.trial("c", 1).0)["verdict"], "task_invalid");
    let nobody = run.dir.join("c/c.9-of-9");
    let out = pilothouse(&state, &["verdict".as_ref(), nobody.as_os_str(), "task_invalid".as_ref()]);
    assert_eq!(out.status.code(), Some(2));
}

#[test]
fn a_requeue_is_refused_with_the_command_that_would_do_it() {
    let temp = tempfile::tempdir().unwrap();
    let mut run = Run::begin(temp.path(), "r1", &["a", "b c"], 1);
    run.end("a", 1, None, "parse_error");
    run.end("b c", 1, None, "unknown_agent_error");
    run.metadata(&["a", "b c"], Some(0.0));
    let before = print_of(temp.path());
    let state = tempfile::tempdir().unwrap();
    let name = run.trial("a", 1).0;
    let mut args: Vec<&OsStr> = vec!["requeue".as_ref(), run.dir.as_os_str(), "--trial".as_ref(), name.as_ref()];
    args.extend(["--trial", "b c", "--force", "--reason", "x", "-y"].map(OsStr::new));
    let out = pilothouse(state.path(), &args);
    let text = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert_eq!(out.status.code(), Some(2), "{text}");
    assert!(text.contains("takes no further trials"), "{text}");
    assert!(text.contains("tb run --dataset-name core --agent terminus"), "{text}");
    assert!(text.contains("--task-id a --task-id 'b c'"), "{text}");
    assert!(!text.contains("--run-id") && !text.contains("--task-id old") && !text.contains("verysecret"), "{text}");
    assert_eq!(print_of(temp.path()), before);
}

#[test]
fn the_resume_is_told_task_by_task() {
    let temp = tempfile::tempdir().unwrap();
    let mut run = Run::begin(temp.path(), "r1", &["whole", "half", "never"], 2);
    run.end("whole", 1, Some(true), "unset");
    run.end("whole", 2, Some(false), "unset");
    run.end("half", 1, Some(true), "unset");
    let cut = run.end("half", 2, None, "unset");
    fs::remove_file(cut.join("results.json")).unwrap();
    let before = print_of(temp.path());
    let state = tempfile::tempdir().unwrap();
    let (told, code) = json_in(state.path(), "resume-preview", &[], std::slice::from_ref(&run.dir));
    assert_eq!(code, 1, "a solved attempt is lost");
    let list =
        |value: &Value| value.as_array().unwrap().iter().map(|v| v.as_str().unwrap().to_string()).collect::<Vec<_>>();
    assert_eq!((list(&told["keeps"]), list(&told["runs"])), (vec!["whole".to_string()], vec!["never".to_string()]));
    assert_eq!(told["deletes"][0]["task"], "half");
    assert_eq!(told["deletes"][0]["results_lost"][0]["verdict"], "resolved");
    assert_eq!(told["deletes"][0]["missing"], 1);
    assert_eq!(told["known_to_aggregate_alone"], 1);
    let out = pilothouse(state.path(), &["resume-preview".as_ref(), run.dir.as_os_str()]);
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(text.contains("half.1-of-2.r1 (resolved)") && text.contains("tb runs resume --run-id r1"), "{text}");
    // Under another name it is not found.
    let moved = temp.path().join("copy");
    fs::rename(&run.dir, &moved).unwrap();
    let (told, _) = json_in(state.path(), "resume-preview", &[], std::slice::from_ref(&moved));
    assert!(told["refuses"].to_string().contains("has to be called r1"), "{told}");
    fs::rename(&moved, &run.dir).unwrap();
    assert_eq!(print_of(temp.path()), before);
}

#[test]
fn a_stop_is_refused_in_words() {
    let temp = tempfile::tempdir().unwrap();
    let mut run = Run::begin(temp.path(), "r1", &["a"], 1);
    run.end("a", 1, Some(true), "unset");
    let before = print_of(temp.path());
    let state = tempfile::tempdir().unwrap();
    let out = pilothouse(state.path(), &["stop".as_ref(), run.dir.as_os_str(), "-y".as_ref()]);
    assert_eq!(out.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&out.stderr).contains("not stopped or audited"), "{out:?}");
    assert_eq!(print_of(temp.path()), before);
}
