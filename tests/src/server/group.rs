//! A master with its replicas, and the Sentinels that watch it.

use std::thread;
use std::time::{Duration, Instant};

use redis::{Value, cmd};

use super::{Builder, Server, control};
use crate::eventually;

/// The name of the master for the sentinels.
const NAME: &str = "main";
/// The time limit for the sentinels to find each other, and for a failover on a busy machine.
const LONG: Duration = Duration::from_secs(60);
/// The time in ms after which a server that does not answer counts as down.
const DOWN_AFTER: &str = "1000";

/// A private Sentinel group. Any of its servers can become the master.
///
/// ```no_run
/// let group = redlock_tests::Group::start(2, 3);
/// assert!(group.url().starts_with("redis+sentinel://127.0.0.1:"));
/// group.fail_over();
/// ```
#[derive(Debug)]
pub struct Group {
    /// The servers. The first one is the master at the start.
    pub servers: Vec<Server>,
    /// The sentinels. All of them watch the same master, with the name `main`.
    pub sentinels: Vec<Server>,
}

impl Group {
    /// Starts a master with this many replicas, and this many sentinels. All of them know each other when this returns.
    pub fn start(replicas: usize, sentinels: usize) -> Group {
        Group::with(&Server::builder(), replicas, sentinels)
    }

    /// Works like [`Group::start`], with these settings of the servers.
    pub fn with(settings: &Builder, replicas: usize, sentinels: usize) -> Group {
        let servers = started(settings, replicas + 1);
        for replica in &servers[1..] {
            replica.replica_of(&servers[0]);
        }
        let group = Group { servers, sentinels: started(&Server::builder().sentinel(), sentinels) };
        for sentinel in &group.sentinels {
            group.watched_by(sentinel);
        }
        eventually("the sentinels know all", LONG, || group.sentinels.iter().all(|one| group.is_known_to(one)));
        group
    }

    /// Starts a Sentinel that does not belong to the group. It names the server on this port as the master, under the
    /// group's name, and says that the failover with this number (`config-epoch`) made it one.
    pub fn stray(port: u16, epoch: u64) -> Server {
        let lines = format!(
            "sentinel monitor {NAME} 127.0.0.1 {port} 1\n\
             sentinel down-after-milliseconds {NAME} {DOWN_AFTER}\n\
             sentinel config-epoch {NAME} {epoch}\n"
        );
        Server::builder().sentinel_with(lines).start()
    }

    fn watched_by(&self, sentinel: &Server) {
        let (port, quorum) = (self.servers[0].port(), self.sentinels.len() / 2 + 1);
        let ask = |words: &[&str]| sentinel.ask::<()>(cmd("SENTINEL").arg(words));
        ask(&["MONITOR", NAME, "127.0.0.1", &port.to_string(), &quorum.to_string()]);
        ask(&["SET", NAME, "down-after-milliseconds", DOWN_AFTER]);
        ask(&["SET", NAME, "failover-timeout", "3000"]);
        if let Some(password) = &self.servers[0].settings.password {
            ask(&["SET", NAME, "auth-pass", password]);
        }
    }

    fn is_known_to(&self, sentinel: &Server) -> bool {
        let said: Vec<String> = sentinel.ask(cmd("SENTINEL").arg("MASTER").arg(NAME));
        let fact = |name: &str| said.chunks(2).find(|pair| pair[0] == name).map(|pair| pair[1].parse::<usize>());
        let is = |name: &str, wanted: usize| fact(name) == Some(Ok(wanted));
        is("num-slaves", self.servers.len() - 1) && is("num-other-sentinels", self.sentinels.len() - 1)
    }

    /// The URL of the group, with the password of the servers if they have one.
    pub fn url(&self) -> String {
        self.url_with(&[])
    }

    /// Works like [`Group::url`], with these sentinels in front of those of the group.
    pub fn url_with(&self, more: &[&Server]) -> String {
        let hosts: Vec<_> = more.iter().copied().chain(&self.sentinels).map(|one| one.addr().to_string()).collect();
        let auth = self.servers[0].settings.password.as_ref().map(|word| format!(":{word}@"));
        format!("redis+sentinel://{}{}/{NAME}", auth.unwrap_or_default(), hosts.join(","))
    }

    /// The server that a majority of the sentinels names as master, if there is one. A sentinel that does not answer at
    /// once names none.
    fn named(&self) -> Option<&Server> {
        let ask = |one: &Server| -> Option<u16> {
            let told: Value = one.try_ask(cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(NAME)).ok()?;
            redis::from_redis_value::<(String, u16)>(told).ok().map(|(_, port)| port)
        };
        let told: Vec<u16> = self.sentinels.iter().filter(|one| is_running(one)).filter_map(ask).collect();
        let most =
            |server: &&Server| told.iter().filter(|port| **port == server.port()).count() > self.sentinels.len() / 2;
        self.servers.iter().find(most)
    }

    /// The master, according to a majority of the sentinels.
    pub fn master(&self) -> &Server {
        let mut found = None;
        eventually("a majority names a master", LONG, || {
            found = self.named();
            found.is_some()
        });
        found.unwrap()
    }

    /// The running servers that are not the master.
    pub fn replicas(&self) -> Vec<&Server> {
        let master = self.master().port();
        self.servers.iter().filter(|server| server.port() != master && is_running(server)).collect()
    }

    /// Waits until a majority of the sentinels names another server than `old`, and that server is a master.
    pub fn moved_from(&self, old: &Server) -> &Server {
        let is_new =
            || self.named().filter(|one| one.port() != old.port() && one.info("role").as_deref() == Some("master"));
        eventually("another server is the master", LONG, || is_new().is_some());
        self.master()
    }

    /// True if all sentinels run, and all servers follow the master that a majority of the sentinels names.
    pub fn is_whole(&self) -> bool {
        let Some(master) = self.named() else { return false };
        let fact = |server: &Server, name: &str| server.try_info(name).unwrap_or_default();
        let follows = |server: &Server| {
            fact(server, "master_port") == master.port().to_string() && fact(server, "master_link_status") == "up"
        };
        let stands = |server: &Server| {
            if server.port() == master.port() { fact(server, "role") == "master" } else { follows(server) }
        };
        self.sentinels.iter().all(is_running) && self.servers.iter().all(|server| is_running(server) && stands(server))
    }

    /// Makes a replica take the place of the master. The old master does not learn of it for about ten seconds. Returns
    /// how long the failover took.
    pub fn fail_over(&self) -> Duration {
        let (began, old) = (Instant::now(), self.master());
        let asked = self.sentinels.last().expect("a group has a sentinel");
        let order = || asked.try_ask::<()>(cmd("SENTINEL").arg("FAILOVER").arg(NAME)).is_ok();
        // The sentinels begin only once they know that all replicas are well.
        eventually("the sentinels begin a failover", LONG, order);
        self.moved_from(old);
        began.elapsed()
    }

    /// Breaks the links between the master and its replicas, and stops the replicas while `act` runs. So the replicas
    /// lack what `act` writes. `act` must be short, because the sentinels must not count the replicas as down.
    pub fn apart<'a, T>(&'a self, act: impl FnOnce(&'a Server) -> T) -> T {
        let (master, replicas) = (self.master(), self.replicas());
        for replica in &replicas {
            replica.stop();
        }
        let _links: usize = master.ask(cmd("CLIENT").arg("KILL").arg("TYPE").arg("replica"));
        let done = act(master);
        for replica in &replicas {
            replica.cont();
        }
        done
    }
}

fn is_running(server: &Server) -> bool {
    control::state(server.pid()) == control::State::Running
}

fn started(settings: &Builder, n: usize) -> Vec<Server> {
    thread::scope(|scope| {
        let starting: Vec<_> = (0..n).map(|_| scope.spawn(|| settings.start())).collect();
        starting.into_iter().map(|server| server.join().expect("a server did not start")).collect()
    })
}
