//! The state of model (b). A token is a number: that of an attempt has its client and its serial number, that of a
//! grant has its client. A serial number that stands nowhere any more is used again.

use super::Bounds;
use crate::scripts::Reply;

pub(super) const FAULT_CREATED: u8 = 1;
pub(super) const FAULT_FENCE: u8 = 2;
/// Fences below were given in an earlier tick: only their order counts. With the floor of the clock, each later fence is
/// greater than all of them.
pub(super) const THIS_TICK: u8 = 16;
pub(super) const SERVERS: usize = 3;
/// Calls in a line.
pub(super) const BEHIND: usize = 3;

#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) enum Phase {
    #[default]
    Idle,
    /// Between two attempts.
    Waits,
    Asks,
    RollsBack,
    Holds,
    Extends,
    Refills,
    Raises,
    Releases,
    Unreserves,
    Dead,
}

/// What a client knows of the call of its round to one server.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) enum Vote {
    #[default]
    NotAsked,
    Unsent,
    /// In the line, or behind another call there.
    Late,
    /// Executed; the reply is under way.
    Answered(Reply),
    // What follows is final.
    Got(Reply),
    Unknown,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) enum Kind {
    #[default]
    None,
    Acquire,
    Refill,
    Extend,
    Fence,
    Release,
    Free,
    Unreserve,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct Call {
    pub(super) kind: Kind,
    pub(super) token: u8,
    /// The fence to reach.
    pub(super) fence: u8,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct Server {
    pub(super) key: u8,
    pub(super) ttl: u8,
    /// Ticks until its votes count.
    pub(super) young: u8,
    pub(super) fence: u8,
    /// Bits of the clients that wait.
    pub(super) queue: u8,
    /// The client that listens here, plus one... all clients listen on one server.
    pub(super) is_listened_to: bool,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct Client {
    pub(super) phase: Phase,
    /// It does nothing until it goes on.
    pub(super) is_stopped: bool,
    pub(super) votes: [Vote; SERVERS],
    pub(super) fences: [u8; SERVERS],
    /// Ticks since the start of the round.
    pub(super) age: u8,
    pub(super) is_duplicate: bool,
    pub(super) token: u8,
    /// Ticks until which each server surely keeps the token.
    pub(super) marks: [u8; SERVERS],
    /// The servers that may have the token, as bits.
    pub(super) at: u8,
    pub(super) acquire_may_run: bool,
    /// The fence that the attempt brought, and whether it is final.
    pub(super) offered: u8,
    pub(super) is_fenced: bool,
    /// For each server, bits of the tokens whose release is repeated.
    pub(super) owed: [u8; SERVERS],
    /// Bits of the tokens that may still be set.
    pub(super) leftovers: u8,
    /// For each server, bits of the tokens that its reply called gone.
    pub(super) freed: [u8; SERVERS],
    /// Bits of the tokens that are gone everywhere, and cannot come back.
    pub(super) gone: u8,
    /// A grant was published to it, and is not read.
    pub(super) is_told: bool,
}

/// The calls of one client that wait at one server.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct Line {
    pub(super) client: u8,
    pub(super) server: u8,
    pub(super) is_broken: bool,
    pub(super) calls: [Call; BEHIND],
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct State<const N: usize> {
    pub(super) servers: [Server; SERVERS],
    pub(super) clients: [Client; N],
    pub(super) line: Line,
    pub(super) losses: u8,
    pub(super) lates: u8,
    pub(super) restarts: u8,
    pub(super) stops: u8,
    pub(super) deaths: u8,
    pub(super) attempts: u8,
    /// The last fence that a call returned.
    pub(super) fence: u8,
    pub(super) fault: u8,
}

const GRANTED: u8 = 0x80;

pub(super) fn token(client: usize, serial: u8) -> u8 {
    0x40 | (client as u8) << 3 | serial
}

pub(super) fn granted(client: usize) -> u8 {
    GRANTED | (client as u8) << 3
}

pub(super) fn is_granted(token: u8) -> bool {
    token & GRANTED != 0
}

pub(super) fn owner(token: u8) -> usize {
    usize::from(token >> 3 & 3)
}

/// The bit of a token of an attempt.
pub(super) fn bit(token: u8) -> u8 {
    if token == 0 || is_granted(token) { 0 } else { 1 << (token & 7) }
}

impl Call {
    pub(super) fn is_some(&self) -> bool {
        self.kind != Kind::None
    }
}

impl Line {
    pub(super) fn is_some(&self) -> bool {
        self.calls[0].is_some()
    }

    /// What a client sends to that server waits behind this line.
    pub(super) fn is_before(&self, client: usize, server: usize) -> bool {
        self.is_some() && !self.is_broken && (usize::from(self.client), usize::from(self.server)) == (client, server)
    }

    pub(super) fn push(&mut self, call: Call) -> bool {
        let free = self.calls.iter_mut().find(|call| !call.is_some());
        free.map(|place| *place = call).is_some()
    }

    pub(super) fn take(&mut self, at: usize) -> Call {
        let call = self.calls[at];
        self.calls[at..].rotate_left(1);
        self.calls[BEHIND - 1] = Call::default();
        if !self.is_some() {
            *self = Line::default();
        }
        call
    }
}

impl Client {
    /// It waits for the votes of a round.
    pub(super) fn is_calling(&self) -> bool {
        !matches!(self.phase, Phase::Idle | Phase::Waits | Phase::Holds | Phase::Dead)
    }

    /// It is about to send.
    pub(super) fn is_busy(&self) -> bool {
        self.votes.contains(&Vote::Unsent) && !self.is_stopped
    }

    pub(super) fn has_lease(&self) -> bool {
        matches!(self.phase, Phase::Holds | Phase::Extends | Phase::Refills | Phase::Raises | Phase::Releases)
    }

    pub(super) fn is_waiting(&self) -> bool {
        matches!(self.phase, Phase::Waits | Phase::Asks | Phase::RollsBack)
    }
}

impl<const N: usize> State<N> {
    pub(super) fn new(bounds: &Bounds) -> State<N> {
        let Bounds { losses, lates, restarts, stops, deaths, attempts, .. } = *bounds;
        let mut servers = [Server::default(); SERVERS];
        servers[0].is_listened_to = bounds.queues;
        let (clients, line) = ([Client::default(); N], Line::default());
        State { servers, clients, line, losses, lates, restarts, stops, deaths, attempts, fence: 0, fault: 0 }
    }

    pub(super) fn unused_serial(&self, c: usize) -> u8 {
        let client = &self.clients[c];
        let keys = self.servers.iter().map(|server| server.key);
        let tokens = keys.chain(self.line.calls.iter().map(|call| call.token)).chain([client.token]);
        let used =
            tokens.filter(|token| owner(*token) == c).fold(1 | client.leftovers, |used, token| used | bit(token));
        let serial = (!client.owed.iter().fold(used, |used, owed| used | owed)).trailing_zeros() as u8;
        assert!(serial < 8, "the model has too few names");
        serial
    }

    /// Forgets what can have no effect any more.
    fn forget(&mut self) {
        let (keys, line) = (self.servers.map(|server| server.key), self.line);
        for (c, client) in self.clients.iter_mut().enumerate() {
            let of_line =
                line.calls.iter().filter(|call| owner(call.token) == c).fold(0, |all, call| all | bit(call.token));
            let at = |server: usize| if owner(keys[server]) == c { bit(keys[server]) } else { 0 };
            let of_line_at = |server: usize| if usize::from(line.server) == server { of_line } else { 0 };
            for (server, owed) in client.owed.iter_mut().enumerate() {
                *owed &= at(server) | of_line_at(server);
            }
            let may_be_set = of_line | (0..SERVERS).fold(0, |all, server| all | at(server));
            client.leftovers &= may_be_set;
            client.freed = client.freed.map(|freed| freed & client.leftovers);
            client.gone &= may_be_set;
            // No copy of the attempt is under way or has come, and the release is still to come.
            let is_before_release = matches!(client.phase, Phase::Holds | Phase::Extends | Phase::Raises);
            let is_elsewhere = |server: usize| keys[server] == client.token && client.at >> server & 1 == 0;
            let may_come = of_line & bit(client.token) != 0 || (0..SERVERS).any(is_elsewhere);
            client.acquire_may_run &= !is_before_release || may_come;
            // A copy of these changes nothing.
            client.is_duplicate &= !matches!(client.phase, Phase::Extends | Phase::Raises | Phase::Unreserves);
            if !client.is_calling() {
                (client.age, client.is_duplicate, client.votes) = (0, false, [Vote::NotAsked; SERVERS]);
            }
            if client.phase != Phase::Asks && (client.phase != Phase::Raises || client.offered > 0) {
                client.fences = [0; SERVERS];
            }
        }
    }

    /// Whose votes count is asked in attempts, and for fences.
    fn forget_restarts(&mut self) {
        let asks = |client: &Client| matches!(client.phase, Phase::Asks | Phase::Raises);
        let may_ask = self.fence > 0 || self.servers.iter().any(|server| server.fence > 0);
        if self.attempts == 0 && !may_ask && !self.clients.iter().any(asks) {
            self.servers.iter_mut().for_each(|server| server.young = 0);
        }
    }

    /// All fences.
    fn fences(&mut self) -> impl Iterator<Item = &mut u8> {
        let of_clients =
            self.clients.iter_mut().flat_map(|client| client.fences.iter_mut().chain([&mut client.offered]));
        let of_calls = self.line.calls.iter_mut().map(|call| &mut call.fence);
        let of_servers = self.servers.iter_mut().map(|server| &mut server.fence);
        of_servers.chain(of_clients).chain(of_calls).chain([&mut self.fence])
    }

    /// Keeps the order of the fences of earlier ticks, and forgets their values.
    fn rank_old_fences(&mut self) {
        let mut old = 0_u32;
        self.fences().for_each(|fence| old |= u32::from(*fence < THIS_TICK) << *fence);
        let rank = |fence: u8| (old & ((2 << fence) - 2)).count_ones() as u8;
        self.fences().filter(|fence| **fence < THIS_TICK).for_each(|fence| *fence = rank(*fence));
    }

    /// The clock of the servers goes on: all fences are old.
    fn age_fences(&mut self) {
        let mut all = 0_u64;
        self.fences().for_each(|fence| all |= 1 << *fence);
        let rank = |fence: u8| (all & ((2 << fence) - 2)).count_ones() as u8;
        self.fences().for_each(|fence| *fence = rank(*fence));
        assert!(self.fences().all(|fence| *fence < THIS_TICK), "the model has too few fences");
    }

    pub(super) fn tidied(&self, has_floor: bool) -> State<N> {
        let mut state = *self;
        state.forget();
        state.forget_restarts();
        if has_floor && state.servers.iter().any(|server| server.fence > 0) {
            state.rank_old_fences();
        }
        state
    }

    pub(super) fn canonical(&self, has_floor: bool) -> State<N> {
        const ORDERS: [[usize; 3]; 6] = [[0, 1, 2], [1, 0, 2], [0, 2, 1], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
        let state = self.tidied(has_floor);
        // What does not depend on the names comes first.
        let ranks = [0, 1, 2].map(|c| (c < N).then(|| state.rank(c)));
        let is_sorted =
            |order: &[usize; 3]| (0..N).all(|a| (0..N).all(|b| order[a] > order[b] || ranks[a] <= ranks[b]));
        let orders = ORDERS.iter().filter(|order| (N..3).all(|name| order[name] == name) && is_sorted(order));
        orders.map(|order| state.in_order(order)).min().unwrap_or(state)
    }

    fn rank(&self, c: usize) -> impl Ord + use<N> {
        let client = &self.clients[c];
        let (mut votes, mut marks) = (client.votes, client.marks);
        votes.sort_unstable();
        marks.sort_unstable();
        let keys = self.servers.iter().filter(|server| server.key != 0 && owner(server.key) == c).count();
        let has_line = self.line.is_some() && usize::from(self.line.client) == c;
        let flags = (client.is_stopped, client.is_duplicate, client.acquire_may_run, has_line);
        (client.phase, flags, client.age, votes, marks, keys, client.at.count_ones(), client.leftovers.count_ones())
    }

    /// The same state with client `i` under the name `order[i]`, its tokens in the order in which they are used, and the
    /// servers in the order of what is on them.
    fn in_order(&self, order: &[usize]) -> State<N> {
        let mut after = *self;
        for (client, name) in self.clients.iter().zip(order) {
            after.clients[*name] = *client;
        }
        after.line.client = if self.line.is_some() { order[usize::from(self.line.client)] as u8 } else { 0 };
        let mut serials = [[0; 8]; 3];
        for (c, client) in self.clients.iter().enumerate() {
            let mut next = 1;
            let mut add = |serial: u8| {
                if serial != 0 && serials[c][usize::from(serial)] == 0 {
                    serials[c][usize::from(serial)] = next;
                    next += 1;
                }
            };
            add(if bit(client.token) == 0 { 0 } else { client.token & 7 });
            self.line
                .calls
                .iter()
                .filter(|call| bit(call.token) != 0 && owner(call.token) == c)
                .for_each(|call| add(call.token & 7));
            let sets = client.owed.iter().fold(client.leftovers, |all, owed| all | owed);
            if sets != 0 {
                (1..8).filter(|serial| sets >> serial & 1 == 1).for_each(&mut add);
            }
            self.servers
                .iter()
                .filter(|server| bit(server.key) != 0 && owner(server.key) == c)
                .for_each(|server| add(server.key & 7));
        }
        let renamed = |old: u8| match old {
            0 => 0,
            _ if is_granted(old) => granted(order[owner(old)]),
            _ => token(order[owner(old)], serials[owner(old)][usize::from(old & 7)]),
        };
        let moved = |c: usize, set: u8| {
            let bits = if set == 0 { 0..0 } else { 1..8 };
            bits.filter(|serial| set >> serial & 1 == 1).fold(0, |all, serial| all | 1 << serials[c][serial] & !1_u8)
        };
        for server in &mut after.servers {
            server.key = renamed(server.key);
            let queue = server.queue;
            server.queue = (0..N).filter(|c| queue >> c & 1 == 1).fold(0, |all, c| all | 1 << order[c]);
        }
        for call in after.line.calls.iter_mut().filter(|call| call.is_some()) {
            call.token = renamed(call.token);
        }
        for (c, name) in order.iter().take(N).enumerate() {
            let client = &mut after.clients[*name];
            client.token = renamed(client.token);
            client.owed = client.owed.map(|owed| moved(c, owed));
            client.freed = client.freed.map(|freed| moved(c, freed));
            for set in [&mut client.leftovers, &mut client.gone] {
                *set = moved(c, *set);
            }
        }
        after.sort_servers();
        after
    }

    fn sort_servers(&mut self) {
        let line = self.line;
        let signature = |server: usize| {
            let client = |c: &Client| {
                (
                    c.votes[server],
                    c.fences[server],
                    c.marks[server],
                    c.at >> server & 1,
                    c.owed[server],
                    c.freed[server],
                )
            };
            let has_line = line.is_some() && usize::from(line.server) == server;
            (self.servers[server], self.clients.map(|c| client(&c)), has_line)
        };
        let mut order = [0, 1, 2];
        let signatures = order.map(signature);
        order.sort_unstable_by(|&a, &b| signatures[a].cmp(&signatures[b]));
        if order == [0, 1, 2] {
            return;
        }
        let old = *self;
        for (new, &from) in order.iter().enumerate() {
            self.servers[new] = old.servers[from];
            if line.is_some() && usize::from(line.server) == from {
                self.line.server = new as u8;
            }
        }
        for (client, was) in self.clients.iter_mut().zip(&old.clients) {
            client.votes = order.map(|from| was.votes[from]);
            client.fences = order.map(|from| was.fences[from]);
            client.marks = order.map(|from| was.marks[from]);
            client.owed = order.map(|from| was.owed[from]);
            client.freed = order.map(|from| was.freed[from]);
            client.at = (0..SERVERS).fold(0, |all, new| all | (was.at >> order[new] & 1) << new);
        }
    }

    /// A tick of all clocks.
    pub(super) fn tick(&mut self, lease: u8, has_floor: bool) {
        for server in &mut self.servers {
            server.ttl = server.ttl.saturating_sub(1);
            server.young = server.young.saturating_sub(1);
            if server.ttl == 0 {
                server.key = 0;
            }
        }
        for client in &mut self.clients {
            client.marks = client.marks.map(|mark| mark.saturating_sub(1));
            if matches!(client.phase, Phase::Asks | Phase::Extends) {
                client.age = (client.age + 1).min(lease);
            }
        }
        if has_floor {
            self.age_fences();
        }
    }

    /// A token that was released for good is on a server.
    pub(super) fn comes_back(&self) -> bool {
        let is_back = |key: u8| bit(key) != 0 && self.clients[owner(key)].gone & bit(key) != 0;
        self.servers.iter().any(|server| is_back(server.key))
    }

    /// A server has the token of a living client that neither uses it, nor releases it, nor knows that it may come.
    pub(super) fn is_token_unknown(&self) -> bool {
        let is_unknown = |server: usize| {
            let key = self.servers[server].key;
            let client = &self.clients[owner(key)];
            let is_used = client.token == key && (client.has_lease() || client.is_calling());
            let is_owed = client.owed[server] & bit(key) != 0;
            let may_come = client.leftovers & client.freed[server] & bit(key) != 0;
            let is_release = |call: &Call| matches!(call.kind, Kind::Release | Kind::Free) && call.token == key;
            let is_sent = self.line.is_before(owner(key), server) && self.line.calls.iter().any(is_release);
            bit(key) != 0 && client.phase != Phase::Dead && !is_used && !is_owed && !may_come && !is_sent
        };
        (0..SERVERS).any(is_unknown)
    }
}
