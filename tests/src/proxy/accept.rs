//! The thread that accepts connections.

use std::io;
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use rustix::event::{PollFd, PollFlags, poll};

use super::link;
use super::state::Shared;
use crate::server::Port;

/// Accepts connections until it is dropped. Before a thread drops it, that thread must close all links, because the
/// drop joins their threads.
#[derive(Debug)]
pub(super) struct Acceptor {
    /// One end of a socket pair. When it closes, the accepting thread wakes and ends.
    wake: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl Acceptor {
    pub(super) fn start(port: &Port, shared: &Arc<Shared>) -> Self {
        let listener = port.listen();
        listener.set_nonblocking(true).expect("a listener can be made nonblocking");
        let (wake, woken) = UnixStream::pair().expect("cannot create a socket pair");
        let shared = Arc::clone(shared);
        let thread = thread::spawn(move || run(&shared, listener, &woken));
        Self { wake: Some(wake), thread: Some(thread) }
    }
}

impl Drop for Acceptor {
    fn drop(&mut self) {
        self.wake = None;
        if let Some(thread) = self.thread.take() {
            _ = thread.join();
        }
    }
}

/// Accepts connections. The listener is closed as soon as accepting ends, before the function waits for the links.
fn run(shared: &Shared, listener: TcpListener, woken: &UnixStream) {
    thread::scope(|scope| {
        let listener = listener;
        while let Some(client) = accept(&listener, woken) {
            if let Some((id, sockets)) = shared.lock().admit(client) {
                scope.spawn(move || link::run(shared, id, &sockets));
            }
        }
    });
}

fn accept(listener: &TcpListener, woken: &UnixStream) -> Option<TcpStream> {
    loop {
        let mut ready = [PollFd::new(listener, PollFlags::IN), PollFd::new(woken, PollFlags::IN)];
        match poll(&mut ready, None) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            polled => polled.expect("sockets can be polled"),
        };
        if !ready[1].revents().is_empty() {
            return None;
        }
        if let Ok((client, _)) = listener.accept() {
            return Some(client);
        }
    }
}
