//! The scripts, as the one server executes them.

use super::state::{
    Call, FAULT_CREATED, FAULT_OUT_OF_ORDER, Kind, Phase, Reply, State, add, client_of, granted, is_granted, remove,
    wait_of,
};
use super::{LEASE, Rule, Single};

impl<const N: usize> Single<N> {
    pub(super) fn execute(&self, state: &mut State<N>, call: &Call) -> Reply {
        match call.kind {
            Kind::Acquire => self.acquire(state, call),
            Kind::Extend => self.extend(state, call),
            Kind::Release | Kind::Free | Kind::Leave | Kind::LeaveOnly => self.release(state, call),
            Kind::None => Reply::Absent,
        }
    }

    /// `acquire.lua`, without its fast path and pauses.
    fn acquire(&self, state: &mut State<N>, call: &Call) -> Reply {
        let held = state.key;
        if held == call.token {
            state.ttl = if self.on(Rule::NeverShortens) { state.ttl.max(LEASE) } else { LEASE };
        } else {
            let is_own = is_granted(held)
                && call.wait != 0
                && (wait_of(held) == call.wait || !self.on(Rule::GrantToItsWait))
                && self.on(Rule::OwnGrantByAttempt);
            let may_take = held != 0 && (is_own || call.leftovers.contains(&held));
            if !(may_take || held == 0 && self.is_its_turn(state, call)) {
                return Self::enter(state, call);
            }
            if held == 0 {
                Self::judge_order(state, call);
            }
            (state.key, state.ttl) = (call.token, LEASE);
        }
        if self.on(Rule::WonAttemptLeavesQueue) {
            remove(&mut state.queue, call.wait);
        }
        Reply::Yes
    }

    /// A no. The wait enters the queue and keeps its place; a last attempt leaves it.
    fn enter(state: &mut State<N>, call: &Call) -> Reply {
        if call.wait == 0 {
            return Reply::Nowhere;
        }
        if call.is_last {
            remove(&mut state.queue, call.wait);
            return Reply::Nowhere;
        }
        if state.queue.contains(&call.wait) {
            return Reply::Kept;
        }
        assert!(add(&mut state.queue, call.wait), "the queue of the model is too short");
        Reply::New
    }

    /// The property: nobody takes a free lock while a wait whose client listens is before it.
    fn judge_order(state: &mut State<N>, call: &Call) {
        let is_alive = |wait: &&u8| **wait != 0 && state.clients[client_of(**wait)].listens;
        if state.queue.iter().take_while(|wait| **wait != call.wait).any(|wait| is_alive(&wait)) {
            state.fault = FAULT_OUT_OF_ORDER;
        }
    }

    /// Grants a free lock to the first wait that listens, unless that is this one. Takes the others out.
    fn is_its_turn(&self, state: &mut State<N>, call: &Call) -> bool {
        if !self.on(Rule::FirstComeFirstServed) {
            return true;
        }
        while state.queue[0] != 0 && state.queue[0] != call.wait {
            let first = state.queue[0];
            remove(&mut state.queue, first);
            if self.grant(state, first, call.random) {
                return false;
            }
        }
        true
    }

    /// `grant.lua`: sets the key, then publishes. False if the client of the wait does not listen.
    fn grant(&self, state: &mut State<N>, wait: u8, random: u8) -> bool {
        let client = &mut state.clients[client_of(wait)];
        if !client.listens && self.on(Rule::DeadWaitsAreSkipped) {
            return false;
        }
        state.key = granted(wait, random);
        state.ttl = if self.on(Rule::FullGrant) { LEASE } else { LEASE - 1 };
        if client.listens && client.phase != Phase::Dead {
            let is_kept = add(&mut client.pushes, state.key);
            assert!(is_kept || self.without.is_some(), "the model keeps too few pushes");
        }
        true
    }

    fn extend(&self, state: &mut State<N>, call: &Call) -> Reply {
        if state.key == 0 {
            if self.on(Rule::ExtendNeverCreates) {
                return Reply::Absent;
            }
            (state.key, state.fault) = (call.token, FAULT_CREATED);
        }
        if state.key != call.token && self.on(Rule::ExtendCompares) {
            return Reply::Nowhere;
        }
        state.ttl = LEASE;
        Reply::Yes
    }

    /// `release.lua`: with a token, with a wait, or with both.
    fn release(&self, state: &mut State<N>, call: &Call) -> Reply {
        if call.wait != 0 {
            remove(&mut state.queue, call.wait);
        }
        if state.key == 0 {
            return Reply::Absent;
        }
        let is_own_grant = call.wait != 0 && is_granted(state.key) && wait_of(state.key) == call.wait;
        let is_leave = matches!(call.kind, Kind::Leave | Kind::LeaveOnly);
        let is_own_grant = is_own_grant && (!is_leave || self.on(Rule::LeavePassesGrant));
        let is_its = call.token != 0 && state.key == call.token;
        if !is_its && !is_own_grant && (call.token == 0 || self.on(Rule::ReleaseCompares)) {
            return Reply::Nowhere;
        }
        if matches!(call.kind, Kind::Release | Kind::Leave) {
            while state.queue[0] != 0 {
                let first = state.queue[0];
                remove(&mut state.queue, first);
                if self.grant(state, first, call.random) {
                    return Reply::Yes;
                }
            }
        }
        (state.key, state.ttl) = (0, 0);
        Reply::Yes
    }
}
