//! A TCP proxy that disturbs the traffic to one server.
//!
//! 1. `act.rs`: [`Act`], the effect on a command, and [`Fault`], the handle of a rule.
//! 2. `rules.rs`: selects the rule that acts on a command.
//! 3. `resp.rs`: splits streams into whole requests and whole replies.
//! 4. `state.rs`: everything that the threads share, under one lock.
//! 5. `traffic.rs`: handles requests and replies.
//! 6. `link.rs`: the four threads of one connection.
//! 7. `accept.rs`: the accepting thread, which owns the threads of all links.

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

/// A command as a [`Proxy`] received it from a client.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Seen {
    /// The name of the script for EVAL and EVALSHA of a known script, and `acquire` for `SET` with `NX PX`. Otherwise
    /// it is the name of the command in upper case.
    pub name: String,
    /// All words after the name of the command. For EVALSHA they are the digest, the number of keys, the keys and the
    /// arguments.
    pub args: Vec<String>,
    /// The time at which the command arrived. The proxy acts on it later.
    pub at: Instant,
    /// The number of the connection, counted from 0.
    pub connection: u64,
}

/// A proxy in front of one server, on a port of 127.0.0.1. It can cause faults.
///
/// The proxy splits the traffic into whole commands and whole replies. It logs the commands, and acts on those that a
/// rule names. Names are compared without case: `"acquire"` is a script of `redlock-sync` or `SET` with `NX PX`,
/// `"PING"` is a command, and `"*"` is any command.
///
/// If several rules name a command, the oldest due one-time rule acts. If there is none, the newest rule for each
/// command acts.
///
/// An EVALSHA of a script that the server does not know, and the EVAL that follows, are two commands with the name of
/// the script. An act that needs an executed command waits for the second one.
///
/// [`Proxy::refuse`] simulates a server that is down: the proxy accepts a connection and resets it at once. A drop of
/// the proxy resets all connections and ends all of its threads.
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
    /// Starts a proxy in front of `server`. It passes everything.
    pub fn start(server: &Server) -> Self {
        let port = Port::free();
        let shared = Arc::new(Shared::new(server.addr()));
        for script in redlock_sync::__private::scripts() {
            shared.name_script(script.operation, &script.sha);
        }
        let acceptor = Mutex::new(Some(Acceptor::start(&port, &shared)));
        let proxy = Self { port, url: Mutex::default(), shared, acceptor };
        proxy.target(server);
        proxy
    }

    /// The URL of the server through this proxy.
    pub fn url(&self) -> String {
        self.url.lock().unwrap().clone()
    }

    /// The port on 127.0.0.1. It stays the same as long as the proxy exists.
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// The address on which the proxy listens.
    pub fn addr(&self) -> SocketAddr {
        self.port.addr()
    }

    /// Directs new connections to `server`. [`Proxy::drop_connections`] makes clients reconnect.
    pub fn target(&self, server: &Server) {
        *self.url.lock().unwrap() = server.url_at(self.port());
        self.shared.lock().target = server.addr();
    }

    /// Gives a name to another script, for rules and for the log.
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

    /// Acts on the `nth` command `name` from now on. The next one is the first.
    pub fn on_nth(&self, name: &str, nth: usize, act: Act) -> Fault {
        assert!(nth > 0, "commands are counted from 1");
        self.rule(name, Some(nth), act)
    }

    /// Acts on each command `name` until [`Proxy::heal`] or [`Fault::release`].
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
    /// Lets nothing pass in either direction from now on. Connections stay open, the proxy accepts new ones, and it
    /// keeps everything until [`Proxy::heal`].
    pub fn black_hole(&self) {
        self.shared.lock().hole = true;
    }

    /// Resets all connections and refuses new ones, until [`Proxy::heal`]. Both are done when this returns.
    pub fn refuse(&self) {
        self.shared.lock().refuse();
        self.shared.all_changed();
        drop(self.acceptor().take());
    }

    /// Delays all requests and replies by this time from now on. A round trip takes twice as long. Nothing queues:
    /// bytes that are sent at the same time arrive at the same time.
    pub fn latency(&self, latency: Duration) {
        self.shared.lock().latency = latency;
    }

    /// Limits the bytes per second on each connection, in each direction.
    pub fn bandwidth(&self, bytes_per_second: u32) {
        self.shared.lock().bandwidth = Some(bytes_per_second);
    }

    /// Works like [`Proxy::latency`], but is no fault: [`Proxy::heal`] restores this latency.
    pub fn distance(&self, latency: Duration) {
        let mut state = self.shared.lock();
        (state.latency, state.distance) = (latency, latency);
    }

    /// Ends all faults and removes all rules. Held commands and replies pass in their order, and so does what a black
    /// hole has kept. The proxy accepts connections on the same port. What was already delayed still arrives at its
    /// time.
    pub fn heal(&self) {
        self.shared.lock().heal();
        self.shared.all_changed();
        self.acceptor().get_or_insert_with(|| Acceptor::start(&self.port, &self.shared));
    }

    /// Resets all current connections. What they hold back is lost.
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
    /// All commands that came in, the oldest first. They include commands that never reached the server.
    pub fn seen(&self) -> Vec<Seen> {
        self.shared.lock().seen.clone()
    }

    /// The number of commands `name` that came in.
    pub fn count(&self, name: &str) -> usize {
        self.shared.lock().seen.iter().filter(|seen| rules::matches(name, &seen.name)).count()
    }

    /// Waits until `n` commands `name` have come in. Panics after `deadline`.
    pub fn wait_count(&self, name: &str, n: usize, deadline: Duration) {
        let what = format!("the proxy saw `{name}` {n} times");
        crate::eventually(&what, deadline, || self.count(name) >= n);
    }

    /// Clears the log of commands.
    pub fn clear_log(&self) {
        self.shared.lock().seen.clear();
    }

    /// Takes the log of commands and clears it, so that the log does not grow in a long run.
    pub fn take_log(&self) -> Vec<Seen> {
        std::mem::take(&mut self.shared.lock().seen)
    }

    /// The number of open connections.
    pub fn connections(&self) -> usize {
        self.shared.lock().links.len()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.refuse();
    }
}
