//! A TCP proxy that injures the traffic to one server.
//!
//! 1. `act.rs`: [`Act`], what is done to a command, and [`Fault`], the handle on it.
//! 2. `rules.rs`: which command is struck by which rule.
//! 3. `resp.rs`: whole requests and whole replies out of streams.
//! 4. `state.rs`: everything the threads share, under one lock.
//! 5. `traffic.rs`: what happens on a request and on a reply.
//! 6. `link.rs`: the four threads of one connection.
//! 7. `accept.rs`: the accepting thread, and the only owner of the links' threads.

mod accept;
mod act;
mod link;
mod resp;
mod rules;
mod state;
mod traffic;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

pub use act::{Act, Fault};

use crate::Server;
use crate::server::Port;
use accept::Acceptor;
use state::Shared;

/// A command as a [`Proxy`] saw it come from a client.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Seen {
    /// The script's name for EVAL and EVALSHA of a known script, `acquire` for `SET` with `NX PX`, else the command's
    /// name in upper case.
    pub name: String,
    /// All words after the name of the command: for EVALSHA the digest, the number of keys, the keys and the arguments.
    pub args: Vec<String>,
    /// When it arrived. The proxy acts on it later.
    pub at: Instant,
    /// The number of its connection, counted from 0.
    pub connection: u64,
}

/// A fault proxy in front of one server, on a port of 127.0.0.1.
///
/// It takes the traffic apart into whole commands and whole replies, logs the commands, and acts on those that a rule
/// names. Names are compared without case: `"acquire"` for a script of `redlock-sync` or for `SET` with `NX PX`,
/// `"PING"` for a command, `"*"` for any. Where several rules name a command, the oldest due one-time rule acts, else
/// the newest one for each command.
///
/// EVALSHA of a script that the server does not know, and the EVAL that follows, are two commands of the script's name;
/// an act that needs the command executed waits for the second one.
///
/// A server that is down looks like this: the proxy accepts a connection and resets it at once. See [`Proxy::refuse`].
/// Dropping the proxy resets all connections and ends all of its threads.
///
/// ```
/// use redlock_tests::{Act, Proxy, Server};
///
/// let server = Server::start();
/// let proxy = Proxy::start(&server);
/// let mut client = redis::Client::open(proxy.url()).unwrap().get_connection().unwrap();
///
/// let fault = proxy.on("SET", Act::ResetAfter);
/// redis::cmd("SET").arg("colour").arg("red").exec(&mut client).unwrap_err();
/// assert_eq!(fault.hits(), 1);
/// assert_eq!(server.get("colour").as_deref(), Some("red"));
/// ```
#[derive(Debug)]
pub struct Proxy {
    port: Port,
    url: Mutex<String>,
    shared: Arc<Shared>,
    acceptor: Mutex<Option<Acceptor>>,
}

impl Proxy {
    /// A proxy in front of `server`, that passes everything.
    pub fn start(server: &Server) -> Self {
        let port = Port::free();
        let shared = Arc::new(Shared::new(server.addr()));
        for (name, digest) in redlock_sync::__private::scripts() {
            shared.name_script(name, &digest);
        }
        let acceptor = Mutex::new(Some(Acceptor::start(&port, &shared)));
        let proxy = Self { port, url: Mutex::default(), shared, acceptor };
        proxy.target(server);
        proxy
    }

    /// The URL of the server by way of this proxy.
    pub fn url(&self) -> String {
        self.url.lock().unwrap().clone()
    }

    /// The port of 127.0.0.1, the same one for the whole life of the proxy.
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// The address the proxy listens on.
    pub fn addr(&self) -> SocketAddr {
        self.port.addr()
    }

    /// Directs new connections to `server`. [`Proxy::drop_connections`] makes clients reconnect.
    pub fn target(&self, server: &Server) {
        *self.url.lock().unwrap() = server.url_at(self.port());
        self.shared.lock().target = server.addr();
    }

    /// Gives a name to one more script, for rules and for the log.
    pub fn name_script(&self, name: &str, body: &str) {
        self.shared.name_script(name, redis::Script::new(body).get_hash());
    }
}

/// Faults of single commands.
impl Proxy {
    /// Acts on the next command `name`.
    pub fn on(&self, name: &str, act: Act) -> Fault {
        self.on_nth(name, 1, act)
    }

    /// Acts on the `nth` command `name` from now, the next one being the first.
    pub fn on_nth(&self, name: &str, nth: usize, act: Act) -> Fault {
        assert!(nth > 0, "commands are counted from 1");
        self.rule(name, Some(nth), act)
    }

    /// Acts on every command `name` until [`Proxy::heal`] or [`Fault::release`].
    pub fn on_each(&self, name: &str, act: Act) -> Fault {
        self.rule(name, None, act)
    }

    fn rule(&self, name: &str, nth: Option<usize>, act: Act) -> Fault {
        let id = self.shared.lock().rule(name, nth, act);
        Fault::new(Arc::clone(&self.shared), id)
    }
}

/// Faults of the whole proxy.
impl Proxy {
    /// From now on nothing passes in either direction. Connections stay open, new ones are accepted, and everything is
    /// kept until [`Proxy::heal`].
    pub fn black_hole(&self) {
        self.shared.lock().hole = true;
    }

    /// Resets all connections and refuses new ones, until [`Proxy::heal`]. Both hold when this returns.
    pub fn refuse(&self) {
        self.shared.lock().refuse();
        self.shared.all_changed();
        drop(self.acceptor().take());
    }

    /// Delays everything from now on by this time, requests and replies alike. Nothing queues: bytes that are sent at
    /// the same time arrive at the same time. A round trip takes twice as long.
    pub fn latency(&self, latency: Duration) {
        self.shared.lock().latency = latency;
    }

    /// Limits the bytes per second, on each connection and in each direction.
    pub fn bandwidth(&self, bytes_per_second: u32) {
        self.shared.lock().bandwidth = Some(bytes_per_second);
    }

    /// Like [`Proxy::latency`], but not a fault: [`Proxy::heal`] restores this latency.
    pub fn distance(&self, latency: Duration) {
        let mut state = self.shared.lock();
        (state.latency, state.distance) = (latency, latency);
    }

    /// Ends all faults: no rule is left, held commands and replies go on in their order, what was kept by a black hole
    /// is delivered, connections are accepted on the old port. What was delayed already still comes at its time.
    pub fn heal(&self) {
        self.shared.lock().heal();
        self.shared.all_changed();
        self.acceptor().get_or_insert_with(|| Acceptor::start(&self.port, &self.shared));
    }

    /// Resets all current connections; what they hold back is lost.
    pub fn drop_connections(&self) {
        self.shared.lock().close_all();
        self.shared.all_changed();
    }

    fn acceptor(&self) -> std::sync::MutexGuard<'_, Option<Acceptor>> {
        self.acceptor.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The log.
impl Proxy {
    /// All commands that came in, the oldest first, those that were never passed on included.
    pub fn seen(&self) -> Vec<Seen> {
        self.shared.lock().seen.clone()
    }

    /// How many commands `name` came in.
    pub fn count(&self, name: &str) -> usize {
        self.shared.lock().seen.iter().filter(|seen| rules::matches(name, &seen.name)).count()
    }

    /// Waits until `n` commands `name` came in; panics after `deadline`.
    pub fn wait_count(&self, name: &str, n: usize, deadline: Duration) {
        let what = format!("the proxy saw `{name}` {n} times");
        crate::eventually(&what, deadline, || self.count(name) >= n);
    }

    /// Forgets the commands seen so far.
    pub fn clear_log(&self) {
        self.shared.lock().seen.clear();
    }

    /// The commands seen so far, which are forgotten with this: a long run does not grow by them.
    pub fn take_log(&self) -> Vec<Seen> {
        std::mem::take(&mut self.shared.lock().seen)
    }

    /// How many connections are open.
    pub fn connections(&self) -> usize {
        self.shared.lock().links.len()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.refuse();
    }
}
