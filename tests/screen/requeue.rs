//! The plan of a requeue and the preview of a resume: their pictures, what their keys ask for.

use std::path::PathBuf;
use std::sync::Arc;

use pilothouse::app::effect::Effect;
use pilothouse::app::helm::{News, Order, Plan, Prepared, Progress, Side, Wish};
use pilothouse::app::message::Msg;
use pilothouse::app::model::{Model, View};
use pilothouse::app::requeue::Field;
use pilothouse::app::update;
use pilothouse::job::{Class, JobKey};
use pilothouse::requeue::{Difference, Harness, Pick, Refused, Way};

use super::scenes::{look, now};
use super::triage::{model_of, open, press};
use super::{check, check_at, screen};

const KEY: JobKey = JobKey(0);

fn pick(task: &str, attempts: u32, alike: u32, forced: bool) -> Pick {
    Pick {
        job: KEY,
        trial: format!("{task}__aB3dEfG").into(),
        task: task.into(),
        result_id: Some(format!("id-{task}-aB3dEfG").into()),
        class: Some(Class::Infra),
        why: "infra/docker-network by docker-address-pools: the engine had no network left to give".into(),
        attempts,
        alike,
        forced,
    }
}

fn plan(picks: Vec<Pick>) -> Plan {
    let command = "/opt/harbor/bin/harbor run -c /home/ops/.local/state/pilothouse/requeue/night-run-requeue-1.json -y";
    Plan {
        job: KEY,
        source: "/jobs/night-run".into(),
        source_name: "night-run".into(),
        source_id: Some("id-9".into()),
        harness: Harness::Harbor { program: None, installed: Some("0.21.0".into()), ran: Some("0.21.0".into()) },
        rows: picks,
        differs: vec![Difference::new("agents[0].kwargs.api_base", "http://gpu-a:30000/v1", "http://gpu-b:30000/v1")],
        name: "night-run-requeue-1".into(),
        dir: "/jobs/night-run-requeue-1".into(),
        config: "{}".into(),
        config_path: "/home/ops/.local/state/pilothouse/requeue/night-run-requeue-1.json".into(),
        cwd: "/jobs".into(),
        command: command.split(' ').map(str::to_string).collect(),
        missing: Vec::new(),
        problems: Vec::new(),
        warnings: Vec::new(),
        reason: None,
    }
}

fn refused(task: &str, why: &str, way: Way) -> Refused {
    Refused { job: Some(KEY), trial: format!("{task}__aB3dEfG").into(), task: task.into(), why: why.into(), way }
}

fn whole() -> Prepared {
    let picks = vec![
        pick("build-pov-ray", 1, 1, false),
        pick("qemu-startup-with-a-long-name", 3, 2, false),
        pick("sam-cell-seg", 1, 1, false),
    ];
    Prepared {
        plans: vec![plan(picks)],
        refused: vec![
            refused("gamma-task", "it ran into its limit: that is a valid end", Way::Force),
            refused("delta-task", "it has a valid reward of 0", Way::Force),
        ],
        notes: Vec::new(),
    }
}

fn wish(effects: &[Effect]) -> &Wish {
    let asked = effects.iter().rev().find_map(|e| match e {
        Effect::Helm(Order::Prepare(wish)) => Some(&**wish),
        _ => None,
    });
    asked.expect("a plan is asked for")
}

fn hear(model: &mut Model, news: News) -> Vec<Effect> {
    let effects = update::update(model, now(), Msg::Helm(news));
    update::settle(model);
    effects
}

/// The plan is shown.
fn planned(size: (u16, u16), prepared: Prepared) -> Model {
    let mut model = open(size);
    let effects = press(&mut model, "R");
    let serial = wish(&effects).serial;
    hear(&mut model, News::Prepared(serial, Box::new(prepared)));
    model
}

#[test]
fn pictures_of_the_plan() {
    check("requeue", |size| planned(size, whole()));
    check_at("requeue-planning", (80, 24), |size| {
        let mut model = open(size);
        press(&mut model, "R");
        model
    });
    check("requeue-not-ready", |size| {
        let mut prepared = whole();
        prepared.plans[0].missing = vec!["OPENAI_API_KEY".into()];
        prepared.plans[0].problems = vec!["no harbor program: name it in PILOTHOUSE_HARBOR".into()];
        prepared.plans[0].differs = Vec::new();
        let mut model = planned(size, prepared);
        press(&mut model, "G\r");
        model
    });
    check_at("requeue-forced", (120, 40), |size| {
        let mut model = planned(size, whole());
        press(&mut model, "jjj\r");
        press(&mut model, "the limit was set too low by us\r");
        model
    });
    check("resume-preview", |size| {
        let mut model = open(size);
        press(&mut model, "P");
        let text = "/jobs/night-run\n  run by harbor 0.21.0; filter: CancelledError\nharbor 0.21: REFUSES (ValueError): the \
                    config differs\n  deletes 2: theta-task__aB3dEfG (no result.json)\nwarning: OPENAI_API_KEY is not set \
                    here\nto resume: cd /jobs && harbor job resume -p night-run\nsafer, deletes nothing: pilothouse \
                    requeue /jobs/night-run --unscored\n";
        hear(&mut model, News::Previewed(KEY, Ok(text.to_string())));
        model
    });
}

#[test]
fn the_marked_are_planned_or_else_the_one_that_is_looked_at() {
    let mut model = open((120, 40));
    let effects = press(&mut model, "r");
    let asked = wish(&effects);
    assert_eq!(asked.wanted.len(), 1);
    assert_eq!(asked.wanted[0].1.trials, [Arc::from("build-pov-ray__aB3dEfG")]);
    assert!(!asked.wanted[0].1.infra);
    // Marked here and in the trials list: both count, the cursor no more.
    press(&mut model, "\r");
    assert_eq!(model.view(), View::Triage);
    press(&mut model, "j ");
    press(&mut model, "1/sam");
    press(&mut model, "\r F");
    assert_eq!(model.marked.len(), 2);
    let effects = press(&mut model, "r");
    let mut names = wish(&effects).wanted[0].1.trials.clone();
    names.sort();
    assert_eq!(names, [Arc::from("qemu-startup-with-a-long-name__aB3dEfG"), Arc::from("sam-cell-seg__aB3dEfG")]);
    // A mark is taken away by the same key.
    press(&mut model, "\r1");
    press(&mut model, "/sam");
    press(&mut model, "\r F");
    assert_eq!(model.marked.len(), 1);
}

#[test]
fn all_infra_is_one_key_and_says_when_there_is_none() {
    let mut model = open((120, 40));
    let effects = press(&mut model, "R");
    let asked = wish(&effects);
    assert!(asked.wanted.len() == 1 && asked.wanted[0].1.infra && asked.wanted[0].1.trials.is_empty());
    assert!(asked.terms.force.is_none() && !asked.terms.config_fixed);
    let mut model = super::scenes::model(&[super::scenes::finished()], (80, 24), look());
    model.steer.side = Side::Attached;
    assert!(press(&mut model, "R").is_empty());
    assert!(model.notice.as_ref().unwrap().text.contains("no trial failed for its surroundings"));
    // A screen that only looks plans nothing.
    let mut model = model_of((80, 24), look(), Side::Reader);
    assert!(press(&mut model, "R").is_empty());
    assert_ne!(model.view(), View::Requeue);
}

#[test]
fn the_plan_begins_on_cancel_and_starts_only_by_its_own_choice() {
    let mut model = planned((120, 40), whole());
    assert_eq!(model.requeue.as_ref().unwrap().focus, Field::Cancel);
    assert!(press(&mut model, "\r").is_empty());
    assert_eq!(model.view(), View::Triage);

    let mut model = planned((120, 40), whole());
    model.marked = model
        .triage
        .order
        .iter()
        .filter_map(|i| match &model.rows[*i].id {
            pilothouse::app::rows::RowId::Trial(key) => Some(key.clone()),
            pilothouse::app::rows::RowId::Slot(..) => None,
        })
        .collect();
    let mut effects = press(&mut model, "G\r");
    // That the marks are gone is remembered, too.
    effects.retain(|e| !matches!(e, Effect::Keep(_)));
    assert!(matches!(effects.as_slice(), [Effect::Helm(Order::Requeue(p))] if p.name == "night-run-requeue-1"));
    // Pressed once more it is not started twice.
    assert!(press(&mut model, "\r").is_empty());
    let log = PathBuf::from("/state/requeue/night-run-requeue-1.log");
    let name = "night-run-requeue-1".to_string();
    hear(&mut model, News::Requeue(Progress::Started { name: name.clone(), log: log.clone(), pid: 77 }));
    assert_eq!(model.view(), View::Triage);
    assert!(model.notice.as_ref().unwrap().text.contains("pid 77"));
    assert_eq!(model.marked.len(), 6, "what is run again is marked no more");
    // Its directory is there: it is followed on the same screen.
    let dir = PathBuf::from("/jobs/night-run-requeue-1");
    let effects = hear(&mut model, News::Requeue(Progress::Begun { name: name.clone(), dir: dir.clone() }));
    assert!(matches!(effects.as_slice(), [Effect::Follow(d)] if *d == dir));
    hear(&mut model, News::Requeue(Progress::Ended { name, words: "exit status: 1".into(), log, fine: false }));
    assert!(model.notice.as_ref().unwrap().text.contains("exit status: 1"));
}

#[test]
fn what_can_not_be_started_is_not() {
    let mut prepared = whole();
    prepared.plans[0].missing = vec!["OPENAI_API_KEY".into()];
    let mut model = planned((120, 40), prepared);
    assert!(press(&mut model, "G\r").is_empty());
    assert!(model.notice.as_ref().unwrap().text.contains("export OPENAI_API_KEY"));
    // A start that failed leaves the plan, to try again.
    let mut model = planned((120, 40), whole());
    press(&mut model, "G\r");
    let failed = Progress::Failed { name: "night-run-requeue-1".into(), why: "the name is taken".into() };
    hear(&mut model, News::Requeue(failed));
    assert_eq!(model.view(), View::Requeue);
    assert_eq!(press(&mut model, "\r").len(), 1);
}

#[test]
fn force_wants_a_reason_first() {
    let mut model = planned((120, 40), whole());
    let draft = model.requeue.as_ref().unwrap();
    assert_eq!(draft.fields(), [Field::Cancel, Field::Reason, Field::Endpoint, Field::Force, Field::Start]);
    press(&mut model, "jjj");
    assert!(press(&mut model, "\r").is_empty(), "asks for the reason");
    let effects = press(&mut model, "our limit was wrong\r");
    assert_eq!(wish(&effects).terms.force, None, "a reason alone forces nothing");
    let effects = press(&mut model, "jj\r");
    assert_eq!(wish(&effects).terms.force.as_deref(), Some("our limit was wrong"));
    assert_eq!(wish(&effects).ask.reason.as_deref(), Some("our limit was wrong"));
    // Another address goes into the plan.
    let effects = press(&mut model, "k\rhttp://gpu-b:30000/v1\r");
    assert_eq!(wish(&effects).ask.api_base.as_deref(), Some("http://gpu-b:30000/v1"));
    // An answer to an older wish is not shown.
    let serial = wish(&effects).serial;
    hear(&mut model, News::Prepared(serial - 1, Box::default()));
    assert_eq!(model.requeue.as_ref().unwrap().n(), 3);
    // What was the operator's own mistake has its own word.
    let mut prepared = whole();
    prepared.refused = vec![refused("eta-task", "a wrong key: mend it first", Way::ConfigFixed)];
    let mut model = planned((120, 40), prepared);
    let effects = press(&mut model, "jjj\r");
    assert!(wish(&effects).terms.config_fixed);
}

#[test]
fn the_preview_asks_and_scrolls_and_offers_the_safer_way() {
    let mut model = open((80, 24));
    let effects = press(&mut model, "P");
    assert!(matches!(effects.as_slice(), [Effect::Helm(Order::Preview(place))] if place.job == KEY));
    hear(&mut model, News::Previewed(KEY, Err("/jobs/night-run: not resumable: config.json missing".into())));
    let text = screen::lines(&screen::draw(&mut model)).join("\n");
    assert!(text.contains("config.json missing"), "{text}");
    let effects = press(&mut model, "jG gR");
    assert!(wish(&effects).wanted[0].1.unscored);
    assert_eq!(model.view(), View::Requeue);
}
