//! A log file that grows, is rotated, cut, rewritten, taken away and brought back.
//!
//! On a thread of its own: reading a file may block, on file systems of a network for long.

use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use memchr::memmem;
use tokio::sync::mpsc::error::TrySendError;

use super::feed::{BATCH, Cutter, Feed, When, last_time};
use crate::job::{Stamp, time};
use crate::serving::poll::Sink;
use crate::serving::source::Options;
use crate::serving::{LineTime, Seen};

/// Between two looks at the file.
const LOOK: Duration = Duration::from_millis(200);
/// Bytes read at once.
const PIECE: usize = 128 << 10;
/// How long a file may be away in a rotation before that is told.
const AWAY: Duration = Duration::from_secs(1);
/// Between two attempts at what can not be read.
const AGAIN: Duration = Duration::from_secs(1);
/// How far back the start of the server is looked for: its limits stand there.
const BACK: u64 = 64 << 20;
/// Bytes from the start on that are read then.
const START: u64 = 512 << 10;
/// Bytes before the place of reading that are compared, to notice that a file was rewritten.
const MARK: usize = 64;

/// Words that stand at the start of a server only.
const STARTS: [&str; 2] = ["server_args=", "vLLM API server version"];

/// The thread of a file.
pub(super) struct Tailer {
    path: Arc<Path>,
    sink: Sink,
    options: Options,
    stop: Arc<AtomicBool>,
    feed: Feed,
    cutter: Cutter,
    /// What was told of its absence.
    lost: Option<String>,
    began: bool,
}

/// Nobody listens.
struct Stopped;

struct Open {
    file: File,
    id: (u64, u64),
    at: u64,
    mark: Vec<u8>,
}

impl Tailer {
    pub(super) fn new(path: Arc<Path>, sink: Sink, options: Options, stop: Arc<AtomicBool>) -> Tailer {
        let feed = Feed::new(sink.source, &options, Stamp::now());
        Tailer { path, sink, options, stop, feed, cutter: Cutter::default(), lost: None, began: false }
    }

    pub(super) fn run(mut self) {
        let _ = self.follow();
    }

    fn follow(&mut self) -> Result<(), Stopped> {
        loop {
            let open = match open(&self.path) {
                Ok(open) => open,
                Err(why) => {
                    self.lose(why)?;
                    self.rest(AGAIN)?;
                    continue;
                }
            };
            self.lost = None;
            if self.began {
                self.feed.see(Seen::LogReset);
                self.cutter = Cutter::default();
            }
            if let Err(e) = self.whole(open)? {
                self.lose(words(&e))?;
                self.rest(AGAIN)?;
            }
        }
    }

    /// Reads one file until it is another one. An error is what reading it ended with.
    fn whole(&mut self, mut open: Open) -> Result<io::Result<()>, Stopped> {
        macro_rules! or_end {
            ($what:expr) => {
                match $what {
                    Ok(value) => value,
                    Err(e) => return Ok(Err(e)),
                }
            };
        }
        or_end!(self.begin(&mut open)?);
        let mut away: Option<Instant> = None;
        loop {
            let written = or_end!(open.file.metadata());
            if was_cut(&open, &written) {
                self.feed.see(Seen::LogReset);
                self.cutter = Cutter::default();
                (open.at, open.mark) = (0, Vec::new());
            }
            or_end!(self.read(&mut open, u64::MAX, When::Live)?);
            self.flush()?;
            match std::fs::metadata(&self.path) {
                Ok(meta) if id(&meta) == open.id => {
                    away = None;
                    self.lost = None;
                }
                Ok(_) => {
                    // What was written to the old one until now.
                    or_end!(self.read(&mut open, u64::MAX, When::Live)?);
                    if let Some(rest) = self.cutter.rest() {
                        self.feed.line(&rest, When::Live(Stamp::now()));
                    }
                    self.flush()?;
                    return Ok(Ok(()));
                }
                Err(e) => {
                    let since = *away.get_or_insert_with(Instant::now);
                    if since.elapsed() >= AWAY {
                        self.lose(words(&e))?;
                    }
                }
            }
            self.rest(LOOK)?;
        }
    }

    /// Reads what is there already: the last part, and the start of the server where that lies before it.
    fn begin(&mut self, open: &mut Open) -> Result<io::Result<()>, Stopped> {
        let meta = match open.file.metadata() {
            Ok(meta) => meta,
            Err(e) => return Ok(Err(e)),
        };
        let (length, written) = (meta.len(), meta.modified().ok().and_then(time::from_system));
        if let (false, Some(written)) = (self.began, written) {
            self.feed = Feed::new(self.sink.source, &self.options, written);
        }
        let first = if self.began { 0 } else { length.saturating_sub(self.options.backlog) };
        let first = first.max(length.saturating_sub(self.options.backlog.max(1 << 20)));
        self.began = true;
        let end = length.saturating_sub(PIECE as u64);
        let mut bytes = vec![0; usize::try_from(length - end).unwrap_or(0)];
        if let Err(e) = open.file.read_exact_at(&mut bytes, end) {
            return Ok(if e.kind() == io::ErrorKind::UnexpectedEof { Ok(()) } else { Err(e) });
        }
        if let (Some(last), Some(written)) = (last_time(&bytes), written)
            && was_appended(&meta, written)
            && is_quarter(last, written)
        {
            self.feed.learn(last, written);
        }
        if first > 0 {
            match start_before(&open.file, first) {
                Ok(Some(start)) => {
                    open.at = start;
                    if let Err(e) = self.read(open, (start + START).min(first), When::Before)? {
                        return Ok(Err(e));
                    }
                    self.cutter = Cutter::default();
                }
                Ok(None) => {}
                Err(e) => return Ok(Err(e)),
            }
            open.at = first;
            match next_line(&open.file, first) {
                Ok(at) => open.at = at,
                Err(e) => return Ok(Err(e)),
            }
        }
        self.read(open, length, When::Before)
    }

    /// Reads up to `until` or to the end.
    fn read(&mut self, open: &mut Open, until: u64, when: fn(Stamp) -> When) -> Result<io::Result<()>, Stopped> {
        let mut piece = vec![0; PIECE];
        while open.at < until {
            let most = usize::try_from(until - open.at).unwrap_or(PIECE).min(PIECE);
            let read = match open.file.read_at(piece.get_mut(..most).unwrap_or_default(), open.at) {
                Ok(0) => break,
                Ok(read) => read,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Ok(Err(e)),
            };
            let bytes = piece.get(..read).unwrap_or_default();
            let when = when(Stamp::now());
            let Tailer { cutter, feed, .. } = self;
            cutter.cut(bytes, |line| feed.line(line, when));
            open.at += read as u64;
            open.mark.extend_from_slice(bytes.get(read.saturating_sub(MARK)..).unwrap_or_default());
            let over = open.mark.len().saturating_sub(MARK);
            open.mark.drain(..over);
            while self.feed.batch.len() >= BATCH {
                self.send()?;
            }
        }
        Ok(Ok(()))
    }

    fn lose(&mut self, why: String) -> Result<(), Stopped> {
        if self.lost.as_ref() != Some(&why) {
            self.feed.see(Seen::LogLost(why.as_str().into()));
            self.lost = Some(why);
        }
        self.flush()
    }

    fn flush(&mut self) -> Result<(), Stopped> {
        while !self.feed.batch.is_empty() {
            self.send()?;
        }
        Ok(())
    }

    /// Sends a batch; waits for room as long as somebody listens.
    fn send(&mut self) -> Result<(), Stopped> {
        let mut batch = self.feed.take();
        loop {
            match self.sink.tx.try_send(batch) {
                Ok(()) => return Ok(()),
                Err(TrySendError::Closed(_)) => return Err(Stopped),
                Err(TrySendError::Full(back)) => batch = back,
            }
            self.rest(Duration::from_millis(5))?;
        }
    }

    fn rest(&self, time: Duration) -> Result<(), Stopped> {
        let until = Instant::now() + time;
        loop {
            if self.stop.load(Ordering::Relaxed) || self.sink.tx.is_closed() {
                return Err(Stopped);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            std::thread::sleep(left.min(LOOK));
        }
    }
}

fn id(meta: &Metadata) -> (u64, u64) {
    (meta.dev(), meta.ino())
}

/// Whether the last line was written when the file was: not in a copy, which was written at once at a
/// time that has nothing to do with its lines. A copy that kept the time was made after it.
fn was_appended(meta: &Metadata, written: Stamp) -> bool {
    let Some(made) = meta.created().ok().and_then(time::from_system) else { return false };
    written <= Stamp::now() && (written < made || written.duration_since(made).as_secs() >= 60)
}

/// Whether a stamp and the time of its file differ by whole quarter hours, as zones do.
fn is_quarter(last: LineTime, written: Stamp) -> bool {
    let off = (written.as_second() - i64::from(last.millis / 1000)).rem_euclid(900);
    off.min(900 - off) <= 60
}

/// Opens a regular file, through links: logs are often reached by one. Never waits for a writer.
fn open(path: &Path) -> Result<Open, String> {
    let flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOCTTY;
    let flags = i32::try_from(flags.bits()).unwrap_or(0);
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path).map_err(|e| words(&e))?;
    let meta = file.metadata().map_err(|e| words(&e))?;
    let kind = meta.file_type();
    if kind.is_dir() {
        return Err("it is a directory".to_string());
    }
    if kind.is_fifo() {
        return Err("it is a pipe: read it by cmd:cat and its path".to_string());
    }
    if !kind.is_file() {
        return Err("it is no regular file".to_string());
    }
    Ok(Open { file, id: id(&meta), at: 0, mark: Vec::new() })
}

fn words(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "there is no such file".to_string(),
        io::ErrorKind::PermissionDenied => "no permission to read it".to_string(),
        _ => error.to_string(),
    }
}

/// Whether the file is shorter than what was read of it, or another text stands before the place.
fn was_cut(open: &Open, meta: &Metadata) -> bool {
    if meta.len() < open.at {
        return true;
    }
    if meta.len() == open.at || open.mark.is_empty() {
        return false;
    }
    let mut there = vec![0; open.mark.len()];
    let from = open.at - open.mark.len() as u64;
    open.file.read_exact_at(&mut there, from).is_ok() && there != open.mark
}

/// The beginning of the line after the one that `at` lies in; `at` itself where a line begins.
fn next_line(file: &File, at: u64) -> io::Result<u64> {
    let Some(before) = at.checked_sub(1) else { return Ok(0) };
    let mut bytes = vec![0; PIECE];
    let read = file.read_at(&mut bytes, before)?;
    let end = memchr::memchr(b'\n', bytes.get(..read).unwrap_or_default());
    Ok(end.map_or(at, |end| before + end as u64 + 1))
}

/// Where the line begins by which the server started last, before `end`; looked for in [`BACK`] bytes.
fn start_before(file: &File, end: u64) -> io::Result<Option<u64>> {
    let longest = STARTS.iter().map(|s| s.len()).max().unwrap_or(0) as u64;
    let lowest = end.saturating_sub(BACK);
    let mut to = end;
    let mut bytes = vec![0; 1 << 20];
    while to > lowest {
        let from = to.saturating_sub(bytes.len() as u64).max(lowest);
        let window = bytes.get_mut(..usize::try_from(to - from).unwrap_or(0)).unwrap_or_default();
        file.read_exact_at(window, from)?;
        let found = STARTS.iter().filter_map(|s| memmem::rfind(window, s.as_bytes())).max();
        if let Some(found) = found {
            let line = memchr::memrchr(b'\n', window.get(..found).unwrap_or_default());
            return Ok(Some(from + line.map_or(0, |line| line as u64 + 1)));
        }
        if from == lowest {
            break;
        }
        // The words may lie across the border.
        to = from + longest;
    }
    Ok(None)
}
