//! Between threads that read and write archives and tasks that send and receive them: bounded, so
//! that a fast side waits for a slow one instead of filling memory.

use std::io::{self, Read, Write};

use bytes::Bytes;
use tokio::sync::mpsc;

/// Bytes in one piece.
const PIECE: usize = 64 * 1024;
/// Pieces on the way.
const PIECES: usize = 8;

/// A bounded pipe: the writer for a blocking thread, the receiver for either side.
pub(super) fn pipe() -> (PipeWriter, mpsc::Receiver<io::Result<Bytes>>) {
    let (tx, rx) = mpsc::channel(PIECES);
    (PipeWriter { tx, piece: Vec::new(), sent: false }, rx)
}

/// A sender whose other end is read by a blocking thread.
pub(super) fn feed() -> (mpsc::Sender<io::Result<Bytes>>, PipeReader) {
    let (tx, rx) = mpsc::channel(PIECES);
    (tx, PipeReader { rx, piece: Bytes::new() })
}

/// The writing end. Its last piece goes out by `flush`, or is given back by [`PipeWriter::finish`].
pub(super) struct PipeWriter {
    tx: mpsc::Sender<io::Result<Bytes>>,
    piece: Vec<u8>,
    sent: bool,
}

impl PipeWriter {
    /// True as long as nothing was written.
    pub(super) fn is_empty(&self) -> bool {
        self.piece.is_empty() && !self.sent
    }

    /// True once a piece is on its way.
    pub(super) fn is_under_way(&self) -> bool {
        self.sent
    }

    /// The end. What fits in one piece did not go out, and is given back whole.
    pub(super) fn finish(mut self) -> io::Result<Option<Bytes>> {
        if self.sent {
            return self.flush().map(|()| None);
        }
        Ok(Some(Bytes::from(std::mem::take(&mut self.piece))))
    }

    /// Ends the stream with an error, so that the receiver does not take half an archive for whole.
    pub(super) fn fail(&self, error: io::Error) {
        let _ = self.tx.blocking_send(Err(error));
    }
}

impl Write for PipeWriter {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.piece.extend_from_slice(buf);
        if self.piece.len() >= PIECE {
            self.flush()?;
        }
        Ok(buf.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.piece.is_empty() {
            return Ok(());
        }
        self.sent = true;
        let piece = Bytes::from(std::mem::replace(&mut self.piece, Vec::with_capacity(PIECE)));
        self.tx.blocking_send(Ok(piece)).map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))
    }
}

/// The reading end.
pub(super) struct PipeReader {
    rx: mpsc::Receiver<io::Result<Bytes>>,
    piece: Bytes,
}

impl PipeReader {
    /// Reads what a [`pipe`] carries.
    pub(super) fn of(rx: mpsc::Receiver<io::Result<Bytes>>) -> PipeReader {
        PipeReader { rx, piece: Bytes::new() }
    }
}

impl Read for PipeReader {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        while self.piece.is_empty() {
            match self.rx.blocking_recv() {
                Some(piece) => self.piece = piece?,
                None => return Ok(0),
            }
        }
        let n = self.piece.len().min(buf.len());
        let part = self.piece.split_to(n);
        if let Some(room) = buf.get_mut(..n) {
            room.copy_from_slice(&part);
        }
        Ok(n)
    }
}
