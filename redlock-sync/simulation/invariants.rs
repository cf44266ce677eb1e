//! What must hold, checked while it happens; and what happened, counted.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::kinds::{Access, LockKind};
use super::order::{self, Arrival};
use super::plan::{MS, Time, nanos};
use super::rules::Rule;
use super::server::short;
use super::settings::Allowances;
use super::tokens::Tokens;
use super::world::{World, with};
use crate::clock::Tick;
use crate::lease::Core;
use crate::options::LockOptions;

/// From one holder to the next where nothing goes wrong: a pause between attempts is up to a tenth of a second long, and one that is left to
/// other programs a quarter.
const LONGEST_GAP: Time = 370 * MS;

/// The same where a place was kept for a wait that was over by then: the longest is the mark of a writer on several nodes.
const LONGEST_SEAT: Time = 5100 * MS;

#[derive(Debug)]
pub(super) struct InvariantChecker {
    keys: Vec<Key>,
    pub(super) tokens: Tokens,
    pub(super) allowances: Allowances,
    pub(super) arrivals: Vec<Arrival>,
    /// When the node gave the lock to an attempt, by token.
    pub(super) taken: BTreeMap<String, Time>,
}

/// The protected resource of one lock.
#[derive(Debug, Default)]
struct Key {
    holders: Vec<Holder>,
    /// Writes so far by holders, none of which may be lost.
    counter: u64,
    /// The largest fence that was given out.
    fence: u64,
    last_token: String,
    /// Since when it has no holder.
    free_since: Time,
    /// The last holder's lease ran out, or runs out by itself: not all waiters are told.
    ran_out: bool,
    /// The tasks that wait, and since when.
    waiting: Vec<(usize, Time)>,
}

/// A client that may act, as long as its lease lasts by its own clock.
#[derive(Debug, Clone)]
pub(super) struct Holder {
    pub(super) client: usize,
    pub(super) task: usize,
    pub(super) token: String,
    pub(super) claim: Claim,
    pub(super) access: Access,
    /// Its fence must exceed this.
    floor: u64,
    fence: Option<u64>,
    read: Option<u64>,
}

#[derive(Debug, Clone)]
pub(super) enum Claim {
    Lease(Arc<Core>),
    /// A foreign client's, until then by its clock.
    Until(Tick),
}

impl Holder {
    pub(super) fn new(client: usize, task: usize, token: &str, claim: Claim, access: Access) -> Holder {
        Holder { client, task, token: token.to_owned(), claim, access, floor: 0, fence: None, read: None }
    }

    /// For how long it may act by its own clock. Must not be asked from within the world.
    fn remaining(&self) -> Duration {
        match &self.claim {
            Claim::Lease(core) => core.remaining(),
            Claim::Until(until) => until.since(with(|world| world.tick(self.client))),
        }
    }
}

impl InvariantChecker {
    pub(super) fn new(keys: usize) -> InvariantChecker {
        InvariantChecker {
            keys: (0..keys).map(|_| Key::default()).collect(),
            tokens: Tokens::default(),
            allowances: Allowances::new(),
            arrivals: Vec::new(),
            taken: BTreeMap::new(),
        }
    }

    /// True if a thread acts by this token, or did and has not let go of it.
    pub(super) fn is_held(&self, token: &str) -> bool {
        self.keys.iter().flat_map(|key| &key.holders).any(|holder| holder.token == token)
    }
}

/// The current task wants the lock with these settings. Returns the time.
pub(super) fn wants(key: usize, options: &LockOptions) -> Time {
    with(|world| {
        let waiter = (world.current, world.now);
        let task = &mut world.tasks[world.current];
        task.turn += 1;
        task.options = Some(options.clone());
        task.floor = world.invariants.keys[key].fence;
        world.invariants.keys[key].waiting.push(waiter);
        world.now
    })
}

/// The current task waits no more.
pub(super) fn has_waited(key: usize) {
    order::is_over();
    with(|world| {
        let task = world.current;
        let Key { waiting, free_since, ran_out, holders, .. } = &mut world.invariants.keys[key];
        let first = waiting.iter().map(|(_, since)| *since).min().unwrap_or(0).max(*free_since);
        waiting.retain(|(other, _)| *other != task);
        let is_free = holders.is_empty() && !*ran_out;
        let gap = world.now.saturating_sub(first);
        if world.plan.is_calm && is_free && gap > world.longest_gap(key) {
            world.violate(format!(
                "nothing went wrong, and key {key} had no holder for {} ms while a task waited",
                gap / MS
            ));
        }
    });
}

/// A client was told that it has the lock: no other one may believe the same.
pub(super) fn begin(key: usize, name: &str, mut new: Holder) {
    let others = with(|world| world.invariants.keys[key].holders.clone());
    let acting: Vec<Holder> =
        others.into_iter().filter(|other| other.task != new.task && !other.remaining().is_zero()).collect();
    let lasts = new.remaining();
    with(|world| {
        let alive: Vec<Holder> = acting.into_iter().filter(|other| !world.clients[other.client].is_dead).collect();
        if new.access.too_many(&alive).is_some() {
            world.check_exclusion(key, name, alive, &new);
        }
        if !lasts.is_zero() {
            world.check_support(name, &new);
        }
        if let Claim::Lease(_) = new.claim {
            world.note_holder(name, &new.token);
        }
        let was_handed = world.invariants.keys[key].last_token == new.token;
        if let Claim::Lease(_) = new.claim {
            world.check_order(name, &new, was_handed);
        }
        world.counts.handovers += u64::from(was_handed);
        let state = &mut world.invariants.keys[key];
        state.ran_out = false;
        state.last_token.clone_from(&new.token);
        // Those that share the lock get their fences in any order while they wait.
        new.floor = if new.access == Access::Alone { state.fence } else { world.tasks[new.task].floor };
        state.holders.retain(|other| other.task != new.task);
        world.log(|_| format!("client {} HOLDS key {key} by {}, for {lasts:?}", new.client, short(&new.token)));
        world.counts.acquisitions += 1;
        if new.token.contains(":granted:") {
            world.counts.grants += 1;
        }
        world.invariants.keys[key].holders.push(new);
    });
}

/// The current task's lease has run out.
pub(super) fn ran_out(key: usize) {
    with(|world| {
        let was_known = std::mem::replace(&mut world.invariants.keys[key].ran_out, true);
        world.counts.losses += u64::from(!was_known);
    });
}

/// The current task acts no more.
pub(super) fn end(key: usize, keep: Duration) {
    with(|world| {
        let task = world.current;
        let state = &mut world.invariants.keys[key];
        let token = state.holders.iter().find(|holder| holder.task == task).map(|holder| holder.token.clone());
        state.holders.retain(|holder| holder.task != task);
        // Of several holders another one may have asked for a longer minimum.
        state.free_since = state.free_since.max(world.now + nanos(keep));
        // The end of a minimum hold is told to one of the waiters, which may leave before it.
        state.ran_out |= !keep.is_zero() && state.waiting.len() > 1;
        if let Some(token) = token {
            world.note_end(&token, keep);
        }
        let client = world.client;
        world.log(|_| format!("client {client} gives up key {key}"));
    });
}

/// The current task, which has just been told that the lock is its own, reads the counter, or writes it back one higher.
pub(super) fn act(key: usize) {
    with(|world| {
        let task = world.current;
        let Key { holders, counter, .. } = &mut world.invariants.keys[key];
        let Some(holder) = holders.iter_mut().find(|holder| holder.task == task) else { return };
        match (holder.access, holder.read.take()) {
            (Access::Shares(_), _) => {}
            (_, None) => holder.read = Some(*counter),
            // A reader sees the same as long as it reads.
            (Access::Reads, Some(read)) if read == *counter => {}
            (Access::Alone, Some(read)) if read == *counter => *counter += 1,
            (_, Some(read)) => {
                let what = format!("an update of key {key} is lost: read {read}, and it is {counter} at the write");
                world.violate(what);
            }
        }
    });
}

/// The current task was given a fence.
pub(super) fn fence(key: usize, fence: u64) {
    with(|world| {
        let task = world.current;
        let state = &mut world.invariants.keys[key];
        let Some(holder) = state.holders.iter_mut().find(|holder| holder.task == task) else { return };
        let (floor, earlier) = (holder.floor, holder.fence.replace(fence));
        state.fence = state.fence.max(fence);
        world.counts.fences += 1;
        world.log(|_| format!("fence {fence} for key {key}"));
        if earlier.is_some_and(|earlier| earlier != fence) {
            world.violate(format!("the fence of a holder of key {key} changes from {earlier:?} to {fence}"));
        } else if fence <= floor {
            world.violate(format!("the fence of key {key} does not rise: {fence} after {floor}"));
        }
    });
}

impl World {
    /// Longer where clocks differ: a key that is not deleted ends by its node's clock.
    fn longest_gap(&self, key: usize) -> Time {
        let usual = if self.plan.kinds[key] == LockKind::Mutex { LONGEST_GAP } else { LONGEST_SEAT };
        usual + nanos(self.plan.longest()) / 1_000_000 * 2 * self.plan.rates as u64
    }

    /// A client was given a lock which there are too many that hold.
    fn check_exclusion(&mut self, key: usize, name: &str, alive: Vec<Holder>, new: &Holder) {
        let (excused, rivals): (Vec<_>, Vec<_>) =
            alive.into_iter().partition(|other| self.is_beyond_promise(name, &other.token));
        for other in excused {
            self.counts.excused += 1;
            // From now on it counts as one that acts without the lock.
            self.invariants.keys[key].holders.retain(|holder| holder.task != other.task);
        }
        if let Some(other) = new.access.too_many(&rivals) {
            let what = format!(
                "two holders of key {key}: client {} ({}) has it, and client {} ({}) was given it",
                other.client,
                short(&other.token),
                new.client,
                short(&new.token)
            );
            self.violate(what);
        }
    }

    /// A client that is given a lock has its token on a majority of the nodes. Those may be missing that have restarted, or whose clock has jumped.
    fn check_support(&mut self, name: &str, new: &Holder) {
        let (now, window, nodes) = (self.now, self.plan.window(), self.plan.nodes);
        let has = self.supporters(name, &new.token);
        let is_excused = |(i, s): &(usize, &super::server::Server)| {
            let was_restarted = nodes > 1 && (!s.is_up || s.forgot_since(now, window + 1000 * MS));
            !has.contains(i) && (was_restarted || s.jumped.is_some_and(|at| now - at < window))
        };
        let excused = self.servers.iter().enumerate().filter(is_excused).count();
        if has.len() + excused <= nodes / 2 {
            let what = format!(
                "no lock: client {} was given `{name}` by {}, which {} of {nodes} nodes have",
                new.client,
                short(&new.token),
                has.len()
            );
            self.breaks(Rule::Support, what);
        }
    }

    /// A call of a client has taken the lock from this token.
    pub(super) fn check_end(&mut self, client: usize, name: &str, token: &str, script: &str) {
        let Some(key) = self.plan.names.iter().position(|known| *known == name) else { return };
        let holder = self.invariants.keys[key].holders.iter().find(|holder| holder.token == token);
        let Some(other) = holder.map(|holder| holder.client).filter(|other| *other != client) else { return };
        if !self.clients[other].is_dead {
            let what = format!(
                "a lock is taken away: {script}.lua of client {client} ends {} of client {other}",
                short(token)
            );
            self.breaks(Rule::Support, what);
        }
    }

    /// The holder's majority was broken by a clock that jumped just now; such a thing is not promised to be survived.
    fn is_beyond_promise(&mut self, key: &str, token: &str) -> bool {
        let window = self.plan.window();
        let now = self.now;
        let has = self.supporters(key, token);
        let jumped = self
            .servers
            .iter()
            .enumerate()
            .filter(|(i, s)| s.jumped.is_some_and(|at| now - at < window) && !has.contains(i));
        let jumped = jumped.count();
        jumped > 0 && has.len() + jumped > self.plan.nodes / 2
    }
}

macro_rules! counts {
    ($($name:ident),+ $(,)?) => {
        /// What happened, over one or many schedules.
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
    jumps,
    lost,
    resets,
    closes,
    jobs,
    pushes,
    breaks,
    excused,
    wakes,
    scripts,
    events
);
