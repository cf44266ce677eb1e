//! What a client makes of the votes of its rounds.

use super::state::{Call, Client, FAULT_FENCE, Kind, Phase, SERVERS, State, Vote, bit, granted, token};
use super::{Rule, Several};
use crate::evidence;
use crate::scripts::Reply;

impl<const N: usize> Several<N> {
    pub(super) fn call(client: &Client) -> Call {
        let kind = match client.phase {
            Phase::Asks => Kind::Acquire,
            Phase::Extends => Kind::Extend,
            Phase::Refills => Kind::Refill,
            Phase::Raises => Kind::Fence,
            Phase::Releases => Kind::Release,
            Phase::Unreserves => Kind::Unreserve,
            _ => Kind::Free,
        };
        let fence = if matches!(kind, Kind::Fence | Kind::Refill) { client.offered } else { 0 };
        Call { kind, token: client.token, fence }
    }

    /// Until when the lock is surely held: by the mark that ranks second.
    pub(super) fn deadline(&self, client: &Client) -> u8 {
        let need = if self.on(Rule::DeadlineOfMajority) { self.need() } else { 1 };
        evidence::deadline(&mut client.marks.clone(), need).unwrap_or(0)
    }

    pub(super) fn passes_check(&self, client: &Client) -> bool {
        client.has_lease() && client.phase != Phase::Releases && self.deadline(client) > 0
    }

    /// Begins a round with the servers that have these bits.
    pub(super) fn round(client: &mut Client, phase: Phase, asked: u8) {
        let vote = |server: usize| if asked >> server & 1 == 1 { Vote::Unsent } else { Vote::NotAsked };
        client.votes = [vote(0), vote(1), vote(2)];
        (client.phase, client.age, client.is_duplicate, client.fences) = (phase, 0, false, [0; SERVERS]);
    }

    pub(super) fn attempt(&self, state: &mut State<N>, c: usize) {
        if self.on(Rule::FreshTokens) || state.clients[c].token == 0 {
            let new = token(c, state.unused_serial(c));
            let client = &mut state.clients[c];
            (client.token, client.gone) = (new, client.gone & !bit(new));
            client.freed = client.freed.map(|freed| freed & !bit(new));
        }
        state.attempts = state.attempts.saturating_sub(u8::from(state.attempts != u8::MAX));
        Self::round(&mut state.clients[c], Phase::Asks, 7);
    }

    /// What follows once all votes are final.
    pub(super) fn conclude(&self, state: &mut State<N>, c: usize) {
        let is_open = |vote: &Vote| !matches!(vote, Vote::NotAsked | Vote::Got(_) | Vote::Unknown);
        if !state.clients[c].is_calling() || state.clients[c].votes.iter().any(is_open) {
            return;
        }
        match state.clients[c].phase {
            Phase::Asks => self.attempt_ended(state, c),
            Phase::Extends => self.extended(&mut state.clients[c]),
            Phase::Refills => self.refilled(&mut state.clients[c]),
            Phase::Raises => self.raised_fence(state, c),
            Phase::Releases => self.released(&mut state.clients[c]),
            Phase::Unreserves => Self::end(&mut state.clients[c]),
            _ => self.rolled_back(&mut state.clients[c]),
        }
    }

    fn end(client: &mut Client) {
        (client.phase, client.token, client.at, client.marks) = (Phase::Idle, 0, 0, [0; SERVERS]);
        (client.acquire_may_run, client.offered, client.is_fenced) = (false, 0, false);
    }

    fn left_of(&self, age: u8) -> u8 {
        self.usable().saturating_sub(if self.on(Rule::DeadlineFromStart) { age } else { 0 })
    }

    /// The servers with such a vote, as bits.
    fn servers(client: &Client, is_it: impl Fn(Vote) -> bool) -> u8 {
        (0..SERVERS).filter(|&server| is_it(client.votes[server])).fold(0, |all, server| all | 1 << server)
    }

    fn said_yes(client: &Client) -> u8 {
        Self::servers(client, |vote| vote == Vote::Got(Reply::Yes))
    }

    /// The servers whose yes counts: those that have not just restarted, unless all have.
    fn voters(&self, state: &State<N>, rule: Rule) -> u8 {
        let young = (0..SERVERS).filter(|&server| state.servers[server].young > 0).fold(0, |all, at| all | 1 << at);
        if self.on(rule) && young != 7 { 7 & !young } else { 7 }
    }

    /// `attempt`, `judge`, `hold`, `roll_back`.
    fn attempt_ended(&self, state: &mut State<N>, c: usize) {
        let voters = self.voters(state, Rule::RestartGuard);
        let client = &mut state.clients[c];
        let (yes, unknown) = (Self::said_yes(client), Self::servers(client, |vote| vote == Vote::Unknown));
        // A copy that broke off may come to a server that has answered "no" to another copy.
        let (counts, may_be_set) = (yes & voters, if client.is_duplicate { 7 } else { yes | unknown });
        let token_may_remain = client.is_duplicate || unknown | yes & !voters != 0;
        let left = self.left_of(client.age);
        if counts.count_ones() as usize >= self.need() && left > 0 {
            let mark = |server: usize| if counts >> server & 1 == 1 { left } else { 0 };
            client.marks = [mark(0), mark(1), mark(2)];
            (client.at, client.acquire_may_run, client.phase) = (may_be_set, token_may_remain, Phase::Holds);
            client.offered = Self::largest_fence(client, counts);
            return;
        }
        if !self.on(Rule::RollBack) {
            client.phase = Phase::Waits;
            return;
        }
        if token_may_remain {
            self.owe(client, may_be_set);
            client.leftovers |= bit(client.token);
        }
        Self::round(client, Phase::RollsBack, yes | unknown);
        client.at = may_be_set;
        self.conclude(state, c);
    }

    fn owe(&self, client: &mut Client, servers: u8) {
        for server in (0..SERVERS).filter(|server| servers >> server & 1 == 1) {
            client.owed[server] |= if self.on(Rule::RepeatedRelease) { bit(client.token) } else { 0 };
        }
    }

    fn rolled_back(&self, client: &mut Client) {
        let unknown = Self::servers(client, |vote| vote == Vote::Unknown);
        if unknown != 0 || client.is_duplicate {
            self.owe(client, client.at);
            client.leftovers |= bit(client.token);
        } else if client.leftovers & bit(client.token) == 0 {
            client.gone |= bit(client.token);
        }
        Self::note_freed(client);
        let kept = if self.on(Rule::FreshTokens) { 0 } else { client.token };
        Self::end(client);
        (client.phase, client.token) = (Phase::Waits, kept);
    }

    /// The servers that gave a definite answer to a release.
    fn note_freed(client: &mut Client) {
        for server in 0..SERVERS {
            let is_known = matches!(client.votes[server], Vote::Got(_));
            client.freed[server] |= if is_known { bit(client.token) } else { 0 };
        }
    }

    /// `VoteExpiry::apply` or `clear`: a yes raises the mark of its server, a definite no clears it.
    fn mark(&self, client: &mut Client, left: Option<u8>) {
        for server in 0..SERVERS {
            match client.votes[server] {
                Vote::Got(Reply::Yes) => client.marks[server] = client.marks[server].max(left.unwrap_or(0)),
                Vote::Got(_) if self.on(Rule::NoesClearMarks) => client.marks[server] = 0,
                _ => {}
            }
        }
    }

    /// `extending_round`, and `refill` where the token is missing.
    fn extended(&self, client: &mut Client) {
        let left = self.left_of(client.age);
        self.mark(client, Some(left));
        let is_won = Self::said_yes(client).count_ones() as usize >= self.need();
        let absent = Self::servers(client, |vote| vote == Vote::Got(Reply::Absent));
        let may_refill = is_won && self.deadline(client) > 0 || !self.on(Rule::RefillOnlyWithMajority);
        client.phase = Phase::Holds;
        if may_refill && absent != 0 {
            Self::round(client, Phase::Refills, absent);
        }
    }

    fn refilled(&self, client: &mut Client) {
        let is_unknown = client.votes.contains(&Vote::Unknown) && self.on(Rule::UnknownRefill);
        client.acquire_may_run |= client.is_duplicate || is_unknown;
        let filled = Self::servers(client, |vote| matches!(vote, Vote::Got(Reply::Yes) | Vote::Unknown));
        client.at |= if client.is_duplicate { 7 } else { filled };
        if !self.on(Rule::RefillRaisesNoVote) {
            // Refills are not timed.
            self.mark(client, Some(self.usable()));
        }
        client.phase = Phase::Holds;
    }

    /// The largest fence of these servers.
    fn largest_fence(client: &Client, of: u8) -> u8 {
        (0..SERVERS).filter(|server| of >> server & 1 == 1).map(|server| client.fences[server]).max().unwrap_or(0)
    }

    /// `fencing_token`: the fence is final once a majority has stored it.
    fn raised_fence(&self, state: &mut State<N>, c: usize) {
        let voters = self.voters(state, Rule::FenceGuard);
        let client = &mut state.clients[c];
        let yes = Self::said_yes(client) & voters;
        self.mark(client, None);
        client.phase = Phase::Holds;
        let need = if self.on(Rule::FenceOfMajority) { self.need() } else { 1 };
        let is_won = yes.count_ones() as usize >= need && self.deadline(client) > 0;
        if is_won && client.offered == 0 {
            client.offered = Self::largest_fence(client, yes);
            return Self::round(client, Phase::Raises, 7);
        }
        if is_won {
            client.is_fenced = true;
            let fence = client.offered;
            if fence <= state.fence {
                state.fault = FAULT_FENCE;
            }
            state.fence = fence;
        }
        if self.bounds.is_fence_late {
            // The next call begins anew.
            client.offered = 0;
        }
    }

    /// `conclude`, `follow_up`.
    fn released(&self, client: &mut Client) {
        let unknown = Self::servers(client, |vote| vote == Vote::Unknown);
        let is_gone = unknown & client.at == 0;
        if client.acquire_may_run || client.is_duplicate || !is_gone {
            client.leftovers |= bit(client.token);
        } else {
            client.gone |= bit(client.token);
        }
        Self::note_freed(client);
        // A server that is not asked again: a copy of the attempt may come there, as after a reply.
        for server in (0..SERVERS).filter(|server| client.at >> server & 1 == 0) {
            client.freed[server] |= bit(client.token);
        }
        // An attempt of unknown outcome may come where the first release did not find it.
        self.owe(client, unknown & client.at);
        let has = |reply: Reply| client.votes.contains(&Vote::Got(reply));
        if has(Reply::Reserved) && !has(Reply::Granted) && self.on(Rule::Unreserve) {
            Self::round(client, Phase::Unreserves, 7);
        } else {
            Self::end(client);
        }
    }

    /// The wrong rule: a wait takes a grant for the lock.
    pub(super) fn hold_by_grant(&self, state: &mut State<N>, c: usize) {
        let left = self.usable();
        let client = &mut state.clients[c];
        (client.phase, client.token, client.at, client.marks) = (Phase::Holds, granted(c), 7, [left; SERVERS]);
        client.is_told = false;
    }
}
