//! The rules, checked while a schedule runs.

use std::time::Duration;

use super::kinds::{Access, DrawnKind};
use super::known::{Claim, Holder, Key};
use super::order;
use super::plan::{MS, Time, nanos};
use super::rules::Rule;
use super::server::{Server, short};
use super::world::{World, with};
use crate::clock::Tick;
use crate::options::LockOptions;

/// The longest time without a holder while a thread waits, in a schedule without faults. A pause between attempts lasts
/// up to a tenth of a second, and a pause for other programs up to a quarter of a second.
pub(super) const LONGEST_GAP: Time = 370 * MS;

/// The longest such time if a node made a reservation for a wait that had ended. The longest reservation is a writer's
/// mark on several nodes.
const LONGEST_SEAT: Time = 5100 * MS;

impl Holder {
    /// The time for which the holder may act by its own clock. The function must not be called while the world is
    /// borrowed.
    pub(super) fn remaining(&self) -> Duration {
        match &self.claim {
            Claim::Lease(inner) => inner.remaining(),
            Claim::Until(until) => until.since(with(|world| world.tick(self.client))),
        }
    }
}

/// Records that the current task wants the lock with these settings. Returns the current time.
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

/// Records that the current task no longer waits for the lock.
pub(super) fn has_waited(key: usize) {
    order::is_over();
    with(|world| {
        let task = world.current;
        let Key { waiting, free_since, ran_out, holders, unseen, .. } = &mut world.invariants.keys[key];
        let first = waiting.iter().map(|(_, since)| *since).min().unwrap_or(0).max(*free_since);
        waiting.retain(|(other, _)| *other != task);
        let is_free = holders.is_empty() && !*ran_out && *unseen == 0;
        let gap = world.now.saturating_sub(first);
        if world.plan.is_calm && is_free && gap > world.longest_gap(key) {
            world.violate(format!(
                "nothing went wrong, and key {key} had no holder for {} ms while a task waited",
                gap / MS
            ));
        }
    });
}

/// Called when a client acquires the lock. No other client may believe at that time that it holds the lock.
pub(super) fn begin(key: usize, name: &str, mut new: Holder) {
    let others = with(|world| world.invariants.keys[key].holders.clone());
    let acting: Vec<Holder> =
        others.into_iter().filter(|other| other.task != new.task && !other.remaining().is_zero()).collect();
    let lasts = new.remaining();
    with(|world| {
        if let Claim::Lease(_) = new.claim {
            world.check_belief(new.client, name, &new.token, lasts);
        }
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
        // Exception: if the former holder was still acquiring other locks, the checker does not know that it held this
        // one.
        let was_handed = world.invariants.keys[key].last_token == new.token
            || world.taker(&new.token).is_some_and(|task| task != new.task);
        if let Claim::Lease(_) = new.claim {
            world.check_order(name, &new, was_handed);
        }
        world.counts.handovers += u64::from(was_handed);
        let state = &mut world.invariants.keys[key];
        state.ran_out = false;
        state.last_token.clone_from(&new.token);
        new.floor = match new.access {
            Access::Alone => state.fence,
            Access::Reads => state.written,
            // Waiting tasks raise these fencing tokens in any order.
            Access::Shares { .. } => world.tasks[new.task].floor,
        };
        state.holders.retain(|other| other.task != new.task);
        world.log(|_| format!("client {} HOLDS key {key} by {}, for {lasts:?}", new.client, short(&new.token)));
        world.counts.acquisitions += 1;
        if new.token.contains(":granted:") {
            world.counts.grants += 1;
        }
        world.invariants.keys[key].holders.push(new);
    });
}

/// Records that the lease of the current task has ended.
pub(super) fn ran_out(key: usize) {
    with(|world| {
        let was_known = std::mem::replace(&mut world.invariants.keys[key].ran_out, true);
        world.counts.losses += u64::from(!was_known);
    });
}

/// Records the begin or the end of a span in which a call may hold this lock, unknown to the checker. Multi-locks, jobs
/// and leaders have such calls.
pub(super) fn is_taking(key: usize, begins: bool) {
    with(|world| {
        let now = world.now;
        world.tasks[world.current].takes_several = begins;
        let Key { unseen, free_since, .. } = &mut world.invariants.keys[key];
        *unseen = if begins { *unseen + 1 } else { *unseen - 1 };
        *free_since = now.max(*free_since);
    });
}

/// Records that the current task, a writer, is about to become a reader.
pub(super) fn steps_down(key: usize) {
    with(|world| {
        let task = world.current;
        let Key { holders, fence, .. } = &mut world.invariants.keys[key];
        if let Some(holder) = holders.iter_mut().find(|holder| holder.task == task) {
            // If the downgrade does not reach the nodes, the holder keeps its fencing token.
            let kept = holder.fence.take().map(|fence| fence - 1);
            (holder.access, holder.floor) = (Access::Reads, kept.unwrap_or(*fence));
        }
        world.counts.downgrades += 1;
    });
}

/// Records that the current task leaves the lock held until a time by its clock. Returns the number under which the
/// lock can be adopted.
pub(super) fn leaves(key: usize, until: Tick, keep: Duration) -> usize {
    with(|world| {
        let (task, number) = (world.current, usize::MAX - world.order as usize);
        let state = &mut world.invariants.keys[key];
        // No wait is notified when such a lock ends.
        state.ran_out = true;
        let Some(holder) = state.holders.iter_mut().find(|holder| holder.task == task) else { return number };
        (holder.task, holder.claim) = (number, Claim::Until(until));
        let token = holder.token.clone();
        world.note_end(&token, keep);
        number
    })
}

/// Records that a thread is about to adopt a lock. From now on, the former holder has no claim to it.
pub(super) fn is_adopting(key: usize, number: usize) {
    with(|world| world.invariants.keys[key].holders.retain(|holder| holder.task != number));
}

/// Records that a thread has adopted a lock. Such a token has no entry in a queue.
pub(super) fn has_adopted(key: usize, token: &str) {
    with(|world| {
        world.invariants.keys[key].last_token = token.to_owned();
        world.counts.adoptions += 1;
    });
}

/// Records that the current task no longer relies on the lock.
pub(super) fn end(key: usize, keep: Duration) {
    with(|world| {
        let task = world.current;
        let state = &mut world.invariants.keys[key];
        let token = state.holders.iter().find(|holder| holder.task == task).map(|holder| holder.token.clone());
        state.holders.retain(|holder| holder.task != task);
        // Another holder may have asked for a longer minimum hold.
        state.free_since = state.free_since.max(world.now + nanos(keep));
        // Only one wait is notified when a minimum hold ends. That wait may have ended before.
        state.ran_out |= !keep.is_zero() && state.waiting.len() > 1;
        if let Some(token) = token {
            world.note_end(&token, keep);
        }
        let client = world.client;
        world.log(|_| format!("client {client} gives up key {key}"));
    });
}

/// Reads the counter, or writes it back incremented, in the current task. The task has just checked its lock.
pub(super) fn act(key: usize) {
    let own = |world: &World| {
        let holders = &world.invariants.keys[key].holders;
        holders.iter().find(|holder| holder.task == world.current).cloned()
    };
    if let Some(holder) = with(|world| own(world)).filter(|holder| matches!(holder.claim, Claim::Lease(_))) {
        let remaining = holder.remaining();
        with(|world| world.check_belief(holder.client, world.plan.names[key], &holder.token, remaining));
    }
    with(|world| {
        let task = world.current;
        let Key { holders, counter, .. } = &mut world.invariants.keys[key];
        let Some(holder) = holders.iter_mut().find(|holder| holder.task == task) else { return };
        match (holder.access, holder.read.take()) {
            (Access::Shares { .. }, _) => {}
            (_, None) => holder.read = Some(*counter),
            // A reader must see the same value during its whole hold.
            (Access::Reads, Some(read)) if read == *counter => {}
            (Access::Alone, Some(read)) if read == *counter => *counter += 1,
            (_, Some(read)) => {
                let what = format!("an update of key {key} is lost: read {read}, and it is {counter} at the write");
                world.violate(what);
            }
        }
    });
}

/// Checks a fencing token that the current task received.
pub(super) fn fence(key: usize, fence: u64) {
    with(|world| {
        let task = world.current;
        let state = &mut world.invariants.keys[key];
        let Some(holder) = state.holders.iter_mut().find(|holder| holder.task == task) else { return };
        let (floor, earlier) = (holder.floor, holder.fence.replace(fence));
        if holder.access == Access::Alone {
            state.written = state.written.max(fence);
        }
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
    /// The longest permitted time without a holder. It is longer if clocks differ, since a key that is not deleted ends
    /// by the clock of its node.
    fn longest_gap(&self, key: usize) -> Time {
        let usual = if self.plan.kinds[key] == DrawnKind::Mutex { LONGEST_GAP } else { LONGEST_SEAT };
        usual + nanos(self.plan.longest()) / 1_000_000 * 2 * self.plan.rates as u64
    }

    /// Checks a client that acquired a lock although other clients hold it.
    fn check_exclusion(&mut self, key: usize, name: &str, alive: Vec<Holder>, new: &Holder) {
        let (excused, rivals): (Vec<_>, Vec<_>) =
            alive.into_iter().partition(|other| self.is_beyond_promise(name, &other.token));
        for other in excused {
            self.counts.excused += 1;
            // From now on, that client counts as a holder that acts without the lock.
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

    /// Checks that a majority of the nodes has the token of a client that acquires a lock. Nodes that have restarted,
    /// or whose clock has jumped, may be missing.
    fn check_support(&mut self, name: &str, new: &Holder) {
        let (now, window, nodes) = (self.now, self.plan.window(), self.plan.nodes);
        let has = self.supporters(name, &new.token);
        let is_excused = |(i, s): &(usize, &Server)| {
            let can_forget = nodes > 1 || self.plan.has_replica;
            let was_restarted = can_forget && (!s.is_up || s.forgot_since(now, window + 1000 * MS));
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

    /// Checks a call of a client that has removed this token from a lock.
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

    /// Returns true if a clock jump has just broken the majority of the holder. The library does not promise exclusion
    /// in that case.
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
