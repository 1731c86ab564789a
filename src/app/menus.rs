//! Menus made from what is on screen.

use super::action::{Action, Context, available};
use super::helm::{Hand, Side};
use super::model::Model;
use super::overlay::{Choice, Item, Menu};
use super::rows::{Outcome, RowId};
use super::steer;
use super::table::SortKey;
use super::triage::ledger;
use crate::job::{Class, Phase};

/// Outcomes, phases and exception types with their counts.
pub fn filters(model: &Model) -> Menu {
    let mut items = vec![Item {
        label: "all".to_string(),
        detail: format!("{}", model.rows.len()),
        choice: Choice::Filter(String::new()),
        hot: None,
    }];
    let mut add = |label: String, n: usize, filter: String| {
        if n > 0 {
            items.push(Item { label, detail: n.to_string(), choice: Choice::Filter(filter), hot: None });
        }
    };
    let clean = model.rows.iter().filter(|r| r.outcome == Outcome::Passed && r.exception.is_none()).count();
    let queued = model.rows.iter().filter(|r| r.outcome == Outcome::Queued).count();
    let faults =
        model.rows.len() - clean - queued - model.rows.iter().filter(|r| r.outcome == Outcome::Running).count();
    add(
        "ended, but not a clean pass".to_string(),
        faults,
        "!outcome:queued !outcome:running !outcome:passed".to_string(),
    );
    for outcome in Outcome::ALL {
        let n = model.rows.iter().filter(|r| r.outcome == outcome).count();
        add(format!("outcome  {}", outcome.word()), n, format!("outcome:{}", outcome.word().replace(' ', "_")));
    }
    for phase in [
        Phase::Starting,
        Phase::EnvironmentSetup,
        Phase::AgentSetup,
        Phase::AgentRunning(0),
        Phase::Verifying,
        Phase::TearingDown,
    ] {
        let n = model.rows.iter().filter(|r| r.phase.word() == phase.word()).count();
        add(format!("phase  {}", phase.word().replace('_', " ")), n, format!("phase:{}", phase.word()));
    }
    for group in model.derived.errors.iter().filter(|g| g.is_exception) {
        add(format!("exception  {}", group.kind), group.n, group.filter.clone());
    }
    for class in Class::ALL {
        let n = model.rows.iter().filter(|r| r.class.as_ref().is_some_and(|c| c.class == class)).count();
        add(format!("class  {}", class.word()), n, format!("class:={}", class.word()));
    }
    let judged = model.rows.iter().filter(|r| r.verdict.is_some()).count();
    add("with a verdict".to_string(), judged, "verdict:any".to_string());
    let held = model.rows.iter().filter(|r| r.held).count();
    add("whose container is held".to_string(), held, "held:any".to_string());
    let outage = model.rows.iter().filter(|r| r.outage).count();
    add("during a noted outage".to_string(), outage, "overlaps:outage".to_string());
    Menu { title: "filter by".to_string(), items, selected: 0 }
}

/// The sort keys.
pub fn sorts(model: &Model) -> Menu {
    let items: Vec<Item> = SortKey::ALL
        .iter()
        .map(|key| Item {
            label: key.word().to_string(),
            detail: if *key == model.table.sort { "now; S turns it round".to_string() } else { String::new() },
            choice: Choice::Sort(*key),
            hot: None,
        })
        .collect();
    let selected = SortKey::ALL.iter().position(|k| *k == model.table.sort).unwrap_or(0);
    Menu { title: "sort by".to_string(), items, selected }
}

/// Whether an action is an order to the process that runs a job.
fn steers(action: Action) -> bool {
    matches!(
        action,
        Action::SlotsMore
            | Action::SlotsLess
            | Action::CancelTrial
            | Action::Pause
            | Action::First
            | Action::TakeHelm
            | Action::Endpoint
    )
}

/// What can be done with what is selected, and why not where it can't.
pub fn acts(model: &Model) -> Menu {
    let wanted = [
        Action::Open,
        Action::OpenReplay,
        Action::Copy,
        Action::FilterMenu,
        Action::SortMenu,
        Action::Filter,
        Action::Live,
        Action::Pause,
        Action::First,
        Action::TakeHelm,
        Action::Endpoint,
        Action::SlotsMore,
        Action::SlotsLess,
        Action::CancelTrial,
        Action::Verdict,
        Action::Note,
        Action::Bulk,
        Action::Outage,
        Action::Similar,
        Action::ShowVerifier,
        Action::ShowException,
        Action::ShowLog,
        Action::Requeue,
        Action::RequeueInfra,
        Action::Regrade,
        Action::ResumePreview,
        Action::Stop,
        Action::AbortRequest,
    ];
    let in_log = [Action::Search, Action::ClearFilter];
    let mine = model.steer.side == Side::Owner || model.steer.linked();
    let context = match model.context() {
        own @ (Context::Triage | Context::Serving) => own,
        _ => Context::List,
    };
    let has_dir =
        steer::trial(model).is_some_and(|r| matches!(r.id, RowId::Trial(_))) || model.selected_trial().is_some();
    let items = available(context)
        .filter(|s| s.context == context || s.action == Action::Copy)
        .filter(|s| wanted.contains(&s.action) || (context == Context::Serving && in_log.contains(&s.action)))
        // Of no use before there is somebody to take such orders.
        .filter(|s| mine || !steers(s.action))
        .filter(|s| s.action != Action::TakeHelm || model.steer.hand != Hand::Mine)
        .map(|s| {
            let why_not = match s.action {
                Action::AbortRequest => super::servers::request::why_not(model),
                Action::Open if context == Context::Serving => None,
                Action::Open | Action::OpenReplay | Action::Live if !has_dir => {
                    Some("this slot has not begun".to_string())
                }
                Action::Verdict | Action::Note | Action::Bulk | Action::Outage => ledger::why_not(model),
                Action::Requeue | Action::RequeueInfra | Action::ResumePreview => super::requeue::why_not(model),
                Action::Regrade => steer::regrade::why_not(model),
                Action::SlotsMore | Action::SlotsLess | Action::Pause => steer::why_not_owner(model),
                Action::First => steer::crowd::why_not_first(model),
                Action::TakeHelm => steer::why_not_take(model),
                Action::Endpoint => steer::endpoint::why_not(model),
                Action::CancelTrial if !steer::crowd::running(model).is_empty() => None,
                Action::CancelTrial => steer::why_not_cancel(model),
                Action::Stop if model.steer.side == Side::Reader => steer::why_not_stop(model),
                _ => None,
            };
            Item {
                label: s.title.to_string(),
                choice: if why_not.is_some() { Choice::Nothing } else { Choice::Act(s.action) },
                detail: why_not.or(s.keys.first().map(ToString::to_string)).unwrap_or_default(),
                hot: None,
            }
        })
        .collect();
    let title = match model.steer.side {
        Side::Reader => "act (read-only: nothing here changes the job)",
        _ => "act (what changes something asks first)",
    };
    Menu { title: title.to_string(), items, selected: 0 }
}
