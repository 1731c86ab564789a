//! Colours and glyphs. State is always glyph + word + colour, never colour alone.

use ratatui::style::{Color, Modifier, Style};

use crate::app::model::{Look, Theme};
use crate::app::rows::Outcome;
use crate::job::Phase;

/// Draws in one look.
#[derive(Debug, Clone, Copy)]
pub struct Pen {
    /// The look.
    pub look: Look,
}

impl Pen {
    /// A pen for a look.
    pub fn new(look: Look) -> Pen {
        Pen { look }
    }

    fn colour(self, default: Color, light: Color) -> Style {
        match self.look.theme {
            Theme::Default => Style::new().fg(default),
            Theme::Light => Style::new().fg(light),
            Theme::Mono => Style::new(),
        }
    }

    /// Ordinary text.
    pub fn text(self) -> Style {
        Style::new()
    }

    /// Less important text, and numbers that are old.
    pub fn dim(self) -> Style {
        // No grey of the palette: in some palettes bright black is the background's own colour.
        Style::new().add_modifier(Modifier::DIM)
    }

    /// Headings and names.
    pub fn strong(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    /// Keys in the footer and in help.
    pub fn key(self) -> Style {
        self.colour(Color::Cyan, Color::Blue).add_modifier(Modifier::BOLD)
    }

    /// What needs a person.
    pub fn alarm(self) -> Style {
        self.colour(Color::LightMagenta, Color::Magenta).add_modifier(Modifier::BOLD)
    }

    /// Over the limit, or nearly.
    pub fn hot(self) -> Style {
        self.colour(Color::LightRed, Color::Red).add_modifier(Modifier::BOLD)
    }

    /// Things that go well.
    pub fn good(self) -> Style {
        self.colour(Color::LightCyan, Color::Blue)
    }

    /// A match of a search.
    pub fn found(self) -> Style {
        match self.look.theme {
            Theme::Mono => Style::new().add_modifier(Modifier::REVERSED | Modifier::BOLD),
            _ => Style::new().fg(Color::Black).bg(Color::Yellow),
        }
    }

    /// The selected row.
    pub fn selected(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    /// The selected row of a pane without focus.
    pub fn selected_elsewhere(self) -> Style {
        Style::new().add_modifier(Modifier::UNDERLINED)
    }

    /// Frames.
    pub fn frame(self, focused: bool) -> Style {
        if focused { self.key().remove_modifier(Modifier::BOLD) } else { self.dim() }
    }

    /// Style of an outcome.
    pub fn outcome(self, outcome: Outcome) -> Style {
        match outcome {
            Outcome::Passed => self.good(),
            Outcome::Partial => self.colour(Color::LightBlue, Color::Blue),
            Outcome::Failed => self.colour(Color::Yellow, Color::Rgb(150, 90, 0)),
            Outcome::Timeout => self.colour(Color::LightYellow, Color::Rgb(150, 90, 0)),
            Outcome::Error | Outcome::Phantom | Outcome::Orphaned | Outcome::Unreadable => self.alarm(),
            Outcome::NoReward => self.colour(Color::LightYellow, Color::Rgb(150, 90, 0)),
            Outcome::Running => self.strong(),
            Outcome::Cancelled | Outcome::Queued => self.dim(),
        }
    }

    /// Glyph of an outcome.
    pub fn glyph(self, outcome: Outcome) -> &'static str {
        let (unicode, ascii) = match outcome {
            Outcome::Passed => ("✓", "+"),
            Outcome::Partial => ("◐", "%"),
            Outcome::Failed => ("✗", "x"),
            Outcome::Timeout => ("◷", "t"),
            Outcome::Error => ("!", "!"),
            Outcome::NoReward => ("?", "?"),
            Outcome::Cancelled => ("⊘", "c"),
            Outcome::Phantom => ("∅", "0"),
            Outcome::Orphaned => ("⌀", "~"),
            Outcome::Unreadable => ("¿", "u"),
            Outcome::Running => ("●", "*"),
            Outcome::Queued => ("○", "o"),
        };
        if self.look.ascii { ascii } else { unicode }
    }

    /// Glyph of a running phase; of an outcome otherwise.
    pub fn phase_glyph(self, phase: Phase, outcome: Outcome) -> &'static str {
        let (unicode, ascii) = match phase {
            Phase::Starting | Phase::EnvironmentSetup | Phase::AgentSetup => ("◌", "."),
            Phase::Verifying => ("◍", "v"),
            Phase::TearingDown => ("◔", "d"),
            Phase::RetryWait => ("↻", "r"),
            _ => return self.glyph(outcome),
        };
        if self.look.ascii { ascii } else { unicode }
    }

    /// A bar of `width` cells, `share` of it full.
    pub fn bar(self, share: f64, width: usize) -> String {
        let full = (share.clamp(0.0, 1.0) * width as f64).round() as usize;
        let (on, off) = if self.look.ascii { ("#", "-") } else { ("▇", "▁") };
        format!("{}{}", on.repeat(full.min(width)), off.repeat(width.saturating_sub(full)))
    }

    /// The sign for "not known".
    pub fn unknown(self) -> &'static str {
        if self.look.ascii { "-" } else { "·" }
    }

    /// A separator between two facts on a line.
    pub fn dot(self) -> &'static str {
        if self.look.ascii { "-" } else { "·" }
    }

    /// What stands where text was cut.
    pub fn ellipsis(self) -> &'static str {
        if self.look.ascii { "~" } else { "…" }
    }
}
