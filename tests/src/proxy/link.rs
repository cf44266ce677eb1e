//! The threads of one connection. On each side, one thread reads, and writes to the other side what may pass at once.
//! Another thread on each side writes what passes later.
//!
//! The threads end when the link is no longer among the open links. Until then, a thread can block in three ways:
//!
//! 1. It reads from its socket. Closing the link shuts this socket down.
//! 2. It waits on the condition of the link, or writes to the socket of the server. Closing the link notifies the one
//!    and shuts down the other.
//! 3. It writes to the socket of the client. This socket has a write timeout, because a shutdown for writing would send
//!    a FIN.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::thread::{self, Scope};
use std::time::Duration;

use super::resp;
use super::state::{Load, Priority, Shared, Sockets};

/// The timeout of a connection to the server. Only a stopped server with a full backlog takes longer.
const CONNECT: Duration = Duration::from_secs(1);

/// The interval at which a writer checks whether its link is still open, while the client does not read.
const LOOK: Duration = Duration::from_millis(20);

pub(super) fn run(shared: &Shared, id: u64, sockets: &Sockets) {
    prepare(&sockets.client);
    thread::scope(|scope| {
        scope.spawn(|| read_client(shared, id, sockets));
        scope.spawn(|| write_server(scope, shared, id, sockets));
        write_client(shared, id, sockets);
    });
}

fn prepare(client: &TcpStream) {
    _ = client.set_nonblocking(false);
    _ = client.set_nodelay(true);
    _ = client.set_write_timeout(Some(LOOK));
}

fn read_client(shared: &Shared, id: u64, sockets: &Sockets) {
    let reader = Reader {
        value: |request| shared.lock().request(id, request),
        pass: || {
            // The order of the conditions matters: nothing may pass before the connection to the server exists.
            while let Some(bytes) = shared.passable(id, Priority::ToServer)
                && let Some(server) = sockets.server.get()
            {
                write_to_server(shared, id, server, &bytes);
            }
            shared.changed();
        },
    };
    reader.read(&sockets.client);
    // What the client sent before the close still reaches the server, whether or not the close was a reset.
    shared.lock().end(id, Priority::ToServer, false);
    shared.changed();
}

fn read_server(shared: &Shared, id: u64, sockets: &Sockets, server: &TcpStream) {
    let reader = Reader {
        value: |reply| shared.lock().reply(id, reply),
        pass: || {
            while let Some(bytes) = shared.passable(id, Priority::ToClient) {
                send(shared, id, &sockets.client, &bytes);
                shared.written(id, Priority::ToClient);
            }
            shared.changed();
        },
    };
    let reset = reader.read(server);
    shared.lock().end(id, Priority::ToClient, reset);
    shared.changed();
}

/// Handlers for each complete value of a stream, and for the end of each batch of input.
struct Reader<V, P> {
    value: V,
    pass: P,
}

impl<V: FnMut(Vec<u8>), P: FnMut()> Reader<V, P> {
    /// Reads until the end of the stream. Returns true if the end was a reset.
    fn read(mut self, mut socket: &TcpStream) -> bool {
        let mut buffer = Vec::new();
        let mut piece = [0; 16 * 1024];
        loop {
            match socket.read(&mut piece) {
                Ok(0) => return false,
                Ok(length) => buffer.extend_from_slice(&piece[..length]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return true,
            }
            while let Some(length) = resp::frame(&buffer) {
                (self.value)(buffer.drain(..length).collect());
            }
            (self.pass)();
        }
    }
}

fn write_server<'scope, 'env>(
    scope: &'scope Scope<'scope, 'env>,
    shared: &'env Shared,
    id: u64,
    sockets: &'env Sockets,
) {
    let Some(server) = connect(shared, id, sockets) else {
        shared.lock().close(id, true);
        return shared.changed();
    };
    scope.spawn(move || read_server(shared, id, sockets, server));
    shared.written(id, Priority::ToServer);
    while let Some(load) = shared.next(id, Priority::ToServer) {
        if let Load::Bytes(bytes) = load {
            write_to_server(shared, id, server, &bytes);
        } else {
            _ = server.shutdown(std::net::Shutdown::Write);
            return;
        }
    }
}

fn write_to_server(shared: &Shared, id: u64, mut server: &TcpStream, bytes: &[u8]) {
    _ = server.write_all(bytes); // If the write fails, the reader notices the end of the stream too.
    shared.written(id, Priority::ToServer);
}

/// Connects to the server. Returns `None` if the link is closed in the meantime.
fn connect<'a>(shared: &Shared, id: u64, sockets: &'a Sockets) -> Option<&'a TcpStream> {
    let target = shared.wait_passable(id)?;
    let server = TcpStream::connect_timeout(&target, CONNECT).ok()?;
    _ = server.set_nodelay(true);
    let state = shared.lock(); // Either the closing thread finds the socket, or this thread finds the link closed.
    state.links.contains_key(&id).then(|| sockets.server.get_or_init(|| server))
}

fn write_client(shared: &Shared, id: u64, sockets: &Sockets) {
    while let Some(load) = shared.next(id, Priority::ToClient) {
        let reset = match load {
            Load::Bytes(bytes) => {
                send(shared, id, &sockets.client, &bytes);
                shared.written(id, Priority::ToClient);
                continue;
            }
            Load::Cut(bytes) => {
                send(shared, id, &sockets.client, &bytes);
                true
            }
            Load::End { reset } => reset,
        };
        shared.lock().close(id, reset);
        shared.changed();
    }
}

/// Writes to the client until everything is written, the link is closed, or the write fails.
fn send(shared: &Shared, id: u64, mut client: &TcpStream, mut bytes: &[u8]) {
    while !bytes.is_empty() && shared.lock().links.contains_key(&id) {
        match client.write(bytes) {
            Ok(length) => bytes = &bytes[length..],
            Err(error) if is_timeout(&error) => {}
            Err(_) => return,
        }
    }
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted)
}
