//! Where evidence lies in a trial of classic terminal-bench.

use super::{Base, Gathered, NAMES, Source, Text, output_of};
use crate::harbor::EntryKind;
use crate::harbor::classic::place::LOG;
use crate::triage::folders::Folders;

/// The file that holds its result.
const FIELD: &str = "results.json";

impl Gathered<'_> {
    /// The same of a trial of classic terminal-bench.
    pub(super) fn read_classic(&mut self, source: Source) -> Vec<Text> {
        let last = |folders: &Folders| {
            let logs = folders.get("agent-logs")?;
            let names = logs.names(NAMES, |kind, name| kind == EntryKind::Dir && name.starts_with("episode-"));
            let number = |name: &String| name.rsplit('-').next().and_then(|n| n.parse::<u32>().ok());
            names.into_iter().max_by_key(number)
        };
        match source {
            Source::Message => {
                let Some(exception) = self.result.exception.as_ref().filter(|e| !e.message.is_empty()) else {
                    return Vec::new();
                };
                // What no file of the trial says is from the log of the run.
                match exception.message.strip_prefix(LOG).and_then(|rest| rest.strip_prefix(": ")) {
                    Some(words) => vec![self.text(LOG, words, Base::Field)],
                    None => vec![self.text(FIELD, &exception.message, Base::Field)],
                }
            }
            Source::Output => self.read_classic(Source::Message).into_iter().filter_map(output_of).collect(),
            Source::VerifierLog => {
                // What the harness's parser read; else what was recorded.
                let pane = self.file("panes/post-test.txt");
                if pane.is_empty() { self.end("sessions/tests.log").into_iter().collect() } else { pane }
            }
            Source::Terminal => {
                let pane = self.end("panes/post-agent.txt");
                pane.or_else(|| self.end("sessions/agent.log")).into_iter().collect()
            }
            Source::AgentLog => self.logs("agent-logs", false),
            Source::SetupLog => self.file("panes/pre-agent.txt"),
            Source::Trajectory => match last(&self.folders) {
                Some(name) => self.end(&format!("agent-logs/{name}/response.txt")).into_iter().collect(),
                None => Vec::new(),
            },
            Source::Container => self.container(),
            Source::Traceback | Source::TrialLog => Vec::new(),
        }
    }
}
