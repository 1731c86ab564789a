//! Writing down what the operator says of trials: in the order in which it was said.

use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, PoisonError};

use super::{Desk, Shared};
use crate::app::helm::{News, Place, Said, Speech};
use crate::journal::Verdicts;

/// The way to the thread that writes.
pub type Scribe = SyncSender<(Place, Speech)>;

/// Speeches that may wait for a slow disk.
const QUEUE: usize = 256;

impl Desk {
    /// Hands a speech to the thread that writes; starts it when it is needed for the first time.
    pub(super) fn say(&self, place: Place, speech: Speech) {
        let mut scribe = self.0.scribe.lock().unwrap_or_else(PoisonError::into_inner);
        let (job, batch) = (place.job, speech.batch);
        let sender = match &*scribe {
            Some(sender) => Ok(sender.clone()),
            None => start(self.0.clone()).inspect(|sender| *scribe = Some(sender.clone())),
        };
        self.0.unwritten.fetch_add(1, Ordering::Relaxed);
        let handed = sender.and_then(|s| {
            s.try_send((place, speech)).map_err(|_| std::io::Error::other("the journal does not keep up"))
        });
        if let Err(error) = handed {
            self.0.unwritten.fetch_sub(1, Ordering::Relaxed);
            let _ = self.0.news.try_send(News::Said(job, batch, Err(error.to_string())));
        }
    }
}

fn start(shared: Arc<Shared>) -> std::io::Result<Scribe> {
    let (sender, speeches) = sync_channel(QUEUE);
    std::thread::Builder::new().name("scribe".into()).spawn(move || write_all(&shared, &speeches))?;
    Ok(sender)
}

fn write_all(shared: &Shared, speeches: &Receiver<(Place, Speech)>) {
    while let Ok((place, speech)) = speeches.recv() {
        let batch = speech.batch;
        let said = written(&speech);
        shared.unwritten.fetch_sub(1, Ordering::Relaxed);
        shared.tell(News::Said(place.job, batch, said));
    }
}

fn written(speech: &Speech) -> Result<Said, String> {
    let verdicts = Verdicts::new(&speech.facts, crate::cli::state_dir().as_deref());
    let written = match (&speech.outage, &speech.remark) {
        (Some(outage), _) => verdicts.outage(outage),
        (None, Some(remark)) => verdicts.remark(remark.act, &remark.subject, &remark.text),
        (None, None) => verdicts.write(&speech.words),
    };
    let written = written.map_err(|e| e.to_string())?;
    Ok(Said { path: written.path, instead: written.instead, words: written.words })
}
