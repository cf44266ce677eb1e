//! Servers that Sentinels watch: failovers, what is lost in them, and what a client reports.

mod disagreement;
mod exclusion;
mod failover;
mod group;

use std::time::Duration;

use redlock_sync::Builder;
use redlock_tests::Group;

/// A time that suffices for every step here, even on a busy machine.
const SOON: Duration = Duration::from_secs(60);

fn settings(group: &Group) -> Builder {
    redlock_tests::patient().node(group.url()).unavailable_after(SOON)
}
