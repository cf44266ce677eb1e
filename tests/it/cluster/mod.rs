//! Locks on Redis Clusters of private servers.
//!
//! 1. `load`: threads at work meanwhile. `place`: a cluster as a place for the contract tests.
//! 2. `using`: every kind of lock, on one cluster and on several; errors of settings.
//! 3. `moving`, `tasks`: slots move to another server. `failing`: servers end, stop and start again.
//!
//! Those of `moving`, `tasks` and `failing`, and the contract tests on clusters, need minutes: they run with the feature `cluster`, in a step of CI of their own.

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

/// More than a busy machine needs for anything here.
const SOON: Duration = Duration::from_secs(60);

/// Settings with room for a busy machine.
fn builder(cluster: &Cluster) -> Builder {
    Redlock::builder().node(cluster.url()).node_timeout(Duration::from_secs(2))
}

/// Keys in three slots that are served by three masters.
const SPREAD: [&str; 3] = ["foo", "bar", "c"];
