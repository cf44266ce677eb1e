//! The one server: its names and its time for `scripts.rs`.

use super::state::{
    Call, FAULT_CREATED, FAULT_OUT_OF_ORDER, Kind, Phase, State, add, client_of, granted, is_granted, remove, wait_of,
};
use super::{LEASE, Rule, Single};
use crate::scripts::{self, Attempt, Heard, Lock, Release, Reply, Span};

/// The server as it executes a call.
struct Server<'a, const N: usize> {
    model: &'a Single<N>,
    state: &'a mut State<N>,
    /// The lease that the call asks for.
    lease: u8,
}

fn some<T: Default + PartialEq>(number: T) -> Option<T> {
    Some(number).filter(|number| *number != T::default())
}

impl<const N: usize> Single<N> {
    pub(super) fn execute(&self, state: &mut State<N>, call: &Call) -> Reply {
        let before = *state;
        let mut server = Server { model: self, state, lease: LEASE + u8::from(call.is_long) };
        let wait = some(call.wait);
        let reply = match call.kind {
            Kind::Acquire => {
                let attempt = Attempt { token: call.token, wait, is_last: call.is_last, is_fast: false };
                scripts::acquire(&mut server, &attempt, |_| false)
            }
            Kind::Extend => scripts::extend(&mut server, call.token),
            Kind::None => Reply::Absent,
            Kind::Release | Kind::Free | Kind::Leave | Kind::LeaveOnly => {
                let offers = matches!(call.kind, Kind::Release | Kind::Leave);
                scripts::release(&mut server, &Release { token: some(call.token), wait, offers, keeps: false })
            }
        };
        if before.key == 0 && reply == Reply::Yes {
            match call.kind {
                Kind::Acquire => Self::judge_order(&before, state, call),
                Kind::Extend => state.fault = FAULT_CREATED,
                _ => {}
            }
        }
        // The client makes no difference between the two.
        if reply == Reply::Granted { Reply::Yes } else { reply }
    }

    /// The property: nobody takes a free lock while a wait whose client listens is before it.
    fn judge_order(before: &State<N>, state: &mut State<N>, call: &Call) {
        let is_alive = |wait: &&u8| **wait != 0 && before.clients[client_of(**wait)].listens;
        if before.queue.iter().take_while(|wait| **wait != call.wait).any(|wait| is_alive(&wait)) {
            state.fault = FAULT_OUT_OF_ORDER;
        }
    }
}

impl<const N: usize> Lock for Server<'_, N> {
    type Token = u16;
    type Wait = u8;

    fn is_several(&self) -> bool {
        false
    }

    fn obeys(&self, rule: scripts::Rule) -> bool {
        self.model.on(match rule {
            scripts::Rule::FirstComeFirstServed => Rule::FirstComeFirstServed,
            scripts::Rule::OwnGrantByAttempt => Rule::OwnGrantByAttempt,
            scripts::Rule::GrantToItsWait => Rule::GrantToItsWait,
            scripts::Rule::WonAttemptLeavesQueue => Rule::WonAttemptLeavesQueue,
            scripts::Rule::ExtendNeverCreates => Rule::ExtendNeverCreates,
            scripts::Rule::ExtendCompares => Rule::ExtendCompares,
            scripts::Rule::ReleaseCompares => Rule::ReleaseCompares,
            scripts::Rule::LeavePassesGrant => Rule::LeavePassesGrant,
        })
    }

    fn held(&self) -> Option<u16> {
        some(self.state.key)
    }

    fn set(&mut self, token: u16, span: Span) {
        let is_short = span == Span::Grant && !self.model.on(Rule::FullGrant);
        let span = if span == Span::Lease { self.lease } else { LEASE };
        (self.state.key, self.state.ttl) = (token, span - u8::from(is_short));
    }

    fn lengthen(&mut self) {
        let ttl = if self.model.on(Rule::NeverShortens) { self.state.ttl } else { 0 };
        self.state.ttl = ttl.max(self.lease);
    }

    fn keep(&mut self) {}

    fn free(&mut self) {
        (self.state.key, self.state.ttl) = (0, 0);
    }

    fn granted_to(&self, token: &u16) -> Option<u8> {
        is_granted(*token).then(|| wait_of(*token))
    }

    fn grant_of(&self, wait: &u8) -> u16 {
        granted(*wait)
    }

    fn publish(&mut self, wait: &u8) -> Heard {
        let token = granted(*wait);
        let client = &mut self.state.clients[client_of(*wait)];
        if !client.listens && self.model.on(Rule::DeadWaitsAreSkipped) {
            return Heard::Nobody;
        }
        if client.listens && client.phase != Phase::Dead {
            let is_kept = add(&mut client.pushes, token);
            assert!(is_kept || self.model.without.is_some(), "the model keeps too few pushes");
        }
        Heard::Somebody
    }

    fn nth(&self, place: usize) -> Option<u8> {
        self.state.queue.get(place).copied().and_then(some)
    }

    fn is_queued(&self, wait: &u8) -> bool {
        self.state.queue.contains(wait)
    }

    fn enter(&mut self, wait: &u8) {
        assert!(add(&mut self.state.queue, *wait), "the queue of the model is too short");
    }

    fn take_out(&mut self, wait: &u8) {
        remove(&mut self.state.queue, *wait);
    }

    fn drop_front(&mut self, many: usize) {
        for _ in 0..many {
            let first = self.state.queue[0];
            remove(&mut self.state.queue, first);
        }
    }
}
