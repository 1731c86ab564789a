//! What is typed and what comes of it.

use std::sync::OnceLock;
use std::time::Duration;

use serde_json::json;

use super::*;

fn heredoc() -> String {
    let lines: String =
        (0..600).map(|n| format!("{n:04} na\u{ef}ve \u{4efb} ;'\"$`\\ 0123456789 abcdefgh\n")).collect();
    format!("cat > /app/big <<'EOF'\n{lines}EOF\n")
}

fn ran() -> Option<&'static Ran> {
    static RAN: OnceLock<Option<Ran>> = OnceLock::new();
    let ran = RAN.get_or_init(|| {
        let big = heredoc();
        let keys = vec![
            types(&[
                ("mkdir -p /app; sleep 100\n", 1.5),
                ("C-c", 0.3),
                ("echo C-c > /app/name\n", 0.2),
                ("echo x > /app/trail ;", 0.1),
                ("\n", 0.3),
            ]),
            types(&[(&big, 2.0)]),
            types(&[("seq 100000 100900; seq 100901 101800\n", 1.0)]),
            types(&[("seq 1 5000\n", 1.5)]),
            types(&[("clear\n", 0.5)]),
            types(&[("", 0.8)]),
            types(&[("cp /app/name /app/trail /app/big /logs/artifacts/; echo 42 > /app/answer\n", 0.5)]),
            done(),
            done(),
        ];
        let exits = vec![types(&[SOLVE, ("exit\n", 0.4)]), types(&[("exit\n", 0.4), ("echo never\n", 500.0)])];
        let kill = vec![types(&[("tmux kill-server\n", 0.3), SOLVE]), done(), done()];
        Play::default().inside().task("keys", keys).task("exits", exits).task("kill", kill).run()
    });
    ran.as_ref()
}

#[test]
fn points_20_21_22_keys_are_keys_and_text_is_typed_as_it_is() {
    let Some(ran) = ran() else { return };
    assert_eq!((ran.end("keys"), ran.episodes("keys")), ((Some(1.0), None), 9), "{}", ran.said);
    let kept = |name: &str| fs::read_to_string(ran.dir("keys").join("artifacts/logs/artifacts").join(name)).unwrap();
    assert_eq!((kept("name"), kept("trail")), ("C-c\n".to_string(), "x\n".to_string()));
    let big = heredoc();
    let text = big.split_once('\n').unwrap().1.strip_suffix("EOF\n").unwrap();
    assert!(text.len() > 20_000);
    assert_eq!(kept("big"), text);
    assert!(ran.told("keys", 2).contains("^C"), "{}", ran.told("keys", 2));
}

#[test]
fn points_19_23_24_25_26_waits_and_what_is_shown() {
    let Some(ran) = ran() else { return };
    // 23, 24, 26: one output for the batch, both ends of it.
    let told = ran.told("keys", 4);
    assert!(told.starts_with("New Terminal Output:\n"), "{told}");
    assert!(told.contains("101800\n100000\n100001\n") && told.contains("\n101799\n101800\n"), "{told}");
    let omitted: usize = told.split_once("\n[").unwrap().1.split(' ').next().unwrap().parse().unwrap();
    assert!((1000..9000).contains(&omitted) && told.len() < 10_200, "{omitted} {}", told.len());
    // 26: output longer than the history is shown as far as it is kept, where Harbor shows the last screen.
    let told = ran.told("keys", 5);
    assert!(told.starts_with("New Terminal Output:\n[") && told.contains(" earlier lines are not kept]\n"), "{told}");
    assert!(told.contains("\n4999\n5000\n") && told.lines().count() > 200, "{told}");
    // 25
    assert!(ran.told("keys", 6).starts_with("Current Terminal Screen:\n"), "{}", ran.told("keys", 6));
    // 20, 19: an empty text waits, and waits in full.
    let asked = ran.asked("keys");
    let waited = asked[6].at - asked[5].ended.unwrap();
    assert!((Duration::from_millis(800)..Duration::from_secs(20)).contains(&waited), "{waited:?}");
    assert_eq!(ran.steps("keys")[0]["observation"]["results"].as_array().unwrap().len(), 1);
    assert_eq!(ran.steps("keys")[0]["observation"]["results"][0]["source_call_id"], json!(null));
    // 19: no wait is longer than a minute.
    let last = ran.steps("exits").pop().unwrap();
    assert_eq!(last["tool_calls"][1]["arguments"], json!({"keystrokes": "echo never\n", "duration": 60.0}));
}

#[test]
fn points_7_42_a_shell_that_ends_ends_the_work_and_tests_run() {
    let Some(ran) = ran() else { return };
    assert_eq!((ran.end("exits"), ran.episodes("exits")), ((Some(1.0), None), 2));
    assert_eq!(ran.asked("exits").len(), 2);
    assert_eq!(ran.own("exits")["shells_reopened"], 1);
    // There is no server to kill.
    assert_eq!((ran.end("kill"), ran.episodes("kill")), ((Some(1.0), None), 3));
}

#[test]
fn point_39_the_terminal_is_recorded() {
    let Some(ran) = ran() else { return };
    let agent = ran.dir("keys").join("agent");
    let cast = fs::read_to_string(agent.join("recording.cast")).unwrap();
    let head: Value = serde_json::from_str(cast.lines().next().unwrap()).unwrap();
    assert_eq!((&head["version"], &head["width"], &head["height"]), (&json!(2), &json!(160), &json!(40)));
    assert!(cast.contains("\"m\", \"episode 0\"") && cast.contains("\"m\", \"episode 8\""));
    assert!(fs::metadata(agent.join("terminus_2.pane")).unwrap().len() > 1000);
}
