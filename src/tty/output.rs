//! Frames: one write each, inside a synchronized update, with nothing hostile in them.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;

use crossterm::queue;
use crossterm::terminal::{BeginSynchronizedUpdate, EndSynchronizedUpdate};
use ratatui::backend::{Backend, ClearType, CrosstermBackend, WindowSize};
use ratatui::buffer::{Buffer, Cell};
use ratatui::layout::{Position, Rect, Size};
use ratatui::style::Modifier;
use ratatui::{Frame, Terminal};
use rustix::event::{PollFd, PollFlags};

use super::caps::ColorLevel;
use super::clipboard::{self, CopyError, Via};
use super::{TtyError, guard};
use crate::job::text::is_unsafe;

/// What was written so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Frames drawn, those without any change included.
    pub frames: u64,
    /// Frames that changed something and so were written.
    pub written: u64,
    /// Calls of `write` that it took; more than `written` only when the terminal took a part.
    pub writes: u64,
    /// Bytes written.
    pub bytes: u64,
}

/// The screen: draws frames into the terminal that a [`super::Guard`] holds.
pub struct Term {
    terminal: Terminal<Screen>,
    sink: Sink,
    level: ColorLevel,
    clear: bool,
    all: bool,
    stats: Stats,
}

enum Sink {
    /// The terminal.
    Tty(File),
    /// Something else, in tests and benchmarks, with the size it is to have.
    Other(Box<dyn Write + Send>, Size),
}

impl std::fmt::Debug for Term {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Term").field("size", &self.size()).field("stats", &self.stats).finish_non_exhaustive()
    }
}

impl Term {
    /// The terminal on standard output.
    ///
    /// # Errors
    /// [`TtyError::Setup`] when it has no usable descriptor.
    pub fn new(level: ColorLevel) -> Result<Term, TtyError> {
        let out = guard::stdout_file().map_err(TtyError::Setup)?;
        Term::with(Sink::Tty(out), level)
    }

    /// Frames of a fixed size into any writer.
    ///
    /// # Errors
    /// None in practice; ratatui's signature has one.
    pub fn into_writer(out: impl Write + Send + 'static, size: Size, level: ColorLevel) -> Result<Term, TtyError> {
        Term::with(Sink::Other(Box::new(out), size), level)
    }

    fn with(sink: Sink, level: ColorLevel) -> Result<Term, TtyError> {
        let screen = Screen { size: sink.size(Size::new(80, 24)), ..Screen::default() };
        let terminal = Terminal::new(screen).map_err(TtyError::Setup)?;
        // The first frame clears: the alternate screen may hold what its last user left.
        Ok(Term { terminal, sink, level, clear: true, all: false, stats: Stats::default() })
    }

    /// Draws one frame. Only what changed is written, and nothing at all when nothing did.
    ///
    /// # Errors
    /// [`TtyError::Gone`] when the terminal was closed or given back; then leave.
    pub fn draw(&mut self, view: impl FnOnce(&mut Frame<'_>)) -> Result<(), TtyError> {
        self.check()?;
        let size = self.sink.size(self.size());
        if size != self.size() || std::mem::take(&mut self.all) {
            self.all = false;
            self.resize(size)?;
        }
        if std::mem::take(&mut self.clear) {
            self.terminal.clear()?;
        }
        let level = self.level;
        self.terminal.draw(|frame| {
            view(frame);
            make_safe(frame.buffer_mut(), level);
        })?;
        self.stats.frames += 1;
        self.flush_frame()
    }

    /// Makes the next frame clear the screen and write every cell: after a suspend, or when the
    /// operator asks for it because something else wrote into the terminal.
    pub fn clear(&mut self) {
        self.clear = true;
    }

    /// Makes the next frame write every cell, without clearing first: after the size changed, even
    /// when it is back by now, because on the way the terminal has moved or cut its lines.
    pub fn redraw(&mut self) {
        self.all = true;
    }

    /// Size of the last frame.
    pub fn size(&self) -> Size {
        self.terminal.backend().size
    }

    /// The size that a test's writer is to have from the next frame on; without effect on a
    /// terminal.
    pub fn set_writer_size(&mut self, size: Size) {
        if let Sink::Other(_, own) = &mut self.sink {
            *own = size;
        }
    }

    /// Counters.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// Rings the bell.
    ///
    /// # Errors
    /// As [`Term::draw`].
    pub fn bell(&mut self) -> Result<(), TtyError> {
        self.check()?;
        self.write(b"\x07")
    }

    /// Sends text to the clipboard, see [`clipboard::copy`].
    ///
    /// # Errors
    /// [`CopyError`]: nothing was sent.
    pub fn copy(&mut self, text: &str) -> Result<Via, CopyError> {
        let mut osc = Vec::new();
        let via = clipboard::copy(text, &mut osc)?;
        let sent = self.check().and_then(|()| if osc.is_empty() { Ok(()) } else { self.write(&osc) });
        sent.map_err(|error| CopyError::Terminal(io::Error::other(error)))?;
        Ok(via)
    }

    /// The buffer of the last frame does not fit any more. Nothing is cleared: what was on the
    /// screen stays until the next frame overwrites each cell, so there is nothing to flicker.
    fn resize(&mut self, size: Size) -> Result<(), TtyError> {
        let screen = self.terminal.backend_mut();
        screen.size = size;
        screen.keep = true;
        let resized = self.terminal.resize(Rect::from((Position::ORIGIN, size)));
        self.terminal.backend_mut().keep = false;
        resized?;
        // A cell that no view draws in every place of the last frame: so each cell differs.
        let mut never = Cell::new("\u{10fffd}");
        never.modifier = Modifier::all();
        self.terminal.current_buffer_mut().content.fill(never);
        self.terminal.swap_buffers();
        Ok(())
    }

    /// A panic in any thread gives the terminal back; from then on it is not ours to write to.
    fn check(&self) -> Result<(), TtyError> {
        match self.sink {
            Sink::Tty(_) if !guard::is_entered() => Err(given_back()),
            _ => Ok(()),
        }
    }

    fn flush_frame(&mut self) -> Result<(), TtyError> {
        let mut frame = std::mem::take(&mut self.terminal.backend_mut().bytes);
        if !frame.is_empty() {
            let mut end = Vec::with_capacity(8);
            queue!(end, EndSynchronizedUpdate)?;
            frame.extend_from_slice(&end);
            self.stats.written += 1;
            self.write(&frame)?;
        }
        // The allocation is kept for the next frame, unless it was an exceptional one.
        if frame.capacity() <= 1 << 20 {
            frame.clear();
            self.terminal.backend_mut().bytes = frame;
        }
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), TtyError> {
        let _held = match self.sink {
            Sink::Tty(_) => Some(guard::hold().ok_or_else(given_back)?),
            Sink::Other(..) => None,
        };
        let mut rest = bytes;
        while !rest.is_empty() {
            self.stats.writes += 1;
            match self.sink.write(rest) {
                Ok(0) => return Err(TtyError::Gone(io::ErrorKind::WriteZero.into())),
                Ok(n) => {
                    self.stats.bytes += n as u64;
                    rest = rest.get(n..).unwrap_or_default();
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // Somebody who shares the terminal made it non-blocking.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.sink.wait_writable()?,
                Err(error) => return Err(TtyError::of_write(error)),
            }
        }
        Ok(())
    }
}

fn given_back() -> TtyError {
    TtyError::Gone(io::Error::other("it was given back because of an error elsewhere"))
}

impl Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Sink::Tty(file) => file.write(bytes),
            Sink::Other(out, _) => out.write(bytes),
        }
    }

    /// The size now; `last` where the terminal does not tell. A terminal that says 0×0 (some serial
    /// lines and bare ptys) is taken for 80×24.
    fn size(&self, last: Size) -> Size {
        match self {
            Sink::Other(_, size) => *size,
            Sink::Tty(file) => match rustix::termios::tcgetwinsize(file) {
                Ok(size) if size.ws_col > 0 && size.ws_row > 0 => Size::new(size.ws_col, size.ws_row),
                Ok(_) => Size::new(80, 24),
                Err(_) => last,
            },
        }
    }

    fn wait_writable(&self) -> Result<(), TtyError> {
        let Sink::Tty(file) = self else { return Err(TtyError::Write(io::ErrorKind::WouldBlock.into())) };
        let fd = file.as_fd();
        let limit = rustix::event::Timespec { tv_sec: 10, tv_nsec: 0 };
        match rustix::event::poll(&mut [PollFd::new(&fd, PollFlags::OUT)], Some(&limit)) {
            Ok(0) => Err(TtyError::Gone(io::Error::new(io::ErrorKind::TimedOut, "it took nothing for 10 s"))),
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(TtyError::Write(error.into())),
        }
    }
}

/// The last line of defence: whatever the views drew, no cell holds a character that a terminal
/// would act on, nor a colour that it does not have.
fn make_safe(buffer: &mut Buffer, level: ColorLevel) {
    for cell in &mut buffer.content {
        match cell.symbol().as_bytes() {
            [b' '..=b'~'] => {}
            [] => {
                cell.set_symbol(" ");
            }
            _ if cell.symbol().chars().any(is_unsafe) => {
                cell.set_symbol("\u{fffd}");
            }
            _ => {}
        }
        if level != ColorLevel::TrueColor {
            cell.fg = level.fit(cell.fg);
            cell.bg = level.fit(cell.bg);
        }
    }
}

/// ratatui's view of the terminal: collects the bytes of a frame, asks the terminal nothing (an
/// answer would have to be taken away from the input thread), and leaves out what changes nothing.
#[derive(Debug, Default)]
struct Screen {
    bytes: Vec<u8>,
    size: Size,
    /// While set, nothing is cleared.
    keep: bool,
    cursor: Position,
    /// Whether the cursor is shown; the guard hides it at the start.
    shown: bool,
    /// Drawing moved the cursor away from where it should be.
    moved: bool,
}

impl Screen {
    /// A backend that writes into the frame; the first bytes of a frame begin the update.
    fn frame(&mut self) -> io::Result<CrosstermBackend<&mut Vec<u8>>> {
        if self.bytes.is_empty() {
            queue!(self.bytes, BeginSynchronizedUpdate)?;
        }
        Ok(CrosstermBackend::new(&mut self.bytes))
    }
}

impl Backend for Screen {
    type Error = io::Error;

    fn draw<'a, I>(&mut self, content: I) -> io::Result<()>
    where
        I: Iterator<Item = (u16, u16, &'a Cell)>,
    {
        let mut content = content.peekable();
        if content.peek().is_none() {
            return Ok(());
        }
        self.moved = true;
        self.frame()?.draw(content)
    }

    fn hide_cursor(&mut self) -> io::Result<()> {
        if std::mem::take(&mut self.shown) { self.frame()?.hide_cursor() } else { Ok(()) }
    }

    fn show_cursor(&mut self) -> io::Result<()> {
        if std::mem::replace(&mut self.shown, true) {
            return Ok(());
        }
        self.moved = true;
        self.frame()?.show_cursor()
    }

    fn get_cursor_position(&mut self) -> io::Result<Position> {
        Ok(self.cursor)
    }

    fn set_cursor_position<P: Into<Position>>(&mut self, position: P) -> io::Result<()> {
        let position = position.into();
        if self.shown && (self.moved || position != self.cursor) {
            self.moved = false;
            self.frame()?.set_cursor_position(position)?;
        }
        self.cursor = position;
        Ok(())
    }

    fn clear(&mut self) -> io::Result<()> {
        self.clear_region(ClearType::All)
    }

    fn clear_region(&mut self, clear_type: ClearType) -> io::Result<()> {
        if self.keep { Ok(()) } else { self.frame()?.clear_region(clear_type) }
    }

    fn size(&self) -> io::Result<Size> {
        Ok(self.size)
    }

    fn window_size(&mut self) -> io::Result<WindowSize> {
        Ok(WindowSize { columns_rows: self.size, pixels: Size::default() })
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
