//! What a client makes of the outcome of its calls: `acquire.rs`, `acquire/attempt.rs`, `handover/grant.rs`,
//! `lease/inner`.

use super::state::{
    Call, Client, Kind, NEVER, Phase, State, Status, add, attempt_token, bit, remove, wait_id, wait_of,
};
use super::{LEASE, Rule, Single};
use crate::evidence;
use crate::scripts::Reply;

impl<const N: usize> Single<N> {
    /// The call that the client waits for.
    pub(super) fn call(state: &State<N>, c: usize) -> Call {
        let client = &state.clients[c];
        let Client { token, wait, is_last, is_long, .. } = *client;
        let kind = match client.phase {
            Phase::Asks => Kind::Acquire,
            Phase::RollsBack => Kind::Free,
            Phase::Renews => Kind::Extend,
            Phase::Releases => Kind::Release,
            _ => Kind::Leave,
        };
        let is_attempt = kind == Kind::Acquire;
        let names_wait = is_attempt || kind == Kind::Leave || kind == Kind::Release && client.wait_may_remain;
        Call {
            kind,
            token: if kind == Kind::Leave { 0 } else { token },
            wait: if names_wait { wait } else { 0 },
            is_last: is_last && is_attempt,
            is_long: is_long && kind == Kind::Extend,
        }
    }

    /// A call of `lock()`, or of `try_lock()`, which does not wait.
    pub(super) fn begin(&self, state: &mut State<N>, c: usize, waits: bool) {
        let wait = if waits { wait_id(c, state.unused_call(c)) } else { 0 };
        let client = &mut state.clients[c];
        client.wait = wait;
        (client.queued, client.is_certain, client.wait_may_remain) = (NEVER, true, false);
        self.attempt(state, c, false);
    }

    pub(super) fn attempt(&self, state: &mut State<N>, c: usize, is_last: bool) {
        // Without the rule, all attempts of a call have one token.
        if self.on(Rule::FreshTokens) || state.clients[c].token == 0 {
            let token = attempt_token(c, state.unused_serial(c));
            let client = &mut state.clients[c];
            (client.freed, client.gone) = (client.freed & !bit(token), client.gone & !bit(token));
            client.token = token;
        }
        (state.clients[c].phase, state.clients[c].is_last) = (Phase::Asks, is_last);
        Self::send(state, c);
    }

    /// Prepares a call.
    pub(super) fn send(state: &mut State<N>, c: usize) {
        let client = &mut state.clients[c];
        (client.status, client.age, client.is_duplicate) = (Status::Unsent, 0, false);
    }

    /// The call has a reply, or is given up (`None`).
    pub(super) fn outcome(&self, state: &mut State<N>, c: usize, reply: Option<Reply>) {
        match state.clients[c].phase {
            Phase::Asks => self.attempt_ended(state, c, reply),
            Phase::RollsBack => self.rolled_back(state, c, reply),
            Phase::Renews => self.renewed(&mut state.clients[c], reply),
            Phase::Releases => self.released(&mut state.clients[c], reply),
            _ => self.left(&mut state.clients[c], reply),
        }
        let client = &mut state.clients[c];
        if !client.is_calling() {
            (client.age, client.is_duplicate, client.status) = (0, false, Status::Unsent);
            client.is_long = false;
        }
    }

    fn left(&self, client: &mut Client, reply: Option<Reply>) {
        if reply.is_none() || client.is_duplicate || client.wait_may_remain {
            self.owe_leave(client);
        }
        Self::end_call(client);
    }

    /// `remove_ended_wait`.
    fn owe_leave(&self, client: &mut Client) {
        if client.wait != 0 && self.on(Rule::LeaveRepeated) {
            add(&mut client.owed_waits, client.wait);
        }
    }

    fn end_call(client: &mut Client) {
        (client.phase, client.token, client.is_last) = (Phase::Idle, 0, false);
        (client.wait, client.queued, client.is_certain) = (0, NEVER, true);
        (client.wait_may_remain, client.acquire_may_run, client.deadline) = (false, false, 0);
    }

    /// What is left of a lease, by a call that began so long ago.
    fn left_of(&self, age: u8, is_long: bool) -> u8 {
        (self.usable() + u8::from(is_long)).saturating_sub(if self.on(Rule::DeadlineFromStart) { age } else { 0 })
    }

    /// `Attempt::judge`: a yes in time is a lease.
    fn attempt_ended(&self, state: &mut State<N>, c: usize, reply: Option<Reply>) {
        let client = &mut state.clients[c];
        let left = self.left_of(client.age, false);
        if reply == Some(Reply::Yes) && left > 0 {
            client.deadline = left;
            client.phase = Phase::Holds;
            client.acquire_may_run = client.is_duplicate;
            client.wait_may_remain |= client.is_duplicate && client.wait != 0;
            (client.is_last, client.queued, client.is_certain) = (false, NEVER, true);
            return;
        }
        self.record(client, reply);
        // An attempt that was sent twice may still be executed.
        if reply.is_none() || client.is_duplicate {
            self.owe(client);
        }
        if matches!(reply, None | Some(Reply::Yes)) && self.on(Rule::RollBack) {
            client.phase = Phase::RollsBack;
            return Self::send(state, c);
        }
        let is_clean = matches!(reply, Some(Reply::Nowhere)) && !client.is_duplicate;
        self.next_after_attempt(state, c, is_clean);
    }

    /// `GrantEvidence::record`.
    fn record(&self, client: &mut Client, reply: Option<Reply>) {
        let was_queued = client.queued != NEVER;
        client.is_certain &= evidence::stays_certain(reply, client.is_duplicate, was_queued, |rule| self.on(rule));
        client.wait_may_remain |= client.wait != 0 && (reply.is_none() || client.is_duplicate);
        if matches!(reply, Some(Reply::New | Reply::Kept)) {
            client.queued = client.age;
        }
    }

    /// `Attempt::add_pending`.
    fn owe(&self, client: &mut Client) {
        if self.on(Rule::RollBack) {
            add(&mut client.owed, client.token);
            add(&mut client.leftovers, client.token);
        }
    }

    fn rolled_back(&self, state: &mut State<N>, c: usize, reply: Option<Reply>) {
        let client = &mut state.clients[c];
        if reply.is_none() || client.is_duplicate {
            self.owe(client);
        } else {
            client.freed |= bit(client.token);
            if !client.leftovers.contains(&client.token) {
                client.gone |= bit(client.token);
            }
        }
        self.next_after_attempt(state, c, false);
    }

    /// `is_clean`: the last attempt has taken the wait out.
    fn next_after_attempt(&self, state: &mut State<N>, c: usize, is_clean: bool) {
        let client = &mut state.clients[c];
        if client.wait != 0 && !client.is_last {
            client.phase = Phase::Waits;
            client.token = if self.on(Rule::FreshTokens) { 0 } else { client.token };
        } else if client.wait != 0 && !is_clean {
            self.leave(state, c);
        } else {
            if client.wait_may_remain {
                self.owe_leave(client);
            }
            Self::end_call(client);
        }
    }

    /// `leave_queues`.
    pub(super) fn leave(&self, state: &mut State<N>, c: usize) {
        let client = &mut state.clients[c];
        if !self.on(Rule::LeavesQueue) {
            return Self::end_call(client);
        }
        (client.phase, client.token, client.is_last) = (Phase::Leaves, 0, false);
        (client.queued, client.is_certain) = (NEVER, true);
        Self::send(state, c);
    }

    fn renewed(&self, client: &mut Client, reply: Option<Reply>) {
        client.phase = Phase::Holds;
        match reply {
            Some(Reply::Yes) => {
                client.deadline = client.deadline.max(self.left_of(client.age, client.is_long));
            }
            Some(_) => client.deadline = 0,
            None => {}
        }
    }

    pub(super) fn begin_release(state: &mut State<N>, c: usize) {
        (state.clients[c].phase, state.clients[c].deadline) = (Phase::Releases, 0);
        Self::send(state, c);
    }

    /// `LeaseInner::conclude`, `follow_up`, and `DroppedLock::answered`.
    fn released(&self, client: &mut Client, reply: Option<Reply>) {
        let is_unknown = reply.is_none();
        if is_unknown && self.on(Rule::RepeatedRelease) {
            add(&mut client.owed, client.token);
        }
        if is_unknown || client.is_duplicate || client.acquire_may_run {
            add(&mut client.leftovers, client.token);
        } else {
            client.gone |= bit(client.token);
        }
        if !is_unknown {
            client.freed |= bit(client.token);
        }
        if client.wait_may_remain {
            self.owe_leave(client);
        }
        Self::end_call(client);
    }

    /// `lease_from_grant`: the wait was told of a grant. True if it holds the lock by it.
    pub(super) fn told(&self, client: &mut Client, push: u16) -> bool {
        let since = if self.on(Rule::GrantSinceLastAttempt) { client.queued } else { 0 };
        let left = self.usable().saturating_sub(since.min(LEASE));
        if client.wait != wait_of(push) || !client.is_certain || client.queued == NEVER || left == 0 {
            return false;
        }
        (client.phase, client.token, client.deadline) = (Phase::Holds, push, left);
        client.queued = NEVER;
        true
    }

    /// A repeated release got a definite answer.
    pub(super) fn owed_is_gone(client: &mut Client, token: u16) {
        remove(&mut client.owed, token);
        client.freed |= bit(token);
    }
}
