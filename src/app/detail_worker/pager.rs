//! Windows of text files of any size: what is shown is read, nothing else.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use crate::app::detail::At;
use crate::app::detail::doc::{DocLine, Mark};

/// Bytes of one window.
pub const WINDOW: u64 = 192 * 1024;
/// Bytes that are looked at for the end of a line that began in a window.
const OVERHANG: u64 = 64 * 1024;
/// Offsets of a file's lines begin here; below are the lines that stand before the file's text.
pub const BASE: u64 = 1 << 40;

/// Lines of a file and what lies around them.
#[derive(Debug, Default)]
pub struct Window {
    /// The lines; offsets are bytes in the file beyond [`BASE`].
    pub lines: Vec<DocLine>,
    /// Bytes before.
    pub before: u64,
    /// Bytes after.
    pub after: u64,
    /// Bytes in all.
    pub size: u64,
    /// True when the file is no text and its first bytes are shown as numbers.
    pub binary: bool,
}

/// Reads the window at a place.
///
/// # Errors
/// As `pread(2)`.
pub fn window(file: &File, at: At, mark: impl Fn(&str) -> Mark) -> io::Result<Window> {
    let size = file.metadata()?.len();
    let head = read(file, 0, 8192.min(size))?;
    if is_binary(&head) {
        return Ok(Window { lines: hex(&head), before: 0, after: 0, size, binary: true });
    }
    let from = match at {
        At::Start => 0,
        At::End | At::Live => size.saturating_sub(WINDOW),
        At::Around(offset) => {
            let middle = offset.saturating_sub(BASE).min(size);
            middle.saturating_sub(WINDOW / 2).min(size.saturating_sub(WINDOW))
        }
    };
    let to = from.saturating_add(WINDOW).min(size);
    let (lines, begin, end) = lines(file, from, to, size, mark)?;
    Ok(Window { lines, before: begin, after: size.saturating_sub(end), size, binary: false })
}

/// The lines that begin in `from..to`, with the offsets of the first line's begin and the last
/// line's end.
pub fn lines(
    file: &File,
    from: u64,
    to: u64,
    size: u64,
    mark: impl Fn(&str) -> Mark,
) -> io::Result<(Vec<DocLine>, u64, u64)> {
    // One byte before tells whether a line begins at `from`.
    let early = u64::from(from > 0);
    let bytes = read(file, from - early, (to - from) + early + OVERHANG)?;
    let mut begin = from - early;
    let mut rest: &[u8] = &bytes;
    if early > 0 {
        match memchr::memchr(b'\n', rest).filter(|at| *at as u64 <= OVERHANG) {
            Some(at) => {
                rest = rest.get(at + 1..).unwrap_or_default();
                begin += at as u64 + 1;
            }
            // In the middle of an endless line: begin at a character.
            None => {
                let skip = 1 + rest.iter().skip(1).take_while(|b| **b & 0xc0 == 0x80).count().min(3);
                rest = rest.get(skip..).unwrap_or_default();
                begin += skip as u64;
            }
        }
    }
    let mut out = Vec::new();
    let mut at = begin;
    while at < to && !rest.is_empty() {
        let found = memchr::memchr(b'\n', rest);
        let len = found.unwrap_or(rest.len());
        let ends_beyond = found.is_none() && at + (len as u64) < size;
        let line = rest.get(..len).unwrap_or_default();
        let line = if ends_beyond { whole_characters(line) } else { line };
        let text = String::from_utf8_lossy(line);
        let first = out.len();
        out.extend(DocLine::split(&text, mark(&text)));
        for (i, made) in out.iter_mut().skip(first).enumerate() {
            made.offset = BASE + at + i as u64;
        }
        let taken = line.len() + usize::from(found.is_some());
        at += taken.max(1) as u64;
        rest = rest.get(taken.max(1)..).unwrap_or_default();
        if ends_beyond {
            break;
        }
    }
    Ok((out, begin, at.min(size)))
}

fn whole_characters(line: &[u8]) -> &[u8] {
    let tail = line.iter().rev().take(3).take_while(|b| **b & 0xc0 == 0x80).count();
    match line.len().checked_sub(tail + 1).filter(|at| line.get(*at).is_some_and(|b| *b >= 0xc0)) {
        Some(at) if at > 0 => line.get(..at).unwrap_or(line),
        _ => line,
    }
}

fn read(file: &File, from: u64, len: u64) -> io::Result<Vec<u8>> {
    let mut out = vec![0; usize::try_from(len).unwrap_or(0)];
    let mut done = 0;
    while let Some(room) = out.get_mut(done..).filter(|r| !r.is_empty()) {
        match file.read_at(room, from + done as u64) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    out.truncate(done);
    Ok(out)
}

/// Whether the beginning of a file looks like no text: zero bytes, or much that is no UTF-8.
pub fn is_binary(head: &[u8]) -> bool {
    if memchr::memchr(0, head).is_some() {
        return true;
    }
    let bad: usize = head.utf8_chunks().map(|c| c.invalid().len()).sum();
    bad > 8 && bad * 5 > head.len()
}

/// The first bytes as numbers and characters.
fn hex(head: &[u8]) -> Vec<DocLine> {
    let rows = head.chunks(16).take(64).enumerate().map(|(i, row)| {
        let numbers: String = row.iter().map(|b| format!("{b:02x} ")).collect();
        let shown: String = row.iter().map(|b| if (32..127).contains(b) { *b as char } else { '.' }).collect();
        let mut line = DocLine::new(&format!("{:06x}  {numbers:<48} {shown}", i * 16), Mark::Dim);
        line.offset = BASE + i as u64 * 16;
        line
    });
    rows.collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::io::Write;

    fn file(bytes: &[u8]) -> File {
        let mut f = tempfile::tempfile().unwrap();
        f.write_all(bytes).unwrap();
        f
    }

    fn texts(w: &Window) -> Vec<&str> {
        w.lines.iter().map(DocLine::text).collect()
    }

    #[test]
    fn windows_cover_a_file_without_loss() {
        let all: Vec<String> = (0..25_000).map(|i| format!("line {i} ü")).collect();
        let f = file(all.join("\n").as_bytes());
        let mut seen: Vec<(u64, String)> = Vec::new();
        let mut at = At::Start;
        loop {
            let w = window(&f, at, |_| Mark::Plain).unwrap();
            let last = seen.last().map(|(o, _)| *o);
            let new = w.lines.iter().filter(|l| last.is_none_or(|o| l.offset > o));
            seen.extend(new.map(|l| (l.offset, l.text().to_string())).collect::<Vec<_>>());
            if w.after == 0 {
                break;
            }
            at = At::Around(seen.last().unwrap().0);
        }
        assert!(seen.iter().map(|(_, t)| t).eq(all.iter()));
        let end = window(&f, At::End, |_| Mark::Plain).unwrap();
        assert_eq!(texts(&end).last(), Some(&"line 24999 ü"));
        assert!(end.before > 0 && end.after == 0);
    }

    #[test]
    fn endless_lines_and_odd_bytes_are_shown() {
        let f = file("任".repeat(300_000).as_bytes());
        let w = window(&f, At::Around(BASE + 450_001), |_| Mark::Plain).unwrap();
        assert!(w.lines.len() > 10 && !texts(&w).iter().any(|t| t.contains('\u{fffd}')), "{}", w.lines.len());
        let w = window(&file(b"a\xff\nb\n"), At::Start, |_| Mark::Plain).unwrap();
        assert_eq!(texts(&w), ["a\u{fffd}", "b"]);
        let w = window(&file(b"\x7fELF\0\0"), At::Start, |_| Mark::Plain).unwrap();
        assert!(w.binary && texts(&w)[0].contains("7f 45 4c 46"));
        let w = window(&file(b""), At::End, |_| Mark::Plain).unwrap();
        assert!(w.lines.is_empty());
    }
}
