//! Seconds since 1970: on the clock of the trials, or on that of a log whose time can not be placed.

use crate::job::Stamp;
use crate::serving::LineTime;

/// Seconds since 1970.
pub(in crate::serving) type Seconds = f64;

pub(in crate::serving) fn of_stamp(at: Stamp) -> Seconds {
    at.as_microsecond() as f64 / 1e6
}

/// None outside of what a stamp can be.
pub(in crate::serving) fn stamp(t: Seconds) -> Option<Stamp> {
    // A cast of what is too large takes the largest, which no stamp is.
    if t.is_finite() { Stamp::from_microsecond((t * 1e6).round() as i64).ok() } else { None }
}

/// Days from 1970 of a date of the Gregorian calendar; any numbers will do.
fn days(year: i16, month: i8, day: i8) -> i64 {
    let (y, m, d) = (i64::from(year), i64::from(month), i64::from(day));
    let y = if m <= 2 { y - 1 } else { y };
    let era = y.div_euclid(400);
    let of_era = y.rem_euclid(400);
    let of_year = (153 * (m + if m > 2 { -3 } else { 9 }) + 2) / 5 + d - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// The time of a line on the log's own clock, taken as if it were UTC; without a year it lies in a year
/// of no meaning.
pub(in crate::serving) fn as_utc(time: LineTime) -> Option<Seconds> {
    let (month, day) = time.date?;
    Some(days(time.year.unwrap_or(NO_YEAR), month, day) as f64 * 86_400.0 + f64::from(time.millis) / 1e3)
}

/// The year of lines that have none: long enough ago to be no confusion, a leap year for 29 February.
const NO_YEAR: i16 = 1972;

/// The clock of a log whose times can not be placed: only differences count.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::serving) struct OwnClock {
    last: Option<Seconds>,
    /// Years that went by in a log that names none.
    years: i16,
}

impl OwnClock {
    /// The time of the next line. A line without time has that of the one before.
    pub(in crate::serving) fn read(&mut self, time: Option<LineTime>) -> Seconds {
        let before = self.last;
        let now = match (time, before) {
            (None, _) => before.unwrap_or(0.0),
            (Some(time), _) if time.date.is_some() => {
                let shifted = |years: i16| LineTime { year: time.year.or(Some(NO_YEAR + years)), ..time };
                let read = as_utc(shifted(self.years)).unwrap_or(0.0);
                // From December to January.
                if time.year.is_none() && before.is_some_and(|b| read < b - 180.0 * 86_400.0) && self.years < 100 {
                    self.years += 1;
                    as_utc(shifted(self.years)).unwrap_or(read)
                } else {
                    read
                }
            }
            // The time of day alone: on the day of the line before, or the next one past midnight.
            (Some(time), before) => {
                let of_day = f64::from(time.millis) / 1e3;
                let before = before.unwrap_or(0.0);
                let read = (before / 86_400.0).floor() * 86_400.0 + of_day;
                if read < before - 43_200.0 { read + 86_400.0 } else { read }
            }
        };
        self.last = Some(now);
        now
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn days_are_those_of_the_calendar() {
        let at = |text: &str| of_stamp(text.parse().unwrap());
        let line = |y, m, d| as_utc(LineTime { year: Some(y), date: Some((m, d)), millis: 3_600_500 }).unwrap();
        assert_eq!(line(2026, 11, 29), at("2026-11-29T01:00:00.5Z"));
        assert_eq!(line(2024, 2, 29), at("2024-02-29T01:00:00.5Z"));
        assert_eq!(line(1970, 1, 1), at("1970-01-01T01:00:00.5Z"));
        assert_eq!(stamp(at("2026-11-29T01:00:00.5Z")).unwrap().to_string(), "2026-11-29T01:00:00.5Z");
        assert_eq!((stamp(f64::NAN), stamp(1e300)), (None, None));
    }

    #[test]
    fn own_clocks_go_over_midnight_and_new_year() {
        let time = |date, hour: u32| Some(LineTime { year: None, date, millis: hour * 3_600_000 });
        let mut clock = OwnClock::default();
        let evening = clock.read(time(None, 23));
        assert_eq!(clock.read(time(None, 1)) - evening, 7_200.0);
        assert_eq!(clock.read(None) - evening, 7_200.0);
        let mut clock = OwnClock::default();
        let evening = clock.read(time(Some((12, 31)), 23));
        assert_eq!(clock.read(time(Some((1, 1)), 1)) - evening, 7_200.0);
        assert_eq!(clock.read(time(Some((1, 1)), 2)) - evening, 10_800.0);
    }
}
