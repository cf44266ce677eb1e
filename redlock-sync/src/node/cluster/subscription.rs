//! A subscription to a channel of a cluster.
//!
//! A message published at one server reaches the subscribers of all servers. But `PUBLISH` counts only subscribers at
//! its own server, and a waiter that is not counted is taken for dead. So the client subscribes at every master, and
//! reads at one of them. Each message is read once, and one thread waits on one connection, as with a single server.
//! Messages on the other connections are discarded from time to time.
//!
//! A master can lack the subscription if it is new or a connection broke. Then the message arrives although the server
//! counted no subscriber and freed the lock again. So a grant counts only after an attempt has confirmed it
//! (`acquire.rs`).
//!
//! Two alternatives were rejected. A subscription only at the master of the key's slot needs a connection and a thread
//! for each master, and must follow the slot. Sharded channels need a subscription for each wait, and Redis 7.

use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;

use super::Cluster;
use crate::clock::Tick;
use crate::node::server::Server;
use crate::node::subscriber::{self, ServerSubscription};
use crate::node::{Failure, FailureKind, Heard, Subscriber};

/// How often the subscriptions are checked and their messages discarded.
const MAINTENANCE_PERIOD: Duration = Duration::from_millis(250);

/// Subscribes at every master that answers, and reads at one of them.
pub(in crate::node) fn subscribe(
    cluster: &Arc<Cluster>,
    channel: &str,
    by: Tick,
) -> Result<ServerSubscription, Failure> {
    let none = || Failure::unsent(FailureKind::Unreachable, "no server of the cluster is known");
    let reader = cluster.any().ok_or_else(none)?;
    let subscription = subscriber::subscribe(&reader.host, channel, by)?;
    let others = Arc::new(OtherSubscriptions {
        cluster: Arc::downgrade(cluster),
        channel: channel.to_owned(),
        reader,
        subscriptions: Mutex::default(),
    });
    others.maintain();
    maintain_later(cluster, &others);
    Ok(subscription.with_others(others))
}

/// The subscriptions at the other masters.
struct OtherSubscriptions {
    cluster: Weak<Cluster>,
    channel: String,
    reader: Arc<Server>,
    /// Each master, and the connection by which it counts the client.
    subscriptions: Mutex<Vec<(Arc<Server>, ServerSubscription)>>,
}

impl OtherSubscriptions {
    /// Discards messages, and subscribes at masters that are new or answer again.
    fn maintain(&self) {
        let Some(cluster) = self.cluster.upgrade() else { return };
        let masters = cluster.servers();
        let mut subscriptions = self.subscriptions.lock();
        subscriptions
            .retain_mut(|(server, conn)| masters.iter().any(|master| Arc::ptr_eq(master, server)) && drain(conn));
        for master in masters {
            let is_there = Arc::ptr_eq(&master, &self.reader)
                || subscriptions.iter().any(|(server, _)| Arc::ptr_eq(server, &master));
            let by = cluster.context.clock.now().after(2 * cluster.context.settings.node_timeout);
            if !is_there && let Ok(conn) = subscriber::subscribe(&master.host, &self.channel, by) {
                subscriptions.push((master, conn));
            }
        }
    }
}

/// Discards all messages. Returns false if the connection is broken.
fn drain(conn: &mut ServerSubscription) -> bool {
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
