//! What loads, what is refused, what is told.

use std::fs::File;
use std::time::Duration;

use pilothouse::cast::{Kind, MAX_COLS, MAX_ROWS, Player, Target, Version};
use pilothouse::job::text::is_unsafe;

use super::{cast, events, files_below, load, memory, name, open, recorded, support};

#[test]
fn every_cast_loads_or_is_refused_with_file_and_line() {
    let Some(all) = recorded() else { return };
    assert!(all.len() > 35, "{}", all.len());
    let refused = [
        ("binary.cast", "line 1: not an asciicast (starts with `"),
        ("empty.cast", "empty file"),
        ("header-only-truncated.cast", "line 1: the header is cut off"),
        ("page.cast", "line 1: not an asciicast (starts with `<`)"),
        ("v9.cast", "line 1: asciicast version 9 is not known"),
    ];
    for path in all {
        let name = name(&path);
        let opened = Player::open(File::open(&path).unwrap(), &path.display().to_string());
        match refused.iter().find(|(file, _)| *file == name) {
            Some((_, why)) => {
                let error = opened.expect_err(&name).to_string();
                assert!(error.contains(&name) && error.contains(why), "{error}");
                assert!(!error.chars().any(is_unsafe), "{error:?}");
            }
            None => {
                let mut player = opened.unwrap_or_else(|e| panic!("{e}"));
                player.work_to_end();
                assert!(player.fault().is_none());
                let times: Vec<Duration> = (0..player.events()).map(|n| player.event_info(n).unwrap().0).collect();
                assert!(times.is_sorted(), "{name}");
                assert_eq!(player.duration(), times.last().copied().unwrap_or_default());
                let (cols, rows) = player.screen().size();
                assert!((1..=MAX_COLS).contains(&cols) && (1..=MAX_ROWS).contains(&rows));
                player.seek(Target::End);
                assert!(player.screen().rows().flatten().all(|c| !is_unsafe(c.ch)));
            }
        }
    }
}

#[test]
fn what_is_odd_is_counted_and_named_by_line() {
    let Some(data) = support::shared() else { return };
    let data = data.join("data");
    let bad = |file: &str| {
        let odd = load(&data.join(file)).oddities();
        (odd.bad_lines, odd.first_bad.first().map(|b| b.line), odd.truncated)
    };
    assert_eq!(bad("casts/v1/invalid-data.json"), (1, Some(8), false));
    assert_eq!(bad("casts/v2/broken.cast"), (1, Some(3), false));
    assert_eq!(bad("casts/v2/invalid-code.cast"), (1, Some(3), false));
    assert_eq!(bad("casts/v2/invalid-data.cast"), (1, Some(3), false));
    assert_eq!(bad("casts/v3/broken.cast"), (1, Some(3), false));
    assert_eq!(bad("casts/v3/invalid-data.cast"), (1, Some(3), false));
    assert_eq!(bad("casts/v2/blank-lines.cast"), (0, None, false));
    assert_eq!(bad("casts/v3/blank-lines-and-comments.cast"), (0, None, false));
    assert_eq!(bad("hostile/casts/last-line-cut.cast"), (0, None, true));

    assert_eq!(load(&data.join("casts/v1/invalid-time-1.json")).oddities().backward_steps, 1);
    let odd = load(&data.join("hostile/casts/negative-and-huge-time.cast")).oddities();
    assert_eq!((odd.backward_steps, odd.odd_times), (2, 1));

    // Counted from the file itself.
    let path = data.join("casts/real/clock-steps-back.cast");
    let raw = events(&path);
    let steps = raw.windows(2).filter(|w| w[1].0 < w[0].0).count() as u64;
    let player = load(&path);
    assert!(steps > 10);
    assert_eq!((player.oddities().backward_steps, player.oddities().bad_lines), (steps, 0));
    assert_eq!(player.events(), raw.len());
    assert_eq!(load(&data.join("hostile/casts/giant-size.cast")).screen().size(), (MAX_COLS, MAX_ROWS));
    assert_eq!(load(&data.join("hostile/casts/zero-size.cast")).screen().size(), (1, 1));
    assert!(load(&data.join("hostile/casts/zero-size.cast")).header().clamped);
}

#[test]
fn every_cast_of_the_recorded_jobs_loads_cleanly() {
    let Some(data) = support::shared() else { return };
    let all =
        files_below(&data.join("data/jobs")).into_iter().filter(|p| name(p) == "recording.cast").collect::<Vec<_>>();
    assert!(all.len() > 50, "{}", all.len());
    for path in all {
        let Ok(file) = File::open(&path) else { continue };
        if file.metadata().unwrap().len() == 0 {
            continue;
        }
        let mut player = Player::open(file, "job.cast").unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        player.work_to_end();
        assert_eq!(player.oddities().bad_lines, 0, "{}", path.display());
        assert!(player.header().timestamp.is_some() && player.events() > 0, "{}", path.display());
    }
}

#[test]
fn headers_of_all_versions_are_read() {
    let Some(v1) = cast("v1/full.json") else { return };
    let at = |file: &str| load(&cast(file).unwrap());
    let (one, two, three) = (load(&v1), at("v2/full.cast"), at("v3/full.cast"));
    assert_eq!([&one, &two, &three].map(|p| p.header().version), [Version::V1, Version::V2, Version::V3]);
    for player in [&one, &two, &three] {
        assert_eq!(player.header().title.as_deref(), Some("bashing :)"));
        assert_eq!((player.header().cols, player.header().rows), (96, 26));
    }
    assert_eq!(two.idle_cap(), Some(Duration::from_millis(2500)));
    assert_eq!(one.idle_cap(), Some(Duration::from_secs(2)));
    assert_eq!(two.header().timestamp, Some(1_506_410_422.0));
    assert_eq!(one.duration(), Duration::from_micros(1_234_567 + 5_678_987 + 3_456_789));

    // The same recording in three formats.
    let total = Duration::from_micros(8_456_789);
    for file in ["v1/minimal.json", "v2/minimal.cast", "v3/minimal.cast"] {
        let player = at(file);
        assert_eq!((player.events(), player.duration()), (3, total), "{file}");
    }
    let nulls = at("real/nulls-v1.json");
    assert_eq!((nulls.events(), nulls.duration()), (1, Duration::from_micros(1_230_000)));
    // Four events, one of them after 1.0 s more than the three of the same recording without comments.
    assert_eq!(at("v3/blank-lines-and-comments.cast").events(), 4);
}

#[test]
fn broken_headers_tell_where_and_what() {
    let error = |text: &str| Player::open(memory(text), "x\u{1b}[2J.cast").expect_err(text);
    for (text, why) in [
        ("{\"version\": 2, \"width\": 80}\n", "line 1: the header has no `height`"),
        ("{\"version\": 3, \"term\": {}}\n", "line 1: the header has no `cols`"),
        ("{\"width\": 80, \"height\": 24}\n", "has no `version`"),
        ("{\"version\": \"\\u001b[2J\"}\n", "is not known"),
        ("{\"version\": 2,, }\n[1,\"o\",\"x\"]\n", "line 1: the header is not JSON"),
        (
            "{\"version\": 1, \"width\": 1, \"height\": 1, \"stdout\": [\n[1,\"x\"],\n",
            "line 3: no header line, and as asciicast v1 not valid JSON",
        ),
        ("{\n\"version\": 2, \"width\": 1, \"height\": 1}\n", "has to be on one line"),
        ("\n\n  \n", "empty file"),
        ("[0.1,\"o\",\"x\"]\n", "line 1: not an asciicast (starts with `[0.1"),
    ] {
        let error = error(text);
        assert!(error.to_string().contains(why), "{text:?}: {error}");
        assert!(!error.to_string().chars().any(is_unsafe));
    }
    assert!(error("").may_recover() && error("{\"version\": 2, \"wi").may_recover());
    assert!(!error("<html>").may_recover() && !error("{\"version\": 9}\n").may_recover());
}

#[test]
fn long_and_undecodable_lines_are_survived() {
    let mut text = b"{\"version\": 2, \"width\": 20, \"height\": 3}\n[0.1,\"o\",\"a\"]\n[0.2,\"o\",\"".to_vec();
    text.resize(text.len() + (17 << 20), b'x');
    text.extend(b"\"]\n[0.3,\"o\",\"b\xff\\ud800\"]\n[NaN,\"o\",\"c\"]\n[0.4,\"r\",\"wide\"]\n[1e999,\"o\",\"d\"]\n[0.5,\"zz\",{}]\n");
    let player = {
        let mut player = open(&text);
        player.seek(Target::End);
        player
    };
    let odd = player.oddities();
    assert_eq!((odd.long_lines, odd.bad_lines, odd.odd_times, player.events()), (1, 3, 1, 4));
    assert_eq!(odd.first_bad.iter().map(|b| b.line).collect::<Vec<_>>(), [3, 6, 7]);
    assert_eq!(player.screen().text()[0], "ab\u{fffd}\u{fffd}\u{fffd}\u{fffd}c");
    assert_eq!(player.event_info(3).unwrap().1, Kind::Other);

    // A long line that is within the limit is played.
    let mut text = b"{\"version\": 3, \"term\": {\"cols\": 9, \"rows\": 2}}\n[0.1,\"o\",\"".to_vec();
    text.resize(text.len() + (3 << 20), b'x');
    text.extend(b"end\"]\n[1,\"o\",\"!\"]\n");
    let mut player = open(&text);
    player.seek(Target::End);
    while player.is_seeking() {
        player.work(1 << 20);
    }
    assert_eq!((player.events(), player.oddities().bad_lines), (2, 0));
    assert!(player.screen().text().concat().ends_with("xend!"), "{:?}", player.screen().text());
}

#[test]
fn the_index_of_a_million_events_is_small() {
    let mut text = String::from("{\"version\": 2, \"width\": 80, \"height\": 24}\n");
    for n in 0..1_000_000 {
        text.push_str(&format!("[{}.{:03},\"o\",\"x\"]\n", n / 1000, n % 1000));
    }
    let mut player = Player::open(memory(text), "million.cast").unwrap();
    let mut slices = 0;
    while !player.progress().indexed {
        player.work(64 << 10);
        slices += 1;
    }
    assert!(slices > 20, "work comes in slices: {slices}");
    assert_eq!(player.events(), 1_000_000);
    let bytes = player.memory();
    assert!((16_000_000..24_000_000).contains(&bytes), "{bytes}");
}

#[test]
fn a_player_can_move_to_a_worker() {
    fn moves<T: Send>(_: &T) {}
    let player = open("{\"version\": 2, \"width\": 9, \"height\": 2}\n[1,\"o\",\"x\"]\n");
    moves(&player);
    moves(&player.screen().frame());
}
