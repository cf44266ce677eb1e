//! Redis Cluster: one node of a client, kept on several servers of which each has a part of the slots.
//!
//! The servers are as any others, each with its own connections and breaker; what is here says which of them a call goes to.
//! The `redis` crate's own client for clusters is not used: it sends and receives in one step, so no round could go to several clusters at once, and a
//! server that is stopped would hold up the calls for all others.
//!
//! 1. `slots.rs`: into which slot a key falls.
//! 2. `redirect.rs`: replies that send a call elsewhere.
//! 3. `told.rs`: how servers tell which of them serves which slot. `map.rs`: what is known of it.
//! 4. Here: the map is asked, corrected, and learnt anew.
//! 5. `push.rs`: the push connection.
//! 6. `url.rs`: the URL with its list of hosts.

mod map;
mod push;
pub(super) mod redirect;
mod slots;
pub(super) mod told;
pub(super) mod url;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};

use self::map::Map;
pub(super) use self::push::subscribe;
use self::redirect::{Address, Redirect, Route};
use self::slots::slot_of;
use self::told::Told;
use super::host::{Host, MapKeeper, Shared};
use super::server::Server;
use super::socket::RedisServer;
use super::url::host_port;
use super::{Failure, NodeUrl};
use crate::clock::Tick;
use crate::protocol::script::Call;

/// So often the servers are asked for the map at most.
const LEAST_PAUSE: Duration = Duration::from_millis(500);
/// A call is sent elsewhere so often at most.
const MOST_REDIRECTS: u8 = 4;

/// A cluster as a member of a client.
pub(crate) struct Cluster {
    member: usize,
    url: NodeUrl,
    shared: Shared,
    /// Those that its servers get.
    numbers: Arc<AtomicUsize>,
    map: RwLock<Map>,
    /// When the servers were asked for the map last.
    asked: Mutex<Option<Tick>>,
    /// They are to be asked again.
    is_planned: AtomicBool,
    this: Weak<Cluster>,
}

impl Cluster {
    pub(super) fn new(member: usize, url: NodeUrl, shared: Shared, numbers: Arc<AtomicUsize>) -> Arc<Cluster> {
        Arc::new_cyclic(|this: &Weak<Cluster>| {
            let mut cluster = Cluster {
                member,
                url,
                shared,
                numbers,
                map: RwLock::default(),
                asked: Mutex::new(None),
                is_planned: AtomicBool::new(false),
                this: this.clone(),
            };
            let seeds = cluster.seeds();
            cluster.map = RwLock::new(Map::of(seeds));
            cluster
        })
    }

    pub(crate) fn address(&self) -> &str {
        self.url.address()
    }

    fn seeds(&self) -> Vec<Arc<Server>> {
        self.url.hosts().iter().map(|(host, port)| self.server(host, *port)).collect()
    }

    /// Makes what everything about one of its servers shares. No I/O.
    fn server(&self, host: &str, port: u16) -> Arc<Server> {
        let dial = Arc::new(RedisServer::new(self.url.at(host, port)));
        let number = self.numbers.fetch_add(1, Ordering::Relaxed);
        let keeper: Weak<dyn MapKeeper> = self.this.clone();
        let host = Host::new((self.member, number), dial, self.shared.clone(), Some(keeper));
        Server::new(host, &self.shared.arrivals)
    }

    pub(super) fn servers(&self) -> Vec<Arc<Server>> {
        self.map.read().servers.clone()
    }

    /// One that is well, if any is.
    pub(super) fn any(&self) -> Option<Arc<Server>> {
        self.map.read().any().cloned()
    }

    /// Where this call goes.
    pub(super) fn server_for(&self, call: &Call) -> Option<Arc<Server>> {
        self.map.read().server(call.slot.or_else(|| call.first_key().map(slot_of))).cloned()
    }

    /// A slot of each master.
    pub(super) fn slots(&self) -> Vec<usize> {
        if !self.map.read().is_told {
            self.ask();
        }
        self.map.read().slots()
    }

    // --- redirects ----------------------------------------------------------------------------------------------------

    /// Where a call goes on after that reply, and how; nothing if the reply is its answer.
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
            Redirect::TryAgain if call.script.min_keys > 0 && call.token.is_some() && !route.is_alone => {
                Some((Arc::clone(from), Route { is_alone: true, ..route }))
            }
            Redirect::TryAgain => None,
            Redirect::Down => {
                self.learn_soon();
                None
            }
            _ if route.redirects == MOST_REDIRECTS => None,
            Redirect::Ask(address) => Some((self.at(address, from), on(true))),
            Redirect::Moved(slot, address) => {
                let server = self.at(address, from);
                self.map.write().correct(slot, &server);
                self.learn_soon();
                Some((server, on(false)))
            }
        }
    }

    /// The server at that address, which may be new.
    fn at(&self, (host, port): Address, from: &Server) -> Arc<Server> {
        let host = host.unwrap_or_else(|| host_of(from.address()));
        let address = host_port(&host, port);
        if let Some(known) = self.map.read().at(&address) {
            return Arc::clone(known);
        }
        let mut map = self.map.write();
        if let Some(known) = map.at(&address) {
            return Arc::clone(known);
        }
        let server = self.server(&host, port);
        map.servers.push(Arc::clone(&server));
        server
    }

    // --- the map ------------------------------------------------------------------------------------------------------

    /// Asks one server after the other, those that are well first, and at last those of the URL. A new connection brings the map.
    fn ask(&self) {
        *self.asked.lock() = Some(self.shared.clock.now());
        self.is_planned.store(false, Ordering::Release);
        let is_told = |server: &Arc<Server>| {
            server.outage().is_none() && server.host.connect(self.shared.settings.node_timeout).is_ok()
        };
        let mut servers = self.servers();
        // One that is cut off from the others tells what was, and shall not be the first each time.
        fastrand::shuffle(&mut servers);
        if !servers.iter().any(is_told) {
            let _told = self.others().iter().any(is_told);
        }
    }

    /// Those of the URL that are not in the map, and others that it has met.
    fn others(&self) -> Vec<Arc<Server>> {
        let mut map = self.map.write();
        for (host, port) in self.url.hosts() {
            if map.at(&host_port(host, *port)).is_none() {
                let other = self.server(host, *port);
                map.others.push(other);
            }
        }
        map.others.clone()
    }

    // --- as a node ----------------------------------------------------------------------------------------------------

    /// Why no server of it can be asked, if that is so.
    pub(super) fn outage(&self) -> Option<Failure> {
        self.any()?.outage()
    }

    pub(super) fn uptime(&self) -> Option<Duration> {
        self.shared.identities.uptime(self.member, self.shared.clock.now())
    }

    pub(super) fn run_id(&self) -> Option<String> {
        self.shared.identities.run_id(self.member)
    }
}

impl MapKeeper for Cluster {
    /// In the background; if that was done just now, a little later.
    fn learn_soon(&self) {
        if self.is_planned.swap(true, Ordering::AcqRel) {
            return;
        }
        let now = self.shared.clock.now();
        let pause = self.asked.lock().map_or(Duration::ZERO, |asked| asked.after(LEAST_PAUSE).since(now));
        let this = self.this.clone();
        self.shared.background.after(pause, move || {
            if let Some(cluster) = this.upgrade() {
                cluster.ask();
            }
        });
    }

    fn learn(&self, told: &Told, from: &str) -> bool {
        let mut map = self.map.write();
        if told.is_of_another(&map.ids) {
            // Its address was given to another cluster; or the whole cluster was replaced, and no server of the former one is left.
            let is_well = |server: &Arc<Server>| server.address() != from && server.outage().is_none();
            if map.servers.iter().any(is_well) {
                return false;
            }
            log::warn!("node {} ({}) is another Redis Cluster than before", self.member + 1, self.address());
        }
        let mut known: Vec<_> = map.all().cloned().collect();
        let mut ranges = Vec::with_capacity(told.ranges.len());
        for range in &told.ranges {
            let host = range.host.clone().unwrap_or_else(|| host_of(from));
            let address = host_port(&host, range.port);
            let found = known.iter().find(|server| server.address() == address).cloned();
            let server = found.unwrap_or_else(|| {
                let server = self.server(&host, range.port);
                known.push(Arc::clone(&server));
                server
            });
            ranges.push((range.first, range.last, server));
        }
        let mut next = Map::told(&ranges, &told.ids);
        next.keep(known);
        let former = std::mem::replace(&mut *map, next);
        let is_new = !former.is_told || !map.has_same_servers(&former);
        drop(map);
        if is_new {
            self.shared.tell_return();
        }
        true
    }
}

/// The host of an address.
fn host_of(address: &str) -> String {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    host.trim_matches(['[', ']']).to_owned()
}

impl fmt::Display for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.url.fmt(f)
    }
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
