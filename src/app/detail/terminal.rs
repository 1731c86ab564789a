//! The terminal of a trial in a pane of its view: as it is now while the trial runs, else as it was at
//! its end.

use std::sync::Arc;

use super::super::action::Action;
use super::super::effect::Effect;
use super::super::model::Room;
use super::super::replay::{self, Picture, corner};
use super::{Tab, TrialView, body, left_columns};

/// Columns of an agent's terminal, and of the frame around it.
const WHOLE: u16 = 160 + 2;
/// Least columns of the column beside it.
const BESIDE: u16 = 40;

/// The pane.
#[derive(Debug, Default)]
pub struct Terminal {
    /// The last picture.
    pub picture: Option<Arc<Picture>>,
    /// Why there is none.
    pub missing: Option<String>,
    /// Scrolled to this column and row; None: stay where the cursor is in sight.
    pub scroll: Option<(u16, u16)>,
    /// The episode, from 0, at whose beginning it is shown; None: as it is now, or at its end.
    pub at: Option<usize>,
    /// The player was asked for pictures.
    asked: bool,
    /// No key was pressed since the view was opened.
    untouched: bool,
    /// The trial ran then.
    runs: bool,
}

/// Columns of the column beside the terminal; its frame included.
pub fn beside(columns: u16) -> u16 {
    columns.saturating_sub(WHOLE).clamp(BESIDE, left_columns(columns))
}

/// Columns and rows for the terminal on a screen of this size.
pub fn room(size: (u16, u16)) -> (u16, u16) {
    let (columns, rows) = body(size);
    let columns = match Room::of(size) {
        Room::Double => size.0.saturating_sub(beside(size.0) + 2),
        _ => u16::try_from(columns).unwrap_or(u16::MAX),
    };
    (columns, u16::try_from(rows).unwrap_or(u16::MAX))
}

impl TrialView {
    /// Nobody chose what to look at yet.
    pub(in super::super) fn await_terminal(&mut self, runs: bool) {
        (self.terminal.untouched, self.terminal.runs) = (self.tab == Tab::Steps, runs);
    }

    /// Whether the terminal is to be shown by itself: of a trial that runs where there is room for it beside
    /// the steps, and of one that has no steps.
    fn calls_for_terminal(&self) -> bool {
        let beside = self.terminal.runs && Room::of(self.size) == Room::Double;
        let read = |parts: &Vec<super::Part>| parts.iter().all(|part| part.indexed >= 1.0);
        let bare = self.parts.as_ref().is_some_and(read) && self.n_steps() == 0;
        self.terminal.untouched && self.tab == Tab::Steps && (beside || bare)
    }

    /// Whether the player works for this view.
    pub(in super::super) fn has_player(&self) -> bool {
        self.terminal.asked
    }

    /// Another view has taken the player.
    pub(in super::super) fn lose_player(&mut self) {
        self.terminal.asked = false;
    }

    /// Asks for pictures where the terminal is shown, and for no more of them where it is not.
    pub(in super::super) fn want_terminal(&mut self) -> Vec<Effect> {
        let wanted = self.tab == Tab::Terminal || self.calls_for_terminal();
        if wanted == self.terminal.asked {
            return Vec::new();
        }
        self.terminal.asked = wanted;
        vec![Effect::Replay(match wanted {
            true => replay::Request::Pane { serial: self.serial, dir: self.dir.clone(), episode: self.terminal.at },
            false => replay::Request::Close,
        })]
    }

    /// The operator has selected another step: the terminal is shown at its episode, or as it is now where the
    /// newest step is followed.
    pub(super) fn move_terminal(&mut self) -> Vec<Effect> {
        let at = match self.follow {
            true => None,
            false => match self.episode() {
                Some(n) => Some(n),
                // Not known yet, or of no episode.
                None => return Vec::new(),
            },
        };
        if at == self.terminal.at {
            return Vec::new();
        }
        self.terminal.at = at;
        if !self.terminal.asked {
            return Vec::new();
        }
        self.terminal.scroll = None;
        vec![Effect::Replay(at.map_or(replay::Request::End, replay::Request::At))]
    }

    /// Where the replay of this trial was left: the step of that episode is selected, as far as it is held.
    pub(in super::super) fn left_replay_at(&mut self, episode: usize) -> Vec<Effect> {
        let found = self.heads.iter().position(|head| head.episode == Some(episode as u32 + 1));
        let Some(step) = found.map(|at| self.heads_from + at).filter(|step| *step != self.cursor) else {
            return Vec::new();
        };
        self.follow = false;
        let effects = self.go(step);
        self.terminal.at = Some(episode);
        effects
    }

    /// The player answered.
    pub(in super::super) fn see(&mut self, serial: u64, what: Result<Arc<Picture>, String>) -> Vec<Effect> {
        if serial != self.serial || !self.terminal.asked {
            return Vec::new();
        }
        match what {
            Ok(picture) => {
                if self.calls_for_terminal() {
                    self.tab = Tab::Terminal;
                }
                self.terminal.picture = Some(picture);
                self.terminal.missing = None;
            }
            Err(why) => self.terminal.missing = Some(why),
        }
        self.want_terminal()
    }

    /// A key was pressed: what is shown is the operator's choice from here on.
    pub(super) fn chosen(&mut self) {
        self.terminal.untouched = false;
    }

    /// Scrolls it; false for what is no scrolling.
    pub(super) fn scroll_terminal(&mut self, action: Action) -> bool {
        let room = room(self.size);
        let Some(picture) = &self.terminal.picture else { return false };
        let (x, y) = corner(picture.size, room, picture.cursor, self.terminal.scroll);
        let wanted = match action {
            Action::Down => (x, y.saturating_add(1)),
            Action::Up => (x, y.saturating_sub(1)),
            Action::PageDown => (x.saturating_add(room.0 / 2), y),
            Action::PageUp => (x.saturating_sub(room.0 / 2), y),
            Action::Top => (0, 0),
            Action::Bottom => {
                self.terminal.scroll = None;
                return true;
            }
            _ => return false,
        };
        self.terminal.scroll = Some(corner(picture.size, room, None, Some(wanted)));
        true
    }
}
