//! A proxy that only delays. Each request reaches its server later by a fixed time, and replies return at once.
//!
//! One thread serves all connections. On two cores, a thread for each connection would cost more than the delay.
//! Nothing queues: bytes that are sent at the same time arrive at the same time.
//!
//! The proxy of the fixtures is not used, because it parses and logs commands. That costs more time than the benches
//! measure.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{Outcome, clock};

/// Delays the requests to several servers, until it is dropped.
#[derive(Debug)]
pub struct Delay {
    addrs: Vec<SocketAddr>,
    stop: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

struct Link {
    client: TcpStream,
    server: TcpStream,
    /// The bytes on their way to the server, each with the time at which they are due there.
    lane: VecDeque<(u64, Vec<u8>)>,
    is_open: bool,
}

impl Delay {
    /// Starts a listener for each of these servers. Requests through it are delayed by this time.
    pub fn start(servers: &[SocketAddr], delay: Duration) -> Outcome<Self> {
        let mut doors = Vec::new();
        for server in servers {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
            listener.set_nonblocking(true)?;
            doors.push((listener, *server));
        }
        let addrs = doors.iter().map(|(door, _)| door.local_addr()).collect::<Result<_, _>>()?;
        let (stop, stopped) = UnixStream::pair()?;
        let delay = clock::nanos(delay);
        let thread = thread::Builder::new().name("delay".to_owned()).spawn(move || run(&doors, delay, &stopped))?;
        Ok(Self { addrs, stop: Some(stop), thread: Some(thread) })
    }

    /// The URLs of the listeners, in the order of the servers.
    pub fn urls(&self) -> Vec<String> {
        self.addrs.iter().map(|addr| format!("redis://{addr}/")).collect()
    }
}

impl Drop for Delay {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            _ = thread.join();
        }
    }
}

fn run(doors: &[(TcpListener, SocketAddr)], delay: u64, stopped: &UnixStream) {
    // The default slack of timers would add 50 us to each delay.
    #[cfg(target_os = "linux")]
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
    let mut links: Vec<Link> = Vec::new();
    loop {
        let due = links.iter().filter_map(|link| Some(link.lane.front()?.0)).min();
        let Some(ready) = wait(doors, &links, stopped, due) else { return };
        let (at_doors, at_links) = ready.split_at(doors.len());
        for (link, sides) in links.iter_mut().zip(at_links.chunks(2)) {
            link.work(sides, delay);
        }
        links.retain(|link| link.is_open);
        let rung = doors.iter().zip(at_doors).filter(|(_, is_ready)| **is_ready);
        links.extend(rung.filter_map(|((door, server), _)| Link::accept(door, *server)));
    }
}

/// Waits until something is ready, at most until `due`. The result says for each listener, and for the client and the
/// server of each link, whether it is ready. It is `None` at the end of the proxy.
fn wait(
    doors: &[(TcpListener, SocketAddr)],
    links: &[Link],
    stopped: &UnixStream,
    due: Option<u64>,
) -> Option<Vec<bool>> {
    let timeout = due.map(|due| {
        let left = due.saturating_sub(clock::now());
        Timespec { tv_sec: 0, tv_nsec: i64::try_from(left.min(999_999_999)).unwrap_or(0) }
    });
    let mut fds = vec![PollFd::new(stopped, PollFlags::IN)];
    fds.extend(doors.iter().map(|(door, _)| PollFd::new(door, PollFlags::IN)));
    for link in links {
        fds.push(PollFd::new(&link.client, PollFlags::IN));
        fds.push(PollFd::new(&link.server, PollFlags::IN));
    }
    match poll(&mut fds, timeout.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(_) => return None,
    }
    let mut ready = fds.iter().map(|fd| !fd.revents().is_empty());
    if ready.next() == Some(true) { None } else { Some(ready.collect()) }
}

impl Link {
    fn accept(door: &TcpListener, server: SocketAddr) -> Option<Self> {
        let (client, _) = door.accept().ok()?;
        let server = TcpStream::connect_timeout(&server, Duration::from_secs(1)).ok()?;
        for socket in [&client, &server] {
            socket.set_nonblocking(false).ok()?;
            socket.set_nodelay(true).ok()?;
        }
        Some(Self { client, server, lane: VecDeque::new(), is_open: true })
    }

    fn work(&mut self, sides: &[bool], delay: u64) {
        if sides[1] {
            match read(&mut self.server) {
                Some(bytes) if self.client.write_all(&bytes).is_ok() => {}
                _ => self.is_open = false,
            }
        }
        if sides[0] {
            match read(&mut self.client) {
                Some(bytes) => self.lane.push_back((clock::now() + delay, bytes)),
                None => self.is_open = false,
            }
        }
        while self.lane.front().is_some_and(|(due, _)| *due <= clock::now()) {
            let (_, bytes) = self.lane.pop_front().expect("there is a first one");
            self.is_open &= self.server.write_all(&bytes).is_ok();
        }
    }
}

/// Reads the available bytes. Returns `None` at the end of the stream.
fn read(socket: &mut TcpStream) -> Option<Vec<u8>> {
    let mut piece = [0; 16 * 1024];
    match socket.read(&mut piece) {
        Ok(0) => None,
        Ok(length) => Some(piece[..length].to_vec()),
        Err(error) if error.kind() == ErrorKind::Interrupted => Some(Vec::new()),
        Err(_) => None,
    }
}
