//! The engine's events: who died, who was killed for want of memory, and that images changed.
//!
//! The inspected state of a container says nothing reliable about memory; the events do. One task
//! follows them per engine and connects again from the last one seen.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bollard::Docker;
use bollard::models::{EventMessage, EventMessageTypeEnum};
use bollard::query_parameters::EventsOptionsBuilder;
use futures_util::StreamExt;
use tokio::sync::watch;

use crate::job::Stamp;

/// What is listened for: two of containers, the rest of images, by which a name comes to mean another one.
const EVENTS: [&str; 8] = ["oom", "die", "tag", "untag", "delete", "pull", "load", "import"];

/// What the events told about a container.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Seen {
    /// Kills for want of memory.
    pub(super) oom: u32,
    /// Its first process ended: exit code.
    pub(super) died: Option<i64>,
}

/// The containers that somebody waits for.
#[derive(Debug, Default)]
pub(super) struct Watch {
    seen: Mutex<HashMap<String, watch::Sender<Seen>>>,
    homes: Mutex<Homes>,
}

/// Where commands start, by image; forgotten when any image changes.
#[derive(Debug, Default)]
struct Homes {
    by_image: HashMap<String, String>,
    /// How often they were forgotten.
    changes: u64,
}

impl Homes {
    fn forget(&mut self) {
        self.by_image.clear();
        self.changes += 1;
    }
}

impl Watch {
    fn seen(&self) -> std::sync::MutexGuard<'_, HashMap<String, watch::Sender<Seen>>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins to keep what is told about a container.
    pub(super) fn begin(&self, id: &str) -> watch::Receiver<Seen> {
        self.seen().entry(id.to_string()).or_insert_with(|| watch::Sender::new(Seen::default())).subscribe()
    }

    /// Forgets it.
    pub(super) fn end(&self, id: &str) {
        self.seen().remove(id);
    }

    fn homes(&self) -> std::sync::MutexGuard<'_, Homes> {
        self.homes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where commands start in containers of an image, as one of them said.
    pub(super) fn home(&self, image: &str) -> Option<String> {
        self.homes().by_image.get(image).cloned()
    }

    /// How often images changed so far.
    pub(super) fn changes(&self) -> u64 {
        self.homes().changes
    }

    /// Keeps what a container said that was made after so many changes of images, if there were no more.
    pub(super) fn learn_home(&self, image: &str, home: String, changes: u64) {
        let mut homes = self.homes();
        if homes.changes == changes {
            homes.by_image.insert(image.to_string(), home);
        }
    }

    fn note(&self, message: &EventMessage) {
        if message.typ == Some(EventMessageTypeEnum::IMAGE) {
            self.homes().forget();
            return;
        }
        let Some(id) = message.actor.as_ref().and_then(|a| a.id.as_deref()) else { return };
        let seen = self.seen();
        let Some(sender) = seen.get(id) else { return };
        match message.action.as_deref() {
            Some("oom") => sender.send_modify(|s| s.oom = s.oom.saturating_add(1)),
            Some("die") => {
                let attributes = message.actor.as_ref().and_then(|a| a.attributes.as_ref());
                let code = attributes.and_then(|a| a.get("exitCode")).and_then(|c| c.parse().ok());
                sender.send_modify(|s| s.died = Some(code.unwrap_or(-1)));
            }
            _ => {}
        }
    }
}

/// Follows the events until it is aborted. `since` is a moment on the engine's clock.
pub(super) async fn follow(docker: Docker, watch: Arc<Watch>, since: Option<Stamp>) {
    let filters = HashMap::from([
        ("type".to_string(), vec!["container".to_string(), "image".to_string()]),
        ("event".to_string(), EVENTS.map(str::to_string).to_vec()),
    ]);
    let mut last = since.map_or(0, |s| i64::try_from(s.as_nanosecond()).unwrap_or(0));
    let mut pause = Duration::from_millis(100);
    loop {
        let mut options = EventsOptionsBuilder::default().filters(&filters);
        let from = format!("{}.{:09}", last / 1_000_000_000, last % 1_000_000_000);
        if last > 0 {
            options = options.since(&from);
        }
        let mut stream = std::pin::pin!(docker.events(Some(options.build())));
        while let Some(Ok(message)) = stream.next().await {
            pause = Duration::from_millis(100);
            let at = message.time_nano.unwrap_or(0);
            // The engine repeats what happened at the moment itself.
            if at > last || at == 0 {
                watch.note(&message);
                last = last.max(at);
            }
        }
        watch.homes().forget();
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(Duration::from_secs(5));
    }
}
