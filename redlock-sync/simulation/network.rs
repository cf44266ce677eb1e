//! What is between clients and nodes: messages on their way, and what a client knows of its connections to a node.

use std::collections::VecDeque;
use std::time::Duration;

use super::plan::{MS, Time, US, chance, nanos};
use super::server::{Body, Connection, Message};
use super::world::{Event, Waiter, World};
use crate::clock::Tick;
use crate::node::{Failure, Value};

/// What happens to a message that arrives.
#[derive(Debug, Clone, Copy)]
pub(super) enum Fate {
    Good { back: Time },
    LostReply,
    CutAfter { back: Time },
}

/// How a call ends.
#[derive(Debug, Clone)]
pub(super) enum End {
    Reply(Result<Value, Failure>),
    Cut,
}

/// A call on its way.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) client: usize,
    pub(super) node: usize,
    pub(super) end: Option<End>,
    pub(super) waiter: Option<Waiter>,
}

/// What one client knows of one node.
#[derive(Debug, Default)]
pub(super) struct Link {
    pub(super) partitioned_until: Time,
    /// What is sent meanwhile is lost.
    pub(super) loses: bool,
    /// Has a good connection, made in this epoch of the node.
    pub(super) warm: Option<u32>,
    /// When the connection that is being made is there.
    pub(super) connecting: Option<Time>,
    /// What the node said of its uptime, and when.
    pub(super) uptime: Option<(Duration, Tick)>,
    /// Left out, until a probe at that time finds it well; with the pause between probes.
    pub(super) outage: Option<(Time, Time)>,
    pub(super) late: VecDeque<Late>,
}

#[derive(Debug)]
pub(super) struct Late {
    pub(super) token: String,
    pub(super) connection: usize,
    pub(super) keep_until: Tick,
    pub(super) has_release: bool,
}

impl World {
    pub(super) fn one_way(&self) -> Time {
        let usual = fastrand::u64(20..300) * US;
        let timeout = nanos(self.plan.limits.node_timeout);
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

    pub(super) fn draw_fate(&mut self) -> Fate {
        let back = self.one_way();
        if self.is_healed() {
            Fate::Good { back }
        } else if chance(self.plan.lost) {
            self.counts.lost += 1;
            Fate::LostReply
        } else if chance(self.plan.reset) {
            self.counts.resets += 1;
            Fate::CutAfter { back }
        } else {
            Fate::Good { back }
        }
    }

    fn new_call(&mut self, client: usize, node: usize) -> usize {
        self.calls.push(Call { client, node, end: None, waiter: None });
        self.calls.len() - 1
    }

    /// Writes a message on a connection: a new one if none is given.
    pub(super) fn write(
        &mut self,
        client: usize,
        node: usize,
        body: Body,
        connection: Option<usize>,
    ) -> (usize, usize) {
        let call = self.new_call(client, node);
        let epoch = self.clients[client].links[node].warm.unwrap_or(self.servers[node].epoch);
        let connection = connection.unwrap_or_else(|| {
            let new =
                Connection { client, node, epoch, queue: VecDeque::new(), last: 0, is_lost: false, is_cut: false };
            self.connections.push(new);
            self.connections.len() - 1
        });
        let fate = self.draw_fate();
        let at = (self.now + self.one_way()).max(self.connections[connection].last + 1);
        let message = Message { client, node, call, body, fate };
        if !self.is_healed() && chance(self.plan.lost) {
            self.counts.lost += 1;
            self.connections[connection].is_lost = true;
        } else if !self.is_healed() && chance(self.plan.reset) {
            self.counts.resets += 1;
            self.connections[connection].is_cut = true;
            self.plan_at(at, Event::End { call, how: End::Cut });
            // The server may have it in its buffers, and come to it in its own time.
            if fastrand::bool() {
                let later = at + fastrand::u64(0..2 * nanos(self.plan.pace));
                self.plan_at(later, Event::Duplicate { message, epoch });
            }
            return (call, connection);
        }
        self.connections[connection].last = at;
        self.connections[connection].queue.push_back(message);
        self.plan_at(at, Event::Arrival { connection });
        (call, connection)
    }

    /// The end of a call reaches its client.
    pub(super) fn end(&mut self, call: usize, how: End) {
        let Call { client, node, .. } = self.calls[call];
        let Link { partitioned_until: heals, loses, .. } = self.clients[client].links[node];
        if heals > self.now {
            if !loses {
                self.plan_at(heals + 50 * US, Event::End { call, how });
            }
            return;
        }
        self.calls[call].end.get_or_insert(how);
        if let Some(waiter) = self.calls[call].waiter.take() {
            self.plan_at(self.now, Event::Wake(waiter));
        }
    }

    pub(super) fn reaches(&self, client: usize, node: usize) -> bool {
        self.servers[node].is_up && self.clients[client].links[node].partitioned_until <= self.now
    }

    /// A connection was made: the node tells its identity.
    pub(super) fn greet(&mut self, client: usize, node: usize) {
        let seconds = self.servers[node].uptime_in_seconds(self.now);
        let at = self.tick(client);
        let epoch = self.servers[node].epoch;
        let link = &mut self.clients[client].links[node];
        link.uptime = Some((Duration::from_secs(seconds.saturating_sub(1)), at));
        link.warm = Some(epoch);
        link.connecting = None;
    }

    pub(super) fn is_out(&mut self, client: usize, node: usize) -> bool {
        while let Some((probe, pause)) = self.clients[client].links[node].outage {
            if self.now < probe {
                return true;
            }
            let is_well = self.reaches(client, node);
            self.clients[client].links[node].outage =
                (!is_well).then_some((probe + pause * 2, (pause * 2).min(1000 * MS)));
            if is_well {
                self.greet(client, node);
            }
        }
        false
    }
}
