//! The servers of the queue of a run.

use redlock_tests::{Group, Proxy, Server};

use crate::group;

#[allow(clippy::large_enum_variant, reason = "there is one in a run")]
pub(crate) enum Place {
    /// One server, which keeps its data, and the proxy in front of it.
    One(Server, Proxy),
    Group(Group),
}

impl Place {
    pub(crate) fn start(is_group: bool) -> Place {
        if is_group {
            return Place::Group(group::start());
        }
        let server = Server::builder().persistent().arg("--appendfsync").arg("no").start();
        let proxy = Proxy::start(&server);
        Place::One(server, proxy)
    }

    /// The URL for workers.
    pub(crate) fn url(&self) -> String {
        match self {
            Place::One(_, proxy) => proxy.url(),
            Place::Group(group) => group.url(),
        }
    }

    /// The server that has the queue now.
    pub(crate) fn server(&self) -> &Server {
        match self {
            Place::One(server, _) => server,
            Place::Group(group) => group.master(),
        }
    }

    pub(crate) fn heal(&self) {
        if let Place::One(_, proxy) = self {
            proxy.heal();
        }
    }
}
