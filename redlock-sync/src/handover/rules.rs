//! All spans of time by which a lock changes hands. Those of the pauses for foreign clients are in
//! `lua/contention.lua`.

use std::time::Duration;

/// If its lock may end within this time, a wait sleeps until that moment and then makes an attempt. Otherwise the wait
/// relies on its client, which checks all locks once a second.
pub(crate) const SHORT_SLEEP: Duration = Duration::from_secs(3);
/// A client reads each sorted set of holders for which it waits at least this often. It reads a set sooner if a member
/// may have ended.
pub(crate) const SET_CHECK_INTERVAL: Duration = Duration::from_secs(10);
/// Longest uninterrupted sleep until a notification.
pub(crate) const LONGEST_SLEEP: Duration = Duration::from_secs(30 * 60);
/// How long a server queue outlives the last attempt that entered it. Entries of clients that no longer exist do no
/// harm.
pub(crate) const QUEUE_LIFETIME: Duration = Duration::from_secs(60 * 60);
/// How long threads of this process hand a lock to each other before the holder asks whether other processes wait.
pub(crate) const LONGEST_LOCAL_HANDOVER: Duration = Duration::from_millis(20);
/// How many times threads of this process hand a lock to each other before the holder asks the same.
pub(crate) const MOST_LOCAL_HANDOVERS: u32 = 256;

/// Longest time for which a release grants a lock. If the waiter stops at that moment, this time is lost. It equals the
/// default lease, so grants between clients with default settings need no round trip.
pub(crate) const LONGEST_GRANT: Duration = Duration::from_secs(30);

/// With several nodes: how long each node reserves a lock for the notified wait, at least.
pub(crate) const MIN_RESERVATION: Duration = Duration::from_millis(500);
