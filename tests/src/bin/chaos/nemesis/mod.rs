//! Executes each fault at its time, and records when it began and ended.

mod clients;
mod hand;
mod node;

use std::thread;
use std::time::Duration;

use redlock_tests::{Group, Proxy, Server};

pub(crate) use clients::Clients;

use crate::clock::{MS, SEC, now};
use crate::group;
use crate::history::Struck;
use crate::plan::{Fault, Target};
use crate::run::Records;
use crate::until::Ending;

/// The servers, proxies and clients that faults can strike.
pub(crate) struct Field<'a> {
    pub(crate) servers: &'a [Server],
    pub(crate) proxies: &'a [Proxy],
    /// The Sentinel group, if the node is one.
    pub(crate) group: Option<&'a Group>,
    /// The server whose replica a node becomes.
    pub(crate) other: &'a Server,
    pub(crate) clients: &'a Clients,
    pub(crate) beyond: bool,
    /// The time that each way to a node takes without a fault.
    pub(crate) distance: Duration,
    pub(crate) records: &'a Records,
    pub(crate) ending: &'a Ending,
}

/// A fault that would begin later than planned by more than this is left out.
const LATE: u64 = SEC;

/// Executes the schedule, which began at `begin`, until its end or the end of the run.
pub(crate) fn run(field: &Field<'_>, begin: u64, faults: &[Fault]) {
    let targets = {
        let mut targets: Vec<(u8, usize)> = faults.iter().map(|fault| lane(fault.target)).collect();
        targets.sort_unstable();
        targets.dedup();
        targets
    };
    // Each target has a thread, which executes its faults one after the other.
    thread::scope(|scope| {
        for target in targets {
            scope.spawn(move || {
                for fault in faults.iter().filter(|fault| lane(fault.target) == target) {
                    if field.ending.sleep_until(begin + fault.at * MS) {
                        return;
                    }
                    let from = now();
                    // A fault of a group lasts until the group is whole again. The faults that are late by then are
                    // left out.
                    if from > begin + fault.at * MS + LATE {
                        continue;
                    }
                    let hits = strike(field, fault);
                    let struck = Struck { fault: fault.clone(), from, until: now(), hits };
                    field.records.struck.lock().unwrap().push(struck);
                }
            });
        }
    });
}

fn lane(target: Target) -> (u8, usize) {
    match target {
        Target::Node(node) => (0, node),
        Target::Client(client) => (1, client),
        Target::Key(_) => (2, 0),
    }
}

/// Executes a fault and undoes it. Returns the number of times that it took effect.
fn strike(field: &Field<'_>, fault: &Fault) -> usize {
    let length = Duration::from_millis(fault.length);
    if let (Some(group), Target::Node(_)) = (field.group, fault.target) {
        group::strike(group, fault.kind, length, usize::try_from(fault.at).expect("a short run"));
        return 1;
    }
    match fault.target {
        Target::Node(node) => node::strike(field, node, fault, length),
        Target::Client(client) => field.clients.strike(client, fault, length),
        Target::Key(key) => hand::delete(field, key),
    }
}
