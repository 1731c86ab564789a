//! Stopping a job: who works on it, the wait for its end, and the audit of what it left.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::super::action::Action;
use super::super::effect::Effect;
use super::super::helm::{Audit, Finding, Hand, News, Order, Over, Place, Side, Signal, Stopping, Survey, Waiting};
use super::super::model::{Model, View};
use super::super::overlay::Overlay;
use super::super::update::notice;
use super::ask::{Ask, Asking, Content, Deed, Offer, Tone, names};
use crate::job::{JobKey, Stamp};

/// A stop from its first question to the last thing that was mended.
#[derive(Debug, Clone, PartialEq)]
pub struct StopState {
    /// Which job.
    pub place: Place,
    /// Its name.
    pub name: Arc<str>,
    /// Who works on it; None while that is looked for.
    pub survey: Option<Result<Survey, String>>,
    /// When it was asked to stop, and by which signal (none: from its own screen).
    pub asked: Option<(Stamp, Option<Signal>)>,
    /// How the wait stands.
    pub waiting: Option<Waiting>,
    /// When it had ended, in words.
    pub ended: Option<(Stamp, String)>,
    /// What the audit found; None before there is one.
    pub audit: Option<Result<Audit, String>>,
    /// Findings that are being mended.
    pub mending: BTreeSet<usize>,
    /// Selected finding.
    pub cursor: usize,
}

impl StopState {
    fn new(place: Place, name: Arc<str>) -> StopState {
        StopState {
            place,
            name,
            survey: None,
            asked: None,
            waiting: None,
            ended: None,
            audit: None,
            mending: BTreeSet::new(),
            cursor: 0,
        }
    }

    /// The findings, none before the audit.
    pub fn findings(&self) -> &[Finding] {
        match &self.audit {
            Some(Ok(audit)) => &audit.findings,
            _ => &[],
        }
    }

    /// Findings that can be mended and are not yet, by their place.
    pub fn open(&self) -> Vec<usize> {
        let open = |(at, f): &(usize, &Finding)| {
            f.mend.is_some() && !matches!(f.mended, Some(Ok(_))) && !self.mending.contains(at)
        };
        self.findings().iter().enumerate().filter(open).map(|(at, _)| at).collect()
    }

    /// Findings that were mended.
    pub fn mended(&self) -> usize {
        self.findings().iter().filter(|f| matches!(f.mended, Some(Ok(_)))).count()
    }

    /// True from the order to the end of the process.
    pub fn waits(&self) -> bool {
        self.asked.is_some() && self.ended.is_none()
    }
}

/// The key `s`: asks, or shows the stop that is under way or over.
pub fn begin(model: &mut Model) -> Vec<Effect> {
    let key = super::job(model).map(|j| j.key);
    let shown = model.view() == View::Stop;
    if let Some(stop) = &model.steer.stop {
        let same = key.is_none_or(|key| key == stop.place.job);
        if same && !shown && (stop.waits() || (stop.audit.is_some() && super::why_not_stop(model).is_some())) {
            model.views.push(View::Stop);
            return Vec::new();
        }
    }
    let why = super::why_not_stop(model);
    let found = key.and_then(|key| {
        let name = model.fleet.job(key)?.facts.name.clone();
        Some((super::place(model, key)?, name))
    });
    let Some((place, name)) = found else {
        match why {
            Some(why) => notice(model, why),
            // Its directory has not been read yet.
            None if model.steer.side == Side::Owner => {
                model.overlay = Some(Overlay::Ask(Asking::new(Ask::Stop(JobKey(0)))));
            }
            None => {}
        }
        return Vec::new();
    };
    if let Some(why) = why {
        if model.steer.side != Side::Attached {
            notice(model, why);
            return Vec::new();
        }
        // Nobody is there to be stopped; what somebody left can be looked at.
        let mut stop = StopState::new(place.clone(), name);
        stop.ended = Some((model.now, why));
        model.steer.stop = Some(stop);
        show(model);
        return vec![Effect::Helm(Order::Audit(place))];
    }
    model.overlay = Some(Overlay::Ask(Asking::new(Ask::Stop(place.job))));
    if model.steer.side == Side::Owner {
        return Vec::new();
    }
    match &mut model.steer.stop {
        Some(stop) if stop.place == place && stop.waits() => stop.survey = None,
        _ => model.steer.stop = Some(StopState::new(place.clone(), name)),
    }
    match model.fleet.job(place.job) {
        Some(job) => vec![Effect::Helm(Order::Survey(place, Arc::new(job.clone())))],
        None => Vec::new(),
    }
}

/// The stop was ordered: by a signal, or from the owner's own screen.
pub fn stopping(model: &mut Model, signal: Option<Signal>) {
    let now = model.now;
    if signal.is_none() {
        own(model);
    }
    if let Some(stop) = &mut model.steer.stop {
        stop.asked = Some((now, signal));
        (stop.ended, stop.audit, stop.waiting) = (None, None, None);
    }
    show(model);
}

/// The stop of the owner's own job.
fn own(model: &mut Model) {
    let Some(job) = model.fleet.jobs().first() else { return };
    let (place, name) = (Place { job: job.key, dir: job.facts.dir.clone() }, job.facts.name.clone());
    if model.steer.stop.as_ref().is_none_or(|s| s.place != place) {
        model.steer.stop = Some(StopState::new(place, name));
    }
}

fn show(model: &mut Model) {
    if model.view() != View::Stop && model.steer.stop.is_some() {
        model.views.push(View::Stop);
    }
}

/// The owner's job is over. After a stop, what it left is looked for.
pub fn over(model: &mut Model, over: Over) -> Vec<Effect> {
    let stopped = model.steer.crew.is_some_and(|c| c.stopping != Stopping::No) || over.broken;
    notice(model, over.words.clone());
    let words = over.words.clone();
    model.steer.over = Some(over);
    if !stopped {
        return Vec::new();
    }
    own(model);
    let now = model.now;
    match &mut model.steer.stop {
        Some(stop) => {
            stop.ended = Some((now, words));
            vec![Effect::Helm(Order::Audit(stop.place.clone()))]
        }
        None => Vec::new(),
    }
}

/// News of a stop.
pub fn news(model: &mut Model, news: News) -> Vec<Effect> {
    let now = model.now;
    let about = match &news {
        News::Surveyed(key, _)
        | News::Waiting(key, _)
        | News::NotSent(key, _)
        | News::Stopped(key, _)
        | News::Audited(key, _)
        | News::Mended(key, ..) => *key,
        _ => return Vec::new(),
    };
    let mut said = None;
    let mut effects = Vec::new();
    let Some(stop) = model.steer.stop.as_mut().filter(|s| s.place.job == about) else { return effects };
    match news {
        News::Surveyed(_, survey) => stop.survey = Some(survey),
        News::Waiting(_, waiting) => stop.waiting = Some(waiting),
        News::NotSent(_, why) => {
            // It was asked for and did not happen: there is nothing to wait for.
            (stop.asked, stop.waiting) = (None, None);
            stop.survey = Some(Err(why.clone()));
            said = Some(why);
            if model.view() == View::Stop {
                model.views.pop();
            }
        }
        News::Stopped(_, words) => {
            stop.ended = Some((now, words));
            effects.push(Effect::Helm(Order::Audit(stop.place.clone())));
        }
        News::Audited(_, audit) => {
            let words = audit.as_ref().map_or_else(Clone::clone, |a| a.summary.clone());
            said = Some(format!("{words}; s shows it"));
            (stop.audit, stop.cursor) = (Some(audit), 0);
            stop.mending.clear();
        }
        News::Mended(_, at, result) => {
            stop.mending.remove(&at);
            if let Some(Ok(audit)) = &mut stop.audit
                && let Some(finding) = audit.findings.get_mut(at)
            {
                finding.mended = Some(result);
            }
        }
        _ => {}
    }
    if let Some(said) = said.filter(|_| model.view() != View::Stop) {
        notice(model, said);
    }
    effects
}

/// An action in the stop's own view; None: one that every view has.
pub fn act(model: &mut Model, action: Action) -> Option<Vec<Effect>> {
    let stop = model.steer.stop.as_mut()?;
    let last = stop.findings().len().saturating_sub(1);
    match action {
        Action::Down => stop.cursor = (stop.cursor + 1).min(last),
        Action::Up => stop.cursor = stop.cursor.saturating_sub(1),
        Action::PageDown => stop.cursor = (stop.cursor + 10).min(last),
        Action::PageUp => stop.cursor = stop.cursor.saturating_sub(10),
        Action::Top => stop.cursor = 0,
        Action::Bottom => stop.cursor = last,
        Action::Open | Action::MendAll => {
            let open = stop.open();
            let one = (action == Action::Open).then_some(stop.cursor);
            let why = match (stop.findings().get(stop.cursor), one) {
                (None, _) if stop.audit.is_some() => Some("nothing to mend".to_string()),
                (None, _) => Some("there is no audit yet".to_string()),
                (_, None) if open.is_empty() => Some("nothing is left to mend".to_string()),
                (Some(f), Some(at)) if !open.contains(&at) => Some(match (&f.mend, &f.mended) {
                    (_, Some(Ok(words))) => format!("mended: {words}"),
                    (None, _) => "this one can not be mended from here".to_string(),
                    _ => "it is being mended".to_string(),
                }),
                _ => None,
            };
            match why {
                Some(why) => notice(model, why),
                None => model.overlay = Some(Overlay::Ask(Asking::new(Ask::Mend(one)))),
            }
        }
        Action::Refresh if stop.waits() => notice(model, "it has not ended yet"),
        Action::Refresh => {
            stop.audit = None;
            return Some(vec![Effect::Helm(Order::Audit(stop.place.clone()))]);
        }
        _ => return None,
    }
    Some(Vec::new())
}

/// What is to be mended: one finding, or all that are open.
fn chosen(stop: &StopState, which: Option<usize>) -> Vec<usize> {
    let open = stop.open();
    match which {
        Some(at) => open.into_iter().filter(|o| *o == at).collect(),
        None => open,
    }
}

/// Orders the mends.
pub fn mend(model: &mut Model, which: Option<usize>) -> Vec<Effect> {
    let Some(stop) = &mut model.steer.stop else { return Vec::new() };
    let chosen = chosen(stop, which);
    stop.mending.extend(&chosen);
    vec![Effect::Helm(Order::Mend(stop.place.clone(), chosen))]
}

/// The question before something is mended: names it all.
pub fn mend_content(model: &Model, which: Option<usize>) -> Content {
    let mut out = Content { title: "mend".to_string(), ..Content::default() };
    let Some(stop) = &model.steer.stop else { return out };
    let chosen = chosen(stop, which);
    let findings: Vec<&Finding> = chosen.iter().filter_map(|at| stop.findings().get(*at)).collect();
    for f in &findings {
        let mend = f.mend.as_deref().unwrap_or("-");
        let named = mend.contains(&f.what);
        out.say(Tone::Plain, if named { mend.to_string() } else { format!("{mend}: {}", f.what) });
    }
    match findings.len() {
        0 => {
            out.say(Tone::Plain, "nothing is left to mend");
            out.offer(Deed::Keep, "close", "");
        }
        1 => {
            out.title = "mend this?".to_string();
            out.offer(Deed::Keep, "leave it as it is", "");
            out.offer(Deed::Mend, "mend it", "");
        }
        n => {
            out.title = format!("mend these {n}?");
            out.offer(Deed::Keep, "leave them as they are", "");
            out.offer(Deed::Mend, format!("mend all {n}"), "");
        }
    }
    out
}

/// The question before another process is stopped.
pub fn content(model: &Model, key: JobKey) -> Content {
    let mut out = Content::default();
    let name = model.job_name(key);
    out.title = format!("stop {name}?");
    let survey = model.steer.stop.as_ref().filter(|s| s.place.job == key).and_then(|s| s.survey.as_ref());
    out.offer(Deed::Keep, "keep running", "");
    match survey {
        None => out.say(Tone::Dim, "looking for the process that works on it"),
        Some(Err(why)) => {
            out.say(Tone::Alarm, why.clone());
            if let Some(keep) = out.offers.first_mut() {
                keep.label = "close".to_string();
            }
        }
        Some(Ok(survey)) => {
            // What it costs and what is to be known comes before what is long.
            survey.touched.iter().for_each(|line| out.say(Tone::Strong, line.clone()));
            survey.warnings.iter().for_each(|line| out.say(Tone::Alarm, line.clone()));
            out.say(Tone::Plain, format!("pid {}", survey.pid));
            survey.process.iter().for_each(|line| out.say(Tone::Plain, line.clone()));
            names(model, key, &mut out);
            for way in &survey.ways {
                out.offer(Deed::Send(way.signal), format!("stop with {}", way.signal.word()), way.price.clone());
            }
        }
    }
    // With the helm it need not be a signal.
    let crew = model.steer.crew.filter(|c| model.steer.linked() && c.stopping == Stopping::No);
    if let Some(crew) = crew.filter(|_| model.steer.hand == Hand::Mine) {
        let price = format!("let {} running finish; {} will not begin", crew.running, crew.queued);
        out.offers.insert(1.min(out.offers.len()), Offer { deed: Deed::Drain, label: "drain".to_string(), price });
    }
    out
}
