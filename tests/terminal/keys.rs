//! Keys as bytes, against tmux.

use std::collections::BTreeMap;

use pilothouse::terminal::{KeyModes, keys};

use super::bench::{block, up};

/// Reads keys until the word QUIT and keeps them.
const READER: &str = r#"
import os, sys, tty
tty.setraw(0)
if sys.argv[1:]: os.write(1, b'\x1b[?1h\x1b=')
with open('/tmp/keys', 'wb', 0) as out:
    got = b''
    while b'QUIT' not in got:
        new = os.read(0, 4096)
        got = got[-8:] + new
        out.write(new)
"#;

fn names() -> Vec<String> {
    let mut names: Vec<String> = (1..=12).map(|n| format!("F{n}")).collect();
    let special = "IC Insert DC Delete Home End NPage PageDown PgDn PPage PageUp PgUp Tab BTab Space BSpace Enter Escape \
        Up Down Left Right KP/ KP* KP- KP7 KP+ KP4 KP1 KPEnter KP0 KP. None Any up ENTER c-c ^c ^C ^[ ^@ ^? ^x^y C-@ C-[ \
        C-\\ C-] C-_ C-? C-/ C-Space C-2 C-6 C-- C-$ C-~ C-\" C-{ C-| C-& C-é M-a M-A m-x M-é M-Enter M-Up M-Left M-F1 \
        M-1 M-Space M-Tab M-BSpace M-Escape C-M-a M-C-a C-M-Left S-Up S-F1 S-F5 S-Tab S-a S-Left s-x C-Up C-Down C-Left \
        C-Right C-Home C-End C-PgUp C-PgDn C-DC C-IC C-F1 C-F5 C-F12 C-S-Up C-S-a S-Enter S-Space S-BSpace C-M-Space \
        C-S-M-F3 M-^c ^M-c C- M- C-cc hello é C-C-c M-M-a S-S-Up M-BTab S-BTab M-IC S-Home M-Home M-KP1 C-^c M-あ \
        C-A C-Z C-^";
    names.extend(special.split_ascii_whitespace().map(str::to_string));
    names.extend(('a'..='z').map(|c| format!("C-{c}")));
    names.extend(["C-c\n", "a\n", "ab\tc", "two words", "\n", "it's \"quoted\" $HOME `x` \\n"].map(str::to_string));
    names
}

/// What is meant to differ from tmux: see `terminal::keys`.
fn mended() -> BTreeMap<&'static str, &'static [u8]> {
    BTreeMap::from([
        ("a;", &b"a;"[..]),
        (";", b";"),
        ("C-;", b";"),
        ("0x41", b"0x41"),
        ("User0", b"User0"),
        ("C-1", b"1"),
        ("C-Enter", b"\r"),
        ("C-Tab", b"\t"),
    ])
}

#[test]
fn keys_are_those_of_tmux() {
    block(async {
        let Some(up) = up("keys").await else { return };
        up.put("/tmp/reader.py", READER.as_bytes()).await;
        for application in [false, true] {
            let modes = KeyModes { cursor: application, keypad: application };
            let mut names = names();
            names.extend(mended().keys().map(|k| (*k).to_string()));
            let mut script = format!(
                "tmux kill-server 2>/dev/null; rm -f /tmp/keys; tmux new-session -d -x 160 -y 40 -s k 'python3 /tmp/reader.py {}'; \
                 while [ ! -e /tmp/keys ]; do sleep 0.1; done; sleep 0.3\n",
                if application { "x" } else { "" }
            );
            for (n, name) in names.iter().enumerate() {
                let word = pilothouse::environment::quoted(name);
                script.push_str(&format!("tmux send-keys -t k -l -- '<{n}>'; tmux send-keys -t k -- {word}\n"));
            }
            script.push_str("tmux send-keys -t k -l -- QUIT; sleep 0.5\n");
            up.put("/tmp/keys.sh", script.as_bytes()).await;
            up.said("sh /tmp/keys.sh").await;
            let got = up.file("/tmp/keys").await;
            let place = |n: usize| {
                let mark = if n < names.len() { format!("<{n}>") } else { "QUIT".to_string() };
                let at = got.windows(mark.len()).position(|w| w == mark.as_bytes()).expect("a mark is missing");
                (at, at + mark.len())
            };
            for (n, name) in names.iter().enumerate() {
                let tmux = got[place(n).1..place(n + 1).0].to_vec();
                let ours = keys::encode(name, modes);
                match mended().get(name.as_str()) {
                    Some(wanted) => {
                        assert_eq!(ours, *wanted, "{name:?}");
                        assert_ne!(ours, tmux, "{name:?} does not differ from tmux any more");
                    }
                    None => assert_eq!(
                        String::from_utf8_lossy(&ours),
                        String::from_utf8_lossy(&tmux),
                        "{name:?} (application: {application})"
                    ),
                }
            }
        }
    });
}
