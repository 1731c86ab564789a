//! The real binary in a pty: every view by keys, sizes, leaving in every way, steadiness.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, missing_docs)]

mod support;

#[path = "e2e/jobs.rs"]
mod jobs;
#[path = "e2e/keys.rs"]
mod keys;
#[path = "e2e/leave.rs"]
mod leave;
#[path = "e2e/replay.rs"]
mod replay;
#[path = "e2e/sizes.rs"]
mod sizes;
#[path = "e2e/steady.rs"]
mod steady;
#[path = "e2e/tmux.rs"]
mod tmux;
#[path = "e2e/triage.rs"]
mod triage;

use std::path::Path;
use std::time::Duration;

use support::escapes::{Allowed, Piece, foreign, pieces};
use support::pty::Pty;

/// Generous: the machine may be busy.
const SOON: Duration = Duration::from_secs(20);
const STATE: (&str, &str) = ("PILOTHOUSE_STATE_DIR", concat!(env!("CARGO_TARGET_TMPDIR"), "/state"));

fn start(args: &[&str], cols: u16, rows: u16) -> Pty {
    start_with(args, cols, rows, &[])
}

thread_local! {
    /// State dirs of this test, which go with it.
    static STATES: std::cell::RefCell<Vec<tempfile::TempDir>> = const { std::cell::RefCell::new(Vec::new()) };
}

fn start_with(args: &[&str], cols: u16, rows: u16, env: &[(&str, &str)]) -> Pty {
    // One for each screen: what one remembers is no other's.
    let state = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let path = state.path().join("state").to_str().unwrap().to_string();
    STATES.with(|states| states.borrow_mut().push(state));
    let mut all = vec![(STATE.0, path.as_str())];
    all.extend_from_slice(env);
    Pty::pilothouse(args, cols, rows, &all)
}

/// Quits by `q` and checks what must hold of every run: exit code 0, modes back, nothing foreign.
#[track_caller]
fn quit(pty: &mut Pty) {
    quit_allowing(pty, Allowed::default());
}

#[track_caller]
fn quit_allowing(pty: &mut Pty, allowed: Allowed) {
    pty.send("q");
    assert_eq!(pty.wait_exit(SOON).exit_code(), 0);
    pty.assert_restored();
    let found = foreign(&pty.raw(), allowed);
    assert!(found.is_empty(), "{found:#?}");
}

/// Frames: what lies between the begin and the end of each synchronized update. Panics when
/// anything printable is outside.
#[track_caller]
fn frames(raw: &[u8]) -> Vec<Vec<Piece>> {
    let (mut out, mut inside, mut screen) = (Vec::new(), None::<Vec<Piece>>, false);
    for piece in pieces(raw) {
        match &piece {
            Piece::Csi(body, last @ ('h' | 'l')) if body == "?1049" => screen = *last == 'h',
            Piece::Csi(body, 'h') if body == "?2026" => inside = Some(Vec::new()),
            Piece::Csi(body, 'l') if body == "?2026" => out.extend(inside.take()),
            Piece::Text(text) if screen && inside.is_none() => panic!("{text:?} outside of an update"),
            _ => {
                if let Some(frame) = &mut inside {
                    frame.push(piece);
                }
            }
        }
    }
    out
}

fn copy_tree(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap().flatten() {
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy_tree(&entry.path(), &target);
        } else {
            std::fs::write(&target, std::fs::read(entry.path()).unwrap()).unwrap();
        }
    }
}

/// The row of the screen that holds `text`.
#[track_caller]
fn row_of(pty: &Pty, text: &str) -> usize {
    let screen = pty.screen();
    screen.iter().position(|row| row.contains(text)).unwrap_or_else(|| panic!("no {text:?} in\n{}", pty.text()))
}
