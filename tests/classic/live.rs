//! A run that is written step by step, followed as it grows.

use std::fs;
use std::path::Path;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, Instant};

use pilothouse::follow::{Follower, Options, Remote};
use pilothouse::job::{Fleet, JobEvent, Phase, Stamp, phase};

use super::made::Run;

const PATIENCE: Duration = Duration::from_secs(30);

struct Watch {
    fleet: Fleet,
    news: Receiver<Vec<JobEvent>>,
    remote: Remote,
}

impl Watch {
    fn begin(dir: &Path) -> Watch {
        let options = Options { poll: Some(Duration::from_millis(100)), owner: false, ..Options::default() };
        let follower = Follower::new(vec![dir.to_path_buf()], options);
        let remote = follower.remote();
        let (sender, news) = sync_channel(64);
        std::thread::spawn(move || follower.run(Box::new(move |events| sender.send(events).is_ok())));
        Watch { fleet: Fleet::default(), news, remote }
    }

    /// Waits until something holds of the fleet.
    #[track_caller]
    fn until(&mut self, what: &str, holds: impl Fn(&Fleet) -> bool) {
        let end = Instant::now() + PATIENCE;
        while !holds(&self.fleet) {
            assert!(Instant::now() < end, "no {what}: {:#?}", self.fleet.jobs().first().map(|j| &j.trials));
            if let Ok(events) = self.news.recv_timeout(Duration::from_millis(200)) {
                events.into_iter().for_each(|event| self.fleet.apply(event));
            }
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.remote.stop();
    }
}

fn at(fleet: &Fleet, trial: &str) -> Option<Phase> {
    let job = fleet.jobs().first()?;
    let trial = job.trials.get(trial)?;
    Some(phase::of_trial(trial, job.writer(Stamp::now())))
}

/// Written later than another file, by the clock of the files.
fn later(path: &Path, than: &Path, text: &str) {
    let begin = fs::metadata(than).unwrap().modified().unwrap();
    let end = Instant::now() + Duration::from_secs(5);
    loop {
        fs::write(path, text).unwrap();
        if fs::metadata(path).unwrap().modified().unwrap() > begin || Instant::now() > end {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn phases_follow_the_files() {
    let temp = tempfile::tempdir().unwrap();
    let mut run = Run::begin(temp.path(), "r1", &["a", "b"], 1);
    let mut watch = Watch::begin(&run.dir);
    watch.until("settled job", |fleet| fleet.jobs().first().is_some_and(|j| j.settled && j.trials.is_empty()));
    assert_eq!(watch.fleet.jobs()[0].facts.n_planned(), Some((2, "tb.lock")));

    let (name, dir) = run.trial("a", 1);
    let key = format!("a/{name}");
    for sub in ["panes", "sessions", "agent-logs"] {
        fs::create_dir_all(dir.join(sub)).unwrap();
    }
    watch.until("environment", |fleet| at(fleet, &key) == Some(Phase::EnvironmentSetup));
    // The recording begins before the screen is captured, and says nothing yet.
    fs::write(dir.join("sessions/agent.cast"), "{\"version\": 2, \"width\": 160, \"height\": 40}\n").unwrap();
    later(&dir.join("panes/pre-agent.txt"), &dir.join("sessions/agent.cast"), "root@c:/app#\n");
    watch.until("agent setup", |fleet| at(fleet, &key) == Some(Phase::AgentSetup));
    let up = dir.join("panes/pre-agent.txt");
    later(
        &dir.join("sessions/agent.cast"),
        &up,
        "{\"version\": 2, \"width\": 160, \"height\": 40}\n[1, \"o\", \"x\"]\n",
    );
    watch.until("agent", |fleet| at(fleet, &key) == Some(Phase::AgentRunning(1)));
    Run::episode(&dir, 0, "do it", Some("{\"commands\": []}"));
    Run::episode(&dir, 1, "what came back", None);
    watch.until("second episode", |fleet| at(fleet, &key) == Some(Phase::AgentRunning(2)));
    let shown = |fleet: &Fleet| {
        fleet.jobs()[0].trials[&*key].evidence.as_deref().map(phase::evidence_file).unwrap_or_default().to_string()
    };
    assert_eq!(shown(&watch.fleet), "agent-logs");
    Run::episode(&dir, 1, "what came back", Some("{\"commands\": []}"));
    watch.until("third episode", |fleet| at(fleet, &key) == Some(Phase::AgentRunning(3)));
    fs::write(dir.join("panes/post-agent.txt"), "done\n").unwrap();
    watch.until("verifier", |fleet| at(fleet, &key) == Some(Phase::Verifying));
    fs::write(dir.join("panes/post-test.txt"), "1 passed\n").unwrap();
    watch.until("last pane", |fleet| shown(fleet) == "panes/post-test.txt");

    // A result caught in the middle of its writing is none.
    fs::write(dir.join("results.json"), "{\"trial_name\": \"").unwrap();
    std::thread::sleep(Duration::from_millis(300));
    run.end("a", 1, Some(true), "unset");
    watch.until("result", |fleet| {
        let job = &fleet.jobs()[0];
        job.trials[&*key].result.as_ref().is_some_and(|r| r.rewards.primary() == Some(1.0))
    });
    assert_eq!(watch.fleet.jobs()[0].trials[&*key].result.as_ref().unwrap().n_episodes, Some(2));

    // A trial that the harness threw away appears in the aggregate alone; its reason in the log, later.
    let alone = run.result("b", 1, None, "unknown_agent_error");
    let other = format!("b/{}", run.trial("b", 1).0);
    run.known(alone);
    watch.until("trial of the aggregate", |fleet| fleet.jobs()[0].trials.contains_key(&*other));
    fs::write(run.dir.join("run.log"), "Harness execution failed for /tasks/b: (\"the reason\", 'x')\n").unwrap();
    watch.until("reason", |fleet| {
        let result = fleet.jobs()[0].trials[&*other].result.as_ref();
        result.is_some_and(|r| r.exception.as_ref().is_some_and(|e| e.message.contains("the reason")))
    });
    run.metadata(&["a", "b"], Some(0.5));
    watch.until("end", |fleet| fleet.jobs()[0].facts.summary.as_ref().is_some_and(|s| s.finished.is_some()));
    assert_eq!(watch.fleet.jobs()[0].state(Stamp::now()).kind, pilothouse::job::StateKind::Finished);
}

#[test]
fn a_run_that_begins_appears_and_one_deleted_for_a_resume_goes() {
    let temp = tempfile::tempdir().unwrap();
    let mut watch = Watch::begin(temp.path());
    let mut run = Run::begin(temp.path(), "r1", &["a"], 1);
    let trial = run.end("a", 1, Some(false), "unset");
    let key = format!("a/{}", run.trial("a", 1).0);
    watch.until("trial", |fleet| fleet.jobs().first().is_some_and(|j| j.trials.contains_key(&*key)));
    run.results.clear();
    run.aggregate();
    fs::remove_dir_all(trial.parent().unwrap()).unwrap();
    watch.until("vanished trial", |fleet| !fleet.jobs()[0].trials.contains_key(&*key));
}
