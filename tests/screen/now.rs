//! What trials of our own say that they do: in the table, beside it, in the trial view, in the dialog, among what
//! needs a person.

use std::sync::Arc;

use pilothouse::app::effect::Effect;
use pilothouse::app::helm::{Crew, News, Side};
use pilothouse::app::key::Key;
use pilothouse::app::message::Msg;
use pilothouse::app::model::{Look, Model, Theme};
use pilothouse::app::update;
use pilothouse::job::Stamp;
use pilothouse::job::work::{Call, Doing, TokensSoFar, Work};

use super::build::at;
use super::scenes::{NOW, keys, look, model, now, running, typed};
use super::{check, check_at, screen};

const LONG: &str = "feal-linear-cryptanalysis-of-eight-rounds";

fn name(task: &str) -> Arc<str> {
    format!("{task}__aB3dEfG").into()
}

fn work(episode: u32, doing: Doing) -> Work {
    Work {
        episode: Some(episode),
        doing,
        tokens: TokensSoFar { input: 812_000, cached: 700_400, output: 18_200, reasoning: 9_100, lost: 0 },
        context: (Some(61_200), Some(131_072)),
        rate: Some(48.2),
        told: Some(at(NOW)),
        ..Work::default()
    }
}

fn call(since: i64, reasoning: u64, answer: u64) -> Call {
    Call { since: at(since), heard: (reasoning + answer > 0).then(|| at(NOW - 1)), reasoning, answer }
}

fn works() -> Vec<(Arc<str>, Option<Work>)> {
    let since = at(NOW - 3);
    let thinking = Work {
        tokens: TokensSoFar { lost: 1_200, ..work(7, Doing::Setup).tokens },
        rate: Some(27.0),
        retries: 2,
        rid: Some("ph-feal-7-1".into()),
        analysis: Some("The key schedule of the last round leaks.\nTwo pairs are not enough.".into()),
        plan: Some("Collect 40 pairs, then guess the last subkey byte by byte.".into()),
        ..work(7, Doing::Model(call(NOW - 2280, 61_400, 0)))
    };
    let first = Work { told: Some(at(NOW)), episode: Some(1), ..Work::default() };
    let retry = |at| Doing::Retry { why: "503 Service Unavailable: overloaded".into(), attempt: 2, at, since };
    let all = [
        (LONG, thinking),
        ("build-pov-ray", work(14, Doing::Command { keys: "make -j4 2>&1 | tail\n".into(), wait: 60.0, since })),
        ("path-tracing", work(41, retry(Some(at(NOW + 4))))),
        ("sam-cell-seg", Work { doing: retry(None), ..first.clone() }),
        ("pytorch-model-cli", Work { doing: Doing::Model(call(NOW - 42, 0, 0)), ..first.clone() }),
        ("regex-chess", Work { doing: Doing::Slot { since: at(NOW - 8) }, episode: None, ..first }),
        ("qemu-startup", work(9, Doing::Verifying { since: at(NOW - 80) })),
    ];
    all.into_iter().map(|(task, work)| (name(task), Some(work))).collect()
}

fn tell(model: &mut Model, at: Stamp, news: News) -> Vec<Effect> {
    let effects = update::update(model, at, Msg::Helm(news));
    update::settle(model);
    effects
}

/// The screen of the process that runs the job.
fn owner(size: (u16, u16), look: Look) -> Model {
    let mut model = model(&[running()], size, look);
    model.steer.side = Side::Owner;
    model.steer.notes = true;
    tell(&mut model, now(), News::Crew(Crew { slots: 10, running: 9, queued: 5, ended: 12, ..Crew::default() }));
    tell(&mut model, now(), News::Work(works()));
    // Calls are judged with the next second.
    let _ = update::update(&mut model, at(NOW + 1), Msg::Tick);
    update::settle(&mut model);
    model.now = now();
    model
}

fn selected(size: (u16, u16), task: &str) -> Model {
    let mut model = owner(size, look());
    keys(&mut model, &typed(&format!("/{task}")));
    keys(&mut model, &[Key::Enter]);
    model
}

fn lines(model: &mut Model) -> String {
    screen::lines(&screen::draw(model)).join("\n")
}

#[test]
fn the_table_says_what_each_does() {
    check("now-table", |size| owner(size, look()));
    check_at("now-table-ascii", (80, 24), |size| owner(size, Look { ascii: true, theme: Theme::Mono }));
}

#[test]
fn why_a_trial_ended_is_worth_more_than_long_words_of_others() {
    check_at("now-table", (112, 40), |size| owner(size, look()));
    // Never so narrow that a state is cut.
    for columns in 80..200 {
        let text = lines(&mut owner((columns, 40), look()));
        assert!(text.contains("verifying"), "{columns}: {text}");
        if (112..120).contains(&columns) {
            assert!(text.contains("RewardFileNotFound"), "{columns}: {text}");
        }
    }
}

#[test]
fn the_trial_view_says_it_in_full() {
    check("now-trial", |size| {
        let mut model = selected(size, "feal");
        keys(&mut model, &[Key::Enter]);
        model
    });
    check_at("now-command", (80, 24), |size| {
        let mut model = selected(size, "pov");
        keys(&mut model, &[Key::Enter]);
        model
    });
}

#[test]
fn a_call_that_goes_on_is_raised_once_until_another_begins() {
    let mut model = owner((120, 40), look());
    let thinking = |model: &Model| -> Vec<String> {
        let all = model.derived.attention.iter().filter(|a| a.kind == "thinking");
        all.map(|a| a.id.clone()).collect()
    };
    let first = thinking(&model);
    assert_eq!(first.len(), 1, "{first:?}");
    let text =
        "feal-linear-cryptanalysis-of-eight-rounds__aB3dEfG: thinking unusually long: 38 m in episode 7, 61k tokens";
    let item = model.derived.attention.iter().find(|a| a.kind == "thinking").unwrap();
    assert!(item.text.starts_with(text), "{}", item.text);
    // More of the same is the same.
    let more = Work { ..work(7, Doing::Model(call(NOW - 2280, 70_000, 0))) };
    tell(&mut model, at(NOW + 3), News::Work(vec![(name(LONG), Some(more))]));
    let _ = update::update(&mut model, at(NOW + 5), Msg::Tick);
    update::settle(&mut model);
    assert_eq!(thinking(&model), first);
    // It leads there.
    keys(&mut model, &[Key::Char('!')]);
    assert_eq!(model.selected_trial().unwrap().trial, name(LONG));
    // Another call is another thing; one that has just begun is none.
    let next = work(8, Doing::Model(call(NOW, 10, 0)));
    tell(&mut model, at(NOW + 7), News::Work(vec![(name(LONG), Some(next))]));
    let _ = update::update(&mut model, at(NOW + 9), Msg::Tick);
    update::settle(&mut model);
    assert_eq!(thinking(&model), Vec::<String>::new());
}

#[test]
fn what_is_told_ends_with_its_teller() {
    let mut model = owner((220, 60), look());
    assert!(lines(&mut model).contains("make -j4"));
    let row = |model: &Model, task: &str| model.rows.iter().find(|r| &*r.task == task).unwrap().clone();
    assert_eq!((row(&model, LONG).episodes, row(&model, "build-pov-ray").output_tokens), (Some(7), Some(18_200)));
    tell(&mut model, at(NOW + 2), News::Work(vec![(name("build-pov-ray"), None)]));
    assert!(!lines(&mut model).contains("make -j4"));
    model.steer.side = Side::Attached;
    tell(&mut model, at(NOW + 4), News::Unlinked);
    let text = lines(&mut model);
    assert!(!text.contains("reasoning") && !text.contains("agent slot"), "{text}");
}

#[test]
fn times_are_never_negative_and_texts_never_act() {
    let mut model = owner((220, 60), look());
    let evil = Doing::Command { keys: "\u{1b}]0;x\u{7}rm\u{202e} -rf\n".into(), wait: f64::NAN, since: at(NOW + 900) };
    let evil = Work { plan: Some("\u{1b}[2J\u{0}plan".repeat(400)), rate: Some(f64::NAN), ..work(14, evil) };
    tell(&mut model, at(NOW + 2), News::Work(vec![(name("build-pov-ray"), Some(evil))]));
    keys(&mut model, &typed("/pov"));
    keys(&mut model, &[Key::Enter]);
    for opened in [false, true] {
        if opened {
            keys(&mut model, &[Key::Enter]);
        }
        let buffer = screen::draw(&mut model);
        assert_eq!(screen::unsafe_cells(&buffer), Vec::<String>::new());
        let text = screen::lines(&buffer).join("\n");
        assert!(text.contains("command 0 s") && !text.contains("NaN"), "{text}");
    }
}

/// The dialog offers to end the call where it can be ended.
#[test]
fn the_dialog_names_the_call() {
    let mut model = selected((120, 40), "feal");
    keys(&mut model, &[Key::Char('X')]);
    let text = lines(&mut model);
    assert!(text.contains("model 38 m, 61k reasoning") && text.contains("thinking unusually long"), "{text}");
    assert!(!text.contains("end this call"), "no server is watched: {text}");
}
