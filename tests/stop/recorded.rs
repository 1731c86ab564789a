//! Recorded jobs after stops: what each left, found and mended on a copy.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use pilothouse::audit::{self, FindingKind, Mend};
use serde_json::Value;

use super::support;
use support::harbor::document;

/// A copy of a recorded job, and a state directory.
struct Copied {
    _tmp: tempfile::TempDir,
    job: PathBuf,
    state: PathBuf,
}

fn copy(name: &str) -> Option<Copied> {
    let shared = support::shared()?;
    let tmp = tempfile::tempdir().unwrap();
    let (job, state) = (tmp.path().join("jobs").join(name), tmp.path().join("state"));
    fs::create_dir_all(job.parent().unwrap()).unwrap();
    let from = shared.join("data/jobs").join(name);
    assert!(Command::new("cp").arg("-a").arg(&from).arg(&job).status().unwrap().success());
    Some(Copied { _tmp: tmp, job, state })
}

/// Runs `stop` where no engine answers, so that the outcome is the same everywhere.
fn stop(copied: &Copied, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pilothouse"));
    command.arg("stop").arg(&copied.job).args(args).arg("--json");
    command.env("PILOTHOUSE_STATE_DIR", &copied.state).env("DOCKER_HOST", "unix:///nowhere/docker.sock");
    command.stdin(Stdio::null()).output().unwrap()
}

/// Kind and subject of all findings.
fn findings(audit: &Value) -> Vec<(String, String)> {
    let text = |f: &Value, key: &str| f[key].as_str().unwrap().to_string();
    audit["findings"].as_array().unwrap().iter().map(|f| (text(f, "kind"), text(f, "subject"))).collect()
}

/// Every file of a directory with its bytes.
fn tree(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut out = BTreeMap::new();
    let mut todo = vec![dir.to_path_buf()];
    while let Some(next) = todo.pop() {
        for entry in fs::read_dir(next).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                todo.push(path);
            } else {
                out.insert(path.strip_prefix(dir).unwrap().to_path_buf(), fs::read(&path).unwrap());
            }
        }
    }
    out
}

#[test]
fn what_each_recorded_stop_left_is_found() {
    let wanted: [(&str, &[(&str, &str)]); 5] = [
        ("p-phantom-0.21.0", &[("phantom", "beta__UDifQjo")]),
        ("c-sigterm-0.21.0", &[("no_result", "json-merge__6oPBXmJ")]),
        ("c26-sigterm-0.26.0", &[]),
        (
            "d-sigkill-0.21.0",
            &[
                ("no_result", "half-done__9dSUW6Z"),
                ("no_result", "two-steps__iK8GZ4G"),
                ("no_result", "wrong-answer__3yiBVPd"),
            ],
        ),
        ("a-oracle-all-0.21.0", &[]),
    ];
    for (name, wanted) in wanted {
        let Some(copied) = copy(name) else { return };
        let before = tree(&copied.job);
        let out = stop(&copied, &["--audit-only"]);
        let audit = &document(&out)["audit"];
        let wanted: Vec<(String, String)> = wanted.iter().map(|(k, s)| ((*k).to_string(), (*s).to_string())).collect();
        assert_eq!(findings(audit), wanted, "{name}");
        // Nobody answered for the engine: that is no zero, and needs a person.
        assert!(audit["summary"].as_str().unwrap().contains("- containers, - networks"), "{audit}");
        assert_eq!(out.status.code(), Some(1), "{name}");
        assert!(tree(&copied.job) == before && !copied.state.join("quarantine").exists(), "{name}: only looked at");
    }
}

#[test]
fn mends_move_trials_away_whole_and_are_noted() {
    let Some(copied) = copy("d-sigkill-0.21.0") else { return };
    let before = tree(&copied.job);
    // A word is needed.
    let out = stop(&copied, &["--mend"]);
    assert!(document(&out)["mends"].as_array().unwrap().is_empty());
    assert!(tree(&copied.job) == before);

    let out = stop(&copied, &["--mend", "-y"]);
    let said = document(&out);
    let id = serde_json::from_slice::<Value>(before.get(Path::new("result.json")).unwrap()).unwrap()["id"].clone();
    let place = copied.state.join("quarantine").join(id.as_str().unwrap());
    let mut moved = Vec::new();
    for mend in said["mends"].as_array().unwrap() {
        let name = mend["subject"].as_str().unwrap();
        assert_eq!(mend["place"].as_str().unwrap(), place.join(name).to_str().unwrap());
        moved.push(name.to_string());
    }
    assert_eq!(moved, ["half-done__9dSUW6Z", "two-steps__iK8GZ4G", "wrong-answer__3yiBVPd"]);
    assert_eq!(findings(&said["audit_after"]), []);
    // Nothing is lost: what is not in the job dir any more is in the quarantine, byte for byte.
    let mut after = tree(&copied.job);
    let journal = after.remove(Path::new("pilothouse.jsonl")).unwrap();
    after.extend(tree(&place));
    assert!(after == before);
    let lines: Vec<Value> =
        String::from_utf8(journal).unwrap().lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert_eq!(lines.len(), 3);
    for (line, name) in lines.iter().zip(&moved) {
        assert_eq!((&line["act"], &line["subject"]), (&"quarantine".into(), &name.as_str().into()));
        assert!(line["why"].as_str().unwrap().contains("no result.json"), "{line}");
        assert!(line["time"].as_str().unwrap().ends_with('Z') && !line["operator"].as_str().unwrap().is_empty());
    }
}

#[test]
fn a_mend_can_be_taken_back_and_is_not_done_twice() {
    let Some(copied) = copy("p-phantom-0.21.0") else { return };
    let before = tree(&copied.job);
    let found = audit::audit(&copied.job, None).unwrap();
    assert_eq!(found.count(FindingKind::Phantom), 1);
    let phantom = found.findings.iter().find(|f| f.kind == FindingKind::Phantom).unwrap();
    assert_eq!(phantom.mend, Mend::Quarantine { name: "beta__UDifQjo".to_string() });
    let mended = audit::mend(&found, phantom, &copied.state).unwrap();
    assert!(!copied.job.join("beta__UDifQjo").exists());
    assert!(audit::mend(&found, phantom, &copied.state).is_err());
    audit::undo(&found, &mended, phantom, &copied.state).unwrap();
    let mut after = tree(&copied.job);
    let journal = String::from_utf8(after.remove(Path::new("pilothouse.jsonl")).unwrap()).unwrap();
    assert!(after == before);
    assert_eq!(journal.lines().count(), 2);
    assert!(audit::undo(&found, &mended, phantom, &copied.state).is_err());

    // What changed since the audit is left alone: the phantom has a reward now.
    let file = copied.job.join("beta__UDifQjo/result.json");
    let mut value: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    value["verifier_result"] = serde_json::json!({"rewards": {"reward": 1.0}});
    fs::write(&file, serde_json::to_vec(&value).unwrap()).unwrap();
    assert!(matches!(audit::mend(&found, phantom, &copied.state), Err(audit::MendError::Changed(_))));
    assert!(file.exists());
}

/// What only an inhabitant of the job dir can do to us.
#[test]
fn hostile_directories_are_reported_and_not_followed() {
    let Some(copied) = copy("g3-nop-0.21.0") else { return };
    let outside = copied.job.parent().unwrap().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("trial.log"), "mine").unwrap();
    fs::create_dir(copied.job.join("notes\u{1b}[31m")).unwrap();
    fs::write(copied.job.join("notes\u{1b}[31m/todo"), "x").unwrap();
    std::os::unix::fs::symlink(&outside, copied.job.join("linked__abc")).unwrap();
    let torn = copied.job.join("torn__abc");
    fs::create_dir(&torn).unwrap();
    fs::write(torn.join("config.json"), "{}").unwrap();
    fs::write(torn.join("result.json"), "{\"id\": ").unwrap();
    let pipe = copied.job.join("pipe__abc");
    fs::create_dir(&pipe).unwrap();
    assert!(Command::new("mkfifo").arg(pipe.join("result.json")).status().unwrap().success());
    let out = stop(&copied, &["--mend", "-y"]);
    let said = document(&out);
    let found = findings(&said["audit"]);
    assert!(!String::from_utf8_lossy(&out.stdout).contains('\u{1b}'));
    assert!(!String::from_utf8_lossy(&out.stderr).contains('\u{1b}'));
    let kinds: Vec<&str> = found.iter().map(|(kind, _)| kind.as_str()).collect();
    assert_eq!(kinds, ["unreadable_result", "unreadable_result", "foreign_dir"], "{found:?}");
    assert!(copied.job.join("notes\u{1b}[31m/todo").exists(), "somebody's directory stays");
    assert!(outside.join("trial.log").exists() && copied.job.join("linked__abc").exists());
    assert!(!torn.exists() && !pipe.exists());
}

#[test]
fn what_is_no_job_is_refused() {
    let tmp = tempfile::tempdir().unwrap();
    let run = |dir: &Path| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pilothouse"));
        command.arg("stop").arg(dir).args(["-y", "--mend"]).stdin(Stdio::null());
        command.output().unwrap().status.code()
    };
    assert_eq!(run(tmp.path()), Some(2));
    assert_eq!(run(&tmp.path().join("absent")), Some(2));
}

#[test]
fn names_that_are_not_utf8_end_no_report_and_no_note() {
    use std::os::unix::ffi::OsStrExt;
    let Some(copied) = copy("d-sigkill-0.21.0") else { return };
    let odd = std::ffi::OsStr::from_bytes(b"jobs\xff\x80");
    let base = copied.job.parent().unwrap().with_file_name(odd);
    fs::rename(copied.job.parent().unwrap(), &base).unwrap();
    let (job, state) = (base.join("d-sigkill-0.21.0"), base.join("state"));
    let copied = Copied { job, state, ..copied };
    let said = document(&stop(&copied, &["--mend", "-y"]));
    assert!(said["job_dir"].as_str().unwrap().contains("jobs\u{fffd}"), "{said}");
    assert_eq!(said["mends"].as_array().unwrap().len(), 3, "{said}");
    let journal = fs::read_to_string(copied.job.join("pilothouse.jsonl")).unwrap();
    let notes: Vec<Value> = journal.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert!(notes.len() == 3 && notes.iter().all(|n| n["place"].is_string()), "{journal}");
}
