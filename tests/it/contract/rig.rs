//! Helpers of the contract tests.

use std::time::Duration;

use redlock_sync::{Builder, Redlock};
use redlock_tests::{Proxy, Server};

use crate::place::Place;
pub(super) use crate::rig::ms;

/// A time that suffices for every step here, even on a busy machine.
pub(super) const SOON: Duration = Duration::from_secs(20);

/// The URLs of the servers, in order.
pub(super) fn urls(servers: &[Server]) -> Vec<String> {
    servers.iter().map(Server::url).collect()
}

/// Settings of a client of these servers, with a node timeout for a busy machine.
pub(super) fn builder(servers: &[Server]) -> Builder {
    patient().nodes(urls(servers))
}

/// Settings with a node timeout for a busy machine.
pub(super) fn patient() -> Builder {
    Redlock::builder().node_timeout(Duration::from_secs(5))
}

/// A client of these nodes.
pub(super) fn open<P: Place>(nodes: &[P]) -> Redlock {
    P::client(nodes, patient())
}

/// Settings with a short lease, for tests that wait for several leases.
pub(super) fn short(lease: Duration) -> Builder {
    Redlock::builder().node_timeout(lease / 3).lease(lease)
}

/// A client with the short lease of its place.
pub(super) fn brisk<P: Place>(node: &P) -> Redlock {
    P::client(std::slice::from_ref(node), short(P::LEASE))
}

/// A server, and a proxy that records the commands.
pub(super) fn watched() -> (Server, Proxy) {
    let server = Server::start();
    teach(&server);
    let proxy = Proxy::start(&server);
    (server, proxy)
}

/// A client that connects through the proxy.
pub(super) fn through(proxy: &Proxy) -> Redlock {
    Redlock::builder().node(proxy.url()).node_timeout(Duration::from_secs(2)).build().unwrap()
}

/// Makes the server load the scripts, so that each later call is one command.
pub(super) fn teach(server: &Server) {
    let guard = open(std::slice::from_ref(server)).mutex("teach").lock().unwrap();
    guard.extend(ms(30_000)).unwrap();
    guard.unlock().unwrap();
}

/// The number of commands without `INFO`, which each new connection sends. A new connection can come at any time.
pub(super) fn calls(proxy: &Proxy) -> usize {
    proxy.seen().iter().filter(|call| call.name != "INFO").count()
}

/// All keys on a node except fence counters. Asserts that each fence counter expires.
pub(super) fn locks_on(node: &impl Place) -> Vec<String> {
    let (fences, locks): (Vec<_>, Vec<_>) = node.keys().into_iter().partition(|key| key.ends_with(":fence"));
    for fence in fences {
        assert!(node.pttl(&fence).is_some(), "{fence} never ends");
    }
    locks
}
