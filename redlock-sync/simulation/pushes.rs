//! Push connections: subscribed at a node, read by their client, and broken without a word to either.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::time::Duration;

use super::plan::{MS, Time, US, chance, nanos};
use super::world::{Event, Waiter, World, sleep, wait, with};
use crate::node::{Executed, Failure, FailureKind, Heard, Push, Value};

/// A push connection, with its subscription.
#[derive(Debug)]
pub(super) struct Subscription {
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
    pub(super) fn new_subscription(&mut self, client: usize, node: usize, channel: &str) -> usize {
        self.subscriptions.push(Subscription {
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
        self.subscriptions.len() - 1
    }

    /// The node is asked to subscribe it.
    pub(super) fn subscribe(&mut self, subscription: usize) -> Result<Value, Failure> {
        let Subscription { client, is_broken, .. } = self.subscriptions[subscription];
        if self.clients[client].is_refused {
            let message = "NOPERM this user has no permissions to access one of the channels".to_owned();
            return Err(Failure { kind: FailureKind::Refused, executed: Executed::No, message });
        }
        self.subscriptions[subscription].is_subscribed = !is_broken;
        Ok(Value::Int(1))
    }

    /// How many listen at a node, by channel.
    pub(super) fn listeners(&self, node: usize) -> BTreeMap<Vec<u8>, i64> {
        let mut listeners = BTreeMap::new();
        for subscription in
            self.subscriptions.iter().filter(|subscription| subscription.is_subscribed && subscription.node == node)
        {
            *listeners.entry(subscription.channel.clone().into_bytes()).or_insert(0) += 1;
        }
        listeners
    }

    /// Sends a message to all that listen.
    pub(super) fn publish(&mut self, node: usize, channel: &[u8], text: &[u8]) {
        self.counts.pushes += 1;
        for subscription in 0..self.subscriptions.len() {
            let Subscription { is_subscribed, is_lost, last, .. } = self.subscriptions[subscription];
            let listens = self.subscriptions[subscription].node == node
                && self.subscriptions[subscription].channel.as_bytes() == channel;
            if !is_subscribed || is_lost || !listens {
                continue;
            }
            if !self.is_healed() && chance(self.plan.lost + self.plan.reset) {
                self.break_subscription(subscription);
                continue;
            }
            let sent = self.now.max(self.servers[node].busy_until);
            let at = (sent + self.one_way()).max(last + 1);
            self.subscriptions[subscription].last = at;
            self.plan_at(at, Event::Pushed { subscription, text: text.to_vec() });
        }
    }

    /// A message arrives.
    pub(super) fn pushed(&mut self, subscription: usize, text: Vec<u8>) {
        let Subscription { client, node, is_lost, is_broken, .. } = self.subscriptions[subscription];
        let way = &self.clients[client].links[node];
        let (heals, loses) = (way.partitioned_until, way.loses);
        if is_lost || is_broken {
            return;
        }
        if heals > self.now && loses {
            self.subscriptions[subscription].is_lost = true;
        } else if heals > self.now {
            // In the order in which they were sent.
            let at = (heals + 50 * US).max(self.subscriptions[subscription].last + 1);
            self.subscriptions[subscription].last = at;
            self.plan_at(at, Event::Pushed { subscription, text });
        } else {
            self.subscriptions[subscription].inbox.push_back(text);
            self.wake_subscriber(subscription);
        }
    }

    fn wake_subscriber(&mut self, subscription: usize) {
        if let Some(waiter) = self.subscriptions[subscription].waiter.take() {
            self.plan_at(self.now, Event::Wake(waiter));
        }
    }

    /// Either side notices in its own time; the client perhaps never.
    fn break_subscription(&mut self, subscription: usize) {
        self.counts.breaks += 1;
        self.log(|world| format!("the push connection of client {} breaks", world.subscriptions[subscription].client));
        self.subscriptions[subscription].is_lost = true;
        let late = 2 * nanos(self.plan.pace);
        let soon = |is_late: bool| if is_late { fastrand::u64(0..late) } else { fastrand::u64(0..3 * MS) };
        let (client, server) = (self.now + soon(fastrand::bool()), self.now + soon(fastrand::bool()));
        if fastrand::bool() {
            self.plan_at(client, Event::Broken { subscription, for_client: true });
        }
        self.plan_at(server, Event::Broken { subscription, for_client: false });
    }

    /// One side notices.
    pub(super) fn broken(&mut self, subscription: usize, for_client: bool) {
        if for_client {
            self.subscriptions[subscription].is_broken = true;
            self.wake_subscriber(subscription);
        } else {
            self.subscriptions[subscription].is_subscribed = false;
        }
    }

    fn subscriptions_that(&self, is_meant: impl Fn(&Subscription) -> bool) -> Vec<usize> {
        (0..self.subscriptions.len()).filter(|subscription| is_meant(&self.subscriptions[*subscription])).collect()
    }

    /// Breaks those of a client.
    pub(super) fn unplug(&mut self, client: usize) {
        for subscription in self.subscriptions_that(|subscription| {
            subscription.client == client && subscription.is_subscribed && !subscription.is_lost
        }) {
            self.break_subscription(subscription);
        }
    }

    /// The node finds that a client is gone.
    pub(super) fn drop_lines(&mut self, client: usize) {
        for subscription in self.subscriptions_that(|subscription| subscription.client == client) {
            self.broken(subscription, false);
        }
    }

    /// The node goes down.
    pub(super) fn cut_lines(&mut self, node: usize) {
        for subscription in self.subscriptions_that(|subscription| subscription.node == node && !subscription.is_broken)
        {
            self.broken(subscription, false);
            self.plan_at(self.now + 50 * US, Event::Broken { subscription, for_client: true });
        }
    }
}

/// A client's end of a push connection.
pub(super) struct SimulatedPush(pub(super) usize);

impl Push for SimulatedPush {
    fn receive(&mut self, timeout: Duration) -> Heard {
        let subscription = self.0;
        let (client, by) = with(|world| {
            let client = world.subscriptions[subscription].client;
            (client, world.tick(client).after(timeout))
        });
        loop {
            let (text, is_broken, left) = with(|world| {
                let left = by.since(world.tick(client));
                let is_broken = world.subscriptions[subscription].is_broken || world.clients[client].is_dead;
                (world.subscriptions[subscription].inbox.pop_front(), is_broken, left)
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
                    world.subscriptions[subscription].waiter = Some(waiter);
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
            world.subscriptions[self.0].is_broken = true;
            let at = world.now + fastrand::u64(0..2 * MS);
            world.plan_at(at, Event::Broken { subscription: self.0, for_client: false });
        });
    }
}

impl fmt::Debug for SimulatedPush {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SimulatedPush({})", self.0)
    }
}
