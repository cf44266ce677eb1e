//! A port of 127.0.0.1 that stays reserved.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use std::{io, thread};

use socket2::{Domain, Socket, Type};

/// The longest wait for a port that a forked child still has, however busy the machine is.
const FREE_WITHIN: Duration = Duration::from_secs(30);

/// All free ports that this process has reserved. A client that outlives its test still connects to the port of its
/// server. If another test had this port, the client would take locks and tasks there.
static USED: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());

/// A reserved port. It is bound, but nothing listens on it.
///
/// On Linux, the port is bound by a socket with `SO_REUSEADDR` that does not listen. Another socket with `SO_REUSEADDR`
/// can listen on the port. No process gets this port when it asks for a free one. While no socket listens, connections
/// are refused.
///
/// On other systems, the port is only chosen, so another process can take it. There,
/// [`Builder::start`](super::Builder::start) retries with another port.
#[derive(Debug)]
pub(crate) struct Port {
    number: u16,
    _reserved: Option<Socket>,
}

impl Port {
    /// Reserves a free port that this process has not reserved before.
    pub(crate) fn free() -> Self {
        loop {
            let port = Self::bound(0);
            if USED.lock().unwrap_or_else(PoisonError::into_inner).insert(port.number) {
                return port;
            }
        }
    }

    /// Reserves the port `number`, or a free one if it is zero.
    pub(crate) fn reserve(number: u16) -> Self {
        if number == 0 { Self::free() } else { Self::bound(number) }
    }

    fn bound(number: u16) -> Self {
        let socket = bind(number).unwrap_or_else(|error| panic!("cannot bind port {number} of 127.0.0.1: {error}"));
        let bound = socket.local_addr().ok().and_then(|addr| addr.as_socket_ipv4());
        let number = bound.expect("a bound socket has an IPv4 address").port();
        Self { number, _reserved: cfg!(target_os = "linux").then_some(socket) }
    }

    pub(crate) fn number(&self) -> u16 {
        self.number
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        local(self.number)
    }

    /// Returns a socket that listens on this port.
    ///
    /// A child that another test has just forked can still have the former listener of this port. It closes that when it
    /// ends, or executes its program. So this waits until the port is free.
    pub(crate) fn listen(&self) -> std::net::TcpListener {
        let until = Instant::now() + FREE_WITHIN;
        loop {
            match bind(self.number).and_then(|socket| socket.listen(1024).map(|()| socket)) {
                Ok(socket) => return socket.into(),
                Err(error) if error.kind() == io::ErrorKind::AddrInUse && Instant::now() < until => {
                    thread::sleep(Duration::from_millis(2));
                }
                Err(error) => panic!("cannot listen on port {} of 127.0.0.1: {error}", self.number),
            }
        }
    }
}

fn bind(number: u16) -> io::Result<Socket> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.bind(&local(number).into())?;
    Ok(socket)
}

fn local(number: u16) -> SocketAddr {
    SocketAddrV4::new(Ipv4Addr::LOCALHOST, number).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_free_port_is_reserved_twice() {
        let former: BTreeSet<u16> = (0..2000).map(|_| Port::free().number()).collect();
        assert_eq!(former.len(), 2000);
    }

    #[test]
    fn a_port_is_listened_on_again_once_a_child_has_closed_the_former_listener() {
        let port = Port::free();
        let listener = port.listen();
        // A forked child has such a copy.
        let copy = listener.try_clone().unwrap();
        drop(listener);
        assert_eq!(bind(port.number()).unwrap_err().kind(), io::ErrorKind::AddrInUse);
        let child = thread::spawn(move || {
            thread::sleep(Duration::from_millis(50));
            drop(copy);
        });
        assert_eq!(port.listen().local_addr().unwrap(), port.addr());
        child.join().unwrap();
    }
}
