//! The end of a huge recording at once: its last output on an empty screen, until the exact screen is
//! there.

use std::io;

use super::format::{Depth, Header, Kind, Version, parse_event, parse_size};
use super::screen::Screen;
use super::source::Source;

/// Bytes at the end of the file that are shown. An agent's terminal is redrawn within far less.
pub(super) const TAIL: u64 = 256 << 10;
/// The same where it is shown many times a second.
pub(super) const SHORT_TAIL: u64 = 128 << 10;

/// The screen that the last `tail` bytes leave when the screen before them is not known. None for
/// v1, which is one document, and when there is no whole line in them.
///
/// # Errors
/// As `pread(2)`.
pub(super) fn end_of(source: &dyn Source, header: &Header, tail: u64) -> io::Result<Option<Screen>> {
    if header.version == Version::V1 {
        return Ok(None);
    }
    let len = source.len()?;
    let from = len.saturating_sub(tail);
    let mut bytes = vec![0; usize::try_from(len - from).unwrap_or(0)];
    let got = source.fill_at(&mut bytes, from)?;
    bytes.truncate(got);
    // The first piece is the end of a line or the header.
    let events: Vec<_> = bytes
        .split(|b| *b == b'\n')
        .skip(1)
        .filter_map(|line| parse_event(line, header.version, Depth::Full, true).ok())
        .collect();
    if events.is_empty() {
        return Ok(None);
    }
    let size = events.iter().rev().find(|e| e.kind == Kind::Resize).and_then(|e| parse_size(&e.data));
    let (cols, rows) = size.unwrap_or((header.cols, header.rows));
    let mut screen = Screen::new(cols, rows);
    for event in events.iter().filter(|e| e.kind == Kind::Output) {
        screen.feed(&event.data);
    }
    Ok(Some(screen))
}
