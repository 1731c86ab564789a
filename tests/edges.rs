//! The rooms of the house and who may look into which: the map in `src/lib.rs`, checked.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Longest file under `src`, in lines.
const LONGEST: usize = 650;

/// Where serving reads its sources; the rest of it is pure.
fn serving_reads(path: &Path) -> bool {
    ["serving/source", "serving/poll", "serving/tail"].iter().any(|part| path.to_string_lossy().starts_with(part))
}

/// The loop and the clock that wakes it.
const RUNTIME: [&str; 2] = ["app/runtime.rs", "app/alarm.rs"];

fn sources() -> Vec<(PathBuf, String)> {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut out = Vec::new();
    let mut todo = vec![src.clone()];
    while let Some(dir) = todo.pop() {
        for entry in fs::read_dir(dir).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                todo.push(path);
            } else if path.file_name().is_some_and(|n| n == "tests.rs") {
                // Tests may look anywhere.
            } else if path.extension().is_some_and(|e| e == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                out.push((path.strip_prefix(&src).unwrap().to_path_buf(), text));
            }
        }
    }
    out.sort();
    out
}

/// The code of a file: without comments, and without the tests at its end.
fn code(text: &str) -> String {
    let end = text.find("#[cfg(test)]\nmod tests").unwrap_or(text.len());
    let lines = text[..end].lines().map(|line| line.split("//").next().unwrap_or_default());
    lines.collect::<Vec<_>>().join("\n")
}

fn room(path: &Path) -> String {
    let first = path.components().next().unwrap();
    first.as_os_str().to_string_lossy().trim_end_matches(".rs").to_string()
}

/// The rooms named by `crate::…`, in `use` lines with braces too.
fn looks_into(code: &str) -> BTreeSet<String> {
    let mut out = BTreeSet::new();
    for part in code.split("crate::").skip(1) {
        let names: Vec<&str> = match part.strip_prefix('{') {
            Some(list) => list.split('}').next().unwrap_or_default().split(',').collect(),
            None => vec![part],
        };
        for name in names {
            let word: String = name.trim().chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            if !word.is_empty() {
                out.insert(word);
            }
        }
    }
    out
}

#[test]
fn dependencies_run_one_way() {
    let may: &[(&str, &[&str])] = &[
        ("job", &["job"]),
        ("harbor", &["harbor", "job"]),
        ("cast", &["cast", "job"]),
        ("follow", &["follow", "journal", "harbor", "job"]),
        ("environment", &["environment", "harbor", "job"]),
        ("agent", &["agent", "terminal", "model", "environment", "harbor", "job"]),
        ("model", &["model", "job"]),
        ("verifier", &["verifier", "environment", "harbor", "job"]),
        ("terminal", &["terminal", "environment", "cast", "harbor", "job"]),
        ("scheduler", &["scheduler", "terminal", "model", "agent", "verifier", "environment", "harbor", "job"]),
        ("journal", &["journal", "harbor", "job"]),
        ("triage", &["triage", "journal", "harbor", "job"]),
        ("requeue", &["requeue", "journal", "harbor", "job"]),
        ("serving", &["serving", "environment", "job"]),
        ("audit", &["audit", "journal", "follow", "environment", "harbor", "job"]),
        ("supervise", &["supervise", "audit", "requeue", "follow", "harbor", "job"]),
        ("app", &["app", "audit", "triage", "journal", "requeue", "serving", "follow", "cast", "harbor", "job"]),
        ("ui", &["ui", "app", "cast", "serving", "job"]),
        ("tty", &["tty", "job"]),
        ("report", &["report", "serving", "job"]),
        ("lib", &[]),
        ("main", &[]),
    ];
    let mut rooms = BTreeSet::new();
    for (path, text) in sources() {
        let (room, code) = (room(&path), code(&text));
        rooms.insert(room.clone());
        if room == "cli" {
            continue;
        }
        let (_, allowed) = may.iter().find(|(name, _)| *name == room).unwrap_or_else(|| panic!("a new room: {room}"));
        let wrong: Vec<String> = looks_into(&code)
            .into_iter()
            // The loop runs effects and draws: it is where the rooms meet.
            .filter(|into| !(path == Path::new("app/runtime.rs") && ["tty", "ui"].contains(&into.as_str())))
            .filter(|into| !allowed.contains(&into.as_str()))
            .collect();
        assert!(wrong.is_empty(), "src/{} looks into {wrong:?}", path.display());
    }
    assert!(rooms.len() >= 15, "{rooms:?}");
}

#[test]
fn casts_and_terminals_know_only_the_text_rules_of_the_domain() {
    for (path, text) in sources() {
        if !["cast", "tty"].contains(&room(&path).as_str()) {
            continue;
        }
        for part in code(&text).split("crate::job::").skip(1) {
            let part: String = part.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            // `Stamp` is a name for a crate's type, not knowledge of jobs.
            assert!(["text", "time", "Stamp"].contains(&part.as_str()), "src/{}: job::{part}", path.display());
        }
    }
}

/// Where a crate may be named.
#[test]
fn crates_stay_in_their_rooms() {
    type Rule<'a> = (&'a str, &'a dyn Fn(&Path) -> bool);
    let rules: &[Rule<'_>] = &[
        ("crossterm::", &|p| p.starts_with("tty") || p == Path::new("app/runtime.rs")),
        ("avt::", &|p| p == Path::new("cast/screen.rs") || p.starts_with("cast/screen")),
        ("ratatui::", &|p| p.starts_with("ui") || p.starts_with("tty") || p == Path::new("app/runtime.rs")),
        ("notify::", &|p| p.starts_with("follow")),
        ("tokio::", &|p| {
            let rooms = ["tty", "cli", "environment", "terminal", "model", "agent", "verifier", "scheduler", "audit"];
            rooms.iter().any(|r| p.starts_with(r)) || serving_reads(p) || RUNTIME.iter().any(|r| p == Path::new(r))
        }),
        ("reqwest::", &|p| serving_reads(p) || p.starts_with("model")),
        // The client of the Docker engine has one place, and what it says becomes our own words there.
        ("bollard::", &|p| p.starts_with("environment/docker") || p == Path::new("environment/docker.rs")),
        ("pty_process::", &|p| p.starts_with("environment/local")),
        // The flags of `harbor run` belong to its config.
        ("clap::", &|p| {
            let others = ["main.rs", "tty/caps.rs", "harbor/run_config/flags.rs"];
            p.starts_with("cli") || others.iter().any(|other| p == Path::new(other))
        }),
        ("tracing_subscriber::", &|p| p.starts_with("cli")),
    ];
    for (path, text) in sources() {
        let code = code(&text);
        for (name, allowed) in rules {
            let named = code.split(name).count() > 1
                && code.match_indices(name).any(|(at, _)| {
                    let before = code[..at].chars().next_back().unwrap_or(' ');
                    !before.is_alphanumeric() && before != '_'
                });
            assert!(!named || allowed(&path), "src/{} names {name}", path.display());
        }
    }
}

/// The model and `update` do no I/O and know no clock; threads that do are called workers.
#[test]
fn the_application_is_pure() {
    let doers = [
        RUNTIME[0],
        RUNTIME[1],
        "app/replay_worker.rs",
        "app/detail_worker.rs",
        "app/class_worker.rs",
        "app/notifier.rs",
    ];
    for (path, text) in sources() {
        let worker = doers.iter().any(|d| path == Path::new(d));
        let worker = worker || ["app/detail_worker", "app/replay_worker"].iter().any(|at| path.starts_with(at));
        let pure = (path.starts_with("app") && !worker) || path.starts_with("ui") || path.starts_with("job");
        // The runner's decisions, too; its other parts act.
        let pure = pure || path == Path::new("scheduler/policy.rs");
        let pure = pure || (path.starts_with("serving") && !serving_reads(&path));
        if !pure {
            continue;
        }
        let code = code(&text);
        for bad in [
            "std::fs",
            "std::io",
            "std::net",
            "std::process",
            "std::thread",
            "Instant::now",
            "Stamp::now",
            "SystemTime::now",
        ] {
            assert!(!code.contains(bad), "src/{} has {bad}", path.display());
        }
    }
}

/// One writer of escape sequences.
#[test]
fn only_the_terminal_room_writes_escapes() {
    for (path, text) in sources() {
        let code = code(&text);
        if !path.starts_with("tty") {
            for bad in ["\\x1b[", "\\u{1b}[", "\\x1b]", "\\u{1b}]"] {
                assert!(!code.contains(bad), "src/{} holds an escape sequence", path.display());
            }
        }
    }
}

/// Calls that make a queue without a limit: the standard library's `channel()`, of whichever type and
/// name, and what crates call unbounded. A `oneshot::channel()` holds one thing.
fn unbounded(code: &str) -> Vec<String> {
    let dense: String = code.chars().filter(|c| !c.is_whitespace()).collect();
    let mut found = Vec::new();
    for (at, word) in dense.match_indices("channel") {
        let begins = !dense[..at].ends_with(|c: char| c.is_alphanumeric() || c == '_');
        let mut rest = &dense[at + word.len()..];
        if let Some(types) = rest.strip_prefix("::<") {
            let mut depth = 1;
            let end = types.find(|c| {
                depth += i32::from(c == '<') - i32::from(c == '>');
                depth == 0
            });
            rest = end.map_or("", |end| &types[end + 1..]);
        }
        if begins && rest.starts_with("()") && !dense[..at].ends_with("oneshot::") {
            found.push("channel()".to_string());
        }
    }
    // The standard library's also under another name.
    let bad = [
        "mpsc::channelas",
        "mpsc::{channelas",
        "unbounded_channel",
        "unbounded(",
        "unbounded::<",
        "UnboundedS",
        "UnboundedR",
    ];
    found.extend(bad.iter().filter(|bad| dense.contains(**bad)).map(|bad| (*bad).to_string()));
    found
}

/// What waits has a limit, everywhere.
#[test]
fn no_queue_is_unbounded() {
    for bad in [
        "let (a, b) = channel();",
        "let (a, b) = mpsc::channel();",
        "std::sync::mpsc::channel::<Vec<(u8, Option<u8>)>>()",
        "use std::sync::mpsc::channel as pipe;",
        "tokio::sync::mpsc::unbounded_channel()",
        "wishes: mpsc::UnboundedSender<Wish>",
        "futures::channel::mpsc::unbounded::<u8>()",
    ] {
        assert!(!unbounded(bad).is_empty(), "{bad} passes");
    }
    for good in [
        "let (a, b) = channel::<Input>(64);",
        "mpsc::sync_channel(64)",
        "let (tell, told) = tokio::sync::oneshot::channel();",
        "watch::channel(false)",
        "sub_channel()",
    ] {
        assert_eq!(unbounded(good), Vec::<String>::new(), "{good}");
    }
    for (path, text) in sources() {
        let found = unbounded(&code(&text));
        assert!(found.is_empty(), "src/{}: a queue without limit: {found:?}", path.display());
    }
}

#[test]
fn files_stay_short() {
    let long: Vec<String> = sources()
        .iter()
        .map(|(path, text)| (path, text.lines().count()))
        .filter(|(_, lines)| *lines > LONGEST)
        .map(|(path, lines)| format!("src/{}: {lines} lines", path.display()))
        .collect();
    assert!(long.is_empty(), "more than {LONGEST} lines: {long:#?}");
}
