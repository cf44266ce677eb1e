//! What must hold, checked while it happens; and what happened, counted.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::plan::{MS, Time, nanos};
use super::server::short;
use super::wire::token;
use super::world::{World, with};
use crate::clock::Tick;
use crate::lease::Core;
use crate::script::{self, Purpose};

/// From one holder to the next where nothing goes wrong: a server can be a tenth of a second late with the end of a wait for a push, and
/// a pause between attempts is as long.
const LONGEST_GAP: Time = 250 * MS;

#[derive(Debug)]
pub(super) struct Referee {
    keys: Vec<Key>,
    /// Tokens for which a release was sent.
    released: BTreeSet<String>,
}

/// The protected resource of one lock.
#[derive(Debug, Default)]
struct Key {
    holders: Vec<Holder>,
    /// Writes so far by those who hold the lock, none of which may be lost.
    counter: u64,
    /// The largest fence that anybody was given.
    fence: u64,
    last_token: String,
    /// Since when nobody holds it.
    free_since: Time,
    /// The last holder's lease ran out, or runs out by itself: not everybody who waits is told.
    ran_out: bool,
    /// Who waits, and since when.
    waiting: Vec<(usize, Time)>,
}

/// Somebody who may act, as long as his lease lasts by his own clock.
#[derive(Debug, Clone)]
pub(super) struct Holder {
    pub(super) client: usize,
    pub(super) task: usize,
    pub(super) token: String,
    pub(super) claim: Claim,
    /// His fence must exceed this.
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
    pub(super) fn new(client: usize, task: usize, token: &str, claim: Claim) -> Holder {
        Holder { client, task, token: token.to_owned(), claim, floor: 0, fence: None, read: None }
    }

    /// For how long he may act by his own clock. Must not be asked from within the world.
    fn remaining(&self) -> Duration {
        match &self.claim {
            Claim::Lease(core) => core.remaining(),
            Claim::Until(until) => until.since(with(|world| world.tick(self.client))),
        }
    }
}

impl Referee {
    pub(super) fn new(keys: usize) -> Referee {
        Referee { keys: (0..keys).map(|_| Key::default()).collect(), released: BTreeSet::new() }
    }
}

/// The current task wants the lock.
pub(super) fn wants(key: usize) {
    with(|world| {
        let waiter = (world.current, world.now);
        world.referee.keys[key].waiting.push(waiter);
    });
}

/// The current task waits no more.
pub(super) fn has_waited(key: usize) {
    with(|world| {
        let task = world.current;
        let Key { waiting, free_since, ran_out, holders, .. } = &mut world.referee.keys[key];
        let first = waiting.iter().map(|(_, since)| *since).min().unwrap_or(0).max(*free_since);
        waiting.retain(|(other, _)| *other != task);
        let is_free = holders.is_empty() && !*ran_out;
        let gap = world.now.saturating_sub(first);
        if world.plan.is_calm && is_free && gap > LONGEST_GAP {
            world.violate(format!(
                "nothing went wrong, and nobody had key {key} for {} ms while somebody waited",
                gap / MS
            ));
        }
    });
}

/// Somebody was told that the lock is his: nobody else may believe the same.
pub(super) fn begin(key: usize, name: &str, mut new: Holder) {
    let others = with(|world| world.referee.keys[key].holders.clone());
    let acting: Vec<Holder> =
        others.into_iter().filter(|other| other.task != new.task && !other.remaining().is_zero()).collect();
    let lasts = new.remaining();
    with(|world| {
        for other in &acting {
            if world.clients[other.client].is_dead {
                continue;
            }
            if world.is_beyond_promise(name, &other.token) {
                world.counts.excused += 1;
                // From now on he counts as one who acts without the lock.
                let task = other.task;
                world.referee.keys[key].holders.retain(|holder| holder.task != task);
                continue;
            }
            let what = format!(
                "two holders of key {key}: client {} ({}) has it, and client {} ({}) was given it",
                other.client,
                short(&other.token),
                new.client,
                short(&new.token)
            );
            world.violate(what);
        }
        let state = &mut world.referee.keys[key];
        if state.last_token == new.token {
            world.counts.handovers += 1;
        }
        state.ran_out = false;
        state.last_token.clone_from(&new.token);
        new.floor = state.fence;
        state.holders.retain(|other| other.task != new.task);
        world.log(|_| format!("client {} HOLDS key {key} by {}, for {lasts:?}", new.client, short(&new.token)));
        world.counts.acquisitions += 1;
        if new.token.ends_with(":granted") {
            world.counts.grants += 1;
        }
        world.referee.keys[key].holders.push(new);
    });
}

/// The current task's lease has run out.
pub(super) fn ran_out(key: usize) {
    with(|world| {
        let was_known = std::mem::replace(&mut world.referee.keys[key].ran_out, true);
        world.counts.losses += u64::from(!was_known);
    });
}

/// The current task acts no more.
pub(super) fn end(key: usize, keep: Duration) {
    with(|world| {
        let task = world.current;
        let state = &mut world.referee.keys[key];
        state.holders.retain(|holder| holder.task != task);
        state.free_since = world.now + nanos(keep);
        // The end of a minimum hold is told to one of those who wait, and he may leave before it.
        state.ran_out |= !keep.is_zero() && state.waiting.len() > 1;
        let client = world.client;
        world.log(|_| format!("client {client} gives up key {key}"));
    });
}

/// The current task, which has just been told that the lock is its own, reads the counter, or writes it back one higher.
pub(super) fn act(key: usize) {
    with(|world| {
        let task = world.current;
        let Key { holders, counter, .. } = &mut world.referee.keys[key];
        let Some(holder) = holders.iter_mut().find(|holder| holder.task == task) else { return };
        match holder.read.take() {
            None => holder.read = Some(*counter),
            Some(read) if read == *counter => *counter += 1,
            Some(read) => {
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
        let state = &mut world.referee.keys[key];
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
    /// Notes a call that is about to be written.
    pub(super) fn note_call(&mut self, call: &script::Call) {
        match call.purpose {
            Purpose::Release => {
                self.referee.released.insert(token(call).to_owned());
            }
            Purpose::Acquire if self.referee.released.contains(token(call)) => {
                self.violate(format!("{} is asked for after its release was sent", short(token(call))));
            }
            _ => {}
        }
    }

    /// The holder's majority was broken by a clock that jumped just now; such a thing is not promised to be survived.
    fn is_beyond_promise(&mut self, key: &str, token: &str) -> bool {
        let window = 3 * nanos(self.plan.lease);
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
    excused,
    wakes,
    scripts,
    events
);
