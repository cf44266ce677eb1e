//! How many rounds may hold connections at the same time.
//!
//! A round over several nodes takes a connection of each, one after the other. More rounds than there are connections would hold one node's
//! and wait for another's in a circle, until all of them run out of time. So only as many are let in as find a connection
//! everywhere. One node needs no gate: its pool is one.

use parking_lot::{Condvar, Mutex};

use crate::clock::{Clock, Tick};
use crate::node::Lane;

/// The gate of each lane; `None` where there is one node.
#[derive(Debug)]
pub(crate) struct Gates {
    lanes: Option<(Gate, Gate)>,
}

#[derive(Debug)]
struct Gate {
    free: Mutex<u32>,
    freed: Condvar,
}

/// A round's place; the next one comes in when it is dropped.
#[derive(Debug)]
pub(crate) struct Pass<'a> {
    gate: Option<&'a Gate>,
    /// The connections that the round may use.
    pub(crate) lane: Lane,
}

impl Gates {
    /// For a number of nodes with so many connections each.
    pub(crate) fn new(nodes: usize, ordinary: u32, reserved: u32) -> Gates {
        Gates { lanes: (nodes > 1).then(|| (Gate::new(ordinary), Gate::new(reserved))) }
    }

    /// Lets a round in; `None` when `by` came first. A renewal or a release takes an ordinary place if one is free, so that the few
    /// that are set aside are left for when there is a crowd.
    pub(crate) fn enter(&self, lane: Lane, by: Tick, clock: &dyn Clock) -> Option<Pass<'_>> {
        let Some((ordinary, reserved)) = &self.lanes else { return Some(Pass { gate: None, lane }) };
        let pass = |gate, lane| Pass { gate: Some(gate), lane };
        match lane {
            Lane::Reserved if ordinary.enter(Tick::ZERO, clock) => Some(pass(ordinary, Lane::Ordinary)),
            Lane::Reserved => reserved.enter(by, clock).then(|| pass(reserved, lane)),
            Lane::Ordinary => ordinary.enter(by, clock).then(|| pass(ordinary, lane)),
        }
    }
}

impl Gate {
    fn new(free: u32) -> Gate {
        Gate { free: Mutex::new(free), freed: Condvar::new() }
    }

    fn enter(&self, by: Tick, clock: &dyn Clock) -> bool {
        let mut free = self.free.lock();
        while *free == 0 {
            let left = by.since(clock.now());
            if left.is_zero() {
                return false;
            }
            self.freed.wait_for(&mut free, left);
        }
        *free -= 1;
        true
    }
}

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        if let Some(gate) = self.gate {
            *gate.free.lock() += 1;
            gate.freed.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SystemClock;

    fn enter(gates: &Gates, lane: Lane) -> Option<Pass<'_>> {
        gates.enter(lane, Tick::ZERO, &SystemClock)
    }

    #[test]
    fn a_crowd_of_attempts_leaves_room_for_releases() {
        let gates = Gates::new(3, 2, 1);
        let first = enter(&gates, Lane::Reserved).unwrap();
        assert_eq!(first.lane, Lane::Ordinary);
        let second = enter(&gates, Lane::Ordinary).unwrap();
        assert!(enter(&gates, Lane::Ordinary).is_none());
        let third = enter(&gates, Lane::Reserved).unwrap();
        assert_eq!(third.lane, Lane::Reserved);
        assert!(enter(&gates, Lane::Reserved).is_none());
        drop(first);
        assert!(enter(&gates, Lane::Ordinary).is_some());
        drop((second, third));
    }

    #[test]
    fn who_waits_comes_in_when_somebody_leaves() {
        let gates = Gates::new(3, 1, 1);
        let pass = enter(&gates, Lane::Ordinary);
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| gates.enter(Lane::Ordinary, Tick::NEVER, &SystemClock).is_some());
            drop(pass);
            assert!(waiter.join().unwrap());
        });
    }

    #[test]
    fn one_node_has_no_gate() {
        let gates = Gates::new(1, 1, 1);
        let all: Vec<_> = (0..9).map(|_| enter(&gates, Lane::Ordinary).unwrap()).collect();
        assert!(all.iter().all(|pass| pass.lane == Lane::Ordinary));
    }
}
