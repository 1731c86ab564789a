//! Scripts of keys, typed into our terminal and into tmux 3.3a in the same container: the screen and
//! the whole text are the same, or the script says why not.

use std::time::Duration;

use pilothouse::environment::quoted;
use pilothouse::terminal::Session;

use super::bench::{QUIET, Up, begun, block, run, seen, up};

/// One thing typed.
#[derive(Clone, Copy)]
enum Do<'a> {
    /// Keys, then silence.
    Keys(&'a str),
    /// Keys, and a text that then comes.
    Until(&'a str, &'a str),
}
use Do::{Keys, Until};

/// A file in the container that both sides work with, made anew for each.
type Files<'a> = &'a [(&'a str, &'a [u8])];

/// tmux, in the container.
struct Tmux<'a>(&'a Up);

impl Tmux<'_> {
    async fn start(&self) {
        // The same name of terminal as ours, so that programs send the same sequences.
        self.0.put("/tmp/tmux.conf", b"set -g default-terminal xterm-256color\n").await;
        self.0
            .said("tmux kill-server 2>/dev/null; TERM=xterm-256color SHELL=/bin/bash tmux -f /tmp/tmux.conf new-session -x 160 -y 40 -d -s t 'bash --login'")
            .await;
        self.quiet().await;
    }

    async fn capture(&self, how: &str) -> String {
        self.0.said(&format!("tmux capture-pane -t t -p {how} >/tmp/capture")).await;
        String::from_utf8(self.0.file("/tmp/capture").await).unwrap()
    }

    async fn send(&self, keys: &str) {
        // Its own loss of a last semicolon is not what is compared here.
        let keys = match keys.strip_suffix(';') {
            Some(rest) => format!("{rest}\\;"),
            None => keys.to_string(),
        };
        self.0.put("/tmp/send.sh", format!("tmux send-keys -t t -- {}\n", quoted(&keys)).as_bytes()).await;
        assert_eq!(self.0.said("sh /tmp/send.sh").await, "", "tmux refuses {keys:?}");
    }

    async fn quiet(&self) {
        let mut last = String::new();
        let mut same = 0;
        while same < 3 {
            tokio::time::sleep(Duration::from_millis(100)).await;
            let now = self.capture("-S -").await;
            same = if now == last && !now.trim().is_empty() { same + 1 } else { 0 };
            last = now;
        }
    }

    async fn until(&self, text: &str) {
        for _ in 0..300 {
            if self.capture("-S -").await.contains(text) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("tmux never shows {text:?}: {}", self.capture("").await);
    }
}

struct Both {
    up: Up,
    session: Session,
}

async fn both(what: &str, files: Files<'_>) -> Option<Both> {
    let up = up(what).await?;
    for (path, bytes) in files {
        up.put(path, bytes).await;
    }
    let session = up.open().await;
    Some(Both { up, session })
}

impl Both {
    async fn play(&mut self, script: &[Do<'_>], reset: &str) {
        for step in script {
            match step {
                Keys(keys) => run(&mut self.session, keys).await,
                Until(keys, text) => {
                    self.session.send(keys).await.unwrap();
                    seen(&self.session, text).await;
                    assert!(self.session.settle(QUIET, Duration::from_secs(60)).await);
                }
            }
        }
        self.up.said(reset).await;
        let tmux = Tmux(&self.up);
        tmux.start().await;
        for step in script {
            match step {
                Keys(keys) => {
                    tmux.send(keys).await;
                    begun(keys).await;
                }
                Until(keys, text) => {
                    tmux.send(keys).await;
                    tmux.until(text).await;
                }
            }
            tmux.quiet().await;
        }
    }

    /// Screen and whole text of both: ours, tmux's.
    async fn captures(&self) -> [(String, String); 2] {
        let ours = self.session.capture();
        let tmux = Tmux(&self.up);
        [(ours.screen(), tmux.capture("").await), (ours.whole(), tmux.capture("-S -").await)]
    }

    async fn same(&self) {
        for (ours, tmux) in self.captures().await {
            assert!(!ours.trim().is_empty());
            assert_same(&ours, &tmux);
        }
    }
}

#[track_caller]
fn assert_same(ours: &str, tmux: &str) {
    let (a, b): (Vec<&str>, Vec<&str>) = (ours.split('\n').collect(), tmux.split('\n').collect());
    if let Some(n) = (0..a.len().max(b.len())).find(|n| a.get(*n) != b.get(*n)) {
        panic!("line {n} of {}/{}: ours {:?}, tmux {:?}\n{ours}\n-----\n{tmux}", a.len(), b.len(), a.get(n), b.get(n));
    }
}

/// Plays a script on both sides and compares.
fn same(what: &str, files: Files<'_>, script: &[Do<'_>]) {
    block(async {
        let Some(mut both) = both(what, files).await else { return };
        both.play(script, ":").await;
        both.same().await;
    });
}

/// A full-screen editor, as small as one can be: no image of the tasks has a larger one.
const EDITOR: &str = r#"
import curses, sys
def main(screen):
    curses.raw()
    lines, y, x = [''], 0, 0
    while True:
        screen.erase()
        for n, line in enumerate(lines[:curses.LINES - 2]): screen.addnstr(n, 0, line, curses.COLS - 1)
        screen.addstr(curses.LINES - 1, 0, '-- %d:%d --' % (y + 1, x + 1), curses.A_REVERSE)
        screen.move(y, x); screen.refresh()
        key = screen.get_wch()
        if key in ('\x13', '\x11'):
            if key == '\x13': open(sys.argv[1], 'w').write('\n'.join(lines) + '\n')
            return
        if key in ('\n', '\r'): lines.insert(y + 1, lines[y][x:]); lines[y] = lines[y][:x]; y, x = y + 1, 0
        elif key in (curses.KEY_BACKSPACE, '\x7f', '\b'):
            if x: lines[y] = lines[y][:x - 1] + lines[y][x:]; x -= 1
        elif key == curses.KEY_UP: y = max(0, y - 1); x = min(x, len(lines[y]))
        elif key == curses.KEY_DOWN: y = min(len(lines) - 1, y + 1); x = min(x, len(lines[y]))
        elif key == curses.KEY_LEFT: x = max(0, x - 1)
        elif key == curses.KEY_RIGHT: x = min(len(lines[y]), x + 1)
        elif isinstance(key, str) and key.isprintable(): lines[y] = lines[y][:x] + key + lines[y][x:]; x += 1
curses.wrapper(main)
"#;

#[test]
fn script_01_commands() {
    same("simple", &[], &[Keys("echo hello\n"), Keys("cd /tmp; pwd\n"), Keys("printf 'a\\tb\\tc\\n'; echo done;\n")]);
}

#[test]
fn script_02_an_editor_opened_typed_into_and_left() {
    let files: Files<'_> = &[("/tmp/editor.py", EDITOR.as_bytes())];
    same(
        "editor",
        files,
        &[
            Keys("python3 /tmp/editor.py /tmp/edited\n"),
            Keys("first line\nsecond line"),
            Keys("Up"),
            Keys("Left"),
            Keys("BSpace"),
            Keys("X"),
            Keys("C-s"),
            Keys("cat /tmp/edited\n"),
        ],
    );
}

#[test]
fn script_03_an_editor_that_stays_open() {
    let files: Files<'_> = &[("/tmp/editor.py", EDITOR.as_bytes())];
    same(
        "editing",
        files,
        &[Keys("seq 1 60\n"), Keys("python3 /tmp/editor.py /tmp/edited\n"), Keys("some text\n\nand more"), Keys("Up")],
    );
}

#[test]
fn script_04_a_pager_open() {
    same(
        "pager",
        &[],
        &[Keys("seq 1 500 >/tmp/n; less /tmp/n\n"), Keys("Space"), Keys("/321\n"), Keys("Up"), Keys("PgUp")],
    );
}

#[test]
fn script_05_a_pager_left() {
    same("paged", &[], &[Keys("seq 1 500 | less -N\n"), Keys("G"), Keys("q"), Keys("echo back\n")]);
}

#[test]
fn script_06_a_python_prompt() {
    same(
        "python",
        &[],
        &[
            Keys("python3 -q\n"),
            Keys("x = 6\nx * 7\n"),
            Keys("for i in range(3):\n    print(i)\n\n"),
            Keys("Up"),
            Keys("C-c"),
            Keys("1/0\n"),
            Keys("C-d"),
        ],
    );
}

#[test]
fn script_07_ctrl_c_of_a_sleep() {
    same(
        "sleep",
        &[],
        &[Keys("sleep 1005\n"), Keys("C-c"), Keys("echo $?\n"), Keys("sleep 1006\n"), Keys("C-z"), Keys("jobs\n")],
    );
}

#[test]
fn script_08_ctrl_p_is_a_key_like_any_other() {
    same(
        "ctrl-p",
        &[],
        &[
            Keys("echo one\n"),
            Keys("echo two\n"),
            Keys("C-p"),
            Keys("C-p"),
            Keys("Enter"),
            Keys("C-p"),
            Keys("C-a"),
            Keys("C-k"),
        ],
    );
}

#[test]
fn script_09_clear() {
    same("clear", &[], &[Keys("seq 1 100\n"), Keys("clear\n"), Keys("echo after\n")]);
}

#[test]
fn script_10_a_screen_cleared_without_its_history() {
    same(
        "erase",
        &[],
        &[
            Keys("seq 1 100\n"),
            Keys("printf '\\033[H\\033[2Jwhole\\n'\n"),
            Keys("seq 1 5\n"),
            Keys("printf '\\033[H\\033[Jbelow\\n'\n"),
            Keys("C-l"),
            Keys("printf '\\033creset\\n'\n"),
        ],
    );
}

#[test]
fn script_11_the_alternate_screen() {
    same(
        "alternate",
        &[],
        &[
            Keys("seq 1 50\n"),
            Keys("printf '\\033[?1049h\\033[5;5Hover there'; sleep 0.5; printf '\\033[?1049l'; echo back\n"),
            Keys("printf '\\033[?47h\\033[5;5Hold name'\n"),
        ],
    );
}

#[test]
fn script_12_wide_and_combining_characters() {
    let text = "\u{4efb}\u{52a1} e\u{301}a\u{308}\u{323} \u{1f600} \u{ff21} \u{e01}\u{e33} \u{1112}\u{1161}\u{11ab} x\u{20dd} z\u{300}\u{301}\u{302}\u{303}\u{304}\u{305}\u{306}\u{307}\u{308}\u{309}\u{30a}\u{30b}|\n\u{301}start \u{200b}zero\u{2060}|\n";
    let wide = format!("{}\n{}e\u{301}\n", "\u{5bbd}".repeat(90), "x".repeat(159));
    let files: Files<'_> = &[("/tmp/text", text.as_bytes()), ("/tmp/wide", wide.as_bytes())];
    same(
        "wide",
        files,
        &[Keys("cat /tmp/text\n"), Keys("cat /tmp/wide\n"), Keys("echo '\u{4efb}e\u{301}\u{1f600}'\n")],
    );
}

#[test]
fn script_13_progress_bars() {
    same(
        "progress",
        &[],
        &[
            Keys(
                "for i in $(seq 0 10 100); do printf '\\r[%-20s] %d %%' \"$(printf '#%.0s' $(seq 0 5 $i))\" $i; sleep 0.02; done; echo\n",
            ),
            Keys("for i in 1 2 3; do printf 'a %d\\nb %d\\n' $i $i; printf '\\033[2A'; done; printf '\\033[2B'\n"),
            Keys("printf '50%%\\033[K\\r100%%\\b\\b\\b99\\n'\n"),
        ],
    );
}

#[test]
fn script_14_five_thousand_lines() {
    same("lines", &[], &[Keys("seq 1 5000\n"), Keys("echo end\n")]);
}

#[test]
fn script_15_a_here_document() {
    let lines: String = (0..60).map(|n| format!("line {n} $(not run) \\\\ `nor this`\n")).collect();
    let here = format!("cat >/tmp/here <<'EOF'\n{lines}EOF\n");
    same("here", &[], &[Keys(&here), Keys("wc /tmp/here; md5sum </tmp/here\n")]);
}

#[test]
fn script_16_long_lines_are_cut_into_rows() {
    same(
        "wrap",
        &[],
        &[
            Keys("printf '%0500d\\n' 7\n"),
            Keys("printf '%0160d\\n' 7; printf '%0161d\\n' 7; printf '%0159d\\n' 7\n"),
            Keys(&format!("echo {}\n", "word ".repeat(80))),
            Keys("C-p"),
            Keys("C-a"),
            Keys("M-f"),
            Keys("X"),
            Keys("C-e"),
            Keys("C-w"),
        ],
    );
}

#[test]
fn script_17_tabs_backspaces_colours_and_titles() {
    same(
        "tabs",
        &[],
        &[
            Keys("printf 'a\\tb\\bc\\t\\033[31mred\\033[0m\\033]0;title\\007\\033[1;4mx\\033[m\\n'\n"),
            Keys("printf '\\033[8Gx\\033[3Xy\\033[2@z\\033[2P\\n\\033(0lqk\\033(B\\n\\033#8\\033[2J\\033[H'\n"),
            Keys("printf 'abc\\033[5b|\\n%159s\\t\\tX\\n'; printf '%160s\\b\\bY\\n' .\n"),
        ],
    );
}

#[test]
fn script_18_binary_output() {
    let mut bytes: Vec<u8> = (0u32..6000).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    // Neither a string without an end nor another set of characters: those stay, and are tests of their own.
    bytes.retain(|b| ![0x1b, 0x0e, 0x0f, 0x9b].contains(b));
    let files: Files<'_> =
        &[("/tmp/binary", &bytes), ("/tmp/heads", b"\x00\x01\x02NUL first\n\x01\x00\x00\x00\xff\xff\xff\xffheader\n")];
    same(
        "binary",
        files,
        &[
            Keys("cat /tmp/heads\n"),
            Until("head -c 3000 /tmp/binary; echo; echo E''ND\n", "END"),
            Keys("clear; cat /tmp/heads\n"),
        ],
    );
}

#[test]
fn script_19_regions_insertions_and_deletions() {
    same(
        "regions",
        &[],
        &[
            Keys("seq 1 30\n"),
            Keys("printf '\\033[5;20r\\033[20;1H\\n\\n\\nin the region\\033[r\\033[30;1H'\n"),
            Keys("printf '\\033[1;20r\\033[20;1H\\n\\nfrom the top\\033[r\\033[30;1H'\n"),
            Keys("printf '\\033[2;1H\\033[3L\\033[10;1H\\033[2M\\033[1;1H\\033[2M\\033[2S\\033[1T\\033[35;1H'\n"),
            Keys("printf '\\033[1;1H\\033M\\033M\\033[35;1H'\n"),
        ],
    );
}

#[test]
fn script_20_keys_of_a_prompt() {
    same(
        "prompt",
        &[],
        &[
            Keys("echo one two three"),
            Keys("M-b"),
            Keys("C-k"),
            Keys("C-y"),
            Keys("C-a"),
            Keys("Right"),
            Keys("C-t"),
            Keys("C-u"),
            Keys("ech"),
            Keys("Tab"),
            Keys(" x;"),
            Keys("Enter"),
            Keys("PS1='two\nlines > '\n"),
            Keys("stty -a | head -1\n"),
        ],
    );
}
