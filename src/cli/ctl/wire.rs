//! What is said over the control socket: one line of JSON a request, one a answer, both with their version.
//!
//! `{"v":1,"op":"slots","n":4,"who":"me@host","why":"…"}` →
//! `{"v":1,"ok":true,"said":["…"],"status":{…}}`. After `watch` a line comes at every change, and further
//! requests may follow on the same connection.

use serde::{Deserialize, Serialize};

use crate::app::helm::{Order, Probed, Where};
use crate::job::text::{clean, mask_secrets, strip_ansi};
use crate::report::work::WorkJson;

/// The version of the lines.
pub const VERSION: u32 = 1;
/// Longest line, in bytes.
pub const LONGEST: usize = 1 << 20;
/// Characters kept of what somebody says about themselves or their reasons.
const WORDS: usize = 400;

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum Op {
    /// How it stands.
    Status,
    /// How it stands, now and at every change, and what trials at work do.
    Watch,
    /// What trials at work do.
    Work,
    /// The one who watches steers from now on.
    Take,
    /// Begin nothing until it is resumed.
    Pause,
    /// Begin trials again.
    Resume,
    /// Begin nothing new, let what runs end.
    Drain,
    /// Begin nothing new and cancel what runs.
    Stop,
    /// Cancel running trials, by their names or their tasks'.
    Cancel {
        /// Which.
        trials: Vec<String>,
    },
    /// So many trial slots.
    Slots {
        /// How many.
        n: usize,
    },
    /// So many agents at work at a time.
    Agents {
        /// How many.
        n: usize,
    },
    /// Trials that have not begun to the front of the queue, by their names or their tasks'.
    First {
        /// Which, in this order.
        trials: Vec<String>,
    },
    /// The model of the job's agents is called at another address, once that was probed.
    Endpoint {
        /// The new address.
        url: String,
        /// Which endpoint: its address in the job's config, or the present one; null: the only one.
        #[serde(default)]
        of: Option<String>,
        /// False: it is only probed.
        #[serde(default)]
        sure: bool,
    },
}

impl Op {
    /// Its name in the journal and in messages.
    pub fn word(&self) -> &'static str {
        match self {
            Op::Status => "status",
            Op::Watch => "watch",
            Op::Work => "work",
            Op::Take => "take",
            Op::Pause => "pause",
            Op::Resume => "resume",
            Op::Drain => "drain",
            Op::Stop => "stop",
            Op::Cancel { .. } => "cancel",
            Op::Slots { .. } => "slots",
            Op::Agents { .. } => "agents",
            Op::First { .. } => "first",
            Op::Endpoint { .. } => "endpoint",
        }
    }

    /// What an order of a screen asks of the process that runs the job; None: it is for the desk behind
    /// the screen. A stop is one here, however little patience it has.
    pub fn of(order: &Order) -> Option<Op> {
        Some(match order {
            Order::Slots(n) => Op::Slots { n: *n },
            Order::Pause => Op::Pause,
            Order::Resume => Op::Resume,
            Order::CancelTrial(name) => Op::Cancel { trials: vec![name.clone()] },
            Order::CancelTrials(trials) => Op::Cancel { trials: trials.clone() },
            Order::First(trials) => Op::First { trials: trials.clone() },
            Order::TakeHelm => Op::Take,
            Order::Drain => Op::Drain,
            Order::Cancel | Order::Hurry => Op::Stop,
            Order::Probe(url) => Op::Endpoint { url: url.clone(), of: None, sure: false },
            Order::Endpoint(url) => Op::Endpoint { url: url.clone(), of: None, sure: true },
            Order::Survey(..)
            | Order::Stop(..)
            | Order::Audit(_)
            | Order::Mend(..)
            | Order::Say(..)
            | Order::Prepare(_)
            | Order::Requeue(_)
            | Order::Abort(_)
            | Order::LookForHeld(..)
            | Order::Regrade { .. }
            | Order::Preview(_) => return None,
        })
    }
}

/// A request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// [`VERSION`].
    pub v: u32,
    /// What.
    #[serde(flatten)]
    pub op: Op,
    /// Who asks.
    #[serde(default)]
    pub who: String,
    /// Why.
    #[serde(default)]
    pub why: String,
}

impl Request {
    /// A request of this user.
    pub fn of(op: Op, why: &str) -> Request {
        Request { v: VERSION, op, who: crate::journal::operator(), why: why.to_string() }
    }
}

/// A gate that is closed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gate {
    /// Its name: `docker`, `disk`, `endpoint`.
    pub gate: String,
    /// Why.
    pub why: String,
    /// Since when, UTC.
    pub since: String,
}

/// Where a model of the job is served.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct Endpoint {
    /// Its address in the job's config: it is known by that.
    pub named: String,
    /// Where it is now.
    pub base: String,
    /// How often it was moved.
    pub moves: u32,
    /// Why no call is made now; null: calls are made.
    pub closed: Option<String>,
}

impl Endpoint {
    /// As a screen has it.
    pub fn shown(&self) -> Where {
        let closed = self.closed.as_deref().map(tame);
        Where { named: tame(&self.named), base: tame(&self.base), moves: self.moves, closed }
    }
}

/// What a probe of an address found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct Probe {
    /// The address.
    pub url: String,
    /// The endpoint that would go there: its address in the job's config.
    pub named: String,
    /// Where it is now.
    pub now: String,
    /// What was found, a line each.
    pub found: Vec<String>,
    /// What speaks against it, a line each; none: it may be moved there.
    pub problems: Vec<String>,
}

impl Probe {
    /// As a screen has it.
    pub fn shown(&self) -> Probed {
        let all = |lines: &[String]| lines.iter().map(|line| tame(line)).collect();
        Probed { url: tame(&self.url), now: tame(&self.now), found: all(&self.found), problems: all(&self.problems) }
    }
}

/// How a job stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct State {
    /// The job's id.
    pub job: String,
    /// Its directory.
    pub dir: String,
    /// The process that runs it.
    pub pid: u32,
    /// Trial slots.
    pub slots: usize,
    /// Fewer trials at a time than slots, for errors of their surroundings; null: no.
    pub adaptive_limit: Option<usize>,
    /// Whether that limit has settled.
    pub settled: bool,
    /// Agents that may work at a time; null: as many as trials.
    pub agents: Option<usize>,
    /// Agents at work.
    pub agents_at_work: usize,
    /// Trials at work.
    pub running: usize,
    /// Trials that wait for their next attempt.
    pub waiting: usize,
    /// Trials that have not begun.
    pub queued: usize,
    /// Trials whose result stands.
    pub ended: usize,
    /// `no`, `drain`, `cancel`.
    pub stop: String,
    /// Nothing begins until it is resumed.
    pub paused: bool,
    /// Gates that are closed.
    pub gates: Vec<Gate>,
    /// Where the models of its agents are served.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub endpoints: Vec<Endpoint>,
    /// Who steers it from a screen; null: nobody.
    pub helm: Option<String>,
    /// Names of trials at work; with `status` only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub running_trials: Vec<String>,
    /// Names of trials that have not begun, in the order in which they will; with `status` only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub queue: Vec<String>,
}

/// An answer, or news after `watch`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
pub struct Answer {
    /// [`VERSION`].
    pub v: u32,
    /// It was done.
    pub ok: bool,
    /// Why not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// What was done, or what somebody else did, a line each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub said: Vec<String>,
    /// How the job stands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<State>,
    /// What trials at work do; after `watch` those of which something changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub work: Vec<WorkJson>,
    /// Trials that are not at work any more; after `watch`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gone: Vec<String>,
    /// What a probe found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probe: Option<Probe>,
    /// The one who reads this steers; after `watch`.
    #[serde(default)]
    pub steers: bool,
    /// The job is over.
    #[serde(default)]
    pub over: bool,
}

impl Answer {
    /// It was done, and this is what there is to say.
    pub fn done(said: Vec<String>) -> Answer {
        Answer { v: VERSION, ok: true, said, ..Answer::default() }
    }

    /// It was not done.
    pub fn not(why: impl Into<String>) -> Answer {
        Answer { v: VERSION, error: Some(why.into()), ..Answer::default() }
    }
}

/// One line of it, with its end.
pub fn line(value: &impl Serialize) -> Vec<u8> {
    let mut line = serde_json::to_vec(value).unwrap_or_default();
    line.push(b'\n');
    line
}

/// Words of somebody else, fit for a terminal and a journal: short, one line, without secrets.
pub fn tame(text: &str) -> String {
    let short: String = text.chars().take(WORDS).collect();
    mask_secrets(&clean(&strip_ansi(&short)).replace(['\n', '\r', '\t'], " ")).trim().to_string()
}

/// Reads a request.
///
/// # Errors
/// What is wrong with it, in words.
pub fn read(line: &[u8]) -> Result<Request, String> {
    #[derive(Deserialize)]
    struct Versioned {
        v: u32,
    }
    match serde_json::from_slice::<Versioned>(line) {
        Ok(Versioned { v: VERSION }) => {}
        Ok(Versioned { v }) => return Err(format!("version {v} is not spoken here: this is version {VERSION}")),
        Err(e) => return Err(format!("no request: {e}")),
    }
    let request: Request = serde_json::from_slice(line).map_err(|e| format!("no request: {e}"))?;
    Ok(Request { who: tame(&request.who), why: tame(&request.why), ..request })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_as_it_was_written() {
        let request = Request { v: 1, op: Op::Slots { n: 3 }, who: "me@here".into(), why: "room".into() };
        let written = line(&request);
        assert_eq!(
            String::from_utf8_lossy(&written),
            "{\"v\":1,\"op\":\"slots\",\"n\":3,\"who\":\"me@here\",\"why\":\"room\"}\n"
        );
        assert_eq!(read(&written), Ok(request));
        assert_eq!(read(b"{\"v\":1,\"op\":\"pause\"}").map(|r| r.op), Ok(Op::Pause));
        for (bad, why) in [
            (&b"{\"v\":2,\"op\":\"pause\"}"[..], "version 2"),
            (b"{\"op\":\"pause\"}", "no request"),
            (b"{\"v\":1,\"op\":\"burn\"}", "no request"),
            (b"{\"v\":1,\"op\":\"slots\",\"n\":-1}", "no request"),
            (b"\xff\x00", "no request"),
        ] {
            assert!(read(bad).is_err_and(|e| e.contains(why)), "{bad:?}");
        }
        assert!(!tame("a\u{1b}[31mb\n\u{202e}c\0").chars().any(|c| c.is_control() || c == '\u{202e}'));
    }
}
