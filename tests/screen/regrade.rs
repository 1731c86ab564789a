//! The key `V`: what is held is looked for, the dialog says what is done, the harmless answer has the focus.

use pilothouse::app::effect::Effect;
use pilothouse::app::helm::{News, Order, Regradable, RegradeProgress, Side};
use pilothouse::app::key::Key;
use pilothouse::app::message::Msg;
use pilothouse::app::model::{Model, View};
use pilothouse::app::update;
use pilothouse::job::{JobEvent, JobKey, Regrade, RewardValue, Rewards, TrialKey};

use super::scenes::{finished, keys, look, model, now, typed};
use super::{check, screen};

const KEY: JobKey = JobKey(0);

fn attached(size: (u16, u16)) -> Model {
    let mut model = model(&[finished()], size, look());
    model.steer.side = Side::Attached;
    model
}

fn tell(model: &mut Model, msg: Msg) -> Vec<Effect> {
    let effects = update::update(model, now(), msg);
    update::settle(model);
    effects
}

fn orders(effects: &[Effect]) -> Vec<&Order> {
    effects.iter().filter_map(|e| if let Effect::Helm(order) = e { Some(order) } else { None }).collect()
}

fn score(model: &Model, name: &str) -> (f64, u64) {
    let score = model.derived.tally.as_ref().unwrap().scores.iter().find(|s| s.name == name).unwrap();
    (score.numerator.unwrap(), score.denominator)
}

/// A failed trial of the job, selected.
fn failed(model: &mut Model) -> TrialKey {
    let job = model.fleet.job(KEY).unwrap();
    let zero = |t: &&pilothouse::job::Trial| t.result.as_ref().is_some_and(|r| r.rewards.primary() == Some(0.0));
    let trial = job.trials.values().find(zero).unwrap();
    let (key, task) = (TrialKey { job: KEY, trial: trial.name.clone() }, trial.task.clone());
    keys(model, &[Key::Char('F')]);
    keys(model, &typed(&format!("/{task}")));
    keys(model, &[Key::Enter]);
    key
}

fn held() -> Regradable {
    Regradable::Yes {
        lines: vec![
            "its result: reward 0; it stays as it is".to_string(),
            "container pilothouse-held-1800000000-t__1 (paused), held for 12 min: no test ran, and an installer or \
             download failed: curl: (6) Could not resolve host: astral.sh"
                .to_string(),
            "the container is woken, what the verifier left running is ended, /tests is made anew; the agent does not \
             run again"
                .to_string(),
            "the verifier runs for at most 15 min, network as it was".to_string(),
        ],
        kind: "container".to_string(),
    }
}

fn asked(size: (u16, u16)) -> (Model, TrialKey) {
    let mut model = attached(size);
    let key = failed(&mut model);
    let effects = tell(&mut model, Msg::Key(Key::Char('V')));
    assert!(matches!(orders(&effects)[..], [Order::LookForHeld(k, dir)] if *k == key && dir.ends_with(&*key.trial)));
    (model, key)
}

#[test]
fn what_is_held_is_told_and_the_harmless_answer_comes_first() {
    check("regrade", |size| {
        let (mut model, key) = asked(size);
        tell(&mut model, Msg::Helm(News::Held(key, held())));
        model
    });
    let (mut model, key) = asked((120, 40));
    // Before anything is known there is nothing to choose.
    assert!(orders(&tell(&mut model, Msg::Key(Key::Enter))).is_empty());
    assert!(model.overlay.is_none());
    let (mut model, _) = {
        tell(&mut model, Msg::Key(Key::Char('V')));
        (model, ())
    };
    tell(&mut model, Msg::Helm(News::Held(key.clone(), held())));
    assert!(orders(&tell(&mut model, Msg::Key(Key::Enter))).is_empty());
    for (downs, wanted) in [(1, false), (2, true)] {
        tell(&mut model, Msg::Key(Key::Char('V')));
        tell(&mut model, Msg::Helm(News::Held(key.clone(), held())));
        (0..downs).for_each(|_| drop(tell(&mut model, Msg::Key(Key::Down))));
        let effects = tell(&mut model, Msg::Key(Key::Enter));
        assert!(
            matches!(orders(&effects)[..], [Order::Regrade { trial, release, .. }] if *trial == key && *release == wanted),
            "{effects:?}"
        );
        // While it runs the key tells how far it is, and starts nothing.
        let line = "running the verifier, for at most 900 s".into();
        tell(&mut model, Msg::Helm(News::Regrade(key.clone(), RegradeProgress::Told(line))));
        assert!(orders(&tell(&mut model, Msg::Key(Key::Char('V')))).is_empty());
        let shown = screen::lines(&screen::draw(&mut model)).join("\n");
        assert!(shown.contains("running the verifier, for at most 900 s"), "{shown}");
        tell(&mut model, Msg::Key(Key::Enter));
        let words = "raw 0, regrade 1: 1; the container is held on".to_string();
        tell(&mut model, Msg::Helm(News::Regrade(key.clone(), RegradeProgress::Done(words))));
        assert!(model.notice.as_ref().unwrap().text.contains("raw 0, regrade 1: 1"), "{:?}", model.notice);
    }
}

#[test]
fn nothing_held_says_why_and_what_can_be_done() {
    check("regrade-no", |size| {
        let (mut model, key) = asked(size);
        let offers = vec![(
            "pilothouse requeue /jobs/night --trial t__1".to_string(),
            "runs it again from the beginning, with its agent".to_string(),
        )];
        let why = "its container is gone: it went with the trial, whose verifier's answer was not doubted".to_string();
        tell(&mut model, Msg::Helm(News::Held(key, Regradable::No { why, offers })));
        model
    });
    // Where nothing can be ordered, the key says so.
    let mut reader = model(&[finished()], (120, 40), look());
    failed(&mut reader);
    assert!(orders(&tell(&mut reader, Msg::Key(Key::Char('V')))).is_empty());
    assert!(reader.notice.as_ref().unwrap().text.contains("only looks"), "{:?}", reader.notice);
}

#[test]
fn a_regrade_shows_beside_the_raw_reward() {
    let mut model = attached((120, 40));
    let key = failed(&mut model);
    let mut trial = model.fleet.job(KEY).unwrap().trials[&key.trial].clone();
    let of = |n: u32, reward: f64| Regrade {
        n,
        result_id: trial.result.as_ref().and_then(|r| r.id.clone()),
        rewards: Rewards::Keys(vec![("reward".into(), RewardValue::Number(reward))]),
        exception: None,
        started: None,
        finished: None,
        operator: "ann@node7".into(),
        why: "the mirror was away".into(),
        processes_lost: false,
        task_changed: false,
    };
    let regrades = vec![of(1, 0.0), of(2, 1.0)];
    trial.regrades = regrades;
    let raw = score(&model, "raw");
    tell(&mut model, Msg::Jobs(vec![JobEvent::Trial(KEY, Box::new(trial))]));
    assert_eq!(score(&model, "raw"), raw);
    assert_eq!(score(&model, "corrected").0, raw.0 + 1.0);
    let shown = screen::lines(&screen::draw(&mut model)).join("\n");
    assert!(shown.contains("0→1"), "{shown}");
    keys(&mut model, &[Key::Enter]);
    assert_eq!(model.view(), View::Trial);
    let shown = screen::lines(&screen::draw(&mut model)).join("\n");
    assert!(shown.contains("raw 0, regrade 2: 1"), "{shown}");
}
