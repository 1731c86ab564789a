//! Running trials again, from the screen: the plan, its terms, its start. Pure; what it needs from disk
//! and the process come by the helm.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::action::Action;
use super::effect::Effect;
use super::helm::{Order, Progress, Side, Wish};
use super::input::Input;
use super::model::{Model, View};
use super::overlay::{Overlay, PromptKind};
use super::rows::{Outcome, RowId};
use super::steer;
use super::update::notice;
use crate::job::{Class, JobKey};
use crate::requeue::plan::{Ask, Plan, Prepared};
use crate::requeue::{Terms, Wanted, Way};

/// What the keys are on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Field {
    /// Leave it: the harmless one, first.
    Cancel,
    /// The operator's reason.
    Reason,
    /// Another address of the model.
    Endpoint,
    /// Run again what would be refused, for the reason.
    Force,
    /// The operator's own mistake is mended.
    ConfigFixed,
    /// Start it.
    Start,
}

/// A requeue that is being made up.
#[derive(Debug, Clone)]
pub struct Draft {
    serial: u64,
    /// What is wanted, by job.
    pub wanted: Vec<(JobKey, Wanted)>,
    /// The operator's reason.
    pub reason: String,
    /// Another address of the model; empty: as before.
    pub endpoint: String,
    /// What would be refused is run for the reason.
    pub force: bool,
    /// The operator's own mistake is mended.
    pub config_fixed: bool,
    /// The plans; None while they are made.
    pub prepared: Option<Prepared>,
    /// What the keys are on.
    pub focus: Field,
    /// Lines of the text that are scrolled away.
    pub top: usize,
    /// It was ordered; what becomes of it is told.
    pub ordered: bool,
}

impl Draft {
    /// What can be chosen, the harmless one first.
    pub fn fields(&self) -> Vec<Field> {
        let refused = |way| self.prepared.iter().flat_map(|p| &p.refused).any(|r| r.way == way);
        let mut out = vec![Field::Cancel, Field::Reason, Field::Endpoint];
        if self.force || refused(Way::Force) {
            out.push(Field::Force);
        }
        if self.config_fixed || refused(Way::ConfigFixed) {
            out.push(Field::ConfigFixed);
        }
        out.push(Field::Start);
        out
    }

    /// The plans.
    pub fn plans(&self) -> &[Plan] {
        self.prepared.as_ref().map_or(&[], |p| &p.plans)
    }

    /// Trials of all plans.
    pub fn n(&self) -> usize {
        self.plans().iter().map(|p| p.rows.len()).sum()
    }

    /// Why it can not be started; None: it can.
    pub fn why_not(&self) -> Option<String> {
        let plans = self.plans();
        if self.prepared.is_none() {
            return Some("the plan is being made".to_string());
        }
        if self.ordered {
            return Some("it is being started".to_string());
        }
        if plans.is_empty() {
            return Some("there is nothing to run again".to_string());
        }
        plans.iter().flat_map(Plan::obstacles).next()
    }
}

/// Why nothing can be run again from here; None: it can.
pub fn why_not(model: &Model) -> Option<String> {
    (model.steer.side == Side::Reader).then(|| "nothing can be run again here: this screen only looks".to_string())
}

/// The marked trials, else the one that is looked at.
fn chosen(model: &Model) -> Vec<(JobKey, Wanted)> {
    let mut names: Vec<(JobKey, Arc<str>)> =
        model.marked.iter().filter(|k| steer::row(model, k).is_some()).map(|k| (k.job, k.trial.clone())).collect();
    if names.is_empty()
        && let Some(row) = steer::trial(model)
        && let RowId::Trial(key) = &row.id
        && !matches!(row.outcome, Outcome::Running | Outcome::Queued)
    {
        names.push((key.job, key.trial.clone()));
    }
    let jobs: BTreeSet<JobKey> = names.iter().map(|(job, _)| *job).collect();
    let of = |job: JobKey| names.iter().filter(|(j, _)| *j == job).map(|(_, n)| n.clone()).collect();
    jobs.into_iter().map(|job| (job, Wanted { trials: of(job), ..Wanted::default() })).collect()
}

/// Begins: the marked trials or the one that is looked at, or with `infra` all that failed for their
/// surroundings.
pub fn begin(model: &mut Model, infra: bool) -> Vec<Effect> {
    if let Some(why) = why_not(model) {
        notice(model, why);
        return Vec::new();
    }
    let previewed = (model.view() == View::Preview).then(|| model.preview.as_ref().map(|p| p.place.job)).flatten();
    let wanted = if let Some(job) = previewed {
        // Instead of a resume: what that would run again.
        vec![(job, Wanted { unscored: true, ..Wanted::default() })]
    } else if infra {
        let of_infra = |job: JobKey| {
            model.rows.iter().any(|r| {
                r.job == job && r.superseded.is_none() && r.class.as_ref().is_some_and(|c| c.class == Class::Infra)
            })
        };
        let jobs = model.fleet.jobs().iter().map(|j| j.key).filter(|key| of_infra(*key));
        jobs.map(|job| (job, Wanted { infra: true, ..Wanted::default() })).collect()
    } else {
        chosen(model)
    };
    if wanted.is_empty() {
        let why = match infra {
            true => "no trial failed for its surroundings, as far as its class is known",
            false => "no trial that has ended is marked or selected: Space marks",
        };
        notice(model, why);
        return Vec::new();
    }
    let serial = model.requeue.as_ref().map_or(0, |d| d.serial) + 1;
    model.requeue = Some(Draft {
        serial,
        wanted,
        reason: String::new(),
        endpoint: String::new(),
        force: false,
        config_fixed: false,
        prepared: None,
        focus: Field::Cancel,
        top: 0,
        ordered: false,
    });
    if model.view() != View::Requeue {
        model.views.push(View::Requeue);
    }
    plan(model)
}

/// Has the plan made anew.
fn plan(model: &mut Model) -> Vec<Effect> {
    let fleet = Arc::new(model.fleet.clone());
    let Some(draft) = &mut model.requeue else { return Vec::new() };
    draft.serial += 1;
    let text = |text: &str| Some(text.trim().to_string()).filter(|t| !t.is_empty());
    let reason: Option<Arc<str>> = text(&draft.reason).map(Into::into);
    let wish = Wish {
        serial: draft.serial,
        fleet,
        wanted: draft.wanted.clone(),
        terms: Terms {
            force: reason.clone().filter(|_| draft.force),
            config_fixed: draft.config_fixed,
            ..Terms::default()
        },
        ask: Ask { api_base: text(&draft.endpoint), reason, ..Ask::default() },
    };
    vec![Effect::Helm(Order::Prepare(Box::new(wish)))]
}

/// The plan was made.
pub fn prepared(model: &mut Model, serial: u64, prepared: Prepared) {
    if let Some(draft) = model.requeue.as_mut().filter(|d| d.serial == serial) {
        draft.prepared = Some(prepared);
        if !draft.fields().contains(&draft.focus) {
            draft.focus = Field::Cancel;
        }
    }
}

/// An action in the view of the plan.
pub fn act(model: &mut Model, action: Action) -> Vec<Effect> {
    let Some(draft) = &mut model.requeue else { return Vec::new() };
    let fields = draft.fields();
    let at = fields.iter().position(|f| *f == draft.focus).unwrap_or(0);
    let to = match action {
        Action::Down => (at + 1).min(fields.len() - 1),
        Action::Up => at.saturating_sub(1),
        Action::Top => 0,
        Action::Bottom => fields.len() - 1,
        Action::PageDown => {
            draft.top = draft.top.saturating_add(8);
            at
        }
        Action::PageUp => {
            draft.top = draft.top.saturating_sub(8);
            at
        }
        Action::Open => return choose(model),
        _ => at,
    };
    draft.focus = fields.get(to).copied().unwrap_or(Field::Cancel);
    Vec::new()
}

/// Does what has the focus.
fn choose(model: &mut Model) -> Vec<Effect> {
    let Some(draft) = &mut model.requeue else { return Vec::new() };
    match draft.focus {
        Field::Cancel => {
            leave(model);
            Vec::new()
        }
        Field::Reason | Field::Endpoint => {
            let (kind, text) = match draft.focus {
                Field::Reason => (PromptKind::RequeueReason, &draft.reason),
                _ => (PromptKind::Endpoint, &draft.endpoint),
            };
            model.overlay = Some(Overlay::Prompt(kind, Input::new(text), None));
            Vec::new()
        }
        Field::Force if !draft.force && draft.reason.trim().is_empty() => {
            // Nothing with a valid reward is run again without a reason.
            draft.focus = Field::Reason;
            model.overlay = Some(Overlay::Prompt(PromptKind::RequeueReason, Input::default(), None));
            notice(model, "a reason is due first: why are these run again?");
            Vec::new()
        }
        Field::Force => {
            draft.force = !draft.force;
            plan(model)
        }
        Field::ConfigFixed => {
            draft.config_fixed = !draft.config_fixed;
            plan(model)
        }
        Field::Start => match draft.why_not() {
            Some(why) => {
                notice(model, why);
                Vec::new()
            }
            None => {
                draft.ordered = true;
                let plans: Vec<Plan> = draft.plans().to_vec();
                plans.into_iter().map(|plan| Effect::Helm(Order::Requeue(Box::new(plan)))).collect()
            }
        },
    }
}

/// A line was typed.
pub fn typed(model: &mut Model, kind: PromptKind, text: &str) -> Vec<Effect> {
    let Some(draft) = &mut model.requeue else { return Vec::new() };
    match kind {
        PromptKind::Endpoint => draft.endpoint = text.trim().to_string(),
        _ => {
            draft.reason = text.trim().to_string();
            draft.force &= !draft.reason.is_empty();
        }
    }
    plan(model)
}

fn leave(model: &mut Model) {
    if model.view() == View::Requeue {
        model.views.pop();
    }
    if model.requeue.as_ref().is_some_and(|d| !d.ordered) {
        model.requeue = None;
    }
}

/// News of a job that was started to run trials again.
pub fn progress(model: &mut Model, progress: Progress) -> Vec<Effect> {
    let mut effects = Vec::new();
    let said = match progress {
        Progress::Started { name, log, pid } => {
            if let Some(draft) = &model.requeue {
                let done: Vec<_> =
                    draft.plans().iter().flat_map(|p| &p.rows).map(|r| (r.job, r.trial.clone())).collect();
                model.marked.retain(|key| !done.contains(&(key.job, key.trial.clone())));
            }
            leave(model);
            model.requeue = None;
            format!(
                "{name} was started (pid {pid}), its output is in {}; it is shown here as soon as it begins",
                log.display()
            )
        }
        Progress::Begun { name, dir } => {
            effects.push(Effect::Follow(dir));
            format!("{name} has begun and is shown here: its trials count in the slots of those they repeat")
        }
        Progress::Ended { name, words, log, fine: true } => {
            format!("{name} has ended ({words}); its output is in {}", log.display())
        }
        Progress::Ended { name, words, log, fine: false } => {
            format!("! {name} has ended: {words}; look into {}", log.display())
        }
        Progress::Failed { name, why } => {
            if let Some(draft) = &mut model.requeue {
                draft.ordered = false;
            }
            format!("{name} was not started: {why}")
        }
    };
    notice(model, said);
    effects
}

/// The command, for the clipboard.
pub fn copy_text(model: &Model) -> Option<String> {
    let lines: Vec<String> = model.requeue.as_ref()?.plans().iter().map(Plan::line).collect();
    (!lines.is_empty()).then(|| lines.join("\n"))
}
