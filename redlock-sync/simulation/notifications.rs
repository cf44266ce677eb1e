//! Notification connections: a node subscribes them, and they break without either side being told.

use super::plan::{MS, chance, nanos};
use super::world::{Event, World};
use crate::node::memory::{MemoryReply, message};

impl World {
    /// Subscribes a connection at its node.
    pub(super) fn subscribe(&mut self, id: usize, channel: &str) -> MemoryReply {
        if self.clients[self.connections[id].client].is_refused {
            return MemoryReply::Error("NOPERM this user has no permissions to access one of the channels".into());
        }
        if !self.connections[id].is_broken && !self.connections[id].is_closed {
            self.connections[id].channel = Some(channel.to_owned());
            self.count_listeners(self.connections[id].node);
        }
        MemoryReply::Int(1)
    }

    /// Counts the listeners of each channel at a node.
    pub(super) fn count_listeners(&mut self, node: usize) {
        let listeners = &mut self.servers[node].store.listeners;
        listeners.clear();
        for connection in self.connections.iter().filter(|connection| connection.node == node) {
            if let Some(channel) = &connection.channel {
                *listeners.entry(channel.clone().into_bytes()).or_insert(0) += 1;
            }
        }
    }

    /// Sends a message to all listeners of a channel.
    pub(super) fn publish(&mut self, node: usize, channel: &[u8], text: &[u8]) {
        self.counts.notifications += 1;
        let listens = |channel: &[u8], known: &Option<String>| known.as_ref().is_some_and(|c| c.as_bytes() == channel);
        for id in self.connections_that(|one| one.node == node && !one.is_mute && listens(channel, &one.channel)) {
            if !self.is_healed() && chance(self.plan.lost + self.plan.reset) {
                self.break_push(id);
            } else {
                self.send_back(id, message(channel, text), Vec::new());
            }
        }
    }

    /// Breaks a notification connection. Each side notices that at its own time, and the client perhaps never.
    fn break_push(&mut self, id: usize) {
        self.counts.breaks += 1;
        self.log(|world| format!("the notification connection of client {} breaks", world.connections[id].client));
        self.connections[id].is_mute = true;
        let late = 2 * nanos(self.plan.pace);
        let soon = |is_late: bool| if is_late { fastrand::u64(0..late) } else { fastrand::u64(0..3 * MS) };
        let (client, server) = (self.now + soon(fastrand::bool()), self.now + soon(fastrand::bool()));
        if fastrand::bool() {
            self.plan_at(client, Event::Broken { connection: id, for_client: true });
        }
        self.plan_at(server, Event::Broken { connection: id, for_client: false });
    }

    /// Breaks the notification connections of a client.
    pub(super) fn unplug(&mut self, client: usize) {
        for id in self.connections_that(|one| one.client == client && one.channel.is_some() && !one.is_mute) {
            self.break_push(id);
        }
    }
}
