//! A port of 127.0.0.1 that stays ours.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

use socket2::{Domain, Socket, Type};

/// A reserved port: bound, but not listened on.
///
/// On Linux, a socket that is bound with `SO_REUSEADDR` and does not listen lets one other such socket listen on the
/// port, while no process gets the port by asking for a free one; a connection is refused as long as none listens. On
/// other systems the port is merely picked and could be taken in between: starting a server there retries.
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

    /// Reserves the port `number`, or any free one for zero.
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

    /// A socket that listens on this port.
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
