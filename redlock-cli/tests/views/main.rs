//! Tests of what a user sees: `redlock top` in a terminal, and `redlock dash` in a browser. `.ci/run views` runs them.
//! They need tmux and chromium.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    missing_docs,
    reason = "a test fails by a panic, and waits by the real clock"
)]

mod browser;
mod dash;
#[path = "../dash/page.rs"]
#[allow(dead_code, reason = "half of it is for requests without a browser")]
mod page;
mod terminal;
mod top;

use std::time::Duration;

use redlock_sync::{Builder, Redlock};
use redlock_tests::Server;

/// The longest time for an event that usually comes at once.
const LONG: Duration = Duration::from_secs(30);

/// A client of these servers.
fn client(servers: &[Server]) -> Builder {
    Redlock::builder().nodes(servers.iter().map(Server::url)).node_timeout(Duration::from_secs(2))
}
