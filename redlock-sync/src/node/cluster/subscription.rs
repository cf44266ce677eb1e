//! The push connection to a cluster.
//!
//! What is published at one server arrives at the subscribers of all, but `PUBLISH` counts those at its own server only, and a wait that is not counted is
//! taken for dead. So the channel is subscribed at every master, and read at one: each message comes once, and its thread waits on one connection, as with a
//! single server. What comes on the others is thrown away from time to time. Where a master misses the subscription, since it is new or a connection
//! broke, the message arrives and the lock was freed again: so a grant counts only once an attempt has found it (`acquire.rs`). ClusterSubscription at the master of
//! the key's slot alone would need a connection for each master with a thread for each, and has to move with the slot; sharded channels need a subscription
//! for each wait, and Redis 7.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;

use super::Cluster;
use crate::clock::Tick;
use crate::node::server::Server;
use crate::node::{Failure, FailureKind, Heard, Push, push};

/// So often the masters are looked at, and what came at them is thrown away.
const MAINTENANCE_PERIOD: Duration = Duration::from_millis(250);

/// Subscribes at every master that is well, and reads at one of them.
pub(in crate::node) fn subscribe(cluster: &Arc<Cluster>, channel: &str, by: Tick) -> Result<Box<dyn Push>, Failure> {
    let none = || Failure::unsent(FailureKind::Unreachable, "no server of the cluster is known");
    let reader = cluster.any().ok_or_else(none)?;
    let conn = push::subscribe(&reader.host, channel, by)?;
    let subscriptions = Mutex::new(Vec::new());
    let others = Arc::new(OtherSubscriptions {
        cluster: Arc::downgrade(cluster),
        channel: channel.to_owned(),
        reader,
        subscriptions,
    });
    others.maintain();
    maintain_later(cluster, &others);
    Ok(Box::new(ClusterSubscription { conn, _others: others }))
}

/// The connection that is read; the others end with it.
struct ClusterSubscription {
    conn: Box<dyn Push>,
    _others: Arc<OtherSubscriptions>,
}

impl Push for ClusterSubscription {
    fn receive(&mut self, timeout: Duration) -> Heard {
        self.conn.receive(timeout)
    }
}

/// The subscriptions at the other masters.
struct OtherSubscriptions {
    cluster: Weak<Cluster>,
    channel: String,
    reader: Arc<Server>,
    subscriptions: Mutex<Vec<MasterSubscription>>,
}

/// A master, and the connection on which it counts the client.
type MasterSubscription = (Arc<Server>, Box<dyn Push>);

impl OtherSubscriptions {
    /// Throws away what came, and subscribes at masters that are new or back.
    fn maintain(&self) {
        let Some(cluster) = self.cluster.upgrade() else { return };
        let masters = cluster.servers();
        let mut subscriptions = self.subscriptions.lock();
        subscriptions.retain_mut(|(server, conn)| {
            masters.iter().any(|master| Arc::ptr_eq(master, server)) && drain(&mut **conn)
        });
        for master in masters {
            let is_there = Arc::ptr_eq(&master, &self.reader)
                || subscriptions.iter().any(|(server, _)| Arc::ptr_eq(server, &master));
            let by = cluster.context.clock.now().after(2 * cluster.context.settings.node_timeout);
            if !is_there && let Ok(conn) = push::subscribe(&master.host, &self.channel, by) {
                subscriptions.push((master, conn));
            }
        }
    }
}

/// False if the connection is of no more use.
fn drain(conn: &mut dyn Push) -> bool {
    loop {
        match conn.receive(Duration::ZERO) {
            Heard::Message(_) => {}
            Heard::Nothing => return true,
            Heard::Broken(_) => return false,
        }
    }
}

fn maintain_later(cluster: &Cluster, others: &Arc<OtherSubscriptions>) {
    let others = Arc::downgrade(others);
    cluster.context.background.after(MAINTENANCE_PERIOD, move || {
        let Some(others) = others.upgrade() else { return };
        others.maintain();
        if let Some(cluster) = others.cluster.upgrade() {
            maintain_later(&cluster, &others);
        }
    });
}

impl fmt::Debug for ClusterSubscription {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Listening")
    }
}
