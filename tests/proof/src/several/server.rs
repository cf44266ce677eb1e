//! The scripts with three servers, as one of them executes them.

use super::state::{Call, FAULT_CREATED, Kind, Phase, Reply, State, THIS_TICK, bit, granted, is_granted, owner};
use super::{Rule, Several};

impl<const N: usize> Several<N> {
    /// Executes a call of a client. Returns the reply, and the fence that comes with it.
    pub(super) fn execute(&self, state: &mut State<N>, c: usize, at: usize, call: &Call) -> (Reply, u8) {
        match call.kind {
            Kind::Acquire | Kind::Refill => self.acquire(state, c, at, call),
            Kind::Extend => (self.extend(state, at, call), 0),
            Kind::Fence => self.raise_fence(state, at, call),
            Kind::Unreserve => (Self::unreserve(state, at), 0),
            Kind::None | Kind::Release | Kind::Free => (self.release(state, c, at, call), 0),
        }
    }

    /// `acquire.lua` with `several`: any attempt may take a free lock. A refill is one without a wait.
    fn acquire(&self, state: &mut State<N>, c: usize, at: usize, call: &Call) -> (Reply, u8) {
        let is_attempt = call.kind == Kind::Acquire;
        let server = &mut state.servers[at];
        let held = server.key;
        let is_leftover = owner(held) == c && bit(held) & call.leftovers != 0;
        let is_own_grant = is_attempt && held == granted(c);
        let overwrites = !is_attempt && !self.on(Rule::RefillOnlyFree);
        if !(held == 0 || held == call.token || is_leftover || is_own_grant || overwrites) {
            if is_attempt && self.bounds.queues {
                server.queue |= 1 << c;
            }
            return (Reply::Taken, 0);
        }
        (server.key, server.ttl) = (call.token, self.bounds.lease);
        if is_attempt {
            server.queue &= !(1 << c);
        }
        let fence = if self.bounds.fences { self.raised(server.fence, call.fence) } else { 0 };
        server.fence = fence;
        (Reply::Yes, fence)
    }

    /// `raise` of `fence_counter.lua`.
    fn raised(&self, stored: u8, wanted: u8) -> u8 {
        let clock = if self.on(Rule::FenceTimeFloor) { THIS_TICK } else { 0 };
        if wanted == 0 { clock.max(stored + 1) } else { wanted.max(stored) }
    }

    fn raise_fence(&self, state: &mut State<N>, at: usize, call: &Call) -> (Reply, u8) {
        let server = &mut state.servers[at];
        if server.key != call.token {
            return (if server.key == 0 { Reply::Absent } else { Reply::Taken }, 0);
        }
        if self.on(Rule::FenceWriteBack) {
            server.fence = self.raised(server.fence, call.fence);
        }
        (Reply::Yes, server.fence)
    }

    fn extend(&self, state: &mut State<N>, at: usize, call: &Call) -> Reply {
        let server = &mut state.servers[at];
        if server.key == 0 {
            if self.on(Rule::ExtendNeverCreates) {
                return Reply::Absent;
            }
            server.key = call.token;
            state.fault = FAULT_CREATED;
        }
        let server = &mut state.servers[at];
        if server.key != call.token && self.on(Rule::ExtendCompares) {
            return Reply::Taken;
        }
        server.ttl = self.bounds.lease;
        Reply::Yes
    }

    /// `release.lua` with `several`: grants where a wait listens, reserves where none does.
    fn release(&self, state: &mut State<N>, c: usize, at: usize, call: &Call) -> Reply {
        let server = &mut state.servers[at];
        // The holder's own wait.
        if call.kind == Kind::Release {
            server.queue &= !(1 << c);
        }
        if server.key == 0 {
            return Reply::Absent;
        }
        if server.key != call.token && self.on(Rule::ReleaseCompares) {
            return Reply::Taken;
        }
        let heir = (0..N).find(|client| server.queue >> client & 1 == 1);
        let Some(heir) = heir.filter(|_| call.kind == Kind::Release) else {
            (server.key, server.ttl) = (0, 0);
            return Reply::Yes;
        };
        // The span of a grant is not the lease: two node timeouts, here one tick less.
        (server.key, server.ttl) = (granted(heir), self.bounds.lease - 1);
        if !server.is_listened_to || state.clients[heir].phase == Phase::Dead {
            return Reply::Reserved;
        }
        server.queue &= !(1 << heir);
        state.clients[heir].is_told = true;
        Reply::Granted
    }

    /// `unreserve.lua`.
    fn unreserve(state: &mut State<N>, at: usize) -> Reply {
        let server = &mut state.servers[at];
        if !is_granted(server.key) {
            return if server.key == 0 { Reply::Absent } else { Reply::Taken };
        }
        (server.key, server.ttl, server.queue) = (0, 0, 0);
        Reply::Yes
    }
}
