//! A context that is full.

use std::sync::OnceLock;

use serde_json::json;

use super::*;
use support::model_server::Wording;

fn full(wording: Wording) -> Answer {
    Answer::too_long(wording, 40_123, 32_768)
}

fn ran() -> Option<&'static Ran> {
    static RAN: OnceLock<Option<Ran>> = OnceLock::new();
    let ran = RAN.get_or_init(|| {
        let say = Answer::say;
        let summary = || vec![say("The account."), say("1. The question?"), say("1. The answer.")];
        let first = || vec![types(&[("echo begun\n", 0.2)])];
        let reacts = [first(), vec![full(Wording::Vllm)], summary(), solved()].concat();
        let short =
            [first(), vec![full(Wording::LlamaCpp), full(Wording::OpenAi), say("Write the file.")], solved()].concat();
        let bare = [first(), vec![full(Wording::Sglang); 4], solved()].concat();
        let never = [first(), vec![full(Wording::Gateway)]].concat();
        let first_of_all = vec![full(Wording::Vllm)];
        Play::default()
            .task("reacts", reacts)
            .task("short", short)
            .task("bare", bare)
            .task("never", never)
            .task("first", first_of_all)
            .run()
    });
    ran.as_ref()
}

#[test]
fn points_31_33_38_three_calls_sum_up_what_was_said() {
    let Some(ran) = ran() else { return };
    assert_eq!((ran.end("reacts"), ran.episodes("reacts")), ((Some(1.0), None), 4), "{}", ran.said);
    assert_eq!(ran.lengths("reacts"), [1, 3, 3, 1, 5, 4, 6, 8]);
    let asked = ran.asked("reacts");
    assert!(asked[3].last_text().contains("The account.") && asked[3].last_text().contains("[tb:reacts]"));
    assert_eq!(asked[4].texts()[3], "The account.");
    assert!(asked[4].last_text().contains("1. The question?"));
    let main = &asked[5];
    assert_eq!(main.roles(), ["user", "user", "assistant", "user"]);
    assert_eq!(main.texts()[0], asked[0].last_text());
    assert_eq!(main.texts()[1], asked[3].last_text());
    assert!(main.last_text().contains("1. The answer.") && main.last_text().contains("No more questions"));
    // Its tokens count, those of the refused call do not.
    let answered = asked.iter().filter(|a| a.status == Some(200));
    let (input, output) = answered.fold((0, 0), |sum, a| (sum.0 + a.prompt, sum.1 + a.generated));
    let agent = ran.agent("reacts");
    assert_eq!((agent["n_input_tokens"].as_u64(), agent["n_output_tokens"].as_u64()), (Some(input), Some(output)));
    assert_eq!(agent["metadata"]["summarization_count"], 1);
    assert_eq!(agent["metadata"]["api_request_times_msec"].as_array().unwrap().len(), 7);
    let trajectory = ran.trajectory("reacts");
    assert_eq!(trajectory["final_metrics"]["total_prompt_tokens"], input);
    let steps = trajectory["steps"].as_array().unwrap();
    let sources: Vec<&str> = steps.iter().map(|s| s["source"].as_str().unwrap()).collect();
    assert_eq!(sources, ["user", "agent", "system", "user", "agent", "agent", "agent"]);
    assert_eq!(steps[2]["extra"]["context_management"], json!({"type": "compaction", "boundary": "replace"}));
    assert_eq!(steps[3]["message"], main.last_text().as_str());
    let refs = steps[2]["observation"]["results"][0]["subagent_trajectory_ref"].as_array().unwrap();
    let session = trajectory["session_id"].as_str().unwrap();
    for (kind, own, found) in [("summary", 1, &refs[0]), ("questions", 0, &refs[1]), ("answers", 3, &refs[2])] {
        let file = format!("trajectory.summarization-1-{kind}.json");
        assert_eq!(found["trajectory_path"], file.as_str());
        assert_eq!(found["session_id"], format!("{session}-summarization-1-{kind}"));
        let helper = yard::json(&ran.dir("reacts").join("agent").join(file));
        assert_eq!(helper["agent"]["name"], format!("pilothouse-terminus-summarization-{kind}"));
        assert_eq!(helper["agent"]["extra"], json!({"parent_session_id": session, "summarization_index": 1}));
        let steps = helper["steps"].as_array().unwrap();
        let copied = steps.iter().filter(|s| s["is_copied_context"] == true).count();
        assert_eq!((copied, steps.len()), (own, own + 2), "{kind}");
        assert!(steps.iter().take(own).all(|s| s["metrics"].is_null()));
        assert!(helper["final_metrics"]["total_cached_tokens"].is_u64(), "{helper}");
    }
}

#[test]
fn point_34_the_chain_of_fallbacks_keeps_the_work_alive() {
    let Some(ran) = ran() else { return };
    assert_eq!(ran.end("short"), (Some(1.0), None), "{}", ran.said);
    let asked = ran.asked("short");
    assert_eq!(ran.lengths("short")[..5], [1, 3, 3, 1, 3]);
    assert!(asked[4].last_text().contains("[tb:short]") && asked[4].last_text().contains("Write the file."));
    // No summary, no short one, and what is sent without either is too long as well: an answer is made up.
    assert_eq!((ran.end("bare"), ran.episodes("bare")), ((Some(1.0), None), 5));
    assert_eq!(ran.lengths("bare")[..6], [1, 3, 3, 1, 3, 3]);
    assert!(ran.told("bare", 6).contains("could not be read"), "{}", ran.told("bare", 6));
    assert_eq!(ran.own("bare")["answers_made_up"], 1);
    let made_up = &ran.steps("bare")[1];
    assert_eq!(made_up["metrics"]["prompt_tokens"], 0);
    // For good.
    let (reward, exception) = ran.end("never");
    assert_eq!((reward, exception), (Some(0.0), Some("ContextLengthExceededError")));
    assert_eq!(ran.own("never")["answers_made_up"], 3);
    // The task itself is too long: nothing could be dropped.
    assert_eq!(ran.end("first"), (Some(0.0), Some("ContextLengthExceededError")));
    assert_eq!((ran.episodes("first"), ran.asked("first").len()), (1, 1));
}

#[test]
fn point_32_it_sums_up_before_the_context_is_full_by_what_was_measured() {
    let say = Answer::say;
    let answers = vec![
        types(&[("seq 1 2000\n", 0.8)]),
        types(&[("echo hello\n", 0.2)]),
        say("The account."),
        say("1. The question?"),
        say("1. The answer."),
    ];
    let Some(ran) = Play::default().task("soon", [answers, solved()].concat()).context(3600).run() else { return };
    assert_eq!(ran.end("soon"), (Some(1.0), None), "{}", ran.said);
    assert_eq!(ran.lengths("soon"), [1, 3, 4 + 1, 1, 4 + 3, 4, 6, 8]);
    let asked = ran.asked("soon");
    let used = asked[1].prompt + asked[1].generated;
    assert!((2600..3600).contains(&used), "{used} tokens were in use");
    assert!(ran.asked("soon").iter().all(|a| a.status == Some(200)));
    assert_eq!(ran.own("soon")["context_limit"], 3600);
}
