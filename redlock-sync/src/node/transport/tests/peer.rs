//! A server that executes calls in order. It answers as the test asks: late, byte by byte, or in part.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::super::connection::Connection;
use super::{SOON, connection};
use crate::clock::{Clock, SystemClock};
use crate::node::stream::TimedSocket;

#[derive(Default)]
struct PeerState {
    /// The executed calls: the last word of each, with `+` before an acquire and `-` before a release.
    log: Vec<String>,
    is_silent: bool,
    /// The size of the pieces in which replies are written. With 0, replies are written whole.
    piece: usize,
    /// The number of bytes that are still written before the connection is closed.
    bytes_left: Option<usize>,
    /// True if the next call closes the connection before it is executed.
    closes: bool,
    /// True if the peer does not read calls.
    is_deaf: bool,
}

#[derive(Clone)]
pub(super) struct Peer {
    state: Arc<(Mutex<PeerState>, Condvar)>,
    listener: Arc<TcpListener>,
}

impl Peer {
    pub(super) fn start() -> Peer {
        let listener = Arc::new(TcpListener::bind("127.0.0.1:0").unwrap());
        Peer { state: Arc::default(), listener }
    }

    /// Connects to the peer.
    pub(super) fn connect(&self, clock: Arc<dyn Clock>, node_timeout: Duration) -> Arc<Connection> {
        let socket = TcpStream::connect(self.listener.local_addr().unwrap()).unwrap();
        socket.set_nodelay(true).unwrap();
        let (theirs, _) = self.listener.accept().unwrap();
        theirs.set_nodelay(true).unwrap();
        let peer = self.clone();
        std::thread::spawn(move || peer.serve(theirs));
        connection(TimedSocket::new(socket).split(), clock, node_timeout)
    }

    pub(super) fn connected(&self) -> Arc<Connection> {
        self.connect(Arc::new(SystemClock), SOON)
    }

    fn set(&self, change: impl FnOnce(&mut PeerState)) {
        change(&mut self.state.0.lock());
        self.state.1.notify_all();
    }

    /// Executes calls without answering, until `go_on` is called.
    pub(super) fn fall_silent(&self) {
        self.set(|state| state.is_silent = true);
    }

    pub(super) fn be_deaf(&self) {
        self.set(|state| state.is_deaf = true);
    }

    pub(super) fn go_on(&self) {
        self.set(|state| (state.is_silent, state.is_deaf) = (false, false));
    }

    pub(super) fn in_pieces(&self, of: usize) {
        self.set(|state| state.piece = of);
    }

    pub(super) fn cut_after(&self, bytes: usize) {
        self.set(|state| state.bytes_left = Some(bytes));
    }

    pub(super) fn close_at_next_call(&self) {
        self.set(|state| state.closes = true);
    }

    pub(super) fn log(&self) -> Vec<String> {
        self.state.0.lock().log.clone()
    }

    fn wait_while(&self, so: impl Fn(&PeerState) -> bool) {
        let mut state = self.state.0.lock();
        while so(&state) {
            self.state.1.wait(&mut state);
        }
    }

    /// Reads and executes calls. Another thread answers.
    fn serve(&self, mut socket: TcpStream) {
        let replies: Replies = Arc::default();
        let answers = std::thread::spawn({
            let (peer, replies, socket) = (self.clone(), Arc::clone(&replies), socket.try_clone().unwrap());
            move || peer.answer(socket, &replies)
        });
        let (mut bytes, mut chunk) = (Vec::new(), [0; 4096]);
        'open: loop {
            self.wait_while(|state| state.is_deaf);
            match socket.read(&mut chunk) {
                Ok(read @ 1..) => bytes.extend_from_slice(&chunk[..read]),
                _ => break,
            }
            while let Some((words, behind)) = command(&bytes) {
                bytes.drain(..behind);
                let mut state = self.state.0.lock();
                if state.closes {
                    break 'open;
                }
                let (said, reply) = execute(&words);
                state.log.push(said);
                replies.lock().0.extend(reply);
                self.state.1.notify_all();
            }
        }
        replies.lock().1 = true;
        // The other thread checks the state under this mutex before it waits, so it misses no change.
        drop(self.state.0.lock());
        self.state.1.notify_all();
        _ = socket.shutdown(Shutdown::Both);
        answers.join().unwrap();
    }

    fn answer(&self, mut socket: TcpStream, replies: &Replies) {
        loop {
            self.wait_while(|state| {
                let replies = replies.lock();
                !replies.1 && (state.is_silent || replies.0.is_empty())
            });
            let bytes = std::mem::take(&mut replies.lock().0);
            if bytes.is_empty() || !self.write(&mut socket, &bytes) {
                _ = socket.shutdown(Shutdown::Both);
                return;
            }
        }
    }

    fn write(&self, socket: &mut TcpStream, replies: &[u8]) -> bool {
        let (piece, left) = {
            let mut state = self.state.0.lock();
            let left = state.bytes_left;
            state.bytes_left = left.map(|left| left.saturating_sub(replies.len()));
            (if state.piece == 0 { replies.len() } else { state.piece }, left)
        };
        let whole = left.is_none_or(|left| left > replies.len());
        let part = &replies[..left.unwrap_or(usize::MAX).min(replies.len())];
        part.chunks(piece).all(|piece| socket.write_all(piece).is_ok()) && whole
    }
}

/// The replies that are not written yet, and whether the connection is closed.
type Replies = Arc<Mutex<(Vec<u8>, bool)>>;

fn execute(words: &[String]) -> (String, Vec<u8>) {
    let last = words.last().unwrap().clone();
    match words[0].as_str() {
        "PING" => ("PING".into(), b"+PONG\r\n".to_vec()),
        _ if words[1] == super::INSPECT.sha => (last.clone(), format!(":{last}\r\n").into_bytes()),
        _ if words[1] == super::ACQUIRE.sha => (format!("+{last}"), b"*2\r\n:1\r\n$1\r\nx\r\n".to_vec()),
        _ => (format!("-{last}"), b"*1\r\n:1\r\n".to_vec()),
    }
}

/// Parses the first command. Also returns the position of its end.
fn command(bytes: &[u8]) -> Option<(Vec<String>, usize)> {
    let (words, mut at) = length(bytes, 0, b'*')?;
    let mut found = Vec::new();
    for _ in 0..words {
        let (long, from) = length(bytes, at, b'$')?;
        at = from + long + 2;
        found.push(String::from_utf8_lossy(&bytes.get(..at)?[from..from + long]).into_owned());
    }
    Some((found, at))
}

/// Parses the number in a line. Also returns the position of the next line.
fn length(bytes: &[u8], at: usize, mark: u8) -> Option<(usize, usize)> {
    let line = bytes.get(at..)?;
    let end = line.iter().position(|byte| *byte == b'\n')?;
    assert_eq!(line[0], mark, "calls are mixed up");
    Some((std::str::from_utf8(&line[1..end - 1]).unwrap().parse().unwrap(), at + end + 1))
}
