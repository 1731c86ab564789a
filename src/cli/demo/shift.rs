//! Moves the recorded times to the present, so that ages and elapsed times look right.

use std::borrow::Cow;
use std::sync::LazyLock;

use regex::{Captures, Regex};

use crate::job::Stamp;
use crate::job::time::from_unix;

/// Where a recorded time lies now.
#[derive(Debug, Clone, Copy)]
pub struct Shift {
    /// The recording's beginning.
    pub origin: Stamp,
    /// The beginning of the re-enactment.
    pub start: Stamp,
    /// How many recorded seconds pass in one.
    pub speed: f64,
}

static ISO: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"(\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2})(?:\.(\d{1,9}))?(Z|[+-]\d{2}:\d{2})?").ok());
/// Milliseconds since 1970, as test reports have them.
static MILLIS: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r#"("(?:start|stop)": )(\d{13})\b"#).ok());
/// Seconds since 1970 in the header of an asciicast.
static EPOCH: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r#"("timestamp": )(\d{10})\b"#).ok());

impl Shift {
    /// Begins at `now`; at the recorded speed the shift is a whole number of seconds, so that the
    /// times that are given in whole seconds (an asciicast's header) keep their distance from the
    /// others.
    pub fn new(origin: Stamp, now: Stamp, speed: f64) -> Shift {
        let fraction = i64::from(origin.subsec_nanosecond()) - i64::from(now.subsec_nanosecond());
        let back = if fraction > 0 { fraction - 1_000_000_000 } else { fraction };
        let start = if speed == 1.0 { plus(now, back as f64 / 1e9) } else { now };
        Shift { origin, start, speed }
    }

    /// Where `recorded` lies now.
    pub fn at(&self, recorded: Stamp) -> Stamp {
        plus(self.start, recorded.duration_since(self.origin).as_secs_f64() / self.speed)
    }

    /// The document with all its times moved. Times without a zone were recorded in UTC and are
    /// written in this machine's local time, as Harbor does.
    pub fn json(&self, text: &str) -> String {
        let (Some(iso), Some(millis)) = (ISO.as_ref(), MILLIS.as_ref()) else { return text.to_string() };
        let same = |found: &Captures<'_>| found.get(0).map_or(String::new(), |m| m.as_str().to_string());
        let text = iso.replace_all(text, |found: &Captures<'_>| self.iso(found).unwrap_or_else(|| same(found)));
        let moved = millis.replace_all(&text, |found: &Captures<'_>| {
            let recorded = found[2].parse().ok().and_then(|n: i64| from_unix(n / 1000, n % 1000 * 1_000_000));
            recorded.map_or_else(|| same(found), |r| format!("{}{}", &found[1], self.at(r).as_millisecond()))
        });
        moved.into_owned()
    }

    fn iso(&self, found: &Captures<'_>) -> Option<String> {
        let group = |i: usize| found.get(i).map(|m| m.as_str());
        let (date, fraction, zone) = (group(1)?, group(2), group(3));
        let whole: Stamp = format!("{date}.{}{}", fraction.unwrap_or("0"), zone.unwrap_or("Z")).parse().ok()?;
        let moved = self.at(whole);
        let civil = match zone {
            None => moved.to_zoned(jiff::tz::TimeZone::system()).datetime(),
            Some(_) => moved.to_zoned(jiff::tz::TimeZone::UTC).datetime(),
        };
        let seconds = civil.strftime("%Y-%m-%dT%H:%M:%S");
        let zone = match zone {
            Some("Z") => "Z",
            Some(_) => "+00:00",
            None => "",
        };
        Some(match fraction {
            None => format!("{seconds}{zone}"),
            Some(digits) => {
                let nanos = format!("{:09}", civil.subsec_nanosecond());
                format!("{seconds}.{}{zone}", nanos.get(..digits.len()).unwrap_or("0"))
            }
        })
    }

    /// The header line of an asciicast.
    pub fn cast_header<'a>(&self, line: &'a str) -> Cow<'a, str> {
        let Some(epoch) = EPOCH.as_ref() else { return Cow::Borrowed(line) };
        epoch.replace(line, |found: &Captures<'_>| {
            let recorded = found[2].parse().ok().and_then(|n| from_unix(n, 0));
            recorded.map_or_else(|| found[0].to_string(), |r| format!("{}{}", &found[1], self.at(r).as_second()))
        })
    }

    /// An event line of an asciicast: its time is counted from the header's and so only scaled.
    pub fn cast_event<'a>(&self, line: &'a str) -> Cow<'a, str> {
        let split = line.strip_prefix('[').and_then(|rest| rest.split_once(','));
        match split.and_then(|(time, rest)| Some((time.trim().parse::<f64>().ok()?, rest))) {
            Some((time, rest)) if self.speed != 1.0 => Cow::Owned(format!("[{:.6},{rest}", time / self.speed)),
            _ => Cow::Borrowed(line),
        }
    }
}

fn plus(stamp: Stamp, seconds: f64) -> Stamp {
    jiff::SignedDuration::try_from_secs_f64(seconds).ok().and_then(|d| stamp.checked_add(d).ok()).unwrap_or(stamp)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shift(speed: f64) -> Option<Shift> {
        let origin = "2026-11-29T12:00:00.25Z".parse().ok()?;
        let now = "2027-01-02T03:04:05.9Z".parse().ok()?;
        Some(Shift::new(origin, now, speed))
    }

    #[test]
    fn whole_seconds_at_the_recorded_speed() {
        let Some(shift) = shift(1.0) else { unreachable!() };
        let text =
            r#"{"a": "2026-11-29T12:00:10.250000Z", "b": "2026-11-29T12:00:10+00:00", "start": 1795953610250, "n": 3}"#;
        assert_eq!(
            shift.json(text),
            r#"{"a": "2027-01-02T03:04:15.250000Z", "b": "2027-01-02T03:04:15+00:00", "start": 1798859055250, "n": 3}"#
        );
        assert_eq!(
            shift.cast_header(r#"{"version": 2, "timestamp": 1795953610}"#),
            r#"{"version": 2, "timestamp": 1798859055}"#
        );
        assert_eq!(shift.cast_event(r#"[1.5, "o", "x"]"#), r#"[1.5, "o", "x"]"#);
    }

    #[test]
    fn a_faster_run_takes_less_time() {
        let Some(shift) = shift(10.0) else { unreachable!() };
        assert_eq!(shift.json("2026-11-29T12:00:10.250000Z"), "2027-01-02T03:04:06.900000Z");
        assert_eq!(shift.cast_event(r#"[1.5, "o", "[2, x]"]"#), r#"[0.150000, "o", "[2, x]"]"#);
    }

    #[test]
    fn times_without_zone_are_local() {
        let Some(shift) = shift(1.0) else { unreachable!() };
        let moved = shift.json("2026-11-29T12:00:00.250000");
        let read = crate::job::time::parse(&moved).map(|t| (t.at, t.naive));
        assert_eq!(read, "2027-01-02T03:04:05.25Z".parse().ok().map(|at| (at, true)), "{moved}");
    }
}
