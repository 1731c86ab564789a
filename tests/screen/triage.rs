//! Triage: its pictures, and what its keys do to the model and what they ask for.

use std::path::PathBuf;
use std::sync::Arc;

use pilothouse::app::effect::Effect;
use pilothouse::app::helm::{News, Order, Said, Side, Speech};
use pilothouse::app::key::Key;
use pilothouse::app::message::Msg;
use pilothouse::app::model::{Look, Model, Theme, View};
use pilothouse::app::overlay::Overlay;
use pilothouse::app::rows::Row;
use pilothouse::app::update;
use pilothouse::job::policy::ErrorPolicy;
use pilothouse::job::{
    Class, Classification, Excerpt, Flag, JobEvent, JobKey, Notebook, Planned, Rewards, Verdict, Word,
};

use super::build::{J, T, at};
use super::scenes::{self, keys, look, now, typed};
use super::{check, check_at, screen};

const KEY: JobKey = JobKey(0);

/// The whole of a class.
fn class(class: Class, sub: &str, rule: &str, why: &str, evidence: &[(&str, u64, &str)]) -> Classification {
    let excerpt = |(path, line, text): &(&str, u64, &str)| Excerpt {
        path: Arc::from(*path),
        line: (*line > 0).then_some(*line),
        text: Arc::from(*text),
    };
    Classification {
        result_id: None,
        class,
        sub: (!sub.is_empty()).then(|| Arc::from(sub)),
        rule: rule.into(),
        why: why.into(),
        evidence: evidence.iter().map(excerpt).collect(),
        flags: Vec::new(),
        suggested: match class {
            Class::Infra => Some(Verdict::InfraConfirmed),
            Class::AgentTimeout => Some(Verdict::TimeoutValid),
            Class::VerifierTimeout => Some(Verdict::VerifierTimeout),
            _ => None,
        },
        harbor_differs: None,
    }
}

/// A job with everything that triage is for: nine of eleven are no clean passes.
fn job() -> (J, Vec<(Arc<str>, Classification)>) {
    let lost = |task: &str, start: i64| {
        let mut t = T::done(task, "aB3dEfG", start, start + 300, None).err("RuntimeError");
        t.result().rewards = Rewards::None;
        t
    };
    let mut thin = T::done("hello-world", "aB3dEfG", 50, 90, Some(1.0));
    thin.result().n_episodes = Some(1);
    let mut trials = vec![
        T::done("alpha-task", "aB3dEfG", 10, 700, Some(1.0)),
        T::done("beta-task", "aB3dEfG", 10, 800, Some(1.0)),
        T::done("gamma-task", "aB3dEfG", 20, 5600, Some(0.0)).err("AgentTimeoutError").limits(5400.0, 900.0),
        T::done("delta-task", "aB3dEfG", 30, 800, Some(0.0)),
        lost("build-pov-ray", 400),
        lost("sam-cell-seg", 420),
        lost("qemu-startup-with-a-long-name", 440),
        lost("sparql-university", 500),
        T::done("eta-task", "aB3dEfG", 600, 1900, Some(0.0)).err("VerifierTimeoutError"),
        T::done("theta-task", "aB3dEfG", 600, 900, None),
        thin,
    ];
    for t in &mut trials {
        t.0.model = Some("Qwen/Qwen3.8-27B".into());
    }
    if let Some(x) = trials.get_mut(4).and_then(|t| t.result().exception.as_mut()) {
        x.message = "docker compose up failed: Error response from daemon: all predefined address pools have been \
                     fully subnetted"
            .into();
    }
    let network = |line| {
        class(
            Class::Infra,
            "docker-network",
            "docker-address-pools",
            "The engine had no network left to give: the container never started, no token was spent.",
            &[
                (
                    "exception.txt",
                    line,
                    "Error response from daemon: all predefined address pools have been fully subnetted",
                ),
                ("agent", 0, "not there: the agent never began"),
            ],
        )
    };
    let mut odd = class(Class::Passed, "", "reward-one", "Reward 1.", &[("result.json", 0, "n_episodes 1")]);
    odd.flags = vec![Flag::ThinPass];
    let mut pools = network(41);
    pools.harbor_differs = Some(ErrorPolicy::new(false, true, true));
    let mut unclear = class(Class::Unclassified, "", "none", "Nothing in its files says why.", &[]);
    unclear.suggested = None;
    let timeout = class(
        Class::AgentTimeout,
        "",
        "agent-timeout",
        "It worked until its limit of 5400 s and was graded 0.",
        &[("trial.log", 212, "Agent execution timed out after 5400.0 seconds")],
    );
    let clean = |_: &str| class(Class::Passed, "", "reward-one", "Reward 1.", &[]);
    let classes = vec![
        ("alpha-task", clean("")),
        ("beta-task", clean("")),
        ("gamma-task", timeout),
        (
            "delta-task",
            class(
                Class::Failed,
                "",
                "graded-zero",
                "Its tests ran and failed.",
                &[("verifier/test-stdout.txt", 88, "FAILED test_outputs.py::test_sum - assert 3 == 4")],
            ),
        ),
        ("build-pov-ray", pools),
        ("sam-cell-seg", network(40)),
        ("qemu-startup-with-a-long-name", network(40)),
        ("sparql-university", unclear),
        (
            "eta-task",
            class(
                Class::VerifierTimeout,
                "",
                "verifier-hung",
                "A test began and never ended.",
                &[("verifier/test-stdout.txt", 17, "test_outputs.py::test_server")],
            ),
        ),
        ("theta-task", class(Class::Phantom, "", "phantom", "A result with neither reward nor exception.", &[])),
        ("hello-world", odd),
    ];
    let named = |(task, mut class): (&str, Classification)| {
        let trial = trials.iter().find(|t| &*t.0.task == task).unwrap();
        class.result_id = trial.0.result.as_ref().unwrap().id.clone();
        (trial.0.name.clone(), class)
    };
    let classes = classes.into_iter().map(named).collect();
    let tasks: Vec<Planned> = trials
        .iter()
        .map(|t| Planned { task: t.0.task.clone(), agent: None, model: None, digest: None, n: 1 })
        .chain(std::iter::once(Planned { task: "zeta-task".into(), agent: None, model: None, digest: None, n: 1 }))
        .collect();
    let mut job = J::new("night-run", "id-9", &[]).with(trials).finished(6000);
    job.facts.planned = Some(tasks);
    (job, classes)
}

pub fn model_of(size: (u16, u16), look: Look, side: Side) -> Model {
    let (job, classes) = job();
    let mut model = scenes::model(&[job], size, look);
    model.steer.side = side;
    model.steer.notes = side != Side::Reader;
    model.ledger.operator = "ops@host".into();
    let events = classes.into_iter().map(|(name, c)| JobEvent::Class(KEY, name, Some(Arc::new(c)))).collect();
    let _ = update::update(&mut model, now(), Msg::Jobs(events));
    update::settle(&mut model);
    model
}

pub fn open(size: (u16, u16)) -> Model {
    let mut model = model_of(size, look(), Side::Attached);
    keys(&mut model, &[Key::Char('4')]);
    model
}

/// Presses keys; gives the effects of all of them.
pub fn press(model: &mut Model, text: &str) -> Vec<Effect> {
    let mut effects = Vec::new();
    for key in text.chars() {
        update::settle(model);
        let key = match key {
            '\r' => Key::Enter,
            '\u{1b}' => Key::Esc,
            c => Key::Char(c),
        };
        effects.extend(update::update(model, now(), Msg::Key(key)));
    }
    update::settle(model);
    effects
}

fn current(model: &Model) -> &Row {
    model.triage.row(&model.rows).unwrap()
}

fn task(model: &Model) -> String {
    current(model).task.to_string()
}

fn order(model: &Model) -> Vec<String> {
    model.triage.order.iter().map(|i| model.rows[*i].task.to_string()).collect()
}

fn speeches(effects: &[Effect]) -> Vec<&Speech> {
    let mut out = Vec::new();
    for effect in effects {
        if let Effect::Helm(Order::Say(_, speech)) = effect {
            out.push(speech);
        }
    }
    out
}

/// The journal's answer to a speech.
fn written(model: &mut Model, speech: &Speech, instead: Option<&str>) {
    let said = Said {
        path: PathBuf::from(match instead {
            Some(_) => "/home/ops/.local/state/pilothouse/journal/id-9.jsonl",
            None => "/jobs/night-run/pilothouse.jsonl",
        }),
        instead: instead.map(str::to_string),
        words: speech.words.clone(),
    };
    let _ = update::update(model, now(), Msg::Helm(News::Said(KEY, speech.batch, Ok(said))));
    update::settle(model);
}

fn verdict(model: &Model, task: &str) -> Option<Verdict> {
    model.rows.iter().find(|r| &*r.task == task).unwrap().verdict
}

#[test]
fn pictures() {
    check("triage", |size| {
        let mut model = open(size);
        press(&mut model, "j");
        model
    });
    check("triage-judged", |size| {
        let mut model = open(size);
        press(&mut model, "jvinit was the net\r");
        press(&mut model, "k n");
        model.overlay = None;
        press(&mut model, "kk");
        model
    });
    check("triage-menu", |size| {
        let mut model = open(size);
        press(&mut model, "v");
        model
    });
    check("triage-bulk", |size| {
        let mut model = open(size);
        press(&mut model, "jfbiall of the night\r");
        model
    });
    check_at("triage-note", (80, 24), |size| {
        let mut model = open(size);
        press(&mut model, "nno net");
        model
    });
    check_at("triage-filter", (120, 40), |size| {
        let mut model = open(size);
        press(&mut model, "/class:infra");
        model
    });
    check_at("triage-elsewhere", (80, 24), |size| {
        let mut model = open(size);
        let effects = press(&mut model, "va");
        let speech = speeches(&effects)[0].clone();
        written(&mut model, &speech, Some("the job dir can not be written to (read-only file system)"));
        model
    });
    check_at("triage-ascii", (120, 40), |size| {
        let mut model = model_of(size, Look { ascii: true, theme: Theme::Mono }, Side::Attached);
        press(&mut model, "4jvi");
        model
    });
    check_at("triage-nothing", (80, 24), |size| {
        let mut model = scenes::model(&[J::new("x", "x", &[]).finished(9)], size, look());
        press(&mut model, "t");
        model
    });
    check("errors-classes", |size| {
        let mut model = model_of(size, look(), Side::Attached);
        keys(&mut model, &[Key::Char('3')]);
        model
    });
    check_at("trials-classes", (220, 60), |size| {
        let mut model = model_of(size, look(), Side::Attached);
        press(&mut model, " vi");
        model
    });
    check_at("trial-evidence", (120, 40), |size| {
        let mut model = open(size);
        press(&mut model, "jvi");
        press(&mut model, "k\rLLL");
        model
    });
}

#[test]
fn worst_first_and_what_failed_alike_together() {
    let model = open((120, 40));
    assert_eq!(
        order(&model),
        [
            // Three alike, by name.
            "build-pov-ray",
            "qemu-startup-with-a-long-name",
            "sam-cell-seg",
            "sparql-university",
            "eta-task",
            "theta-task",
            "gamma-task",
            "delta-task",
            // A pass that is none to be sure of.
            "hello-world",
        ]
    );
    assert_eq!((model.triage.total, model.triage.looked), (9, 0));
}

#[test]
fn a_verdict_is_v_and_a_letter_and_goes_on() {
    let mut model = open((80, 24));
    let effects = press(&mut model, "vi");
    let said = speeches(&effects);
    assert_eq!(said.len(), 1);
    let word = &said[0].words[0];
    assert_eq!(&*word.trial, "build-pov-ray__aB3dEfG");
    assert_eq!(word.verdict, Some(Verdict::InfraConfirmed));
    assert_eq!(word.result_id.as_deref(), Some("id-build-pov-ray-aB3dEfG"));
    assert_eq!(&*word.operator, "ops@host");
    // It holds before anybody has written it, and the next one is there.
    assert_eq!(verdict(&model, "build-pov-ray"), Some(Verdict::InfraConfirmed));
    assert_eq!(task(&model), "qemu-startup-with-a-long-name");
    assert_eq!((model.triage.total, model.triage.looked), (9, 1));
    // All seven, each by its letter.
    for v in Verdict::ALL {
        let mut model = open((80, 24));
        let effects = press(&mut model, &format!("v{}", v.letter()));
        assert_eq!(speeches(&effects)[0].words[0].verdict, Some(v));
    }
    // Enter confirms what is suggested.
    let effects = press(&mut model, "v\r");
    assert_eq!(speeches(&effects)[0].words[0].verdict, Some(Verdict::InfraConfirmed));
}

#[test]
fn without_a_suggestion_enter_says_nothing() {
    let mut model = open((80, 24));
    press(&mut model, "jjj");
    assert_eq!(task(&model), "sparql-university");
    let effects = press(&mut model, "v\r");
    assert!(effects.is_empty() && model.overlay.is_none(), "{effects:?}");
    assert_eq!(verdict(&model, "sparql-university"), None);
}

#[test]
fn no_digit_ever_sets_a_verdict() {
    for before in ["", "v", "vj", "n", "b", "bi", "f", "x"] {
        for digit in '0'..='9' {
            let mut model = open((120, 40));
            press(&mut model, before);
            let effects = press(&mut model, &digit.to_string());
            assert!(speeches(&effects).is_empty(), "{before}{digit}");
            assert!(model.rows.iter().all(|r| r.verdict.is_none()), "{before}{digit}");
        }
    }
    // In the menu of the verdicts they do nothing at all.
    let mut model = open((120, 40));
    press(&mut model, "v1234567");
    assert!(matches!(&model.overlay, Some(Overlay::Menu(_))));
    // Elsewhere they go on switching views.
    press(&mut model, "\u{1b}1");
    assert_eq!(model.view(), View::Trials);
    press(&mut model, "4");
    assert_eq!(model.view(), View::Triage);
    press(&mut model, "3");
    assert_eq!(model.view(), View::Errors);
}

#[test]
fn undo_brings_back_what_held_before() {
    let mut model = open((80, 24));
    press(&mut model, "vi");
    press(&mut model, "k");
    press(&mut model, "va");
    assert_eq!(verdict(&model, "build-pov-ray"), Some(Verdict::AgentFault));
    let effects = press(&mut model, "u");
    assert_eq!(speeches(&effects)[0].words[0].verdict, Some(Verdict::InfraConfirmed));
    assert_eq!(verdict(&model, "build-pov-ray"), Some(Verdict::InfraConfirmed));
    // The place is that of what was undone.
    assert_eq!(task(&model), "build-pov-ray");
    let effects = press(&mut model, "u");
    assert_eq!(speeches(&effects)[0].words[0].verdict, None);
    assert_eq!(verdict(&model, "build-pov-ray"), None);
    assert_eq!(model.triage.looked, 0);
    assert!(press(&mut model, "u").is_empty());
}

#[test]
fn a_verdict_is_taken_back_by_its_own_letter() {
    let mut model = open((80, 24));
    // There is nothing to take back yet.
    assert!(press(&mut model, "vd").is_empty());
    press(&mut model, "\u{1b}");
    press(&mut model, "vik");
    let effects = press(&mut model, "vd");
    assert_eq!(speeches(&effects)[0].words[0].verdict, None);
    assert_eq!(verdict(&model, "build-pov-ray"), None);
}

#[test]
fn what_can_not_be_written_does_not_hold() {
    let mut model = open((80, 24));
    let effects = press(&mut model, "vi");
    let batch = speeches(&effects)[0].batch;
    let why = "/jobs/night-run/pilothouse.jsonl: no space left on device".to_string();
    let _ = update::update(&mut model, now(), Msg::Helm(News::Said(KEY, batch, Err(why))));
    update::settle(&mut model);
    assert_eq!(verdict(&model, "build-pov-ray"), None);
    let notice = model.notice.clone().unwrap().text;
    assert!(notice.contains("no space left") && notice.contains("does not hold"), "{notice}");
    // And there is nothing left to undo.
    assert!(press(&mut model, "u").is_empty());
}

#[test]
fn what_is_read_and_what_was_said_make_one_notebook() {
    let mut model = open((80, 24));
    let effects = press(&mut model, "vi");
    let speech = speeches(&effects)[0].clone();
    // Another operator's word comes in, from before ours was written.
    let other = Word {
        trial: "sam-cell-seg__aB3dEfG".into(),
        result_id: Some("id-sam-cell-seg-aB3dEfG".into()),
        verdict: Some(Verdict::AgentFault),
        operator: "eve@host".into(),
        ..speech.words[0].clone()
    };
    let mut read = Notebook::default();
    read.add(other.clone());
    let hear = |model: &mut Model, read: &Notebook| {
        let event = JobEvent::Notebook(KEY, Box::new(read.clone()));
        let _ = update::update(model, now(), Msg::Jobs(vec![event]));
        update::settle(model);
    };
    hear(&mut model, &read);
    assert_eq!(verdict(&model, "build-pov-ray"), Some(Verdict::InfraConfirmed));
    assert_eq!(verdict(&model, "sam-cell-seg"), Some(Verdict::AgentFault));
    // Written, then read: one word, not two.
    written(&mut model, &speech, None);
    read.add(speech.words[0].clone());
    hear(&mut model, &read);
    assert_eq!(model.fleet.jobs()[0].notebook.len(), 2);
    assert_eq!(verdict(&model, "build-pov-ray"), Some(Verdict::InfraConfirmed));
}

#[test]
fn a_later_attempt_is_not_judged_by_a_menu_of_the_earlier() {
    let mut model = open((80, 24));
    press(&mut model, "v");
    // While the menu is open it is tried again and fails again.
    let again = T::done("build-pov-ray", "aB3dEfG", 5000, 5400, Some(0.0)).id(Some("second"));
    let _ = update::update(&mut model, now(), Msg::Jobs(vec![JobEvent::Trial(KEY, Box::new(again.0))]));
    let effects = press(&mut model, "i");
    assert!(speeches(&effects).is_empty());
    assert_eq!(verdict(&model, "build-pov-ray"), None);
}

#[test]
fn notes_are_typed_and_leave_the_verdict() {
    let mut model = open((80, 24));
    let effects = press(&mut model, "nthe proxy fell over, token=sk-abcdefghijklmnopqrstuvwx1234\r");
    let word = &speeches(&effects)[0].words[0];
    assert!(word.note_only && word.verdict.is_none());
    assert!(word.note.starts_with("the proxy fell over") && !word.note.contains("abcdefghij"), "{}", word.note);
    assert_eq!(task(&model), "build-pov-ray");
    assert_eq!((verdict(&model, "build-pov-ray"), model.triage.looked), (None, 1));
    // An empty one is none.
    assert!(press(&mut model, "n\r").is_empty());
}

#[test]
fn one_verdict_for_many_names_them_and_begins_on_cancel() {
    let mut model = open((120, 40));
    press(&mut model, "vi");
    press(&mut model, "f");
    assert_eq!(model.triage.order.len(), 3);
    // Without a reason it does not go on.
    press(&mut model, "bi\r");
    assert!(matches!(&model.overlay, Some(Overlay::Prompt(..))));
    press(&mut model, "no net\r");
    let text = screen::lines(&screen::draw(&mut model)).join(" ").replace('│', " ");
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for wanted in [
        "infra, confirmed for 2 trials?",
        "why: no net",
        "qemu-startup-with-a-long-name",
        "1 that have a verdict keep it",
    ] {
        assert!(text.contains(wanted), "{wanted}\n{text}");
    }
    // The harmless answer has the focus.
    assert!(press(&mut model, "\r").is_empty());
    assert_eq!(verdict(&model, "sam-cell-seg"), None);
    press(&mut model, "bino net\r");
    let effects = press(&mut model, "j\r");
    let said = speeches(&effects);
    assert_eq!(said.len(), 1, "one write for all");
    assert_eq!(said[0].words.len(), 2);
    assert!(said[0].words.iter().all(|w| &*w.note == "no net"));
    assert_eq!(verdict(&model, "sam-cell-seg"), Some(Verdict::InfraConfirmed));
    // One key undoes all of it, and leaves the first one's.
    let effects = press(&mut model, "u");
    assert_eq!(speeches(&effects)[0].words.len(), 2);
    assert_eq!(verdict(&model, "sam-cell-seg"), None);
    assert_eq!(verdict(&model, "build-pov-ray"), Some(Verdict::InfraConfirmed));
}

#[test]
fn nothing_jumps_while_the_job_runs() {
    let mut model = open((120, 40));
    press(&mut model, "jjjj");
    assert_eq!(task(&model), "eta-task");
    // A worse one comes in before it, another one gets its class.
    let lost = T::done("zeta-task", "aB3dEfG", 100, 900, None).err("RuntimeError");
    let _ = update::update(&mut model, now(), Msg::Jobs(vec![JobEvent::Trial(KEY, Box::new(lost.0))]));
    update::settle(&mut model);
    assert_eq!(model.triage.total, 10);
    assert_eq!(task(&model), "eta-task");
    press(&mut model, "k");
    assert_ne!(task(&model), "eta-task");
}

#[test]
fn each_thing_to_look_at_has_its_key() {
    use pilothouse::app::detail::Tab;
    for (key, tab) in [("\r", Tab::Steps), ("o", Tab::Verifier), ("e", Tab::Exception), ("w", Tab::Log)] {
        let mut model = open((120, 40));
        press(&mut model, key);
        assert_eq!(model.trial.as_ref().unwrap().tab, tab);
        // One step back is triage again, at the same item; n walks its items.
        press(&mut model, "n");
        assert_eq!(&*model.trial.as_ref().unwrap().key.trial, "qemu-startup-with-a-long-name__aB3dEfG");
        press(&mut model, "q");
        assert_eq!((model.view(), task(&model)), (View::Triage, "qemu-startup-with-a-long-name".to_string()));
    }
    let mut model = open((120, 40));
    let effects = press(&mut model, "c");
    let moment = effects.iter().find_map(|e| match e {
        Effect::Replay(pilothouse::app::replay::Request::Open(source)) => source.moment,
        _ => None,
    });
    assert_eq!(moment, Some(Some(at(700))), "the end of it, where no agent ran");
    // A verdict can be given where the evidence is read.
    let mut model = open((120, 40));
    press(&mut model, "ovi");
    assert_eq!(verdict(&model, "build-pov-ray"), Some(Verdict::InfraConfirmed));
    assert_eq!(model.view(), View::Trial);
}

#[test]
fn triage_opens_at_the_trial_that_is_looked_at() {
    let mut model = model_of((120, 40), look(), Side::Attached);
    press(&mut model, "/gamma\r");
    press(&mut model, "\rt");
    assert_eq!((model.view(), task(&model)), (View::Triage, "gamma-task".to_string()));
}

#[test]
fn filters_know_classes_verdicts_flags_and_times() {
    let mut model = open((120, 40));
    press(&mut model, "vi");
    let mut shown = |filter: &str| {
        press(&mut model, "F/");
        press(&mut model, filter);
        press(&mut model, "\r");
        order(&model)
    };
    assert_eq!(shown("class:infra").len(), 3);
    assert_eq!(shown("class:infra verdict:none").len(), 2);
    assert_eq!(shown("verdict:infra_confirmed"), ["build-pov-ray"]);
    assert_eq!(shown("sub:docker").len(), 3);
    assert_eq!(shown("sub:=docker").len(), 0);
    assert_eq!(shown("rule:pools").len(), 3);
    assert_eq!(shown("flag:thin_pass"), ["hello-world"]);
    assert_eq!(shown("flag:suspicious"), ["hello-world"]);
    assert_eq!(shown("!class:infra !class:failed").len(), 5);
    // at(0) is 08:00 UTC; the trials without a network ran from 08:06:40 on.
    assert_eq!(shown("overlaps:08:14-08:15 class:infra").len(), 0);
    assert_eq!(shown("overlaps:08:10-08:11 class:infra").len(), 3);
    assert_eq!(shown("overlaps:09:00-09:01"), ["gamma-task"]);
    assert_eq!(shown("overlaps:07:00-07:59").len(), 0);
    assert_eq!(shown("overlaps:23:00-08:01").len(), 3);
    // The trials list speaks the same language.
    press(&mut model, "1/");
    press(&mut model, "class:infra");
    press(&mut model, "\r");
    assert_eq!(model.table.order.len(), 3);
    press(&mut model, "/");
    press(&mut model, " overlaps:noon");
    let text = screen::lines(&screen::draw(&mut model)).join("\n");
    assert!(text.contains("is no time of day"), "{text}");
}

#[test]
fn an_outage_is_noted_and_shows_who_ran_in_it() {
    let mut model = open((120, 40));
    let effects = press(&mut model, "O08:10-08:13 the proxy was down\r");
    let said = speeches(&effects);
    let outage = said[0].outage.clone().unwrap();
    // The day of the run.
    assert_eq!((outage.from, outage.to), (at(600), at(780)));
    assert_eq!((&*outage.why, &*outage.operator), ("the proxy was down", "ops@host"));
    assert!(model.notice.as_ref().unwrap().text.contains("10 trials ran then"), "{:?}", model.notice);
    let mut read = Notebook::default();
    read.add_outage(outage);
    let event = JobEvent::Notebook(KEY, Box::new(read));
    let _ = update::update(&mut model, now(), Msg::Jobs(vec![event]));
    press(&mut model, "/overlaps:outage class:infra\r");
    assert_eq!(model.triage.order.len(), 3);
    let text = screen::lines(&screen::draw(&mut model)).join("\n");
    assert!(text.contains("It ran during an outage, 2027-01-15 08:10 - 08:13 UTC"), "{text}");
    // A time at which nothing ran is none of it.
    assert!(press(&mut model, "O03:00-04:00 x\r").is_empty());
    let text = screen::lines(&screen::draw(&mut model)).join("\n");
    assert!(text.contains("did not run at 03:00-04:00 UTC"), "{text}");
}

#[test]
fn a_screen_that_only_looks_notes_nothing() {
    let mut model = model_of((120, 40), look(), Side::Reader);
    let effects = press(&mut model, "4vibn");
    assert!(effects.is_empty());
    assert!(model.rows.iter().all(|r| r.verdict.is_none()));
    let text = screen::lines(&screen::draw(&mut model)).join("\n");
    assert!(text.contains("this screen only looks"), "{text}");
}

/// What comes from files, journals and keyboards is text, whatever is in it.
#[test]
fn somebody_elses_text_is_only_text() {
    let evil = "\u{1b}[31mred\u{202e}desrever\u{7}\0\u{9b}2J\r\nnext";
    for size in [(45, 20), (80, 24), (120, 40)] {
        let mut model = open(size);
        let mut bad = class(Class::Config, evil, evil, evil, &[(evil, 1, evil)]);
        bad.result_id = Some("id-build-pov-ray-aB3dEfG".into());
        let name: Arc<str> = "build-pov-ray__aB3dEfG".into();
        let word = Word {
            trial: name.clone(),
            result_id: bad.result_id.clone(),
            verdict: Some(Verdict::AgentFault),
            note_only: false,
            note: evil.into(),
            operator: evil.into(),
            time: at(100),
            class: Some(evil.into()),
            rule: Some(evil.into()),
        };
        let mut read = Notebook::default();
        read.add(word);
        let events = vec![JobEvent::Class(KEY, name, Some(Arc::new(bad))), JobEvent::Notebook(KEY, Box::new(read))];
        let _ = update::update(&mut model, now(), Msg::Jobs(events));
        for keys in ["g", "f", "F\rLL", "q3", "1", "4v", "\u{1b}nx\r"] {
            press(&mut model, keys);
            let buffer = screen::draw(&mut model);
            assert_eq!(screen::unsafe_cells(&buffer), Vec::<String>::new(), "{keys} at {size:?}");
        }
    }
}

#[test]
fn every_size_draws() {
    for size in [(1, 1), (40, 12), (45, 20), (79, 12), (80, 12), (119, 23), (120, 24), (300, 14)] {
        for pressed in ["4", "4v", "4n", "4b", "4bi", "4bix\r", "4/", "4f", "4x", "4z", "4:", "4?"] {
            let mut model = model_of(size, look(), Side::Attached);
            press(&mut model, pressed);
            screen::draw(&mut model);
        }
    }
    let _ = typed("");
}
