//! Every view at four sizes, text and style, as snapshots; the jobs are made by hand with fixed
//! times. The trial view has its own.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, missing_docs)]

#[path = "screen/jobs.rs"]
mod all_jobs;
#[path = "support/fleet.rs"]
#[allow(dead_code)]
mod build;
#[path = "screen/now.rs"]
mod now;
#[path = "screen/regrade.rs"]
mod regrade;
#[path = "screen/requeue.rs"]
mod requeue;
#[path = "screen/scenes.rs"]
mod scenes;
#[path = "support/screen.rs"]
mod screen;
#[path = "screen/steer.rs"]
mod steer;
#[path = "screen/triage.rs"]
mod triage;

use pilothouse::app::key::Key;
use pilothouse::app::message::Msg;
use pilothouse::app::model::{Look, Model, Theme};
use pilothouse::app::replay::Reply;
use pilothouse::app::update;
use scenes::{dead, finished, keys, look, model, running, typed};

const SIZES: [(u16, u16); 4] = [(45, 20), (80, 24), (120, 40), (220, 60)];

/// Draws at every size and compares with the stored pictures.
#[track_caller]
fn check(name: &str, make: impl Fn((u16, u16)) -> Model) {
    for size in SIZES {
        check_at(name, size, &make);
    }
}

#[track_caller]
fn check_at(name: &str, size: (u16, u16), make: impl Fn((u16, u16)) -> Model) {
    let mut model = make(size);
    let buffer = screen::draw(&mut model);
    assert_eq!(screen::unsafe_cells(&buffer), Vec::<String>::new());
    let lines = screen::lines(&buffer);
    if std::env::var_os("SHOW").is_some() {
        println!("==== {name} {}x{}\n{}", size.0, size.1, lines.join("\n"));
    }
    insta::with_settings!({ snapshot_path => "snapshots/screen", prepend_module_to_snapshot => false, omit_expression => true }, {
        insta::assert_snapshot!(format!("{name}-{}x{}", size.0, size.1), screen::dump(&buffer));
    });
}

/// A model after some keys.
fn after(jobs: &[build::J], size: (u16, u16), pressed: &[Key]) -> Model {
    let mut model = model(jobs, size, look());
    keys(&mut model, pressed);
    model
}

#[test]
fn trials_of_a_running_job() {
    check("trials-running", |size| after(&[running()], size, &[Key::Down, Key::Down]));
}

#[test]
fn trials_of_a_finished_job() {
    check("trials-finished", |size| after(&[finished()], size, &[]));
}

#[test]
fn trials_of_a_dead_job() {
    check("trials-dead", |size| after(&[dead()], size, &[]));
}

#[test]
fn trials_of_several_jobs() {
    check("trials-several", |size| after(&[running(), finished(), dead()], size, &[]));
}

#[test]
fn before_anything_was_read() {
    check("waiting", |size| after(&[], size, &[]));
}

#[test]
fn while_it_is_read() {
    use pilothouse::job::{JobEvent, JobKey};
    check("reading", |size| {
        let job = finished();
        let mut model = model(&[], size, look());
        let mut events: Vec<JobEvent> = scenes::events(&[job]).into_iter().take(3).collect();
        events.push(JobEvent::Scanning(JobKey(0), 2, 4));
        let _ = update::update(&mut model, scenes::now(), Msg::Jobs(events));
        model
    });
}

#[test]
fn errors() {
    check("errors", |size| after(&[running()], size, &[Key::Char('3'), Key::Down]));
}

#[test]
fn warnings() {
    check("warnings", |size| after(&[running(), dead()], size, &[Key::Char('5'), Key::Down]));
}

#[test]
fn jobs() {
    check("jobs", |size| after(&[running(), finished(), dead()], size, &[Key::Char('6'), Key::Down]));
}

#[test]
fn runs_beside_each_other() {
    let two = || [finished(), dead()];
    check("compare", |size| after(&two(), size, &[Key::Char('7'), Key::Down]));
    check_at("compare-one", (80, 24), |size| after(&[finished()], size, &[Key::Char('7')]));
    let mut model = after(&two(), (120, 40), &typed("7f"));
    let view = model.compare.as_ref().unwrap();
    assert!(view.flips && view.order.len() == 2, "{:?}", view.order);
    let task = view.row().unwrap().task.clone();
    // Its trials of both runs are one key away; its view forgets itself when it is left.
    keys(&mut model, &[Key::Enter]);
    assert_eq!(model.table.filter_text, format!("task:={task}"));
    assert_eq!(model.table.order.len(), 2);
    assert!(model.compare.is_none());
}

#[test]
fn help() {
    check("help", |size| after(&[running()], size, &[Key::Char('?')]));
    check_at("help-end", (80, 24), |size| after(&[running()], size, &[Key::Char('?'), Key::Char('G')]));
    check_at("help-end", (45, 20), |size| after(&[running()], size, &[Key::Char('?'), Key::Char('G')]));
}

#[test]
fn palette() {
    check("palette", |size| {
        let mut pressed = vec![Key::Char(':')];
        pressed.extend(typed("err"));
        after(&[running()], size, &pressed)
    });
}

#[test]
fn menus() {
    check("menu-filter", |size| after(&[running()], size, &[Key::Char('f'), Key::Down]));
    check("menu-sort", |size| after(&[running()], size, &[Key::Char('o'), Key::Down]));
    check("menu-acts", |size| after(&[running()], size, &[Key::Char('x')]));
}

#[test]
fn filter_prompt() {
    let with = |size, text: &str| {
        let mut pressed = vec![Key::Char('/')];
        pressed.extend(typed(text));
        after(&[running()], size, &pressed)
    };
    check("filter", |size| with(size, "exception:any"));
    check("filter-error", |size| with(size, "state:done"));
    check("filter-nothing", |size| with(size, "no-such-task"));
}

#[test]
fn attention_and_a_notice() {
    check("attention", |size| after(&[running(), dead()], size, &[Key::Char('!'), Key::Char('!')]));
    check_at("unknown-key", (80, 24), |size| after(&[running()], size, &[Key::Char('~')]));
}

#[test]
fn replay() {
    check("replay", |size| scenes::replay(size, look(), (100, 30)));
    check("replay-opening", |size| {
        let mut model = after(&[finished()], size, &[]);
        keys(&mut model, &[Key::Char('c')]);
        model
    });
    check("replay-refused", |size| {
        let mut model = scenes::replay(size, look(), (80, 24));
        let why = "/jobs/x/fix-git__aB3dEfG/agent/recording.cast: line 1: not an asciicast header: version 9";
        let _ = update::update(&mut model, scenes::now(), Msg::Replay(Reply::Refused(why.into())));
        model
    });
    check_at("replay-help", (80, 24), |size| {
        let mut model = scenes::replay(size, look(), (80, 24));
        keys(&mut model, &[Key::Char('?')]);
        model
    });
}

#[test]
fn other_looks() {
    let ascii = Look { ascii: true, theme: Theme::Default };
    let mono = Look { ascii: false, theme: Theme::Mono };
    let light = Look { ascii: false, theme: Theme::Light };
    for (name, look) in [("ascii", ascii), ("mono", mono), ("light", light)] {
        check_at(name, (120, 40), |size| {
            let mut model = model(&[running()], size, look);
            keys(&mut model, &[Key::Down]);
            model
        });
        check_at(&format!("{name}-replay"), (80, 24), |size| scenes::replay(size, look, (100, 30)));
    }
    let mut shown = model(&[running(), dead()], (220, 60), ascii);
    let odd: String = screen::lines(&screen::draw(&mut shown)).join("").chars().filter(|c| !c.is_ascii()).collect();
    assert_eq!(odd, "", "--ascii draws ASCII alone");
    let mut shown = model(&[running(), dead()], (220, 60), mono);
    let colours = screen::draw(&mut shown)
        .content()
        .iter()
        .any(|c| c.fg != ratatui::style::Color::Reset || c.bg != ratatui::style::Color::Reset);
    assert!(!colours, "no colours without colours");
}

#[test]
fn too_small() {
    check_at("line", (30, 8), |size| after(&[running()], size, &[]));
    check_at("line-finished", (39, 3), |size| after(&[finished()], size, &[]));
    check_at("least", (40, 12), |size| after(&[running()], size, &[]));
    for size in [(1, 1), (2, 40), (300, 1), (300, 2), (40, 12), (79, 12), (80, 12), (119, 23), (120, 12)] {
        for pressed in ["", "5", "6", "3", "?", ":", "f", "o", "x", "/", "c"] {
            let mut model = after(&[running(), dead()], size, &typed(pressed));
            screen::draw(&mut model);
        }
    }
}
