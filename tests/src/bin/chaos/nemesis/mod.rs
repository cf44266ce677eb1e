//! Brings the faults about, each at its time, and writes down when it began and ended.
//!
//! 1. `node.rs`: what is done to a server and to its proxy.
//! 2. `clients.rs`: the client processes, and what is done to them.
//! 3. `hand.rs`: keys deleted by hand.

mod clients;
mod hand;
mod node;

use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use redlock_tests::{Proxy, Server};

pub(crate) use clients::Clients;

use crate::clock::{MS, now};
use crate::history::{Deleted, Struck};
use crate::plan::{Fault, Target};

/// Everything that can be injured.
pub(crate) struct Field<'a> {
    pub(crate) servers: &'a [Server],
    pub(crate) proxies: &'a [Proxy],
    /// The server whose replica a node becomes.
    pub(crate) other: &'a Server,
    pub(crate) clients: &'a Clients,
    pub(crate) beyond: bool,
    /// How long each way to a node takes without a fault.
    pub(crate) distance: Duration,
    pub(crate) deleted: &'a Mutex<Vec<Deleted>>,
}

/// Runs the whole schedule, which began at `begin`; what came of it.
pub(crate) fn run(field: &Field<'_>, begin: u64, faults: &[Fault]) -> Vec<Struck> {
    let struck = Mutex::new(Vec::new());
    let targets = {
        let mut targets: Vec<(u8, usize)> = faults.iter().map(|fault| lane(fault.target)).collect();
        targets.sort_unstable();
        targets.dedup();
        targets
    };
    // Faults of one target follow each other; each target has a thread.
    thread::scope(|scope| {
        for target in targets {
            let struck = &struck;
            scope.spawn(move || {
                for fault in faults.iter().filter(|fault| lane(fault.target) == target) {
                    sleep_until(begin + fault.at * MS);
                    let from = now();
                    let hits = strike(field, fault);
                    struck.lock().unwrap().push(Struck { fault: fault.clone(), from, until: now(), hits });
                }
            });
        }
    });
    let mut struck = struck.into_inner().unwrap();
    struck.sort_by_key(|struck: &Struck| struck.from);
    struck
}

fn lane(target: Target) -> (u8, usize) {
    match target {
        Target::Node(node) => (0, node),
        Target::Client(client) => (1, client),
        Target::Key(_) => (2, 0),
    }
}

/// Does it, and undoes it; how often it took effect.
fn strike(field: &Field<'_>, fault: &Fault) -> usize {
    let length = Duration::from_millis(fault.length);
    match fault.target {
        Target::Node(node) => node::strike(field, node, fault, length),
        Target::Client(client) => field.clients.strike(client, fault, length),
        Target::Key(key) => hand::delete(field, key),
    }
}

pub(crate) fn sleep_until(at: u64) {
    thread::sleep(Duration::from_nanos(at.saturating_sub(now())));
}
