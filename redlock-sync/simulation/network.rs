//! The network between clients and nodes: packets and connections.

use std::collections::VecDeque;

use super::connection::{Connection, Fate, Packet, Path};
use super::plan::{MS, Time, US, chance, nanos};
use super::server::{Command, Told};
use super::world::{Event, World};

impl World {
    pub(super) fn one_way(&self) -> Time {
        let usual = fastrand::u64(20..300) * US;
        let timeout = nanos(self.plan.settings.node_timeout);
        if self.is_healed() {
            usual
        } else if chance(self.plan.stalled) {
            fastrand::u64(0..2 * nanos(self.plan.pace))
        } else if chance(self.plan.slow) {
            fastrand::u64(0..3 * timeout)
        } else {
            usual
        }
    }

    fn draw_fate(&mut self) -> Fate {
        if self.is_healed() {
            Fate::Good
        } else if chance(self.plan.lost) {
            self.counts.lost += 1;
            Fate::LostReply
        } else if chance(self.plan.reset) {
            self.counts.resets += 1;
            Fate::CutAfter
        } else {
            Fate::Good
        }
    }

    pub(super) fn reaches(&self, client: usize, node: usize) -> bool {
        self.servers[node].is_up && self.clients[client].paths[node].partitioned_until <= self.now
    }

    /// Creates a connection.
    pub(super) fn open(&mut self, client: usize, node: usize) -> usize {
        self.connections.push(Connection {
            client,
            node,
            epoch: self.servers[node].epoch,
            queue: VecDeque::new(),
            last: 0,
            back: 0,
            is_lost: false,
            is_mute: false,
            is_cut: false,
            is_broken: false,
            is_closed: false,
            channel: None,
            unread: VecDeque::new(),
            waiter: None,
            written: 0,
            blocked_until: 0,
        });
        self.connections.len() - 1
    }

    /// Writes a packet. Returns false if the client finds the connection broken.
    pub(super) fn write(&mut self, id: usize, commands: Vec<Command>) -> bool {
        if !self.is_healed() && self.connections[id].queue.is_empty() && chance(self.plan.cold) {
            // The server has closed the idle connection.
            self.connections[id].is_broken = true;
        }
        let Connection { epoch, last, is_broken, .. } = self.connections[id];
        if is_broken {
            return false;
        }
        let mut packet = Packet { connection: id, commands, fate: self.draw_fate(), arrives: 0 };
        let at = (self.now + self.one_way()).max(last + 1);
        packet.arrives = at;
        if !self.is_healed() && chance(self.plan.lost) {
            self.counts.lost += 1;
            self.connections[id].is_lost = true;
        } else if !self.is_healed() && chance(self.plan.reset) {
            self.counts.resets += 1;
            self.connections[id].is_cut = true;
            self.plan_at(at, Event::Broken { connection: id, for_client: true });
            // The server may have the packet, or its first commands, in its buffers and execute them later.
            if fastrand::bool() {
                let later = at + fastrand::u64(0..2 * nanos(self.plan.pace));
                let many = fastrand::usize(1..=packet.commands.len());
                let commands = packet.commands[..many].to_vec();
                self.plan_at(later, Event::Duplicate { packet: Packet { commands, ..packet }, epoch });
            }
        } else if !self.connections[id].is_cut {
            self.connections[id].last = at;
            self.connections[id].queue.push_back(packet);
            if self.connections[id].queue.len() == 1 {
                self.plan_at(at, Event::Arrival { connection: id });
            }
        }
        true
    }

    /// Handles the arrival of the first packet on a connection, and plans the arrival of the next one.
    pub(super) fn arrive(&mut self, id: usize) {
        let not_before = self.take_in(id);
        if let Some(next) = self.connections[id].queue.front() {
            self.plan_at(next.arrives.max(not_before), Event::Arrival { connection: id });
        }
    }

    /// Lets the node read the first packet on a connection, if it can. Returns the time before which it reads no
    /// further packet.
    fn take_in(&mut self, id: usize) -> Time {
        let now = self.now;
        let Connection { client, node, epoch, is_lost, is_cut, blocked_until, .. } = self.connections[id];
        let server = &self.servers[node];
        let is_broken = !server.is_up || server.epoch != epoch;
        let Path { partitioned_until: heals, loses } = self.clients[client].paths[node];
        if heals > now && loses {
            self.connections[id].is_lost = true;
            self.connections[id].queue.pop_front();
            return now;
        }
        if heals > now || !is_broken && server.busy_until > now {
            return heals.max(server.busy_until) + US;
        }
        if !is_broken && blocked_until > now {
            return now + 100 * US;
        }
        let packet = self.connections[id].queue.pop_front();
        if is_broken {
            self.connections[id].is_cut = true;
            self.connections[id].queue.clear();
            self.plan_at(now + 50 * US, Event::Broken { connection: id, for_client: true });
            return now;
        }
        let Some(packet) = packet.filter(|_| !is_lost) else { return now };
        // The client has given the connection up. Packets that it sends on other connections are not ordered after this
        // one.
        if is_cut || self.connections[id].is_broken {
            self.note_duplicate(&packet);
        }
        let (replies, told) = self.execute(&packet);
        match packet.fate {
            Fate::Good => self.send_back(id, replies, told),
            Fate::LostReply => self.connections[id].is_mute = true,
            Fate::CutAfter => {
                // The replies to later packets are lost too.
                (self.connections[id].is_cut, self.connections[id].is_mute) = (true, true);
                let at = now + self.one_way();
                self.plan_at(at, Event::Broken { connection: id, for_client: true });
            }
        }
        now
    }

    /// Sends replies or a message to the client once the node is no longer busy. `told`: the replies to scripts.
    pub(super) fn send_back(&mut self, id: usize, bytes: Vec<u8>, told: Vec<Told>) {
        let Connection { node, back, .. } = self.connections[id];
        let sent = self.now.max(self.servers[node].busy_until);
        let at = (sent + self.one_way()).max(back + 1);
        self.connections[id].back = at;
        self.plan_at(at, Event::Incoming { connection: id, bytes, told });
    }

    /// Delivers replies or a message to the client.
    pub(super) fn come_in(&mut self, id: usize, bytes: Vec<u8>, told: Vec<Told>) {
        let Connection { client, node, is_mute, is_broken, back, .. } = self.connections[id];
        let Path { partitioned_until: heals, loses } = self.clients[client].paths[node];
        if is_mute || is_broken {
            return;
        }
        if heals > self.now && loses {
            self.connections[id].is_mute = true;
        } else if heals > self.now {
            // Messages arrive in the order in which they were sent.
            let at = (heals + 50 * US).max(back + 1);
            self.connections[id].back = at;
            self.plan_at(at, Event::Incoming { connection: id, bytes, told });
        } else {
            self.connections[id].unread.extend(bytes);
            self.note_heard(node, &told);
            self.wake_reader(id);
        }
    }

    pub(super) fn wake_reader(&mut self, id: usize) {
        if let Some(waiter) = self.connections[id].waiter.take() {
            self.plan_at(self.now, Event::Wake(waiter));
        }
    }

    /// One side notices that a connection is broken.
    pub(super) fn broken(&mut self, id: usize, for_client: bool) {
        if for_client {
            let Connection { client, node, .. } = self.connections[id];
            let Path { partitioned_until: heals, loses } = self.clients[client].paths[node];
            if heals <= self.now {
                self.connections[id].is_broken = true;
                self.wake_reader(id);
            } else if !loses {
                self.plan_at(heals + 50 * US, Event::Broken { connection: id, for_client });
            }
        } else if self.connections[id].channel.take().is_some() {
            self.count_listeners(self.connections[id].node);
        }
    }

    pub(super) fn connections_that(&self, is_meant: impl Fn(&Connection) -> bool) -> Vec<usize> {
        (0..self.connections.len()).filter(|&id| is_meant(&self.connections[id])).collect()
    }

    /// The client closes a connection. The node notices this a moment later.
    pub(super) fn close(&mut self, id: usize) {
        self.connections[id].is_closed = true;
        if self.connections[id].channel.is_some() {
            let at = self.now + fastrand::u64(0..2 * MS);
            self.plan_at(at, Event::Broken { connection: id, for_client: false });
        }
    }

    /// Breaks the connections of a node that goes down. A client that does not read from its connection may notice only
    /// at its next packet.
    pub(super) fn cut_lines(&mut self, node: usize) {
        for id in self.connections_that(|connection| connection.node == node && !connection.is_broken) {
            let is_push = self.connections[id].channel.is_some();
            self.broken(id, false);
            if is_push || fastrand::bool() {
                self.plan_at(self.now + 50 * US, Event::Broken { connection: id, for_client: true });
            }
        }
    }

    /// The servers notice that a client is gone. Packets that the client wrote before may still arrive.
    pub(super) fn hang_up(&mut self, client: usize) {
        let arrives = fastrand::bool();
        for id in self.connections_that(|connection| connection.client == client) {
            self.broken(id, false);
            self.connections[id].is_lost |= !arrives;
        }
    }
}
