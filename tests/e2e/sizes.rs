//! Every size of the terminal, and the way from one to the next.

use std::time::Duration;

use super::support::job::Job;
use super::support::pty::{Pty, key};
use super::{SOON, frames, quit, start};

const SIZES: [(u16, u16); 6] = [(220, 60), (80, 24), (45, 20), (30, 8), (120, 40), (220, 60)];

/// What the screen shows after a resize is what a screen of that size shows from the start.
#[test]
fn resizing_leaves_nothing_behind() {
    let job = Job::finished("night-run");
    let mut pty = start(&["attach", job.arg()], 220, 60);
    pty.wait_for("alpha-task", SOON);
    for (cols, rows) in SIZES {
        pty.resize(cols, rows);
        let mut fresh = start(&["attach", job.arg()], cols, rows);
        let sign = if cols < 40 { "2/4" } else { "alpha-task" };
        for p in [&pty, &fresh] {
            p.wait_for(sign, SOON);
            p.wait_until("read", SOON, |text| !text.contains("reading"));
            // Classes come a little later.
            p.wait_until("classes", SOON, |text| cols < 120 || rows < 24 || text.contains("class failed"));
            p.settle(Duration::from_millis(150), SOON);
        }
        let (old, new) = (pty.screen(), fresh.screen());
        assert_eq!(old.len(), usize::from(rows));
        assert_eq!(old, new, "{cols}x{rows}:\n{}\n---\n{}", old.join("\n"), new.join("\n"));
        sane(&old, cols, rows);
        quit(&mut fresh);
    }
    quit(&mut pty);
    // Nothing was cleared on the way: one clear at the start.
    let clears = frames(&pty.raw()).iter().flatten().filter(|p| is_clear(p)).count();
    assert_eq!(clears, 1);
}

fn is_clear(piece: &super::Piece) -> bool {
    matches!(piece, super::Piece::Csi(body, 'J') if body == "2" || body.is_empty())
}

fn sane(screen: &[String], cols: u16, rows: u16) {
    let text = screen.join("\n");
    if cols < 40 || rows < 12 {
        assert!(screen[1..].iter().all(String::is_empty), "one line: {text}");
        assert!(screen[0].contains("finished") && screen[0].contains("2/4"), "{text}");
        return;
    }
    assert!(text.contains("finished") && text.contains("2/4") && text.contains("nothing needs you"), "{text}");
    let last = screen.last().unwrap();
    assert!(last.contains("? help"), "help is in sight: {last}");
    assert_eq!(text.contains("3 Errors"), cols >= 120 && rows >= 24, "{text}");
}

/// A view, a prompt, a menu and a replay stay what they are while the size changes.
#[test]
fn every_view_survives_every_size() {
    let job = Job::finished("night-run");
    let mut pty = start(&["attach", job.arg()], 120, 40);
    pty.wait_for("alpha-task", SOON);
    for (keys, sign) in [
        ("5", "5 Warnings"),
        ("6", "6 Jobs"),
        ("3", "3 Errors"),
        ("1?", "any other key closes"),
        (":", "Enter runs"),
        ("f", "filter by"),
        ("o", "sort by"),
        ("/", "filter /"),
        ("c", "80x20"),
        ("q\r", "-task__"),
    ] {
        pty.send(keys);
        pty.wait_for(sign, SOON);
        for (cols, rows) in [(45, 20), (30, 8), (1, 1), (80, 24), (220, 12), (120, 40)] {
            pty.resize(cols, rows);
            pty.settle(Duration::from_millis(60), SOON);
        }
        pty.wait_for(sign, SOON);
        if keys.len() == 1 && "?:fo/".contains(keys) || keys == "1?" {
            pty.send(key::ESC);
            pty.wait_gone(sign, SOON);
        }
    }
    pty.send("1");
    pty.wait_for("1 Trials", SOON);
    quit(&mut pty);
}

/// A key that comes together with a change of size is heard at once, not with the next key.
#[test]
fn a_key_during_a_resize_is_heard() {
    let job = Job::finished("night-run");
    let mut pty = start(&["attach", job.arg()], 100, 30);
    pty.wait_for("alpha-task", SOON);
    for i in 0..60 {
        pty.resize(100 - i % 3, 30 - i % 2);
        if i % 5 == 0 {
            pty.resize(100, 30);
        }
        pty.send(if i % 2 == 0 { "5" } else { "6" });
        pty.wait_for(if i % 2 == 0 { "5 Warnings" } else { "6 Jobs" }, SOON);
    }
    pty.send("1");
    pty.wait_for("1 Trials", SOON);
    quit(&mut pty);
}

/// 45×20 by letters, Enter and q alone: find the failed one, open it, come back, leave.
#[test]
fn a_phone_will_do() {
    let job = Job::finished("night-run");
    let mut pty: Pty = start(&["attach", job.arg()], 45, 20);
    pty.wait_for("alpha-task", SOON);
    let text = pty.text();
    for word in ["finished", "graded 2/3", "raw 2/4", "nothing needs you", "passed", "failed"] {
        assert!(text.contains(word), "{word}:\n{text}");
    }
    pty.send("f");
    pty.wait_for("filter by", SOON);
    pty.send("jj");
    pty.send("\r");
    pty.wait_gone("filter by", SOON);
    pty.wait_for("of 4", SOON);
    pty.send("F");
    pty.wait_for("filter none", SOON);
    pty.send("jj\r");
    pty.wait_gone("1 Trials", SOON);
    pty.send("q");
    pty.wait_for("1 Trials", SOON);
    pty.send("l");
    pty.wait_gone("1 Trials", SOON);
    pty.send("q");
    pty.wait_for("1 Trials", SOON);
    pty.send("c");
    pty.wait_for("line 0 of the recording", SOON);
    pty.send("q");
    pty.wait_for("1 Trials", SOON);
    quit(&mut pty);
}
