//! Tasks of several steps.

use super::*;

#[test]
fn point_45_every_step_begins_anew_in_the_same_shell() {
    let answers = vec![
        types(&[("mkdir -p /app; kept=42; echo 41 > /app/answer; echo of the''-first\n", 0.4)]),
        done(),
        done(),
        types(&[("echo $kept > /app/answer; echo of the''-second\n", 0.4)]),
        done(),
        done(),
    ];
    let steps = "[[steps]]\nname = \"a\"\n[[steps]]\nname = \"b\"\n";
    let Some(ran) = Play::default().inside().timed("steps", answers, steps).run() else { return };
    assert_eq!(ran.end("steps"), (Some(0.5), None), "{}", ran.said);
    let agent = |step: &str| ran.dir("steps").join("steps").join(step).join("agent");
    for step in ["a", "b"] {
        let trajectory = yard::json(&agent(step).join("trajectory.json"));
        let own = trajectory["steps"].as_array().unwrap().iter().filter(|s| s["source"] == "agent").count();
        assert_eq!(own, 3, "{step}: {trajectory:#}");
        let cast = fs::read_to_string(agent(step).join("recording.cast")).unwrap();
        let marks = cast.lines().filter(|line| line.contains("\"m\", \"episode")).count();
        assert_eq!(marks, 3, "{step}: {cast}");
        assert_eq!(cast.contains("of the-second"), step == "b", "{cast}");
        // What was on the screen is the beginning of the next recording.
        assert!(cast.contains("of the-first"), "{cast}");
        let raw = fs::read_to_string(agent(step).join("terminus_2.pane")).unwrap();
        assert_eq!(raw.contains("of the-first"), step == "a", "{raw}");
    }
    // The conversation is not the same.
    assert_eq!(ran.lengths("steps"), [1, 3, 5, 1, 3, 5]);
}
