//! Jobs made by hand, with fixed times.

use std::sync::Arc;
use std::time::Duration;

use pilothouse::app::derived::Counting;
use pilothouse::app::key::Key;
use pilothouse::app::message::Msg;
use pilothouse::app::model::{Look, Model, Theme};
use pilothouse::app::replay::{Picture, Reply, Source};
use pilothouse::app::update;
use pilothouse::cast::{Cell, Color, Style};
use pilothouse::job::trial::{EarlyException, EarlyReward, Progress, Span};
use pilothouse::job::{Evidence, JobEvent, JobKey, Planned, Problem, ProblemKind, Rewards, Stamp, Tokens};

use super::build::{J, T, at};

/// The clock: an hour and ten minutes after the jobs began.
pub const NOW: i64 = 4200;

pub fn look() -> Look {
    Look { ascii: false, theme: Theme::Default }
}

fn progress(episodes: u32, first: i64, last: i64, output: u64) -> Option<Progress> {
    Some(Progress {
        steps: episodes + 1,
        episodes,
        first_step: Some(at(first)),
        last_step: Some(at(last)),
        tokens: Tokens { input: Some(output * 20), cache: None, output: Some(output) },
    })
}

/// A trial without result, changed by `shape`.
fn open(task: &str, began: i64, shape: impl FnOnce(&mut Evidence)) -> T {
    let mut t = T::open(task, "aB3dEfG", began).limits(5400.0, 900.0);
    let evidence = t.0.evidence.as_mut().unwrap();
    evidence.newest = Some(at(began + 500));
    shape(evidence);
    t.0.limits.environment = Some(600.0);
    t.0.limits.agent_setup = Some(360.0);
    t
}

/// A finished trial whose agent worked from `start` to `end`.
fn done(task: &str, start: i64, end: i64, reward: Option<f64>, episodes: u32, output: u64) -> T {
    let mut t = T::done(task, "aB3dEfG", start, end, reward).limits(5400.0, 900.0);
    let result = t.result();
    result.n_episodes = Some(episodes);
    result.tokens = Tokens { input: Some(output * 20), cache: Some(output * 15), output: Some(output) };
    result.spans.agent = Span { started: Some(at(start + 30)), finished: Some(at(end - 40)) };
    t
}

fn no_reward(mut t: T) -> T {
    t.result().rewards = Rewards::None;
    t
}

fn plan(job: &mut J, tasks: &[&str]) {
    let planned = tasks.iter().map(|task| Planned {
        task: Arc::from(*task),
        agent: Some("terminus-2".into()),
        model: Some("Qwen/Qwen3.8-27B".into()),
        digest: Some(format!("sha256:{task}").into()),
        n: 1,
    });
    job.facts.planned = Some(planned.collect());
    job.facts.models = vec!["Qwen/Qwen3.8-27B".into()];
    job.facts.datasets = vec!["terminal-bench@2.1".into()];
    job.facts.n_concurrent = Some(8);
    for t in &mut job.trials {
        t.0.model = Some("Qwen/Qwen3.8-27B".into());
    }
}

/// Every phase and every outcome that a running job can show.
pub fn running() -> J {
    let mut unreadable = T::open("torn-result", "aB3dEfG", 2000);
    unreadable.0.evidence = None;
    unreadable.0.unreadable = true;
    unreadable.0.problems.push(Problem {
        kind: ProblemKind::Unreadable,
        path: "/jobs/qwen38-tb21-full89/torn-result__aB3dEfG/result.json:1".into(),
        message: "line 1: expected a value".into(),
    });
    let trials = [
        open("regex-chess", 4190, |e| e.config = None),
        open("sam-cell-seg", 4100, |_| {}),
        open("pytorch-model-cli", 4000, |e| e.log_started = true),
        open("feal-linear-cryptanalysis-of-eight-rounds", 1000, |e| {
            e.trajectory = progress(6, 1060, 1900, 61_400);
        }),
        open("build-pov-ray", 2400, |e| e.trajectory = progress(13, 2460, 4188, 18_200)),
        open("path-tracing", -1200, |e| e.trajectory = progress(40, -1140, 4150, 88_000)),
        open("qemu-startup", 3000, |e| {
            e.trajectory = progress(9, 3060, 4000, 9_100);
            e.manifest = Some(at(4020));
        }),
        open("count-dataset-tokens", 3000, |e| {
            e.trajectory = progress(12, 3060, 4000, 12_000);
            e.manifest = Some(at(4100));
            e.reward = Some(EarlyReward { value: Some(1.0), at: at(4195) });
        }),
        open("make-mips-interpreter", 2000, |e| {
            e.trajectory = progress(20, 2060, 4100, 30_000);
            e.exception = Some(EarlyException { kind: Some("RuntimeError".into()), at: at(4196) });
        }),
        unreadable,
        done("fix-git", 10, 700, Some(1.0), 8, 4_100),
        done("csv-to-parquet", 10, 1500, Some(1.0), 12, 11_000),
        done("write-compressor", 100, 3600, Some(1.0), 31, 52_000).err("AgentTimeoutError"),
        done("sanitize-git-repo", 200, 2600, Some(0.33), 22, 30_100),
        done("tune-mjcf", 300, 2580, Some(0.0), 17, 25_000),
        done("make-doom-for-mips", 300, 4180, Some(0.0), 31, 88_000).err("AgentTimeoutError"),
        done("largest-eigenval", 400, 1700, Some(0.0), 9, 7_000),
        no_reward(done("prove-plus-comm", 500, 900, None, 11, 11_200)).err("RuntimeError"),
        no_reward(done("vulnerable-secret", 500, 800, None, 2, 900)).err("RewardFileNotFoundError"),
        no_reward(done("git-web-server", 500, 1300, None, 4, 2_000)).err("CancelledError"),
        no_reward(done("sparql-university", 600, 760, None, 1, 300)),
    ];
    let mut job = J::new("qwen38-tb21-full89", "id-1", &[]).with(trials).alive();
    let begun: Vec<String> = job.trials.iter().map(|t| t.0.task.to_string()).collect();
    let queued = ["retried-task", "chess-best-move", "configure-git-webserver", "crack-7z-hash", "dna-assembly"];
    let tasks: Vec<&str> = begun.iter().map(String::as_str).chain(queued).collect();
    plan(&mut job, &tasks);
    job
}

/// All ended, three of four solved.
pub fn finished() -> J {
    let trials = [
        done("alpha-task", 10, 700, Some(1.0), 8, 4_100),
        done("beta-task", 10, 900, Some(0.0), 12, 5_000),
        done("gamma-task", 20, 1900, Some(1.0), 31, 52_000).err("AgentTimeoutError"),
        done("delta-task", 30, 800, Some(1.0), 6, 3_000),
    ];
    let mut job = J::new("night-run", "id-2", &[]).with(trials).finished(2000);
    plan(&mut job, &["alpha-task", "beta-task", "gamma-task", "delta-task"]);
    job
}

/// Nobody works on it any more.
pub fn dead() -> J {
    let trials = [
        done("alpha-task", 10, 700, Some(1.0), 8, 4_100),
        open("beta-task", 700, |e| e.trajectory = progress(3, 760, 1200, 2_100)),
        open("gamma-task", 720, |_| {}),
    ];
    let mut job = J::new("lost-in-the-night", "id-3", &[]).with(trials);
    plan(&mut job, &["alpha-task", "beta-task", "gamma-task", "delta-task"]);
    job.liveness.last_write = Some(at(1210));
    job
}

pub fn events(jobs: &[J]) -> Vec<JobEvent> {
    let mut out = Vec::new();
    for (i, job) in jobs.iter().enumerate() {
        let key = JobKey(u32::try_from(i).unwrap());
        out.push(JobEvent::Job(key, Box::new(job.facts.clone())));
        out.extend(job.trials.iter().map(|t| JobEvent::Trial(key, Box::new(t.0.clone()))));
        out.push(JobEvent::Liveness(key, job.liveness.clone()));
        if job.facts.name.starts_with("qwen38") {
            // A retry: its directory is gone and not there again.
            let retried = T::open("retried-task", "xY3dEfG", 3000);
            out.push(JobEvent::Trial(key, Box::new(retried.0.clone())));
            out.push(JobEvent::TrialGone(key, retried.0.name.clone()));
        }
        out.push(JobEvent::Settled(key));
    }
    out
}

pub fn now() -> Stamp {
    at(NOW)
}

/// A model that has read these jobs.
pub fn model(jobs: &[J], size: (u16, u16), look: Look) -> Model {
    let mut model = Model::new(now(), size, look, Counting::default());
    let _ = update::update(&mut model, now(), Msg::Jobs(events(jobs)));
    update::settle(&mut model);
    model
}

/// Types keys.
pub fn keys(model: &mut Model, keys: &[Key]) {
    for key in keys {
        update::settle(model);
        let _ = update::update(model, now(), Msg::Key(*key));
    }
    update::settle(model);
}

pub fn typed(text: &str) -> Vec<Key> {
    text.chars().map(Key::Char).collect()
}

/// A replay with a coloured prompt, episodes, a marker and a found place.
pub fn replay(size: (u16, u16), look: Look, terminal: (u16, u16)) -> Model {
    let source = Source {
        path: "/jobs/x/fix-git__aB3dEfG".into(),
        title: "fix-git__aB3dEfG".into(),
        episode: None,
        moment: None,
    };
    let mut model = Model::new(now(), size, look, Counting::default());
    let _ = update::replay_only(&mut model, source);
    let green = Style { fg: Color::Indexed(2), bold: true, ..Style::default() };
    let odd = Style { fg: Color::Rgb(250, 120, 0), bg: Color::Indexed(236), underline: true, ..Style::default() };
    let row = |text: &str, style: Style| -> Vec<Cell> {
        let mut cells: Vec<Cell> = text.chars().map(|ch| Cell { ch, width: 1, style }).collect();
        cells.resize(usize::from(terminal.0), Cell { ch: ' ', width: 1, style: Style::default() });
        cells
    };
    let mut rows = vec![
        row("root@box:/app# git status", green),
        row("HEAD detached at 3f2a1b7, nothing to commit, working tree clean", Style::default()),
        row("warning: 2 conflicts", odd),
        row("root@box:/app# ", green),
    ];
    rows.resize_with(usize::from(terminal.1), || row("", Style::default()));
    let picture = Picture {
        cast: (1, 2, "agent/recording.cast".into()),
        rows,
        size: terminal,
        cursor: Some((15, 3)),
        at: Duration::from_secs(83),
        length: Duration::from_secs(310),
        recorded: Duration::from_secs(190),
        playing: true,
        speed: 2.0,
        idle_cap: Some(Duration::from_secs(2)),
        markers: vec![(0.2, "tests begin".into()), (0.9, "late".into())],
        episodes: Some(vec![Some(0.05), Some(0.25), None, Some(0.6)]),
        episode: Some(1),
        found: Some(0.4),
        oddities: Some("1 bad lines skipped, first in line 7".into()),
        ..Picture::default()
    };
    let _ = update::update(&mut model, now(), Msg::Replay(Reply::Picture(Arc::new(picture))));
    model
}
