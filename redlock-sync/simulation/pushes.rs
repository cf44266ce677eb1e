//! Push connections: subscribed at a node, read by their client, and broken without a word to either.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::time::Duration;

use super::plan::{MS, Time, US, chance, nanos};
use super::world::{Event, Waiter, World, sleep, wait, with};
use crate::node::{Executed, Failure, FailureKind, Heard, Push, Value};

/// A push connection.
#[derive(Debug)]
pub(super) struct Line {
    client: usize,
    node: usize,
    channel: String,
    /// The node counts it among those that listen.
    is_subscribed: bool,
    /// Nothing arrives any more, and perhaps neither side has noticed.
    is_lost: bool,
    /// The client knows that it is broken.
    is_broken: bool,
    inbox: VecDeque<Vec<u8>>,
    /// When the last message arrives.
    last: Time,
    waiter: Option<Waiter>,
}

impl World {
    /// A new push connection, which is not subscribed yet.
    pub(super) fn new_line(&mut self, client: usize, node: usize, channel: &str) -> usize {
        self.lines.push(Line {
            client,
            node,
            channel: channel.to_owned(),
            is_subscribed: false,
            is_lost: false,
            is_broken: false,
            inbox: VecDeque::new(),
            last: 0,
            waiter: None,
        });
        self.lines.len() - 1
    }

    /// The node is asked to subscribe it.
    pub(super) fn subscribe(&mut self, line: usize) -> Result<Value, Failure> {
        let Line { client, is_broken, .. } = self.lines[line];
        if self.clients[client].is_refused {
            let message = "NOPERM this user has no permissions to access one of the channels".to_owned();
            return Err(Failure { kind: FailureKind::Refused, executed: Executed::No, message });
        }
        self.lines[line].is_subscribed = !is_broken;
        Ok(Value::Int(1))
    }

    /// How many listen at a node, by channel.
    pub(super) fn listeners(&self, node: usize) -> BTreeMap<Vec<u8>, i64> {
        let mut listeners = BTreeMap::new();
        for line in self.lines.iter().filter(|line| line.is_subscribed && line.node == node) {
            *listeners.entry(line.channel.clone().into_bytes()).or_insert(0) += 1;
        }
        listeners
    }

    /// Sends a message to all that listen.
    pub(super) fn publish(&mut self, node: usize, channel: &[u8], text: &[u8]) {
        self.counts.pushes += 1;
        for line in 0..self.lines.len() {
            let Line { is_subscribed, is_lost, last, .. } = self.lines[line];
            let listens = self.lines[line].node == node && self.lines[line].channel.as_bytes() == channel;
            if !is_subscribed || is_lost || !listens {
                continue;
            }
            if !self.is_healed() && chance(self.plan.lost + self.plan.reset) {
                self.break_line(line);
                continue;
            }
            let sent = self.now.max(self.servers[node].busy_until);
            let at = (sent + self.one_way()).max(last + 1);
            self.lines[line].last = at;
            self.plan_at(at, Event::Pushed { line, text: text.to_vec() });
        }
    }

    /// A message arrives.
    pub(super) fn pushed(&mut self, line: usize, text: Vec<u8>) {
        let Line { client, node, is_lost, is_broken, .. } = self.lines[line];
        let way = &self.clients[client].links[node];
        let (heals, loses) = (way.partitioned_until, way.loses);
        if is_lost || is_broken {
            return;
        }
        if heals > self.now && loses {
            self.lines[line].is_lost = true;
        } else if heals > self.now {
            // In the order in which they were sent.
            let at = (heals + 50 * US).max(self.lines[line].last + 1);
            self.lines[line].last = at;
            self.plan_at(at, Event::Pushed { line, text });
        } else {
            self.lines[line].inbox.push_back(text);
            self.wake_line(line);
        }
    }

    fn wake_line(&mut self, line: usize) {
        if let Some(waiter) = self.lines[line].waiter.take() {
            self.plan_at(self.now, Event::Wake(waiter));
        }
    }

    /// Either side notices in its own time; the client perhaps never.
    fn break_line(&mut self, line: usize) {
        self.counts.breaks += 1;
        self.log(|world| format!("the push connection of client {} breaks", world.lines[line].client));
        self.lines[line].is_lost = true;
        let late = 2 * nanos(self.plan.pace);
        let soon = |is_late: bool| if is_late { fastrand::u64(0..late) } else { fastrand::u64(0..3 * MS) };
        let (client, server) = (self.now + soon(fastrand::bool()), self.now + soon(fastrand::bool()));
        if fastrand::bool() {
            self.plan_at(client, Event::Broken { line, for_client: true });
        }
        self.plan_at(server, Event::Broken { line, for_client: false });
    }

    /// One side notices.
    pub(super) fn broken(&mut self, line: usize, for_client: bool) {
        if for_client {
            self.lines[line].is_broken = true;
            self.wake_line(line);
        } else {
            self.lines[line].is_subscribed = false;
        }
    }

    fn lines_that(&self, is_meant: impl Fn(&Line) -> bool) -> Vec<usize> {
        (0..self.lines.len()).filter(|line| is_meant(&self.lines[*line])).collect()
    }

    /// Breaks those of a client.
    pub(super) fn unplug(&mut self, client: usize) {
        for line in self.lines_that(|line| line.client == client && line.is_subscribed && !line.is_lost) {
            self.break_line(line);
        }
    }

    /// The node finds that a client is gone.
    pub(super) fn drop_lines(&mut self, client: usize) {
        for line in self.lines_that(|line| line.client == client) {
            self.broken(line, false);
        }
    }

    /// The node goes down.
    pub(super) fn cut_lines(&mut self, node: usize) {
        for line in self.lines_that(|line| line.node == node && !line.is_broken) {
            self.broken(line, false);
            self.plan_at(self.now + 50 * US, Event::Broken { line, for_client: true });
        }
    }
}

/// A client's end of a push connection.
pub(super) struct SimulatedPush(pub(super) usize);

impl Push for SimulatedPush {
    fn receive(&mut self, patience: Duration) -> Heard {
        let line = self.0;
        let (client, by) = with(|world| {
            let client = world.lines[line].client;
            (client, world.tick(client).after(patience))
        });
        loop {
            let (text, is_broken, left) = with(|world| {
                let left = by.since(world.tick(client));
                let is_broken = world.lines[line].is_broken || world.clients[client].is_dead;
                (world.lines[line].inbox.pop_front(), is_broken, left)
            });
            match text {
                Some(text) => return Heard::Message(text),
                None if is_broken => {
                    // The time of a dead client passes all the same.
                    sleep(client, Duration::from_millis(1));
                    return Heard::Broken("cut".into());
                }
                None if left.is_zero() => return Heard::Nothing,
                None => wait(|world, waiter| {
                    world.lines[line].waiter = Some(waiter);
                    world.true_time(client, left)
                }),
            }
        }
    }
}

impl Drop for SimulatedPush {
    /// The node finds the connection closed a moment later. What is dropped with a schedule that failed finds no world.
    fn drop(&mut self) {
        super::world::try_with(|world| {
            world.lines[self.0].is_broken = true;
            let at = world.now + fastrand::u64(0..2 * MS);
            world.plan_at(at, Event::Broken { line: self.0, for_client: false });
        });
    }
}

impl fmt::Debug for SimulatedPush {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimulatedPush({})", self.0)
    }
}
