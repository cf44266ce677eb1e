//! The rules by which a lock changes hands: chains of holders, pauses between them, and how long a grant stands. Pure.

use std::time::Duration;

use crate::clock::Tick;

/// After this long a chain of grants from wait to wait ends with a real release and a pause, in which programs that poll can take the lock.
pub(crate) const LONGEST_CHAIN: Duration = Duration::from_secs(1);
/// How long the lock is left free then, on one node and on several.
pub(crate) const PAUSE: Duration = Duration::from_millis(10);
/// On one node, each pause of this number on a key that stays contended is a [`DETECTION_PAUSE`].
pub(crate) const DETECTION_PAUSE_EVERY: u64 = 12;
/// Long enough to meet a program of another library, which polls every 100 to 300 ms. Without such a program, all pauses together cost less than 3 % of
/// the time.
pub(crate) const DETECTION_PAUSE: Duration = Duration::from_millis(250);
/// How often a waiter looks meanwhile whether such a program takes the lock. One that holds it for longer than this is seen; most others are seen at some
/// time, since they take it again and again in a long pause.
pub(crate) const CHECK_INTERVAL: Duration = Duration::from_millis(2);
/// The pause if a program of another library has had the lock lately. Other libraries poll every 100 to 300 ms, so each of them finds it free.
pub(crate) const LONG_PAUSE: Duration = Duration::from_millis(500);
/// For how long a client remembers that a program of another library had the lock.
pub(crate) const FOREIGN_CLIENTS_REMEMBERED: Duration = Duration::from_secs(60);
/// A wait whose lock may end within this time looks at that very moment; the others leave it to their client, which looks after all of its locks
/// once a second.
pub(crate) const SHORT_NAP: Duration = Duration::from_secs(3);
/// So often at least a client looks into the sorted sets of holders for which it waits; sooner where one of these may have come to its end.
pub(crate) const SET_CHECK_INTERVAL: Duration = Duration::from_secs(10);
/// Longest uninterrupted wait for a push.
pub(crate) const LONGEST_NAP: Duration = Duration::from_secs(30 * 60);
/// For how long a queue outlives the last attempt that entered it. Entries of clients that are gone do no harm.
pub(crate) const QUEUE_LIFETIME: Duration = Duration::from_secs(60 * 60);
/// How long threads of this process hand a lock to each other before the holder asks whether other processes wait.
pub(crate) const LONGEST_LOCAL_HANDOVER: Duration = Duration::from_millis(20);
/// As that, by the number of hand-overs.
pub(crate) const MOST_LOCAL_HANDOVERS: u32 = 256;

/// Longest time for which a release grants a lock: what is lost if the waiter stops just then. It is the default lease, so that grants between clients
/// with defaults need no round trip.
pub(crate) const LONGEST_GRANT: Duration = Duration::from_secs(30);

/// How many pauses there were since a lock came to be passed on, and whether a holder since the last pause knows of a program of another library that
/// wants it too. On the servers it is a number: twice the pauses, plus 1 for such a program.
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

    /// After one more pause, in which waiters look anew whether there is such a program.
    pub(crate) fn and_one(self) -> Pauses {
        Pauses(self.count().saturating_add(1).saturating_mul(2))
    }
}

/// The pause at the end of a chain, after so many others. On several nodes it is always short: nothing keeps other clients of this library from
/// a free lock there.
pub(crate) fn pause_after_chain(several: bool, pauses: Pauses) -> Duration {
    match (several, pauses.has_foreign_clients()) {
        (true, _) => PAUSE,
        (_, true) => LONG_PAUSE,
        _ if pauses.count() % DETECTION_PAUSE_EVERY == DETECTION_PAUSE_EVERY - 1 => DETECTION_PAUSE,
        _ => PAUSE,
    }
}

/// For how long several nodes reserve a lock for the wait that was told of it, at least.
pub(crate) const MIN_RESERVATION: Duration = Duration::from_millis(500);

/// For how long a holder with this lease grants the lock to the next waiter.
pub(crate) fn grant_span(lease: Duration) -> Duration {
    lease.min(LONGEST_GRANT)
}

/// A chain of holders that got the lock from each other: programs that poll the key never saw it free. It ends with a pause in which they do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Chain {
    /// `None` for a lock that no holder has passed on so far.
    pub(crate) began: Option<Tick>,
    /// The pauses before it.
    pub(crate) pauses: Pauses,
}

impl Chain {
    /// As a push tells it.
    pub(crate) fn from_push(now: Tick, age: Duration, pauses: Pauses) -> Chain {
        Chain { began: Some(now.before(age)), pauses }
    }

    pub(crate) fn age(&self, now: Tick) -> Duration {
        self.began.map_or(Duration::ZERO, |began| now.since(began))
    }
}
