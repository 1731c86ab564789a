//! Recordings that grow or are replaced, and bytes of no recording at all.

use std::fs::File;
use std::io::{self, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pilothouse::cast::{Cell, Change, Player, Screen, Source, Target, Work};
use pilothouse::job::text::is_unsafe;
use proptest::prelude::*;

use super::{cast, memory, open, state};

#[derive(Clone, Default)]
struct Growing(Arc<Mutex<Vec<u8>>>);

impl Growing {
    fn add(&self, bytes: &[u8]) {
        self.0.lock().unwrap().extend_from_slice(bytes);
    }
}

impl Source for Growing {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.lock().unwrap().len() as u64)
    }
    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let all = self.0.lock().unwrap();
        let rest = &all[(offset as usize).min(all.len())..];
        let n = rest.len().min(buffer.len());
        buffer[..n].copy_from_slice(&rest[..n]);
        Ok(n)
    }
}

fn all_of(player: &Player) -> impl PartialEq + std::fmt::Debug + use<> {
    let events: Vec<_> = (0..player.events()).map(|n| player.event_info(n)).collect();
    let odd = format!("{:?}", player.oddities());
    (events, odd, player.markers().to_vec(), state(player.screen()), player.playback_duration(), player.position())
}

fn line() -> impl Strategy<Value = Vec<u8>> {
    let time = prop_oneof![Just(0.0), 0.0..9.0f64, Just(-3.0), Just(1e300), 100.0..200.0f64];
    let text = prop_oneof![
        "[a-z ]{0,30}",
        Just("\u{1b}[2J\u{1b}[H".to_string()),
        Just("\r\nö任务\u{1b}[31".to_string()),
        Just("mx\u{1b}[?1049h".to_string())
    ];
    prop_oneof![
        8 => (time.clone(), text).prop_map(|(t, s)| format!("{}\n", serde_json::json!([t, "o", s])).into_bytes()),
        1 => (time.clone(), 1..90u16, 1..30u16).prop_map(|(t, c, r)| format!("[{t},\"r\",\"{c}x{r}\"]\n").into_bytes()),
        1 => time.prop_map(|t| format!("[{t},\"m\",\"mark\"]\n").into_bytes()),
        1 => Just(b"# note\n".to_vec()),
        1 => Just(b"\n".to_vec()),
        1 => Just(b"[1,\"o\",\"x\"] [2,\"o\",\"y\"]\n".to_vec()),
        1 => Just(b"[1,\"o\",\"\xff\"]\r\n".to_vec()),
        1 => Just(b"oops\n".to_vec()),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn growing_in_any_pieces_is_like_reading_it_whole(
        lines in prop::collection::vec(line(), 0..40),
        v3 in any::<bool>(),
        follow in any::<bool>(),
        mut cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
    ) {
        let header: &[u8] = if v3 {
            b"{\"version\": 3, \"term\": {\"cols\": 30, \"rows\": 6}}\n"
        } else {
            b"{\"version\": 2, \"width\": 30, \"height\": 6}\n"
        };
        let body = lines.concat();
        let mut at: Vec<usize> = cuts.drain(..).map(|c| c.index(body.len() + 1)).collect();
        at.push(body.len());
        at.sort_unstable();
        let file = Growing::default();
        file.add(header);
        let mut grown = Player::open(file.clone(), "live").unwrap();
        grown.follow(follow);
        let mut from = 0;
        for to in at {
            file.add(&body[from..to]);
            prop_assert_ne!(grown.refresh(None), Change::Restarted);
            grown.work_to_end();
            if !follow {
                grown.seek(Target::End);
                grown.work_to_end();
            }
            from = to;
        }
        let mut whole = open([header, &body].concat());
        whole.seek(Target::End);
        whole.work_to_end();
        prop_assert_eq!(all_of(&grown), all_of(&whole));
        prop_assert_eq!(grown.is_following(), follow);
        // The keyframes and cuts of both are equally good.
        for percent in [30.0, 0.0, 60.0] {
            grown.seek(Target::Percent(percent));
            whole.seek(Target::Percent(percent));
            prop_assert_eq!(all_of(&grown), all_of(&whole));
        }
    }

    #[test]
    fn byte_soup_never_panics(soup in prop::collection::vec(any::<u8>(), 0..600), whole in any::<bool>()) {
        let header: &[u8] = if whole { b"" } else { b"{\"version\": 2, \"width\": 30, \"height\": 6}\n" };
        if let Ok(mut player) = Player::open(memory([header, &soup].concat()), "soup") {
            player.work_to_end();
            player.seek(Target::Percent(50.0));
            player.search("a", false);
        }
    }

    #[test]
    fn output_soup_ends_as_harmless_cells(
        soup in prop::collection::vec(prop_oneof![
            any::<char>().prop_map(String::from),
            "\u{1b}[\\[\\]()#PX^_c78=>M][0-9;:?]{0,6}[a-zA-Z@`]",
            "[\u{0}-\u{ff}]{1,4}",
            Just("\u{1b}[900b".to_string()),
            Just("任\u{301}\u{200d}\u{fe0f}".to_string()),
        ], 0..80),
        sizes in prop::collection::vec((any::<u8>(), any::<u8>()), 0..4),
    ) {
        let mut text = String::from("{\"version\": 3, \"term\": {\"cols\": 11, \"rows\": 5}}\n");
        for (n, piece) in soup.iter().enumerate() {
            text.push_str(&format!("{}\n", serde_json::json!([0.1, "o", piece])));
            if let Some((cols, rows)) = sizes.get(n / 8) && n % 8 == 7 {
                text.push_str(&format!("[0.1,\"r\",\"{cols}x{rows}\"]\n"));
            }
        }
        let mut player = open(&text);
        player.seek(Target::End);
        player.work_to_end();
        let (cols, rows) = player.screen().size();
        let cells: Vec<Vec<Cell>> = player.screen().rows().map(Iterator::collect).collect();
        prop_assert_eq!(cells.len(), usize::from(rows));
        for row in cells {
            prop_assert_eq!(row.len(), usize::from(cols));
            prop_assert_eq!(row.iter().map(|c| u32::from(c.width)).sum::<u32>(), u32::from(cols));
            prop_assert!(row.iter().all(|c| !is_unsafe(c.ch)));
        }
        // Kept screens go on like the original.
        let kept = player.screen().dump();
        let mut restored = Screen::restore(&kept);
        prop_assert_eq!(state(&restored), state(player.screen()));
        restored.feed("x");
    }

    #[test]
    fn playback_time_and_recorded_time_are_monotone(
        gaps in prop::collection::vec(0u64..9_000_000, 1..40),
        cap in prop::option::of(0u64..4_000_000),
        probes in prop::collection::vec(0u64..400_000_000, 2..20),
    ) {
        let mut text = String::from("{\"version\": 3, \"term\": {\"cols\": 11, \"rows\": 5}}\n");
        for gap in &gaps {
            text.push_str(&format!("[{}.{:06},\"o\",\"x\"]\n", gap / 1_000_000, gap % 1_000_000));
        }
        let mut player = open(&text);
        player.set_idle_cap(cap.map(Duration::from_micros));
        let total: u64 = gaps.iter().sum();
        let cut: u64 = gaps.iter().map(|g| cap.map_or(*g, |c| (*g).min(c))).sum();
        prop_assert_eq!(player.duration(), Duration::from_micros(total));
        prop_assert_eq!(player.playback_duration(), Duration::from_micros(cut));
        let mut probes: Vec<Duration> = probes.into_iter().map(Duration::from_micros).collect();
        probes.sort();
        for pair in probes.windows(2) {
            prop_assert!(player.playback_of(pair[0]) <= player.playback_of(pair[1]));
            prop_assert!(player.recorded_of(pair[0]) <= player.recorded_of(pair[1]));
        }
        for probe in probes {
            prop_assert_eq!(player.playback_of(player.recorded_of(probe)), probe);
            prop_assert!(player.recorded_of(player.playback_of(probe)) >= probe);
        }
    }
}

#[test]
fn a_file_replaced_by_one_with_markers_is_read_anew() {
    let Some(path) = cast("real/clock-steps-back.cast") else { return };
    let text = std::fs::read_to_string(&path).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let dir = tempfile::tempdir().unwrap();
    let live = dir.path().join("recording.cast");
    std::fs::write(&live, &text[..text.len() / 2]).unwrap();
    let mut player = Player::open(File::open(&live).unwrap(), "recording.cast").unwrap();
    player.work_to_end();
    player.seek(Target::Time(Duration::from_secs(100)));
    let before = state(player.screen());

    // Half a line more, then the rest.
    let mut writer = File::options().append(true).open(&live).unwrap();
    writer.write_all(&text.as_bytes()[text.len() / 2..text.len() * 3 / 4]).unwrap();
    let reopen = || Some(Box::new(File::open(&live).unwrap()) as Box<dyn Source>);
    let events = player.events();
    assert_eq!(player.refresh(reopen()), Change::Grew);
    assert!(player.events() > events && state(player.screen()) == before);
    assert_eq!(player.refresh(reopen()), Change::Same);

    // A new file with markers, renamed over it.
    let mut marked = vec![lines[0].to_string()];
    for (n, line) in lines[1..].iter().enumerate() {
        marked.push((*line).to_string());
        if n % 500 == 3 {
            let time: f64 = line[1..].split(',').next().unwrap().parse().unwrap();
            marked.push(format!("[{time}, \"m\", \"Episode {}\"]", n / 500));
        }
    }
    let temp = dir.path().join("recording.cast.tmp");
    std::fs::write(&temp, marked.join("\n") + "\n").unwrap();
    std::fs::rename(&temp, &live).unwrap();
    assert_eq!(player.refresh(None), Change::Same, "the open file is the old one");
    assert_eq!(player.refresh(reopen()), Change::Restarted);
    player.work_to_end();
    assert_eq!((player.markers().len(), player.position()), (7, Duration::from_secs(100)));
    assert_eq!(state(player.screen()), before);
    assert_eq!(player.refresh(reopen()), Change::Same);

    // Written anew in place, longer than before: the bytes before the old end tell.
    let more = format!("{}\n[0.5, \"m\", \"inserted\"]\n{}\n[900, \"o\", \"end\"]\n", lines[0], marked[1..].join("\n"));
    std::fs::write(&live, more).unwrap();
    assert_eq!(player.refresh(None), Change::Restarted);
    player.work_to_end();
    assert_eq!(player.markers().len(), 8);

    // Shrunk to nothing: what is known stays, and the next refresh tries again.
    std::fs::write(&live, "").unwrap();
    assert_eq!(player.refresh(reopen()), Change::Unreadable);
    assert!(player.fault().unwrap().to_string().contains("empty file"));
    assert_eq!(player.work(1000), Work::Idle);
    player.seek(Target::End);
    std::fs::write(&live, &text).unwrap();
    assert_eq!(player.refresh(reopen()), Change::Restarted);
    player.work_to_end();
    assert!(player.fault().is_none());
    assert_eq!(player.events(), lines.len() - 1);
}

#[test]
fn following_shows_each_new_line_at_once() {
    let file = Growing::default();
    file.add(b"{\"version\": 2, \"width\": 20, \"height\": 3}\n[0.1,\"o\",\"one \"]\n");
    let mut player = Player::open(file.clone(), "live").unwrap();
    player.follow(true);
    player.work_to_end();
    file.add(b"[0.2,\"o\",\"two \"]\n[0.3,\"o\",\"thr");
    assert_eq!(player.refresh(None), Change::Grew);
    assert_eq!(player.screen().text()[0], "one two");
    assert!(player.oddities().truncated);
    file.add(b"ee\"]");
    player.refresh(None);
    assert_eq!((player.screen().text()[0].as_str(), player.last_event_time().as_millis()), ("one two three", 300));
    assert!(!player.oddities().truncated);
    // The line goes on after all, so it was no event.
    file.add(b" junk\n[0.4,\"o\",\"four\"]\n");
    player.refresh(None);
    assert_eq!((player.screen().text()[0].as_str(), player.oddities().bad_lines), ("one two four", 1));
    player.seek(Target::Time(Duration::ZERO));
    assert!(!player.is_following());
}
