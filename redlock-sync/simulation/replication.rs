//! A master and its replica: the writes of the master, and the part of them that the replica has received.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use super::plan::{Plan, Time};
use crate::node::memory::Item;

/// The data of a server.
pub(super) type Items = BTreeMap<Vec<u8>, Item>;

/// The state of the replication between the two servers.
#[derive(Debug, Default)]
pub(super) struct Replication {
    pub(super) master: usize,
    /// The time since which this server has been the master; `None` if it was the master from the start.
    pub(super) since: Option<Time>,
    /// The number of failovers so far.
    pub(super) moves: u64,
    /// The time at which each client learns of the last failover.
    pub(super) heard: Vec<Time>,
    /// True while the replica follows the master.
    pub(super) is_linked: bool,
    /// The number of writes so far, and how many of them the replica has acknowledged.
    pub(super) written: u64,
    pub(super) acknowledged: u64,
    /// The writes on their way to the replica, and those whose acknowledgement is on its way back.
    pub(super) stream: VecDeque<Write>,
}

/// The state of the master's data after a write.
#[derive(Debug)]
pub(super) struct Write {
    pub(super) number: u64,
    pub(super) arrives: Time,
    pub(super) back: Time,
    /// The data; `None` after they have arrived.
    pub(super) items: Option<Items>,
}

/// A planned step of the replication.
#[derive(Debug, Clone, Copy)]
pub(super) enum Sequel {
    /// Answers a client that waits for the replica: as soon as the replica has the write, or at the latest time.
    Answer { connection: usize, write: u64, latest: Time },
    /// The former master begins to follow the new one, or the replica follows a master that has lost its data.
    Follow { restarted: Option<usize> },
}

impl Replication {
    pub(super) fn new(plan: &Plan) -> Replication {
        Replication { is_linked: plan.has_replica, heard: vec![0; plan.clients], ..Replication::default() }
    }

    /// The servers whose data count. The data of a replica do not count.
    pub(super) fn counting(&self, plan: &Plan) -> Range<usize> {
        if plan.has_replica { self.master..self.master + 1 } else { 0..plan.nodes }
    }

    pub(super) fn replica(&self) -> usize {
        1 - self.master
    }
}
