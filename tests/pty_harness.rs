//! The harness that other tests stand on, tried on /bin/sh.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod support;

use std::time::Duration;

use rustix::process::Signal;
use support::escapes::{Allowed, Modes, Piece, assert_no_foreign_escapes, foreign, modes, pieces};
use support::pty::{Pty, key};

const SOON: Duration = Duration::from_secs(10);

#[test]
fn a_shell_shows_what_it_prints_in_the_size_it_is_given() {
    let mut pty = Pty::spawn("/bin/sh", &[], 60, 12, &[("PS1", "ready> ")]);
    pty.wait_for("ready>", SOON);
    pty.send("printf '%s-%s\\n' zwei drei; stty size\r");
    pty.wait_for("zwei-drei", SOON);
    pty.wait_for("12 60", SOON);
    pty.resize(100, 30);
    pty.send("stty size\r");
    pty.wait_for("30 100", SOON);
    assert!(pty.screen().len() == 30);
    pty.send("exit 7\r");
    assert_eq!(pty.wait_exit(SOON).exit_code(), 7);
    pty.assert_restored();
}

#[test]
fn wide_and_cut_characters_arrive_whole() {
    let mut pty = Pty::spawn(
        "/bin/sh",
        &["-c", "printf '\\344\\273'; sleep 0.2; printf '\\273\\345\\212\\241 ok\\n'; sleep 5"],
        40,
        5,
        &[],
    );
    pty.wait_for("任务 ok", SOON);
    pty.kill(Signal::TERM);
    assert!(!pty.wait_exit(SOON).success());
}

#[test]
fn modes_left_behind_are_noticed() {
    let mut pty =
        Pty::spawn("/bin/sh", &["-c", "stty raw -echo; printf '\\033[?1049h\\033[?25lhello'; sleep 0.1"], 40, 5, &[]);
    pty.wait_for("hello", SOON);
    assert!(pty.before.is_cooked());
    assert!(!pty.line_modes().is_cooked());
    pty.wait_exit(SOON);
    let modes = pty.modes();
    assert!(modes.alternate_screen && !modes.cursor_visible);
    assert_ne!(pty.line_modes(), pty.before);
}

#[test]
fn a_wait_that_is_in_vain_fails() {
    let pty = Pty::spawn("/bin/sh", &["-c", "echo something; sleep 5"], 40, 5, &[]);
    pty.wait_for("something", SOON);
    let waited = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        pty.wait_for("anything else", Duration::from_millis(100))
    }));
    assert!(waited.is_err());
}

#[test]
fn keys_reach_the_program() {
    // A Ctrl-C that comes before the shell is up is lost.
    let mut pty = Pty::spawn("/bin/sh", &["-c", "echo up; exec cat -v"], 40, 5, &[]);
    pty.wait_for("up", SOON);
    pty.send(&format!("{}{}", key::DOWN, key::ENTER));
    pty.wait_for("^[[B", SOON);
    pty.send(key::CTRL_C);
    pty.wait_exit(SOON);
}

#[test]
fn output_is_taken_apart() {
    let raw = b"a\x1b[1;31mb\x1b]0;title\x07\x1bPdcs\x1b\\\x9bc\xc2\x9b\x1b(B\xff\x00";
    let got = pieces(raw);
    assert_eq!(
        got,
        [
            Piece::Text("a".into()),
            Piece::Csi("1;31".into(), 'm'),
            Piece::Text("b".into()),
            Piece::Osc("0;title".into()),
            Piece::Str('P', "dcs".into()),
            Piece::C1(0x9b),
            Piece::Text("c".into()),
            Piece::C1(0x9b),
            Piece::Esc("(B".into()),
            Piece::Invalid(vec![0xff]),
            Piece::Control(0),
        ]
    );
    // The two texts and the colour are ours; the rest is not.
    assert_eq!(foreign(raw, Allowed::default()).len(), 7);
}

#[test]
fn modes_are_followed() {
    assert_eq!(modes(b"plain"), Modes::default());
    let on = modes(b"\x1b[?1049h\x1b[?25l\x1b[?2004h\x1b[?1000;1006h\x1b[?1004h\x1b[?2026h\x1b[1m");
    let all = Modes {
        alternate_screen: true,
        cursor_visible: false,
        bracketed_paste: true,
        mouse: true,
        focus: true,
        synchronized: true,
        styled: true,
    };
    assert_eq!(on, all);
    let off = b"\x1b[?1049h\x1b[?1000;1006h\x1b[1;38;5;3m\x1b[0m\x1b[?1006;1000l\x1b[?1049l";
    assert_eq!(modes(off), Modes::default());
    assert!(modes(b"\x1b[1m\x1b[39m").styled);
}

#[test]
fn our_own_sequences_pass_and_others_do_not() {
    let ours = b"\x1b[?1049h\x1b[?25l\x1b[?2026h\x1b[2J\x1b[3;7H\x1b[38;5;1;48;5;2mx \xe2\x9c\x93\x1b[0m\x1b[?2026l\x1b[?1049l\r\n";
    assert_no_foreign_escapes(ours, Allowed::default());
    for bad in [
        &b"\x1b[?1049hline\nfeed"[..],
        b"\x1b]52;c;eA==\x07",
        b"\x07",
        b"\x1b[6n",
        b"\x1b[?1h",
        b"\x1bc",
        b"\x1b[>4;1m",
        b"\x1b]8;;http://x\x1b\\",
        "\u{202e}".as_bytes(),
    ] {
        assert_eq!(foreign(bad, Allowed::default()).len(), 1, "{bad:?}");
    }
    assert_no_foreign_escapes(b"\x1b]52;c;eA==\x1b\\\x07", Allowed { clipboard: true, bell: true });
}
