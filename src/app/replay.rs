//! The replay view: what is shown of a playing cast, and the wishes to its player.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::action::Action;
use super::effect::Effect;
use crate::cast::Cell;
use crate::job::Stamp;

/// What to play.
#[derive(Debug, Clone, PartialEq)]
pub struct Source {
    /// A cast file, or a trial dir whose casts are found.
    pub path: PathBuf,
    /// Title in the frame.
    pub title: String,
    /// Index of the episode to start at, from 0.
    pub episode: Option<usize>,
    /// Moment to open at, by the clock of the recording; `Some(None)`: its end.
    pub moment: Option<Option<Stamp>>,
}

/// A wish to the player.
#[derive(Debug, Clone, PartialEq)]
pub enum Request {
    /// Open this.
    Open(Source),
    /// Show the terminal of a trial in a pane of its view: as it is now, or as it was at the end.
    Pane {
        /// Of the view.
        serial: u64,
        /// The trial dir.
        dir: PathBuf,
        /// At the beginning of this episode, from 0, in place of that.
        episode: Option<usize>,
    },
    /// To the beginning of an episode, from 0, and stay there.
    At(usize),
    /// Nothing is shown any more.
    Close,
    /// Play or pause.
    Toggle,
    /// Seconds of playback, forward or back.
    Skip(f64),
    /// Events that show, forward or back.
    Step(isize),
    /// Per cent.
    Percent(f64),
    /// To the end, and stay there while it grows.
    End,
    /// Twice the speed, or half.
    Faster(bool),
    /// The next cap for silences.
    IdleCap,
    /// The next or previous episode; markers where there is no episode index.
    Episode(bool),
    /// Search for this from here on.
    Search(String),
    /// The next or previous match.
    Match(bool),
    /// The next recording of the trial.
    NextCast,
}

/// One picture of the player.
#[derive(Debug, Clone, Default)]
pub struct Picture {
    /// Which recording: number from 1, how many, its path below the trial dir.
    pub cast: (usize, usize, String),
    /// The terminal's rows.
    pub rows: Vec<Vec<Cell>>,
    /// Columns and rows of the terminal.
    pub size: (u16, u16),
    /// Cursor: column and row.
    pub cursor: Option<(u16, u16)>,
    /// Position and length with silences cut.
    pub at: Duration,
    /// Length with silences cut.
    pub length: Duration,
    /// Position in recorded time.
    pub recorded: Duration,
    /// Running.
    pub playing: bool,
    /// Speed.
    pub speed: f64,
    /// Cap for silences.
    pub idle_cap: Option<Duration>,
    /// Stays at the end of a growing recording.
    pub following: bool,
    /// Share of the file that is indexed, while it is below 1.
    pub indexing: Option<f64>,
    /// Still on the way to the wanted position.
    pub seeking: bool,
    /// The rows are the end as its last output alone shows it; the exact screen is on its way.
    pub preview: bool,
    /// Places of markers, as shares of the length, with labels.
    pub markers: Vec<(f64, String)>,
    /// Places of episodes, as shares of the length; None: no episode index.
    pub episodes: Option<Vec<Option<f64>>>,
    /// Episode at the position, from 0.
    pub episode: Option<usize>,
    /// Place of the current match.
    pub found: Option<f64>,
    /// Odd things in the file, in words.
    pub oddities: Option<String>,
    /// Something to say: a search without match, why there is no episode index.
    pub note: Option<String>,
}

/// An answer of the player.
#[derive(Debug)]
pub enum Reply {
    /// A picture.
    Picture(Arc<Picture>),
    /// It can't be played: why, and the next step.
    Refused(String),
    /// For a pane: a picture, at most ten a second; or why there is none. While the trial runs it is
    /// looked for on.
    Pane {
        /// Of the view.
        serial: u64,
        /// What is to be shown.
        what: Result<Arc<Picture>, String>,
    },
}

/// The view of a playing cast.
#[derive(Debug)]
pub struct ReplayView {
    /// What is played.
    pub source: Source,
    /// The last picture.
    pub picture: Option<Arc<Picture>>,
    /// Why it can't be played.
    pub refused: Option<String>,
    /// Scrolled to this column and row of the terminal; None: stay where the cursor is in sight.
    pub scroll: Option<(u16, u16)>,
    /// What was searched last.
    pub searched: Option<String>,
}

/// First column and row that are shown of a terminal of `size` in a picture of `room`.
pub fn corner(
    size: (u16, u16),
    room: (u16, u16),
    cursor: Option<(u16, u16)>,
    scroll: Option<(u16, u16)>,
) -> (u16, u16) {
    let last = (size.0.saturating_sub(room.0), size.1.saturating_sub(room.1));
    match (scroll, cursor) {
        (Some((x, y)), _) => (x.min(last.0), y.min(last.1)),
        (None, Some((x, y))) => {
            ((x + 1).saturating_sub(room.0).min(last.0), (y + 1).saturating_sub(room.1).min(last.1))
        }
        (None, None) => (0, 0),
    }
}

impl ReplayView {
    /// Opens the view.
    pub fn open(source: Source) -> (ReplayView, Vec<Effect>) {
        let view = ReplayView { source: source.clone(), picture: None, refused: None, scroll: None, searched: None };
        (view, vec![Effect::Replay(Request::Open(source))])
    }

    /// An action of context `Replay`; `room` is columns and rows for the terminal picture.
    pub fn act(&mut self, action: Action, room: (u16, u16)) -> Vec<Effect> {
        let request = match action {
            Action::PlayPause | Action::Open => Request::Toggle,
            Action::SeekBack => Request::Skip(-5.0),
            Action::SeekForward => Request::Skip(5.0),
            Action::StepBack => Request::Step(-1),
            Action::StepForward => Request::Step(1),
            Action::PrevEpisode => Request::Episode(false),
            Action::NextEpisode => Request::Episode(true),
            Action::Slower => Request::Faster(false),
            Action::Faster => Request::Faster(true),
            Action::IdleCap => Request::IdleCap,
            Action::SeekPercent(n) => Request::Percent(f64::from(n) * 10.0),
            Action::Top => Request::Percent(0.0),
            Action::SeekEnd => Request::End,
            Action::NextMatch => Request::Match(true),
            Action::PrevMatch => Request::Match(false),
            Action::NextPane => Request::NextCast,
            Action::Up | Action::Down | Action::PrevTab | Action::NextTab => {
                self.scroll_by(action, room);
                return Vec::new();
            }
            _ => return Vec::new(),
        };
        vec![Effect::Replay(request)]
    }

    fn scroll_by(&mut self, action: Action, room: (u16, u16)) {
        let Some(picture) = &self.picture else { return };
        let (x, y) = corner(picture.size, room, picture.cursor, self.scroll);
        let (dx, dy) = (room.0 / 2, room.1 / 2);
        let wanted = match action {
            Action::Up => (x, y.saturating_sub(dy)),
            Action::Down => (x, y.saturating_add(dy)),
            Action::PrevTab => (x.saturating_sub(dx), y),
            _ => (x.saturating_add(dx), y),
        };
        self.scroll = Some(corner(picture.size, room, None, Some(wanted)));
    }

    /// The search text was entered.
    pub fn search(&mut self, text: &str) -> Vec<Effect> {
        if text.is_empty() {
            return Vec::new();
        }
        self.searched = Some(text.to_string());
        vec![Effect::Replay(Request::Search(text.to_string()))]
    }

    /// The player answered.
    pub fn reply(&mut self, reply: Reply) -> Vec<Effect> {
        match reply {
            Reply::Picture(picture) => {
                if self.picture.as_ref().is_some_and(|old| old.cast != picture.cast || old.size != picture.size) {
                    self.scroll = None;
                }
                self.picture = Some(picture);
                self.refused = None;
            }
            Reply::Refused(why) => self.refused = Some(why),
            // Of a view below this one.
            Reply::Pane { .. } => {}
        }
        Vec::new()
    }
}
