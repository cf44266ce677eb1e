//! Which server of a cluster serves which slot.

use std::collections::HashSet;
use std::sync::Arc;

use super::slots::SLOTS;
use super::slots_reply::{MOST_MASTERS, Range, SlotsReply};
use crate::node::server::Server;

/// The server of each slot, as far as known.
#[derive(Default)]
pub(super) struct SlotMap {
    slots: Vec<Option<Arc<Server>>>,
    /// The servers of the map, ordered by address. Before the map is known, those of the URL.
    pub(super) servers: Vec<Arc<Server>>,
    /// Servers that are not in the map: those of the URL, and those that redirects named. They are asked for the map if
    /// no server of the map answers. A server that gets its first slots is not in the map yet.
    pub(super) others: Vec<Arc<Server>>,
    /// True if the map came from a server.
    pub(super) is_known: bool,
    /// The node ids of all servers in the map, including replicas.
    pub(super) ids: Vec<String>,
}

impl SlotMap {
    pub(super) fn from_reply(reply: &SlotsReply, mut server_of: impl FnMut(&Range) -> Arc<Server>) -> SlotMap {
        let (mut slots, mut servers) = (vec![None; SLOTS], Vec::new());
        for range in &reply.ranges {
            let server = server_of(range);
            if let Some(part) = slots.get_mut(range.first..=range.last) {
                part.fill(Some(Arc::clone(&server)));
            }
            servers.push(server);
        }
        servers.sort_by(|a, b| a.address().cmp(b.address()));
        servers.dedup_by(|a, b| Arc::ptr_eq(a, b));
        SlotMap { slots, servers, others: Vec::new(), is_known: true, ids: reply.ids.clone() }
    }

    /// The server of a slot. If it is unknown, or the call has no key, any server that is not left out.
    pub(super) fn server(&self, slot: Option<usize>) -> Option<&Arc<Server>> {
        slot.and_then(|slot| self.slots.get(slot)?.as_ref()).or_else(|| self.any())
    }

    /// The first server that is not left out. It stays the same while it answers.
    pub(super) fn any(&self) -> Option<&Arc<Server>> {
        self.servers.iter().find(|server| server.outage().is_none()).or(self.servers.first())
    }

    /// One slot of each server.
    pub(super) fn slots(&self) -> Vec<usize> {
        let mut known = HashSet::new();
        let mut is_first =
            |server: &Option<Arc<Server>>| server.as_ref().is_some_and(|one| known.insert(Arc::as_ptr(one)));
        self.slots.iter().enumerate().filter_map(|(slot, server)| is_first(server).then_some(slot)).collect()
    }

    pub(super) fn server_at(&self, address: &str) -> Option<&Arc<Server>> {
        self.all().find(|server| server.address() == address)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<Server>> {
        self.servers.iter().chain(&self.others)
    }

    /// Keeps servers of the former map that are not in this one, if they are not left out, up to a bound.
    pub(super) fn keep(&mut self, met: Vec<Arc<Server>>) {
        let is_other = |server: &Arc<Server>| server.outage().is_none() && self.server_at(server.address()).is_none();
        self.others = met.into_iter().filter(is_other).take(MOST_MASTERS).collect();
    }

    /// Records that the slot is now served by this server.
    pub(super) fn correct(&mut self, slot: usize, server: &Arc<Server>) {
        if self.slots.is_empty() {
            self.slots = vec![None; SLOTS];
        }
        if let Some(entry) = self.slots.get_mut(slot) {
            *entry = Some(Arc::clone(server));
        }
    }

    pub(super) fn has_same_servers(&self, other: &SlotMap) -> bool {
        self.servers.iter().map(Arc::as_ptr).eq(other.servers.iter().map(Arc::as_ptr))
    }
}
