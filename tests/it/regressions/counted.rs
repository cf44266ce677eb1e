use std::time::Duration;

use redlock_sync::{Redlock, Retry};
use redlock_tests::{Server, servers};

const KEY: &str = "order:42";

fn take_for(server: &Server, ms: u64) {
    server.ask::<()>(redis::cmd("SET").arg(KEY).arg("another").arg("PX").arg(ms));
}

/// The lock is free once two nodes are free. A short lease of another holder on one node must not shorten the pauses.
#[test]
fn counted_attempts_last_until_a_majority_is_free() {
    let servers = servers(3);
    let settings = Redlock::builder().nodes(servers.iter().map(Server::url)).node_timeout(Duration::from_secs(2));
    let locks = settings.restart_guard(false).build().unwrap();
    // The servers load the scripts here.
    locks.mutex("warm-up").lock().unwrap().unlock().unwrap();
    let attempts = Retry::every(Duration::from_millis(600)).jitter(0.0).max_attempts(4);
    take_for(&servers[0], 100);
    servers[1..].iter().for_each(|server| take_for(server, 1600));
    locks.mutex(KEY).retry(attempts).lock().expect("three pauses are longer than that").unlock().unwrap();
}
