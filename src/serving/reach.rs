//! Whether an endpoint that trials call can be called now, by all that is known of its servers: not by one
//! answer alone. What is not known closes nothing.

use super::source;
use super::state::plain_url;
use super::{DiagnosisKind, Place, Server, Serving, Severity, State, Unreached};
use crate::job::Stamp;
use crate::job::text::{clean, mask_secrets};

/// An endpoint that is not to be called now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Away {
    /// Since when, where that can be told.
    pub since: Option<Stamp>,
    /// In words, safe to print; they do not change with time alone.
    pub words: String,
}

impl Serving {
    /// The server whose URL an endpoint is (with or without `/v1`, by a container's name for its host).
    pub fn server_at_base(&self, base: &str) -> Option<&Server> {
        let plain = source::guess(base).and_then(|spec| match spec.place {
            Place::Http(url) => Some(plain_url(&url)),
            _ => None,
        });
        let plain = plain.unwrap_or_else(|| plain_url(base));
        let of = |place: &Place| matches!(place, Place::Http(own) if plain_url(own) == plain);
        let source = self.sources().iter().find(|s| of(&s.source.place))?;
        self.servers().get(source.server)
    }

    /// Why an endpoint is not to be called; None: nothing speaks against it. Its servers are the one whose
    /// URL it is; else the routers among all, else all of them, of which one that works is enough.
    /// `heard`: only those count that have answered once.
    pub fn away(&self, base: Option<&str>, heard: bool) -> Option<Away> {
        let own = base.and_then(|base| self.server_at_base(base));
        let routers = || self.servers().iter().filter(|server| server.is_router());
        let servers: Vec<&Server> = match own {
            Some(server) => vec![server],
            None if routers().next().is_some() => routers().collect(),
            None => self.servers().iter().collect(),
        };
        let mut found: Option<Away> = None;
        for server in servers {
            let away = self.server_away(server).filter(|_| !heard || server.was_alive)?;
            let later = found.as_ref().is_none_or(|f| away.since > f.since);
            if later {
                found = Some(away);
            }
        }
        found
    }

    /// Why a server does not serve, where all of it does not.
    fn server_away(&self, server: &Server) -> Option<Away> {
        let say = |since: Option<Stamp>, words: &str| {
            let words = clean(&mask_secrets(words)).into_owned();
            Some(Away { since, words: format!("model server {} {words}", clean(&server.name)) })
        };
        // A server of no known engine tells that it is back by answering at all.
        let back = |s: &super::SourceView| {
            let refused = matches!(s.unreached, Some(Unreached::Refused | Unreached::TimedOut));
            s.source.server == server.name && s.is_base() && s.failures.count == 0 && s.heard.is_some() && !refused
        };
        if server.engine.is_none() && self.sources().iter().any(back) {
            return None;
        }
        match server.state() {
            State::Dead => return say(server.since(), "is gone"),
            State::Restarting => return say(server.since(), "starts again"),
            State::Starting => return say(server.since(), "starts"),
            _ => {}
        }
        let open = |kind: DiagnosisKind| {
            self.open().find(|d| d.kind == kind && d.server == server.name && d.severity >= Severity::Error)
        };
        if let Some(found) = open(DiagnosisKind::Unreachable) {
            return say(found.since, "does not answer");
        }
        if let Some((0, all)) = server.readiness.filter(|(_, all)| *all > 0) {
            return say(None, &format!("has no healthy worker of {all}"));
        }
        let rows = server.replicas();
        let gone = |state: State| matches!(state, State::Dead | State::Hung | State::Restarting);
        // A first suspicion of a hang looks like a long prefill: what it says holds up no trial.
        let proven = rows.iter().all(|row| row.state != State::Hung)
            || open(DiagnosisKind::Hang).is_some()
            || open(DiagnosisKind::Watchdog).is_some();
        if rows.is_empty() || !proven || !rows.iter().all(|row| gone(row.state)) {
            return None;
        }
        let since = rows.iter().filter_map(super::Replica::since).max();
        let hung = rows.iter().any(|row| row.state == State::Hung);
        say(since, if hung { "hangs" } else { "has no replica that works" })
    }
}
