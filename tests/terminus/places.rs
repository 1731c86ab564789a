//! Where the agent works: another user, no shell but `sh`, several steps.

use serde_json::json;

use super::*;

#[test]
fn points_43_44_45_places_are_as_tasks_want_them() {
    let who = vec![types(&[("id -un > /tmp/who\n", 0.4)]), done(), done()];
    let plain = vec![types(&[("echo found: $0 $(command -v bash tmux asciinema) ';'\n", 0.4)]), done(), done()];
    let steps = [solved(), vec![types(&[("echo 43 > /app/answer\n", 0.3)]), done(), done()]].concat();
    let table = "[[steps]]\nname = \"a\"\n[[steps]]\nname = \"b\"\n";
    let reward = |check: &str| format!("#!/bin/sh\n{check} && r=1 || r=0; echo $r > /logs/verifier/reward.txt\n");
    let rm = "RUN rm -f /bin/bash /usr/bin/bash /usr/bin/tmux /usr/bin/asciinema /usr/local/bin/asciinema";
    let play = Play::default()
        .inside()
        .timed("who", who, "[agent]\nuser = \"nobody\"")
        .file("who/tests/test.sh", &reward("[ \"$(cat /tmp/who)\" = nobody ]"))
        .timed("plain", plain, "[environment]\nallow_internet = false")
        .file("plain/environment/Dockerfile", &format!("FROM tb-base:1\n{rm}\n"))
        .timed("steps", steps, table)
        .file("steps/steps/a/instruction.md", "[tb:steps] Write 42 into /app/answer.\n")
        .file("steps/steps/a/tests/test.sh", &format!("#!/bin/bash\n{CHECK}\n"))
        .file("steps/steps/b/instruction.md", "[tb:steps] Write 43 into /app/answer.\n")
        .file("steps/steps/b/tests/test.sh", &reward("[ \"$(cat /app/answer)\" = 43 ]"));
    let Some(ran) = play.run() else { return };
    assert_eq!(ran.end("who"), (Some(1.0), None), "{}", ran.said);
    // 43: nothing is installed, and `sh` is enough; it is the tests that need bash.
    assert_eq!(ran.episodes("plain"), 3, "{}", ran.said);
    let told = ran.told("plain", 2);
    assert!(told.contains("found: sh ;") || told.contains("found: -sh ;"), "{told}");
    assert_ne!(ran.end("plain").1, Some("RuntimeError"));
    // 45: each step has its own conversation, counts and trajectory.
    let result = ran.result("steps");
    assert_eq!(result["verifier_result"]["rewards"], json!({"reward": 1.0}), "{}", ran.said);
    assert_eq!(ran.lengths("steps"), [1, 3, 5, 1, 3, 5]);
    let asked = ran.asked("steps");
    for (n, step) in result["step_results"].as_array().unwrap().iter().enumerate() {
        let input: u64 = asked[n * 3..n * 3 + 3].iter().map(|a| a.prompt).sum();
        assert_eq!(step["agent_result"]["n_input_tokens"], input);
        assert_eq!(step["agent_result"]["metadata"]["n_episodes"], 3);
        let at = ran.dir("steps").join("steps").join(["a", "b"][n]).join("agent");
        assert_eq!(yard::json(&at.join("trajectory.json"))["steps"].as_array().unwrap().len(), 4);
        assert!(at.join("recording.cast").is_file());
    }
}
