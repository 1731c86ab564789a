//! Log times on the clock of the trials: live by arrival, afterwards by zone or by matching.

use std::time::Duration;

use jiff::tz::TimeZone;
use pilothouse::job::Stamp;
use pilothouse::serving::LineTime;
use pilothouse::serving::clock::{Midnights, Placer, wall, zone};
use pilothouse::serving::line::Reader;

use crate::support::big_cast::Dice;

fn at(text: &str) -> Stamp {
    text.parse().unwrap()
}

/// What a server in a zone writes at a moment, read back from its line.
fn written(stamp: Stamp, zone: &TimeZone, shape: &str) -> LineTime {
    let wall = stamp.to_zoned(zone.clone());
    let line = match shape {
        "sglang" => format!("[{}] Load weight begin. avail mem=1.00 GB", wall.strftime("%Y-%m-%d %H:%M:%S")),
        "old" => format!("[{} TP0] Load weight begin. avail mem=1.00 GB", wall.strftime("%H:%M:%S")),
        _ => format!("INFO {} [core.py:1] Starting to load model x...", wall.strftime("%m-%d %H:%M:%S")),
    };
    Reader::new().read(line.as_bytes()).time.unwrap()
}

fn tz(name: &str) -> TimeZone {
    zone(name).unwrap_or_else(|| panic!("no zone {name}"))
}

fn off(placed: Option<Stamp>, truth: Stamp) -> f64 {
    placed.unwrap().duration_since(truth).as_secs_f64()
}

#[test]
fn a_live_log_is_placed_by_arrival_in_any_zone() {
    for name in [
        "UTC",
        "Asia/Shanghai",
        "America/New_York",
        "Asia/Kolkata",
        "Asia/Kathmandu",
        "Pacific/Kiritimati",
        "Etc/GMT+12",
    ] {
        for shape in ["sglang", "old", "vllm"] {
            let zone = tz(name);
            let mut placer = Placer::new();
            let mut dice = Dice(7);
            // Over the end of a year.
            let mut truth = at("2026-12-31T22:10:00Z");
            for _ in 0..4000 {
                let arrival = truth + Duration::from_millis(dice.below(5000));
                let placed = placer.live(written(truth, &zone, shape), arrival);
                assert!(off(placed, truth).abs() < 1.1, "{name} {shape} {truth}: {placed:?}");
                truth += Duration::from_secs(dice.below(9));
            }
            let ahead = i64::from(zone.to_offset(at("2026-12-31T22:10:00Z")).seconds());
            // Without a date nobody can tell UTC+13 from UTC-11.
            if shape != "old" {
                assert_eq!(placer.offset(), Some(-ahead), "{name} {shape}");
            }
        }
    }
}

#[test]
fn old_lines_read_at_attach_do_not_spoil_the_offset() {
    let zone = tz("Asia/Shanghai");
    let now = at("2026-11-29T12:00:00Z");
    let mut placer = Placer::new();
    for back in (1..400).rev() {
        assert_eq!(placer.backlog(written(now - Duration::from_secs(back * 30), &zone, "sglang"), now), None);
    }
    assert_eq!(placer.offset(), None);
    let fresh = now + Duration::from_secs(3);
    assert!(off(placer.live(written(fresh, &zone, "sglang"), fresh), fresh).abs() < 1.0);
    assert_eq!(placer.offset(), Some(-8 * 3600));
    assert_eq!(wall(-8 * 3600), "UTC+8");
    let old = now - Duration::from_secs(7200);
    assert!(off(placer.backlog(written(old, &zone, "sglang"), fresh), old).abs() < 1.0);
    let old = now - Duration::from_secs(80 * 86_400);
    assert!(off(placer.backlog(written(old, &zone, "vllm"), fresh), old).abs() < 1.0);
}

#[test]
fn a_live_log_goes_over_summer_time_and_a_clock_that_is_set() {
    let zone = tz("America/New_York");
    for (begin, after) in [("2026-03-08T05:30:00Z", 4 * 3600), ("2026-11-01T04:30:00Z", 5 * 3600)] {
        let mut placer = Placer::new();
        let mut truth = at(begin);
        let mut wrong = 0;
        for _ in 0..2000 {
            let placed = placer.live(written(truth, &zone, "sglang"), truth + Duration::from_millis(700));
            wrong += usize::from(off(placed, truth).abs() > 2.0);
            truth += Duration::from_secs(5);
        }
        assert_eq!((wrong, placer.offset()), (0, Some(after)), "{begin}");
    }
    // The change fell into a silence: three lines decide.
    let mut placer = Placer::new();
    for step in 0..60 {
        let truth = at("2026-11-01T04:00:00Z") + Duration::from_secs(step);
        placer.live(written(truth, &zone, "sglang"), truth);
    }
    let mut wrong = 0;
    for step in 0..60 {
        let truth = at("2026-11-01T09:00:00Z") + Duration::from_secs(step);
        wrong += usize::from(off(placer.live(written(truth, &zone, "sglang"), truth), truth).abs() > 2.0);
    }
    assert!(wrong < 3, "{wrong}");
    assert_eq!(placer.offset(), Some(5 * 3600));

    // Our own clock is set back by two hours; nothing is ever placed after its arrival.
    let zone = tz("UTC");
    let mut placer = Placer::new();
    for step in 0..200u64 {
        let truth = at("2026-11-01T12:00:00Z") + Duration::from_secs(step);
        let ours = if step < 100 { truth } else { truth - Duration::from_secs(7200) };
        let placed = placer.live(written(truth, &zone, "sglang"), ours).unwrap();
        assert!(placed <= ours && off(Some(placed), ours).abs() < 2.0, "{step}");
    }
}

#[test]
fn lines_that_come_late_in_a_burst_keep_their_times() {
    let zone = tz("Asia/Shanghai");
    let mut placer = Placer::new();
    let begin = at("2026-11-29T12:00:00Z");
    let mut wrong = 0;
    for step in 0..600u64 {
        let truth = begin + Duration::from_secs(step * 5);
        // The connection hung for twenty minutes.
        let arrival = if (200..440).contains(&step) { begin + Duration::from_secs(440 * 5) } else { truth };
        wrong += usize::from(off(placer.live(written(truth, &zone, "sglang"), arrival), truth).abs() > 1.0);
    }
    assert_eq!((wrong, placer.offset()), (0, Some(-8 * 3600)));
}

#[test]
fn a_finished_log_lines_up_in_a_named_zone_over_both_changes() {
    for name in ["America/New_York", "Europe/Berlin", "Australia/Lord_Howe", "UTC", "Asia/Shanghai"] {
        let zone = tz(name);
        for begin in [
            "2026-03-07T20:00:00Z",
            "2026-03-28T20:00:00Z",
            "2026-10-24T20:00:00Z",
            "2026-10-31T20:00:00Z",
            "2026-04-04T08:00:00Z",
            "2026-10-03T08:00:00Z",
        ] {
            for shape in ["sglang", "vllm"] {
                let end = at(begin) + Duration::from_secs(20 * 3600);
                let mut placer = Placer::zoned(zone.clone(), end);
                let mut truth = at(begin);
                while truth <= end {
                    let placed = placer.place(written(truth, &zone, shape));
                    assert!(off(placed, truth).abs() < 1.0, "{name} {shape} {truth}: {placed:?}");
                    truth += Duration::from_secs(600);
                }
            }
        }
    }
    // A log that is still written goes on into the next year.
    let mut placer = Placer::zoned(tz("Asia/Shanghai"), at("2026-12-30T00:00:00Z"));
    for truth in ["2026-12-30T00:00:01Z", "2027-01-05T00:00:00Z", "2027-06-05T00:00:00Z"] {
        let time = written(at(truth), &tz("Asia/Shanghai"), "vllm");
        assert_eq!(placer.live(time, at(truth)), Some(at(truth)));
    }
    // A time that the wall skipped was written by a wall elsewhere; it is placed, not lost.
    let mut placer = Placer::zoned(tz("America/New_York"), at("2026-03-09T00:00:00Z"));
    let gap = LineTime { year: Some(2026), date: Some((3, 8)), millis: (2 * 3600 + 1800) * 1000 };
    assert!(placer.place(gap).is_some());
}

#[test]
fn the_year_and_the_day_come_from_the_file() {
    let zone = tz("Asia/Shanghai");
    let mut placer = Placer::zoned(zone.clone(), at("2027-01-01T03:00:00Z"));
    for truth in ["2026-12-30T20:00:00Z", "2026-12-31T15:59:59Z", "2026-12-31T16:00:01Z", "2027-01-01T02:59:00Z"] {
        assert!(off(placer.place(written(at(truth), &zone, "vllm")), at(truth)).abs() < 1.0, "{truth}");
    }
    // The 29th of February belongs to the last year that has one.
    let mut placer = Placer::zoned(TimeZone::UTC, at("2026-11-29T00:00:00Z"));
    let leap = placer.place(LineTime { year: None, date: Some((2, 29)), millis: 0 }).unwrap();
    assert_eq!(leap, at("2024-02-29T00:00:00Z"));
    assert_eq!(placer.place(LineTime { year: None, date: Some((2, 30)), millis: 0 }), None);

    // Without dates, over two midnights; closed shortly after one.
    for (begin, hours) in [("2024-10-01T09:00:00Z", 43), ("2024-10-01T09:00:00Z", 7), ("2024-10-01T18:00:00Z", 60)] {
        let times: Vec<Stamp> = (0..hours * 6).map(|n| at(begin) + Duration::from_secs(n * 600)).collect();
        let end = *times.last().unwrap() + Duration::from_secs(300);
        let mut midnights = Midnights::default();
        times.iter().for_each(|truth| midnights.see(written(*truth, &zone, "old")));
        let mut placer = Placer::zoned(zone.clone(), end).over(midnights);
        for truth in &times {
            assert!(off(placer.place(written(*truth, &zone, "old")), *truth).abs() < 1.0, "{begin} {truth}");
        }
    }
}

/// Moments at which trials got answers: bursts of turns, at the pace of agents.
fn turns(dice: &mut Dice, begin: Stamp, trials: u64, hours: u64) -> Vec<Stamp> {
    let mut out = Vec::new();
    for _ in 0..trials {
        let mut now = begin + Duration::from_secs(dice.below(hours * 3600));
        for _ in 0..5 + dice.below(40) {
            now += Duration::from_secs(3 + dice.below(90));
            out.push(now);
        }
    }
    out.sort();
    out
}

#[test]
fn a_log_of_an_unknown_zone_is_matched_with_the_trials() {
    let mut dice = Dice(3);
    for (name, trials, hours) in
        [("UTC", 6, 5), ("Asia/Shanghai", 30, 9), ("Asia/Kathmandu", 3, 1), ("America/New_York", 60, 20)]
    {
        let zone = tz(name);
        let marks = turns(&mut dice, at("2026-06-10T01:00:00Z"), trials, hours);
        // The answer is noted a little after it was logged; others ask the server, too.
        let mut lines: Vec<Stamp> = marks.iter().map(|mark| *mark - Duration::from_millis(dice.below(2500))).collect();
        lines.extend((0..marks.len() / 10).map(|_| marks[0] + Duration::from_secs(dice.below(hours * 3600))));
        lines.sort();
        for shape in ["sglang", "vllm"] {
            let times: Vec<LineTime> = lines.iter().map(|stamp| written(*stamp, &zone, shape)).collect();
            let end = *lines.last().unwrap() + Duration::from_secs(60);
            let mut placer = Placer::matching(&times, &marks, end).unwrap_or_else(|| panic!("{name} {shape}"));
            assert_eq!(placer.offset(), Some(-i64::from(zone.to_offset(marks[0]).seconds())), "{name}");
            for (time, truth) in times.iter().zip(&lines) {
                assert!(off(placer.place(*time), *truth).abs() < 1.1, "{name} {shape}");
            }
        }
    }
}

#[test]
fn what_does_not_match_stays_unknown() {
    let mut dice = Dice(5);
    let marks = turns(&mut dice, at("2026-06-10T01:00:00Z"), 20, 6);
    let times = |stamps: &[Stamp]| stamps.iter().map(|s| written(*s, &TimeZone::UTC, "sglang")).collect::<Vec<_>>();
    let end = at("2026-06-11T00:00:00Z");
    // Another job's log, of the same day and of another month.
    let other = turns(&mut dice, at("2026-06-10T01:00:00Z"), 20, 6);
    assert!(Placer::matching(&times(&other), &marks, end).is_none());
    let other = turns(&mut dice, at("2026-04-01T01:00:00Z"), 20, 6);
    assert!(Placer::matching(&times(&other), &marks, end).is_none());
    // A metronome fits everywhere.
    let beat: Vec<Stamp> = (0..2000).map(|n| at("2026-06-10T01:00:00Z") + Duration::from_secs(n * 30)).collect();
    assert!(Placer::matching(&times(&beat), &beat[500..1500], end).is_none());
    assert!(Placer::matching(&times(&marks[..3]), &marks[..3], end).is_none());
    assert!(Placer::matching(&[], &[], end).is_none());
}

/// A server that logs in UTC beside a job of UTC+8, and both beside a server whose wall changes: the
/// same moments come out, whichever way they are placed.
#[test]
fn servers_and_trials_of_different_walls_line_up() {
    let job = tz("Asia/Shanghai");
    let mut dice = Dice(11);
    for begin in ["2026-11-29T14:00:00Z", "2026-10-31T22:00:00Z", "2026-03-08T00:00:00Z"] {
        let marks = turns(&mut dice, at(begin), 25, 12);
        // The job writes its own wall; with its zone said, as Harbor does on trials.
        let read: Vec<Stamp> = marks
            .iter()
            .map(|mark| at(&mark.to_zoned(job.clone()).strftime("%Y-%m-%dT%H:%M:%S%:z").to_string()))
            .collect();
        let end = *marks.last().unwrap() + Duration::from_secs(5);
        for server in ["UTC", "America/New_York"] {
            let server = tz(server);
            let times: Vec<LineTime> = marks.iter().map(|mark| written(*mark, &server, "sglang")).collect();
            let mut live = Placer::new();
            let mut zoned = Placer::zoned(server.clone(), end);
            for (time, truth) in times.iter().zip(&read) {
                assert!(off(live.live(*time, *truth + Duration::from_secs(1)), *truth).abs() < 1.1);
                assert!(off(zoned.place(*time), *truth).abs() < 1.1);
            }
        }
        for server in ["UTC", "America/New_York"] {
            let server = tz(server);
            let times: Vec<LineTime> = marks.iter().map(|mark| written(*mark, &server, "vllm")).collect();
            let mut matched = Placer::matching(&times, &read, end).unwrap();
            for (time, truth) in times.iter().zip(&read) {
                assert!(off(matched.place(*time), *truth).abs() < 1.1, "{begin} {truth}");
            }
        }
    }
}

#[test]
fn zones_are_read_as_people_write_them() {
    for (text, seconds) in
        [("UTC", 0), ("+08:00", 28_800), ("UTC+8", 28_800), ("gmt-03:30", -12_600), ("+0545", 20_700), ("-5", -18_000)]
    {
        assert_eq!(tz(text).to_offset(at("2026-11-29T00:00:00Z")).seconds(), seconds, "{text}");
    }
    for text in ["", "+", "UTC+", "+99:00", "Mars/Olympus", "+8:00:00:00", "../../etc/passwd"] {
        assert!(zone(text).is_none(), "{text}");
    }
    assert_eq!((wall(0).as_str(), wall(18_000).as_str(), wall(-20_700).as_str()), ("UTC", "UTC-5", "UTC+5:45"));
}
