//! The state of model (a).
//!
//! A token is a number: that of an attempt has its client and its serial number, that of a grant has the wait. A wait is a
//! number too: its client and its call.
//!
//! A name that stands nowhere any more is used again. So the number of calls and attempts has no bound. The library draws
//! names that never come back; here a name comes back when nobody can tell it from a new one. A token is forgotten by
//! those who only remember it (leftover tokens, repeated releases) once no key and no call has it: nothing can set it.

use super::LEASE;
use crate::scripts::Reply;

pub(super) const FAULT_OUT_OF_ORDER: u8 = 1;
pub(super) const FAULT_CREATED: u8 = 2;
/// Lines of late calls: as many as there may be late calls.
pub(super) const LINES: usize = 1;
/// No attempt has found the wait in the queue.
pub(super) const NEVER: u8 = 255;

#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) enum Phase {
    #[default]
    Idle,
    /// An attempt is under way.
    Asks,
    /// The roll-back of an attempt.
    RollsBack,
    /// It sleeps until a push or a timer.
    Waits,
    Holds,
    Renews,
    Releases,
    Leaves,
    Dead,
}

/// The call that the client waits for.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) enum Status {
    #[default]
    Unsent,
    /// In the line, or behind another call there.
    Late,
    /// No reply will come.
    Lost,
    /// Executed; the reply is under way.
    Answered(Reply),
}

#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) enum Kind {
    #[default]
    None,
    Acquire,
    Extend,
    /// Offers the lock to the first wait.
    Release,
    /// A roll-back, or a release that is repeated: offers nothing.
    Free,
    Leave,
    /// A leave that is repeated: passes nothing on.
    LeaveOnly,
}

/// A call on its way.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Call {
    pub(super) kind: Kind,
    pub(super) token: u16,
    pub(super) wait: u8,
    /// It does not enter the queue.
    pub(super) is_last: bool,
    /// An extension asks for one tick more than a lease.
    pub(super) is_long: bool,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Client {
    pub(super) phase: Phase,
    pub(super) status: Status,
    /// Ticks since the start of the call that it waits for.
    pub(super) age: u8,
    /// The call was sent twice.
    pub(super) is_duplicate: bool,
    pub(super) is_last: bool,
    pub(super) is_long: bool,
    /// The wait of the call of `lock()` under way; 0: none.
    pub(super) wait: u8,
    /// Evidence: ticks since the start of the last attempt that found the wait queued, and whether all is certain.
    pub(super) queued: u8,
    pub(super) is_certain: bool,
    pub(super) wait_may_remain: bool,
    /// The token of the attempt or of the lease.
    pub(super) token: u16,
    /// Ticks for which `check` is `Ok`.
    pub(super) deadline: u8,
    pub(super) acquire_may_run: bool,
    /// Tokens that may still be set.
    pub(super) leftovers: [u16; 2],
    /// Tokens whose release is repeated, and a wait whose leave is.
    pub(super) owed: [u16; 2],
    pub(super) owed_waits: [u8; 2],
    /// The serial numbers of its tokens that a reply called gone, and of those that cannot come back either.
    pub(super) freed: u16,
    pub(super) gone: u16,
    /// Grants that were published to it.
    pub(super) pushes: [u16; 3],
    /// The server delivers pushes to it.
    pub(super) listens: bool,
}

/// The calls of one client that wait at the server, in the order in which they were sent.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct Line {
    pub(super) client: u8,
    pub(super) is_broken: bool,
    pub(super) calls: [Call; 3],
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct State<const N: usize> {
    pub(super) key: u16,
    pub(super) ttl: u8,
    pub(super) queue: [u8; 6],
    pub(super) clients: [Client; N],
    /// Lines of late calls. The latest is the last one.
    pub(super) lines: [Line; LINES],
    pub(super) losses: u8,
    pub(super) lates: u8,
    pub(super) deaths: u8,
    pub(super) fault: u8,
}

type Numbers = [[u8; 16]; 3];

const GRANTED: u16 = 0x8000;

pub(super) fn attempt_token(client: usize, serial: u8) -> u16 {
    0x80 | (client as u16) << 4 | u16::from(serial)
}

/// A wait brings the token of its grant into the queue. So each grant to it has the same token.
pub(super) fn granted(wait: u8) -> u16 {
    GRANTED | u16::from(wait) << 8
}

pub(super) fn is_granted(token: u16) -> bool {
    token & GRANTED != 0
}

pub(super) fn wait_of(token: u16) -> u8 {
    (token >> 8) as u8 & 0x7f
}

pub(super) fn wait_id(client: usize, call: u8) -> u8 {
    0x40 | (client as u8) << 4 | call
}

/// The client of a wait, or of a token of an attempt.
pub(super) fn client_of(id: u8) -> usize {
    usize::from(id >> 4 & 3)
}

/// The client that may have a token: that of its attempt, or of its wait.
pub(super) fn owner(token: u16) -> usize {
    if is_granted(token) { client_of(wait_of(token)) } else { client_of(token as u8) }
}

/// The bit of a token of an attempt.
pub(super) fn bit(token: u16) -> u16 {
    if token == 0 || is_granted(token) { 0 } else { 1 << (token & 15) }
}

pub(super) fn add<T: Copy + PartialEq + Default>(list: &mut [T], one: T) -> bool {
    if list.contains(&one) {
        return true;
    }
    let free = list.iter_mut().find(|place| **place == T::default());
    let is_added = free.is_some();
    if let Some(place) = free {
        *place = one;
    }
    is_added
}

/// Takes out an element. The order of the others stays.
pub(super) fn remove<T: Copy + PartialEq + Default>(list: &mut [T], one: T) {
    if let Some(at) = list.iter().position(|element| *element == one && one != T::default()) {
        list[at..].rotate_left(1);
        if let Some(last) = list.last_mut() {
            *last = T::default();
        }
    }
}

impl Client {
    pub(super) fn passes_check(&self) -> bool {
        matches!(self.phase, Phase::Holds | Phase::Renews) && self.deadline > 0
    }

    pub(super) fn has_lease(&self) -> bool {
        matches!(self.phase, Phase::Holds | Phase::Renews | Phase::Releases)
    }

    /// It waits for a reply.
    pub(super) fn is_calling(&self) -> bool {
        matches!(self.phase, Phase::Asks | Phase::RollsBack | Phase::Renews | Phase::Releases | Phase::Leaves)
    }

    /// It is in a call of `lock()` that has not ended, and will not give up if it is not made to.
    pub(super) fn is_waiting(&self) -> bool {
        self.wait != 0 && matches!(self.phase, Phase::Asks | Phase::RollsBack | Phase::Waits) && !self.is_last
    }
}

/// A name in a state.
enum Name<'a> {
    Token(&'a mut u16),
    Wait(&'a mut u8),
}

impl<const N: usize> State<N> {
    pub(super) fn new(clients: [Client; N]) -> State<N> {
        let (lines, queue) = ([Line::default(); LINES], [0; 6]);
        State { key: 0, ttl: 0, queue, clients, lines, losses: 0, lates: 0, deaths: 0, fault: 0 }
    }

    /// All names, those that are in use first.
    fn names(&mut self, see: &mut impl FnMut(Name<'_>)) {
        see(Name::Token(&mut self.key));
        self.queue.iter_mut().for_each(|wait| see(Name::Wait(wait)));
        for client in &mut self.clients {
            see(Name::Token(&mut client.token));
            see(Name::Wait(&mut client.wait));
            client.pushes.iter_mut().for_each(|token| see(Name::Token(token)));
        }
        for call in self.lines.iter_mut().flat_map(|line| &mut line.calls) {
            see(Name::Token(&mut call.token));
            see(Name::Wait(&mut call.wait));
        }
        for client in &mut self.clients {
            client.leftovers.iter_mut().chain(&mut client.owed).for_each(|token| see(Name::Token(token)));
            client.owed_waits.iter_mut().for_each(|wait| see(Name::Wait(wait)));
        }
    }

    /// A serial number or the number of a call that is not in use.
    fn unused(&self, is_it: impl Fn(Name<'_>) -> Option<u8>) -> u8 {
        let mut used = 1_u32;
        let mut scanned = *self;
        scanned.names(&mut |name| used |= is_it(name).map_or(0, |number| 1 << number));
        let number = (!used).trailing_zeros() as u8;
        assert!(number < 16, "the model has too few names");
        number
    }

    pub(super) fn unused_serial(&self, client: usize) -> u8 {
        self.unused(|name| match name {
            Name::Token(token) if bit(*token) != 0 && owner(*token) == client => Some(*token as u8 & 15),
            _ => None,
        })
    }

    pub(super) fn unused_call(&self, client: usize) -> u8 {
        self.unused(|name| match name {
            Name::Token(token) if is_granted(*token) && owner(*token) == client => Some(wait_of(*token) & 15),
            Name::Wait(wait) if *wait != 0 && client_of(*wait) == client => Some(*wait & 15),
            _ => None,
        })
    }

    pub(super) fn tidied(&self) -> State<N> {
        let mut state = *self;
        state.forget();
        state
    }

    /// Forgets what can have no effect any more.
    fn forget(&mut self) {
        let (key, queue, calls) = (self.key, self.queue, self.lines.map(|line| line.calls));
        let calls = || calls.iter().flatten().filter(|call| call.kind != Kind::None);
        let waits = self.clients.map(|client| client.wait);
        let may_be_set = |token: u16| {
            let wait = if is_granted(token) { wait_of(token) } else { 0 };
            let may_enter = || queue.contains(&wait) || waits.contains(&wait) || calls().any(|call| call.wait == wait);
            key == token || calls().any(|call| call.token == token) || wait != 0 && may_enter()
        };
        let pushes = self.clients.map(|client| client.pushes);
        let may_be_queued = |wait: u8| {
            let is_its = |token: u16| is_granted(token) && wait_of(token) == wait;
            let is_there = queue.contains(&wait) || is_its(key) || calls().any(|call| call.wait == wait);
            is_there || pushes.iter().flatten().any(|push| is_its(*push))
        };
        for client in &mut self.clients {
            for list in [&mut client.leftovers, &mut client.owed] {
                *list = list.map(|token| if may_be_set(token) { token } else { 0 });
                list.sort_unstable_by(|a, b| b.cmp(a));
            }
            client.owed_waits = client.owed_waits.map(|wait| if may_be_queued(wait) { wait } else { 0 });
            client.owed_waits.sort_unstable_by(|a, b| b.cmp(a));
            // To give it back would free nothing, and a wait that is not certain makes an attempt whenever it likes.
            let (wait, reads) = (client.wait, client.is_certain && client.phase != Phase::Holds);
            let is_inert = |push: u16| push != 0 && !(reads && wait_of(push) == wait) && !may_be_set(push);
            for push in client.pushes.into_iter().filter(|push| is_inert(*push)) {
                remove(&mut client.pushes, push);
            }
            if !client.is_certain {
                client.queued = NEVER;
            }
        }
    }

    /// The same state with client `i` under the name `order[i]`, and all other names in the order in which they occur.
    fn renamed(&self, order: &[usize]) -> State<N> {
        let mut after = *self;
        for (client, name) in self.clients.iter().zip(order) {
            after.clients[*name] = *client;
        }
        for line in after.lines.iter_mut().filter(|line| line.calls[0].kind != Kind::None) {
            line.client = order[usize::from(line.client)] as u8;
        }
        let (mut serials, mut calls) = (Numbers::default(), [[0; 16]; 3]);
        let number = |map: &mut [u8; 16], old: u8| {
            let next = map.iter().filter(|new| **new != 0).count() as u8 + 1;
            let new = &mut map[usize::from(old)];
            if old != 0 && *new == 0 {
                *new = next;
            }
            *new
        };
        after.names(&mut |name| match name {
            Name::Token(token) if *token == 0 => {}
            Name::Token(token) if is_granted(*token) => {
                let client = owner(*token);
                let call = number(&mut calls[client], wait_of(*token) & 15);
                *token = granted(wait_id(order[client], call));
            }
            Name::Token(token) => {
                let client = owner(*token);
                *token = attempt_token(order[client], number(&mut serials[client], *token as u8 & 15));
            }
            Name::Wait(wait) if *wait == 0 => {}
            Name::Wait(wait) => {
                let client = client_of(*wait);
                *wait = wait_id(order[client], number(&mut calls[client], *wait & 15));
            }
        });
        for (old, name) in order.iter().take(N).enumerate() {
            let client = &mut after.clients[*name];
            let moved = |mask: u16| {
                let new = |serial: usize| u16::from(serials[old][serial] != 0) << serials[old][serial];
                (1..16).filter(|serial| mask >> serial & 1 == 1).fold(0, |all, serial| all | new(serial))
            };
            (client.freed, client.gone) = (moved(client.freed), moved(client.gone));
        }
        after
    }

    fn rank(&self, c: usize) -> impl Ord + use<N> {
        let Client { phase, status, age, is_last, is_long, is_duplicate, is_certain, queued, deadline, .. } =
            self.clients[c];
        let has_key = self.key != 0 && owner(self.key) == c;
        let place = self.queue.iter().position(|wait| *wait != 0 && client_of(*wait) == c);
        (phase, status, age, is_last, is_duplicate, is_certain, (is_long, queued, deadline, has_key, place))
    }

    pub(super) fn canonical(&self) -> State<N> {
        const ORDERS: [[usize; 3]; 6] = [[0, 1, 2], [1, 0, 2], [0, 2, 1], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
        let orders = ORDERS.iter().filter(|order| order[N..].iter().enumerate().all(|(i, name)| *name == N + i));
        let state = self.tidied();
        // What does not depend on the names comes first.
        let ranks = [0, 1, 2].map(|c| (c < N).then(|| state.rank(c)));
        let is_sorted =
            |order: &&[usize; 3]| (0..N).all(|a| (0..N).all(|b| order[a] > order[b] || ranks[a] <= ranks[b]));
        orders.filter(is_sorted).map(|order| state.renamed(order)).min().unwrap_or(state)
    }

    /// The living line of this client: what it sends now waits behind it.
    pub(super) fn living_line(&mut self, client: usize) -> Option<&mut Line> {
        let is_it = |line: &&mut Line| usize::from(line.client) == client && !line.is_broken;
        self.lines.iter_mut().filter(|line| line.calls[0].kind != Kind::None).find(is_it)
    }

    /// A token that no server can have any more has the lock, or a call may set it.
    pub(super) fn comes_back(&self) -> bool {
        let token = self.key;
        token != 0 && !is_granted(token) && self.clients[owner(token)].gone & bit(token) != 0
    }

    /// The lock has the token of a living client that neither uses it, nor releases it, nor knows that it may come.
    pub(super) fn is_token_unknown(&self) -> bool {
        if self.key == 0 || is_granted(self.key) {
            return false;
        }
        let (token, client) = (self.key, &self.clients[owner(self.key)]);
        let is_used = client.token == token && (client.has_lease() || client.is_calling());
        let is_late = client.leftovers.contains(&token) && client.freed & bit(token) != 0;
        client.phase != Phase::Dead && !is_used && !is_late && !self.is_to_be_released(token)
    }

    fn is_to_be_released(&self, token: u16) -> bool {
        let is_release = |call: &Call| matches!(call.kind, Kind::Release | Kind::Free) && call.token == token;
        let is_sent = self.lines.iter().filter(|line| !line.is_broken).flat_map(|line| &line.calls).any(is_release);
        is_sent || self.clients[owner(token)].owed.contains(&token)
    }

    /// The lock is granted to a wait that is over, and nobody will learn of it.
    pub(super) fn is_grant_unknown(&self) -> bool {
        if !is_granted(self.key) {
            return false;
        }
        let (token, wait) = (self.key, wait_of(self.key));
        let client = &self.clients[owner(token)];
        let is_used = client.token == token && client.has_lease();
        let is_leaving = |call: &Call| matches!(call.kind, Kind::Leave | Kind::LeaveOnly) && call.wait == wait;
        let is_left = self.lines.iter().filter(|line| !line.is_broken).flat_map(|line| &line.calls).any(is_leaving);
        let is_known =
            client.wait == wait || client.owed_waits.contains(&wait) || client.pushes.contains(&token) || is_left;
        let may_come = client.leftovers.contains(&token);
        client.phase != Phase::Dead && !is_used && !is_known && !may_come && !self.is_to_be_released(token)
    }

    /// A tick of all clocks.
    pub(super) fn tick(&mut self) {
        self.ttl = self.ttl.saturating_sub(1);
        if self.ttl == 0 {
            self.key = 0;
        }
        for client in &mut self.clients {
            client.deadline = client.deadline.saturating_sub(1);
            if matches!(client.phase, Phase::Asks | Phase::Renews) {
                client.age = (client.age + 1).min(LEASE + u8::from(client.is_long));
            }
            if client.queued != NEVER {
                client.queued = (client.queued + 1).min(LEASE);
            }
        }
    }
}
