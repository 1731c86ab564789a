//! The trial view.

use ratatui::Frame;
use ratatui::layout::Rect;

use super::style::Pen;
use crate::app::model::Model;

/// Draws the trial view into `area`.
pub fn draw(_model: &Model, _pen: Pen, _frame: &mut Frame<'_>, _area: Rect) {}
