//! The application without a terminal and without threads: keys in, screens out.
#![allow(dead_code, clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::path::{Path, PathBuf};

use pilothouse::app::derived::Counting;
use pilothouse::app::detail_worker::Loader;
use pilothouse::app::effect::Effect;
use pilothouse::app::key::Key;
use pilothouse::app::message::Msg;
use pilothouse::app::model::{Look, Model, Theme};
use pilothouse::app::update::{self, open_trial, update};
use pilothouse::follow::{Follower, Options};
use pilothouse::job::{JobEvent, Stamp, TrialKey};

use super::screen;

/// The clock of staged tests.
pub fn now() -> Stamp {
    "2026-11-29T20:00:00Z".parse().unwrap()
}

pub struct Stage {
    pub model: Model,
    pub loader: Loader,
    /// What the effects asked for beside the loader.
    pub copied: Vec<String>,
    pub roots: Vec<PathBuf>,
    /// What the player was asked for.
    pub played: Vec<pilothouse::app::replay::Request>,
}

impl Stage {
    /// All that is to be known of these dirs.
    pub fn new(roots: &[&Path], size: (u16, u16)) -> Stage {
        let look = Look { ascii: false, theme: Theme::Default };
        let mut stage = Stage {
            model: Model::new(now(), size, look, Counting::default()),
            loader: Loader::default(),
            copied: Vec::new(),
            roots: roots.iter().map(|r| r.to_path_buf()).collect(),
            played: Vec::new(),
        };
        stage.scan();
        stage
    }

    /// Reads the dirs anew, as the follower would tell of changes.
    pub fn scan(&mut self) {
        let mut all: Vec<JobEvent> = Vec::new();
        Follower::new(self.roots.clone(), Options::default()).scan_once(&mut |events| {
            all.extend(events);
            true
        });
        self.send(Msg::Jobs(all));
        update::settle(&mut self.model);
    }

    /// Opens the trial whose directory name begins so.
    pub fn open(&mut self, prefix: &str) {
        let key = self.model.fleet.jobs().iter().find_map(|job| {
            let name = job.trials.keys().find(|name| name.starts_with(prefix))?;
            Some(TrialKey { job: job.key, trial: name.clone() })
        });
        // As from the list, not from another trial.
        self.model.trial = None;
        let effects = open_trial(&mut self.model, key.expect("a trial of that name"));
        self.run(effects);
    }

    pub fn send(&mut self, msg: Msg) {
        let effects = update(&mut self.model, now(), msg);
        self.run(effects);
    }

    /// Time goes by.
    pub fn later(&mut self, by: std::time::Duration) {
        let effects = update(&mut self.model, now() + by, Msg::Tick);
        self.run(effects);
    }

    /// Does effects and what they lead to until all is quiet.
    pub fn run(&mut self, effects: Vec<Effect>) {
        let mut queue = effects;
        loop {
            let mut replies = Vec::new();
            for effect in queue.drain(..) {
                match effect {
                    Effect::Detail(request) => self.loader.handle(request, &mut |r| replies.push(r)),
                    Effect::Copy(text) => self.copied.push(text),
                    Effect::Replay(request) => self.played.push(request),
                    _ => {}
                }
            }
            if replies.is_empty() && !self.loader.work(&mut |r| replies.push(r)) && replies.is_empty() {
                return;
            }
            for reply in replies {
                queue.extend(update(&mut self.model, now(), Msg::Detail(reply)));
            }
        }
    }

    /// Presses keys: plain characters, and `<Enter>`, `<Tab>`, `<Esc>`, `<C-d>`.
    pub fn keys(&mut self, keys: &str) {
        let mut rest = keys;
        while let Some(c) = rest.chars().next() {
            let named = rest.strip_prefix('<').and_then(|r| r.split_once('>'));
            let (key, after) = match named {
                Some(("Enter", after)) => (Key::Enter, after),
                Some(("Tab", after)) => (Key::Tab, after),
                Some(("Esc", after)) => (Key::Esc, after),
                Some(("C-d", after)) => (Key::Ctrl('d'), after),
                _ => (Key::Char(c), &rest[c.len_utf8()..]),
            };
            rest = after;
            self.send(Msg::Key(key));
        }
    }

    pub fn resize(&mut self, columns: u16, rows: u16) {
        self.send(Msg::Resize(columns, rows));
    }

    pub fn buffer(&mut self) -> ratatui::buffer::Buffer {
        let buffer = screen::draw(&mut self.model);
        assert_eq!(screen::unsafe_cells(&buffer), Vec::<String>::new());
        buffer
    }

    pub fn text(&mut self) -> String {
        screen::lines(&self.buffer()).join("\n")
    }
}

fn step(n: usize, episode: usize, extra: &str) -> String {
    format!(
        r#"{{"step_id":{n},"timestamp":"2026-11-29T18:{:02}:{:02}+00:00","source":"agent","message":"Analysis: a{episode}\nPlan: plan number {episode}.","tool_calls":[{{"tool_call_id":"c","function_name":"bash_command","arguments":{{"keystrokes":"echo {episode}\n","duration":1}}}}],"observation":{{"results":[{{"content":"out {episode} {extra}"}}]}},"metrics":{{"prompt_tokens":10,"completion_tokens":5}}}}"#,
        n / 60 % 60,
        n % 60,
    )
}

/// A trajectory of so many episodes; `extra` makes each step as long as is wanted.
pub fn trajectory(episodes: usize, extra: &str) -> String {
    let steps: Vec<String> = (1..=episodes).map(|e| step(e, e, extra)).collect();
    format!(r#"{{"schema_version":"ATIF-v1.7","steps":[{}],"final_metrics":{{}}}}"#, steps.join(",\n"))
}

/// A job dir with one trial that runs.
pub fn live_job() -> (tempfile::TempDir, PathBuf, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let job = dir.path().join("live");
    let trial = job.join("grow__1234567");
    fs::create_dir_all(trial.join("agent")).unwrap();
    fs::write(job.join("config.json"), r#"{"job_name":"live"}"#).unwrap();
    let stats = r#"{"id":"j","n_total_trials":1,"started_at":"2026-11-29T18:00:00","finished_at":null,"stats":{}}"#;
    fs::write(job.join("result.json"), stats).unwrap();
    fs::write(trial.join("lock.json"), "{}").unwrap();
    fs::write(trial.join("config.json"), r#"{"task":{"path":"tasks/grow"},"agent":{"name":"terminus-2"}}"#).unwrap();
    fs::write(trial.join("trial.log"), "begun\n").unwrap();
    (dir, job, trial)
}
