//! An engine behind a wire that can be cut.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use pilothouse::environment::docker::{Address, DockerEngine};

/// What a proxy does and has seen.
#[derive(Default)]
pub struct Wire {
    /// Answers to starts are swallowed, and the connection closed.
    pub swallow_starts: AtomicBool,
    /// Starts seen.
    pub starts: AtomicUsize,
    /// Connections that carry a terminal.
    terminals: Mutex<Vec<TcpStream>>,
}

impl Wire {
    /// Cuts every terminal.
    pub fn cut(&self) {
        for stream in self.terminals.lock().unwrap().drain(..) {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
    }
}

/// The engine of this machine, reached over TCP through a wire.
pub async fn through_a_wire() -> Option<(DockerEngine, Arc<Wire>)> {
    let Address::Unix(socket) = DockerEngine::connect().await.ok()?.address().clone() else { return None };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let wire = Arc::new(Wire::default());
    let at = Arc::clone(&wire);
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let (at, engine) = (Arc::clone(&at), UnixStream::connect(&socket).unwrap());
            std::thread::spawn(move || serve(client, engine, &at));
        }
    });
    Some((DockerEngine::connect_to(Address::Tcp(address)).await.unwrap(), wire))
}

fn serve(mut client: TcpStream, mut engine: UnixStream, wire: &Arc<Wire>) {
    let (mut from_client, mut to_engine, at) =
        (client.try_clone().unwrap(), engine.try_clone().unwrap(), Arc::clone(wire));
    let up = std::thread::spawn(move || {
        let mut piece = vec![0; 64 * 1024];
        while let Ok(n) = from_client.read(&mut piece)
            && n > 0
        {
            let text = String::from_utf8_lossy(&piece[..n]);
            let start = text.contains("/exec/") && text.contains("/start HTTP") && text.contains("Upgrade: tcp");
            let mut swallowed = false;
            // A terminal's start, not one of the client's own. A connection may have carried its preparation.
            if start && text.contains("\"Tty\":true") {
                at.starts.fetch_add(1, Ordering::SeqCst);
                swallowed = at.swallow_starts.load(Ordering::SeqCst);
                if swallowed {
                    let _ = from_client.shutdown(std::net::Shutdown::Both);
                } else {
                    at.terminals.lock().unwrap().push(from_client.try_clone().unwrap());
                }
            }
            if to_engine.write_all(&piece[..n]).is_err() || swallowed {
                // The engine answers, to nobody.
                return;
            }
        }
        let _ = to_engine.shutdown(std::net::Shutdown::Both);
    });
    let _ = std::io::copy(&mut engine, &mut client);
    let _ = client.shutdown(std::net::Shutdown::Both);
    let _ = up.join();
}
