//! A master and its replica: what the one has written, and what the other has of it.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use super::plan::{Plan, Time};
use crate::node::memory::Item;

/// The data of a server.
pub(super) type Items = BTreeMap<Vec<u8>, Item>;

/// What is between the two servers.
#[derive(Debug, Default)]
pub(super) struct Replication {
    pub(super) master: usize,
    /// Since when it is; `None` from before the beginning.
    pub(super) since: Option<Time>,
    /// How often the master was another one than before.
    pub(super) moves: u64,
    /// When each client hears of the last time.
    pub(super) heard: Vec<Time>,
    /// The replica follows the master.
    pub(super) is_linked: bool,
    /// Writes so far, and how many of them the replica has acknowledged.
    pub(super) written: u64,
    pub(super) acknowledged: u64,
    /// What is on its way to the replica, or whose acknowledgement is on its way back.
    pub(super) stream: VecDeque<Write>,
}

/// The master's data behind a write.
#[derive(Debug)]
pub(super) struct Write {
    pub(super) number: u64,
    pub(super) arrives: Time,
    pub(super) back: Time,
    /// Until they have arrived.
    pub(super) items: Option<Items>,
}

/// What is to happen.
#[derive(Debug, Clone, Copy)]
pub(super) enum Sequel {
    /// A client that waits for the replica is answered: as soon as that has the write, or when the time is up.
    Answer { connection: usize, write: u64, latest: Time },
    /// The former master follows the new one, or a master that lost its data is followed again.
    Follow { restarted: Option<usize> },
}

impl Replication {
    pub(super) fn new(plan: &Plan) -> Replication {
        Replication { is_linked: plan.has_replica, heard: vec![0; plan.clients], ..Replication::default() }
    }

    /// The servers whose data count: a replica's do not.
    pub(super) fn counting(&self, plan: &Plan) -> Range<usize> {
        if plan.has_replica { self.master..self.master + 1 } else { 0..plan.nodes }
    }

    pub(super) fn replica(&self) -> usize {
        1 - self.master
    }
}
