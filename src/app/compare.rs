//! Runs beside each other, task by task. Pure.

use super::action::Action;
use super::effect::Effect;
use super::model::Model;
use super::update::notice;
use crate::job::Stamp;
use crate::job::compare::{Comparison, TaskRow, compare};

/// While the jobs change, it is compared anew so often at most.
const PAUSE_MS: i128 = 1000;

/// The comparison, and the place in it.
#[derive(Debug)]
pub struct Compare {
    /// What is compared.
    pub comparison: Comparison,
    /// Tasks that are shown, those that flip first: indices into the rows.
    pub order: Vec<usize>,
    /// Only those that flip.
    pub flips: bool,
    /// Selected line.
    pub at: usize,
    revision: u64,
    made: Stamp,
}

impl Compare {
    fn arrange(&mut self) {
        let rows = &self.comparison.rows;
        let flips = |i: &usize| rows.get(*i).is_some_and(TaskRow::flips);
        self.order = (0..rows.len()).filter(|i| !self.flips || flips(i)).collect();
        // Within each half they stay by name.
        self.order.sort_by_key(|i| !flips(i));
        self.at = self.at.min(self.order.len().saturating_sub(1));
    }

    /// The selected task.
    pub fn row(&self) -> Option<&TaskRow> {
        self.comparison.rows.get(*self.order.get(self.at)?)
    }
}

/// Brings the comparison up to date; the selected task stays.
pub fn refresh(model: &mut Model) {
    let revision = model.fleet.revision;
    let fresh = |c: &Compare| c.revision == revision || model.now.duration_since(c.made).as_millis() < PAUSE_MS;
    if model.compare.as_ref().is_some_and(fresh) {
        return;
    }
    let before = model.compare.take();
    let selected = before.as_ref().and_then(|c| c.row()).map(|r| r.task.clone());
    let mut now = Compare {
        comparison: compare(&model.fleet, model.now),
        order: Vec::new(),
        flips: before.as_ref().is_some_and(|c| c.flips),
        at: before.as_ref().map_or(0, |c| c.at),
        revision,
        made: model.now,
    };
    now.arrange();
    let found = selected
        .and_then(|task| now.order.iter().position(|i| now.comparison.rows.get(*i).is_some_and(|r| r.task == task)));
    now.at = found.unwrap_or(now.at);
    model.compare = Some(now);
}

/// An action in its view.
pub fn act(model: &mut Model, action: Action) -> Vec<Effect> {
    let page = usize::from(model.size.1).saturating_sub(12).max(1);
    let Some(view) = &mut model.compare else { return Vec::new() };
    let last = view.order.len().saturating_sub(1);
    view.at = match action {
        Action::Down => (view.at + 1).min(last),
        Action::Up => view.at.saturating_sub(1),
        Action::PageDown => (view.at + page).min(last),
        Action::PageUp => view.at.saturating_sub(page),
        Action::Top => 0,
        Action::Bottom => last,
        Action::Similar => {
            view.flips = !view.flips;
            view.arrange();
            let said = if view.flips { "only tasks that some solved and others did not" } else { "all tasks" };
            notice(model, said);
            return Vec::new();
        }
        Action::Open => {
            // The task may carry its agent.
            let task = view.row().map(|r| r.task.split('@').next().unwrap_or_default().to_string());
            if let Some(task) = task {
                super::update::show_filtered(model, &format!("task:={task}"));
            }
            return Vec::new();
        }
        _ => view.at,
    };
    Vec::new()
}
