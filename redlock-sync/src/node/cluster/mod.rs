//! Redis Cluster: one node of a client on several servers, each of which serves a part of the hash slots.
//!
//! Each server has its own connections and circuit breaker, like any other. This module decides to which server a call
//! goes. The cluster client of the `redis` crate is not used, because it sends and receives in one step. A round could
//! not ask several clusters at once, and a stopped server would delay the calls to all others.
//!
//! 1. `slots.rs`: the hash slot of a key.
//! 2. `redirect.rs`: replies that redirect a call.
//! 3. `slots_reply.rs`: the reply to `CLUSTER SLOTS`. `slot_map.rs`: the map that is made of it.
//! 4. `mod.rs`: fetches and corrects the map, and routes calls by it.
//! 5. `subscription.rs`: a subscription to a channel of the cluster.

pub(super) mod redirect;
mod slot_map;
pub(super) mod slots;
pub(super) mod slots_reply;
mod subscription;

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};

use self::redirect::{Address, Redirect, Route};
use self::slot_map::SlotMap;
use self::slots::slot_of;
use self::slots_reply::{MOST_MASTERS, SlotsReply};
pub(super) use self::subscription::subscribe;
use super::host::{Host, HostContext, SlotMapOwner};
use super::server::Server;
use super::socket::RedisServer;
use super::url::host_port;
use super::{Failure, NodeUrl};
use crate::clock::Tick;
use crate::protocol::script::Call;

/// The shortest time between two fetches of the map.
const MIN_FETCH_INTERVAL: Duration = Duration::from_millis(500);
/// How often one call is redirected at most.
const MAX_REDIRECTS: u8 = 4;

/// A cluster as a node of a client.
pub(crate) struct Cluster {
    pub(super) member: usize,
    url: NodeUrl,
    pub(super) context: HostContext,
    map: RwLock<SlotMap>,
    /// When the map was last fetched.
    fetched_at: Mutex<Option<Tick>>,
    /// True if a fetch is scheduled.
    ///
    /// `fetch_map` stores false after it has set `fetched_at`. Pairs with `Cluster::refresh_soon`: the thread that
    /// swaps in true reads that time. Otherwise it could fetch the map again without a pause.
    is_planned: AtomicBool,
    this: Weak<Cluster>,
}

impl Cluster {
    pub(super) fn new(member: usize, url: NodeUrl, context: HostContext) -> Arc<Cluster> {
        Arc::new_cyclic(|this: &Weak<Cluster>| {
            let mut cluster = Cluster {
                member,
                url,
                context,
                map: RwLock::default(),
                fetched_at: Mutex::new(None),
                is_planned: AtomicBool::new(false),
                this: this.clone(),
            };
            let seeds = cluster.url.hosts.iter().map(|(host, port)| cluster.server(host, *port)).collect();
            cluster.map.get_mut().servers = seeds;
            cluster
        })
    }

    pub(crate) fn address(&self) -> &str {
        self.url.address()
    }

    /// Makes a server of the cluster. Does no I/O.
    fn server(&self, host: &str, port: u16) -> Arc<Server> {
        let dial = Arc::new(RedisServer::new(self.url.with_host(host, port)));
        let owner: Weak<dyn SlotMapOwner> = self.this.clone();
        Server::new(Host::new(self.member, dial, self.context.clone(), Some(owner)))
    }

    pub(super) fn servers(&self) -> Vec<Arc<Server>> {
        self.map.read().servers.clone()
    }

    /// A server that is not left out, if there is one.
    pub(super) fn any(&self) -> Option<Arc<Server>> {
        self.map.read().any().cloned()
    }

    /// The server to which this call goes.
    pub(super) fn server_for(&self, call: &Call) -> Option<Arc<Server>> {
        self.map.read().server(call.slot.or_else(|| call.first_key().map(slot_of))).cloned()
    }

    /// One slot of each master.
    pub(super) fn slots(&self) -> Vec<usize> {
        if !self.map.read().is_known {
            self.fetch_map();
        }
        self.map.read().slots()
    }

    // --- redirects ---------------------------------------------------------------------------------------------------

    /// The next server and route of a call after an error reply. `None` if the reply is the result of the call.
    pub(super) fn redirect(
        &self,
        reply: &redis::Value,
        from: &Arc<Server>,
        call: &Call,
        route: Route,
    ) -> Option<(Arc<Server>, Route)> {
        let on = |asks| Route { asks, redirects: route.redirects + 1, ..route };
        match Redirect::read(reply)? {
            // What only takes a wait out of the queue needs the queue.
            Redirect::TryAgain if call.script.min_keys > 0 && call.token.is_some() && !route.first_keys_only => {
                Some((Arc::clone(from), Route { first_keys_only: true, ..route }))
            }
            Redirect::TryAgain => None,
            Redirect::Down => {
                self.refresh_soon();
                None
            }
            _ if route.redirects == MAX_REDIRECTS => None,
            Redirect::Ask(address) => Some((self.server_at(address, from)?, on(true))),
            Redirect::Moved(slot, address) => {
                let server = self.server_at(address, from)?;
                self.map.write().correct(slot, &server);
                self.refresh_soon();
                Some((server, on(false)))
            }
        }
    }

    /// The server at this address. It may be new. `None` if redirects named too many servers that are in no map.
    fn server_at(&self, (host, port): Address, from: &Server) -> Option<Arc<Server>> {
        let host = host.unwrap_or_else(|| host_of(from.address()));
        let address = host_port(&host, port);
        let mut map = self.map.write();
        if let Some(known) = map.server_at(&address) {
            return Some(Arc::clone(known));
        }
        if map.servers.len() >= 2 * MOST_MASTERS {
            self.refresh_soon();
            return None;
        }
        let server = self.server(&host, port);
        map.servers.push(Arc::clone(&server));
        Some(server)
    }

    // --- the map -----------------------------------------------------------------------------------------------------

    /// Asks one server after the other until one answers: first those of the map, then the others. Connecting brings
    /// the map.
    fn fetch_map(&self) {
        *self.fetched_at.lock() = Some(self.context.clock.now());
        self.is_planned.store(false, Ordering::Release);
        let has_answered = |server: &Arc<Server>| {
            let has_answered = server.outage().is_none() && server.host.connect().is_ok();
            server.host.tell_health_soon();
            has_answered
        };
        let mut servers = self.servers();
        // A server that is cut off from the others reports an old map. It must not be the first each time.
        fastrand::shuffle(&mut servers);
        if !servers.iter().any(has_answered) {
            let _answered = self.others().iter().any(has_answered);
        }
    }

    /// Servers that are not in the map: those of the URL, and others that redirects named.
    fn others(&self) -> Vec<Arc<Server>> {
        let mut map = self.map.write();
        for (host, port) in &self.url.hosts {
            if map.server_at(&host_port(host, *port)).is_none() {
                let other = self.server(host, *port);
                map.others.push(other);
            }
        }
        map.others.clone()
    }

    // --- state ---------------------------------------------------------------------------------------------------

    /// Why no server of the cluster can be asked, if that is the case.
    pub(super) fn outage(&self) -> Option<Failure> {
        self.any()?.outage()
    }
}

impl SlotMapOwner for Cluster {
    /// Fetches the map in the background: now, or a little later if it was just fetched.
    fn refresh_soon(&self) {
        if self.is_planned.swap(true, Ordering::AcqRel) {
            return;
        }
        let now = self.context.clock.now();
        let pause =
            self.fetched_at.lock().map_or(Duration::ZERO, |fetched_at| fetched_at.after(MIN_FETCH_INTERVAL).since(now));
        let this = self.this.clone();
        let fetch = move || {
            if let Some(cluster) = this.upgrade() {
                cluster.fetch_map();
            }
        };
        if !self.context.background.after(pause, fetch) {
            self.is_planned.store(false, Ordering::Release);
        }
    }

    fn update(&self, reply: &SlotsReply, from: &str) -> bool {
        let mut map = self.map.write();
        if reply.is_of_another_cluster(&map.ids) {
            // Either the server's address was given to another cluster, or the whole cluster was replaced. In the
            // second case no former server answers any more.
            let is_up = |server: &Arc<Server>| server.address() != from && server.outage().is_none();
            if map.servers.iter().any(is_up) {
                return false;
            }
            log::warn!("node {} ({}) is now another Redis Cluster", self.member + 1, self.address());
        }
        let mut known: Vec<_> = map.all().cloned().collect();
        let mut next = SlotMap::from_reply(reply, |range| {
            let host = range.host.clone().unwrap_or_else(|| host_of(from));
            let address = host_port(&host, range.port);
            let found = known.iter().find(|server| server.address() == address).cloned();
            found.unwrap_or_else(|| {
                let server = self.server(&host, range.port);
                known.push(Arc::clone(&server));
                server
            })
        });
        next.keep(known);
        let former = std::mem::replace(&mut *map, next);
        let is_new = !former.is_known || !map.has_same_servers(&former);
        drop(map);
        if is_new {
            self.context.notify_return();
        }
        true
    }
}

/// The host in an address.
fn host_of(address: &str) -> String {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    host.trim_matches(['[', ']']).to_owned()
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.url.fmt(f)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by a panic")]
mod tests {
    use super::*;
    use crate::clock::{Clock, SystemClock};
    use crate::node::Nodes;
    use crate::node::members::Node;
    use crate::options::ClientOptions;
    use crate::protocol::script::HEALTH;

    /// A broken server could name another server in each reply.
    #[test]
    fn the_servers_of_a_cluster_have_a_bound() {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let url = NodeUrl::parse("redis+cluster://127.0.0.1:1").unwrap();
        let nodes = Nodes::new(&[url], &ClientOptions::default(), &clock).unwrap();
        let Some(Node::Cluster(cluster)) = nodes.all.first() else { panic!("a cluster") };
        let call = Call::new(&HEALTH, &[], &[]);
        let first = cluster.any().unwrap();
        let named = |n: usize| {
            let line = format!("-MOVED {n} h{n}:1\r\n");
            let reply = redis::parse_redis_value(line.as_bytes()).unwrap();
            cluster.redirect(&reply, &first, &call, Route::default()).is_some()
        };
        assert_eq!((0..3 * MOST_MASTERS).filter(|n| named(*n)).count(), 2 * MOST_MASTERS - 1);
        // The servers of former maps are kept, in case that the new map is wrong.
        for round in 0..5 {
            let entry = |n: usize| format!("*3\r\n:{n}\r\n:{n}\r\n*2\r\n+m{round}-{n}\r\n:1\r\n");
            let entries: String = (0..MOST_MASTERS).map(entry).collect();
            let reply = redis::parse_redis_value(format!("*{MOST_MASTERS}\r\n{entries}").as_bytes()).unwrap();
            assert!(cluster.update(&SlotsReply::read(&reply).unwrap().unwrap(), first.address()));
            let map = cluster.map.read();
            assert!(
                map.servers.len() == MOST_MASTERS && map.all().count() <= 2 * MOST_MASTERS,
                "{}",
                map.all().count()
            );
        }
    }
}
