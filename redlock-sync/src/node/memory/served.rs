//! Serves a server in memory over TCP, for programs that know only URLs.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use super::memory_connection::command;
use super::memory_server::MemoryServer;
use crate::clock::{SystemClock, Tick};
use crate::node::link::Dial;
use crate::node::transport::halves::Source;

/// How often a connection that is subscribed looks whether its client is still there.
const LOOK: Duration = Duration::from_secs(1);
const BUFFER: usize = 64 << 10;

/// Serves it on a port of this machine, as long as this process lives.
pub(crate) fn serve(server: Arc<MemoryServer>) -> std::io::Result<String> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = listener.local_addr()?.to_string();
    thread::Builder::new().name("served".into()).spawn(move || {
        for stream in listener.incoming().flatten() {
            let server = Arc::clone(&server);
            // A connection that ends is no error.
            drop(thread::Builder::new().name("served".into()).spawn(move || connection(&server, stream)));
        }
    })?;
    Ok(address)
}

/// Executes the commands of a connection until it ends.
fn connection(server: &MemoryServer, mut stream: TcpStream) -> Option<()> {
    stream.set_nodelay(true).ok()?;
    let mut both = server.dial(Tick::NEVER, &SystemClock).ok()?;
    let mut unread = Vec::new();
    let mut room = vec![0; BUFFER];
    let mut is_subscribed = false;
    while !is_subscribed {
        let read = stream.read(&mut room).ok().filter(|read| *read > 0)?;
        unread.extend_from_slice(room.get(..read)?);
        // The last command may have arrived in part.
        let mut rest = unread.as_slice();
        while let Some((words, behind)) = command(rest) {
            is_subscribed |= words.first() == Some(&&b"SUBSCRIBE"[..]);
            rest = behind;
        }
        let whole = unread.len() - rest.len();
        let commands: Vec<u8> = unread.drain(..whole).collect();
        both.sink.write(&commands).ok()?;
        while pass_on(&mut *both.source, &mut room, &mut stream, Tick::ZERO)? > 0 {}
    }
    // A client sends nothing more on such a connection.
    stream.set_nonblocking(true).ok()?;
    loop {
        let until = server.clock.now().after(LOOK);
        let passed = pass_on(&mut *both.source, &mut room, &mut stream, until)?;
        if passed == 0 && matches!(stream.peek(&mut [0]), Ok(0)) {
            return None;
        }
    }
}

/// Passes on what the server has sent by then. Returns how many bytes.
fn pass_on(source: &mut dyn Source, room: &mut [u8], stream: &mut TcpStream, until: Tick) -> Option<usize> {
    let read = source.read(room, until).ok()?;
    stream.write_all(room.get(..read)?).ok()?;
    Some(read)
}
