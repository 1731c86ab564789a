//! Connections to the engine that wake nobody for nothing.
//!
//! A trial is a dozen and more short exchanges with the engine, between which the program sleeps: being woken is
//! most of what they cost. An ordinary stream is woken after every request only to hear that it could write
//! again (the engine took the request), and for each of the sixteen pieces in which engines write the head
//! of the answer to the start of a command.

use std::io::{self, ErrorKind, Write as _};
use std::os::unix::net::UnixStream as Socket;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::net::unix::pipe;

use super::address::Address;

/// For an engine to write the head of an answer: it takes a tenth of that. No command has said anything so
/// early, since its process has to be made first.
const HEAD_TIME: Duration = Duration::from_millis(10);
/// Before an engine that takes no connection at the moment is tried again.
const QUEUED: Duration = Duration::from_millis(10);

/// A connection to a local engine. The kernel is asked to say when there is something to read; when there is
/// room again to write only after there was none.
///
/// The ends of pipes are what the runtime asks about one direction alone; that these are of a socket is all
/// the same to it.
#[derive(Debug)]
pub(super) struct Quiet {
    reader: pipe::Receiver,
    writer: Socket,
    /// The same socket once more, while it is full.
    full: Option<pipe::Sender>,
}

impl Quiet {
    /// A local connection stands at once, or the engine's queue is full.
    pub(super) async fn connect(path: &str) -> io::Result<Quiet> {
        let address = SocketAddrUnix::new(path)?;
        loop {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
            match connect(&socket, &address) {
                Ok(()) => return Quiet::of(socket.into()),
                Err(Errno::AGAIN) => tokio::time::sleep(QUEUED).await,
                Err(e) => return Err(e.into()),
            }
        }
    }

    /// Of a socket that does not block.
    fn of(socket: Socket) -> io::Result<Quiet> {
        let writer = socket.try_clone()?;
        Ok(Quiet { reader: pipe::Receiver::from_owned_fd_unchecked(socket.into())?, writer, full: None })
    }

    /// The same connection once more.
    pub(super) fn socket(&self) -> io::Result<Socket> {
        self.writer.try_clone()
    }
}

impl AsyncRead for Quiet {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().reader).poll_read(cx, buf)
    }
}

impl AsyncWrite for Quiet {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let full = match &mut this.full {
            Some(full) => full,
            none => {
                loop {
                    match this.writer.write(buf) {
                        Err(e) if e.kind() == ErrorKind::Interrupted => {}
                        Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                        done => return Poll::Ready(done),
                    }
                }
                none.insert(pipe::Sender::from_owned_fd_unchecked(this.writer.try_clone()?.into())?)
            }
        };
        let done = ready!(Pin::new(full).poll_write(cx, buf));
        this.full = None;
        Poll::Ready(done)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.writer.shutdown(std::net::Shutdown::Write) {
            Err(e) if e.kind() != ErrorKind::NotConnected => Poll::Ready(Err(e)),
            _ => Poll::Ready(Ok(())),
        }
    }
}

/// A connection to an engine wherever it is.
pub(super) enum Wire {
    Unix(Quiet),
    Tcp(TcpStream),
}

impl Wire {
    pub(super) async fn connect(address: &Address) -> io::Result<Wire> {
        match address {
            Address::Unix(path) => Quiet::connect(path).await.map(Wire::Unix),
            Address::Tcp(at) => {
                let stream = TcpStream::connect(at).await?;
                // Keys are short and must not wait for more of them.
                stream.set_nodelay(true)?;
                Ok(Wire::Tcp(stream))
            }
        }
    }

    /// Waits for an answer to begin and most probably to have its whole head; meanwhile nothing wakes.
    pub(super) async fn answered(self) -> io::Result<Wire> {
        match self {
            Wire::Unix(Quiet { reader, writer, full }) => {
                let socket = reader.into_nonblocking_fd()?;
                tokio::time::sleep(HEAD_TIME).await;
                let reader = pipe::Receiver::from_owned_fd_unchecked(socket)?;
                Ok(Wire::Unix(Quiet { reader, writer, full }))
            }
            // From afar it comes in packets.
            far @ Wire::Tcp(_) => Ok(far),
        }
    }
}

impl AsyncRead for Wire {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Wire::Unix(stream) => Pin::new(stream).poll_read(cx, buf),
            Wire::Tcp(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Wire {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Wire::Unix(stream) => Pin::new(stream).poll_write(cx, buf),
            Wire::Tcp(stream) => Pin::new(stream).poll_write(cx, buf),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Wire::Unix(stream) => Pin::new(stream).poll_flush(cx),
            Wire::Tcp(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Wire::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
            Wire::Tcp(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::io::Read as _;

    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    /// More than a socket holds goes through when the other side reads late, in both directions.
    #[test]
    fn a_full_socket_is_written_to_again_when_it_has_room() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (a, mut b) = Socket::pair().unwrap();
            a.set_nonblocking(true).unwrap();
            let mut quiet = Quiet::of(a).unwrap();
            let sent: Vec<u8> = (0..3_000_000_u32).map(|n| (n % 253) as u8).collect();
            let copy = sent.clone();
            let other = std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(50));
                let mut got = vec![0; copy.len()];
                b.read_exact(&mut got).unwrap();
                b.write_all(&got).unwrap();
                assert!(got == copy);
            });
            quiet.write_all(&sent).await.unwrap();
            let mut back = Vec::new();
            quiet.read_to_end(&mut back).await.unwrap();
            assert!(back == sent);
            other.join().unwrap();
        });
    }
}
