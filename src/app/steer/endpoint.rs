//! Another address for the model of a job that runs: typed in, probed, shown, then decided.

use super::super::effect::Effect;
use super::super::helm::{Order, Probed, Side, Where};
use super::super::input::Input;
use super::super::model::Model;
use super::super::overlay::{Overlay, PromptKind};
use super::super::servers::{self, guess::Guess};
use super::super::update::notice;
use super::ask::{Ask, Asking, Content, Deed, Tone};
use super::why_not_owner;
use crate::serving::source;

/// Where they are now. An address that one was moved to is read, too, as its former one was.
pub fn heard(model: &mut Model, endpoints: Vec<Where>) -> Vec<Effect> {
    let mut new = Vec::new();
    for (place, endpoint) in endpoints.iter().enumerate().filter(|(_, e)| e.moves > 0) {
        let known = model.serving.server_at_base(&endpoint.base).is_some();
        // Nothing is read at all, or not yet: then this neither.
        if known || !servers::any(model) {
            continue;
        }
        let near = servers::guess::is_near(&endpoint.base, true) || model.servers.guess == Guess::No;
        new.extend(source::moved_to(&endpoint.base, place, endpoint.moves).filter(|_| near));
    }
    model.steer.endpoints = endpoints;
    if new.is_empty() {
        return Vec::new();
    }
    new.into_iter().for_each(|source| model.serving.add(source));
    // Who runs the job reads it by itself, for this screen, too.
    match model.steer.side {
        Side::Owner => Vec::new(),
        _ => vec![Effect::Serve(model.serving.sources().iter().map(|s| s.source.clone()).collect())],
    }
}

/// Why no endpoint can be moved from here; None: one can.
pub fn why_not(model: &Model) -> Option<String> {
    if let Some(why) = why_not_owner(model) {
        return Some(why);
    }
    match model.steer.endpoints.as_slice() {
        [] => Some("no agent of this job calls a model at an address of the job's config".to_string()),
        [_] => None,
        _ => Some("several endpoints: pilothouse endpoint JOB_DIR URL --of OLD moves one of them".to_string()),
    }
}

/// Asks for the address.
pub fn begin(model: &mut Model) -> Vec<Effect> {
    if let Some(why) = why_not(model) {
        notice(model, why);
        return Vec::new();
    }
    if let Some(url) = &model.steer.probing {
        let said = format!("{url} is being probed");
        notice(model, said);
        return Vec::new();
    }
    let base = model.steer.endpoints.first().map(|e| e.base.clone());
    let base = model.steer.probed.as_ref().map(|p| p.url.clone()).or(base).unwrap_or_default();
    model.overlay = Some(Overlay::Prompt(PromptKind::NewEndpoint, Input::new(&base), None));
    Vec::new()
}

/// It was typed in: it is probed.
///
/// # Errors
/// Why not, in words.
pub fn typed(model: &mut Model, text: &str) -> Result<Vec<Effect>, String> {
    let url = text.trim();
    if url.is_empty() {
        return Ok(Vec::new());
    }
    if !(url.starts_with("http://") || url.starts_with("https://")) {
        return Err("a URL, as http://HOST:PORT/v1".to_string());
    }
    if let Some(why) = why_not(model) {
        return Err(why);
    }
    notice(model, format!("probing {url}: models, context, one answer"));
    model.steer.probing = Some(url.to_string());
    Ok(vec![Effect::Helm(Order::Probe(url.to_string()))])
}

/// What was found is shown, and asked about.
pub fn probed(model: &mut Model, probed: Result<Probed, String>) -> Vec<Effect> {
    model.steer.probing = None;
    match probed {
        Err(why) => notice(model, format!("not probed: {why}")),
        Ok(probed) => {
            let ask = Asking::new(Ask::Endpoint(probed.url.clone()));
            model.steer.probed = Some(probed);
            // What is being typed or decided is not taken away: the next E asks again.
            match model.overlay {
                None => model.overlay = Some(Overlay::Ask(ask)),
                Some(_) => notice(model, "the address was probed: press E again to decide"),
            }
        }
    }
    Vec::new()
}

/// The question.
pub fn content(model: &Model, url: &str) -> Content {
    let mut out = Content { title: "call the model elsewhere?".to_string(), ..Content::default() };
    let probed = model.steer.probed.as_ref().filter(|probed| probed.url == url);
    let Some(probed) = probed.filter(|_| why_not(model).is_none()) else {
        out.say(Tone::Plain, "It can not be moved from here any more.");
        out.offer(Deed::Keep, "close", "");
        return out;
    };
    out.say(Tone::Strong, format!("from {}", probed.now));
    out.say(Tone::Strong, format!("to   {}", probed.url));
    for line in &probed.found {
        out.say(Tone::Plain, format!("  {line}"));
    }
    for line in &probed.problems {
        out.say(Tone::Alarm, format!("! {line}"));
    }
    if !probed.problems.is_empty() {
        out.say(Tone::Plain, "It stays where it is: what was found there is not what trials began with.");
        out.offer(Deed::Keep, "close", "");
        return out;
    }
    out.say(
        Tone::Dim,
        "Every call from now on goes there. Where a model is served is no part of what a trial is: a resume, a requeue \
         and the tally take no notice. It is noted in the job's journal.",
    );
    out.offer(Deed::Keep, "leave it", "");
    out.offer(Deed::Move, "move it", "calls under way are made again there");
    out
}

/// It is to be done.
pub fn go(model: &mut Model, url: &str) -> Vec<Effect> {
    if let Some(why) = why_not(model) {
        notice(model, why);
        return Vec::new();
    }
    notice(model, format!("the model is called at {url} from now on"));
    vec![Effect::Helm(Order::Endpoint(url.to_string()))]
}
