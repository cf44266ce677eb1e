//! The steps of model (b).

use super::state::{Call, Client, Kind, Line, Phase, SERVERS, State, THIS_TICK, Vote, bit, is_granted, owner};
use super::{Rule, Several};
use crate::scripts::Reply;
use crate::search::Told;

type Steps<const N: usize> = Vec<(Told, State<N>)>;

fn told(text: &'static str, client: usize, server: usize) -> Told {
    Told { text, client, server, token: 0 }
}

fn executed(kind: Kind) -> &'static str {
    match kind {
        Kind::Acquire => "{s} executes {c}'s attempt",
        Kind::Refill => "{s} executes {c}'s refill",
        Kind::Extend => "{s} executes {c}'s extension",
        Kind::Fence => "{s} executes {c}'s call for its fence",
        Kind::Release => "{s} executes {c}'s release",
        Kind::Unreserve => "{s} executes {c}'s end of a reservation",
        _ => "{s} executes {c}'s roll-back",
    }
}

fn executed_late(kind: Kind) -> &'static str {
    match kind {
        Kind::Acquire => "{s} executes {c}'s late attempt",
        Kind::Refill => "{s} executes {c}'s late refill",
        Kind::Extend => "{s} executes {c}'s late extension",
        _ => "{s} executes another late call of {c}",
    }
}

impl<const N: usize> Several<N> {
    pub(super) fn all_steps(&self, state: &State<N>, steps: &mut Steps<N>) {
        for c in 0..N {
            let client = &state.clients[c];
            if client.phase == Phase::Dead {
                continue;
            }
            if client.is_stopped || state.stops > 0 && client.is_busy() {
                let mut after = *state;
                after.stops -= u8::from(!client.is_stopped);
                after.clients[c].is_stopped = !client.is_stopped;
                let text = if client.is_stopped { "{c} goes on" } else { "{c} stops" };
                steps.push((told(text, c, 0), after));
            }
            if client.is_stopped {
                continue;
            }
            if client.is_calling() {
                self.round_steps(state, c, steps);
            } else {
                self.own_steps(state, c, steps);
            }
            self.repeat_steps(state, c, steps);
            if state.deaths > 0 && client.phase != Phase::Idle {
                let mut after = *state;
                after.deaths -= 1;
                after.clients[c] = Client { phase: Phase::Dead, ..Client::default() };
                steps.push((told("{c} dies", c, 0), after));
            }
        }
        self.line_steps(state, steps);
        self.server_steps(state, steps);
        if !state.clients.iter().any(Client::is_busy) {
            let mut after = *state;
            after.tick(self.bounds.lease, self.on(Rule::FenceTimeFloor) && self.bounds.fences);
            steps.push((told("a tick passes", 0, 0), after));
        }
    }

    fn server_steps(&self, state: &State<N>, steps: &mut Steps<N>) {
        for at in 0..SERVERS {
            if state.servers[at].ttl == 1 {
                let mut after = *state;
                (after.servers[at].key, after.servers[at].ttl) = (0, 0);
                steps.push((told("the clock of {s} is fast: its key ends", 0, at), after));
            }
            if state.restarts > 0 {
                let mut after = *state;
                after.restarts -= 1;
                let server = &mut after.servers[at];
                (server.key, server.ttl, server.queue, server.fence) = (0, 0, 0, 0);
                server.young = self.bounds.lease;
                // What is on its way on a connection does not come to the next process.
                if usize::from(after.line.server) == at {
                    after.line = Line::default();
                }
                steps.push((told("{s} restarts without its data", 0, at), after));
            }
        }
    }

    /// Steps of a client that waits for votes: for each server one.
    fn round_steps(&self, state: &State<N>, c: usize, steps: &mut Steps<N>) {
        let votes = state.clients[c].votes;
        for (at, vote) in votes.into_iter().enumerate() {
            match vote {
                Vote::Unsent => self.send_steps(state, c, at, steps),
                Vote::Answered(reply) => {
                    let mut after = *state;
                    after.clients[c].votes[at] = Vote::Got(reply);
                    self.conclude(&mut after, c);
                    steps.push((told("{c} reads the late reply of {s}", c, at), after));
                }
                // The line may have broken with the server.
                Vote::Late if state.losses > 0 || !state.line.is_before(c, at) => {
                    let mut after = *state;
                    after.losses -= u8::from(state.line.is_before(c, at));
                    after.line.is_broken = after.line.is_some();
                    after.clients[c].votes[at] = Vote::Unsent;
                    after.clients[c].is_duplicate = true;
                    steps.push((told("{c}'s connection to {s} breaks; its call is sent again", c, at), after));
                }
                _ => {}
            }
        }
        let is_unanswered = |vote: &Vote| matches!(vote, Vote::Late | Vote::Answered(_));
        if !votes.contains(&Vote::Unsent) && votes.iter().any(is_unanswered) {
            let mut after = *state;
            self.give_up(&mut after, c);
            steps.push((told("{c} gives up what is not answered", c, 0), after));
        }
    }

    /// Executes a call. Of two replies that mean the same to the client, one stands for both.
    fn answer(&self, state: &mut State<N>, c: usize, at: usize, call: &Call) -> (Reply, u8) {
        let (reply, fence) = self.execute(state, c, at, call);
        match (call.kind, reply) {
            (Kind::Free | Kind::Release | Kind::Unreserve, Reply::Nowhere | Reply::Absent) => (Reply::Yes, fence),
            (Kind::Fence, Reply::Absent) | (Kind::Acquire | Kind::Refill, Reply::New | Reply::Kept) => {
                (Reply::Nowhere, fence)
            }
            _ => (reply, fence),
        }
    }

    fn give_up(&self, state: &mut State<N>, c: usize) {
        let is_unanswered = |vote: &Vote| matches!(vote, Vote::Late | Vote::Answered(_));
        state.clients[c].votes.iter_mut().filter(|vote| is_unanswered(vote)).for_each(|vote| *vote = Vote::Unknown);
        self.conclude(state, c);
    }

    fn answered(&self, state: &mut State<N>, c: usize, at: usize, (reply, fence): (Reply, u8)) {
        (state.clients[c].votes[at], state.clients[c].fences[at]) = (Vote::Got(reply), fence);
        self.conclude(state, c);
    }

    fn send_steps(&self, state: &State<N>, c: usize, at: usize, steps: &mut Steps<N>) {
        let call = Self::call(&state.clients[c]);
        let with = |from: &State<N>, vote: Vote| {
            let mut after = *from;
            after.clients[c].votes[at] = vote;
            after
        };
        if state.line.is_before(c, at) {
            let mut after = with(state, Vote::Late);
            // There is no end of calls that may wait behind a late one. What has no room is not sent.
            if !after.line.push(call) {
                after.clients[c].votes[at] = Vote::Unknown;
                self.conclude(&mut after, c);
            }
            steps.push((told("{c}'s next call to {s} goes behind its late call", c, at), after));
            return;
        }
        let mut done = *state;
        let answer = self.answer(&mut done, c, at, &call);
        done.clients[c].fences[at] = answer.1;
        let mut after = done;
        self.answered(&mut after, c, at, answer);
        steps.push((told(executed(call.kind), c, at), after));
        if state.lates > 0 && !state.line.is_some() {
            let mut after = with(state, Vote::Late);
            after.line = Line { client: c as u8, server: at as u8, ..Line::default() };
            after.line.calls[0] = call;
            after.lates -= 1;
            steps.push((told("{c}'s call to {s} is late", c, at), after));
        }
        if state.losses > 0 {
            let mut lost = with(state, Vote::Unknown);
            self.conclude(&mut lost, c);
            Self::loss_steps(&lost, &with(&done, Vote::Answered(answer.0)), &done, (c, at), steps);
        }
    }

    fn loss_steps(lost: &State<N>, unheard: &State<N>, done: &State<N>, at: (usize, usize), steps: &mut Steps<N>) {
        let (c, server) = at;
        let mut step = |text, from: &State<N>, change: &dyn Fn(&mut Client)| {
            let mut after = *from;
            after.losses -= 1;
            change(&mut after.clients[c]);
            steps.push((told(text, c, server), after));
        };
        step("{c}'s call to {s} is lost", lost, &|_| ());
        step("{s} executes {c}'s call, and the reply is late or lost", unheard, &|_| ());
        if !done.clients[c].is_duplicate {
            step("{s} executes {c}'s call, the connection breaks before the reply", done, &|client| {
                client.is_duplicate = true;
            });
        }
    }

    fn own_steps(&self, state: &State<N>, c: usize, steps: &mut Steps<N>) {
        let client = &state.clients[c];
        let mut step = |text, change: &dyn Fn(&mut State<N>)| {
            let mut after = *state;
            change(&mut after);
            self.conclude(&mut after, c);
            steps.push((told(text, c, 0), after));
        };
        // Without the floor of the clock, fences are numbers, and the search ends somewhere.
        let has_room = state.servers.iter().all(|server| server.fence < THIS_TICK + 6);
        match client.phase {
            Phase::Idle | Phase::Waits => {
                if state.attempts > 0 && has_room {
                    step("{c} makes an attempt", &|after| self.attempt(after, c));
                }
                if client.is_told && !self.on(Rule::GrantIsNoLock) {
                    step("{c} takes its grant for the lock", &|after| self.hold_by_grant(after, c));
                }
            }
            Phase::Holds => {
                let has_time = self.deadline(client) > 0;
                if has_time && self.bounds.extends {
                    step("{c} extends", &|after| Self::round(&mut after.clients[c], Phase::Extends, 7));
                }
                if has_time && self.bounds.fences && !client.is_fenced {
                    step("{c} asks for its fence", &|after| Self::round(&mut after.clients[c], Phase::Raises, 7));
                }
                step("{c} releases", &|after| Self::round(&mut after.clients[c], Phase::Releases, 7));
            }
            _ => {}
        }
    }

    /// Releases that are repeated in the background, where no call of this client is late.
    fn repeat_steps(&self, state: &State<N>, c: usize, steps: &mut Steps<N>) {
        for at in 0..SERVERS {
            let owed = state.clients[c].owed[at];
            if owed == 0 || state.line.is_before(c, at) {
                continue;
            }
            let mut after = *state;
            let token = super::state::token(c, owed.trailing_zeros() as u8);
            self.execute(&mut after, c, at, &Call { kind: Kind::Free, token, ..Call::default() });
            after.clients[c].owed[at] &= !bit(token);
            after.clients[c].freed[at] |= bit(token);
            steps.push((told("{c} repeats a release at {s}", c, at), after));
        }
    }

    /// The connection of a late call breaks after its client has given the call up. What the client sends next does not
    /// wait behind it.
    fn break_step(state: &State<N>, steps: &mut Steps<N>) {
        let (c, at) = (usize::from(state.line.client), usize::from(state.line.server));
        let client = &state.clients[c];
        let is_awaited = client.phase == Phase::Dead || client.votes[at] == Vote::Late;
        if state.losses > 0 && state.line.is_before(c, at) && !is_awaited {
            let mut after = *state;
            (after.line.is_broken, after.losses) = (true, state.losses - 1);
            steps.push((told("{c}'s connection to {s} breaks; what it gave up may come", c, at), after));
        }
    }

    /// Late calls are executed: in order, or in any order after a break.
    fn line_steps(&self, state: &State<N>, steps: &mut Steps<N>) {
        Self::break_step(state, steps);
        let most = if state.line.is_broken { state.line.calls.len() } else { 1 };
        for place in (0..most).filter(|&place| state.line.calls[place].is_some()) {
            let mut after = *state;
            self.execute_late(&mut after, place);
            let (c, at) = (usize::from(state.line.client), usize::from(state.line.server));
            steps.push((told(executed_late(state.line.calls[place].kind), c, at), after));
        }
    }

    fn execute_late(&self, state: &mut State<N>, place: usize) {
        let (c, at, is_broken) = (usize::from(state.line.client), usize::from(state.line.server), state.line.is_broken);
        let call = state.line.take(place);
        let answer = self.answer(state, c, at, &call);
        let is_awaited = !is_broken && !state.line.is_some() && state.clients[c].votes[at] == Vote::Late;
        if is_awaited && Self::call(&state.clients[c]).kind == call.kind && state.clients[c].token == call.token {
            self.answered(state, c, at, answer);
        }
    }

    // --- nothing goes wrong any more ---------------------------------------------------------------------------------

    /// Late calls come or are gone, rounds end, holders release; when all is quiet, a wait makes an attempt.
    pub(super) fn benign_step(&self, state: &State<N>) -> Option<State<N>> {
        if !state.clients.iter().any(Client::is_waiting) {
            return None;
        }
        let mut after = *state;
        if state.line.is_some() {
            if state.line.is_broken {
                after.line = Line::default();
            } else {
                self.execute_late(&mut after, 0);
            }
            return Some(after);
        }
        for c in 0..N {
            let client = &state.clients[c];
            if client.is_stopped {
                after.clients[c].is_stopped = false;
                return Some(after);
            }
            if client.is_calling() {
                match client.votes.iter().position(|vote| *vote == Vote::Unsent) {
                    Some(at) => {
                        let answer = self.answer(&mut after, c, at, &Self::call(client));
                        self.answered(&mut after, c, at, answer);
                    }
                    None => self.give_up(&mut after, c),
                }
                return Some(after);
            }
            let mut steps = Vec::new();
            self.repeat_steps(state, c, &mut steps);
            if let Some((_, after)) = steps.pop() {
                return Some(after);
            }
            if client.phase == Phase::Holds {
                Self::round(&mut after.clients[c], Phase::Releases, 7);
                return Some(after);
            }
        }
        let is_quiet = state.servers.iter().all(|server| server.key == 0 && server.young == 0);
        match state.clients.iter().position(|client| client.phase == Phase::Waits).filter(|_| is_quiet) {
            Some(c) => self.attempt(&mut after, c),
            None => after.tick(self.bounds.lease, self.on(Rule::FenceTimeFloor) && self.bounds.fences),
        }
        Some(after)
    }

    // --- what a reader sees ------------------------------------------------------------------------------------------

    pub(super) fn all_premises(&self, state: &State<N>) -> u32 {
        let any = |is_so: &dyn Fn(&Client) -> bool| state.clients.iter().any(is_so);
        let (keys, line) = (state.servers.map(|server| server.key), &state.line);
        let is_dead = |key: u8| bit(key) != 0 && state.clients[owner(key)].phase == Phase::Dead;
        let is_missing = |client: &Client| {
            self.passes_check(client) && client.phase == Phase::Holds && keys.iter().any(|key| *key != client.token)
        };
        let all = [
            any(&|client| self.passes_check(client)),
            any(&|client| self.passes_check(client)) && any(&Client::is_waiting),
            line.is_some() && !line.is_broken,
            line.is_some() && line.is_broken,
            any(&|client| client.gone != 0),
            any(&|client| client.owed != [0; SERVERS]),
            any(&|client| client.leftovers != 0),
            keys.iter().any(|key| is_dead(*key)),
            any(&|client| client.phase == Phase::Holds && self.deadline(client) == 0),
            state.servers.iter().any(|server| server.young > 0),
            any(&is_missing),
            keys.iter().any(|key| is_granted(*key)),
            any(&|client| client.is_duplicate),
            state.fence > 1 && any(&|client| client.is_fenced),
        ];
        all.iter().enumerate().fold(0, |bits, (i, is_so)| bits | u32::from(*is_so) << i)
    }

    pub(super) fn told(&self, told: Told, after: &State<N>) -> String {
        let name = |client: usize| char::from(b'A' + client as u8);
        let text = told.text.replace("{c}", &name(told.client).to_string());
        let text = text.replace("{s}", &format!("server {}", told.server + 1));
        let key = |server: &super::state::Server| match server.key {
            0 => "-".to_owned(),
            key if is_granted(key) => format!("for {}:{}", name(owner(key)), server.ttl),
            key => format!("{}{}:{}", name(owner(key)), key & 7, server.ttl),
        };
        let keys = after.servers.iter().map(key).collect::<Vec<_>>().join(" ");
        let holds = |c: &usize| self.passes_check(&after.clients[*c]);
        let holder = |c: usize| format!("{} for {}", name(c), self.deadline(&after.clients[c]));
        let holders: Vec<String> = (0..N).filter(holds).map(holder).collect();
        let holders = if holders.is_empty() { String::new() } else { format!("; holds: {}", holders.join(", ")) };
        let fences = after.servers.map(|server| server.fence);
        let fences =
            if self.bounds.fences { format!("; fences {fences:?}, last {}", after.fence) } else { String::new() };
        format!("{text:<66} | {keys}{holders}{fences}")
    }
}
