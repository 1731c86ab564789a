//! Keys and pastes while something lies over the view: prompts, menus, the help, the palette, questions.

use super::super::effect::Effect;
use super::super::key::Key;
use super::super::model::Model;
use super::super::overlay::{Choice, Overlay, PromptKind};
use super::super::steer;
use super::{act, home, page, search, set_filter};

/// A key while something lies over the view.
pub(super) fn key(model: &mut Model, key: Key) -> Vec<Effect> {
    let Some(mut overlay) = model.overlay.take() else { return Vec::new() };
    let rows = page(model);
    match &mut overlay {
        Overlay::Ask(asking) => return steer::ask::key(model, asking.clone(), key),
        Overlay::Prompt(kind, input, _) => {
            let kind = *kind;
            match key {
                Key::Esc => {
                    if kind == PromptKind::Filter {
                        set_filter(model, "");
                    }
                    return Vec::new();
                }
                Key::Enter => {
                    let text = input.text();
                    return match kind {
                        PromptKind::Filter => {
                            match model.table.set_filter(&text) {
                                Ok(()) => model.stale = true,
                                Err(why) => {
                                    model.overlay = Some(Overlay::Prompt(kind, input.clone(), Some(why)));
                                }
                            }
                            Vec::new()
                        }
                        PromptKind::Search => search(model, &text),
                    };
                }
                key => {
                    input.key(key);
                }
            }
        }
        Overlay::Menu(menu) => match key {
            Key::Esc | Key::Char('q') => return Vec::new(),
            Key::Down | Key::Char('j') => menu.selected = (menu.selected + 1).min(menu.items.len().saturating_sub(1)),
            Key::Up | Key::Char('k') => menu.selected = menu.selected.saturating_sub(1),
            Key::PageDown => menu.selected = (menu.selected + 10).min(menu.items.len().saturating_sub(1)),
            Key::PageUp => menu.selected = menu.selected.saturating_sub(10),
            Key::Char('g') | Key::Home => menu.selected = 0,
            Key::Char('G') | Key::End => menu.selected = menu.items.len().saturating_sub(1),
            Key::Enter | Key::Char('l') => {
                let choice = menu.items.get(menu.selected).map(|i| i.choice.clone());
                return match choice {
                    Some(choice) => choose(model, choice),
                    None => Vec::new(),
                };
            }
            _ => {}
        },
        Overlay::Help(top) => match key {
            Key::Down | Key::Char('j') => *top += 1,
            Key::Up | Key::Char('k') => *top = top.saturating_sub(1),
            Key::PageDown | Key::Char(' ') | Key::Ctrl('d') => *top += rows,
            Key::PageUp | Key::Ctrl('u') => *top = top.saturating_sub(rows),
            Key::Char('g') | Key::Home => *top = 0,
            Key::Char('G') | Key::End => *top = usize::MAX / 2,
            _ => return Vec::new(),
        },
        Overlay::Palette(palette) => match key {
            Key::Esc => return Vec::new(),
            Key::Down | Key::Ctrl('n') => {
                palette.selected = (palette.selected + 1).min(palette.matches.len().saturating_sub(1));
            }
            Key::Up | Key::Ctrl('p') => palette.selected = palette.selected.saturating_sub(1),
            Key::Enter => {
                return match palette.matches.get(palette.selected) {
                    Some(spec) => act(model, spec.action),
                    None => Vec::new(),
                };
            }
            key => {
                if palette.input.key(key) {
                    palette.search();
                }
            }
        },
    }
    model.overlay = Some(overlay);
    typed(model)
}

/// A paste goes where text is typed.
pub(super) fn paste(model: &mut Model, text: &str) -> Vec<Effect> {
    match &mut model.overlay {
        Some(Overlay::Prompt(_, input, _)) => input.paste(text),
        Some(Overlay::Palette(palette)) => {
            palette.input.paste(text);
            palette.search();
        }
        _ => {}
    }
    typed(model)
}

/// What was typed takes effect at once where it can.
pub(super) fn typed(model: &mut Model) -> Vec<Effect> {
    let Some(Overlay::Prompt(PromptKind::Filter, input, error)) = &mut model.overlay else { return Vec::new() };
    let text = input.text();
    match model.table.set_filter(&text) {
        Ok(()) => {
            *error = None;
            model.stale = true;
        }
        Err(why) => {
            *error = Some(why);
            // What was right before the last word stays in force.
            let before = text.trim_end().rsplit_once(char::is_whitespace).map_or("", |(rest, _)| rest);
            if model.table.set_filter(before).is_ok() {
                model.stale = true;
            }
        }
    }
    Vec::new()
}

fn choose(model: &mut Model, choice: Choice) -> Vec<Effect> {
    match choice {
        Choice::Filter(text) => {
            set_filter(model, &text);
            home(model);
            Vec::new()
        }
        Choice::Sort(key) => {
            model.table.sort = key;
            model.table.inverted = false;
            model.stale = true;
            Vec::new()
        }
        Choice::Act(action) => act(model, action),
        Choice::Nothing => Vec::new(),
    }
}
