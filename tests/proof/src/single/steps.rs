//! The steps of model (a).

use super::state::{Call, Kind, Line, Phase, State, Status, add, is_granted, remove, wait_of};
use super::{Rule, Single};
use crate::search::Told;

type Steps<const N: usize> = Vec<(Told, State<N>)>;

fn told(text: &'static str, client: usize, token: u16) -> Told {
    Told { text, client, server: 0, token }
}

fn sent(phase: Phase) -> &'static str {
    match phase {
        Phase::Asks => "{c}'s attempt is executed",
        Phase::RollsBack => "{c}'s roll-back is executed",
        Phase::Renews => "{c}'s renewal is executed",
        Phase::Releases => "{c}'s release is executed",
        _ => "{c}'s leave is executed",
    }
}

fn executed(kind: Kind) -> &'static str {
    match kind {
        Kind::Acquire => "{c}'s late attempt is executed",
        Kind::Extend => "{c}'s late renewal is executed",
        Kind::Release => "{c}'s late release is executed",
        Kind::Free => "{c}'s late roll-back is executed",
        _ => "{c}'s late leave is executed",
    }
}

fn is_same(one: &Call, other: &Call) -> bool {
    (one.kind, one.token, one.wait) == (other.kind, other.token, other.wait)
}

impl<const N: usize> Single<N> {
    pub(super) fn all_steps(&self, state: &State<N>, steps: &mut Steps<N>) {
        for c in 0..N {
            let client = &state.clients[c];
            if client.phase == Phase::Dead {
                if client.listens {
                    let mut after = *state;
                    after.clients[c].listens = false;
                    steps.push((told("the server notices that {c} is dead", c, 0), after));
                }
                continue;
            }
            if client.is_calling() {
                self.call_steps(state, c, steps);
            } else {
                self.own_steps(state, c, steps);
            }
            self.background_steps(state, c, steps);
            Self::failure_steps(state, c, steps);
            Self::unawaited_break_step(state, c, steps);
        }
        self.line_steps(state, steps);
        Self::time_steps(state, steps);
    }

    fn time_steps(state: &State<N>, steps: &mut Steps<N>) {
        let mut after = *state;
        after.tick();
        steps.push((told("a tick passes", 0, 0), after));
        if state.ttl == 1 {
            let mut after = *state;
            (after.key, after.ttl) = (0, 0);
            steps.push((told("the server's clock is fast: the key ends", 0, 0), after));
        }
    }

    /// Steps of a client that waits for a reply.
    fn call_steps(&self, state: &State<N>, c: usize, steps: &mut Steps<N>) {
        let client = &state.clients[c];
        match client.status {
            Status::Unsent => self.send_steps(state, c, steps),
            Status::Late if state.losses > 0 => Self::break_step(state, c, steps),
            Status::Answered(reply) => {
                let mut after = *state;
                self.outcome(&mut after, c, Some(reply));
                steps.push((told("{c} reads its late reply", c, client.token), after));
            }
            Status::Late | Status::Lost => {}
        }
        if client.status != Status::Unsent {
            let mut after = *state;
            self.outcome(&mut after, c, None);
            steps.push((told("{c} gives its call up", c, client.token), after));
        }
    }

    fn break_step(state: &State<N>, c: usize, steps: &mut Steps<N>) {
        let mut after = *state;
        if let Some(line) = after.living_line(c) {
            line.is_broken = true;
            after.losses -= 1;
            after.clients[c].status = Status::Unsent;
            after.clients[c].is_duplicate = true;
            steps.push((told("{c}'s connection breaks; its call may come, and is sent again", c, 0), after));
        }
    }

    fn send_steps(&self, state: &State<N>, c: usize, steps: &mut Steps<N>) {
        let call = Self::call(state, c);
        let (token, phase) = (state.clients[c].token, state.clients[c].phase);
        let mut behind = *state;
        if let Some(line) = behind.living_line(c) {
            if add(&mut line.calls, call) {
                behind.clients[c].status = Status::Late;
                steps.push((told("{c}'s next call goes behind its late call", c, token), behind));
            }
            return;
        }
        let mut done = *state;
        let reply = self.execute(&mut done, &call);
        let mut after = done;
        self.outcome(&mut after, c, Some(reply));
        steps.push((told(sent(phase), c, token), after));
        if state.lates > 0 {
            Self::late_step(state, c, call, steps);
        }
        if state.losses > 0 {
            let (text, heard) = ("{c}'s call is executed, and the reply is late or lost", Status::Answered(reply));
            for (text, mut after, status) in [("{c}'s call is lost", *state, Status::Lost), (text, done, heard)] {
                after.losses -= 1;
                after.clients[c].status = status;
                steps.push((told(text, c, token), after));
            }
            if !state.clients[c].is_duplicate {
                let mut after = done;
                after.losses -= 1;
                after.clients[c].is_duplicate = true;
                steps.push((told("{c}'s call is executed, the connection breaks before the reply", c, token), after));
            }
        }
    }

    fn late_step(state: &State<N>, c: usize, call: Call, steps: &mut Steps<N>) {
        let mut after = *state;
        if let Some(line) = after.lines.iter_mut().find(|line| line.calls[0].kind == Kind::None) {
            *line = Line { client: c as u8, ..Line::default() };
            line.calls[0] = call;
            after.lates -= 1;
            after.clients[c].status = Status::Late;
            steps.push((told("{c}'s call is late", c, call.token), after));
        }
    }

    /// Steps of a client that waits for no reply. What begins a call sends it too: a pause between the two is a call that
    /// is late.
    fn own_steps(&self, state: &State<N>, c: usize, steps: &mut Steps<N>) {
        let client = &state.clients[c];
        let mut call = |change: &dyn Fn(&mut State<N>)| {
            let mut begun = *state;
            change(&mut begun);
            if begun.clients[c].is_calling() {
                self.send_steps(&begun, c, steps);
            } else {
                steps.push((told("{c} gives up", c, 0), begun));
            }
        };
        match client.phase {
            Phase::Idle => {
                if client.listens {
                    call(&|after| self.begin(after, c, true));
                }
                if self.bounds.tries {
                    call(&|after| self.begin(after, c, false));
                }
            }
            Phase::Waits => {
                if client.listens {
                    call(&|after| self.attempt(after, c, false));
                    call(&|after| self.attempt(after, c, true));
                }
                call(&|after| self.leave(after, c));
                for push in client.pushes.into_iter().filter(|push| *push != 0 && wait_of(*push) == client.wait) {
                    self.push_steps(state, c, push, steps);
                }
            }
            Phase::Holds => {
                if client.deadline > 0 {
                    for is_long in [false, true].into_iter().take(1 + usize::from(self.bounds.extends)) {
                        call(&|after| {
                            (after.clients[c].phase, after.clients[c].is_long) = (Phase::Renews, is_long);
                            Self::send(after, c);
                        });
                    }
                }
                call(&|after| Self::begin_release(after, c));
            }
            _ => {}
        }
    }

    /// A wait reads a grant. It holds the lock, or makes an attempt.
    fn push_steps(&self, state: &State<N>, c: usize, push: u16, steps: &mut Steps<N>) {
        let mut after = *state;
        if self.read_push(&mut after, c, push) {
            steps.push((told("{c} reads its grant, and holds by it", c, push), after));
        } else {
            self.send_steps(&after, c, steps);
        }
    }

    fn read_push(&self, state: &mut State<N>, c: usize, push: u16) -> bool {
        let client = &mut state.clients[c];
        remove(&mut client.pushes, push);
        let holds = self.told(client, push);
        if !holds {
            self.attempt(state, c, false);
        }
        holds
    }

    /// What a client does beside its calls: late grants go back, releases are repeated.
    fn background_steps(&self, state: &State<N>, c: usize, steps: &mut Steps<N>) {
        let client = &state.clients[c];
        for push in client.pushes.into_iter().filter(|push| *push != 0) {
            // A push to the wait of an attempt under way is kept until the attempt is answered.
            if wait_of(push) == client.wait && !client.has_lease() {
                continue;
            }
            let mut after = *state;
            remove(&mut after.clients[c].pushes, push);
            // Behind a late call it would only come later.
            if after.living_line(c).is_some() {
                continue;
            }
            let is_held = client.has_lease() && client.token == push;
            if !is_held && self.on(Rule::LateGrantGivenBack) {
                self.execute(&mut after, &Call { kind: Kind::Release, token: push, ..Call::default() });
            }
            steps.push((told("{c} gives a late grant back", c, push), after));
        }
        for token in client.owed.into_iter().filter(|token| *token != 0) {
            let mut after = *state;
            let call = Call { kind: Kind::Free, token, ..Call::default() };
            if after.living_line(c).is_none() {
                self.execute(&mut after, &call);
                Self::owed_is_gone(&mut after.clients[c], token);
                steps.push((told("{c} repeats the release of {t}", c, token), after));
            }
        }
        for wait in client.owed_waits.into_iter().filter(|wait| *wait != 0) {
            let mut after = *state;
            let call = Call { kind: Kind::LeaveOnly, wait, ..Call::default() };
            if after.living_line(c).is_none() {
                self.execute(&mut after, &call);
                remove(&mut after.clients[c].owed_waits, wait);
                steps.push((told("{c} repeats its leave", c, 0), after));
            }
        }
    }

    fn failure_steps(state: &State<N>, c: usize, steps: &mut Steps<N>) {
        let client = &state.clients[c];
        let mut after = *state;
        if !client.listens {
            after.clients[c].listens = true;
            steps.push((told("{c} subscribes again", c, 0), after));
        } else if state.losses > 0 {
            (after.clients[c].listens, after.clients[c].pushes) = (false, [0; 3]);
            after.losses -= 1;
            steps.push((told("{c}'s push connection breaks, with what is unread", c, 0), after));
        }
        if state.deaths > 0 && client.phase != Phase::Idle {
            let mut after = *state;
            after.deaths -= 1;
            let client = &mut after.clients[c];
            *client = super::Client { phase: Phase::Dead, listens: client.listens, ..super::Client::default() };
            steps.push((told("{c} dies", c, 0), after));
        }
    }

    /// The connection of a late call breaks after its client has given the call up. What the client sends next does not
    /// wait behind it.
    fn unawaited_break_step(state: &State<N>, c: usize, steps: &mut Steps<N>) {
        let client = &state.clients[c];
        let is_awaited = client.is_calling() && client.status == Status::Late;
        let mut after = *state;
        if let Some(line) = after.living_line(c).filter(|_| state.losses > 0 && !is_awaited) {
            line.is_broken = true;
            after.losses -= 1;
            steps.push((told("{c}'s connection breaks; what it gave up may come", c, 0), after));
        }
    }

    /// Late calls are executed: in order, or in any order after a break.
    fn line_steps(&self, state: &State<N>, steps: &mut Steps<N>) {
        for (at, line) in state.lines.iter().enumerate() {
            let most = if line.is_broken { line.calls.len() } else { 1 };
            for call in line.calls.into_iter().take(most).filter(|call| call.kind != Kind::None) {
                let mut after = *state;
                self.execute_late(&mut after, at, call);
                steps.push((told(executed(call.kind), usize::from(line.client), call.token), after));
            }
        }
    }

    fn execute_late(&self, state: &mut State<N>, at: usize, call: Call) {
        let (c, is_broken) = (usize::from(state.lines[at].client), state.lines[at].is_broken);
        remove(&mut state.lines[at].calls, call);
        let is_last = state.lines[at].calls[0].kind == Kind::None;
        if is_last {
            state.lines[at] = Line::default();
            state.lines.sort_by_key(|line| line.calls[0].kind == Kind::None);
        }
        let reply = self.execute(state, &call);
        // Its own call is the last one that it sent.
        let is_awaited = !is_broken && is_last && state.clients[c].is_calling();
        if is_awaited && state.clients[c].status == Status::Late && is_same(&Self::call(state, c), &call) {
            self.outcome(state, c, Some(reply));
        }
    }

    // --- nothing goes wrong any more ---------------------------------------------------------------------------------

    /// Late calls come or are gone, replies are read, holders release, and waits try again when they may.
    pub(super) fn benign_step(&self, state: &State<N>) -> Option<State<N>> {
        if !state.clients.iter().any(super::Client::is_waiting) {
            return None;
        }
        let mut after = *state;
        if let Some(at) = state.lines.iter().position(|line| line.calls[0].kind != Kind::None) {
            let line = state.lines[at];
            if line.is_broken {
                after.lines[at] = Line::default();
                after.lines.sort_by_key(|line| line.calls[0].kind == Kind::None);
            } else {
                self.execute_late(&mut after, at, line.calls[0]);
            }
            return Some(after);
        }
        if let Some(after) = (0..N).find_map(|c| self.benign_step_of(state, c)) {
            return Some(after);
        }
        after.tick();
        Some(after)
    }

    fn may_take_grant(&self, key: u16, wait: u8) -> bool {
        is_granted(key) && wait_of(key) == wait && self.on(Rule::OwnGrantByAttempt)
    }

    fn benign_step_of(&self, state: &State<N>, c: usize) -> Option<State<N>> {
        let (client, mut after) = (&state.clients[c], *state);
        if client.phase == Phase::Dead || !client.listens {
            after.clients[c].listens = client.phase != Phase::Dead;
            return (after != *state).then_some(after);
        }
        if client.is_calling() {
            let reply = match client.status {
                Status::Unsent => Some(self.execute(&mut after, &Self::call(state, c))),
                Status::Answered(reply) => Some(reply),
                Status::Late | Status::Lost => None,
            };
            self.outcome(&mut after, c, reply);
            return Some(after);
        }
        let mut steps = Vec::new();
        self.background_steps(state, c, &mut steps);
        if let Some((_, after)) = steps.pop() {
            return Some(after);
        }
        match client.phase {
            Phase::Holds => Self::begin_release(&mut after, c),
            Phase::Waits => {
                if let Some(push) = client.pushes.into_iter().find(|push| *push != 0 && wait_of(*push) == client.wait) {
                    self.read_push(&mut after, c, push);
                } else if state.key == 0 || self.may_take_grant(state.key, client.wait) {
                    self.attempt(&mut after, c, false);
                } else {
                    return None;
                }
            }
            _ => return None,
        }
        Some(after)
    }
}
