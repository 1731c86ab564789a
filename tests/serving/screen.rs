//! The model servers on the screen: pictures at four sizes, keys, alarms, notes.

#[path = "../support/fleet.rs"]
#[allow(dead_code)]
mod build;
#[path = "../support/screen.rs"]
mod cells;
#[path = "../screen/scenes.rs"]
#[allow(dead_code)]
mod scenes;

use std::sync::Arc;

use build::at;
use pilothouse::app::effect::Effect;
use pilothouse::app::helm::{Order, Side};
use pilothouse::app::key::Key;
use pilothouse::app::message::Msg;
use pilothouse::app::model::{Look, Model, Theme, View};
use pilothouse::app::servers;
use pilothouse::app::update;
use pilothouse::job::{FileFact, JobEvent, JobKey, Stamp};
use pilothouse::serving::{
    Counters, DecodeBatch, Engine, Event, Figures, Limits, Line, LineKind, Load, Observation, Place, Ranks, Seen,
    ServerInfo, Serving, Severity, Source, SourceId, Thresholds, Unreached, Worker,
};
use scenes::{NOW, keys, typed};

const SIZES: [(u16, u16); 4] = [(45, 20), (80, 24), (120, 40), (220, 60)];
const A: SourceId = SourceId(0);
const A_LOG: SourceId = SourceId(1);
const B: SourceId = SourceId(2);

fn sources() -> Vec<Source> {
    let http =
        |id, name: &str| Source { id, server: name.into(), place: Place::Http(format!("http://{name}:30000").into()) };
    let log =
        Source { id: A_LOG, server: "A".into(), place: Place::File(Arc::from(std::path::Path::new("/log/a.log"))) };
    vec![http(A, "A"), log, http(B, "B")]
}

fn limits() -> Limits {
    Limits {
        max_running: Some(16),
        context: Some(131_072),
        capacity: Some(400_000),
        mamba_slots: Some(64),
        chunk: Some(8192),
        ..Limits::default()
    }
}

fn info() -> ServerInfo {
    ServerInfo {
        engine: Some(Engine::Sglang),
        version: Some("0.5.23".into()),
        model: Some("Qwen/Qwen3.8-27B".into()),
        dp_size: Some(2),
        limits: limits(),
        settings: Vec::new(),
    }
}

fn load(rank: u16, running: u32, queued: u32, kv: f32, generation: f32) -> Load {
    let figures = Figures {
        running: Some(running),
        queued: Some(queued),
        tokens: Some((f64::from(kv) * 400_000.0) as u64),
        kv: Some(kv),
        mamba: Some(running as f32 / 16.0),
        generation: Some(generation),
        cache_hit: Some(0.91),
        ..Figures::default()
    };
    Load { rank: Some(rank), figures, limits: limits(), age: Some(0.2), counters: Counters::default() }
}

fn seen(source: SourceId, second: i64, seen: Seen) -> Observation {
    Observation { source, at: Some(at(second)), seen }
}

fn line(second: i64, severity: Severity, kind: LineKind, text: &str) -> Observation {
    let line = Line { time: None, ranks: Ranks::default(), severity, kind, text: Some(text.into()) };
    seen(A_LOG, second, Seen::Line(line))
}

/// Takes in what was seen in a second, and lets the second end.
fn second(model: &mut Model, now: i64, seen: Vec<Observation>) -> Vec<Effect> {
    update::settle(model);
    let mut effects = update::update(model, at(now), Msg::Serving(seen));
    update::settle(model);
    effects.extend(update::update(model, at(now), Msg::Tick));
    effects
}

/// A model of a running job beside two servers that know nothing yet.
fn blank(size: (u16, u16), look: Look) -> Model {
    let mut model = scenes::model(&[scenes::running()], size, look);
    model.serving = Serving::new(sources(), Thresholds::shipped());
    model.steer.notes = true;
    model.steer.side = Side::Attached;
    model.ledger.operator = "op@host".into();
    model
}

/// Ten minutes of two servers with two ranks each: A works, B's second rank thinks at one request.
fn served(size: (u16, u16), look: Look) -> Model {
    let mut model = blank(size, look);
    let start = NOW - 600;
    let _ = second(&mut model, start, vec![seen(A, start, Seen::Info(info())), seen(B, start, Seen::Info(info()))]);
    for step in 0..=300 {
        let now = start + step * 2;
        let wave = (step as f32 / 20.0).sin() * 30.0;
        let mut all = vec![
            seen(A, now, Seen::Loads(vec![load(0, 5, 0, 0.62, 212.0 + wave), load(1, 5, 2, 0.81, 205.0 - wave)])),
            seen(B, now, Seen::Loads(vec![load(0, 5, 0, 0.58, 220.0), load(1, 1, 0, 0.97, 14.0)])),
        ];
        if step % 30 == 0 {
            let text = format!("[2027-01-15 09:{:02}:00 DP0] Decode batch, #running-req: 5", step / 30);
            let batch = DecodeBatch { figures: load(0, 5, 0, 0.62, 212.0).figures, ..DecodeBatch::default() };
            all.push(line(now, Severity::Info, LineKind::Decode(Box::new(batch)), &text));
        }
        if step == 250 {
            let kind = LineKind::Event(Event::Retracted { requests: Some(2) });
            let text = "[2027-01-15 09:08:20 DP1] KV cache pool is full. Retract requests. #retracted_reqs: 2";
            all.push(line(now, Severity::Warning, kind, text));
            let received = "[2027-01-15 09:08:21] Receive: obj=GenerateReqInput(rid='episode-7', text='x')";
            all.push(line(now, Severity::Info, LineKind::Other, received));
        }
        let _ = second(&mut model, now, all);
    }
    update::settle(&mut model);
    model
}

#[track_caller]
fn check(name: &str, make: impl Fn((u16, u16)) -> Model) {
    for size in SIZES {
        check_at(name, size, &make);
    }
}

#[track_caller]
fn check_at(name: &str, size: (u16, u16), make: &dyn Fn((u16, u16)) -> Model) {
    let mut model = make(size);
    // What was said on the way is not looked at here.
    model.notice = None;
    let buffer = cells::draw(&mut model);
    assert_eq!(cells::unsafe_cells(&buffer), Vec::<String>::new());
    if std::env::var_os("SHOW").is_some() {
        println!("==== {name} {}x{}\n{}", size.0, size.1, cells::lines(&buffer).join("\n"));
    }
    insta::with_settings!({ snapshot_path => "../snapshots/serving", prepend_module_to_snapshot => false, omit_expression => true }, {
        insta::assert_snapshot!(format!("{name}-{}x{}", size.0, size.1), cells::dump(&buffer));
    });
}

fn after(mut model: Model, pressed: &[Key]) -> Model {
    keys(&mut model, pressed);
    model
}

#[test]
fn the_view() {
    check("view", |size| after(served(size, scenes::look()), &[Key::Char('2')]));
}

#[test]
fn the_view_without_colour_and_in_ascii() {
    let look = Look { ascii: true, theme: Theme::Mono };
    check_at("view-ascii", (80, 24), &|size| after(served(size, look), &[Key::Char('2')]));
    check_at("view-ascii", (120, 40), &|size| after(served(size, look), &[Key::Char('2')]));
}

#[test]
fn trials_beside_servers() {
    check("home", |size| served(size, scenes::look()));
}

#[test]
fn one_replica_in_full() {
    check("replica", |size| after(served(size, scenes::look()), &[Key::Char('2'), Key::Char('j'), Key::Enter]));
}

#[test]
fn diagnoses_and_log() {
    check("diagnoses", |size| after(served(size, scenes::look()), &[Key::Char('2'), Key::Tab]));
    check("log", |size| after(served(size, scenes::look()), &[Key::Char('2'), Key::Tab, Key::Tab]));
}

#[test]
fn the_log_is_filtered_while_typing_and_followed_again_by_end() {
    let mut model = after(served((120, 40), scenes::look()), &[Key::Char('2'), Key::Char('/')]);
    keys(&mut model, &typed("retract"));
    let (lines, passing, all) = servers::log::window(&model, 20);
    assert_eq!((lines.len(), passing), (1, 1));
    assert!(all > 10, "{all}");
    keys(&mut model, &[Key::Enter]);
    keys(&mut model, &[Key::Char('F')]);
    assert_eq!(servers::log::window(&model, 20).1, all);
    keys(&mut model, &[Key::Char('k'), Key::Char('k')]);
    assert!(model.servers.log.at.is_some());
    let before = servers::log::last_shown(&model).unwrap().text.to_string();
    let _ = second(&mut model, NOW + 2, vec![line(NOW + 2, Severity::Info, LineKind::Other, "a new line")]);
    assert_eq!(servers::log::last_shown(&model).unwrap().text.to_string(), before, "it moved under the reader");
    keys(&mut model, &[Key::End]);
    assert_eq!(&*servers::log::last_shown(&model).unwrap().text, "a new line");
    // Words that must not stand there, and severities.
    model.servers.log.set_filter("warning+ !new");
    assert_eq!(servers::log::window(&model, 20).1, 1);
}

#[test]
fn attention_leads_to_the_diagnosis_and_back() {
    let mut model = served((120, 40), scenes::look());
    let of_servers = |model: &Model| model.derived.attention.iter().filter(|a| a.serving.is_some()).count();
    assert!(of_servers(&model) > 0);
    for _ in 0..model.derived.attention.len() {
        keys(&mut model, &[Key::Char('!')]);
        if model.view() == View::Serving {
            break;
        }
    }
    assert_eq!(model.view(), View::Serving);
    let item = model.derived.attention[model.attention_at - 1].clone();
    let point = item.serving.unwrap();
    let shown = servers::diagnoses(&model)[model.servers.diagnosis_at];
    assert_eq!((shown.kind, &*shown.server), (point.kind, &*point.server));
    keys(&mut model, &[Key::Enter]);
    assert!(model.servers.detail.is_some());
    keys(&mut model, &[Key::Esc, Key::Esc, Key::Esc]);
    assert_eq!(model.view(), View::Trials);
}

/// What goes to the notify command.
fn alerts(effects: &[Effect]) -> Vec<(String, Option<String>)> {
    let alert = |e: &Effect| match e {
        Effect::Notify(alert) => Some((alert.kind.clone(), alert.server.clone())),
        _ => None,
    };
    effects.iter().filter_map(alert).collect()
}

fn refused(source: SourceId, second: i64) -> Observation {
    let how = Unreached::Refused;
    seen(source, second, Seen::Unreached { path: "/v1/loads", how, why: "connection refused".into() })
}

/// What is written of an outage: from, to, why.
fn outages(effects: &[Effect]) -> Vec<(Stamp, Stamp, String)> {
    let outage = |e: &Effect| match e {
        Effect::Helm(Order::Say(_, speech)) => speech.outage.as_ref().map(|o| (o.from, o.to, o.why.to_string())),
        _ => None,
    };
    effects.iter().filter_map(outage).collect()
}

#[test]
fn a_server_that_dies_is_told_once_and_noted_from_when_to_when() {
    let mut model = served((120, 40), scenes::look());
    model.servers.alarms.notify = true;
    model.servers.alarms.bell = true;
    // What holds already was told.
    let mut effects = second(&mut model, NOW + 1, Vec::new());
    effects.clear();
    let mut noted = Vec::new();
    for step in 0..20 {
        let now = NOW + 2 + step * 2;
        let fine = seen(A, now, Seen::Loads(vec![load(0, 5, 0, 0.62, 212.0), load(1, 5, 2, 0.81, 205.0)]));
        let told = second(&mut model, now, vec![fine, refused(B, now)]);
        noted.extend(outages(&told));
        effects.extend(told);
    }
    let of_b: Vec<_> = alerts(&effects).into_iter().filter(|(_, server)| server.as_deref() == Some("B")).collect();
    assert_eq!(of_b.len(), 1, "{of_b:?}");
    assert!(effects.iter().any(|e| matches!(e, Effect::Bell)));
    assert_eq!(noted, Vec::new(), "it lasts");
    let first = &model.derived.attention[0];
    assert_eq!(first.serving.as_ref().map(|p| &*p.server), Some("B"), "{:?}", model.derived.attention);
    // It comes back.
    for step in 0..40 {
        let now = NOW + 42 + step * 2;
        let seen = vec![
            seen(B, now, Seen::Info(info())),
            seen(B, now, Seen::Loads(vec![load(0, 0, 0, 0.0, 0.0), load(1, 0, 0, 0.0, 0.0)])),
        ];
        noted.extend(outages(&second(&mut model, now, seen)));
    }
    assert_eq!(noted.len(), 1, "{noted:?}");
    let (from, to, why) = &noted[0];
    assert!(*from >= at(NOW) && *from <= at(NOW + 8), "{from}");
    assert!(*to >= at(NOW + 40) && *to <= at(NOW + 60), "{to}");
    assert!(why.contains("B"), "{why}");
}

#[test]
fn an_outage_that_lasts_is_noted_when_the_screen_is_left() {
    let mut model = served((120, 40), scenes::look());
    for step in 0..10 {
        let now = NOW + 2 + step * 2;
        let _ = second(&mut model, now, vec![refused(A, now), refused(B, now)]);
    }
    let effects = update::update(&mut model, at(NOW + 30), Msg::Key(Key::Ctrl('c')));
    assert!(matches!(effects.last(), Some(Effect::Quit)), "{effects:?}");
    assert!(!outages(&effects).is_empty());
    // A screen that only looks writes nothing.
    let mut reader = served((120, 40), scenes::look());
    reader.steer.side = Side::Reader;
    for step in 0..10 {
        let now = NOW + 2 + step * 2;
        let _ = second(&mut reader, now, vec![refused(A, now), refused(B, now)]);
    }
    assert_eq!(outages(&update::update(&mut reader, at(NOW + 30), Msg::Key(Key::Ctrl('c')))), Vec::new());
}

#[test]
fn trials_say_that_they_wait_for_an_endpoint_that_is_down() {
    let mut model = served((220, 60), scenes::look());
    for step in 0..10 {
        let now = NOW + 2 + step * 2;
        let _ = second(&mut model, now, vec![refused(A, now), refused(B, now)]);
    }
    update::settle(&mut model);
    let text = cells::lines(&cells::draw(&mut model)).join("\n");
    assert!(text.contains("waiting: endpoint down"), "{text}");
}

#[test]
fn behind_a_router_that_is_gone_trials_wait_whatever_its_workers_do() {
    let mut model = scenes::model(&[scenes::running()], (220, 60), scenes::look());
    let source = Source { id: A, server: "front".into(), place: Place::Http("http://front:30000".into()) };
    model.serving = Serving::new(vec![source], Thresholds::shipped());
    (model.steer.notes, model.steer.side) = (true, Side::Attached);
    let worker = |n: u16| Worker {
        url: format!("http://gpu-{n}:30000").into(),
        rank: None,
        healthy: Some(true),
        circuit: None,
        load: Some(3),
        model: None,
    };
    let of = |n: u16, seen: Seen| Seen::OfWorker { worker: worker(n).url, seen: Box::new(seen) };
    let front = ServerInfo { engine: Some(Engine::Router), ..ServerInfo::default() };
    for step in 0..10 {
        let now = NOW + step * 2;
        let load = |n| Load { rank: None, ..load(n, 3, 0, 0.4, 150.0) };
        let all = vec![
            seen(A, now, Seen::Info(front.clone())),
            seen(A, now, Seen::Readiness { healthy: 2, total: 2 }),
            seen(A, now, Seen::Workers(vec![worker(1), worker(2)])),
            seen(A, now, of(1, Seen::Loads(vec![load(1)]))),
            seen(A, now, of(2, Seen::Loads(vec![load(2)]))),
        ];
        let _ = second(&mut model, now, all);
    }
    let text = cells::lines(&cells::draw(&mut model)).join("\n");
    assert!(text.contains("router ok, 2/2 replicas up") && text.contains("generating ~"), "{text}");
    for step in 10..20 {
        let _ = second(&mut model, NOW + step * 2, vec![refused(A, NOW + step * 2)]);
    }
    let text = cells::lines(&cells::draw(&mut model)).join("\n");
    assert!(text.contains("waiting: endpoint down"), "{text}");
    let effects = update::update(&mut model, at(NOW + 42), Msg::Key(Key::Ctrl('c')));
    assert_eq!(outages(&effects).len(), 1, "{effects:?}");
}

#[test]
fn a_trial_whose_terminal_moved_is_in_a_command() {
    let mut job = scenes::running();
    for t in &mut job.trials {
        if let Some(e) = t.0.evidence.as_mut()
            && e.trajectory.is_some()
        {
            e.cast = Some(FileFact { size: 10, modified: at(NOW - 130) });
        }
    }
    let mut model = scenes::model(&[job], (220, 60), scenes::look());
    let _ = update::update(&mut model, at(NOW + 1), Msg::Tick);
    let text = cells::lines(&cells::draw(&mut model)).join("\n");
    let row = text.lines().find(|l| l.contains("● feal-linear")).unwrap();
    assert!(row.contains("command 2 m"), "{row}");
}

/// Evidence row 22: trials for 19 hours, nothing runs or waits at the server, a command never returned.
#[test]
fn row_22_no_word_for_hours_beside_an_idle_server_is_a_command_that_blocks() {
    let hours = 19 * 3600;
    let mut job = scenes::running();
    for t in &mut job.trials {
        if let Some(e) = t.0.evidence.as_mut()
            && e.trajectory.is_some()
        {
            (e.stepped, e.cast) = (Some(at(NOW - hours)), None);
        }
    }
    let mut model = scenes::model(&[job], (220, 60), scenes::look());
    let source = Source { id: A, server: "A".into(), place: Place::Http("http://A:30000".into()) };
    model.serving = Serving::new(vec![source], Thresholds::shipped());
    let one = ServerInfo { dp_size: Some(1), ..info() };
    let mut row = |running: u32, from: i64| {
        for now in (from..from + 20).step_by(2) {
            let load = Load { rank: None, ..load(0, running, 0, 0.1, 80.0) };
            let all = vec![seen(A, now, Seen::Info(one.clone())), seen(A, now, Seen::Loads(vec![load]))];
            let _ = second(&mut model, now, all);
        }
        let text = cells::lines(&cells::draw(&mut model)).join("\n");
        text.lines().find(|l| l.contains("● feal-linear")).unwrap().to_string()
    };
    let idle = row(0, NOW);
    assert!(idle.contains("command 19 h ~"), "{idle}");
    // A server at work says nothing of the sort.
    let busy = row(3, NOW + 60);
    assert!(!busy.contains("command"), "{busy}");
}

#[test]
fn an_abort_asks_names_the_request_and_starts_on_the_harmless_choice() {
    let mut model = after(served((120, 40), scenes::look()), &[Key::Char('2'), Key::Char('X')]);
    let text = cells::lines(&cells::draw(&mut model)).join("\n");
    for word in ["abort one request?", "episode-7", "server A", "let it run"] {
        assert!(text.contains(word), "no {word}:\n{text}");
    }
    // Enter on the first choice does nothing.
    let effects = update::update(&mut model, at(NOW), Msg::Key(Key::Enter));
    assert!(effects.is_empty() && model.overlay.is_none());
    keys(&mut model, &[Key::Char('X'), Key::Char('j')]);
    let effects = update::update(&mut model, at(NOW), Msg::Key(Key::Enter));
    let order = effects.iter().find_map(|e| match e {
        Effect::Helm(Order::Abort(abort)) => Some(abort),
        _ => None,
    });
    let order = order.unwrap();
    assert_eq!((&*order.server, &*order.rid, order.worker.as_deref()), ("A", "episode-7", None));
    assert!(order.job.is_some(), "it is noted in the job's journal");
    // Where no id is known it says so.
    let mut model = after(served((120, 40), scenes::look()), &[Key::Char('2'), Key::Char('G'), Key::Char('X')]);
    assert!(model.overlay.is_none());
    assert!(model.notice.take().unwrap().text.contains("--log-requests"));
}

#[test]
fn the_end_of_a_job_leaves_a_summary_of_its_servers() {
    let mut model = served((120, 40), scenes::look());
    let mut over = scenes::running().facts;
    over.summary = Some(pilothouse::job::JobSummary { finished: Some(at(NOW + 1)), ..Default::default() });
    let mut effects =
        update::update(&mut model, at(NOW + 2), Msg::Jobs(vec![JobEvent::Job(JobKey(0), Box::new(over))]));
    for now in NOW + 3..NOW + 6 {
        effects.extend(second(&mut model, now, Vec::new()));
    }
    let remarks: Vec<_> = effects
        .iter()
        .filter_map(|e| match e {
            Effect::Helm(Order::Say(_, speech)) => speech.remark.clone(),
            _ => None,
        })
        .collect();
    assert_eq!(remarks.len(), 1, "{remarks:?}");
    assert_eq!(remarks[0].act, "serving");
    for word in ["A dp0: sglang 0.5.23", "at most 5 running and 0 queued", "B dp1"] {
        assert!(remarks[0].text.contains(word), "no {word} in {}", remarks[0].text);
    }
}

#[test]
fn without_a_server_the_view_says_how_to_name_one() {
    let mut model = after(scenes::model(&[scenes::running()], (120, 40), scenes::look()), &[Key::Char('2')]);
    let text = cells::lines(&cells::draw(&mut model)).join("\n");
    assert!(text.contains("no model server is watched"), "{text}");
}

#[test]
fn nothing_of_a_server_reaches_the_terminal_as_it_is() {
    let bad = "\u{1b}[31mred\u{202e}\u{7}\r\nsk-abcdefghijklmnopqrstuvwxyz0123456789";
    for size in SIZES {
        let mut model = scenes::model(&[scenes::running()], size, scenes::look());
        let place = Place::Http(format!("http://{bad}").into());
        let log = Place::File(Arc::from(std::path::Path::new(bad)));
        let sources =
            vec![Source { id: A, server: bad.into(), place }, Source { id: A_LOG, server: bad.into(), place: log }];
        model.serving = Serving::new(sources, Thresholds::shipped());
        (model.steer.notes, model.steer.side) = (true, Side::Attached);
        let who = ServerInfo { model: Some(bad.into()), version: Some(bad.into()), ..info() };
        for step in 0..5 {
            let now = NOW + step * 2;
            let how = Unreached::Refused;
            let all = vec![
                seen(A, now, Seen::Info(who.clone())),
                seen(A, now, Seen::Loads(vec![load(0, 5, 0, 0.99, 1.0)])),
                line(now, Severity::Error, LineKind::Other, bad),
                seen(A_LOG, now, Seen::LogLost(bad.into())),
                seen(A, now, Seen::Unreached { path: "/v1/loads", how, why: bad.into() }),
            ];
            let _ = second(&mut model, now, all);
        }
        for key in [Key::Char('1'), Key::Char('2'), Key::Tab, Key::Tab, Key::Tab, Key::Enter, Key::Char('!')] {
            keys(&mut model, &[key]);
            let buffer = cells::draw(&mut model);
            assert_eq!(cells::unsafe_cells(&buffer), Vec::<String>::new(), "after {key}");
        }
    }
}

/// A trial says the name of its call, and a log says which of two servers has it: it can be ended there.
#[test]
fn the_call_of_a_trial_can_be_ended_at_its_server() {
    use pilothouse::app::helm::{Crew, News};
    use pilothouse::job::work::{Call, Doing, Work};
    let mut model = served((120, 40), scenes::look());
    model.steer.side = Side::Owner;
    let tell = |model: &mut Model, news| {
        let _ = update::update(model, at(NOW), Msg::Helm(news));
        update::settle(model);
    };
    tell(&mut model, News::Crew(Crew { slots: 10, running: 9, ..Crew::default() }));
    let work = |rid: &str| {
        let call = Call { since: at(NOW - 600), heard: Some(at(NOW - 1)), reasoning: 40_000, answer: 0 };
        let work = Work { doing: Doing::Model(call), rid: Some(rid.into()), told: Some(at(NOW)), ..Work::default() };
        News::Work(vec![("build-pov-ray__aB3dEfG".into(), Some(work))])
    };
    tell(&mut model, work("episode-8"));
    let mut model = after(model, &typed("/pov"));
    keys(&mut model, &[Key::Enter, Key::Char('X')]);
    let text = |model: &mut Model| cells::lines(&cells::draw(model)).join("\n");
    assert!(!text(&mut model).contains("end this call"), "which server has it is not known");
    tell(&mut model, work("episode-7"));
    let shown = text(&mut model);
    assert!(shown.contains("end this call of the model") && shown.contains("request episode-7 at A"), "{shown}");
    keys(&mut model, &[Key::Down]);
    update::settle(&mut model);
    let effects = update::update(&mut model, at(NOW), Msg::Key(Key::Enter));
    let aborts: Vec<_> = effects
        .iter()
        .filter_map(|e| if let Effect::Helm(Order::Abort(abort)) = e { Some(abort) } else { None })
        .collect();
    assert_eq!(aborts.len(), 1, "{effects:?}");
    assert_eq!((&*aborts[0].rid, &*aborts[0].server), ("episode-7", "A"));
}
