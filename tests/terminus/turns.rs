//! What is asked, how answers are read, when it is over.

use std::sync::OnceLock;

use serde_json::json;

use super::*;

fn ran() -> Option<&'static Ran> {
    static RAN: OnceLock<Option<Ran>> = OnceLock::new();
    let say = Answer::say;
    let ran = RAN.get_or_init(|| {
        let first = turn("A shell.", "Look.", &[("pwd\n", 0.1)], false);
        let reads = vec![
            say(&format!("```json\n{first}\n```")),
            say(first.strip_suffix('}').unwrap()),
            say(r#"{"analysis": "a", "plan": "p", "commands": [{"keystrokes": "touch never\n"},"#),
            say(r#"{"analysis": "a", "plan": "p", "commands": [{"keystrokes": "echo one\n"}, {"keystrokes": "echo two\n", "duration": "3"}]}"#),
            say(r#"{"analysis": "a", "plan": "p", "commands": [{"keystrokes": "touch never\n", "duration": 0.1}, 7]}"#),
            say(r#"Well. {"plan": "p", "analysis": "a", "commands": [{"keystrokes": "echo three", "duration": 0.1, "is_blocking": true}, {"keystrokes": "\n", "duration": 0.2}]}"#),
            say(r#"{"analysis": "a", "plan": "p", "commands": [7], "task_complete": "Yes"}"#),
            say("no object"),
            say(&turn("It is there.", "Confirm.", &[SOLVE], true)),
        ];
        let flag = vec![done(), types(&[SOLVE]), done(), done()];
        let cut = turn("A long one.", "It is cut.", &[("touch never\n", 0.1)], false);
        let cut = [vec![say(&cut[..cut.len() - 30]).finish("length")], solved()].concat();
        Play::default().task("reads", reads).task("flag", flag).task("cut", cut).run()
    });
    ran.as_ref()
}

#[test]
fn points_1_2_3_4_5_what_is_asked() {
    let Some(ran) = ran() else { return };
    assert_eq!(ran.code, Some(0), "{}", ran.said);
    let asked = ran.asked("flag");
    let first = &asked[0];
    assert_eq!(first.roles(), ["user"]);
    let text = first.last_text();
    for part in
        ["[tb:flag] Write 42 into /app/answer.", "\"keystrokes\"", "\"task_complete\"", "Current Terminal Screen:\n"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    let fields: Vec<&String> = first.body.as_object().unwrap().keys().collect();
    assert_eq!(fields, ["messages", "model", "stream", "stream_options"], "nothing that was not set");
    assert_eq!(first.body["model"], "scripted-1");
    assert_eq!(first.key, Some((SECRET.len(), true)));
    let last = asked.last().unwrap();
    assert_eq!(last.roles(), ["user", "assistant", "user", "assistant", "user", "assistant", "user"]);
    assert_eq!(last.texts()[1], done().content, "the answer as it was");
    assert_eq!(last.texts()[..last.texts().len() - 2], asked[2].texts(), "it only grows");
    assert_eq!(last.body["messages"][1]["reasoning_content"], json!(null));
}

#[test]
fn points_9_to_17_how_answers_are_read() {
    let Some(ran) = ran() else { return };
    assert_eq!((ran.end("reads"), ran.episodes("reads")), ((Some(1.0), None), 9));
    let steps = ran.steps("reads");
    // 9, 17: warnings come before the output.
    let told = ran.told("reads", 2);
    let (remarks, output) = told.split_once("\n\nNew Terminal Output:").unwrap();
    assert!(remarks.contains("- there is text in front") && remarks.contains("\n- there is text behind"), "{told}");
    assert!(output.contains("pwd"), "{told}");
    // 10
    let told = ran.told("reads", 3);
    assert!(told.contains("- closing braces were missing") && told.contains("New Terminal Output:"), "{told}");
    // 11
    let told = ran.told("reads", 4);
    assert!(told.contains("Error: there is no complete JSON object in it\nRemarks: - no object"), "{told}");
    assert!(!told.contains("Terminal Output"), "{told}");
    let third = &steps[2];
    assert_eq!(third["tool_calls"], json!(null));
    assert!(third["message"].as_str().unwrap().ends_with("touch never\\n\"},"), "{third}");
    assert_eq!(third["observation"]["results"][0]["content"], told.as_str());
    // 12
    let told = ran.told("reads", 5);
    assert!(
        told.contains("- entry 1 has no \"duration\"; 1.0")
            && told.contains("- \"duration\" of entry 2 is not a number"),
        "{told}"
    );
    assert_eq!(steps[3]["tool_calls"][1]["arguments"], json!({"keystrokes": "echo two\n", "duration": 1.0}));
    assert!(told.contains("\ntwo\n"), "{told}");
    // 13
    let told = ran.told("reads", 6);
    assert!(told.contains("Error: entry 2 of \"commands\" is not an object"), "{told}");
    // 15, 16
    let told = ran.told("reads", 7);
    for part in [
        "order plan \u{2192} analysis \u{2192} commands; it should be analysis \u{2192} plan",
        "entry 1 has fields that mean nothing: is_blocking",
        "entry 1 does not end with \\n",
        "text in front",
        "\nthree\n",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
    // 13, 14: with the flag it is only a warning, which is dropped.
    let told = ran.told("reads", 8);
    assert!(told.contains("You marked the task as complete") && !told.contains("entry 1"), "{told}");
    // 27: an answer that could not be read leaves the flag, and the last commands are carried out.
    assert!(ran.told("reads", 9).contains("Error: there is no complete JSON object"));
    let last = &steps[8];
    assert_eq!(last["tool_calls"].as_array().unwrap().len(), 2);
    assert!(!last["observation"]["results"][0]["content"].as_str().unwrap().contains("marked the task"));
}

#[test]
fn point_27_a_turn_without_the_flag_clears_it() {
    let Some(ran) = ran() else { return };
    assert_eq!((ran.end("flag"), ran.episodes("flag")), ((Some(1.0), None), 4));
    assert!(ran.told("flag", 2).contains("marked the task as complete"));
    assert!(!ran.told("flag", 3).contains("marked the task as complete"));
    assert!(ran.told("flag", 4).contains("marked the task as complete"));
}

#[test]
fn point_30_an_answer_that_was_cut_is_asked_for_again() {
    let Some(ran) = ran() else { return };
    assert_eq!((ran.end("cut"), ran.episodes("cut")), ((Some(1.0), None), 3));
    assert_eq!(ran.lengths("cut"), [1, 3, 5, 7]);
    let asked = ran.asked("cut");
    let told = asked[1].last_text();
    assert!(told.contains("NOTHING of it was carried out") && told.contains("Remarks on the part"), "{told}");
    let (input, output) = asked.iter().skip(1).fold((0, 0), |sum, a| (sum.0 + a.prompt, sum.1 + a.generated));
    let agent = ran.agent("cut");
    assert_eq!((agent["n_input_tokens"].as_u64(), agent["n_output_tokens"].as_u64()), (Some(input), Some(output)));
    let apart = &ran.own("cut")["tokens_apart"]["truncated"];
    let expected = json!({"calls": 1, "input_tokens": asked[0].prompt, "output_tokens": asked[0].generated});
    assert_eq!(*apart, expected);
}

#[test]
fn points_36_37_40_what_is_left_of_it() {
    let Some(ran) = ran() else { return };
    let trajectory = ran.trajectory("flag");
    assert_eq!(trajectory["schema_version"], "ATIF-v1.8");
    assert_eq!(trajectory["agent"]["name"], "pilothouse-terminus");
    assert_eq!(trajectory["agent"]["model_name"], "openai/scripted-1");
    assert_eq!(trajectory["agent"]["extra"]["parser"], "json");
    let trial = ran.dir("flag").file_name().unwrap().to_str().unwrap();
    assert_eq!(trajectory["session_id"], format!("{trial}__agent"));
    let steps = trajectory["steps"].as_array().unwrap();
    assert_eq!((steps.len(), &steps[0]["source"]), (5, &json!("user")));
    assert_eq!(steps[0]["message"], ran.told("flag", 1).as_str());
    let second = &steps[2];
    assert_eq!(second["message"], "Analysis: I see a shell.\nPlan: I type.");
    let call = json!({"tool_call_id": "call_1_1", "function_name": "bash_command",
        "arguments": {"keystrokes": SOLVE.0, "duration": SOLVE.1}});
    assert_eq!(second["tool_calls"], json!([call]));
    assert_eq!(second["observation"]["results"][0]["source_call_id"], "call_1_1");
    assert_eq!(second["model_name"], "scripted-1");
    let asked = ran.asked("flag");
    assert_eq!(second["metrics"]["prompt_tokens"], asked[1].prompt);
    let complete = &steps[4]["tool_calls"][0];
    assert_eq!(
        (&complete["tool_call_id"], &complete["function_name"]),
        (&json!("call_3_task_complete"), &json!("mark_task_complete"))
    );
    let sum = |of: fn(&Asked) -> u64| asked.iter().map(of).sum::<u64>();
    let (input, output, cached) = (sum(|a| a.prompt), sum(|a| a.generated), sum(|a| a.cached));
    let totals =
        json!({"total_prompt_tokens": input, "total_completion_tokens": output, "total_cached_tokens": cached});
    assert_eq!(trajectory["final_metrics"], totals);
    let agent = ran.agent("flag");
    let counts = ["n_input_tokens", "n_output_tokens", "n_cache_tokens"].map(|name| agent[name].as_u64());
    assert_eq!(counts, [Some(input), Some(output), Some(cached)]);
    assert_eq!((&agent["cost_usd"], &agent["rollout_details"]), (&json!(null), &json!([])));
    let metadata = &agent["metadata"];
    assert_eq!(metadata["api_request_times_msec"].as_array().unwrap().len(), 4);
    assert_eq!(metadata["summarization_count"], 0);
    let own = ran.own("flag");
    assert_eq!(own["prompts"]["of"], "pilothouse");
    assert_eq!(own["prompts"]["sha256"].as_str().unwrap().len(), 64);
    assert_eq!((&own["context_limit"], &own["context_limit_by"]), (&json!(1_000_000), &json!("the server")));
    let info = &ran.result("flag")["agent_info"];
    assert_eq!((&info["name"], &info["version"]), (&json!("pilothouse-terminus"), &json!("2.0.0")));
    assert_eq!(info["model_info"], json!({"name": "scripted-1", "provider": "openai"}));
}

#[test]
fn no_key_is_left_anywhere() {
    let Some(ran) = ran() else { return };
    let mut todo = vec![ran.yard.temp.path().to_path_buf()];
    let mut files = 0;
    while let Some(dir) = todo.pop() {
        for entry in fs::read_dir(dir).unwrap().flatten() {
            let kind = entry.file_type().unwrap();
            if kind.is_dir() {
                todo.push(entry.path());
            } else if kind.is_file() {
                let bytes = fs::read(entry.path()).unwrap();
                let found = bytes.windows(SECRET.len()).any(|part| part == SECRET.as_bytes());
                assert!(!found, "{}", entry.path().display());
                files += 1;
            }
        }
    }
    assert!(files > 20 && !ran.said.contains(SECRET));
}
