//! The whole state of the screen.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::action::Context;
use super::compare::Compare;
use super::derived::Derived;
use super::detail::TrialView;
use super::jobs::Jobs;
use super::overlay::Overlay;
use super::preview::Preview;
use super::replay::ReplayView;
use super::requeue::Draft;
use super::rows::{Row, RowId};
use super::servers::Servers;
use super::steer::Steer;
use super::table::Table;
use super::triage::Triage;
use super::triage::ledger::Ledger;
use crate::job::{Fleet, Stamp, TrialKey};
use crate::serving::Serving;

/// The views that can fill the screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum View {
    /// All trials: home.
    Trials,
    /// The model servers.
    Serving,
    /// Errors by type.
    Errors,
    /// Warnings.
    Log,
    /// Jobs.
    Jobs,
    /// One trial.
    Trial,
    /// A cast.
    Replay,
    /// A stop and its audit.
    Stop,
    /// Triage.
    Triage,
    /// The plan of a requeue.
    Requeue,
    /// What a resume by Harbor would do.
    Preview,
    /// Runs beside each other.
    Compare,
}

impl View {
    /// Which key table holds.
    pub fn context(self) -> Context {
        match self {
            View::Trials | View::Errors | View::Log => Context::List,
            View::Jobs => Context::Jobs,
            View::Trial => Context::Trial,
            View::Replay => Context::Replay,
            View::Stop => Context::Stop,
            View::Triage => Context::Triage,
            View::Requeue => Context::Requeue,
            View::Preview => Context::Preview,
            View::Compare => Context::Compare,
            View::Serving => Context::Serving,
        }
    }
}

/// How wide and tall the terminal is, in words that layouts use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Room {
    /// Under 40×12: one line.
    Line,
    /// Under 80 columns: compact.
    Compact,
    /// 80 columns and more: one pane at a time.
    Single,
    /// 120 columns and 24 rows and more: two panes.
    Double,
}

impl Room {
    /// The room that a size gives.
    pub fn of((columns, rows): (u16, u16)) -> Room {
        match (columns, rows) {
            (0..40, _) | (_, 0..12) => Room::Line,
            (40..80, _) => Room::Compact,
            (120.., 24..) => Room::Double,
            _ => Room::Single,
        }
    }
}

/// How things are drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Look {
    /// ASCII only.
    pub ascii: bool,
    /// Which colours.
    pub theme: Theme,
}

/// The themes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Theme {
    /// The terminal's own 16 colours; no meaning rests on red against green.
    Default,
    /// For light backgrounds.
    Light,
    /// No colour at all, only bold, faint and reverse (NO_COLOR).
    Mono,
}

/// A short message on the last line.
#[derive(Debug, Clone, PartialEq)]
pub struct Notice {
    /// The text.
    pub text: String,
    /// When it was shown first.
    pub since: Stamp,
}

/// The model.
#[derive(Debug)]
pub struct Model {
    /// All that is known of the jobs.
    pub fleet: Fleet,
    /// The time of the last message.
    pub now: Stamp,
    /// Terminal size: columns, rows.
    pub size: (u16, u16),
    /// How things are drawn.
    pub look: Look,
    /// Views, the current one last; never empty.
    pub views: Vec<View>,
    /// The errors pane has the focus (where two panes are shown).
    pub focus_errors: bool,
    /// The focused pane alone.
    pub zoom: bool,
    /// Rows of all jobs.
    pub rows: Vec<Row>,
    /// The trials list.
    pub table: Table,
    /// Counts, scores, attention, errors: derived from the jobs.
    pub derived: Derived,
    /// Selected line of the errors pane.
    pub errors_at: usize,
    /// Selected line of the log.
    pub log_at: usize,
    /// The list of all jobs.
    pub jobs: Jobs,
    /// Which attention item `!` goes to next.
    pub attention_at: usize,
    /// The trial view, when one is open.
    pub trial: Option<TrialView>,
    /// The replay, when one is open.
    pub replay: Option<ReplayView>,
    /// Triage: its items and the place among them.
    pub triage: Triage,
    /// What this screen's operator said of trials.
    pub ledger: Ledger,
    /// The requeue that is being made up.
    pub requeue: Option<Draft>,
    /// The comparison, when its view is open.
    pub compare: Option<Compare>,
    /// What a resume by Harbor would do.
    pub preview: Option<Preview>,
    /// All that is known of the model servers.
    pub serving: Serving,
    /// What the screen makes of them: panes, what trials do, what was told.
    pub servers: Servers,
    /// Trials that are marked.
    pub marked: BTreeSet<TrialKey>,
    /// Queued slots that are marked.
    pub marked_slots: BTreeSet<RowId>,
    /// What is known of the other side of the helm.
    pub steer: Steer,
    /// What lies on top.
    pub overlay: Option<Overlay>,
    /// Message on the last line.
    pub notice: Option<Notice>,
    /// Set when something may have changed that rows are made of.
    pub(super) stale: bool,
    /// Revision of the fleet that the rows were made of.
    pub(super) built: u64,
    /// When the rows were made.
    pub(super) built_at: Stamp,
    /// Merge options for the counts.
    pub counting: super::derived::Counting,
    /// Open this trial as soon as it is known: the screen was started on its directory. Any key of
    /// the operator's is newer and ends it.
    pub open_when_seen: Option<Arc<str>>,
    /// The screen was started for one cast: leaving the replay quits.
    pub replay_only: bool,
}

impl Model {
    /// An empty model.
    pub fn new(now: Stamp, size: (u16, u16), look: Look, counting: super::derived::Counting) -> Model {
        Model {
            fleet: Fleet::default(),
            now,
            size,
            look,
            views: vec![View::Trials],
            focus_errors: false,
            zoom: false,
            rows: Vec::new(),
            table: Table::default(),
            derived: Derived::default(),
            errors_at: 0,
            log_at: 0,
            jobs: Jobs::default(),
            attention_at: 0,
            trial: None,
            replay: None,
            triage: Triage::default(),
            ledger: Ledger::default(),
            requeue: None,
            compare: None,
            preview: None,
            serving: Serving::default(),
            servers: Servers::default(),
            marked: BTreeSet::new(),
            marked_slots: BTreeSet::new(),
            steer: Steer::default(),
            overlay: None,
            notice: None,
            stale: true,
            built: 0,
            built_at: now,
            counting,
            open_when_seen: None,
            replay_only: false,
        }
    }

    /// The current view.
    pub fn view(&self) -> View {
        self.views.last().copied().unwrap_or(View::Trials)
    }

    /// The room there is.
    pub fn room(&self) -> Room {
        Room::of(self.size)
    }

    /// The context of keys.
    pub fn context(&self) -> Context {
        self.view().context()
    }

    /// The selected trial, if the selection is one with a directory.
    pub fn selected_trial(&self) -> Option<TrialKey> {
        match &self.table.selected_row(&self.rows)?.id {
            RowId::Trial(key) => Some(key.clone()),
            RowId::Slot(..) => None,
        }
    }

    /// Name of a job.
    pub fn job_name(&self, key: crate::job::JobKey) -> Arc<str> {
        self.fleet.job(key).map_or_else(|| Arc::from("-"), |j| j.facts.name.clone())
    }

    /// Whether phases and states change with time alone: a job is not known to be over.
    pub fn moves(&self) -> bool {
        self.fleet.jobs().iter().any(|j| {
            let kind = self.derived.states.iter().find(|(k, _)| *k == j.key).map(|(_, s)| s.kind);
            !matches!(
                kind,
                Some(
                    crate::job::fleet::StateKind::Finished
                        | crate::job::fleet::StateKind::Interrupted
                        | crate::job::fleet::StateKind::Dead
                )
            )
        })
    }

    /// Whether the screen has to be drawn anew as time goes by, and how soon: one second while a
    /// clock is visible, none when nothing moves.
    pub fn tick_after(&self) -> Option<std::time::Duration> {
        let second = std::time::Duration::from_secs(1);
        let running = self.moves();
        let waits = self.steer.stop.as_ref().is_some_and(|s| s.waits());
        if self.servers.alarms.wait() {
            return Some(std::time::Duration::from_millis(50));
        }
        let served = !self.serving.sources().is_empty();
        let lists = self.view() == View::Jobs;
        (running || lists || waits || served || self.notice.is_some() || self.table.sort_pending).then_some(second)
    }
}
