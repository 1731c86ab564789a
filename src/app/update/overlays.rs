//! Keys and pastes while something lies over the view: prompts, menus, the help, the palette, questions.

use super::super::effect::Effect;
use super::super::jobs;
use super::super::key::Key;
use super::super::model::{Model, View};
use super::super::overlay::{Choice, Overlay, PromptKind};
use super::super::requeue;
use super::super::steer;
use super::super::triage;
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
                    match kind {
                        PromptKind::Filter => set_filter(model, ""),
                        PromptKind::ServerLog => model.servers.log.set_filter(""),
                        PromptKind::JobsFilter => drop(model.jobs.set_filter("")),
                        PromptKind::Search
                        | PromptKind::RequeueReason
                        | PromptKind::Endpoint
                        | PromptKind::NewEndpoint
                        | PromptKind::AddRoot
                        | PromptKind::Outage => {}
                        PromptKind::Note => model.triage.noting = None,
                        PromptKind::Reason => model.triage.bulk = None,
                    }
                    return Vec::new();
                }
                Key::Enter => {
                    let text = input.text();
                    return match kind {
                        PromptKind::Filter => {
                            if let Err(why) = filtered(model, &text) {
                                model.overlay = Some(Overlay::Prompt(kind, input.clone(), Some(why)));
                            }
                            Vec::new()
                        }
                        PromptKind::Search => search(model, &text),
                        PromptKind::ServerLog => Vec::new(),
                        PromptKind::JobsFilter => {
                            if let Err(why) = model.jobs.set_filter(&text) {
                                model.overlay = Some(Overlay::Prompt(kind, input.clone(), Some(why)));
                            }
                            Vec::new()
                        }
                        PromptKind::AddRoot => match jobs::add(model, &text) {
                            Ok(effects) => effects,
                            Err(why) => {
                                model.overlay = Some(Overlay::Prompt(kind, input.clone(), Some(why)));
                                Vec::new()
                            }
                        },
                        PromptKind::Note => triage::menu::noted(model, &text),
                        PromptKind::RequeueReason | PromptKind::Endpoint => requeue::typed(model, kind, &text),
                        PromptKind::NewEndpoint => match steer::endpoint::typed(model, &text) {
                            Ok(effects) => effects,
                            Err(why) => {
                                model.overlay = Some(Overlay::Prompt(kind, input.clone(), Some(why)));
                                Vec::new()
                            }
                        },
                        PromptKind::Outage => match triage::outage::typed(model, &text) {
                            Ok(effects) => effects,
                            Err(why) => {
                                model.overlay = Some(Overlay::Prompt(kind, input.clone(), Some(why)));
                                Vec::new()
                            }
                        },
                        PromptKind::Reason => {
                            if let Err(why) = triage::bulk::reasoned(model, &text) {
                                model.overlay = Some(Overlay::Prompt(kind, input.clone(), Some(why)));
                            }
                            Vec::new()
                        }
                    };
                }
                key => {
                    input.key(key);
                }
            }
        }
        Overlay::Menu(menu) => match key {
            Key::Char(c) if menu.items.iter().any(|i| i.hot == Some(c)) => {
                let choice = menu.items.iter().find(|i| i.hot == Some(c)).map(|i| i.choice.clone());
                return choice.map(|choice| choose(model, choice)).unwrap_or_default();
            }
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
    if let Some(Overlay::Prompt(PromptKind::ServerLog, input, _)) = &model.overlay {
        let text = input.text();
        model.servers.log.set_filter(&text);
        return Vec::new();
    }
    if let Some(Overlay::Prompt(PromptKind::JobsFilter, input, error)) = &mut model.overlay {
        *error = model.jobs.set_filter(&input.text()).err();
        return Vec::new();
    }
    let Some(Overlay::Prompt(PromptKind::Filter, input, error)) = &mut model.overlay else { return Vec::new() };
    let text = input.text();
    let wrong = super::super::filter::Filter::parse(&text).err();
    error.clone_from(&wrong);
    let text = match &wrong {
        None => text.as_str(),
        // What was right before the last word stays in force.
        Some(_) => text.trim_end().rsplit_once(char::is_whitespace).map_or("", |(rest, _)| rest),
    };
    let text = text.to_string();
    let _ = filtered(model, &text);
    Vec::new()
}

/// Sets the filter of the view that is looked at.
fn filtered(model: &mut Model, text: &str) -> Result<(), String> {
    if model.view() == View::Triage {
        model.triage.set_filter(text)?;
        triage::refresh(model);
        return Ok(());
    }
    model.table.set_filter(text)?;
    model.stale = true;
    Ok(())
}

fn choose(model: &mut Model, choice: Choice) -> Vec<Effect> {
    match choice {
        Choice::Filter(text) => {
            home(model);
            set_filter(model, &text);
            Vec::new()
        }
        Choice::Sort(key) => {
            model.table.sort = key;
            model.table.inverted = false;
            model.stale = true;
            Vec::new()
        }
        Choice::SortJobs(order) => {
            jobs::sort(model, order);
            Vec::new()
        }
        Choice::Forget(root) => jobs::forget(model, root),
        Choice::Act(action) => act(model, action),
        Choice::Verdict(target, verdict) => triage::menu::chosen(model, &target, verdict),
        Choice::Bulk(verdict) => triage::bulk::chosen(model, verdict),
        Choice::Abort(target) => {
            model.overlay = Some(Overlay::Ask(steer::ask::Asking::new(steer::ask::Ask::Abort(target))));
            Vec::new()
        }
        Choice::Nothing => Vec::new(),
    }
}
