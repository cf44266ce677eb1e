//! The resources that the locks protect: a counter in a file without any other protection, and a store that checks
//! fencing tokens.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::event::Session;

/// The counter. The file has one record for each key: its version, which identifies the write that made it.
#[derive(Debug)]
pub(super) struct Counter(File);

impl Counter {
    pub(super) fn open(dir: &Path) -> Self {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(dir.join("counter"));
        Self(file.expect("the counter can be opened"))
    }

    pub(super) fn read(&self, key: usize) -> u64 {
        let mut bytes = [0; 8];
        // The file grows with the first writes. Until then, a read finds nothing and the version is zero.
        _ = self.0.read_at(&mut bytes, 8 * key as u64);
        u64::from_le_bytes(bytes)
    }

    pub(super) fn write(&self, key: usize, version: u64) {
        self.0.write_all_at(&version.to_le_bytes(), 8 * key as u64).expect("the counter can be written");
    }
}

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

    /// Writes to the store. Returns true if the store accepted the write.
    pub(super) fn write(&mut self, session: Session, key: usize, fence: u64) -> bool {
        let lines = self.lines.get_or_insert_with(|| connect(self.addr));
        let mut answer = String::new();
        let line = format!("{key} {fence} {session}\n");
        let sent = lines.get_mut().write_all(line.as_bytes());
        let heard = sent.and_then(|()| lines.read_line(&mut answer));
        if heard.is_err() || answer.is_empty() {
            std::process::exit(0); // The store is gone, so the run is over.
        }
        answer.trim() == "yes"
    }
}

fn connect(addr: SocketAddr) -> BufReader<TcpStream> {
    let stream = TcpStream::connect(addr).expect("the store is there");
    _ = stream.set_nodelay(true);
    BufReader::new(stream)
}
