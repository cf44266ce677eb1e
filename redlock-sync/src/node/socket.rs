//! A Redis server at a URL, and how to dial it.

use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::Duration;

use redis::ConnectionAddr;
use redis::io::tcp::socket2::SockRef;

use super::link::{Broken, Dial, Halves, MIN_READ_TIMEOUT};
use super::resolve::Resolver;
use super::stream::{TimedSocket, broken};
use super::{Failure, FailureKind, Login, NodeUrl};
use crate::clock::{Clock, Tick};

/// A server at a URL.
pub(super) struct RedisServer {
    url: NodeUrl,
    resolver: Option<Resolver>,
}

impl RedisServer {
    pub(super) fn new(url: NodeUrl) -> RedisServer {
        let resolver = match url.info.addr() {
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
                Some(Resolver::new(host, *port))
            }
            _ => None,
        };
        RedisServer { url, resolver }
    }

    /// Connects, and completes the handshake of TLS. The inner error is one of that handshake.
    pub(super) fn open(&self, by: Tick, clock: &dyn Clock) -> Result<Result<Halves, Broken>, Failure> {
        #[cfg(feature = "tls")]
        if let ConnectionAddr::TcpTls { host, .. } = self.url.info.addr() {
            let session = self.url.tls.session(host)?;
            return Ok(super::duplex::behind_tls(session, self.reach(by, clock)?, by));
        }
        Ok(Ok(self.reach(by, clock)?.split()))
    }

    /// Tries one address after the other. All of them share the time until `by`.
    fn reach(&self, by: Tick, clock: &dyn Clock) -> Result<TimedSocket, Failure> {
        let left = || by.since(clock.now());
        if let ConnectionAddr::Unix(path) = self.url.info.addr() {
            return connect_unix(path).map_err(failed);
        }
        let none = || Failure::unsent(FailureKind::Unreachable, "has no address");
        let found = self.resolver.as_ref().ok_or_else(none)?.resolve(left());
        let addresses = found.map_err(|why| Failure::unsent(FailureKind::Unreachable, why))?;
        let mut last = none();
        for (tried, address) in addresses.iter().enumerate() {
            let ahead = u32::try_from(addresses.len() - tried).unwrap_or(u32::MAX);
            match self.connect(address, (left() / ahead).max(MIN_READ_TIMEOUT)) {
                Ok(socket) => return Ok(TimedSocket::new(socket)),
                Err(error) => last = failed(error),
            }
        }
        Err(last)
    }

    fn connect(&self, address: &SocketAddr, within: Duration) -> io::Result<TcpStream> {
        let socket = TcpStream::connect_timeout(address, within)?;
        let settings = self.url.info.tcp_settings();
        socket.set_nodelay(settings.nodelay())?;
        if let Some(keepalive) = settings.keepalive() {
            SockRef::from(&socket).set_tcp_keepalive(keepalive)?;
        }
        Ok(socket)
    }
}

impl Dial for RedisServer {
    fn address(&self) -> &str {
        self.url.address()
    }

    fn is_plain_tcp(&self) -> bool {
        matches!(self.url.info.addr(), ConnectionAddr::Tcp(..))
    }

    fn login(&self) -> Result<Login, Failure> {
        self.url.login()
    }

    fn dial(&self, by: Tick, clock: &dyn Clock) -> Result<Halves, Failure> {
        self.open(by, clock)?.map_err(|broken| broken.while_doing("connecting"))
    }
}

impl fmt::Display for RedisServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.url.fmt(f)
    }
}

/// Connects to a Unix socket. If the socket's backlog is full, the system waits without a bound, which hardly ever
/// happens. A signal may interrupt it.
#[cfg(unix)]
fn connect_unix(path: &Path) -> io::Result<TimedSocket> {
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;
    loop {
        match UnixStream::connect(path) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            connected => return connected.map(|socket| TimedSocket::new(TcpStream::from(OwnedFd::from(socket)))),
        }
    }
}

#[cfg(not(unix))]
fn connect_unix(_: &Path) -> io::Result<TimedSocket> {
    Err(io::ErrorKind::Unsupported.into())
}

fn failed(error: io::Error) -> Failure {
    broken(error).while_connecting()
}
