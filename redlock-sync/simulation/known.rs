//! The state of a schedule that the rules check, and counters of events.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::kinds::{Access, id_of};
use super::units::Time;
use crate::clock::Tick;
use crate::lease::LeaseInner;
use crate::token::LockId;

#[derive(Debug)]
pub(super) struct InvariantChecker {
    pub(super) keys: Vec<Key>,
    pub(super) tokens: Tokens,
    pub(super) allowances: Allowances,
    pub(super) arrivals: Vec<Arrival>,
    pub(super) letters: Vec<Letter>,
    pub(super) latches: BTreeMap<usize, LatchState>,
    pub(super) jobs: BTreeMap<usize, JobState>,
    pub(super) queues: BTreeMap<usize, QueueState>,
    /// The time for which a task had been due when it was claimed, in ns, by the token of the claim.
    pub(super) lateness: BTreeMap<String, Time>,
    pub(super) barged: Barged,
    /// The time at which the node gave the lock to each attempt, by token.
    pub(super) taken: BTreeMap<String, Time>,
    pub(super) evidence: Evidence,
}

/// The tokens of attempts by `SET NX`. For each lock, also the client that last acquired it by such an attempt before
/// waits that were queued.
#[derive(Debug, Default)]
pub(super) struct Barged {
    pub(super) native: BTreeSet<String>,
    pub(super) last: BTreeMap<String, usize>,
}

/// The resource that one lock protects.
#[derive(Debug, Default)]
pub(super) struct Key {
    pub(super) holders: Vec<Holder>,
    /// The number of writes by holders, none of which may be lost.
    pub(super) counter: u64,
    /// The largest fencing token that was given out, and the largest that a writer got. Readers that share a lease
    /// share its fencing token, which may be older than those of other readers.
    pub(super) fence: u64,
    pub(super) written: u64,
    pub(super) last_token: String,
    /// The time since which the lock has had no holder.
    pub(super) free_since: Time,
    /// The lease of the last holder has ended or will end by itself, so not all waits are notified.
    pub(super) ran_out: bool,
    /// The tasks that wait, each with the time since which it has waited.
    pub(super) waiting: Vec<(usize, Time)>,
    /// The number of calls under way that may hold the lock, unknown to the checker.
    pub(super) unseen: u32,
    /// For a read-write lock on one node: the time since which readers have held it. If the lock is free, the value is
    /// that of its last holders. It is `None` after a writer.
    pub(super) read_since: Option<Time>,
}

/// A client that may act until its lease ends by its own clock.
#[derive(Debug, Clone)]
pub(super) struct Holder {
    pub(super) client: usize,
    pub(super) task: usize,
    pub(super) token: String,
    pub(super) claim: Claim,
    pub(super) access: Access,
    /// The fencing token of the holder must be larger than this one.
    pub(super) floor: u64,
    pub(super) fence: Option<u64>,
    pub(super) read: Option<u64>,
}

#[derive(Debug, Clone)]
pub(super) enum Claim {
    Lease(Arc<LeaseInner>),
    /// A claim that ends at a time by the clock of its client. Foreign clients and locks that were left have such
    /// claims.
    Until(Tick),
}

impl Holder {
    pub(super) fn new(client: usize, task: usize, token: &str, claim: Claim, access: Access) -> Holder {
        Holder { client, task, token: token.to_owned(), claim, access, floor: 0, fence: None, read: None }
    }
}

impl InvariantChecker {
    pub(super) fn new(keys: usize) -> InvariantChecker {
        InvariantChecker {
            keys: (0..keys).map(|_| Key::default()).collect(),
            tokens: Tokens::default(),
            allowances: Allowances::new(),
            arrivals: Vec::new(),
            letters: Vec::new(),
            latches: BTreeMap::new(),
            jobs: BTreeMap::new(),
            queues: BTreeMap::new(),
            lateness: BTreeMap::new(),
            barged: Barged::default(),
            taken: BTreeMap::new(),
            evidence: Evidence::default(),
        }
    }

    /// Returns true if a call is under way that may hold this lock, unknown to the checker.
    pub(super) fn is_unseen(&self, key: usize) -> bool {
        self.keys[key].unseen > 0
    }

    /// Returns true if a thread acts under this token, or did so and has not given it up.
    pub(super) fn is_held(&self, token: &str) -> bool {
        self.keys.iter().flat_map(|key| &key.holders).any(|holder| holder.token == token)
    }
}

impl Access {
    /// Returns a holder of the lock that excludes a further holder.
    pub(super) fn too_many(self, acting: &[Holder]) -> Option<&Holder> {
        match self {
            Access::Alone => acting.first(),
            Access::Reads => acting.iter().find(|holder| holder.access != Access::Reads),
            Access::Shares { many, of } => {
                let parts = |holder: &Holder| if let Access::Shares { many, .. } = holder.access { many } else { of };
                acting.last().filter(|_| acting.iter().map(parts).sum::<usize>() + many > of)
            }
        }
    }
}

/// All tokens and ids of a schedule.
#[derive(Debug, Default)]
pub(super) struct Tokens {
    /// The tokens of attempts and holders.
    pub(super) traces: BTreeMap<String, Trace>,
    /// The random parts of grants, each with the client that made it and the token that it released or asked for.
    pub(super) granted: BTreeMap<String, (usize, String)>,
    /// The ids of waits.
    pub(super) waits: BTreeMap<String, Wait>,
}

#[derive(Debug)]
pub(super) struct Trace {
    pub(super) client: usize,
    pub(super) key: String,
    /// The time of the last use: by an attempt, by a holder, or for the first release.
    pub(super) used: Time,
    pub(super) was_held: bool,
    pub(super) is_released: bool,
    /// True if a call that was executed after the release set or extended the token once more. No release follows such
    /// a call.
    pub(super) is_late: bool,
}

/// A call that acquires a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Wait {
    pub(super) client: usize,
    pub(super) task: usize,
    pub(super) turn: u32,
}

impl Tokens {
    /// The task of a wait, and the number of the task's turn.
    pub(super) fn wait_of(&self, id: &str) -> Option<(usize, u32)> {
        self.waits.get(id_of(id)).map(|wait| (wait.task, wait.turn))
    }
}

impl Trace {
    pub(super) fn new(client: usize, key: &str, used: Time) -> Trace {
        Trace { client, key: key.to_owned(), used, was_held: false, is_released: false, is_late: false }
    }
}

/// What clients know of mutexes from the replies that have reached them.
#[derive(Debug, Default)]
pub(super) struct Evidence {
    pub(super) tokens: BTreeMap<String, TokenEvidence>,
    pub(super) waits: BTreeMap<String, WaitEvidence>,
    /// The span of each grant, by its random part.
    pub(super) spans: BTreeMap<String, Duration>,
}

#[derive(Debug)]
pub(super) struct TokenEvidence {
    pub(super) client: usize,
    /// The time by the client's clock at which it first relied on the token.
    pub(super) held: Option<Tick>,
    pub(super) votes: Vec<Vote>,
    /// A release was sent.
    pub(super) is_released: bool,
}

/// A yes of a node.
#[derive(Debug)]
pub(super) struct Vote {
    pub(super) node: usize,
    /// Until when the node keeps the token, by the client's clock.
    pub(super) until: Tick,
    /// For an attempt: the server, and when it had started, in seconds of its clock.
    pub(super) started: Option<(usize, u64)>,
}

/// What a wait knows of its attempts.
#[derive(Debug)]
pub(super) struct WaitEvidence {
    pub(super) client: usize,
    /// Attempts that were sent and are not answered.
    pub(super) open: u32,
    /// The time at which the last attempt was sent that found the wait in the queue.
    pub(super) queued: Option<Tick>,
    pub(super) is_certain: bool,
}

impl TokenEvidence {
    /// The number of nodes that have said yes.
    pub(super) fn yes(&self) -> usize {
        self.votes.iter().map(|vote| vote.node).collect::<BTreeSet<usize>>().len()
    }

    pub(super) fn of(client: usize) -> TokenEvidence {
        TokenEvidence { client, held: None, votes: Vec::new(), is_released: false }
    }
}

impl WaitEvidence {
    pub(super) fn of(client: usize) -> WaitEvidence {
        WaitEvidence { client, open: 0, queued: None, is_certain: true }
    }
}

/// The allowances of holders, by token.
pub(super) type Allowances = BTreeMap<String, Allowance>;

/// What the settings of a holder allow. Times are by the clock of the holder's client.
#[derive(Debug, Clone)]
pub(super) struct Allowance {
    /// The longest lease that a call may ask for.
    pub(super) longest: Duration,
    /// The latest end of the hold, even if the lease is renewed.
    pub(super) end: Tick,
    /// The limit of `max_hold`, which also limits extensions.
    pub(super) hold_end: Tick,
    /// The longest time that renewals can add; `None` if their number is unlimited.
    pub(super) renewals: Option<Duration>,
    /// The minimum hold, for which the key stays on the nodes after a release.
    pub(super) keep: Duration,
}

/// A wait that the node has added to its queue.
#[derive(Debug)]
pub(super) struct Arrival {
    pub(super) lock: String,
    pub(super) task: usize,
    pub(super) turn: u32,
    pub(super) at: Time,
    /// The wait has ended without the lock, or its task is about to hold it.
    pub(super) is_over: bool,
    /// For a reader: the number of writers that have held the lock since its arrival.
    pub(super) passed: u32,
}

/// A token on its way from one process to another.
#[derive(Debug, Clone)]
pub(super) struct Letter {
    pub(super) key: usize,
    pub(super) id: LockId,
    /// The number that stands for the task in the list of holders.
    pub(super) number: usize,
    /// The lock does not end earlier than this, by any clock.
    pub(super) lasts: Time,
    /// The number of threads that have tried to adopt the lock, and whether one has succeeded.
    pub(super) tries: u32,
    pub(super) is_adopted: bool,
}

/// The state of one latch.
#[derive(Debug, Default)]
pub(super) struct LatchState {
    /// The workers that have begun to arrive, and the workers whose arrival was confirmed.
    pub(super) begun: BTreeSet<String>,
    pub(super) confirmed: BTreeSet<String>,
    /// The time since which the latch has been open: all arrivals were confirmed, or a thread has seen it open.
    pub(super) open_since: Option<Time>,
}

/// The state of one job.
#[derive(Debug, Default)]
pub(super) struct JobState {
    /// A body has succeeded.
    pub(super) has_ended: bool,
    /// A call was `Ran`.
    pub(super) has_run: bool,
    /// The time at which the first call was `Ran` or `Done`.
    pub(super) over_since: Option<Time>,
}

/// The state of one queue.
#[derive(Debug, Default)]
pub(super) struct QueueState {
    pub(super) tasks: BTreeMap<String, TaskState>,
    /// The largest fencing token of a claim.
    pub(super) fence: u64,
    /// The simulation's tasks that wait for a claim, each with the time since which it has waited.
    pub(super) waiting: Vec<(usize, Time)>,
}

#[derive(Debug, Default)]
pub(super) struct TaskState {
    /// `pushed` is the time at which the last confirmed push of the task began. `ended` is the time at which a claim
    /// returned whose accepted end finished the task. Such an end does not cover a push after the claim.
    pub(super) pushed: Option<Time>,
    pub(super) ended: Option<Time>,
    /// The number of ends that are under way, or whose outcome is unknown.
    pub(super) open: u32,
    pub(super) claimants: Vec<Holder>,
    /// The fencing token of the last claim, and the time at which that claim returned.
    pub(super) last: (u64, Time),
}

macro_rules! counts {
    ($($name:ident),+ $(,)?) => {
        /// The number of events of each kind, over one or many schedules.
        #[derive(Debug, Clone, Copy, Default)]
        pub(super) struct Counts {
            $(pub(super) $name: u64,)+
        }

        impl Counts {
            pub(super) fn add(&mut self, other: &Counts) {
                $(self.$name += other.$name;)+
            }
        }

        impl fmt::Display for Counts {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let all = [$(format!("{} {}", self.$name, stringify!($name))),+];
                f.write_str(&all.join(", "))
            }
        }
    };
}

counts!(
    schedules,
    acquisitions,
    grants,
    handovers,
    foreign,
    busy,
    unavailable,
    renewals,
    losses,
    fences,
    crashes,
    pauses,
    partitions,
    restarts,
    failovers,
    jumps,
    lost,
    resets,
    closes,
    downgrades,
    adoptions,
    several,
    opened,
    arrivals,
    ran,
    led,
    cancelled,
    pushed,
    claims,
    acks,
    jobs,
    notifications,
    breaks,
    excused,
    wakes,
    scripts,
    modelled,
    beliefs,
    events
);

#[cfg(test)]
mod tests {
    use super::*;

    fn holders(all: &[Access]) -> Vec<Holder> {
        all.iter().map(|access| Holder::new(0, 0, "t", Claim::Until(Tick::NEVER), *access)).collect()
    }

    #[test]
    fn readers_are_beside_readers_only_and_permits_are_counted() {
        let too_many = |new: Access, acting: &[Access]| new.too_many(&holders(acting)).is_some();
        let (alone, reads, shares) = (Access::Alone, Access::Reads, Access::Shares { many: 1, of: 2 });
        assert!(!too_many(alone, &[]) && too_many(alone, &[alone]) && too_many(alone, &[reads]));
        assert!(!too_many(reads, &[reads, reads]) && too_many(reads, &[reads, alone]));
        assert!(!too_many(shares, &[shares]) && too_many(shares, &[shares, shares]));
        let both = Access::Shares { many: 2, of: 2 };
        assert!(!too_many(both, &[]) && too_many(both, &[shares]) && too_many(shares, &[both]));
    }
}
