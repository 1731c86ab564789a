//! The recording of a terminal: an asciicast for players, and the raw bytes.
//!
//! Both files are ours, made new in the trial's own directory and appended to as the terminal works. The
//! container may have that directory mounted: whatever is done to the names there, nothing of ours is
//! written through them again. A file that can not be written any more is given up and said so; the
//! terminal goes on.

use std::time::{Duration, Instant};

use super::decode::Text;
use super::emulator::{COLS, ROWS};
use crate::cast::writer;
use crate::environment::CUT_MARKER;
use crate::harbor::write::{Folder, Growing, WriteError};
use crate::job::Stamp;

/// Most bytes of either file.
pub const FILE_CAP: u64 = 256 << 20;
/// Other names that are tried where the first is taken.
const OTHERS: u32 = 50;
/// What the recording says of the terminal.
pub(super) const TERM: &str = "xterm-256color";

/// The two files of a recording.
#[derive(Debug)]
pub struct Recording {
    began: Instant,
    text: Text,
    cap: u64,
    cast: Option<Growing>,
    pane: Option<Growing>,
    faults: Vec<String>,
}

impl Recording {
    /// Makes `recording.cast` and `<pane>.pane` (an agent's own word, such as `terminus_2`); where a name
    /// is taken, the next free `recording-2.cast` and so on. At most `cap` bytes go into each
    /// ([`FILE_CAP`]).
    ///
    /// # Errors
    /// See [`WriteError`].
    pub fn begin(folder: &Folder, pane: &str, cap: u64) -> Result<Recording, WriteError> {
        let mut cast = free(folder, "recording", "cast")?;
        let pane = free(folder, pane, "pane")?;
        cast.append(&writer::header(COLS, ROWS, Stamp::now().as_second(), &[("TERM", TERM)]))?;
        Ok(Recording {
            began: Instant::now(),
            text: Text::default(),
            cap,
            cast: Some(cast),
            pane: Some(pane),
            faults: Vec::new(),
        })
    }

    /// Takes what the terminal printed.
    pub fn output(&mut self, bytes: &[u8]) {
        self.raw(bytes);
        let text = self.text.of(bytes);
        if !text.is_empty() && self.cast.is_some() {
            let line = writer::output(self.time(), &text);
            self.event(&line);
        }
    }

    /// Takes a line of our own, that no program printed: into the cast alone.
    pub fn remark(&mut self, text: &str) {
        let line = writer::output(self.time(), text);
        self.event(&line);
    }

    /// Sets a marker, such as the beginning of an episode.
    pub fn mark(&mut self, label: &str) {
        let line = writer::marker(self.time(), label);
        self.event(&line);
    }

    /// Why a file is not written any more, once each.
    pub fn faults(&mut self) -> Vec<String> {
        std::mem::take(&mut self.faults)
    }

    fn time(&self) -> Duration {
        self.began.elapsed()
    }

    fn event(&mut self, line: &[u8]) {
        let Some(cast) = &mut self.cast else { return };
        let cut = writer::marker(self.began.elapsed(), CUT_MARKER.trim());
        match fits(cast, line.len(), cut.len(), self.cap) {
            true => keep(&mut self.cast, line, &mut self.faults),
            false => end(&mut self.cast, &cut, &mut self.faults),
        }
    }

    fn raw(&mut self, bytes: &[u8]) {
        let Some(pane) = &mut self.pane else { return };
        match fits(pane, bytes.len(), CUT_MARKER.len(), self.cap) {
            true => keep(&mut self.pane, bytes, &mut self.faults),
            false => end(&mut self.pane, CUT_MARKER.as_bytes(), &mut self.faults),
        }
    }
}

fn fits(file: &Growing, more: usize, marker: usize, cap: u64) -> bool {
    file.written() + (more + marker) as u64 <= cap
}

fn keep(file: &mut Option<Growing>, bytes: &[u8], faults: &mut Vec<String>) {
    if let Some(open) = file
        && let Err(e) = open.append(bytes)
    {
        faults.push(format!("the recording stops here: {e}"));
        *file = None;
    }
}

fn end(file: &mut Option<Growing>, marker: &[u8], faults: &mut Vec<String>) {
    keep(file, marker, faults);
    if let Some(open) = file.take() {
        faults.push(format!("{}: cut at {} bytes, the most that are kept", open.path().display(), open.written()));
    }
}

fn free(folder: &Folder, stem: &str, ending: &str) -> Result<Growing, WriteError> {
    let mut made = folder.grow(&format!("{stem}.{ending}"));
    for other in 2..OTHERS {
        match made {
            Err(WriteError::Exists { .. }) => made = folder.grow(&format!("{stem}-{other}.{ending}")),
            done => return done,
        }
    }
    made
}

#[allow(clippy::unwrap_used)]
#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn names_in_the_way_are_left_alone_and_files_end_at_their_cap() {
        let dir = tempfile::tempdir().unwrap();
        let outside = dir.path().join("outside");
        std::fs::write(&outside, "mine").unwrap();
        let logs = dir.path().join("agent");
        std::fs::create_dir(&logs).unwrap();
        symlink(&outside, logs.join("recording.cast")).unwrap();
        symlink("/nowhere", logs.join("terminal.pane")).unwrap();
        let mut recording = Recording::begin(&Folder::open(&logs).unwrap(), "terminal", 4096).unwrap();
        recording.mark("episode 0");
        for turn in 0..200 {
            recording.output(b"0123456789 \xff\xe4\xbb");
            recording.output(b"\xbb 0123456789 0123456789\r\n");
            // Whatever is done to the names.
            if turn == 10 {
                std::fs::rename(logs.join("terminal-2.pane"), logs.join("moved")).unwrap();
                symlink(&outside, logs.join("terminal-2.pane")).unwrap();
            }
        }
        let faults = recording.faults();
        assert_eq!(faults.len(), 2, "{faults:?}");
        assert_eq!(std::fs::read_to_string(&outside).unwrap(), "mine");
        let cast = std::fs::read_to_string(logs.join("recording-2.cast")).unwrap();
        assert!(cast.len() <= 4096 && cast.ends_with("cut here by pilothouse: too long]\"]\n"), "{cast}");
        assert!(cast.contains("\"m\", \"episode 0\"") && cast.contains("\"o\", \"\u{4efb} 0123"), "{cast}");
        let pane = std::fs::read(logs.join("moved")).unwrap();
        assert!(pane.len() <= 4096 && pane.starts_with(b"0123456789 \xff\xe4\xbb\xbb 0123456789"));
        assert!(pane.ends_with(CUT_MARKER.as_bytes()));
    }
}
