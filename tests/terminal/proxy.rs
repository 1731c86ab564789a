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

fn serve(mut client: TcpStream, mut engine: UnixStream, wire: &Wire) {
    let mut first = vec![0; 64 * 1024];
    let Ok(n) = client.read(&mut first) else { return };
    engine.write_all(&first[..n]).unwrap();
    let head = String::from_utf8_lossy(&first[..n]).into_owned();
    let start = head.contains("/exec/") && head.contains("/start HTTP") && head.contains("Upgrade: tcp");
    // A terminal's start, not one of the client's own.
    if start && head.contains("\"Tty\":true") {
        wire.starts.fetch_add(1, Ordering::SeqCst);
        if wire.swallow_starts.load(Ordering::SeqCst) {
            let _ = engine.read(&mut first);
            return;
        }
        wire.terminals.lock().unwrap().push(client.try_clone().unwrap());
    }
    let (mut from_client, mut to_engine) = (client.try_clone().unwrap(), engine.try_clone().unwrap());
    let up = std::thread::spawn(move || {
        let _ = std::io::copy(&mut from_client, &mut to_engine);
        let _ = to_engine.shutdown(std::net::Shutdown::Both);
    });
    let _ = std::io::copy(&mut engine, &mut client);
    let _ = client.shutdown(std::net::Shutdown::Both);
    let _ = up.join();
}
