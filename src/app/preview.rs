//! What `harbor job resume` would do to a job, told before anybody does it. Pure.

use super::action::Action;
use super::effect::Effect;
use super::helm::{Order, Place, Side};
use super::model::{Model, View};
use super::steer;
use super::update::notice;
use crate::job::JobKey;

/// The look ahead at one job.
#[derive(Debug, Clone)]
pub struct Preview {
    /// Which job.
    pub place: Place,
    /// Its name.
    pub name: String,
    /// What is told; None while it is looked for.
    pub text: Option<Result<String, String>>,
    /// Lines that are scrolled away.
    pub top: usize,
}

/// Looks ahead for the job that is looked at.
pub fn begin(model: &mut Model) -> Vec<Effect> {
    if model.steer.side == Side::Reader {
        notice(model, "nothing is looked at for a resume here: this screen only looks");
        return Vec::new();
    }
    let Some(job) = steer::job(model) else {
        notice(model, "several jobs: select a trial or, on 6, the job");
        return Vec::new();
    };
    let (place, name) = (Place { job: job.key, dir: job.facts.dir.clone() }, job.facts.name.to_string());
    model.preview = Some(Preview { place: place.clone(), name, text: None, top: 0 });
    if model.view() != View::Preview {
        model.views.push(View::Preview);
    }
    vec![Effect::Helm(Order::Preview(place))]
}

/// It was told.
pub fn heard(model: &mut Model, job: JobKey, text: Result<String, String>) {
    if let Some(preview) = model.preview.as_mut().filter(|p| p.place.job == job) {
        preview.text = Some(text);
    }
}

/// An action in its view.
pub fn act(model: &mut Model, action: Action) -> Vec<Effect> {
    let Some(preview) = &mut model.preview else { return Vec::new() };
    let page = usize::from(model.size.1).saturating_sub(10).max(1);
    preview.top = match action {
        Action::Down => preview.top.saturating_add(1),
        Action::Up => preview.top.saturating_sub(1),
        Action::PageDown => preview.top.saturating_add(page),
        Action::PageUp => preview.top.saturating_sub(page),
        Action::Top => 0,
        Action::Bottom => usize::MAX / 2,
        Action::Refresh => return begin(model),
        _ => preview.top,
    };
    Vec::new()
}
