//! Where an agent sits: its terminal, which outlives its work, and what it has to report so far.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::harbor::write::result::AgentResult;
use crate::job::Stamp;
use crate::job::work::Work;
use crate::terminal::Session;

/// An agent's place in one trial. The trial keeps it: when the agent's time is over its terminal stays open
/// until the tests are done, since what it left running may be what is tested; and through all steps of a
/// task that has several.
#[derive(Debug, Default)]
pub struct Desk {
    session: tokio::sync::Mutex<Option<Session>>,
    report: Mutex<AgentResult>,
    work: Arc<Mutex<Work>>,
    version: Mutex<Option<String>>,
}

impl Desk {
    /// The terminal, for the one who works; None until it is opened.
    pub async fn terminal(&self) -> tokio::sync::MutexGuard<'_, Option<Session>> {
        self.session.lock().await
    }

    /// What the agent would report if it ended now.
    pub fn report(&self, result: AgentResult) {
        *self.last() = result;
    }

    /// Tells what the agent does now.
    pub fn tell(&self, change: impl FnOnce(&mut Work)) {
        let mut work = self.work.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut work);
        work.told = Some(Stamp::now());
    }

    /// What the agent does, for whoever shows it.
    pub fn work(&self) -> Arc<Mutex<Work>> {
        Arc::clone(&self.work)
    }

    /// Which version was found where it works.
    pub fn found_version(&self, version: &str) {
        *self.version.lock().unwrap_or_else(PoisonError::into_inner) = Some(version.to_string());
    }

    /// The version that was found.
    pub fn version(&self) -> Option<String> {
        self.version.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The last report, once.
    pub fn reported(&self) -> AgentResult {
        std::mem::take(&mut *self.last())
    }

    /// What happened to the terminal since the last time. Safe to print.
    pub async fn notes(&self) -> Vec<String> {
        self.terminal().await.as_ref().map(Session::notes).unwrap_or_default()
    }

    /// Ends the recording of the terminal, which goes on: between two steps of a task. The next agent at
    /// this desk begins another ([`Session::record`]). Gives the notes so far.
    pub async fn rest(&self) -> Vec<String> {
        let session = self.terminal().await;
        let Some(session) = session.as_ref() else { return Vec::new() };
        session.record(None);
        session.notes()
    }

    /// Closes the terminal, if there is one. What runs in it runs on. Gives the last notes.
    pub async fn clear(&self) -> Vec<String> {
        let Some(session) = self.terminal().await.take() else { return Vec::new() };
        let notes = session.notes();
        session.close().await;
        notes
    }

    fn last(&self) -> MutexGuard<'_, AgentResult> {
        self.report.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
