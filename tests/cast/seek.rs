//! Seeks, steps, markers, episodes and search.

use std::fs::File;
use std::time::Duration;

use pilothouse::cast::{Player, Screen, SearchStep, Target, episodes};
use pilothouse::job::text::is_unsafe;

use super::{cast, events, load, memory, open, state, support};

#[test]
fn seeking_shows_what_playing_there_shows() {
    let Some(shared) = support::shared() else { return };
    let real = shared.join("data/casts/real");
    for file in ["agg-demo.cast", "clock-steps-back.cast", "demo.cast", "welcome.cast", "resizing.cast", "rgb.cast"] {
        let path = real.join(file);
        let mut seeker = load(&path);
        assert!(file != "agg-demo.cast" || seeker.keyframes() > 1, "{}", seeker.keyframes());
        let mut cold = Player::open(File::open(&path).unwrap(), file).unwrap();
        let mut played = load(&path);
        played.play();
        played.tick(Duration::ZERO);
        let (raw, header) = (events(&path), seeker.header().clone());
        // There and back first, so that the screen always comes from somewhere else.
        for percent in [50.0, 0.0, 25.0, 100.0, 75.0] {
            seeker.seek(Target::Percent(percent));
            assert!(seeker.progress().indexed);
            seeker.work_to_end();
            cold.seek(Target::Percent(percent));
            cold.work_to_end();
            assert_eq!(state(seeker.screen()), state(cold.screen()), "{file} {percent}");

            // Straight from the file, with a screen only.
            let mut naive = Screen::new(header.cols, header.rows);
            let at = seeker.position().as_secs_f64() + 1e-7;
            let mut clock = 0.0;
            for (time, code, data) in &raw {
                clock = time.max(clock);
                if clock > at {
                    break;
                }
                match code.as_str() {
                    "o" => drop(naive.feed(data)),
                    "r" => {
                        let (cols, rows) = data.split_once('x').unwrap();
                        naive.resize(cols.parse().unwrap(), rows.parse().unwrap());
                    }
                    _ => {}
                }
            }
            assert_eq!(state(seeker.screen()), state(&naive), "{file} {percent}");
        }
        // Played by the clock in uneven steps.
        let mut now = Duration::ZERO;
        for percent in [0.0, 25.0, 50.0, 75.0, 100.0] {
            seeker.seek(Target::Percent(percent));
            seeker.work_to_end();
            let until = seeker.playback_position();
            let mut step = Duration::from_millis(7);
            while played.playback_position() < until {
                let rest = until - played.playback_position();
                now += rest.min(step);
                step = step.mul_f64(1.3).min(Duration::from_millis(900));
                played.tick(now);
            }
            played.work_to_end();
            assert_eq!(played.position(), seeker.position(), "{file} {percent}");
            assert_eq!(state(played.screen()), state(seeker.screen()), "{file} {percent}");
        }
        played.tick(now + Duration::from_secs(1));
        assert!(!played.is_playing(), "stops at the end");
    }
}

#[test]
fn seeks_among_many_kept_screens_are_exact() {
    // Colours, scrolling, wide characters, margins, the other screen, sizes, cut sequences.
    let mut seed = 7u64;
    let mut dice = |n: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % n
    };
    let mut text = String::from("{\"version\": 3, \"term\": {\"cols\": 60, \"rows\": 15}}\n");
    let mut pieces = Vec::new();
    for n in 0..6000 {
        let mut data = match dice(12) {
            0 => format!("\u{1b}[{};{}H\u{1b}[K", dice(20), dice(70)),
            1 => format!("\u{1b}[{}r", dice(15)),
            2 => "\u{1b}[?1049h".to_string(),
            3 => "\u{1b}[?1049l任务\u{1b}".to_string(),
            4 => format!("\u{1b}[38;5;{};{}m", dice(256), dice(10)),
            _ => String::new(),
        };
        for _ in 0..dice(60) {
            data.push_str(["word ", "\r\n", "abc\u{1b}[1m", "\t", "界"][dice(5) as usize]);
        }
        if n % 700 == 699 {
            let size = (dice(80) as u16 + 1, dice(30) as u16 + 1);
            text.push_str(&format!("[0.01, \"r\", \"{}x{}\"]\n", size.0, size.1));
            pieces.push((String::new(), Some(size)));
        } else {
            text.push_str(&format!("{}\n", serde_json::json!([0.01, "o", data])));
            pieces.push((data, None));
        }
    }
    let mut player = open(&text);
    assert!(player.keyframes() > 3, "{}", player.keyframes());
    let stops: Vec<usize> = (0..24).map(|_| dice(6000) as usize).collect();
    let mut naive = Screen::new(60, 15);
    let mut expected = std::collections::HashMap::new();
    for (n, (data, size)) in pieces.iter().enumerate() {
        match size {
            Some((cols, rows)) => drop(naive.resize(*cols, *rows)),
            None => drop(naive.feed(data)),
        }
        if stops.contains(&n) {
            expected.insert(n, state(&naive));
        }
    }
    for stop in stops {
        player.seek(Target::Event(stop));
        player.work_to_end();
        assert_eq!(state(player.screen()), expected[&stop], "event {stop}");
    }
}

#[test]
fn resizes_hold_after_a_seek() {
    let Some(path) = cast("real/resizing.cast") else { return };
    let mut player = load(&path);
    for (ms, size) in [(600, (80, 24)), (1000, (100, 30)), (1999, (100, 30)), (2000, (50, 10)), (0, (80, 24))] {
        player.seek(Target::Time(Duration::from_millis(ms)));
        assert_eq!(player.screen().size(), size, "{ms} ms");
    }
    player.seek(Target::End);
    assert_eq!((player.screen().size(), player.screen().text()[0].as_str()), ((50, 10), "hello world!"));
}

#[test]
fn steps_markers_and_caps() {
    let Some(path) = cast("real/markers.cast") else { return };
    let mut player = load(&path);
    let labels: Vec<&str> = player.markers().iter().map(|m| m.label.as_str()).collect();
    assert_eq!(labels, ["first", "second"]);
    player.seek(Target::Time(Duration::ZERO));
    assert!(player.next_marker());
    assert_eq!((player.position(), player.screen().text()[0].as_str()), (Duration::from_millis(500), "start"));
    assert!(player.next_marker());
    assert_eq!(player.position(), Duration::from_millis(1100));
    assert!(!player.next_marker());
    assert!(player.previous_marker());
    assert_eq!(player.position(), Duration::from_millis(500));
    assert!(!player.previous_marker());

    player.step(1);
    assert_eq!(player.screen().text()[1], "middle");
    player.step(1);
    assert_eq!(player.screen().text()[2], "end");
    player.step(-1);
    assert_eq!(player.screen().text()[1..3], ["middle".to_string(), String::new()]);
    player.step(-2);
    assert_eq!((player.screen().text()[0].as_str(), player.event()), ("", 0));
    player.step(99);
    assert_eq!(player.event(), player.events());

    let mut long = load(&cast("real/long.cast").unwrap());
    assert_eq!((long.duration(), long.playback_duration()), (Duration::from_secs(12), Duration::from_secs(5)));
    long.seek(Target::Playback(Duration::from_secs(3)));
    assert_eq!((long.position(), long.screen().text()[2].as_str()), (Duration::from_secs(6), "six"));
    long.set_idle_cap(None);
    assert_eq!((long.playback_position(), long.playback_duration()), (Duration::from_secs(6), Duration::from_secs(12)));
    long.next_idle_cap();
    assert_eq!((long.idle_cap(), long.playback_duration().as_millis()), (Some(Duration::from_secs(1)), 3000));
    long.skip(-1.5);
    assert_eq!(long.playback_position(), Duration::from_millis(500));
    long.skip(1e300);
    assert_eq!(long.percent(), 100.0);
    long.skip(-1e300);
    assert_eq!(long.position(), Duration::ZERO);
    long.seek(Target::Percent(f64::NAN));
    long.set_speed(f64::NAN);
    long.set_speed(99.0);
    assert_eq!(long.speed(), 16.0);
    long.slower();
    assert_eq!(long.speed(), 8.0);
    long.play();
    long.tick(Duration::from_secs(50));
    long.tick(Duration::from_secs(40)); // a clock that goes back is no reason to
    assert_eq!(long.position(), Duration::ZERO);
    long.tick(Duration::from_millis(40_100));
    assert_eq!(long.playback_position(), Duration::from_millis(800));
}

#[test]
fn nothing_of_a_cast_reaches_the_terminal_as_a_sequence() {
    let Some(shared) = support::shared() else { return };
    let mut player = load(&shared.join("data/hostile/casts/osc-and-queries.cast"));
    player.seek(Target::End);
    assert_eq!(player.screen().text()[0], "ok");
    let all: String = player.screen().rows().flatten().map(|c| c.ch).collect();
    assert!(!all.chars().any(is_unsafe));
}

#[test]
fn episodes_find_their_place() {
    let Some(shared) = support::shared() else { return };
    let path = shared.join("data/casts/real/clock-steps-back.cast");
    let player = load(&path);
    let start = player.header().timestamp.unwrap() as i64;
    let at = |s: i64| pilothouse::job::time::from_unix(start + s, 0);
    let found = episodes::offsets(player.header(), &[at(-5), at(30), None, at(10_000)], player.duration()).unwrap();
    assert_eq!(found[..3], [Some(Duration::ZERO), Some(Duration::from_secs(30)), None]);
    assert_eq!(found[3], Some(player.duration()));
    assert_eq!(episodes::episode_at(&found, Duration::from_secs(31)), Some(1));
    let none = load(&shared.join("data/casts/real/welcome.cast"));
    assert_eq!(episodes::offsets(none.header(), &[at(0)], none.duration()), None);
}

// --------------------------------------------------------------------- search

#[test]
fn search_sees_through_colours_and_event_borders() {
    let text = concat!(
        "{\"version\": 2, \"width\": 40, \"height\": 5}\n",
        "[1,\"o\",\"\\u001b]0;needle in a title\\u0007$ \"]\n",
        "[2,\"o\",\"ne\"]\n[3,\"i\",\"needle\"]\n[4,\"o\",\"\\u001b[31med\\u001b[0m\"]\n[5,\"o\",\"x\\bl\\u001b[\"]\n[6,\"o\",\"1me\"]\n",
        "[7,\"o\",\"\\r\\nnee\\r\\ndle\"]\n[8,\"o\",\"\\u001b[5;5HNeedle\"]\n",
    );
    let mut player = open(text);
    let hit = player.search("needle", true).unwrap();
    assert_eq!((hit.event, hit.time, hit.line.as_str()), (5, Duration::from_secs(6), "$ needle"));
    player.seek(Target::Event(hit.event));
    let next = player.search("needle", true).unwrap();
    assert_eq!(next.event, 7);
    assert!(player.search("nEEdle", true).is_none() && player.search("", true).is_none());
    player.seek(Target::Event(next.event));
    assert!(player.search("needle", true).is_none());
    assert_eq!(player.search("needle", false), Some(hit));
    assert_eq!(player.search("Needle", false), None, "the last event shown is where we are");
}

#[test]
fn search_goes_both_ways_through_a_real_cast() {
    let Some(path) = cast("real/clock-steps-back.cast") else { return };
    let raw = events(&path);
    let mut player = load(&path);
    for needle in ["root@", "pass", "warning"] {
        player.seek(Target::Time(Duration::ZERO));
        let mut forward = Vec::new();
        while let Some(hit) = player.search(needle, true) {
            assert!(hit.line.to_lowercase().contains(needle));
            player.seek(Target::Event(hit.event));
            forward.push(hit.event);
        }
        assert!(forward.is_sorted());
        // Those that need no stripping must be among them.
        let plain = |(_, e): &(usize, &(f64, String, String))| e.1 == "o" && e.2.to_lowercase().contains(needle);
        let plain: Vec<usize> = raw.iter().enumerate().filter(plain).map(|(n, _)| n).collect();
        assert!(plain.len() > 2 && plain.iter().all(|n| forward.contains(n)), "{needle}: {plain:?} {forward:?}");

        player.seek(Target::End);
        let mut backward = Vec::new();
        loop {
            // In small slices, as a user interface would.
            player.search_start(needle, false);
            let step = loop {
                match player.search_work(1000) {
                    SearchStep::More { .. } => {}
                    step => break step,
                }
            };
            let SearchStep::Found(hit) = step else { break };
            player.seek(Target::Event(hit.event));
            backward.push(hit.event);
        }
        backward.reverse();
        forward.retain(|e| *e != player.events() - 1);
        assert_eq!(forward, backward, "{needle}");
    }
}

/// A recording whose last output redraws the screen shows its end before anything else is read; one
/// that does not shows what its tail drew.
#[test]
fn the_end_of_a_huge_recording_shows_before_it_is_read() {
    let mut text = String::from("{\"version\": 2, \"width\": 30, \"height\": 4}\n");
    for n in 0..60_000 {
        let data = if n % 50 == 0 { format!("\\u001b[H\\u001b[2Jround {n}") } else { format!("\\r\\nline {n}") };
        text.push_str(&format!("[{n}, \"o\", \"{data}\"]\n"));
    }
    let source = memory(&text);
    let player = Player::open(source.clone(), "huge.cast").expect("opens");
    let preview = player.preview_end().expect("there is an end").text();
    let mut exact = Player::open(source, "huge.cast").expect("opens");
    exact.work_to_end();
    exact.seek(Target::End);
    exact.work_to_end();
    assert_eq!(preview, exact.screen().text());
    assert!(preview.iter().any(|row| row.contains("line 59999")), "{preview:?}");
    let small = Player::open(memory("{\"version\": 1, \"width\": 3, \"height\": 1, \"stdout\": [[1, \"x\"]]}"), "v1");
    assert!(small.expect("opens").preview_end().is_none());
}
