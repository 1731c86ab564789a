//! What waits for the player: wishes that are joined, and a pane whose recording is not there yet.

use std::path::PathBuf;
use std::time::Instant;

use super::super::inbox::Wish;
use super::super::replay::{Request, Source};
use super::Session;
use super::files::runs;

impl Wish for Request {
    const MOST: usize = 64;

    /// Keys that are held down become one wish; so only what differs from key to key can fill an inbox.
    fn join(self, waiting: &mut Vec<Request>) {
        if !self.may_go() {
            waiting.clear();
        }
        let needless = |last: &Request| {
            matches!(
                (last, &self),
                (Request::Skip(_) | Request::Percent(_), Request::Percent(_))
                    | (Request::Skip(_) | Request::Percent(_) | Request::End, Request::End)
                    | (Request::Search(_) | Request::Match(_), Request::Search(_))
                    | (Request::Match(_), Request::Match(_))
            )
        };
        while waiting.pop_if(|last| needless(last)).is_some() {}
        match (waiting.last_mut(), &self) {
            // Of different directions they are two: the first may stop at an end.
            (Some(Request::Skip(a)), Request::Skip(b)) if a.is_sign_negative() == b.is_sign_negative() => *a += b,
            (Some(Request::Step(a)), Request::Step(b)) if a.is_negative() == b.is_negative() => {
                *a = a.saturating_add(*b);
            }
            _ => waiting.push(self),
        }
    }

    fn may_go(&self) -> bool {
        !matches!(self, Request::Open(_) | Request::Pane { .. } | Request::Close)
    }
}

/// A pane whose recording is not there yet.
pub(super) struct Awaited {
    pub serial: u64,
    pub dir: PathBuf,
    pub episode: Option<usize>,
    pub looked: Instant,
}

impl Awaited {
    /// The recording, once there is one; nothing to wait for when the trial has ended.
    pub fn look(self) -> Result<Session, (Option<Awaited>, String)> {
        let source = Source { path: self.dir.clone(), title: String::new(), episode: self.episode, moment: None };
        match Session::open(source, Some(self.serial)) {
            Ok(session) => Ok(session),
            Err(why) => {
                let again = runs(&self.dir).then(|| Awaited { looked: Instant::now(), ..self });
                Err((again, why))
            }
        }
    }
}
