//! Servers that fail, and the agent's limit.

use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use super::*;
use support::model_server::Fault;

#[test]
fn points_28_31_41_failures_have_their_kinds() {
    let first = || types(&[("echo begun\n", 0.1)]);
    let oops = Answer::error(500, "The server had an error.", "server_error", json!("internal_error"));
    let odd = Answer::error(400, "Input length 5 exceeds the weather.", "invalid_request_error", json!(400));
    let long = types(&[]).thinking(&"hmm ".repeat(2000)).rate(50.0);
    let play = Play::default()
        .task("e500", vec![first(), oops])
        .task("e401", vec![first(), Answer::wrong_key("sk-wrong")])
        .task("e400", vec![first(), odd])
        .task(
            "again",
            [vec![first(), first().fault(Fault::Reset(3)), Answer::rate_limit(Some("0"))], solved()].concat(),
        )
        .task("page", vec![first(), Answer::gateway_page()])
        .timed("late", vec![types(&[SOLVE]), long], "[agent]\ntimeout_sec = 5.0");
    let Some(ran) = play.args(&["--ak", "model_retries=1"]).run() else { return };
    assert_eq!(ran.end("e500"), (Some(0.0), Some("InternalServerError")), "{}", ran.said);
    assert_eq!(ran.asked("e500").len(), 3, "asked again once");
    assert_eq!(ran.end("e401"), (None, Some("AuthenticationError")));
    assert_eq!(ran.asked("e401").len(), 2, "not asked again");
    assert_eq!(ran.end("e400"), (Some(0.0), Some("BadRequestError")));
    assert_eq!(ran.asked("e400").len(), 2, "not asked again");
    assert_eq!(ran.end("page"), (Some(0.0), Some("Timeout")));
    assert_eq!(ran.end("again"), (Some(1.0), None));
    let own = ran.own("again");
    assert_eq!((&own["retries"], &own["tokens_apart"]["failed"]["requests"]), (&json!(2), &json!(2)));
    assert!(own["tokens_apart"]["failed"]["output_tokens_at_least"].as_u64().unwrap() >= 3, "{own}");
    for task in ["e500", "e401", "e400"] {
        let agent = ran.agent(task);
        let first = &ran.asked(task)[0];
        assert_eq!(agent["n_input_tokens"], first.prompt, "{task}");
        assert_eq!((ran.episodes(task), ran.steps(task).len()), (2, 1), "{task}");
    }
    assert_eq!(yard::class_of(&ran.yard.dir(), "e401").0, "config");
    assert_eq!(yard::class_of(&ran.yard.dir(), "e500"), ("infra".to_string(), Some("model-api".to_string())));
    // 41: what was counted when the time was over, and tests that ran.
    assert_eq!((ran.end("late"), ran.episodes("late")), ((Some(1.0), Some("AgentTimeoutError")), 2));
    let agent = ran.agent("late");
    assert_eq!(agent["n_input_tokens"], ran.asked("late")[0].prompt);
    let lost = ran.own("late")["tokens_apart"]["failed"]["output_tokens_at_least"].as_u64().unwrap();
    let sent = ran.asked("late")[1].generated;
    assert!(lost >= 50 && lost <= sent, "{lost} of {sent}");
    assert!(ran.asked("late")[1].gone, "the server is not kept busy");
    assert_eq!(ran.steps("late").len(), 1);
}

#[test]
fn a_key_that_is_refused_holds_the_trials_that_have_not_begun() {
    let play = Play::default().task("one", solved()).task("two", solved()).key("another");
    let Some((server, yard, mut command)) = play.args(&["-n", "1"]).ready() else { return };
    let mut job = command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null()).spawn().unwrap();
    let log = || fs::read_to_string(yard.dir().join("job.log")).unwrap_or_default();
    let begun = Instant::now();
    while !log().contains("endpoint: nothing begins: the key is not accepted") {
        assert!(begun.elapsed() < Duration::from_secs(60), "{}", log());
        std::thread::sleep(Duration::from_millis(50));
    }
    // Long enough for another one to begin.
    std::thread::sleep(Duration::from_millis(1500));
    let trials = || fs::read_dir(yard.dir()).unwrap().flatten().filter(|e| e.path().is_dir()).count();
    assert_eq!((trials(), server.chats().len()), (1, 1));
    kill_process(Pid::from_raw(job.id().cast_signed()).unwrap(), Signal::TERM).unwrap();
    let code = job.wait().unwrap().code();
    assert_ne!(code, Some(0));
    assert_eq!(trials(), 1, "it can be gone on with when the key is right");
    let said = fs::read_to_string(yard.dir().join("job.log")).unwrap();
    assert!(!said.contains(SECRET), "{said}");
}
