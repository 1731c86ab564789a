//! Real Harbor, stopped at random moments: the audit lists exactly what an independent look finds, mends
//! it, and a resume completes the set once.
//!
//! `PILOTHOUSE_STOPS=20` makes it 20 stops with each signal and version; without it 3 with SIGTERM and
//! one with SIGINT.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, SystemTime};

use serde_json::Value;

use super::support;
use support::harbor::{Bench, Harbor, document, harbor, pilothouse, result, trial_dirs};

/// Seconds from the first trial's beginning within which the stops fall: a trial takes about 12.
const WINDOW: f64 = 18.0;

fn times(default: usize) -> usize {
    std::env::var("PILOTHOUSE_STOPS").ok().and_then(|n| n.parse().ok()).unwrap_or(default)
}

#[test]
fn stops_of_0_21() {
    stops("0.21");
}

#[test]
fn stops_of_0_26() {
    stops("0.26");
}

fn stops(version: &'static str) {
    let Some(harbor) = harbor(version) else { return };
    let mut met: BTreeMap<String, usize> = BTreeMap::new();
    for (signal, n) in [("TERM", times(3)), ("INT", times(1))] {
        for at in 0..n {
            // Spread over the window, and elsewhere at each run.
            let nanos = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().subsec_nanos();
            let part = (at as f64 + f64::from(nanos % 1000) / 1000.0) / n as f64;
            // The first with SIGINT comes early: something must be left for a resume that is stopped.
            let window = if signal == "INT" && at == 0 { WINDOW * 0.4 } else { WINDOW };
            one_stop(&harbor, signal, at, window * part, &mut met);
        }
    }
    // Seen with --nocapture: how often each kind was met.
    let _ = writeln!(std::io::stderr(), "Harbor {version}: {met:?}");
}

fn one_stop(harbor: &Harbor, signal: &str, at: usize, moment: f64, met: &mut BTreeMap<String, usize>) {
    let mark = format!("s{}{}{at}x", harbor.version.replace('.', ""), signal.to_lowercase());
    let bench = Bench::new(&mark, 3, 1.0, at == 0);
    let (name, about) = ("stopped", format!("Harbor {} SIG{signal} after {moment:.2} s", harbor.version));
    let job = bench.job(name);
    let mut child = bench.run(harbor, name);
    bench.begun(name);
    std::thread::sleep(Duration::from_secs_f64(moment));
    let state = bench.dir.path().join("state");
    let dir = job.to_str().unwrap();
    let out = pilothouse(&["stop", dir, "-y", "--signal", signal, "--json"], &state);
    let said = document(&out);
    if said["stop"].is_null() && child.wait().unwrap().success() {
        // It was faster than usual: nothing was left to stop.
        *met.entry("ended before".to_string()).or_default() += 1;
        return;
    }
    assert_eq!(said["stop"]["ended"], true, "{about}: {said:#}");
    let code = child.wait().unwrap();
    assert_eq!(said["owner"]["process"]["program"], "harbor", "{about}");
    // It may just have been at its end.
    assert!(code.code() == Some(130) || code.success(), "{about}: {code}\n{}", bench.said(name));

    let wanted = independent(&bench, &job);
    assert_eq!(found(&said["audit"]), wanted, "{about}\n{said:#}\n{}", bench.said(name));
    for (kind, _) in &wanted {
        *met.entry(kind.clone()).or_default() += 1;
    }

    let out = pilothouse(&["stop", dir, "-y", "--mend", "--json"], &state);
    let said = document(&out);
    let after = if said["audit_after"].is_null() { &said["audit"] } else { &said["audit_after"] };
    // A graded trial that was cancelled while it was cleaned up is only pointed out.
    let only_told: Vec<_> = wanted.into_iter().filter(|(kind, _)| kind == "graded_but_cancelled").collect();
    assert_eq!(found(after), only_told, "{about}: {said:#}");
    assert_eq!(out.status.code(), Some(i32::from(!only_told.is_empty())), "{about}: {said:#}");
    assert_eq!(independent(&bench, &job), only_told, "{about}");

    // A resume has no handler for SIGTERM: the other signal is chosen, and it ends in order all the same.
    if signal == "INT" && at == 0 && !after["complete"].as_bool().unwrap() {
        let mut child = bench.resuming(harbor, name);
        std::thread::sleep(Duration::from_secs(3));
        let out = pilothouse(&["stop", dir, "-y", "--mend", "--json"], &state);
        let said = document(&out);
        assert_eq!(said["owner"]["process"]["verb"], "job resume", "{about}: {said:#}");
        assert_eq!((&said["stop"]["signal"], &said["stop"]["ended"]), (&"SIGINT".into(), &true.into()), "{said:#}");
        assert_eq!(child.wait().unwrap().code(), Some(130), "{about}");
        let told = independent(&bench, &job).into_iter().filter(|(kind, _)| kind != "graded_but_cancelled");
        assert_eq!(told.collect::<Vec<_>>(), [], "{about}: {said:#}");
    }

    bench.resume(harbor, name);
    let mut passed: BTreeMap<String, usize> = BTreeMap::new();
    for trial in trial_dirs(&job) {
        let result = result(&trial).unwrap_or_else(|| panic!("{about}: {} has no result", trial.display()));
        assert_eq!(result["verifier_result"]["rewards"]["reward"], 1.0, "{about}: {result:#}");
        assert!(result["exception_info"].is_null(), "{about}: {result:#}");
        let task = trial.file_name().unwrap().to_string_lossy().rsplit_once("__").unwrap().0.to_string();
        *passed.entry(task).or_default() += 1;
    }
    let once: BTreeMap<String, usize> = (0..bench.tasks).map(|n| (format!("{}-{n}", bench.mark), 1)).collect();
    assert_eq!(passed, once, "{about}");
}

/// Kind and subject of what an audit found, sorted.
fn found(audit: &Value) -> Vec<(String, String)> {
    let text = |f: &Value, key: &str| f[key].as_str().unwrap().to_string();
    let mut out: Vec<(String, String)> =
        audit["findings"].as_array().unwrap().iter().map(|f| (text(f, "kind"), text(f, "subject"))).collect();
    out.sort();
    out
}

/// The same, found without any of our code.
fn independent(bench: &Bench, job: &Path) -> Vec<(String, String)> {
    let mut out = Vec::new();
    for trial in trial_dirs(job) {
        let name = trial.file_name().unwrap().to_string_lossy().into_owned();
        match result(&trial) {
            None => out.push(("no_result".to_string(), name)),
            Some(r) if r["exception_info"].is_null() && r["verifier_result"].is_null() => {
                out.push(("phantom".to_string(), name));
            }
            Some(r) => {
                let graded = !r["verifier_result"]["rewards"]["reward"].is_null();
                if graded && r["exception_info"]["exception_type"] == "CancelledError" {
                    out.push(("graded_but_cancelled".to_string(), name));
                }
            }
        }
    }
    let left = bench.in_docker();
    let mut add = |kind: &str, names: Vec<String>| out.extend(names.into_iter().map(|name| (kind.to_string(), name)));
    add("container", left.containers);
    add("network", left.networks);
    add("image", left.images);
    add("temp", bench.in_tmp().iter().map(|p| p.to_string_lossy().into_owned()).collect());
    out.sort();
    out
}
