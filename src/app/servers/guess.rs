//! The endpoint that a running job itself names (`api_base`): read, too, where it is one of the
//! operator's own machines. It is shown from its first answer on; one that never answers as a model server
//! is not spoken of.

use super::super::effect::Effect;
use super::super::model::Model;
use super::super::update::notice;
use crate::job::StateKind;
use crate::serving::{Observation, Seen, Serving, Source, source};

/// How far it is.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum Guess {
    /// Not wanted: sources were named, or nobody can read any.
    #[default]
    No,
    /// Wanted as soon as a job names one.
    Wanted,
    /// Being read; nothing has answered yet.
    Asked(Vec<Source>),
    /// It answered, or there is none.
    Done,
}

/// Looks whether a running job names an endpoint.
pub fn look(model: &mut Model) -> Vec<Effect> {
    if model.servers.guess != Guess::Wanted {
        return Vec::new();
    }
    let running = |key| model.derived.state(key).is_some_and(|s| s.kind == StateKind::Running);
    let found = model.fleet.jobs().iter().filter(|job| running(job.key)).find_map(|job| {
        let here = job.liveness.owner.is_some();
        let endpoints = &job.facts.settings.endpoints;
        endpoints.iter().filter(|url| is_near(url, here)).find_map(|url| source::guess(url))
    });
    let Some(spec) = found else { return Vec::new() };
    let sources = source::sources(&[spec]);
    model.servers.guess = Guess::Asked(sources.clone());
    vec![Effect::Serve(sources)]
}

/// Whether a URL names a machine of the operator's own, by its looks: plain HTTP to this host, to a private
/// address or to a name without dots. `here`: the job's process runs on this host, so that its loopback
/// is ours.
pub fn is_near(url: &str, here: bool) -> bool {
    let Some(rest) = url.strip_prefix("http://") else { return false };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let authority = authority.rsplit('@').next().unwrap_or_default();
    let host = match authority.strip_prefix('[') {
        Some(v6) => v6.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    };
    if let Ok(v4) = host.parse::<core::net::Ipv4Addr>() {
        return v4.is_private() || v4.is_link_local() || (v4.is_loopback() && here);
    }
    if let Ok(v6) = host.parse::<core::net::Ipv6Addr>() {
        let first = v6.segments().first().copied().unwrap_or_default();
        return (v6.is_loopback() && here) || first & 0xfe00 == 0xfc00;
    }
    let name = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    match host {
        "localhost" => here,
        _ => !host.is_empty() && host.chars().all(name),
    }
}

/// Lets observations through; those of a guessed endpoint from its first answer on.
pub fn admit(model: &mut Model, mut observations: Vec<Observation>) -> Vec<Observation> {
    let Guess::Asked(sources) = &model.servers.guess else { return observations };
    let answer = |o: &Observation| {
        matches!(
            o.seen,
            Seen::Info(_) | Seen::Loads(_) | Seen::Workers(_) | Seen::Readiness { .. } | Seen::OfWorker { .. }
        )
    };
    let Some(first) = observations.iter().position(answer) else { return Vec::new() };
    let names: Vec<&str> = sources.iter().map(|s| &*s.server).collect();
    let said = format!("model server {} answers: the job names it; 2 shows it", names.join(", "));
    model.serving = Serving::new(sources.clone(), model.servers.thresholds.clone());
    model.servers.guess = Guess::Done;
    notice(model, said);
    observations.drain(..first);
    observations
}

#[cfg(test)]
mod tests {
    use super::is_near;

    #[test]
    fn only_the_operators_own_machines_are_guessed() {
        for near in ["http://10.1.2.3:30000/v1", "http://gpu-7:8000/v1", "http://192.168.0.4", "http://[fd00::1]:80/v1"]
        {
            assert!(is_near(near, false), "{near}");
        }
        for here in ["http://127.0.0.1:8199/m/default/v1", "http://localhost:30000/v1", "http://[::1]:30000"] {
            assert!(is_near(here, true) && !is_near(here, false), "{here}");
        }
        for far in
            ["https://10.1.2.3/v1", "http://api.example.com/v1", "http://8.8.8.8/v1", "", "http:///v1", "gpu-7:8000"]
        {
            assert!(!is_near(far, true), "{far}");
        }
    }
}
