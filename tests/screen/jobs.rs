//! The list of all jobs: those of the screen and others, marks, order, filter, what hangs.

use std::path::PathBuf;
use std::time::Duration;

use pilothouse::app::effect::Effect;
use pilothouse::app::jobs::Request;
use pilothouse::app::key::Key;
use pilothouse::app::memory::{self, Keep};
use pilothouse::app::message::Msg;
use pilothouse::app::model::{Model, View};
use pilothouse::app::update;
use pilothouse::job::roster::{Entry, OwnerLine, RerunLine, RootState, RosterEvent, Standing};
use pilothouse::job::{Harness, Job, JobFacts, JobKey, JobState, Problem, ProblemKind, Stamp, StateKind};

use super::scenes::{keys, look, model, now, running, typed};
use super::screen;

fn entry(name: &str, kind: StateKind, ago: u64) -> Entry {
    let facts = JobFacts {
        dir: PathBuf::from("/data/runs").join(name),
        name: name.into(),
        agents: vec!["terminus-2".into()],
        models: vec!["Qwen/Qwen3.8-27B".into()],
        datasets: vec!["terminal-bench@2.1".into()],
        ..JobFacts::default()
    };
    let mut job = Job::new(JobKey(0), facts);
    job.liveness.last_write = Some(now() - Duration::from_secs(ago));
    let state = JobState { kind, evidence: "last write 5 m ago".to_string(), inferred: kind == StateKind::Dead };
    let mut entry = Entry::of(&job, &PathBuf::from("/data/runs"), state, false);
    (entry.planned, entry.done) = (Some(89), Some(58));
    entry.score = Some(Standing { passed: 41, graded: 57, at_least: false });
    entry
}

fn all() -> Vec<RosterEvent> {
    let mut odd = entry("resumed-by-mistake", StateKind::Running, 4);
    let message = "busy with what has a score already: 37 tasks run again beside their results (30 solved)".into();
    odd.rerun = Some(RerunLine { scored: 37, solved: 30, begun: 12, message });
    odd.owner = Some(OwnerLine { harness: Harness::Harbor, pid: 4242, command: "harbor".into(), host: None });
    let mut far = entry("qwen-shard-3", StateKind::Running, 8);
    far.owner = Some(OwnerLine {
        harness: Harness::Pilothouse,
        pid: 99,
        command: "pilothouse".into(),
        host: Some("node7".into()),
    });
    let mut broken = entry("half-written", StateKind::Dead, 4000);
    (broken.done, broken.score) = (None, None);
    broken.problems = vec![Problem {
        kind: ProblemKind::Unreadable,
        path: "/data/runs/half-written/result.json:1:27".into(),
        message: "ends within a value".into(),
    }];
    let mut events: Vec<RosterEvent> = [
        odd,
        far,
        broken,
        entry("last-week", StateKind::Finished, 600_000),
        entry("stopped", StateKind::Interrupted, 7200),
    ]
    .into_iter()
    .map(|e| RosterEvent::Entry(Box::new(e)))
    .collect();
    let seen = now() - Duration::from_secs(3);
    events.push(RosterEvent::Ended(
        "/data/runs".into(),
        RootState::Read(seen),
        "ext4",
        Some("may not be read: /data/runs/private".into()),
    ));
    events.push(RosterEvent::Begun("/mnt/bucket".into(), now() - Duration::from_secs(42)));
    events.push(RosterEvent::Ended("/gone".into(), RootState::Gone, "-", None));
    events
}

fn list(size: (u16, u16), pressed: &[Key]) -> Model {
    let mut model = model(&[running()], size, look());
    model.jobs.roots = ["/data/runs", "/mnt/bucket", "/gone"].map(PathBuf::from).to_vec();
    model.jobs.opens = true;
    keys(&mut model, &[Key::Char('6')]);
    let _ = update::update(&mut model, now(), Msg::Roster(all()));
    update::settle(&mut model);
    // The selection stays with its job, whatever comes before it.
    assert_eq!(model.jobs.entry().map(|e| &*e.name), Some("qwen38-tb21-full89"));
    keys(&mut model, &[Key::Char('g')]);
    keys(&mut model, pressed);
    update::settle(&mut model);
    model
}

#[test]
fn all_jobs_at_every_size() {
    super::check("jobs-all", |size| list(size, &[]));
    super::check_at("jobs-broken", (120, 40), |size| list(size, &[Key::Down, Key::Down, Key::Down, Key::Char(' ')]));
    super::check_at("jobs-forget", (80, 24), |size| list(size, &[Key::Char('D')]));
    super::check_at("jobs-help", (80, 24), |size| list(size, &[Key::Char('?')]));
}

fn names(model: &Model) -> Vec<&str> {
    model.jobs.list.iter().map(|e| &*e.name).collect()
}

fn effects(model: &mut Model, key: Key) -> Vec<Effect> {
    let effects = update::update(model, now(), Msg::Key(key));
    update::settle(model);
    effects
}

#[test]
fn order_filter_and_marks_hold_and_are_kept() {
    let mut model = list((120, 40), &[]);
    assert_eq!(names(&model)[0], "resumed-by-mistake", "what needs somebody stands first");
    keys(&mut model, &typed("/state:running !name:qwen-shard"));
    keys(&mut model, &[Key::Enter]);
    update::settle(&mut model);
    assert_eq!(names(&model), ["resumed-by-mistake", "qwen38-tb21-full89"]);
    let kept = effects(&mut model, Key::Char(' ')).into_iter().find_map(|e| match e {
        Effect::Keep(Keep::Memory(memory)) => Some(*memory),
        _ => None,
    });
    let kept = kept.expect("a mark is kept");
    assert_eq!(kept.jobs.marks, ["/data/runs/resumed-by-mistake"]);
    assert_eq!(kept.jobs.filter, "state:running !name:qwen-shard");
    keys(&mut model, &typed("F/marked"));
    keys(&mut model, &[Key::Enter]);
    update::settle(&mut model);
    assert_eq!(names(&model), ["resumed-by-mistake"]);

    // The next screen begins where this one ended.
    let mut next = list((120, 40), &[]);
    memory::restore(&mut next, kept);
    keys(&mut next, &[Key::Down]);
    update::settle(&mut next);
    assert_eq!(names(&next).len(), 2);
    assert!(next.jobs.marks.contains(&PathBuf::from("/data/runs/resumed-by-mistake")));
}

#[test]
fn marks_of_trials_are_kept_by_job_and_come_back() {
    let mut first = model(&[running()], (120, 40), look());
    let kept = effects(&mut first, Key::Char(' ')).into_iter().find_map(|e| match e {
        Effect::Keep(Keep::Memory(memory)) => Some(*memory),
        _ => None,
    });
    let kept = kept.expect("a mark is kept");
    let (job, list) = kept.trials.iter().next().unwrap();
    assert_eq!((kept.trials.len(), list.marks.len()), (1, 1), "{job}");

    let mut second = model(&[], (120, 40), look());
    memory::restore(&mut second, kept.clone());
    let _ = update::update(&mut second, now(), Msg::Jobs(super::scenes::events(&[running()])));
    update::settle(&mut second);
    assert_eq!(second.marked.len(), 1);
    assert_eq!(first.marked, second.marked);
    // Nothing is written as long as nothing changes.
    let quiet = effects(&mut second, Key::Down);
    assert!(!quiet.iter().any(|e| matches!(e, Effect::Keep(_))), "{quiet:?}");
    // Of another job it is none.
    let mut other = model(&[], (120, 40), look());
    memory::restore(&mut other, kept);
    let _ = update::update(&mut other, now(), Msg::Jobs(super::scenes::events(&[super::scenes::finished()])));
    assert!(other.marked.is_empty());
}

#[test]
fn another_job_is_opened_on_this_screen_and_an_own_one_is_shown() {
    let mut model = list((120, 40), &[]);
    let went = effects(&mut model, Key::Enter);
    assert!(went.iter().any(|e| matches!(e, Effect::Elsewhere)), "{went:?}");
    assert_eq!(model.jobs.next, [PathBuf::from("/data/runs/resumed-by-mistake")]);
    // A screen that runs a job stays with it.
    let mut owner = list((120, 40), &[]);
    owner.jobs.opens = false;
    let stays = effects(&mut owner, Key::Enter);
    assert!(!stays.iter().any(|e| matches!(e, Effect::Elsewhere)));
    assert!(owner.notice.as_ref().unwrap().text.contains("pilothouse attach /data/runs/resumed-by-mistake"));
    // Its own one is a line among the others.
    let at = model.jobs.list.iter().position(|e| &*e.name == "qwen38-tb21-full89").unwrap();
    keys(&mut model, &vec![Key::Down; at]);
    let home = effects(&mut model, Key::Enter);
    assert_eq!(model.view(), View::Trials, "{home:?}");
    // A stop from the list is about a job of this screen alone.
    let mut model = list((120, 40), &[]);
    effects(&mut model, Key::Char('s'));
    assert!(model.overlay.is_none() && model.view() == View::Jobs, "{:?}", model.overlay);
}

#[test]
fn directories_are_added_and_forgotten() {
    let mut model = list((120, 40), &[]);
    model.jobs.places = (PathBuf::from("/work"), Some(PathBuf::from("/home/me")));
    keys(&mut model, &typed("a~/jobs"));
    let added = effects(&mut model, Key::Enter);
    let kept = added.iter().any(|e| matches!(e, Effect::Keep(Keep::Root(p)) if p == &PathBuf::from("/home/me/jobs")));
    let asked = added.iter().any(|e| matches!(e, Effect::Roster(Request::Roots(r)) if r.len() == 4));
    assert!(kept && asked, "{added:?}");
    keys(&mut model, &[Key::Char('D')]);
    let forgot = effects(&mut model, Key::Enter);
    assert!(
        forgot.iter().any(|e| matches!(e, Effect::Keep(Keep::Forget(p)) if p == &PathBuf::from("/data/runs"))),
        "{forgot:?}"
    );
    assert_eq!(names(&model), ["qwen38-tb21-full89"], "its jobs go with it, those of the screen stay");
}

#[test]
fn nobody_looks_through_directories_while_the_list_is_not_shown() {
    let mut model = list((120, 40), &[]);
    let left = effects(&mut model, Key::Char('1'));
    assert!(left.iter().any(|e| matches!(e, Effect::Roster(Request::Pause))), "{left:?}");
    let back = effects(&mut model, Key::Char('6'));
    assert!(back.iter().any(|e| matches!(e, Effect::Roster(Request::Roots(_)))), "{back:?}");
    // An alarm of another job is an alarm here, too.
    assert!(model.derived.attention.iter().any(|a| a.kind == "rerun" && a.text.contains("37 tasks")));
}

#[test]
fn odd_texts_stay_within_their_cells() {
    let mut model = list((80, 24), &[]);
    let mut odd = entry("esc\u{1b}[31m\u{202e}任务", StateKind::Running, 1);
    odd.dir = PathBuf::from("/data/runs/\u{1b}]0;x\u{7}");
    let _ = update::update(&mut model, now(), Msg::Roster(vec![RosterEvent::Entry(Box::new(odd))]));
    update::settle(&mut model);
    for size in [(40, 12), (79, 20), (80, 24), (200, 60)] {
        model.size = size;
        let buffer = screen::draw(&mut model);
        assert_eq!(screen::unsafe_cells(&buffer), Vec::<String>::new());
    }
    let _: Stamp = now();
}
