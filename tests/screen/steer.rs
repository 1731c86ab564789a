//! Steering: the owner's screen, every dialog, a stop and its audit.

use std::time::Duration;

use pilothouse::app::effect::Effect;
use pilothouse::app::helm::{
    Audit, Crew, Finding, Hand, News, Order, Over, Shut, Side, Signal, Stopping, Survey, Waiting, Way,
};
use pilothouse::app::key::Key;
use pilothouse::app::message::Msg;
use pilothouse::app::model::{Model, View};
use pilothouse::app::update;
use pilothouse::job::{JobKey, StateKind};

use super::scenes::{dead, finished, keys, look, model, now, running, typed};
use super::{build, check, check_at, screen};

const KEY: JobKey = JobKey(0);

fn crew() -> Crew {
    Crew { slots: 10, running: 9, waiting: 1, queued: 5, ended: 11, ..Crew::default() }
}

/// The screen of the process that runs the job.
fn owner(size: (u16, u16)) -> Model {
    let mut model = model(&[running()], size, look());
    model.steer.side = Side::Owner;
    tell(&mut model, News::Crew(crew()));
    model
}

/// The screen of somebody who attached to a job of another process.
fn attached(size: (u16, u16)) -> Model {
    let mut model = model(&[running()], size, look());
    model.steer.side = Side::Attached;
    model
}

fn tell(model: &mut Model, news: News) -> Vec<Effect> {
    let effects = update::update(model, now(), Msg::Helm(news));
    update::settle(model);
    effects
}

fn press(model: &mut Model, key: Key) -> Vec<Effect> {
    update::settle(model);
    let effects = update::update(model, now(), Msg::Key(key));
    update::settle(model);
    effects
}

/// Selects the trial of a task.
fn select(model: &mut Model, task: &str) {
    keys(model, &[Key::Char('F')]);
    keys(model, &typed(&format!("/{task}")));
    keys(model, &[Key::Enter]);
}

fn orders(effects: &[Effect]) -> Vec<&Order> {
    effects.iter().filter_map(|e| if let Effect::Helm(order) = e { Some(order) } else { None }).collect()
}

fn survey() -> Survey {
    Survey {
        pid: 48123,
        process: vec![
            "/opt/venv/bin/python3 /opt/venv/bin/harbor run -p tasks -a terminus-2 -m Qwen/Qwen3.8-27B -n 8".into(),
            "in /data/bench, since 70 m, found by its open job.log".into(),
        ],
        touched: vec![
            "cancel 9 running, 4 h 2 m of trial time lost; 11 of 26 results kept; 5 queued stay undone".into(),
        ],
        warnings: vec![
            "its stdout goes into a pipe (tee?): leave that program alone until the job has ended, or Harbor dies of a \
             broken pipe without cleaning up"
                .into(),
        ],
        ways: vec![
            Way { signal: Signal::Term, price: "cancels in order; 0.21.0 can leave a phantom result".into() },
            Way { signal: Signal::Int, price: "ends the same way and is not known to leave phantoms".into() },
        ],
    }
}

fn audit() -> Audit {
    let finding = |kind: &str, what: &str, why: &str, mend: Option<&str>| Finding {
        kind: kind.into(),
        what: what.into(),
        why: why.into(),
        mend: mend.map(str::to_string),
        mended: None,
    };
    Audit {
        summary: "1 phantom, 1 directory without result, 2 containers, 0 networks left".into(),
        findings: vec![
            finding(
                "phantom",
                "/jobs/qwen38-tb21-full89/regex-chess__aB3dEfG",
                "result.json has neither reward nor exception: harbor job resume would keep it as done",
                Some("move it to the quarantine of this job; resume runs it again"),
            ),
            finding(
                "no result",
                "/jobs/qwen38-tb21-full89/sam-cell-seg__aB3dEfG",
                "a trial directory without result.json: harbor job resume deletes it",
                Some("move it to the quarantine of this job"),
            ),
            finding(
                "container",
                "sam-cell-seg__ab3defg__env-main-1",
                "up 12 m, of trial sam-cell-seg__aB3dEfG, which has ended",
                Some("remove it"),
            ),
            finding("container", "bystander-1", "mounts this job dir and belongs to another project", None),
        ],
        unseen: Vec::new(),
        next: Some("then: harbor job resume -p /jobs/qwen38-tb21-full89, in /data/bench".into()),
    }
}

fn stopped(size: (u16, u16)) -> Model {
    let mut model = attached(size);
    press(&mut model, Key::Char('s'));
    tell(&mut model, News::Surveyed(KEY, Ok(survey())));
    keys(&mut model, &[Key::Down]);
    press(&mut model, Key::Enter);
    model
}

fn audited(size: (u16, u16)) -> Model {
    let mut model = stopped(size);
    tell(&mut model, News::Stopped(KEY, String::new()));
    tell(&mut model, News::Audited(KEY, Ok(audit())));
    model
}

#[test]
fn the_owner_sees_its_slots() {
    check("own", owner);
    check("own-fewer", |size| {
        let mut model = owner(size);
        keys(&mut model, &typed("---"));
        model
    });
    check("own-draining", |size| {
        let mut model = owner(size);
        tell(&mut model, News::Crew(Crew { stopping: Stopping::Draining, ..crew() }));
        model
    });
    check_at("own-ascii", (80, 24), |size| {
        let mut model = owner(size);
        model.look.ascii = true;
        keys(&mut model, &[Key::Char('s')]);
        model
    });
}

#[test]
fn slots_go_up_and_down_and_say_where_they_can_not() {
    let mut model = owner((120, 40));
    let up = press(&mut model, Key::Char('+'));
    assert!(matches!(orders(&up)[..], [Order::Slots(11)]), "{up:?}");
    let up = press(&mut model, Key::Char('+'));
    assert!(matches!(orders(&up)[..], [Order::Slots(12)]), "pressed again before it was told: {up:?}");
    tell(&mut model, News::Crew(Crew { slots: 12, ..crew() }));
    for n in (1..12).rev() {
        let down = press(&mut model, Key::Char('-'));
        assert!(matches!(orders(&down)[..], [Order::Slots(m)] if *m == n), "{n}: {down:?}");
    }
    assert!(orders(&press(&mut model, Key::Char('-'))).is_empty());
    assert!(model.notice.as_ref().unwrap().text.contains("1 slot is the least"));
    tell(&mut model, News::Crew(Crew { slots: 15, ..crew() }));
    assert!(orders(&press(&mut model, Key::Char('+'))).is_empty());
    assert!(model.notice.as_ref().unwrap().text.contains("every trial that is left has its slot"));
    tell(&mut model, News::Crew(Crew { stopping: Stopping::Draining, ..crew() }));
    assert!(orders(&press(&mut model, Key::Char('+'))).is_empty());
    assert!(model.notice.as_ref().unwrap().text.contains("drains"));
}

/// The screen of somebody who is linked to the process that runs the job.
fn linked(size: (u16, u16), hand: Hand) -> Model {
    let mut model = attached(size);
    tell(&mut model, News::Crew(crew()));
    tell(&mut model, News::Hand(hand));
    model.notice = None;
    model
}

#[test]
fn what_holds_everything_up_is_said() {
    check("own-paused", |size| {
        let mut model = owner(size);
        tell(&mut model, News::Crew(Crew { paused: true, ..crew() }));
        model
    });
    check("own-gate", |size| {
        let mut model = owner(size);
        let since = now().checked_sub(jiff::SignedDuration::from_secs(95)).ok();
        let why = "no engine at unix:///var/run/docker.sock: connection refused".to_string();
        tell(&mut model, News::Shut(vec![Shut { gate: "docker".into(), why, since }]));
        model
    });
    check_at("own-adaptive", (120, 40), |size| {
        let mut model = owner(size);
        tell(&mut model, News::Crew(Crew { running: 3, limit: Some(3), settled: true, ..crew() }));
        model
    });
    check_at("own-agents", (120, 40), |size| {
        let mut model = owner(size);
        tell(&mut model, News::Crew(Crew { agents: Some((4, 4)), ..crew() }));
        model
    });
    let mut model = owner((120, 40));
    let shut = Shut { gate: "disk".into(), why: "12 MiB free".into(), since: None };
    tell(&mut model, News::Shut(vec![shut]));
    assert_eq!(model.derived.attention[0].text, "nothing begins: disk: 12 MiB free");
    tell(&mut model, News::Shut(Vec::new()));
    assert!(model.derived.attention.iter().all(|item| !item.text.contains("nothing begins")));
}

#[test]
fn a_job_is_paused_and_resumed_by_one_key() {
    let mut model = owner((120, 40));
    assert!(matches!(orders(&press(&mut model, Key::Char('p')))[..], [Order::Pause]));
    assert!(model.notice.as_ref().unwrap().text.contains("5 wait; p goes on"));
    tell(&mut model, News::Crew(Crew { paused: true, ..crew() }));
    assert!(matches!(orders(&press(&mut model, Key::Char('p')))[..], [Order::Resume]));
    tell(&mut model, News::Crew(Crew { stopping: Stopping::Draining, ..crew() }));
    assert!(orders(&press(&mut model, Key::Char('p'))).is_empty());
    assert!(model.notice.as_ref().unwrap().text.contains("drains"));
}

#[test]
fn the_marked_go_first_or_are_cancelled() {
    let mut model = owner((120, 40));
    // What runs can not go first; of the queue the selected one, or the marked ones.
    select(&mut model, "build-pov-ray");
    assert!(orders(&press(&mut model, Key::Char('u'))).is_empty());
    assert!(model.notice.as_ref().unwrap().text.contains("nothing that has not begun"));
    select(&mut model, "dna-assembly");
    let first = press(&mut model, Key::Char('u'));
    assert!(matches!(orders(&first)[..], [Order::First(tasks)] if *tasks == ["dna-assembly"]), "{first:?}");
    press(&mut model, Key::Char(' '));
    assert_eq!(model.marked_slots.len(), 1);
    select(&mut model, "build-pov-ray");
    let first = press(&mut model, Key::Char('u'));
    assert!(matches!(orders(&first)[..], [Order::First(tasks)] if *tasks == ["dna-assembly"]), "{first:?}");
    assert!(model.marked_slots.is_empty());
    let mark = |model: &mut Model| {
        for task in ["build-pov-ray", "qemu-startup", "fix-git"] {
            select(model, task);
            keys(model, &[Key::Char(' ')]);
        }
    };
    check("own-cancel-many", |size| {
        let mut model = owner(size);
        mark(&mut model);
        keys(&mut model, &[Key::Char('X')]);
        model
    });
    mark(&mut model);
    keys(&mut model, &[Key::Char('X')]);
    assert!(orders(&press(&mut model, Key::Enter)).is_empty(), "the focus is on the harmless answer");
    keys(&mut model, &[Key::Char('X'), Key::Down]);
    let done = press(&mut model, Key::Enter);
    let [Order::CancelTrials(names)] = orders(&done)[..] else { panic!("{done:?}") };
    assert_eq!(names.len(), 2, "what has ended is left alone: {names:?}");
    assert_eq!(model.marked.len(), 1);
}

#[test]
fn the_run_is_left_to_itself_by_one_key() {
    let mut model = owner((120, 40));
    assert!(matches!(press(&mut model, Key::Char('d'))[..], [Effect::Detach]));
    // Where it may not outlive a logout it asks.
    let kills = "the login manager ends your processes at logout (KillUserProcesses=yes)";
    check("own-detach", |size| {
        let mut model = owner(size);
        model.steer.logout = Some(kills.to_string());
        keys(&mut model, &[Key::Char('d')]);
        model
    });
    model.steer.logout = Some(kills.to_string());
    assert!(press(&mut model, Key::Char('d')).is_empty());
    assert!(press(&mut model, Key::Enter).is_empty() && model.overlay.is_none());
    keys(&mut model, &[Key::Char('d'), Key::Down]);
    assert!(matches!(press(&mut model, Key::Enter)[..], [Effect::Detach]));
    // It can be left so from the question about leaving, too.
    model.steer.logout = None;
    keys(&mut model, &[Key::Char('q'), Key::Down]);
    assert!(matches!(press(&mut model, Key::Enter)[..], [Effect::Detach]));
    let mut model = attached((120, 40));
    assert!(press(&mut model, Key::Char('d')).is_empty());
    assert!(model.notice.as_ref().unwrap().text.contains("another process"));
}

#[test]
fn one_who_looks_on_steers_once_the_helm_is_taken() {
    check("linked", |size| linked(size, Hand::Other("ann@node7 on the owner's screen".into())));
    check_at("linked-steering", (120, 40), |size| linked(size, Hand::Mine));
    let mut model = linked((120, 40), Hand::Other("ann@node7".into()));
    select(&mut model, "build-pov-ray");
    for key in ['+', '-', 'X', 'p', 'u'] {
        assert!(orders(&press(&mut model, Key::Char(key))).is_empty(), "{key}");
        assert!(model.notice.take().unwrap().text.contains("ann@node7 steers"), "{key}");
    }
    assert!(matches!(orders(&press(&mut model, Key::Char('H')))[..], [Order::TakeHelm]));
    tell(&mut model, News::Hand(Hand::Mine));
    assert!(model.notice.as_ref().unwrap().text.contains("this screen steers now"));
    assert!(matches!(orders(&press(&mut model, Key::Char('+')))[..], [Order::Slots(11)]));
    assert!(orders(&press(&mut model, Key::Char('H'))).is_empty(), "it steers already");
    // The one who steered is told; nobody steers what can not be heard any more.
    tell(&mut model, News::Hand(Hand::Other("bob@node9".into())));
    assert!(model.notice.as_ref().unwrap().text.contains("bob@node9 steers now"));
    tell(&mut model, News::Unlinked);
    assert!(orders(&press(&mut model, Key::Char('H'))).is_empty());
    assert!(model.notice.as_ref().unwrap().text.contains("attached read-only"));
    // Leaving asks nothing: the job runs elsewhere.
    assert!(matches!(press(&mut model, Key::Ctrl('c'))[..], [Effect::Quit]));
    let mut owner = owner((120, 40));
    tell(&mut owner, News::Hand(Hand::Mine));
    tell(&mut owner, News::Hand(Hand::Other("ann@node7".into())));
    assert!(owner.notice.as_ref().unwrap().text.contains("H takes the helm back"));
    assert!(orders(&press(&mut owner, Key::Char('+'))).is_empty());
}

#[test]
fn one_trial_is_cancelled_after_a_question() {
    check("own-cancel", |size| {
        let mut model = owner(size);
        select(&mut model, "build-pov-ray");
        keys(&mut model, &[Key::Char('X')]);
        model
    });
    let mut model = owner((120, 40));
    select(&mut model, "build-pov-ray");
    // Enter alone does nothing: the focus is on the harmless answer.
    keys(&mut model, &[Key::Char('X')]);
    assert!(orders(&press(&mut model, Key::Enter)).is_empty());
    assert!(model.overlay.is_none());
    keys(&mut model, &[Key::Char('X'), Key::Down]);
    let done = press(&mut model, Key::Enter);
    assert!(matches!(orders(&done)[..], [Order::CancelTrial(name)] if name == "build-pov-ray__aB3dEfG"), "{done:?}");
    // What has ended or not begun is not cancelled.
    for (task, word) in [("fix-git", "has ended: passed"), ("dna-assembly", "has not begun")] {
        select(&mut model, task);
        assert!(orders(&press(&mut model, Key::Char('X'))).is_empty());
        assert!(model.overlay.is_none(), "{task}");
        assert!(model.notice.as_ref().unwrap().text.contains(word), "{:?}", model.notice);
    }
}

#[test]
fn a_trial_that_ends_while_it_is_asked_about_is_not_cancelled() {
    let mut model = owner((120, 40));
    select(&mut model, "build-pov-ray");
    keys(&mut model, &[Key::Char('X'), Key::Down]);
    let mut later = running();
    let ended = build::T::done("build-pov-ray", "aB3dEfG", 2400, 4190, Some(1.0));
    later.trials.retain(|t| &*t.0.task != "build-pov-ray");
    later.trials.push(ended);
    let _ = update::update(&mut model, now(), Msg::Jobs(super::scenes::events(&[later])));
    let text = screen::lines(&screen::draw(&mut model)).join("\n");
    assert!(text.contains("does not run any more: passed"), "{text}");
    assert!(orders(&press(&mut model, Key::Enter)).is_empty());
}

#[test]
fn the_owner_drains_stops_or_keeps_running() {
    check("own-stop", |size| {
        let mut model = owner(size);
        keys(&mut model, &[Key::Char('s')]);
        model
    });
    check("own-leave", |size| {
        let mut model = owner(size);
        keys(&mut model, &[Key::Char('q'), Key::Down, Key::Down]);
        model
    });
    let mut model = owner((120, 40));
    keys(&mut model, &[Key::Char('s')]);
    assert!(press(&mut model, Key::Enter).is_empty(), "Enter keeps running");
    keys(&mut model, &[Key::Char('s'), Key::Down]);
    assert!(matches!(orders(&press(&mut model, Key::Enter))[..], [Order::Drain]));
    tell(&mut model, News::Crew(Crew { stopping: Stopping::Draining, ..crew() }));
    keys(&mut model, &[Key::Char('s'), Key::Down]);
    assert!(matches!(orders(&press(&mut model, Key::Enter))[..], [Order::Cancel]), "a drain can still be a stop");
    assert_eq!(model.view(), View::Stop);
    tell(&mut model, News::Crew(Crew { stopping: Stopping::Cancelling, ..crew() }));
    keys(&mut model, &[Key::Char('s'), Key::Down]);
    assert!(matches!(orders(&press(&mut model, Key::Enter))[..], [Order::Hurry]));
}

#[test]
fn a_running_job_is_not_left_by_a_key() {
    let mut model = owner((120, 40));
    for key in [Key::Char('q'), Key::Ctrl('c')] {
        assert!(press(&mut model, key).is_empty(), "{key} asks");
        assert!(model.overlay.is_some());
        assert!(press(&mut model, key).is_empty(), "{key} again closes the question");
        assert!(model.overlay.is_none());
    }
    assert!(press(&mut model, Key::Ctrl('z')).is_empty(), "it would stop with the shell's job");
    let over = Over { complete: true, words: "all 26 trials have ended".into(), broken: false };
    assert!(tell(&mut model, News::Over(over)).is_empty(), "no audit of a job that ran to its end");
    assert!(matches!(press(&mut model, Key::Char('q'))[..], [Effect::Quit]));
    assert!(matches!(press(&mut model, Key::Ctrl('c'))[..], [Effect::Quit]));
}

#[test]
fn the_owners_job_is_over() {
    check("own-over", |size| {
        let mut model = model(&[finished()], size, look());
        model.steer.side = Side::Owner;
        tell(&mut model, News::Crew(Crew { slots: 2, ended: 4, ..Crew::default() }));
        tell(&mut model, News::Over(Over { complete: true, words: "all 4 trials have ended".into(), broken: false }));
        let _ = update::update(&mut model, now() + Duration::from_secs(10), Msg::Tick);
        model
    });
    check_at("own-broken", (80, 24), |size| {
        let mut model = owner(size);
        let words = "the job broke off: /jobs/x/result.json: no space left on device; free some, then run --resume";
        tell(&mut model, News::Over(Over { complete: false, words: words.into(), broken: true }));
        let _ = update::update(&mut model, now() + Duration::from_secs(10), Msg::Tick);
        model
    });
}

#[test]
fn a_stop_of_ones_own_job_ends_in_an_audit() {
    let stopping = |size| {
        let mut model = owner(size);
        keys(&mut model, &[Key::Char('s'), Key::Down, Key::Down]);
        let done = press(&mut model, Key::Enter);
        assert!(matches!(orders(&done)[..], [Order::Cancel]), "{done:?}");
        tell(&mut model, News::Crew(Crew { stopping: Stopping::Cancelling, ..crew() }));
        model
    };
    check("own-stopping", stopping);
    check("own-stopped", |size| {
        let mut model = stopping(size);
        let over =
            Over { complete: false, words: "11 of 26 trials have ended, 9 of them cancelled".into(), broken: false };
        let effects = tell(&mut model, News::Over(over));
        assert!(matches!(orders(&effects)[..], [Order::Audit(place)] if place.job == KEY), "{effects:?}");
        let summary = "0 phantoms, 0 directories without result, 0 containers, 0 networks left".to_string();
        let next = Some("pilothouse run --resume /jobs/qwen38-tb21-full89 runs what is missing".to_string());
        tell(&mut model, News::Audited(KEY, Ok(Audit { summary, next, ..Audit::default() })));
        model
    });
}

#[test]
fn anothers_job_is_stopped_by_a_signal() {
    check("attached-looking", |size| {
        let mut model = attached(size);
        let asked = press(&mut model, Key::Char('s'));
        assert!(matches!(orders(&asked)[..], [Order::Survey(..)]), "{asked:?}");
        model
    });
    check("attached-stop", |size| {
        let mut model = attached(size);
        press(&mut model, Key::Char('s'));
        tell(&mut model, News::Surveyed(KEY, Ok(survey())));
        model
    });
    check("attached-waiting", |size| {
        let mut model = stopped(size);
        let waiting =
            Waiting { left: vec!["2 containers".into()], until: Some(now() + Duration::from_secs(47)), expired: false };
        tell(&mut model, News::Waiting(KEY, waiting));
        model
    });
    check_at("attached-expired", (80, 24), |size| {
        let mut model = stopped(size);
        tell(&mut model, News::Waiting(KEY, Waiting { expired: true, ..Waiting::default() }));
        model
    });
    let mut model = attached((120, 40));
    press(&mut model, Key::Char('s'));
    assert!(orders(&press(&mut model, Key::Enter)).is_empty(), "nothing is sent before the survey");
    press(&mut model, Key::Char('s'));
    tell(&mut model, News::Surveyed(KEY, Ok(survey())));
    assert!(orders(&press(&mut model, Key::Enter)).is_empty(), "the focus is on: keep running");
    press(&mut model, Key::Char('s'));
    tell(&mut model, News::Surveyed(KEY, Ok(survey())));
    keys(&mut model, &[Key::Down, Key::Down]);
    let sent = press(&mut model, Key::Enter);
    assert!(matches!(orders(&sent)[..], [Order::Stop(_, Signal::Int)]), "{sent:?}");
    let ended = tell(&mut model, News::Stopped(KEY, String::new()));
    assert!(matches!(orders(&ended)[..], [Order::Audit(_)]), "{ended:?}");
}

#[test]
fn a_survey_that_comes_late_moves_no_focus() {
    let mut model = attached((120, 40));
    press(&mut model, Key::Char('s'));
    // Pressed while nothing but the harmless answer was there.
    keys(&mut model, &[Key::Down, Key::Down]);
    tell(&mut model, News::Surveyed(KEY, Ok(survey())));
    assert!(orders(&press(&mut model, Key::Enter)).is_empty());
}

#[test]
fn the_audit_is_read_and_mended() {
    check("audit", audited);
    check("audit-mend", |size| {
        let mut model = audited(size);
        keys(&mut model, &[Key::Char('m')]);
        model
    });
    check("audit-mended", |size| {
        let mut model = audited(size);
        keys(&mut model, &[Key::Char('m'), Key::Down, Key::Enter]);
        tell(&mut model, News::Mended(KEY, 0, Ok("moved to ~/.local/state/pilothouse/quarantine/id-1".into())));
        tell(&mut model, News::Mended(KEY, 1, Err("it has changed since the audit: nothing was done".into())));
        keys(&mut model, &[Key::Down]);
        model
    });
    let mut model = audited((120, 40));
    keys(&mut model, &[Key::Enter]);
    assert!(orders(&press(&mut model, Key::Enter)).is_empty(), "the focus is on: leave it");
    keys(&mut model, &[Key::Down, Key::Enter, Key::Down]);
    let mend = press(&mut model, Key::Enter);
    assert!(matches!(orders(&mend)[..], [Order::Mend(_, which)] if *which == [1]), "{mend:?}");
    keys(&mut model, &[Key::Char('m'), Key::Down]);
    let mend = press(&mut model, Key::Enter);
    assert!(matches!(orders(&mend)[..], [Order::Mend(_, which)] if *which == [0, 2]), "not twice: {mend:?}");
    keys(&mut model, &[Key::Char('G'), Key::Enter]);
    assert!(model.overlay.is_none());
    assert!(model.notice.as_ref().unwrap().text.contains("can not be mended"));
}

#[test]
fn keys_say_why_where_nothing_can_be_steered() {
    let said = |model: &mut Model, key: char| {
        assert!(orders(&press(model, Key::Char(key))).is_empty(), "{key}");
        assert!(model.overlay.is_none(), "{key}");
        model.notice.take().unwrap().text
    };
    let mut model = attached((120, 40));
    select(&mut model, "build-pov-ray");
    for key in ['+', '-', 'X'] {
        let text = said(&mut model, key);
        assert!(text.contains("attached read-only") && text.contains("s stops it"), "{text}");
    }
    let mut gone = super::scenes::model(&[dead()], (120, 40), look());
    gone.steer.side = Side::Attached;
    for key in ['+', 'X'] {
        let text = said(&mut gone, key);
        assert!(text.contains("no process"), "{text}");
    }
    let mut done = super::scenes::model(&[finished()], (120, 40), look());
    done.steer.side = Side::Attached;
    assert_eq!(done.derived.state(KEY).unwrap().kind, StateKind::Finished);
    assert!(said(&mut done, '+').contains("is finished: nothing runs"));
    // Nobody can be stopped, but what somebody left can be looked at.
    for model in [&mut gone, &mut done] {
        let effects = press(model, Key::Char('s'));
        assert!(matches!(orders(&effects)[..], [Order::Audit(_)]), "{effects:?}");
        assert_eq!(model.view(), View::Stop);
    }
    let mut reader = super::scenes::model(&[running()], (120, 40), look());
    assert!(said(&mut reader, 's').contains("only looks"));
    check_at("attached-no-process", (80, 24), |size| {
        let mut model = super::scenes::model(&[dead()], size, look());
        model.steer.side = Side::Attached;
        keys(&mut model, &[Key::Char('s')]);
        model
    });
}

#[test]
fn dialogs_hold_on_every_size() {
    for size in [(40, 12), (41, 13), (79, 12), (80, 12), (120, 12), (300, 13), (30, 8), (2, 2)] {
        let mut model = owner(size);
        keys(&mut model, &[Key::Char('s')]);
        screen::draw(&mut model);
        let mut model = stopped(size);
        screen::draw(&mut model);
        let mut model = audited(size);
        screen::draw(&mut model);
        keys(&mut model, &[Key::Char('m')]);
        screen::draw(&mut model);
    }
    // However small: the focused answer is in sight.
    let mut model = owner((40, 12));
    keys(&mut model, &[Key::Char('s'), Key::Down, Key::Down]);
    let text = screen::lines(&screen::draw(&mut model)).join("\n");
    assert!(text.contains("stop now"), "{text}");
}

#[test]
fn live_output_follows_from_the_agent_to_the_tests() {
    use pilothouse::app::detail::{At, Request, Slot, Tab};
    let mut model = owner((120, 40));
    select(&mut model, "build-pov-ray");
    let effects = press(&mut model, Key::Char('w'));
    let live = |effects: &[Effect], wanted: Slot| {
        effects.iter().any(|e| matches!(e, Effect::Detail(Request::Text { slot, at: At::Live, .. }) if *slot == wanted))
    };
    assert!(live(&effects, Slot::Log), "{effects:?}");
    assert_eq!(model.trial.as_ref().unwrap().tab, Tab::Log);
    // The verifier begins: its output is what grows now.
    let mut later = running();
    for t in &mut later.trials {
        if &*t.0.task == "build-pov-ray" {
            t.0.evidence.as_mut().unwrap().manifest = Some(now());
        }
    }
    let _ = update::update(&mut model, now(), Msg::Jobs(super::scenes::events(&[later])));
    update::settle(&mut model);
    let effects = update::update(&mut model, now() + Duration::from_secs(1), Msg::Tick);
    assert!(live(&effects, Slot::Verifier), "{effects:?}");
    // Whoever scrolls up reads: nothing moves under the eyes any more.
    keys(&mut model, &[Key::Up]);
    assert!(!model.trial.as_ref().unwrap().live);
}

#[test]
fn ascii_is_ascii_and_no_colour_is_no_colour() {
    use pilothouse::app::model::Theme;
    let scenes: [fn((u16, u16)) -> Model; 4] = [
        |size| {
            let mut model = owner(size);
            keys(&mut model, &[Key::Char('s'), Key::Down]);
            model
        },
        stopped,
        audited,
        |size| {
            let mut model = audited(size);
            keys(&mut model, &[Key::Char('m'), Key::Down, Key::Enter]);
            tell(&mut model, News::Mended(KEY, 0, Ok("moved".into())));
            tell(&mut model, News::Mended(KEY, 1, Err("it has changed".into())));
            model
        },
    ];
    for scene in scenes {
        for size in [(45, 20), (80, 24), (220, 60)] {
            let mut model = scene(size);
            model.look.ascii = true;
            let text = screen::lines(&screen::draw(&mut model)).join("\n");
            let odd: String = text.chars().filter(|c| !c.is_ascii()).collect();
            assert_eq!(odd, "", "{text}");
            model.look.theme = Theme::Mono;
            let buffer = screen::draw(&mut model);
            let plain = ratatui::style::Color::Reset;
            assert!(buffer.content().iter().all(|c| c.fg == plain && c.bg == plain));
        }
    }
}

#[test]
fn what_processes_and_files_are_called_is_harmless() {
    let evil = "\u{1b}]0;x\u{7}\u{1b}[31mred\u{202e}\r\nnext\u{9b}1A".to_string();
    let mut told = survey();
    told.process = vec![evil.clone()];
    told.touched = vec![evil.clone()];
    told.warnings = vec![evil.clone()];
    told.ways = vec![Way { signal: Signal::Term, price: evil.clone() }];
    let mut found = audit();
    found.summary = evil.clone();
    found.unseen = vec![evil.clone()];
    found.next = Some(evil.clone());
    for f in &mut found.findings {
        (f.kind, f.what, f.why, f.mend) = (evil.clone(), evil.clone(), evil.clone(), Some(evil.clone()));
    }
    for size in [(45, 20), (80, 24), (120, 40)] {
        let mut model = attached(size);
        press(&mut model, Key::Char('s'));
        tell(&mut model, News::Surveyed(KEY, Ok(told.clone())));
        assert_eq!(screen::unsafe_cells(&screen::draw(&mut model)), Vec::<String>::new());
        keys(&mut model, &[Key::Down]);
        press(&mut model, Key::Enter);
        tell(&mut model, News::Waiting(KEY, Waiting { left: vec![evil.clone()], ..Waiting::default() }));
        assert_eq!(screen::unsafe_cells(&screen::draw(&mut model)), Vec::<String>::new());
        tell(&mut model, News::Stopped(KEY, evil.clone()));
        tell(&mut model, News::Audited(KEY, Ok(found.clone())));
        assert_eq!(screen::unsafe_cells(&screen::draw(&mut model)), Vec::<String>::new());
        keys(&mut model, &[Key::Char('m')]);
        assert_eq!(screen::unsafe_cells(&screen::draw(&mut model)), Vec::<String>::new());
        keys(&mut model, &[Key::Esc]);
        tell(&mut model, News::Refused(evil.clone()));
        tell(&mut model, News::NotSent(KEY, evil.clone()));
        assert_eq!(screen::unsafe_cells(&screen::draw(&mut model)), Vec::<String>::new());
    }
}
