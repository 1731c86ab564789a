//! Episodes on the time line of a cast.

use std::time::Duration;

use super::format::Header;
use crate::job::Stamp;

/// Where each episode begins in the recording: its start (UTC) less the start of the recording,
/// clamped to 0 and `duration`. None ("no episode index") when the header has no usable timestamp or
/// no episode has a time; a single episode without a time is None in the list.
///
/// The header's timestamp has whole seconds in most recordings, so an offset may be early by up to one.
pub fn offsets(header: &Header, episodes: &[Option<Stamp>], duration: Duration) -> Option<Vec<Option<Duration>>> {
    let start = Stamp::from_nanosecond((header.timestamp? * 1e9) as i128).ok()?;
    if episodes.iter().all(Option::is_none) {
        return None;
    }
    let offset = |at: Stamp| Duration::try_from(at.duration_since(start)).unwrap_or(Duration::ZERO).min(duration);
    Some(episodes.iter().map(|at| at.map(offset)).collect())
}

/// Number of the episode (from 0) that a recorded time belongs to: the last one that began by then.
/// None before the first.
pub fn episode_at(offsets: &[Option<Duration>], position: Duration) -> Option<usize> {
    offsets.iter().rposition(|o| o.is_some_and(|o| o <= position))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cast::Version;

    fn header(timestamp: Option<f64>) -> Header {
        Header {
            version: Version::V2,
            cols: 80,
            rows: 24,
            clamped: false,
            timestamp,
            title: None,
            idle_time_limit: None,
        }
    }

    #[test]
    fn offsets_are_clamped_and_none_without_an_anchor() {
        let at = |s: i64| Stamp::new(s, 0).ok();
        let long = Duration::from_secs(60);
        let found = offsets(&header(Some(1000.0)), &[at(990), at(1010), None, at(9999)], long);
        let secs = Duration::from_secs;
        assert_eq!(found, Some(vec![Some(secs(0)), Some(secs(10)), None, Some(secs(60))]));
        let found = found.unwrap_or_default();
        assert_eq!(episode_at(&found, secs(11)), Some(1));
        assert_eq!(episode_at(&found, secs(60)), Some(3));
        assert_eq!(offsets(&header(None), &[at(1)], long), None);
        assert_eq!(offsets(&header(Some(1e300)), &[at(1)], long), None);
        assert_eq!(offsets(&header(Some(1.0)), &[None], long), None);
        assert_eq!(offsets(&header(Some(1.0)), &[], long), None);
    }
}
