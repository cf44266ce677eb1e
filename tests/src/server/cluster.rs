//! Clusters of private servers.

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use redis::{Cmd, cmd};

use super::{Port, Server};
use crate::eventually;

/// The time limit for a change of the cluster.
const EFFECT: Duration = Duration::from_secs(60);
/// The number of slots of a cluster.
const SLOTS: usize = 16384;

/// A Redis Cluster of private servers: masters, each with an equal part of the slots, and their replicas.
///
/// ```
/// let cluster = redlock_tests::Cluster::start();
/// assert_eq!(cluster.masters().len(), 3);
/// assert!(cluster.url().starts_with("redis+cluster://127.0.0.1:"));
/// ```
#[derive(Debug)]
pub struct Cluster {
    servers: Vec<Server>,
    ids: Vec<String>,
    buses: Vec<Port>,
    /// The number of replicas of each master.
    replicas: usize,
}

impl Cluster {
    /// The time after which the servers call a silent server failed.
    pub const NODE_TIMEOUT: Duration = Duration::from_millis(1500);

    /// Starts three masters with a replica each. It takes about three seconds.
    pub fn start() -> Cluster {
        Cluster::of(3, 1)
    }

    /// Starts three masters without replicas, for tests that do no harm to them. The servers wait ten times as long for
    /// a silent server.
    pub fn without_replicas() -> Cluster {
        Cluster::of(3, 0)
    }

    fn of(masters: usize, replicas: usize) -> Cluster {
        // Without replicas, it helps nothing to call a server failed, and a busy machine could cause it.
        let timeout = if replicas == 0 { 10 * Cluster::NODE_TIMEOUT } else { Cluster::NODE_TIMEOUT };
        let buses: Vec<Port> = (0..masters * (1 + replicas)).map(|_| Port::free()).collect();
        let servers: Vec<Server> = thread::scope(|scope| {
            let starting: Vec<_> = buses.iter().map(|bus| scope.spawn(move || start(bus, timeout))).collect();
            starting.into_iter().map(|server| server.join().unwrap()).collect()
        });
        let ids = servers.iter().map(|server| server.ask(cmd("CLUSTER").arg("MYID"))).collect();
        let cluster = Cluster { servers, ids, buses, replicas };
        cluster.deal(masters);
        cluster.introduce();
        cluster.replicate(masters);
        cluster.until_well();
        cluster
    }

    /// Assigns the slots to the masters.
    fn deal(&self, masters: usize) {
        for (i, server) in self.servers.iter().take(masters).enumerate() {
            let (first, last) = (i * SLOTS / masters, (i + 1) * SLOTS / masters - 1);
            server.ask::<()>(cmd("CLUSTER").arg("SET-CONFIG-EPOCH").arg(i + 1));
            server.ask::<()>(cmd("CLUSTER").arg("ADDSLOTSRANGE").arg(first).arg(last));
        }
    }

    /// Introduces all servers to each other.
    fn introduce(&self) {
        for server in &self.servers {
            for (other, bus) in self.servers.iter().zip(&self.buses) {
                let meet =
                    ["MEET", "127.0.0.1", &other.port().to_string(), &bus.number().to_string()].map(str::to_owned);
                server.ask::<()>(cmd("CLUSTER").arg(&meet));
            }
        }
        let knows = |server: &Server| {
            let nodes: String = server.ask(cmd("CLUSTER").arg("NODES"));
            self.ids.iter().all(|id| nodes.contains(id.as_str())) && !nodes.contains("handshake")
        };
        eventually("all servers know each other", EFFECT, || self.servers.iter().all(knows));
    }

    fn replicate(&self, masters: usize) {
        for (replica, master) in self.servers.iter().skip(masters).zip(self.ids.iter().take(masters).cycle()) {
            replica.ask::<()>(cmd("CLUSTER").arg("REPLICATE").arg(master));
        }
    }

    /// Waits until all running servers agree that the cluster is well. Each master must have its replicas, and they
    /// must follow it.
    pub fn until_well(&self) {
        eventually("the cluster is well", EFFECT, || {
            let mut views: Vec<Option<BTreeMap<usize, (u16, usize)>>> =
                self.servers.iter().map(Cluster::view).collect();
            views.dedup();
            let [Some(view)] = views.as_slice() else { return false };
            let follows = |server: &Server| {
                server.info("role").as_deref() == Some("master")
                    || server.info("master_link_status").as_deref() == Some("up")
            };
            view.values().all(|(_, nodes)| *nodes > self.replicas) && self.servers.iter().all(follows)
        });
    }

    /// The view of one server: for the first slot of each range, the port of the master and the number of servers that
    /// have the range. `None` while the cluster is not well.
    fn view(server: &Server) -> Option<BTreeMap<usize, (u16, usize)>> {
        let info: String = server.try_ask(cmd("CLUSTER").arg("INFO")).ok()?;
        info.contains("cluster_state:ok").then_some(())?;
        let slots: Vec<Vec<redis::Value>> = server.try_ask(cmd("CLUSTER").arg("SLOTS")).ok()?;
        let range = |entry: &Vec<redis::Value>| {
            let first: usize = redis::from_redis_value_ref(&entry[0]).unwrap();
            let redis::Value::Array(master) = &entry[2] else { panic!("{entry:?}") };
            (first, (redis::from_redis_value_ref(&master[1]).unwrap(), entry.len() - 2))
        };
        Some(slots.iter().map(range).collect())
    }

    /// The URL with the addresses of all servers.
    pub fn url(&self) -> String {
        let all: Vec<String> = self.servers.iter().map(|server| server.addr().to_string()).collect();
        format!("redis+cluster://{}", all.join(","))
    }

    /// All servers, in the order in which they were started.
    pub fn servers(&self) -> &[Server] {
        &self.servers
    }

    /// The masters, according to the first server that knows the cluster as well.
    pub fn masters(&self) -> Vec<&Server> {
        let view = self.servers.iter().find_map(Cluster::view).expect("a server is well");
        let serves = |server: &&Server| view.values().any(|(port, _)| *port == server.port());
        self.servers.iter().filter(serves).collect()
    }

    /// The master of the slot of this key.
    pub fn master_of(&self, key: &str) -> &Server {
        let slot = self.slot(key);
        let view = self.servers.iter().find_map(Cluster::view).expect("a server is well");
        let (_, (port, _)) = view.range(..=slot).next_back().expect("the slot is served");
        self.servers.iter().find(|server| server.port() == *port).unwrap()
    }

    /// The slot of this key.
    pub fn slot(&self, key: &str) -> usize {
        self.servers.iter().find_map(|server| server.try_ask(cmd("CLUSTER").arg("KEYSLOT").arg(key)).ok()).unwrap()
    }

    fn id(&self, server: &Server) -> &str {
        &self.ids[self.servers.iter().position(|other| other.port() == server.port()).unwrap()]
    }

    /// Moves all slots of the last master to the first one. The cluster must have no keys.
    pub fn empty_last(&self) -> &Server {
        let masters = self.servers.len() / (1 + self.replicas);
        let (first, last) = ((masters - 1) * SLOTS / masters, SLOTS - 1);
        let range = |word: &str| cmd("CLUSTER").arg(word).arg(first).arg(last).to_owned();
        self.servers.iter().for_each(|server| server.ask::<()>(&range("DELSLOTSRANGE")));
        self.servers[0].ask::<()>(&range("ADDSLOTSRANGE"));
        self.until_well();
        &self.servers[masters - 1]
    }

    /// Begins to move a slot. From now on, clients look up missing keys on the other server.
    pub fn open_slot(&self, slot: usize, from: &Server, to: &Server) {
        to.ask::<()>(&set_slot(slot, &["IMPORTING", self.id(from)]));
        from.ask::<()>(&set_slot(slot, &["MIGRATING", self.id(to)]));
    }

    /// Moves the keys of an open slot, one by one.
    pub fn move_keys(&self, slot: usize, from: &Server, to: &Server) {
        loop {
            let keys: Vec<String> = from.ask(cmd("CLUSTER").arg("GETKEYSINSLOT").arg(slot).arg(10));
            if keys.is_empty() {
                return;
            }
            for key in &keys {
                self.move_key(from, to, key);
            }
        }
    }

    /// Moves one key of an open slot.
    pub fn move_key(&self, from: &Server, to: &Server, key: &str) {
        let migrate = ["127.0.0.1", &to.port().to_string(), key, "0", "5000"].map(str::to_owned);
        from.ask::<()>(cmd("MIGRATE").arg(&migrate));
    }

    /// Moves up to this many keys of an open slot with one command. Returns how many there were.
    pub fn move_keys_at_once(&self, slot: usize, from: &Server, to: &Server, most: usize) -> usize {
        let keys: Vec<String> = from.ask(cmd("CLUSTER").arg("GETKEYSINSLOT").arg(slot).arg(most));
        if !keys.is_empty() {
            let destination = ["127.0.0.1", &to.port().to_string(), "", "0", "60000", "KEYS"].map(str::to_owned);
            from.ask::<()>(cmd("MIGRATE").arg(&destination).arg(&keys));
        }
        keys.len()
    }

    /// Ends the move of a slot. All servers learn its new master.
    pub fn close_slot(&self, slot: usize, to: &Server) {
        to.ask::<()>(&set_slot(slot, &["NODE", self.id(to)]));
        for server in self.masters() {
            server.ask::<()>(&set_slot(slot, &["NODE", self.id(to)]));
        }
    }

    /// Moves a slot with one command of the server (Valkey 9.0 and later). Returns false if the servers do not know the
    /// command.
    pub fn migrate_at_once(&self, slot: usize, from: &Server, to: &Server) -> bool {
        let mut command = cmd("CLUSTER");
        command.arg("MIGRATESLOTS").arg("SLOTSRANGE").arg(slot).arg(slot).arg("NODE").arg(self.id(to));
        if from.try_ask::<()>(&command).is_err() {
            return false;
        }
        eventually("the slot has moved", EFFECT, || {
            Cluster::view(from)
                .is_some_and(|view| view.range(..=slot).next_back().is_some_and(|(_, (port, _))| *port == to.port()))
        });
        true
    }
}

fn set_slot(slot: usize, rest: &[&str]) -> Cmd {
    let mut command = cmd("CLUSTER");
    command.arg("SETSLOT").arg(slot).arg(rest);
    command
}

fn start(bus: &Port, timeout: Duration) -> Server {
    let settings = [
        ("--cluster-enabled", "yes".to_owned()),
        ("--cluster-port", bus.number().to_string()),
        ("--cluster-node-timeout", timeout.as_millis().to_string()),
        ("--cluster-replica-validity-factor", "0".to_owned()),
        ("--cluster-allow-replica-migration", "no".to_owned()),
        ("--repl-ping-replica-period", "1".to_owned()),
    ];
    settings.into_iter().fold(Server::builder(), |to, (name, value)| to.arg(name).arg(value)).start()
}
