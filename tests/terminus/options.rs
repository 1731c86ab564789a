//! What can be set, and what is refused.

use serde_json::json;

use super::*;
use support::model_server::Wording;

#[test]
fn points_3_6_8_35_options_are_sent_and_kept() {
    let think = |answer: Answer| answer.thinking("Let me think.");
    let first = || types(&[("echo begun\n", 0.1)]);
    let play = Play::default()
        .task("turns", vec![think(first()), think(first()), think(first())])
        .task("nosum", vec![first(), Answer::too_long(Wording::Vllm, 40_123, 32_768)]);
    let call = json!({"top_p": 0.95, "max_tokens": 500, "extra_body": {"top_k": 20}, "extra_headers": {"X-Run": "r"}});
    let settings = [
        "max_turns=2".to_string(),
        "temperature=0.6".to_string(),
        "reasoning_effort=high".to_string(),
        format!("llm_call_kwargs={call}"),
        "interleaved_thinking=true".to_string(),
        "session_id=s-1".to_string(),
        "session_id_headers=[\"Modal-Session-ID\"]".to_string(),
        "enable_summarize=false".to_string(),
        "store_all_messages=true".to_string(),
        "stream=false".to_string(),
        "record_terminal_session=false".to_string(),
        "model_info={\"input_cost_per_token\": 0.001, \"output_cost_per_token\": 0.01}".to_string(),
    ];
    let args: Vec<&str> = settings.iter().flat_map(|s| ["--ak", s.as_str()]).collect();
    let Some(ran) = play.args(&args).run() else { return };
    assert_eq!((ran.end("turns"), ran.episodes("turns")), ((Some(0.0), None), 2), "{}", ran.said);
    let asked = ran.asked("turns");
    assert_eq!(asked.len(), 2);
    let mut body = asked[1].body.clone();
    let messages = body.as_object_mut().unwrap().remove("messages").unwrap();
    let expected = json!({"model": "scripted-1", "temperature": 0.6, "reasoning_effort": "high", "top_p": 0.95,
        "max_tokens": 500, "top_k": 20, "session_id": "s-1"});
    assert_eq!(body, expected);
    assert_eq!(messages[1]["reasoning_content"], "Let me think.");
    for (name, value) in [("x-session-id", "s-1"), ("modal-session-id", "s-1"), ("x-run", "r")] {
        assert_eq!(asked[0].headers.get(name).map(String::as_str), Some(value), "{name}");
    }
    let agent = ran.agent("turns");
    assert_eq!(agent["metadata"]["all_messages"].as_array().unwrap().len(), 4);
    let cost = asked.iter().map(|a| a.prompt as f64 * 0.001 + a.generated as f64 * 0.01).sum::<f64>();
    assert!((agent["cost_usd"].as_f64().unwrap() - cost).abs() < 1e-9);
    assert!(!ran.dir("turns").join("agent/recording.cast").exists());
    let trajectory = ran.trajectory("turns");
    assert_eq!((&trajectory["session_id"], &trajectory["agent"]["extra"]["temperature"]), (&json!("s-1"), &json!(0.6)));
    assert_eq!(ran.steps("turns")[0]["reasoning_content"], "Let me think.");
    assert_eq!(ran.end("nosum"), (Some(0.0), Some("ContextLengthExceededError")));
    assert_eq!(ran.asked("nosum").len(), 2);
}

#[test]
fn limits_of_ours_cut_a_call_and_tell_the_model() {
    let thinks = types(&[]).thinking(&"hmm ".repeat(400)).rate(100.0);
    let slow = Answer::say(&"so slow ".repeat(50)).rate(10.0);
    let play = Play::default().task("cuts", [vec![thinks, slow], solved()].concat());
    let args = ["--ak", "episode_timeout=2.5", "--ak", "max_thinking_tokens=30"];
    let Some(ran) = play.args(&args).run() else { return };
    assert_eq!((ran.end("cuts"), ran.episodes("cuts")), ((Some(1.0), None), 3), "{}", ran.said);
    assert_eq!(ran.lengths("cuts"), [1, 1, 1, 3, 5]);
    let (first, second, third) = (ran.told("cuts", 1), ran.told("cuts", 2), ran.told("cuts", 3));
    assert!(second.starts_with(&first) && second.contains("more than 30 tokens"), "{second}");
    assert!(third.starts_with(&first) && third.contains("after 2.5 seconds"), "{third}");
    assert!(!third.contains("30 tokens"), "the notices do not pile up: {third}");
    let own = ran.own("cuts");
    assert_eq!(own["calls_cut"], 2);
    let lost = own["tokens_apart"]["failed"]["output_tokens_at_least"].as_u64().unwrap();
    assert!((31..200).contains(&lost), "{own}");
    assert_eq!(own["deviations"].as_array().unwrap().len(), 3);
}

#[test]
fn point_18_what_is_not_done_is_refused_by_name_before_anything_begins() {
    let yard = Yard::new().task("one", "exit 0", CHECK, "");
    let tasks = yard.temp.path().join("tasks");
    for (args, said) in [
        (&["--ak", "temprature=1"][..], "option temprature: no such option; did you mean temperature?"),
        (&["--ak", "parser_name=xml"], "option parser_name: xml: only the format json"),
        (&["--ak", "use_responses_api=true"], "option use_responses_api: only chat completions"),
        (&["--ak", "trajectory_config={\"linear_history\": true}"], "linear_history: not there yet"),
        (&["--ak", "trajectory_config={\"raw_content\": true}"], "raw_content: not there yet"),
        (&["--ak", "collect_rollout_details=true"], "option collect_rollout_details"),
        (&["--ak", "llm_backend=tinker"], "option llm_backend: tinker"),
        (&["--ak", "llm_kwargs={\"api_key\": \"sk-0123456789\"}"], "keys are read from an environment variable only"),
        (&["-m", "anthropic/claude"], "model anthropic/claude: only openai/NAME"),
        (&["--ak", "prompt_templates=harbor"], "prompt_templates=harbor: no harbor in the path"),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pilothouse"));
        command.args(["run", "--headless", "-p", tasks.to_str().unwrap(), "-a", "terminus-2"]);
        if !args.contains(&"-m") {
            command.args(["-m", "openai/x"]);
        }
        command.args(["--ak", "api_base=http://127.0.0.1:9/v1"]).args(args);
        command.args(["--jobs-dir", yard.temp.path().join("jobs").to_str().unwrap()]);
        command.env("PATH", "/usr/bin:/bin").env_remove("PILOTHOUSE_HARBOR_PYTHON");
        let out = command.output().unwrap();
        let text = String::from_utf8_lossy(&out.stderr).replace("\n  ", " ");
        assert!(out.status.code() == Some(2) && text.contains(said), "{args:?}: {:?} {text}", out.status);
        assert!(!text.contains("sk-0123456789"), "{text}");
    }
    assert!(!yard.temp.path().join("jobs").exists());
}

#[test]
fn with_the_prompts_of_an_installed_harbor_it_is_terminus_2() {
    let Ok(python) = std::env::var("PILOTHOUSE_HARBOR_PYTHON") else {
        return support::skipped("PILOTHOUSE_HARBOR_PYTHON names no Python with Harbor");
    };
    let unclear = Answer::say("no object");
    let play = Play::default().task("theirs", [vec![unclear], solved()].concat());
    let Some(ran) = play.args(&["--ak", "prompt_templates=harbor"]).run() else { return };
    assert_eq!(ran.end("theirs"), (Some(1.0), None), "{python}: {}", ran.said);
    assert_eq!(ran.result("theirs")["agent_info"]["name"], "terminus-2");
    let own = ran.own("theirs");
    assert_eq!((&own["prompts"]["of"], &own["deviations"]), (&json!("harbor"), &json!([])));
    assert_eq!(ran.trajectory("theirs")["agent"]["extra"]["pilothouse"]["prompts"], own["prompts"]);
    // None of it is ours.
    let ours = ["could not be read", "You work at the terminal"];
    let all = ran.asked("theirs").iter().map(Asked::last_text).collect::<Vec<_>>().join("\n");
    assert!(ours.iter().all(|text| !all.contains(text)) && all.contains("keystrokes"), "{all}");
}
