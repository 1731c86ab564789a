//! Points in time as job files give them.

use std::time::{Duration, SystemTime};

/// A point in time, always UTC inside the program.
pub type Stamp = jiff::Timestamp;

/// A time as read: Harbor writes trial times in UTC (`…Z`), job times without a zone, in the local
/// time of the machine that ran the job; Harbor 0.1 wrote trial times so, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadTime {
    /// The time; a text without zone is taken as local time of *this* machine.
    pub at: Stamp,
    /// True when the text had no zone, so that `at` may be off by whole quarter hours.
    pub naive: bool,
}

/// Reads `2026-11-29T19:32:54.557297`, with `Z`, an offset or no zone at all. None for anything else.
pub fn parse(text: &str) -> Option<ReadTime> {
    let text = text.trim();
    if let Ok(at) = text.parse::<Stamp>() {
        return Some(ReadTime { at, naive: false });
    }
    let local: jiff::civil::DateTime = text.parse().ok()?;
    let at = local.to_zoned(jiff::tz::TimeZone::system()).ok()?.timestamp();
    Some(ReadTime { at, naive: true })
}

/// A file time. None outside the range that can be represented.
pub fn from_system(time: SystemTime) -> Option<Stamp> {
    Stamp::try_from(time).ok()
}

/// From whole seconds and nanoseconds since 1970, as `stat` gives them.
pub fn from_unix(seconds: i64, nanos: i64) -> Option<Stamp> {
    Stamp::new(seconds, i32::try_from(nanos).ok()?).ok()
}

/// Seconds from `from` to `to`; None when the clock went backwards between them.
pub fn seconds_between(from: Stamp, to: Stamp) -> Option<f64> {
    let seconds = to.duration_since(from).as_secs_f64();
    (seconds >= 0.0).then_some(seconds)
}

/// Age of `then` at `now`, zero when `then` lies in the future (clock skew).
pub fn age(then: Stamp, now: Stamp) -> Duration {
    Duration::try_from(now.duration_since(then)).unwrap_or(Duration::ZERO)
}

/// A duration in the fewest words that keep its meaning: `8 s`, `4 m 10 s`, `4 h 12 m`, `3 d 4 h`.
pub fn words(seconds: f64) -> String {
    if !seconds.is_finite() || seconds < 0.0 {
        return "-".to_string();
    }
    let s = seconds.round().min(1e12) as u64;
    match s {
        0..60 => format!("{s} s"),
        60..3600 => match s % 60 {
            0 => format!("{} m", s / 60),
            rest => format!("{} m {rest} s", s / 60),
        },
        3600..86_400 => match s % 3600 / 60 {
            0 => format!("{} h", s / 3600),
            rest => format!("{} h {rest} m", s / 3600),
        },
        _ => match s % 86_400 / 3600 {
            0 => format!("{} d", s / 86_400),
            rest => format!("{} d {rest} h", s / 86_400),
        },
    }
}

/// A duration as a clock, for table cells: `0:08`, `52:10`, `1:30:00`.
pub fn clock(seconds: f64) -> String {
    if !seconds.is_finite() || seconds < 0.0 {
        return "-".to_string();
    }
    let s = seconds.min(1e12) as u64;
    if s < 3600 {
        format!("{}:{:02}", s / 60, s % 60)
    } else {
        format!("{}:{:02}:{:02}", s / 3600, s % 3600 / 60, s % 60)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_are_kept_apart() {
        let utc = parse("2026-11-29T19:36:42.174422Z");
        assert_eq!(utc.map(|t| t.naive), Some(false));
        assert_eq!(parse("2026-08-30T23:44:31+08:00").map(|t| t.at), parse("2026-08-30T15:44:31Z").map(|t| t.at));
        assert_eq!(parse("2026-11-29T19:32:54.557297").map(|t| t.naive), Some(true));
        assert_eq!(parse("2026-08-30T23:44:31.0").map(|t| t.naive), Some(true));
        assert_eq!(parse("yesterday"), None);
    }

    #[test]
    fn durations_read_well() {
        assert_eq!(words(59.4), "59 s");
        assert_eq!(words(250.0), "4 m 10 s");
        assert_eq!(words(15_120.0), "4 h 12 m");
        assert_eq!(clock(5400.0), "1:30:00");
        assert_eq!(words(f64::NAN), "-");
    }
}
