//! The trial view: driven by keys, loaded without a thread, drawn into a buffer.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout, missing_docs)]

#[path = "support/screen.rs"]
mod screen;
#[path = "support/stage.rs"]
mod stage;
mod support;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use pilothouse::app::detail::{Reply, Request, Slot, Tab};
use pilothouse::app::detail_worker;
use pilothouse::app::inbox::{Put, inbox};
use pilothouse::app::message::Msg;
use pilothouse::app::model::{Look, Theme};
use pilothouse::app::{replay, replay_worker};
use stage::{Stage, live_job, trajectory};

const SIZES: [(u16, u16); 4] = [(45, 20), (80, 24), (120, 40), (220, 60)];

/// Prints screens for a person: `LOOK=<trial prefix> KEYS=… SIZE=120x40`; `~` between keys shows
/// the screen in between.
#[test]
fn look() {
    let (Some(shared), Ok(prefix)) = (support::shared(), std::env::var("LOOK")) else { return };
    let job = std::env::var("JOB").unwrap_or("data/jobs/b-terminus2-mix-0.21.0".into());
    let size = std::env::var("SIZE").unwrap_or("120x40".into());
    let (columns, rows) = size.split_once('x').unwrap();
    let mut stage = Stage::new(&[&shared.join(job)], (columns.parse().unwrap(), rows.parse().unwrap()));
    stage.open(&prefix);
    println!("{}", stage.text());
    for keys in std::env::var("KEYS").unwrap_or_default().split('~').filter(|k| !k.is_empty()) {
        stage.keys(keys);
        println!("==== {keys}\n{}", stage.text());
    }
}

/// A copy of the little job whose file times are known.
fn small_job() -> (tempfile::TempDir, PathBuf) {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/trial-view");
    let dir = tempfile::tempdir().unwrap();
    let to = dir.path().join("small-job");
    copy(&from, &to);
    (dir, to)
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let (from, to) = (entry.as_ref().unwrap().path(), to.join(entry.unwrap().file_name()));
        if from.is_dir() {
            copy(&from, &to);
        } else {
            fs::write(&to, fs::read(&from).unwrap()).unwrap();
        }
    }
    let time = std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(1_796_000_000);
    for entry in fs::read_dir(to).unwrap() {
        fs::File::open(entry.unwrap().path()).unwrap().set_modified(time).unwrap();
    }
}

fn snapshot(stage: &mut Stage) -> String {
    let buffer = screen::draw_trial(&mut stage.model);
    assert_eq!(screen::unsafe_cells(&buffer), Vec::<String>::new());
    screen::dump(&buffer)
}

#[test]
fn every_tab_at_every_size() {
    let (_keep, job) = small_job();
    for (columns, rows) in SIZES {
        let mut stage = Stage::new(&[&job], (columns, rows));
        stage.open("sort-lines");
        let size = format!("{columns}x{rows}");
        insta::assert_snapshot!(format!("steps-{size}"), snapshot(&mut stage));
        stage.keys("<Tab>");
        insta::assert_snapshot!(format!("episode-{size}"), snapshot(&mut stage));
        stage.keys("<Tab>");
        insta::assert_snapshot!(format!("verifier-{size}"), snapshot(&mut stage));
        stage.keys("<Tab><Tab>");
        insta::assert_snapshot!(format!("log-{size}"), snapshot(&mut stage));
        stage.keys("<Tab>");
        insta::assert_snapshot!(format!("files-{size}"), snapshot(&mut stage));
        stage.keys("<Tab>");
        assert!(stage.text().contains("No class is known yet"), "{}", stage.text());
        stage.keys("<Tab>");
        assert!(stage.text().contains("lab/small-1"), "{}", stage.text());
    }
}

#[test]
fn exceptions_and_steps_at_two_sizes() {
    let (_keep, job) = small_job();
    for (columns, rows) in [(80, 24), (120, 40)] {
        let mut stage = Stage::new(&[&job], (columns, rows));
        let size = format!("{columns}x{rows}");
        stage.open("draw-map");
        insta::assert_snapshot!(format!("timeout-steps-{size}"), snapshot(&mut stage));
        stage.keys("<Tab><Tab><Tab>");
        insta::assert_snapshot!(format!("exception-{size}"), snapshot(&mut stage));
        stage.keys("e");
        assert!(stage.text().contains("call_3()"), "{}", stage.text());
        stage.open("two-parts");
        insta::assert_snapshot!(format!("multi-steps-{size}"), snapshot(&mut stage));
        stage.keys("<Tab><Tab>");
        insta::assert_snapshot!(format!("multi-verifier-{size}"), snapshot(&mut stage));
    }
    let mut stage = Stage::new(&[&job], (80, 24));
    stage.model.look = Look { ascii: true, theme: Theme::Mono };
    stage.open("sort-lines");
    let text = snapshot(&mut stage);
    assert!(text.is_ascii(), "{text}");
    insta::assert_snapshot!("steps-ascii-80x24", text);
}

#[test]
fn secrets_are_masked_and_keys_are_seen() {
    let (_keep, job) = small_job();
    let mut stage = Stage::new(&[&job], (100, 50));
    stage.open("sort-lines");
    stage.keys("<Tab>]");
    let text = stage.text();
    assert!(text.contains("MIRROR_TOKEN=[masked] [Enter]"), "{text}");
    assert!(
        text.contains("q (no Enter)") && text.contains("[C-c]") && text.contains("10 s  sort /data/in.txt"),
        "{text}"
    );
    assert!(!text.contains("abcdef123456"));
    stage.open("draw-map");
    stage.keys("<Tab><Tab><Tab>");
    let text = stage.text();
    assert!(text.contains("[masked]") && !text.contains("not-a-real-key"), "{text}");
}

#[test]
fn recorded_trials_say_what_happened() {
    let Some(shared) = support::shared() else { return };
    let job = shared.join("data/jobs/b-terminus2-mix-0.21.0");
    let mut stage = Stage::new(&[&job], (120, 40));
    stage.open("two-steps");
    let text = stage.text();
    for part in ["step first", "step second", "agent: second", "setup of the next step", "teardown", "8 episodes"] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    assert_eq!(stage.model.trial.as_ref().unwrap().n_steps(), 10);
    stage.keys("GG");
    assert_eq!(stage.model.trial.as_ref().unwrap().episode(), Some(7));
    stage.open("llm-context");
    let text = stage.text();
    assert!(text.contains("system, 3 subagent"), "{text}");
    stage.keys("j<Tab>");
    assert!(stage.text().contains("see trajectory.summarization-1-summary.json"), "{}", stage.text());
    stage.open("half-done");
    let text = stage.text();
    assert!(text.contains("AgentTimeoutError") && text.contains("passed") && text.contains("reward 1"), "{text}");
    assert!(text.contains("3 entered, cut off"), "{text}");
    stage.open("no-reward");
    stage.keys("<Tab><Tab>");
    let text = stage.text();
    assert!(text.contains("no reward; the trial ended with RewardFileNotFoundError"), "{text}");
    assert!(text.contains("verifier crashed before writing a reward"), "{text}");
    stage.open("csv-sum");
    stage.keys("<Tab><Tab>");
    let text = stage.text();
    for key in ["reward ", "file_exists", "sum_correct", "reward.json as written"] {
        assert!(text.contains(key), "{key}\n{text}");
    }
}

#[test]
fn every_recorded_and_hostile_trial_can_be_looked_at() {
    let Some(shared) = support::shared() else { return };
    for (at, folder) in ["data/jobs", "data/hostile"].iter().enumerate() {
        let mut stage = Stage::new(&[&shared.join(folder)], (80, 24));
        let names: Vec<String> =
            stage.model.fleet.jobs().iter().flat_map(|j| j.trials.keys().map(|n| n.to_string())).collect();
        assert!(names.len() > [100, 20][at], "{}", names.len());
        for (i, name) in names.iter().enumerate() {
            let (columns, rows) = SIZES[i % 4];
            stage.resize(columns, rows);
            stage.open(name);
            for _ in Tab::ALL {
                stage.buffer();
                stage.keys("eGj<Tab>");
            }
        }
    }
}

#[test]
fn a_clock_that_goes_back_is_said() {
    let Some(shared) = support::shared() else { return };
    let mut stage = Stage::new(&[&shared.join("data/hostile/times")], (120, 40));
    let names: Vec<String> =
        stage.model.fleet.jobs().iter().flat_map(|j| j.trials.keys().map(|n| n.to_string())).collect();
    let mut said = 0;
    for name in names {
        stage.open(&name);
        said += usize::from(stage.text().contains("clock went"));
    }
    assert!(said > 0);
}

#[test]
fn a_search_goes_through_what_is_not_loaded() {
    let (_keep, job) = small_job();
    let trial = job.join("sort-lines__aaaaaaa");
    let long: String = (0..90_000).map(|i| format!("line {i} of the log\n")).collect();
    fs::write(trial.join("trial.log"), long.replace("line 70000 ", "line 70000 NEEDLE ")).unwrap();
    let mut stage = Stage::new(&[&job], (120, 40));
    stage.open("sort-lines");
    // Steps: one match in the second episode's command, one in the system prompt's step.
    stage.keys("g/wc -l<Enter>");
    assert!(stage.text().contains("wc -l: found"), "{}", stage.text());
    assert_eq!(stage.model.trial.as_ref().unwrap().cursor, 1);
    stage.keys("..");
    assert!(stage.text().contains("found past the end"), "{}", stage.text());
    stage.keys("/mirror<Enter>");
    assert_eq!(stage.model.trial.as_ref().unwrap().cursor, 4);
    // Folded text is unfolded by its match.
    stage.keys("/print it whole<Enter>");
    let text = stage.text();
    assert!(text.contains("I should not print it whole"), "{text}");
    // Log: far beyond the window, from the end upwards and round.
    stage.keys("<Esc><Tab><Tab><Tab><Tab>");
    assert!(stage.text().contains("line 89999"), "{}", stage.text());
    stage.keys("/needle<Enter>");
    let text = stage.text();
    assert!(text.contains("line 70000 NEEDLE"), "{text}");
    assert!(!text.contains("line 89999"));
    stage.keys(",");
    assert!(stage.text().contains("line 70000 NEEDLE"));
    stage.keys("/no such thing<Enter>");
    assert!(stage.text().contains("no such thing: not found"), "{}", stage.text());
    // Paging reads the next windows: nothing is skipped.
    stage.keys("<Esc>g");
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..200 {
        for line in stage.text().lines() {
            if let Some((_, rest)) = line.split_once("line ")
                && let Some(n) = rest.split(' ').next().and_then(|n| n.parse::<u32>().ok())
            {
                seen.insert(n);
            }
        }
        stage.keys(" ");
    }
    let top = *seen.last().unwrap();
    assert!(top > 5000, "{top}");
    assert_eq!(seen.len() as u32, top + 1);
}

#[test]
fn a_running_trial_is_followed() {
    let (_keep, job, trial) = live_job();
    let mut stage = Stage::new(&[&job], (120, 40));
    stage.open("grow");
    let text = stage.text();
    assert!(text.contains("no trajectory.json yet: the first episode is"), "{text}");
    let path = trial.join("agent/trajectory.json");
    fs::write(&path, trajectory(3, "")).unwrap();
    stage.scan();
    let text = stage.text();
    assert!(text.contains("plan number 3.") && text.contains("following"), "{text}");
    assert!(text.contains("4 under way"), "{text}");
    assert_eq!(stage.model.trial.as_ref().unwrap().cursor, 2);
    // Grown: the cursor goes along.
    fs::write(&path, trajectory(4, "")).unwrap();
    stage.scan();
    assert_eq!(stage.model.trial.as_ref().unwrap().cursor, 3);
    // Moved away from the end: the place is kept.
    stage.keys("k");
    fs::write(&path, trajectory(6, "")).unwrap();
    stage.scan();
    let text = stage.text();
    assert_eq!(stage.model.trial.as_ref().unwrap().cursor, 2);
    assert!(text.contains("3 of 6"), "{text}");
    // Torn: the last good reading stays.
    let whole = trajectory(7, "");
    fs::write(&path, &whole[..whole.len() / 2]).unwrap();
    stage.scan();
    let text = stage.text();
    assert!(text.contains("3 of 6") && text.contains("being written"), "{text}");
    fs::write(&path, &whole).unwrap();
    stage.scan();
    assert!(stage.text().contains("3 of 7") && !stage.text().contains("being written"), "{}", stage.text());
    // Vanished: it is said, and what was read is kept.
    fs::remove_file(&path).unwrap();
    stage.scan();
    let text = stage.text();
    assert!(text.contains("vanished") && text.contains("of 7"), "{text}");
}

#[test]
fn the_place_in_a_long_episode_is_kept_while_the_trial_goes_on() {
    let (_keep, job, trial) = live_job();
    let path = trial.join("agent/trajectory.json");
    let long = "word ".repeat(2000);
    fs::write(&path, trajectory(3, &long)).unwrap();
    let mut stage = Stage::new(&[&job], (80, 24));
    stage.open("grow");
    stage.keys("k<Tab>  ");
    let top = |stage: &Stage| stage.model.trial.as_ref().unwrap().pane(Slot::Episode).top;
    let before = top(&stage);
    assert!(before > 10, "{before}");
    fs::write(&path, trajectory(4, &long)).unwrap();
    stage.scan();
    assert_eq!(top(&stage), before);
    assert!(stage.text().contains("word word"), "{}", stage.text());
    stage.keys("]");
    assert_eq!(top(&stage), 0);
    // A retry begins anew in a new directory of the same name: nothing of the old try is shown.
    fs::remove_dir_all(&trial).unwrap();
    fs::create_dir_all(trial.join("agent")).unwrap();
    fs::write(trial.join("lock.json"), "{}").unwrap();
    fs::write(trial.join("config.json"), r#"{"task":{"path":"tasks/grow"},"agent":{"name":"terminus-2"}}"#).unwrap();
    stage.scan();
    assert_eq!(stage.model.trial.as_ref().unwrap().n_steps(), 0);
    stage.keys("L");
    assert!(stage.text().contains("no trajectory.json yet"), "{}", stage.text());
}

#[test]
fn the_tab_stays_from_trial_to_trial() {
    let (_keep, job) = small_job();
    let mut stage = Stage::new(&[&job], (80, 24));
    stage.keys("<Enter><Tab><Tab>");
    let first = stage.text();
    assert!(first.contains("Rewards"), "{first}");
    stage.keys("n");
    let second = stage.text();
    assert!(second.contains("Rewards") && second != first, "{second}");
}

/// The player's thread beside a stage.
struct Playing {
    handle: replay_worker::Handle,
    replies: std::sync::mpsc::Receiver<replay::Reply>,
}

impl Playing {
    fn new() -> Playing {
        let (sender, replies) = std::sync::mpsc::sync_channel(1000);
        Playing { handle: replay_worker::spawn(move |reply| sender.send(reply).is_ok()), replies }
    }

    /// Hands over what the stage asks for and what the player answers, until the screen says it.
    fn until(&self, stage: &mut Stage, what: impl Fn(&str) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            stage.played.drain(..).for_each(|request| self.handle.ask(request));
            let text = stage.text();
            if what(&text) {
                return;
            }
            assert!(Instant::now() < deadline, "never seen in\n{text}");
            if let Ok(reply) = self.replies.recv_timeout(Duration::from_millis(50)) {
                stage.send(Msg::Replay(reply));
            }
        }
    }
}

fn cast_line(at: f64, text: &str) -> String {
    format!("[{at}, \"o\", {}]\n", serde_json::Value::from(text))
}

/// A recording with a prompt, colours, a line across the whole terminal, and its cursor far down.
fn busy_cast() -> String {
    let mut cast = "{\"version\": 2, \"width\": 160, \"height\": 40, \"timestamp\": 1796000000}\n".to_string();
    cast.push_str(&cast_line(0.1, "$ sh check.sh\r\n\u{1b}[31mFAIL\u{1b}[m sum of 1 to 10: 45, 55 is wanted\r\n"));
    let wide: String = (1..=16).map(|n| format!("{:>10}", n * 10)).collect();
    cast.push_str(&cast_line(0.2, &format!("{wide}\r\n")));
    let rows: String = (4..36).map(|n| format!("row {n} \u{4efb}\r\n")).collect();
    cast.push_str(&cast_line(0.3, &rows));
    cast.push_str(&cast_line(0.4, "$ vi sum.sh"));
    cast
}

/// A file of a minute ago, by the clock of the stage.
fn timed(path: &Path) {
    let at = std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(1_795_982_340);
    fs::File::open(path).unwrap().set_modified(at).unwrap();
}

#[test]
fn the_terminal_of_a_running_trial_is_alive_in_its_view() {
    for (columns, rows) in SIZES {
        let (_keep, job, trial) = live_job();
        for (dir, name) in
            [(&trial, "lock.json"), (&trial, "config.json"), (&trial, "trial.log"), (&job, "config.json")]
        {
            timed(&dir.join(name));
        }
        let mut stage = Stage::new(&[&job], (columns, rows));
        let player = Playing::new();
        stage.open("grow");
        // There is no recording yet, and no step: it is waited for.
        player.until(&mut stage, |text| text.contains(if columns >= 120 { "Steps" } else { "[Steps]" }));
        fs::write(trial.join("agent/recording.cast"), busy_cast()).unwrap();
        timed(&trial.join("agent/recording.cast"));
        player.until(&mut stage, |text| text.contains("$ vi sum.sh") && text.contains("live"));
        insta::assert_snapshot!(format!("terminal-{columns}x{rows}"), snapshot(&mut stage));
        // It grows.
        let mut cast = fs::OpenOptions::new().append(true).open(trial.join("agent/recording.cast")).unwrap();
        cast.write_all(cast_line(2.0, "\r\nsaved\r\n$ ").as_bytes()).unwrap();
        player.until(&mut stage, |text| text.contains("saved"));
        // The rest of it is a key away: up to its first row, right to its last column, back to the cursor.
        if columns < 160 {
            stage.keys("g");
            player.until(&mut stage, |text| text.contains("FAIL sum"));
            stage.keys("          ");
            player.until(&mut stage, |text| text.contains(" 160") && !text.contains("FAIL"));
            stage.keys("G");
            player.until(&mut stage, |text| text.contains("saved"));
        }
        // Its replay, and back to it.
        stage.keys("<Enter>");
        assert!(stage.model.replay.is_some());
        player.until(&mut stage, |text| text.contains("follows the end") && text.contains("saved"));
        stage.keys("q");
        player.until(&mut stage, |text| text.contains("[Terminal]") && text.contains("saved"));
        // Nobody looks: nothing is read any more.
        stage.keys("<Tab>");
        assert!(matches!(stage.played.last(), Some(replay::Request::Close)), "{:?}", stage.played);
        stage.keys("T");
        player.until(&mut stage, |text| text.contains("saved"));
        fs::write(trial.join("result.json"), r#"{"task_name":"grow","trial_name":"grow__1234567"}"#).unwrap();
        stage.scan();
        stage.keys("q");
        assert!(matches!(stage.played.last(), Some(replay::Request::Close)), "{:?}", stage.played);
        // Ended: as it was at its end; by itself only where there are no steps to look at.
        stage.open("grow");
        player.until(&mut stage, |text| text.contains("[Terminal]") && text.contains("at its end"));
        fs::write(trial.join("agent/trajectory.json"), trajectory(2, "")).unwrap();
        stage.open("grow");
        assert!(!stage.text().contains("[Terminal]") && stage.played.is_empty(), "{:?}", stage.played);
        stage.keys("T");
        player.until(&mut stage, |text| text.contains("at its end") && text.contains("saved"));
    }
}

/// The terminal follows the steps: it is shown as it was when the selected episode began.
#[test]
fn moving_in_the_episodes_moves_the_terminal() {
    const BEGIN: i64 = 1_796_000_000;
    let (_keep, job, trial) = live_job();
    let mut cast = format!("{{\"version\": 2, \"width\": 160, \"height\": 40, \"timestamp\": {BEGIN}}}\n");
    for (at, said) in [(1.2, "one is done"), (2.2, "two is done"), (3.2, "three is done")] {
        cast.push_str(&cast_line(at, &format!("{said}\r\n")));
    }
    fs::write(trial.join("agent/recording.cast"), cast).unwrap();
    let steps = support::generate::trajectory(1, 3, jiff::Timestamp::from_second(BEGIN).unwrap());
    fs::write(trial.join("agent/trajectory.json"), steps).unwrap();
    fs::write(trial.join("result.json"), r#"{"task_name":"grow","trial_name":"grow__1234567"}"#).unwrap();
    let mut stage = Stage::new(&[&job], (200, 50));
    let player = Playing::new();
    stage.open("grow");
    stage.keys("T");
    player.until(&mut stage, |text| text.contains("at its end") && text.contains("three is done"));
    stage.keys("]");
    let second =
        |text: &str| text.contains("episode 2 begins") && text.contains("one is done") && !text.contains("two is done");
    player.until(&mut stage, second);
    stage.keys("]");
    player.until(&mut stage, |text| text.contains("episode 3 begins") && !text.contains("three is done"));
    stage.keys("[[");
    player.until(&mut stage, |text| text.contains("episode 1 begins") && !text.contains("one is done"));
    // Back at the end by the key that leads to the end of everything.
    stage.keys("G");
    player.until(&mut stage, |text| text.contains("at its end") && text.contains("three is done"));
    // Selected elsewhere, it is there when it is looked at; and the other way round from the replay.
    stage.keys("<Tab>");
    stage.keys("]");
    stage.keys("T");
    player.until(&mut stage, second);
    stage.keys("c");
    player.until(&mut stage, |text| text.contains("one is done") && !text.contains("two is done"));
    stage.keys("]");
    player.until(&mut stage, |text| text.contains("two is done") && !text.contains("three is done"));
    stage.keys("q");
    player.until(&mut stage, |text| text.contains("episode 3 begins") && text.contains("two is done"));
}

/// What prints without end is seen ten times a second, at its end, and the player keeps no processor busy.
#[test]
fn a_flood_in_the_terminal_is_drawn_ten_times_a_second() {
    let (_keep, job, trial) = live_job();
    let path = trial.join("agent/recording.cast");
    fs::write(&path, busy_cast()).unwrap();
    let mut stage = Stage::new(&[&job], (120, 40));
    let player = Playing::new();
    stage.open("grow");
    player.until(&mut stage, |text| text.contains("$ vi sum.sh"));
    let writing = std::thread::spawn(move || {
        let mut cast = fs::OpenOptions::new().append(true).open(path).unwrap();
        let began = Instant::now();
        let mut n = 0;
        while began.elapsed() < Duration::from_secs(3) {
            n += 1;
            let text = format!("{}now {n} end\r\n", "y\r\n".repeat(3_000));
            cast.write_all(cast_line(began.elapsed().as_secs_f64() + 3.0, &text).as_bytes()).unwrap();
            std::thread::sleep(Duration::from_millis(2));
        }
        n
    });
    let (mut pictures, began) = (0, Instant::now());
    let mut seen = 0;
    while began.elapsed() < Duration::from_secs(3) {
        let Ok(reply) = player.replies.recv_timeout(Duration::from_millis(200)) else { continue };
        pictures += 1;
        stage.send(Msg::Replay(reply));
        let text = stage.text();
        let last = text.rsplit("now ").next().and_then(|rest| rest.split(' ').next()?.parse().ok());
        seen = last.unwrap_or(seen).max(seen);
    }
    let written = writing.join().unwrap();
    assert!((2..=32).contains(&pictures), "{pictures} pictures in 3 s");
    assert!(seen > 0, "nothing of the flood was seen of {written}");
    player.until(&mut stage, |text| text.contains(&format!("now {written} end")));
}

#[test]
fn a_growing_log_is_followed_and_a_vanished_one_kept() {
    let (_keep, job, trial) = live_job();
    let mut stage = Stage::new(&[&job], (80, 24));
    stage.open("grow");
    stage.keys("<Tab><Tab><Tab><Tab>");
    assert!(stage.text().contains("begun") && stage.text().contains("following"), "{}", stage.text());
    let long: String = (0..400).map(|i| format!("entry {i}\n")).collect();
    fs::write(trial.join("trial.log"), &long).unwrap();
    stage.scan();
    assert!(stage.text().contains("entry 399"), "{}", stage.text());
    stage.keys("kkk");
    let before: Vec<String> = stage.text().lines().skip(9).take(5).map(str::to_string).collect();
    fs::write(trial.join("trial.log"), long + "more\nand more\n").unwrap();
    stage.scan();
    let after: Vec<String> = stage.text().lines().skip(9).take(5).map(str::to_string).collect();
    assert_eq!(before, after);
    stage.keys("G");
    assert!(stage.text().contains("and more"), "{}", stage.text());
    fs::remove_file(trial.join("trial.log")).unwrap();
    fs::write(trial.join("agent/x"), "").unwrap();
    stage.scan();
    let text = stage.text();
    assert!(text.contains("vanished") || text.contains("no logs"), "{text}");
    assert!(text.contains("and more"), "{text}");
}

/// The text that grows is shown by one key: the agent's newest log, then the output of the tests.
#[test]
fn live_output_is_one_key_away_and_moves_on_to_the_tests() {
    for (columns, rows) in SIZES {
        let (_keep, job, trial) = live_job();
        let old = std::time::SystemTime::now() - Duration::from_secs(60);
        fs::create_dir_all(trial.join("agent/setup")).unwrap();
        fs::write(trial.join("agent/setup/stdout.txt"), "installing\n").unwrap();
        fs::File::open(trial.join("agent/setup/stdout.txt")).unwrap().set_modified(old).unwrap();
        let log = |n: usize| (0..n).map(|i| format!("step {i}\n")).collect::<String>();
        fs::write(trial.join("agent/oracle.txt"), log(60)).unwrap();
        let mut stage = Stage::new(&[&job], (columns, rows));
        stage.open("grow");
        stage.keys("w");
        let text = stage.text();
        assert!(text.contains("step 59") && text.contains("following"), "{text}");
        let size = format!("{columns}x{rows}");
        if columns < 120 {
            // Without what tells the time.
            let from = text.lines().position(|l| l.contains("[Log]")).unwrap();
            insta::assert_snapshot!(format!("live-{size}"), text.lines().skip(from).collect::<Vec<_>>().join("\n"));
        }
        // It grows by itself, and another file that is written later takes its place.
        fs::write(trial.join("agent/oracle.txt"), log(90)).unwrap();
        stage.scan();
        assert!(stage.text().contains("step 89"), "{}", stage.text());
        fs::create_dir_all(trial.join("agent/command-0")).unwrap();
        fs::write(trial.join("agent/command-0/stdout.txt"), "the next command\n").unwrap();
        fs::File::open(trial.join("agent/oracle.txt")).unwrap().set_modified(old).unwrap();
        stage.scan();
        assert!(stage.text().contains("the next command"), "{}", stage.text());
        // The tests begin.
        fs::create_dir_all(trial.join("artifacts")).unwrap();
        fs::write(trial.join("artifacts/manifest.json"), "[]").unwrap();
        fs::create_dir_all(trial.join("verifier")).unwrap();
        fs::write(trial.join("verifier/test-stdout.txt"), "1 of 3 tests\n").unwrap();
        stage.scan();
        stage.later(Duration::from_secs(2));
        let text = stage.text();
        assert!(text.contains("1 of 3 tests") && text.contains("[Verifier]"), "{text}");
        // Who scrolls up reads on in peace.
        stage.keys("k");
        fs::write(trial.join("verifier/test-stdout.txt"), "1 of 3 tests\n2 of 3 tests\n").unwrap();
        stage.scan();
        assert!(!stage.model.trial.as_ref().unwrap().live);
    }
}

#[test]
fn steps_that_move_away_are_found_where_they_went() {
    let (_keep, job, trial) = live_job();
    fs::write(trial.join("agent/trajectory.json"), trajectory(3, "")).unwrap();
    let mut stage = Stage::new(&[&job], (120, 40));
    stage.open("grow");
    fs::create_dir_all(trial.join("steps/one/agent")).unwrap();
    fs::rename(trial.join("agent/trajectory.json"), trial.join("steps/one/agent/trajectory.json")).unwrap();
    stage.scan();
    let text = stage.text();
    assert_eq!(stage.model.trial.as_ref().unwrap().n_steps(), 3, "{text}");
    assert!(!text.contains("vanished"), "{text}");
    fs::write(trial.join("agent/trajectory.json"), trajectory(2, "")).unwrap();
    stage.scan();
    let text = stage.text();
    assert_eq!(stage.model.trial.as_ref().unwrap().n_steps(), 5, "{text}");
    assert!(text.contains("step one") && text.contains("under way"), "{text}");
}

#[test]
fn a_trajectory_that_changes_while_it_is_read_is_read_again() {
    let (_keep, _job, trial) = live_job();
    let path = trial.join("agent/trajectory.json");
    let wide = "x".repeat(20_000);
    fs::write(&path, trajectory(1000, &wide)).unwrap();
    let mut loader = detail_worker::Loader::default();
    let mut last = (0, 0.0);
    let mut take = |reply| {
        if let Reply::Steps { parts, .. } = reply {
            last = (parts[0].steps, parts[0].indexed);
        }
    };
    loader.handle(Request::Open { serial: 0, dir: trial.clone() }, &mut take);
    for n in 1001..1004 {
        fs::write(&path, trajectory(n, &wide)).unwrap();
        loader.handle(Request::Changed { serial: 0 }, &mut take);
        loader.work(&mut take);
    }
    while loader.work(&mut take) {}
    assert_eq!(last, (1003, 1.0));
}

#[test]
fn traps_neither_hang_nor_lead_outside() {
    let (keep, job, trial) = live_job();
    let secret = keep.path().join("outside.txt");
    fs::write(&secret, "OUTSIDE").unwrap();
    let fifo = |path: PathBuf| {
        assert!(std::process::Command::new("mkfifo").arg(path).status().unwrap().success());
    };
    fifo(trial.join("agent/trajectory.json"));
    fs::create_dir_all(trial.join("verifier")).unwrap();
    fifo(trial.join("verifier/test-stdout.txt"));
    fs::remove_file(trial.join("trial.log")).unwrap();
    std::os::unix::fs::symlink(&secret, trial.join("trial.log")).unwrap();
    std::os::unix::fs::symlink(keep.path(), trial.join("steps")).unwrap();
    fs::create_dir(trial.join("exception.txt")).unwrap();
    let esc = "\u{1b}[2J\u{1b}]52;c;aGk=\u{7}\u{202e}evil\u{0}";
    fs::write(
        trial.join("verifier/ctrf.json"),
        serde_json::json!({"results":{"tests":[{"name":esc,"status":"failed","message":esc}]}}).to_string(),
    )
    .unwrap();
    fs::write(trial.join("agent/esc.log"), format!("{esc}\n\u{9b}31m red\n")).unwrap();
    use std::os::unix::ffi::OsStrExt;
    fs::write(trial.join(std::ffi::OsStr::from_bytes(b"odd\xffname")), "x").unwrap();
    fs::write(trial.join("a\u{1b}[31mname"), "x").unwrap();
    let begin = Instant::now();
    for (columns, rows) in SIZES {
        let mut stage = Stage::new(&[&job], (columns, rows));
        stage.open("grow");
        assert!(stage.text().contains("FIFO"), "{}", stage.text());
        for tab in Tab::ALL {
            let text = stage.text();
            assert!(!text.contains("OUTSIDE"), "{tab:?}\n{text}");
            if tab == Tab::Files {
                for _ in 0..12 {
                    stage.keys("<Enter>");
                    let text = stage.text();
                    assert!(!text.contains("OUTSIDE"), "{text}");
                    stage.keys(if stage.model.trial.as_ref().unwrap().files.open.is_some() { "qj" } else { "j" });
                    if stage.model.trial.is_none() {
                        break;
                    }
                }
            }
            stage.keys("eG<Tab>");
        }
    }
    assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
}

#[test]
fn files_are_walked_one_level_at_a_time() {
    let (_keep, job) = small_job();
    fs::write(job.join("sort-lines__aaaaaaa/agent/blob.bin"), [0u8, 1, 2, 255]).unwrap();
    let mut stage = Stage::new(&[&job], (80, 24));
    stage.open("sort-lines");
    stage.keys("LLLL");
    assert_eq!(stage.model.trial.as_ref().unwrap().tab, Tab::Files);
    stage.keys("<Enter>");
    assert!(stage.text().contains("blob.bin") && stage.text().contains("../"), "{}", stage.text());
    stage.keys("j<Enter>");
    assert!(stage.text().contains("no text: 4 bytes") && stage.text().contains("00 01 02 ff"), "{}", stage.text());
    stage.keys("y");
    assert!(stage.copied.last().unwrap().ends_with("sort-lines__aaaaaaa/agent/blob.bin"));
    stage.keys("q");
    assert!(stage.text().contains("trajectory.json"), "{}", stage.text());
    stage.keys("q");
    let text = stage.text();
    assert!(text.contains("agent/") && text.contains("the trial's directory"), "{text}");
    // Back on the directory that was left.
    assert_eq!(stage.model.trial.as_ref().unwrap().files.cursor, 0);
    stage.keys("q");
    assert!(stage.model.trial.is_none());
}

#[test]
fn the_thread_answers_and_drops_what_is_superseded() {
    let (_keep, job) = small_job();
    let dir = job.join("sort-lines__aaaaaaa");
    let (sender, replies) = std::sync::mpsc::channel();
    let handle = detail_worker::spawn(move |reply| sender.send(reply).is_ok());
    handle.ask(Request::Open { serial: 7, dir });
    for n in 0..50 {
        handle.ask(Request::Step { serial: 7, n: n % 6 });
    }
    handle.ask(Request::Step { serial: 7, n: 4 });
    let deadline = Instant::now() + Duration::from_secs(10);
    let mut steps = 0;
    loop {
        let reply = replies.recv_timeout(deadline - Instant::now()).expect("an answer to the last wish");
        if let Reply::Step { n, .. } = reply {
            steps += 1;
            if n == 4 && steps > 0 && replies.recv_timeout(Duration::from_millis(200)).is_err() {
                break;
            }
        }
    }
    assert!(steps < 51);
    drop(handle);
    assert!(replies.recv_timeout(Duration::from_secs(5)).is_err());
    let (asker, inbox) = inbox();
    for request in [
        Request::Step { serial: 1, n: 1 },
        Request::Close,
        Request::Open { serial: 2, dir: PathBuf::new() },
        Request::Text { serial: 2, slot: Slot::Log, nth: None, path: None, at: pilothouse::app::detail::At::End },
        Request::Step { serial: 2, n: 1 },
        Request::Step { serial: 2, n: 2 },
        Request::Text { serial: 2, slot: Slot::File, nth: None, path: None, at: pilothouse::app::detail::At::End },
    ] {
        assert_eq!(asker.put(request), Put::Taken);
    }
    let batch = inbox.take(Some(Duration::ZERO)).unwrap();
    assert_eq!(batch.len(), 4, "{batch:?}");
    assert!(matches!(batch.first(), Some(Request::Open { serial: 2, .. })));
    assert!(matches!(batch.last(), Some(Request::Text { slot: Slot::File, .. })));
    assert!(inbox.take(Some(Duration::ZERO)).unwrap().is_empty());
}

/// A player that hangs (on a network disk, say) while keys go on: what waits stays small, the latest
/// wish is always there, and keys held down lose nothing.
#[test]
fn wishes_to_a_player_that_hangs_are_joined_and_bounded() {
    use pilothouse::app::replay::{Request as Play, Source};
    let source = Source { path: PathBuf::new(), title: String::new(), episode: None, moment: None };
    let (asker, inbox) = inbox();
    let take = || inbox.take(Some(Duration::ZERO)).unwrap();
    asker.put(Play::Toggle);
    asker.put(Play::Open(source.clone()));
    for _ in 0..1000 {
        assert_eq!(asker.put(Play::Skip(5.0)), Put::Taken);
    }
    for _ in 0..3 {
        asker.put(Play::Skip(-5.0));
    }
    for _ in 0..1000 {
        asker.put(Play::Step(-1));
    }
    let opened = Play::Open(source.clone());
    assert_eq!(take(), [opened.clone(), Play::Skip(5000.0), Play::Skip(-15.0), Play::Step(-1000)]);
    for n in 0..10 {
        asker.put(Play::Percent(f64::from(n) * 10.0));
        asker.put(Play::Skip(5.0));
    }
    asker.put(Play::End);
    asker.put(Play::Search("a".to_string()));
    asker.put(Play::Search("ab".to_string()));
    asker.put(Play::Match(true));
    asker.put(Play::Match(false));
    assert_eq!(take(), [Play::End, Play::Search("ab".to_string()), Play::Match(false)]);
    // What can not be joined: the oldest goes, what is opened stays.
    asker.put(opened.clone());
    let puts: Vec<Put> = (0..500).map(|n| asker.put(if n % 2 == 0 { Play::Toggle } else { Play::IdleCap })).collect();
    assert!(puts.contains(&Put::Crowded));
    assert_eq!(asker.put(Play::NextCast), Put::Crowded);
    let waiting = take();
    assert!(waiting.len() <= 64, "{}", waiting.len());
    assert_eq!((waiting.first(), waiting.last()), (Some(&opened), Some(&Play::NextCast)));
    // Either end tells the other that it is gone.
    drop(inbox);
    assert_eq!(asker.put(Play::Close), Put::Gone);
    let (asker, inbox) = pilothouse::app::inbox::inbox::<Play>();
    let waits = std::thread::spawn(move || inbox.take(None));
    drop(asker);
    assert_eq!(waits.join().unwrap(), None);
}
