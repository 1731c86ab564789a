//! `update(model, message) -> effects`: the only place where the model changes. Pure: no clock, no
//! I/O; the time comes with the call.

mod opening;
mod overlays;

use self::opening::open_replay;
pub use self::opening::{open_replay_at, open_trial, replay_only};
use super::action::{self, Action, Context};
use super::compare;
use super::derived;
use super::detail::{Tab, TrialView};
use super::effect::Effect;
use super::jobs;
use super::key::Key;
use super::memory;
use super::menus;
pub use super::message::Msg;
use super::model::{Model, Notice, Room, View};
use super::overlay::{Overlay, Palette, PromptKind};
use super::preview;
use super::replay::Reply;
use super::requeue;
use super::rows::{self, RowId};
use super::servers;
use super::steer;
use super::triage;
use crate::job::{JobEvent, Stamp, TrialKey};

/// Seconds that a notice stays.
const NOTICE_SECONDS: i64 = 6;

/// Rows from which on they are rebuilt only so often during a first scan.
const BIG: usize = 1500;
const BIG_PAUSE_MS: i128 = 250;

/// Takes in one message.
pub fn update(model: &mut Model, now: Stamp, msg: Msg) -> Vec<Effect> {
    let by_key = matches!(msg, Msg::Key(_));
    let mut effects = taken(model, now, msg);
    effects.extend(jobs::follow_up(model, by_key));
    effects.extend(servers::alarms::tell(model));
    if effects.iter().any(|e| matches!(e, Effect::Quit)) {
        // What is seen so far of an outage is noted before the screen is gone.
        let last = servers::notes::last(model);
        effects.splice(0..0, last);
    }
    effects
}

fn taken(model: &mut Model, now: Stamp, msg: Msg) -> Vec<Effect> {
    model.now = now;
    if model.notice.as_ref().is_some_and(|n| now.duration_since(n.since).as_secs() >= NOTICE_SECONDS) {
        model.notice = None;
    }
    match msg {
        Msg::Jobs(events) => {
            let mut effects = news(model, events);
            effects.extend(steer::live::beat(model));
            effects.extend(servers::guess::look(model));
            effects.extend(servers::tick(model));
            effects
        }
        Msg::Roster(events) => jobs::heard(model, events),
        Msg::Serving(observations) => servers::observe(model, observations),
        Msg::Key(key) => on_key(model, key),
        Msg::Paste(text) => overlays::paste(model, &text),
        Msg::Resize(columns, rows) => {
            model.size = (columns, rows);
            let mut effects = match &mut model.replay {
                Some(replay) => replay.act(Action::Redraw, picture(model.size)),
                None => Vec::new(),
            };
            if let Some(view) = &mut model.trial {
                view.resize(model.size);
                if model.replay.is_none() {
                    effects.extend(view.want_terminal());
                }
            }
            effects
        }
        Msg::Tick => {
            let mut effects = steer::live::beat(model);
            effects.extend(servers::guess::look(model));
            effects.extend(servers::tick(model));
            effects
        }
        Msg::Helm(news) => steer::news(model, news),
        Msg::Detail(reply) => model.trial.as_mut().map(|t| t.reply(reply)).unwrap_or_default(),
        Msg::Replay(Reply::Pane { serial, what }) => {
            model.trial.as_mut().map(|t| t.see(serial, what)).unwrap_or_default()
        }
        Msg::Replay(reply) => model.replay.as_mut().map(|r| r.reply(reply)).unwrap_or_default(),
        Msg::Notice(text) => {
            notice(model, text);
            Vec::new()
        }
    }
}

/// Brings rows, counts and order up to date; called once before a frame, not once per message.
pub fn settle(model: &mut Model) {
    let since = model.now.duration_since(model.built_at);
    // Counting thousands of trials takes milliseconds: while news pour in, not for each of them.
    let busy =
        model.rows.len() > BIG && since.as_millis() < BIG_PAUSE_MS && model.fleet.jobs().iter().any(|j| !j.settled);
    let held = model.rows.len() > BIG && model.ledger.holds_count(model.now);
    let changed = model.stale || (model.built != model.fleet.revision && !busy && !held);
    // Phases and states also change with time alone (a job that falls silent).
    let aged = since.as_secs() >= 1 && !held && model.moves();
    if !changed && !aged {
        servers::alarms::gather(model);
        jobs::refresh(model);
        return;
    }
    model.built = model.fleet.revision;
    model.built_at = model.now;
    let derived = derived::derive(&model.fleet, model.now, &model.counting);
    let mut rows = derived.tally.as_ref().map(|t| rows::build(&model.fleet, t)).unwrap_or_default();
    model.steer.works.overlay(&mut rows);
    let old = std::mem::replace(&mut model.rows, rows);
    model.derived = derived;
    derived::finish(&mut model.derived, &model.rows);
    steer::attention(model);
    jobs::attention(model);
    if model.stale {
        model.table.refresh(&model.rows, &model.fleet, model.now, true);
    } else {
        model.table.carry_over(&old, &model.rows, &model.fleet, model.now);
    }
    model.stale = false;
    servers::alarms::gather(model);
    if triage::is_open(model) {
        triage::refresh(model);
    }
    if model.views.contains(&View::Compare) {
        compare::refresh(model);
    } else {
        model.compare = None;
    }
    model.errors_at = model.errors_at.min(model.derived.errors.len().saturating_sub(1));
    model.log_at = model.log_at.min(model.derived.warnings.len().saturating_sub(1));
    jobs::refresh(model);
}

fn news(model: &mut Model, events: Vec<JobEvent>) -> Vec<Effect> {
    let open = model.trial.as_ref().map(|t| t.key.clone());
    let mut touched = false;
    let mut judged = false;
    for event in events {
        match (&event, &open) {
            (JobEvent::Trial(job, trial), Some(key)) => touched |= *job == key.job && trial.name == key.trial,
            (JobEvent::Class(job, name, _), Some(key)) => judged |= *job == key.job && *name == key.trial,
            (JobEvent::Notebook(job, _), Some(key)) => judged |= *job == key.job,
            _ => {}
        }
        let settled = if let JobEvent::Settled(key) = &event { Some(*key) } else { None };
        let event = match event {
            // What was said here and is not in there yet holds on.
            JobEvent::Notebook(key, read) => JobEvent::Notebook(key, Box::new(model.ledger.heard(key, *read))),
            event => event,
        };
        model.fleet.apply(event);
        if let Some(key) = settled {
            memory::settled(model, key);
        }
    }
    if judged {
        tell_evidence(model);
    }
    if let Some(key) = model.open_when_seen.as_ref().and_then(|name| known_trial(model, name)) {
        model.open_when_seen = None;
        return open_trial(model, key);
    }
    if !touched {
        return Vec::new();
    }
    let trial = open.and_then(|key| model.fleet.job(key.job)?.trials.get(&key.trial));
    match (&mut model.trial, trial) {
        (Some(view), Some(trial)) => view.changed(trial),
        _ => Vec::new(),
    }
}

/// What is said of the open trial is told anew.
pub(super) fn tell_evidence(model: &mut Model) {
    let Some(view) = &mut model.trial else { return };
    let job = model.fleet.job(view.key.job);
    if let Some((job, trial)) = job.and_then(|job| Some((job, job.trials.get(&view.key.trial)?))) {
        view.judge(job, trial);
    }
}

fn known_trial(model: &Model, name: &str) -> Option<TrialKey> {
    let job = model.fleet.jobs().iter().find(|job| job.trials.contains_key(name))?;
    Some(TrialKey { job: job.key, trial: name.into() })
}

/// Shows a message on the last line.
pub fn notice(model: &mut Model, text: impl Into<String>) {
    model.notice = Some(Notice { text: text.into(), since: model.now });
}

/// Columns and rows that the replay has for the terminal picture.
fn picture((columns, rows): (u16, u16)) -> (u16, u16) {
    (columns, rows.saturating_sub(4))
}

fn page(model: &Model) -> usize {
    usize::from(model.size.1).saturating_sub(8).max(1)
}

fn on_key(model: &mut Model, key: Key) -> Vec<Effect> {
    model.open_when_seen = None;
    if key == Key::Ctrl('c') {
        return steer::quit(model);
    }
    if model.overlay.is_some() {
        return overlays::key(model, key);
    }
    match action::lookup(model.context(), key) {
        Some(action) => act(model, action),
        None => {
            notice(model, format!("{key} does nothing here; ? lists what does"));
            Vec::new()
        }
    }
}

fn set_filter(model: &mut Model, text: &str) {
    if model.view() == View::Triage {
        return triage::filter(model, text);
    }
    match model.table.set_filter(text) {
        Ok(()) => model.stale = true,
        Err(why) => notice(model, why),
    }
}

/// The trials list, filtered.
pub(super) fn show_filtered(model: &mut Model, filter: &str) {
    home(model);
    set_filter(model, filter);
}

fn home(model: &mut Model) {
    model.views = vec![View::Trials];
    model.focus_errors = false;
}

fn show(model: &mut Model, view: View) {
    model.views = if view == View::Trials { vec![View::Trials] } else { vec![View::Trials, view] };
    model.focus_errors = false;
}

fn close_views(model: &mut Model) -> Vec<Effect> {
    let mut effects = Vec::new();
    if model.replay.take().is_some() {
        effects.push(Effect::Replay(super::replay::Request::Close));
    }
    if model.trial.is_some() {
        effects.extend(close_trial(model));
    }
    effects
}

fn close_trial(model: &mut Model) -> Vec<Effect> {
    let player = model.trial.take().is_some_and(|view| view.has_player());
    let mut effects = vec![Effect::Detail(super::detail::Request::Close), Effect::Watch(None)];
    effects.extend(player.then_some(Effect::Replay(super::replay::Request::Close)));
    effects
}

fn search(model: &mut Model, text: &str) -> Vec<Effect> {
    match model.view() {
        View::Trial => model.trial.as_mut().map(|t| t.search(text)).unwrap_or_default(),
        View::Replay => model.replay.as_mut().map(|r| r.search(text)).unwrap_or_default(),
        _ => Vec::new(),
    }
}

fn back(model: &mut Model) -> Vec<Effect> {
    match model.view() {
        View::Replay => {
            let left = model.replay.take().and_then(|view| {
                // At its end one looks at what is there now, and at no episode.
                let picture = view.picture.as_ref().filter(|p| !p.following && p.at < p.length);
                picture?.episode
            });
            if model.replay_only {
                return vec![Effect::Replay(super::replay::Request::Close), Effect::Quit];
            }
            model.views.pop();
            let mut effects = vec![Effect::Replay(super::replay::Request::Close)];
            if let Some(view) = &mut model.trial {
                effects.extend(left.map(|episode| view.left_replay_at(episode)).unwrap_or_default());
                effects.extend(view.want_terminal());
            }
            effects
        }
        View::Trial => {
            if let Some(effects) = model.trial.as_mut().and_then(TrialView::back) {
                return effects;
            }
            model.views.pop();
            close_trial(model)
        }
        View::Trials if model.focus_errors => {
            model.focus_errors = false;
            Vec::new()
        }
        View::Trials if !model.table.filter_text.is_empty() => {
            set_filter(model, "");
            Vec::new()
        }
        View::Trials if model.jobs.home => {
            show(model, View::Jobs);
            Vec::new()
        }
        View::Jobs if model.jobs.home => steer::quit(model),
        View::Trials => steer::quit(model),
        View::Serving if servers::back(model) => Vec::new(),
        View::Triage if !model.triage.filter_text.is_empty() => {
            set_filter(model, "");
            Vec::new()
        }
        _ => {
            model.views.pop();
            Vec::new()
        }
    }
}

/// Does an action in the current view.
pub fn act(model: &mut Model, action: Action) -> Vec<Effect> {
    if let Some(effects) = steer::act(model, action) {
        return effects;
    }
    match action {
        Action::Quit => return steer::quit(model),
        Action::Back => return back(model),
        Action::Help => {
            model.overlay = Some(Overlay::Help(0));
            return Vec::new();
        }
        Action::Palette => {
            model.overlay = Some(Overlay::Palette(Palette::new(model.context())));
            return Vec::new();
        }
        Action::Redraw => return vec![Effect::Redraw],
        Action::Suspend => return vec![Effect::Suspend],
        Action::ViewTrials
        | Action::ViewServing
        | Action::ViewErrors
        | Action::ViewTriage
        | Action::ViewLog
        | Action::ViewJobs
        | Action::ViewCompare => {
            if model.replay_only {
                notice(model, "no job is attached: pilothouse attach <dir>");
                return Vec::new();
            }
            let looked_at = model.trial.as_ref().map(|t| RowId::Trial(t.key.clone()));
            let effects = close_views(model);
            show(
                model,
                match action {
                    Action::ViewServing => View::Serving,
                    Action::ViewErrors => View::Errors,
                    Action::ViewTriage => View::Triage,
                    Action::ViewCompare => View::Compare,
                    Action::ViewLog => View::Log,
                    Action::ViewJobs => View::Jobs,
                    _ => View::Trials,
                },
            );
            if action == Action::ViewCompare {
                compare::refresh(model);
            }
            if action == Action::ViewTriage {
                // From a trial: at this one, where it is among them.
                let there = looked_at.filter(|id| model.rows.iter().any(|r| r.id == *id && triage::wanted(r)));
                model.triage.current = there.or(model.triage.current.take());
                triage::refresh(model);
            }
            return effects;
        }
        Action::Verdict => return triage::menu::verdict(model),
        Action::Note => return triage::menu::note(model),
        Action::Outage => return triage::outage::begin(model),
        Action::Undo => return triage::ledger::undo(model),
        Action::ResumePreview => return preview::begin(model),
        Action::Requeue => return requeue::begin(model, false),
        Action::RequeueInfra => return requeue::begin(model, true),
        Action::Mark if model.view() != View::Jobs => {
            mark(model);
            return Vec::new();
        }
        Action::NextAttention => return next_attention(model),
        Action::Copy => return copy(model),
        Action::SeekPercent(_) if model.context() != Context::Replay => return Vec::new(),
        _ => {}
    }
    match model.view() {
        View::Trial => trial_act(model, action),
        View::Replay => {
            if action == Action::Search {
                model.overlay = Some(Overlay::Prompt(PromptKind::Search, Default::default(), None));
                return Vec::new();
            }
            let size = picture(model.size);
            model.replay.as_mut().map(|r| r.act(action, size)).unwrap_or_default()
        }
        View::Triage => triage::act(model, action),
        View::Requeue => requeue::act(model, action),
        View::Preview => preview::act(model, action),
        View::Compare => compare::act(model, action),
        View::Serving => servers::act(model, action, page(model)),
        View::Jobs => jobs::act(model, action, page(model)),
        view => list_act(model, view, action),
    }
}

/// Marks the selected trial, or takes its mark away, and goes on.
fn mark(model: &mut Model) {
    match steer::trial(model).map(|r| r.id.clone()) {
        Some(RowId::Trial(key)) => {
            if !model.marked.remove(&key) {
                model.marked.insert(key);
            }
        }
        Some(slot) => {
            if !model.marked_slots.remove(&slot) {
                model.marked_slots.insert(slot);
            }
        }
        None => {
            notice(model, "no trial is selected here");
            return;
        }
    }
    if model.view() == View::Triage {
        triage::step(model, 1);
    } else {
        model.table.step(1, &model.rows, model.now);
    }
}

fn on_terminal(model: &Model) -> bool {
    model.trial.as_ref().is_some_and(|t| t.tab == Tab::Terminal)
}

fn trial_act(model: &mut Model, action: Action) -> Vec<Effect> {
    match action {
        Action::Search => {
            model.overlay = Some(Overlay::Prompt(PromptKind::Search, Default::default(), None));
            Vec::new()
        }
        Action::NextTrial | Action::PrevTrial if triage::is_open(model) => {
            let by = if action == Action::NextTrial { 1 } else { -1 };
            let moved = triage::step(model, by);
            match triage::current(model).map(|r| r.id.clone()) {
                Some(RowId::Trial(key)) if moved => open_trial(model, key),
                _ => {
                    notice(model, "no further item");
                    Vec::new()
                }
            }
        }
        Action::NextTrial | Action::PrevTrial => {
            let by = if action == Action::NextTrial { 1 } else { -1 };
            model.table.step(by, &model.rows, model.now);
            match model.selected_trial() {
                Some(key) => open_trial(model, key),
                None => {
                    model.table.step(-by, &model.rows, model.now);
                    notice(model, "no further trial that has a directory");
                    Vec::new()
                }
            }
        }
        Action::OpenReplay | Action::Open if action == Action::OpenReplay || on_terminal(model) => {
            // A terminal that is looked at is not left for an episode long ago.
            let live = on_terminal(model) && model.trial.as_ref().is_some_and(|t| t.terminal.at.is_none());
            let at = model.trial.as_ref().map(|t| (t.key.clone(), if live { None } else { t.episode() }));
            match at {
                Some((key, episode)) => open_replay(model, &key, episode),
                None => Vec::new(),
            }
        }
        action => {
            let (height, size) = (page(model), model.size);
            let Some(view) = model.trial.as_mut() else { return Vec::new() };
            view.resize(size);
            view.act(action, height)
        }
    }
}

fn list_act(model: &mut Model, view: View, action: Action) -> Vec<Effect> {
    let errors_focused = view == View::Errors || (view == View::Trials && model.focus_errors);
    match action {
        Action::Filter => {
            home(model);
            let input = super::input::Input::new(&model.table.filter_text);
            model.overlay = Some(Overlay::Prompt(PromptKind::Filter, input, None));
        }
        Action::FilterMenu => model.overlay = Some(Overlay::Menu(menus::filters(model))),
        Action::ClearFilter => set_filter(model, ""),
        Action::SortMenu => model.overlay = Some(Overlay::Menu(menus::sorts(model))),
        Action::InvertSort => {
            model.table.inverted = !model.table.inverted;
            model.stale = true;
        }
        Action::Acts => model.overlay = Some(Overlay::Menu(menus::acts(model))),
        Action::NextPane => match (view, model.room()) {
            (View::Trials, Room::Double) if !model.zoom => model.focus_errors = !model.focus_errors,
            (View::Trials, _) => show(model, View::Errors),
            _ => show(model, View::Trials),
        },
        Action::Zoom => model.zoom = !model.zoom,
        Action::OpenReplay => {
            return match model.selected_trial() {
                Some(key) => open_replay(model, &key, None),
                None => {
                    notice(model, "nothing to replay: this slot has not begun");
                    Vec::new()
                }
            };
        }
        Action::Open => return open(model, view, errors_focused),
        Action::Down | Action::Up | Action::PageDown | Action::PageUp | Action::Top | Action::Bottom => {
            let page = page(model) as isize;
            let by = match action {
                Action::Down => 1,
                Action::Up => -1,
                Action::PageDown => page,
                Action::PageUp => -page,
                Action::Top => isize::MIN / 2,
                _ => isize::MAX / 2,
            };
            let (at, len) = match view {
                View::Trials if !errors_focused => {
                    model.table.step(by, &model.rows, model.now);
                    return Vec::new();
                }
                View::Log => (&mut model.log_at, model.derived.warnings.len()),
                _ => (&mut model.errors_at, model.derived.errors.len()),
            };
            *at = at.saturating_add_signed(by).min(len.saturating_sub(1));
        }
        _ => {}
    }
    Vec::new()
}

fn open(model: &mut Model, view: View, errors_focused: bool) -> Vec<Effect> {
    match view {
        View::Log => {
            let target = model.derived.warnings.get(model.log_at).and_then(|w| w.target.clone());
            match target {
                Some(key) => return open_trial(model, key),
                None => notice(model, "this one is about no trial; y copies its path"),
            }
        }
        _ if errors_focused => {
            if let Some(group) = model.derived.errors.get(model.errors_at) {
                let filter = group.filter.clone();
                set_filter(model, &filter);
                home(model);
            }
        }
        _ => match model.selected_trial() {
            Some(key) => return open_trial(model, key),
            None if model.rows.is_empty() => notice(model, "no trial yet"),
            None => notice(model, "this slot has not begun: there is no trial to open"),
        },
    }
    Vec::new()
}

fn next_attention(model: &mut Model) -> Vec<Effect> {
    let items = &model.derived.attention;
    if items.is_empty() {
        notice(model, "nothing needs you");
        return Vec::new();
    }
    let at = model.attention_at % items.len();
    let Some(item) = items.get(at).cloned() else { return Vec::new() };
    let (text, target) = (item.text, item.target);
    model.attention_at = at + 1;
    let message = format!("{} of {}: {text}", at + 1, model.derived.attention.len());
    let mut effects = Vec::new();
    if let Some(point) = &item.serving {
        effects = close_views(model);
        show(model, View::Serving);
        servers::show_diagnosis(model, point.kind, &point.server, point.replica.as_ref());
    }
    if let Some(key) = target {
        effects = close_views(model);
        home(model);
        let id = RowId::Trial(key);
        if !model.table.select(&id, &model.rows, model.now) {
            set_filter(model, "");
            model.table.refresh(&model.rows, &model.fleet, model.now, true);
            model.table.select(&id, &model.rows, model.now);
        }
    }
    notice(model, message);
    effects
}

fn copy(model: &mut Model) -> Vec<Effect> {
    let text = match model.view() {
        View::Trial => model.trial.as_ref().map(|t| t.copy_text()),
        View::Replay => model.replay.as_ref().map(|r| r.source.path.display().to_string()),
        View::Log => model.derived.warnings.get(model.log_at).map(|w| w.path.clone()).filter(|p| !p.is_empty()),
        View::Jobs => jobs::copy_text(model),
        View::Stop => model.steer.stop.as_ref().map(|s| match s.findings().get(s.cursor) {
            Some(finding) => finding.what.clone(),
            None => s.place.dir.display().to_string(),
        }),
        View::Errors => model.derived.errors.get(model.errors_at).map(|e| e.kind.to_string()),
        View::Requeue => requeue::copy_text(model),
        View::Serving => servers::copy_text(model),
        View::Compare => model.compare.as_ref().and_then(|c| c.row()).map(|r| r.task.to_string()),
        View::Preview => model.preview.as_ref().and_then(|p| p.text.clone()?.ok()),
        View::Triage => triage::current(model).and_then(|row| {
            let job = model.fleet.job(row.job)?;
            Some(job.facts.dir.join(&*row.name).display().to_string())
        }),
        View::Trials => model.table.selected_row(&model.rows).and_then(|row| {
            let job = model.fleet.job(row.job)?;
            Some(job.facts.dir.join(&*row.name).display().to_string())
        }),
    };
    match text {
        Some(text) => vec![Effect::Copy(text)],
        None => {
            notice(model, "nothing here to copy");
            Vec::new()
        }
    }
}
