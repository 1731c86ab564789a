//! Requests at work by the ids that a server's log gives them: what came in and did not end. SGLang
//! tells them with `--log-requests`, as text (`Receive: obj=GenerateReqInput(rid='…'`) or as JSON
//! (`"event": "request.received", "rid": "…"`); without it only what was aborted has a name.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use super::types::{Event, Line, LineKind};
use crate::job::Stamp;

/// Requests that are kept of a server; the oldest go.
const KEPT: usize = 1024;
/// Longest id.
const LONGEST: usize = 200;

/// A request at work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Its id.
    pub rid: Arc<str>,
    /// When the log told of it.
    pub since: Option<Stamp>,
    /// Its client went away.
    pub left: bool,
}

/// The requests of all servers.
#[derive(Debug, Clone, Default)]
pub struct Rids {
    open: BTreeMap<Arc<str>, VecDeque<Request>>,
}

impl Rids {
    /// Takes in a line of a server's log.
    pub fn line(&mut self, server: &Arc<str>, line: &Line, at: Option<Stamp>) {
        match &line.kind {
            LineKind::Event(Event::Starting | Event::Crashed { .. }) => {
                self.open.remove(server);
            }
            LineKind::Event(Event::Aborted(Some(rid))) => self.end(server, rid),
            LineKind::Event(Event::Disconnected(Some(rid))) => {
                let open = self.open.entry(server.clone()).or_default();
                match open.iter_mut().find(|r| r.rid == *rid) {
                    Some(request) => request.left = true,
                    None => begin(open, Request { rid: rid.clone(), since: at, left: true }),
                }
            }
            LineKind::Other => {
                let Some(text) = line.text.as_deref().filter(|t| t.contains("rid")) else { return };
                match told(text) {
                    Some((true, rid)) => {
                        let open = self.open.entry(server.clone()).or_default();
                        begin(open, Request { rid: rid.into(), since: at, left: false });
                    }
                    Some((false, rid)) => self.end(server, rid),
                    None => {}
                }
            }
            _ => {}
        }
    }

    fn end(&mut self, server: &Arc<str>, rid: &str) {
        if let Some(open) = self.open.get_mut(server) {
            open.retain(|r| *r.rid != *rid);
        }
    }

    /// Those of a server, the oldest first.
    pub fn of(&self, server: &str) -> impl Iterator<Item = &Request> {
        self.open.get(server).into_iter().flatten()
    }
}

fn begin(open: &mut VecDeque<Request>, request: Request) {
    if open.iter().any(|r| r.rid == request.rid) {
        return;
    }
    if open.len() >= KEPT {
        open.pop_front();
    }
    open.push_back(request);
}

/// Whether a line tells of a begin or an end, and of which request.
fn told(text: &str) -> Option<(bool, &str)> {
    let begins = if text.contains("Receive: obj=") || text.contains("request.received") {
        true
    } else if text.contains("Finish: obj=") || text.contains("request.finished") {
        false
    } else {
        return None;
    };
    for name in ["rid='", "rid=\"", "\"rid\": \"", "\"rid\":\""] {
        if let Some((_, rest)) = text.split_once(name) {
            let rid = rest.split(['\'', '"']).next().unwrap_or_default();
            let plain = |c: char| c.is_ascii_graphic() && !matches!(c, '\\' | '<' | '>');
            return (!rid.is_empty() && rid.len() <= LONGEST && rid.chars().all(plain)).then_some((begins, rid));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serving::{Ranks, Severity};

    fn line(kind: LineKind, text: &str) -> Line {
        Line { time: None, ranks: Ranks::default(), severity: Severity::Info, kind, text: Some(text.into()) }
    }

    #[test]
    fn what_came_in_and_did_not_end_is_at_work() {
        let (mut rids, a) = (Rids::default(), Arc::from("a"));
        let mut say = |text: &str| rids.line(&a, &line(LineKind::Other, text), None);
        say("[2026-11-29 10:00:00] Receive: obj=GenerateReqInput(rid='one', text='rid=\\'x\\'', stream=True)");
        say("[2026-11-29 10:00:01] Receive: obj=GenerateReqInput(rid='two', text='…')");
        say(r#"{"timestamp": "…", "event": "request.received", "rid": "three"}"#);
        say("[2026-11-29 10:00:09] Finish: obj=GenerateReqInput(rid='two'), out={}");
        say("the rid='four' of a user's text");
        say("Receive: obj=GenerateReqInput(rid='', text='')");
        rids.line(&a, &line(LineKind::Event(Event::Disconnected(Some("one".into()))), ""), None);
        let open: Vec<(&str, bool)> = rids.of("a").map(|r| (&*r.rid, r.left)).collect();
        assert_eq!(open, [("one", true), ("three", false)]);
        rids.line(&a, &line(LineKind::Event(Event::Aborted(Some("one".into()))), ""), None);
        assert_eq!(rids.of("a").count(), 1);
        rids.line(&a, &line(LineKind::Event(Event::Starting), ""), None);
        assert_eq!(rids.of("a").count(), 0);
    }

    #[test]
    fn they_are_bounded() {
        let (mut rids, a) = (Rids::default(), Arc::from("a"));
        for n in 0..5000 {
            rids.line(&a, &line(LineKind::Other, &format!("Receive: obj=G(rid='r{n}')")), None);
        }
        assert_eq!(rids.of("a").count(), KEPT);
        assert_eq!(rids.of("a").next().map(|r| r.rid.to_string()), Some("r3976".to_string()));
    }
}
