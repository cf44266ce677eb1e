//! A client's connection to the store that checks fencing tokens.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};

use crate::event::Session;

/// A connection to the store. The first write makes it.
#[derive(Debug)]
pub(super) struct Store {
    addr: SocketAddr,
    lines: Option<BufReader<TcpStream>>,
}

impl Store {
    pub(super) fn new(addr: SocketAddr) -> Self {
        Self { addr, lines: None }
    }

    /// Writes to the store, which accepts or refuses the write and keeps a record of it.
    pub(super) fn write(&mut self, session: Session, key: usize, fence: u64) {
        let lines = self.lines.get_or_insert_with(|| connect(self.addr));
        let mut answer = String::new();
        let line = format!("{key} {fence} {session}\n");
        let sent = lines.get_mut().write_all(line.as_bytes());
        let heard = sent.and_then(|()| lines.read_line(&mut answer));
        if heard.is_err() || answer.is_empty() {
            std::process::exit(0); // The store is gone, so the run is over.
        }
    }
}

fn connect(addr: SocketAddr) -> BufReader<TcpStream> {
    let stream = TcpStream::connect(addr).expect("the store is there");
    _ = stream.set_nodelay(true);
    BufReader::new(stream)
}
