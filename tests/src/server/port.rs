//! A port of 127.0.0.1 that stays reserved.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

use socket2::{Domain, Socket, Type};

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
    /// Reserves any free port.
    pub(crate) fn free() -> Self {
        Self::reserve(0)
    }

    /// Reserves the port `number`, or any free port if it is zero.
    pub(crate) fn reserve(number: u16) -> Self {
        let socket = bind(number);
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
    pub(crate) fn listen(&self) -> std::net::TcpListener {
        let socket = bind(self.number);
        socket.listen(1024).unwrap_or_else(|error| panic!("cannot listen on port {}: {error}", self.number));
        socket.into()
    }
}

fn bind(number: u16) -> Socket {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("cannot create a socket");
    socket.set_reuse_address(true).expect("cannot set SO_REUSEADDR");
    let bound = socket.bind(&local(number).into());
    bound.unwrap_or_else(|error| panic!("cannot bind port {number} of 127.0.0.1: {error}"));
    socket
}

fn local(number: u16) -> SocketAddr {
    SocketAddrV4::new(Ipv4Addr::LOCALHOST, number).into()
}
