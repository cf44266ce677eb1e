//! Shared by the contract tests.

use std::time::Duration;

use redlock_sync::{Builder, Redlock};
use redlock_tests::{Proxy, Server};

use crate::place::Place;

/// More than a busy machine needs for anything here.
pub(super) const SOON: Duration = Duration::from_secs(20);

/// Milliseconds.
pub(super) const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// The URLs of the servers, in order.
pub(super) fn urls(servers: &[Server]) -> Vec<String> {
    servers.iter().map(Server::url).collect()
}

/// Settings for a client of these servers, with room for a busy machine.
pub(super) fn builder(servers: &[Server]) -> Builder {
    patient().nodes(urls(servers))
}

/// Settings with room for a busy machine.
pub(super) fn patient() -> Builder {
    Redlock::builder().node_timeout(Duration::from_secs(5))
}

/// A client of these nodes.
pub(super) fn open<P: Place>(nodes: &[P]) -> Redlock {
    P::client(nodes, patient())
}

/// Settings with short leases: what needs some leases to pass does not need long.
pub(super) fn short(lease: Duration) -> Builder {
    Redlock::builder().node_timeout(lease / 3).lease(lease)
}

/// A client with the leases of its place.
pub(super) fn brisk<P: Place>(node: &P) -> Redlock {
    P::client(std::slice::from_ref(node), short(P::LEASE))
}

/// A server, and a proxy before it that counts.
pub(super) fn watched() -> (Server, Proxy) {
    let server = Server::start();
    teach(&server);
    let proxy = Proxy::start(&server);
    (server, proxy)
}

/// A client by way of the proxy.
pub(super) fn through(proxy: &Proxy) -> Redlock {
    Redlock::builder().node(proxy.url()).node_timeout(Duration::from_secs(2)).build().unwrap()
}

/// Has the server learn all scripts, so that from now on each call is one command.
pub(super) fn teach(server: &Server) {
    let guard = open(std::slice::from_ref(server)).mutex("teach").lock().unwrap();
    guard.extend(ms(30_000)).unwrap();
    guard.unlock().unwrap();
}

/// How many commands came in that are not the talk on a new connection, of which there can be one more at any time.
pub(super) fn calls(proxy: &Proxy) -> usize {
    proxy.seen().iter().filter(|call| call.name != "INFO").count()
}

/// All keys on a node but the fence counters, each of which must have a time to live.
pub(super) fn locks_on(node: &impl Place) -> Vec<String> {
    let (fences, locks): (Vec<_>, Vec<_>) = node.keys().into_iter().partition(|key| key.ends_with(":fence"));
    for fence in fences {
        assert!(node.pttl(&fence).is_some(), "{fence} never ends");
    }
    locks
}
