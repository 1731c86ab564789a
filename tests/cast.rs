//! Casts: every recorded and every broken one, seeks against playing, growth, real tmux as a judge.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, missing_docs)]

mod support;

#[path = "cast/files.rs"]
mod files;
#[path = "cast/live.rs"]
mod live;
#[path = "cast/seek.rs"]
mod seek;
#[path = "cast/tmux.rs"]
mod tmux;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pilothouse::cast::{Frame, Player, Screen};

fn state(screen: &Screen) -> Frame {
    screen.frame()
}

fn memory(text: impl AsRef<[u8]>) -> Arc<[u8]> {
    Arc::from(text.as_ref())
}

fn open(text: impl AsRef<[u8]>) -> Player {
    let mut player = Player::open(memory(text), "memory.cast").expect("opens");
    player.work_to_end();
    player
}

fn files_below(below: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(below).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files_below(&path));
        } else if path.extension().is_some_and(|e| e == "cast" || e == "json") {
            found.push(path);
        }
    }
    found.sort();
    found
}

fn recorded() -> Option<Vec<PathBuf>> {
    let data = support::shared()?.join("data");
    Some([files_below(&data.join("casts")), files_below(&data.join("hostile/casts"))].concat())
}

fn cast(name: &str) -> Option<PathBuf> {
    Some(support::shared()?.join("data/casts").join(name))
}

fn load(path: &Path) -> Player {
    let mut player = Player::open(File::open(path).unwrap(), &path.display().to_string()).unwrap();
    player.work_to_end();
    player
}

fn name(path: &Path) -> String {
    path.file_name().unwrap().to_string_lossy().into_owned()
}

/// Time (not yet forced to grow), code and data of each event, read without the code under test.
fn events(path: &Path) -> Vec<(f64, String, String)> {
    let text = std::fs::read_to_string(path).unwrap();
    let v3 = text.starts_with("{\"version\": 3") || text.starts_with("{\"version\":3");
    let mut sum = 0.0;
    let lines = text.lines().skip(1).filter(|l| !l.trim().is_empty() && !l.starts_with('#'));
    lines
        .map(|line| {
            let (time, code, data): (f64, String, String) = serde_json::from_str(line).unwrap();
            sum += time;
            (if v3 { sum } else { time }, code, data)
        })
        .collect()
}
