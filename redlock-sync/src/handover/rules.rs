//! The rules by which a lock changes hands: chains of holders, pauses between them, and how long a grant is valid.
//! Pure.

use std::time::Duration;

use crate::clock::Tick;

/// A chain of grants that is older than this ends with a real release and a pause, in which foreign clients can take
/// the lock.
pub(crate) const LONGEST_CHAIN: Duration = Duration::from_secs(1);
/// How long the lock is left free in a usual pause.
pub(crate) const PAUSE: Duration = Duration::from_millis(10);
/// One pause in this many, on a key that stays contended, is a [`DETECTION_PAUSE`].
pub(crate) const DETECTION_PAUSE_EVERY: u64 = 12;
/// A pause that is long enough to meet a foreign client, which polls every 100 to 300 ms. Without foreign clients, all
/// pauses together cost less than 3 % of the time.
pub(crate) const DETECTION_PAUSE: Duration = Duration::from_millis(250);
/// How often a waiter checks during such a pause whether a foreign client has taken the lock. A foreign client that
/// holds the lock for longer than this is always seen. Most others are seen in one of the pauses, since they take the
/// lock repeatedly.
pub(crate) const CHECK_INTERVAL: Duration = Duration::from_millis(2);
/// The pause if a foreign client had the lock lately. Foreign clients poll every 100 to 300 ms, so each of them finds
/// the lock free.
pub(crate) const LONG_PAUSE: Duration = Duration::from_millis(500);
/// How long a client remembers that a foreign client had the lock.
pub(crate) const FOREIGN_CLIENTS_REMEMBERED: Duration = Duration::from_secs(60);
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

/// The pauses so far, and whether a foreign client wants the lock too. The servers store this number. Bits 1 and up:
/// number of pauses so far. Bit 0: a holder since the last pause saw a foreign client.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Pauses(pub(crate) u64);

impl Pauses {
    pub(crate) fn count(self) -> u64 {
        self.0 / 2
    }

    pub(crate) fn has_foreign_clients(self) -> bool {
        self.0 % 2 == 1
    }

    pub(crate) fn with_foreign_clients(self, has_foreign_clients: bool) -> Pauses {
        Pauses(self.0 | u64::from(has_foreign_clients))
    }

    /// The value after one more pause. In that pause waiters look for foreign clients again.
    pub(crate) fn and_one(self) -> Pauses {
        Pauses(self.count().saturating_add(1).saturating_mul(2))
    }
}

/// The length of the pause that ends a chain, after `pauses` others.
pub(crate) fn pause_after_chain(pauses: Pauses) -> Duration {
    match pauses.count() % DETECTION_PAUSE_EVERY {
        _ if pauses.has_foreign_clients() => LONG_PAUSE,
        count if count == DETECTION_PAUSE_EVERY - 1 => DETECTION_PAUSE,
        _ => PAUSE,
    }
}

/// A pause in which the queue head leaves the key to foreign clients.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ForeignPause {
    pub(crate) until: Tick,
    pub(crate) pauses: Pauses,
}

/// With several nodes: how long each node reserves a lock for the notified wait, at least.
pub(crate) const MIN_RESERVATION: Duration = Duration::from_millis(500);

/// A chain of holders that passed the lock to each other, so foreign clients never saw the key free. It ends with
/// a pause in which they do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Chain {
    /// When the chain began; `None` for a lock that no holder has passed on yet.
    pub(crate) began: Option<Tick>,
    /// The pauses before this chain.
    pub(crate) pauses: Pauses,
}

impl Chain {
    pub(crate) fn age(&self, now: Tick) -> Duration {
        self.began.map_or(Duration::ZERO, |began| now.since(began))
    }
}
