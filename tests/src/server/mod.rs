//! Private servers.
//!
//! 1. [`find`]: selects the binary, from the environment, from `PATH`, or fetched once by `fetch.rs`.
//! 2. `supervisor.rs`: the process, which ends with the test process.
//! 3. `port.rs`: a port of 127.0.0.1 that stays reserved while its server is down.
//! 4. `builder.rs`: the settings and the start.
//! 5. `admin.rs`: the connection of the fixture, and the shortcuts for set-up and checks.
//! 6. `control.rs`: the actions of a test on a server: kill, restart, stop, fill, replicate.
//! 7. `group.rs`: a master, its replicas, and Sentinels.
//! 8. `cluster.rs`: a Redis Cluster of private servers.

mod admin;
mod builder;
mod cluster;
mod control;
mod fetch;
pub mod find;
mod group;
mod port;
mod supervisor;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Mutex;
use std::thread;

pub use builder::Builder;
pub use cluster::Cluster;
pub use group::Group;
pub(crate) use port::Port;

use admin::Admin;
use supervisor::Supervisor;

/// One private server process on a port of 127.0.0.1. It ends with this value or with the test process.
///
/// All methods take `&self`, so that one thread can act on a server while another thread works with it.
///
/// ```
/// let server = redlock_tests::Server::start();
/// server.set("colour", "red");
/// assert_eq!(server.get("colour").as_deref(), Some("red"));
/// assert!(server.url().starts_with("redis://127.0.0.1:"));
/// ```
#[derive(Debug)]
pub struct Server {
    port: Port,
    settings: Builder,
    supervisor: Supervisor,
    /// The current process id. While the server is killed, it is the last one.
    pid: Mutex<u32>,
    admin: Mutex<Admin>,
}

impl Server {
    /// Starts an empty server and waits until it answers.
    pub fn start() -> Self {
        Builder::default().start()
    }

    /// Starts a server for a sample of the documentation. From now on, all clients of this process with the default
    /// settings allow for a busy machine.
    pub fn for_sample() -> Self {
        redlock_sync::__private::be_patient();
        Server::start()
    }

    /// The settings of a server that differs from the default.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// The URL `redis://127.0.0.1:PORT/`, with the password if the server has one.
    pub fn url(&self) -> String {
        self.url_at(self.port())
    }

    /// The URL like [`Server::url`], for a client that connects through another port.
    pub(crate) fn url_at(&self, port: u16) -> String {
        let auth = self.settings.password.as_ref().map(|word| format!(":{word}@"));
        format!("redis://{}127.0.0.1:{port}/", auth.unwrap_or_default())
    }

    /// The address on which the server listens.
    pub fn addr(&self) -> SocketAddr {
        self.port.addr()
    }

    /// The URL `redis+unix://PATH`. Panics if the server was not built with [`Builder::unix_socket`].
    pub fn unix_url(&self) -> String {
        assert!(self.settings.unix_socket, "this server has no unix socket: build it with `.unix_socket()`");
        let auth = self.settings.password.as_ref().map(|word| format!("?pass={word}"));
        format!("redis+unix://{}{}", self.socket().display(), auth.unwrap_or_default())
    }

    /// The port. It stays the same through all restarts.
    pub fn port(&self) -> u16 {
        self.port.number()
    }

    /// The process id of the server. While the server is killed, it is the last one.
    pub fn pid(&self) -> u32 {
        *self.pid.lock().unwrap()
    }

    /// The directory of the server, with its log in `log`. It is removed with the server.
    pub fn dir(&self) -> PathBuf {
        self.supervisor.dir().to_owned()
    }

    fn socket(&self) -> PathBuf {
        self.dir().join("socket")
    }
}

/// Starts `n` servers at once.
pub fn servers(n: usize) -> Vec<Server> {
    thread::scope(|scope| {
        let starting: Vec<_> = (0..n).map(|_| scope.spawn(Server::start)).collect();
        starting.into_iter().map(|server| server.join().expect("a server did not start")).collect()
    })
}
