//! Locks on Redis Clusters of private servers.
//!
//! 1. `load`: threads that use locks. `place`: a cluster as a place for the contract tests.
//! 2. `using`: each kind of lock, on one cluster and on several; errors of settings.
//! 3. `moving`, `tasks`: slots move to another server. `failing`: servers are killed, stopped and restarted.
//!
//! The tests in `moving`, `tasks` and `failing`, and the contract tests on clusters, need minutes. They run only with
//! the feature `cluster`, in a separate step of CI.

#[cfg(feature = "cluster")]
mod failing;
#[cfg(feature = "cluster")]
mod load;
#[cfg(feature = "cluster")]
mod moving;
#[cfg(feature = "cluster")]
pub(crate) mod place;
#[cfg(feature = "cluster")]
mod tasks;
mod using;

use std::time::Duration;

use redlock_sync::{Builder, Redlock};
use redlock_tests::Cluster;

/// A time that suffices for every step here, even on a busy machine.
const SOON: Duration = Duration::from_secs(60);

/// Settings with a node timeout for a busy machine.
fn builder(cluster: &Cluster) -> Builder {
    Redlock::builder().node(cluster.url()).node_timeout(Duration::from_secs(2))
}

/// Keys in three slots, each with a different master.
const SPREAD: [&str; 3] = ["foo", "bar", "c"];
