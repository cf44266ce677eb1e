//! The three servers: the names and the time of one of them for `scripts.rs`.

use super::state::{Call, FAULT_CREATED, Kind, Phase, State, THIS_TICK, granted, is_granted, owner};
use super::{Rule, Several};
use crate::scripts::{self, Attempt, Heard, Lock, Release, Reply, Span};

/// A server as it executes a call. A wait is known by its client.
struct Server<'a, const N: usize> {
    model: &'a Several<N>,
    state: &'a mut State<N>,
    at: usize,
}

impl<const N: usize> Several<N> {
    /// Executes a call of a client. Returns the reply, and the fence that comes with it.
    pub(super) fn execute(&self, state: &mut State<N>, c: usize, at: usize, call: &Call) -> (Reply, u8) {
        let (token, was_free) = (call.token, state.servers[at].key == 0);
        let mut server = Server { model: self, state, at };
        match call.kind {
            Kind::Acquire | Kind::Refill => {
                // A refill is an attempt without a wait.
                let is_attempt = call.kind == Kind::Acquire;
                let wait = is_attempt.then_some(c as u8);
                let overwrites = !is_attempt && !self.on(Rule::RefillOnlyFree);
                let attempt = Attempt { token, wait, is_last: false, is_fast: false };
                let reply = scripts::acquire(&mut server, &attempt, |_| overwrites);
                let raises = reply == Reply::Yes && !self.bounds.is_fence_late;
                (reply, if raises { self.raise(state, at, call) } else { 0 })
            }
            Kind::Extend => {
                let reply = scripts::extend(&mut server, token);
                if was_free && reply == Reply::Yes {
                    state.fault = FAULT_CREATED;
                }
                (reply, 0)
            }
            Kind::Fence => self.raise_fence(state, at, call),
            Kind::Unreserve => (scripts::unreserve(&mut server, |held| is_granted(*held)), 0),
            Kind::None | Kind::Release | Kind::Free => {
                let offers = call.kind == Kind::Release;
                // The holder's own wait.
                let wait = offers.then_some(c as u8);
                let release = Release { token: Some(token), wait, offers, keeps: false };
                (scripts::release(&mut server, &release), 0)
            }
        }
    }

    fn raise(&self, state: &mut State<N>, at: usize, call: &Call) -> u8 {
        let clock = if self.on(Rule::FenceTimeFloor) { THIS_TICK } else { 0 };
        let fence = &mut state.servers[at].fence;
        *fence = if self.bounds.fences { scripts::raised(*fence, call.fence, clock) } else { 0 };
        *fence
    }

    fn raise_fence(&self, state: &mut State<N>, at: usize, call: &Call) -> (Reply, u8) {
        let key = state.servers[at].key;
        if key != call.token {
            return (if key == 0 { Reply::Absent } else { Reply::Nowhere }, 0);
        }
        if call.fence == 0 || self.on(Rule::FenceWriteBack) {
            self.raise(state, at, call);
        }
        (Reply::Yes, state.servers[at].fence)
    }
}

impl<const N: usize> Server<'_, N> {
    fn server(&mut self) -> &mut super::state::Server {
        &mut self.state.servers[self.at]
    }

    fn queue(&self) -> u8 {
        self.state.servers[self.at].queue
    }
}

impl<const N: usize> Lock for Server<'_, N> {
    type Token = u8;
    type Wait = u8;

    fn is_several(&self) -> bool {
        true
    }

    fn obeys(&self, rule: scripts::Rule) -> bool {
        self.model.on(match rule {
            scripts::Rule::ExtendNeverCreates => Rule::ExtendNeverCreates,
            scripts::Rule::ExtendCompares => Rule::ExtendCompares,
            scripts::Rule::ReleaseCompares => Rule::ReleaseCompares,
            _ => return true,
        })
    }

    fn held(&self) -> Option<u8> {
        Some(self.state.servers[self.at].key).filter(|key| *key != 0)
    }

    fn set(&mut self, token: u8, span: Span) {
        // The span of a grant is not the lease: two node timeouts, here one tick less.
        let ttl = self.model.bounds.lease - u8::from(span == Span::Grant);
        (self.server().key, self.server().ttl) = (token, ttl);
    }

    fn lengthen(&mut self) {
        self.server().ttl = self.model.bounds.lease;
    }

    fn keep(&mut self) {}

    fn free(&mut self) {
        (self.server().key, self.server().ttl) = (0, 0);
    }

    fn granted_to(&self, token: &u8) -> Option<u8> {
        is_granted(*token).then(|| owner(*token) as u8)
    }

    fn grant_of(&self, wait: &u8) -> u8 {
        granted(usize::from(*wait))
    }

    fn publish(&mut self, wait: &u8) -> Heard {
        let is_heard = self.state.servers[self.at].is_listened_to;
        let client = &mut self.state.clients[usize::from(*wait)];
        if !is_heard || client.phase == Phase::Dead {
            return Heard::Nobody;
        }
        client.is_told = true;
        Heard::Somebody
    }

    fn nth(&self, place: usize) -> Option<u8> {
        (0..N as u8).filter(|client| self.queue() >> client & 1 == 1).nth(place)
    }

    fn is_queued(&self, wait: &u8) -> bool {
        self.queue() >> wait & 1 == 1
    }

    fn enter(&mut self, wait: &u8) {
        self.server().queue |= u8::from(self.model.bounds.queues) << wait;
    }

    fn take_out(&mut self, wait: &u8) {
        self.server().queue &= !(1 << wait);
    }

    fn drop_front(&mut self, many: usize) {
        for _ in 0..many {
            let queue = self.queue();
            self.server().queue = queue & queue.saturating_sub(1);
        }
    }
}
