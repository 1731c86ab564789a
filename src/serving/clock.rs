//! Placing the times of log lines on the clock of the trials.
//!
//! A log line says the time of some wall in some zone, often without the year, once even without the
//! day, and never which zone. A [`Placer`] finds out: live by when lines arrive, afterwards by a zone
//! that was named or by matching requests with trials. What it can not find out it does not guess.

use std::collections::VecDeque;

use jiff::civil::{Date, DateTime, Time};
use jiff::tz::{Offset, TimeZone};
use jiff::{SignedDuration, Span};

use super::LineTime;
use crate::job::Stamp;

/// Offsets of zones are whole quarter hours, in seconds.
const QUARTER: i64 = 900;
/// Seconds that summer time moves a wall by.
const HOUR: i64 = 3600;
/// Seconds of a day.
const DAY: i64 = 86_400;
/// Differences that the median is taken of.
const WINDOW: usize = 61;
/// Differences that agree before an offset that does not fit any more is given up.
const AGREEING: usize = 3;
/// Seconds by which such differences may differ, and that they last at least.
const SAME: i64 = 2;
/// Seconds by which lines of several processes may be out of order.
const DISORDER: i64 = 60;
/// UTC less local time: from UTC+14 to UTC-12, in quarter hours.
const OFFSETS: std::ops::RangeInclusive<i64> = -56..=48;

/// How lines are placed.
#[derive(Debug, Clone)]
enum Rule {
    /// By when they arrive.
    Live,
    /// In a zone.
    Zone(TimeZone),
    /// By what was matched.
    Matched(Match),
}

/// How a log was matched with the trials.
#[derive(Debug, Clone, Copy)]
struct Match {
    /// Seconds that make UTC of the time on a line.
    offset: i64,
    /// The stamp from which on summer time is in force, where it began within the log.
    spring: Option<i64>,
}

/// Lines in a row that agree on another offset.
#[derive(Debug, Clone, Copy, Default)]
struct Odd {
    /// Arrival less stamp of the first.
    difference: i64,
    /// Its arrival.
    arrival: i64,
    /// How many.
    lines: usize,
}

/// Places the times of one log's lines.
#[derive(Debug, Clone)]
pub struct Placer {
    rule: Rule,
    /// Seconds that make UTC of the time on a line.
    offset: Option<i64>,
    /// Arrival less stamp of the last fresh lines, in seconds.
    window: VecDeque<i64>,
    /// The last fresh lines that did not fit, as far as they agree.
    odd: Odd,
    /// The last stamp, as if it were UTC.
    last_civil: Option<i64>,
    /// The last placed time.
    last: Option<Stamp>,
    /// When the log was last written.
    file_time: Option<Stamp>,
    /// The day of the last line, where lines have no date.
    day: Option<Date>,
    /// The midnights of a log without dates.
    midnights: Midnights,
}

impl Default for Placer {
    fn default() -> Placer {
        Placer::new()
    }
}

impl Placer {
    fn with(rule: Rule, file_time: Option<Stamp>) -> Placer {
        Placer {
            offset: match &rule {
                Rule::Matched(matched) => Some(matched.offset),
                _ => None,
            },
            rule,
            window: VecDeque::new(),
            odd: Odd::default(),
            last_civil: None,
            last: None,
            file_time,
            day: None,
            midnights: Midnights::default(),
        }
    }

    /// For a log that is tailed: lines are placed by [`Placer::live`].
    pub fn new() -> Placer {
        Placer::with(Rule::Live, None)
    }

    /// For a finished log whose zone was named. `file_time`: when it was last written, which tells the
    /// year (vLLM) or the day (old SGLang) that its lines leave out.
    pub fn zoned(zone: TimeZone, file_time: Stamp) -> Placer {
        Placer::with(Rule::Zone(zone), Some(file_time))
    }

    /// For a finished log of an unknown zone: requests that it served, beside the moments at which
    /// trials called the model or got an answer. None where no quarter hour fits, or several do.
    ///
    /// `requests` are the times on its lines of answers, in their order: [`super::line::is_answer`].
    pub fn matching(requests: &[LineTime], trials: &[Stamp], file_time: Stamp) -> Option<Placer> {
        Placer::matching_over(requests, trials, file_time, Midnights::default())
    }

    /// [`Placer::matching`] for a log without dates that has midnights.
    pub fn matching_over(
        requests: &[LineTime],
        trials: &[Stamp],
        file_time: Stamp,
        midnights: Midnights,
    ) -> Option<Placer> {
        let mut utc = Placer::with(Rule::Zone(TimeZone::UTC), Some(file_time)).over(midnights);
        let mut lines: Vec<i64> = Vec::with_capacity(requests.len());
        let mut set_back = 0;
        let mut last = None;
        for time in requests {
            let Some(civil) = utc.civil(*time) else { continue };
            let second = seconds(civil);
            set_back += fell_back(last, second);
            last = Some(second);
            lines.push(second + set_back);
        }
        let marks: Vec<i64> = trials.iter().map(|stamp| stamp.as_second()).collect();
        let matched = best_match(&lines, &marks)?;
        Some(Placer::with(Rule::Matched(matched), Some(file_time)).over(midnights))
    }

    /// For a finished log without dates: the midnights that it has. Without this it is taken to have none
    /// and to lie on the day on which it was last written.
    pub fn over(mut self, midnights: Midnights) -> Placer {
        self.midnights = midnights;
        self
    }

    /// Places a line that was read as it was written, so that `arrival` is about its time.
    ///
    /// The offset is the median of arrival less stamp over the last lines, rounded to a quarter hour. It
    /// follows at once where stamps jump ahead of the arrival or back (summer time, a clock that is
    /// set), and after three lines that agree for two seconds where the jump fell into a silence.
    pub fn live(&mut self, time: LineTime, arrival: Stamp) -> Option<Stamp> {
        if !matches!(self.rule, Rule::Live) {
            // The year that a line leaves out is that of its arrival.
            self.file_time = Some(arrival);
            return self.place(time);
        }
        let civil = seconds(near(time, arrival, self.offset.unwrap_or(0))?);
        let difference = arrival.as_second() - civil;
        let difference = if time.date.is_none() { wrap(difference) } else { difference };
        let civil = arrival.as_second() - difference;
        self.learn(civil, difference, arrival.as_second());
        self.last_civil = Some(civil);
        self.put(time, civil, arrival)
    }

    /// Places a line that was there before the tail reached the end of the log: it teaches nothing about
    /// the offset, and is placed once that is known. `arrival` is the time at which it was read.
    pub fn backlog(&mut self, time: LineTime, arrival: Stamp) -> Option<Stamp> {
        if !matches!(self.rule, Rule::Live) {
            return self.place(time);
        }
        let offset = self.offset?;
        let civil = seconds(near(time, arrival, offset)?);
        self.put(time, civil, arrival)
    }

    /// Places a line of a finished log. None where the zone is not known, or for a time that no day
    /// and no year can be found for.
    pub fn place(&mut self, time: LineTime) -> Option<Stamp> {
        let civil = self.civil(time)?;
        let placed = match &self.rule {
            Rule::Live => {
                let second = seconds(civil) + self.offset?;
                stamp(second, time)?
            }
            Rule::Matched(Match { spring, .. }) => {
                let second = seconds(civil);
                let set_back = fell_back(self.last_civil, second);
                let begins =
                    spring.is_some_and(|from| second >= from && self.last_civil.is_none_or(|last| last < from));
                let change = set_back - if begins { HOUR } else { 0 };
                self.last_civil = Some(second);
                self.offset = self.offset.map(|offset| offset + change);
                stamp(second + self.offset?, time)?
            }
            Rule::Zone(zone) => {
                let ambiguous = zone.to_ambiguous_timestamp(civil);
                let early = ambiguous.earlier().ok()?;
                let late = ambiguous.later().ok()?;
                // The second pass through an hour that came twice follows what was placed before.
                let again = self.last.is_some_and(|last| early.as_second() < last.as_second() - DISORDER);
                let placed = if again { late } else { early };
                self.offset = Some(-i64::from(zone.to_offset(placed).seconds()));
                placed
            }
        };
        if self.last.is_none_or(|last| placed > last) {
            self.last = Some(placed);
        }
        Some(placed)
    }

    /// Seconds that make UTC of the time on the log's lines, as known now.
    pub fn offset(&self) -> Option<i64> {
        self.offset
    }

    /// Takes a fresh line's difference into account.
    fn learn(&mut self, civil: i64, difference: i64, arrival: i64) {
        let Some(offset) = self.offset else {
            self.window.push_back(difference);
            self.offset = Some(round(difference));
            return;
        };
        let late = difference - offset;
        if late.abs() * 2 <= QUARTER {
            self.odd.lines = 0;
        } else {
            // Ahead of its arrival, or behind the line before: no delay does that.
            let impossible = late < 0 || self.last_civil.is_some_and(|last| civil < last - QUARTER / 2);
            let agrees = self.odd.lines > 0 && (difference - self.odd.difference).abs() <= SAME;
            if agrees {
                self.odd.lines += 1;
            } else {
                self.odd = Odd { difference, arrival, lines: 1 };
            }
            // Late lines come in a burst, with all their delays; a wall that changed goes on from there.
            let steady = self.odd.lines >= AGREEING && arrival - self.odd.arrival >= SAME;
            if !impossible && !steady && self.window.len() >= AGREEING {
                return;
            }
            if impossible || steady {
                self.window.clear();
                self.odd.lines = 0;
            }
        }
        self.window.push_back(difference);
        if self.window.len() > WINDOW {
            self.window.pop_front();
        }
        let mut sorted: Vec<i64> = self.window.iter().copied().collect();
        sorted.sort_unstable();
        self.offset = sorted.get(sorted.len() / 2).map(|median| round(*median));
    }

    /// A live line's time: never after its arrival.
    fn put(&mut self, time: LineTime, civil: i64, arrival: Stamp) -> Option<Stamp> {
        let mut second = civil + self.offset?;
        if time.date.is_none() {
            second = arrival.as_second() - wrap(arrival.as_second() - second);
        }
        let placed = stamp(second, time)?.min(arrival);
        self.last = Some(placed);
        Some(placed)
    }

    /// Year and day filled in for a line of a finished log.
    fn civil(&mut self, time: LineTime) -> Option<DateTime> {
        let clock = clock(time)?;
        let end = self.file_time?;
        // The wall that the log was written by may be ahead of UTC by most of a day.
        let newest = end.checked_add(SignedDuration::from_hours(24)).ok()?.to_zoned(TimeZone::UTC).datetime();
        match (time.year, time.date) {
            (Some(year), Some((month, day))) => Some(Date::new(year, month, day).ok()?.to_datetime(clock)),
            (_, Some((month, day))) => (0..=8).find_map(|back| {
                let date = Date::new(newest.year() - back, month, day).ok()?;
                let civil = date.to_datetime(clock);
                (civil <= newest).then_some(civil)
            }),
            (_, None) => {
                let wall = match &self.rule {
                    Rule::Zone(zone) => end.to_zoned(zone.clone()).datetime(),
                    Rule::Matched(Match { offset, .. }) => {
                        end.checked_sub(SignedDuration::from_secs(*offset)).ok()?.to_zoned(TimeZone::UTC).datetime()
                    }
                    Rule::Live => end.to_zoned(TimeZone::UTC).datetime(),
                };
                let mut day = match self.day {
                    Some(day) => day,
                    None => {
                        // Written before midnight, closed after it.
                        let last = self.midnights.last.unwrap_or(time.millis);
                        let closed = wall.hour() as u32 * 3600 + wall.minute() as u32 * 60;
                        let before = last / 1000 > closed + 3600;
                        let back = i64::from(self.midnights.count) + i64::from(before);
                        wall.date().checked_sub(Span::new().days(back)).ok()?
                    }
                };
                if self.last_civil_of_day(day).is_some_and(|last| seconds(day.to_datetime(clock)) < last - DAY / 2) {
                    day = day.tomorrow().ok()?;
                }
                self.day = Some(day);
                let civil = day.to_datetime(clock);
                self.last_civil = Some(seconds(civil));
                Some(civil)
            }
        }
    }

    fn last_civil_of_day(&self, day: Date) -> Option<i64> {
        self.last_civil.filter(|_| self.day == Some(day))
    }
}

/// The midnights of a log whose lines have no date, counted before it is placed: [`Placer::over`].
#[derive(Debug, Clone, Copy, Default)]
pub struct Midnights {
    last: Option<u32>,
    count: u32,
}

impl Midnights {
    /// Takes the next line's time.
    pub fn see(&mut self, time: LineTime) {
        let half = 12 * 3600 * 1000;
        if time.date.is_none() {
            self.count += u32::from(self.last.is_some_and(|last| time.millis + half < last));
            self.last = Some(time.millis);
        }
    }

    /// How many there were.
    pub fn count(&self) -> u32 {
        self.count
    }
}

/// The zone of a name: `UTC`, `Asia/Shanghai`, `+08:00`, `UTC+8`. `local` is this machine's. None for
/// what is none.
pub fn zone(name: &str) -> Option<TimeZone> {
    let name = name.trim();
    match name {
        "UTC" | "utc" | "Z" => return Some(TimeZone::UTC),
        "local" => return Some(TimeZone::system()),
        _ => {}
    }
    let upper = name.to_ascii_uppercase();
    let figure = upper.strip_prefix("UTC").or_else(|| upper.strip_prefix("GMT")).unwrap_or(&upper);
    if let Some(sign) = figure.chars().next().filter(|c| matches!(c, '+' | '-')) {
        let digits: String = figure.chars().skip(1).filter(|c| *c != ':').collect();
        if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) || digits.len() > 4 {
            return None;
        }
        let (hours, minutes) =
            if digits.len() > 2 { digits.split_at(digits.len() - 2) } else { (digits.as_str(), "0") };
        let (hours, minutes): (i32, i32) = (hours.parse().ok()?, minutes.parse().ok()?);
        if hours > 14 || minutes > 59 {
            return None;
        }
        let seconds = (hours * 60 + minutes) * 60;
        let offset = Offset::from_seconds(if sign == '-' { -seconds } else { seconds }).ok()?;
        return Some(TimeZone::fixed(offset));
    }
    TimeZone::get(name).ok()
}

/// An offset as operators write it: the server's wall as UTC and hours.
pub fn wall(offset: i64) -> String {
    let ahead = -offset;
    let sign = if ahead < 0 { '-' } else { '+' };
    match (ahead.abs() / 3600, ahead.abs() % 3600 / 60) {
        (0, 0) => "UTC".to_string(),
        (hours, 0) => format!("UTC{sign}{hours}"),
        (hours, minutes) => format!("UTC{sign}{hours}:{minutes:02}"),
    }
}

/// Seconds by which a wall was set back between two stamps: summer time ended, if they go back within
/// an hour.
fn fell_back(last: Option<i64>, second: i64) -> i64 {
    let back = last.map_or(0, |last| last - second);
    if (HOUR / 2..=HOUR + DISORDER).contains(&back) { HOUR } else { 0 }
}

fn clock(time: LineTime) -> Option<Time> {
    let second = i32::try_from(time.millis / 1000).ok()?;
    let nanos = i32::try_from(time.millis % 1000).ok()? * 1_000_000;
    Time::new((second / 3600) as i8, (second % 3600 / 60) as i8, (second % 60) as i8, nanos).ok()
}

/// Seconds since 1970 of a wall's time, as if it were UTC.
fn seconds(civil: DateTime) -> i64 {
    Offset::UTC.to_timestamp(civil).map_or(0, |stamp| stamp.as_second())
}

fn stamp(second: i64, time: LineTime) -> Option<Stamp> {
    Stamp::new(second, i32::try_from(time.millis % 1000).ok()? * 1_000_000).ok()
}

/// Rounded to a quarter hour.
fn round(difference: i64) -> i64 {
    (difference + QUARTER / 2).div_euclid(QUARTER) * QUARTER
}

/// Within half a day: what a difference without dates can mean.
fn wrap(difference: i64) -> i64 {
    (difference + DAY / 2).rem_euclid(DAY) - DAY / 2
}

/// A live line's time on its wall: of the years and days that it may mean, the one nearest the arrival.
fn near(time: LineTime, arrival: Stamp, offset: i64) -> Option<DateTime> {
    let clock = clock(time)?;
    let wall = arrival.checked_sub(SignedDuration::from_secs(offset)).ok()?.to_zoned(TimeZone::UTC).datetime();
    match (time.year, time.date) {
        (Some(year), Some((month, day))) => Some(Date::new(year, month, day).ok()?.to_datetime(clock)),
        (_, Some((month, day))) => [0, 1, -1, 2, -2, 3, -3, 4, -4]
            .iter()
            .filter_map(|step| Some(Date::new(wall.year() + step, month, day).ok()?.to_datetime(clock)))
            .min_by_key(|civil| (seconds(*civil) - seconds(wall)).abs()),
        (_, None) => Some(wall.date().to_datetime(clock)),
    }
}

/// Bins of half a minute in which requests and marks are compared.
const BIN: i64 = 30;
/// Most bins: nine days of half minutes. What is longer is compared over the first ones.
const MOST_BINS: i64 = 26_000;
/// Fewest lines and marks that say anything.
const FEWEST: usize = 5;
/// Least correlation at the best offset.
const FITS: f64 = 0.5;
/// By how much the best must be better than the next.
const CLEARER: f64 = 0.15;

/// By how much a skipped hour must make the fit better.
const BETTER: f64 = 0.03;
/// Most silences in which summer time is looked for.
const MOST_SILENCES: usize = 8;

/// How lines and marks fall together; None where they do not, or do nearly as well at another offset.
///
/// Where summer time begins within a log, its wall skips an hour, which looks like a silence; such an hour
/// is believed where lines fit better with it than without.
fn best_match(lines: &[i64], marks: &[i64]) -> Option<Match> {
    if lines.len() < FEWEST || marks.len() < FEWEST {
        return None;
    }
    let plain = best_offset(lines, marks).map(|(fit, offset)| (fit, Match { offset, spring: None }));
    let mut silences: Vec<(i64, i64)> =
        lines.windows(2).filter_map(|pair| Some((pair.last()? - pair.first()?, *pair.last()?))).collect();
    silences.retain(|(length, _)| *length >= HOUR);
    silences.sort_unstable_by_key(|(length, _)| -length);
    silences.truncate(MOST_SILENCES);
    let springs = silences.into_iter().filter_map(|(_, from)| {
        let moved: Vec<i64> = lines.iter().map(|line| if *line >= from { line - HOUR } else { *line }).collect();
        let (fit, offset) = best_offset(&moved, marks)?;
        Some((fit, Match { offset, spring: Some(from) }))
    });
    let spring = springs.max_by(|a, b| a.0.total_cmp(&b.0));
    match (plain, spring) {
        (Some((fit, _)), Some((better, spring))) if better > fit + BETTER => Some(spring),
        (plain, spring) => plain.or(spring).map(|(_, matched)| matched),
    }
}

/// The offset that fits best, and how well.
fn best_offset(lines: &[i64], marks: &[i64]) -> Option<(f64, i64)> {
    let mut scored: Vec<(f64, i64)> =
        OFFSETS.map(|quarter| (correlation(lines, marks, quarter * QUARTER), quarter * QUARTER)).collect();
    scored.sort_by(|a, b| b.0.total_cmp(&a.0));
    match scored.as_slice() {
        [(best, offset), (next, _), ..] if *best >= FITS && best - next >= CLEARER => Some((*best, *offset)),
        _ => None,
    }
}

/// How well lines moved by an offset go with marks: over the time of the marks, and over that of the
/// lines, the better; a server may have worked for others before, and a log may have been cut.
fn correlation(lines: &[i64], marks: &[i64], offset: i64) -> f64 {
    let moved: Vec<i64> = lines.iter().map(|line| line + offset).collect();
    over(&moved, marks, marks).max(over(&moved, marks, &moved))
}

fn over(lines: &[i64], marks: &[i64], span: &[i64]) -> f64 {
    let (Some(first), Some(last)) = (span.iter().min(), span.iter().max()) else { return 0.0 };
    let (first, last) = (first - 2 * BIN, last + 2 * BIN);
    let bins = ((last - first) / BIN + 1).clamp(1, MOST_BINS);
    let lines = binned(lines, first, bins);
    let marks = binned(marks, first, bins);
    pearson(&lines, &marks)
}

/// Counts in bins, each shared between the two bins that it lies nearest to: an answer is noted a
/// little after it was given.
fn binned(times: &[i64], first: i64, bins: i64) -> Vec<f64> {
    let mut out = vec![0.0; usize::try_from(bins).unwrap_or(1)];
    for time in times {
        let at = (time - first) as f64 / BIN as f64;
        if at < 0.0 || at >= bins as f64 {
            continue;
        }
        let low = at as usize;
        let share = at - low as f64;
        if let Some(bin) = out.get_mut(low) {
            *bin += 1.0 - share;
        }
        if let Some(bin) = out.get_mut(low + 1) {
            *bin += share;
        }
    }
    out
}

fn pearson(a: &[f64], b: &[f64]) -> f64 {
    let n = a.len() as f64;
    let (mean_a, mean_b) = (a.iter().sum::<f64>() / n, b.iter().sum::<f64>() / n);
    let (mut ab, mut aa, mut bb) = (0.0, 0.0, 0.0);
    for (x, y) in a.iter().zip(b) {
        let (dx, dy) = (x - mean_a, y - mean_b);
        ab += dx * dy;
        aa += dx * dx;
        bb += dy * dy;
    }
    if aa <= 0.0 || bb <= 0.0 { 0.0 } else { ab / (aa * bb).sqrt() }
}
