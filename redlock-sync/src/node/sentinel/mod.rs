//! A server whose address Sentinels know: the master of a group. They are asked for it at each connection, and once a
//! second while the client makes calls.
//!
//! 1. `group_url.rs`: the URL of a group.
//! 2. `master_reply.rs`: the answer of a Sentinel, and which of several answers counts.
//! 3. `group.rs`: asks all Sentinels at the same time, in bounded time.

mod group;
pub(super) mod group_url;
mod master_reply;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use self::group::Group;
use super::link::{Connection, Dial};
use super::socket::RedisServer;
use super::url::{GroupConfig, host_port};
use super::{Failure, FailureKind, Login, NodeUrl};
use crate::clock::{Clock, Tick};

/// The current master of a group.
pub(super) struct SentinelServer {
    url: NodeUrl,
    name: String,
    group: Arc<Group>,
    /// The last master. It is kept because its name is already resolved.
    master: Mutex<Option<Arc<RedisServer>>>,
}

impl SentinelServer {
    pub(super) fn new(url: NodeUrl, config: &GroupConfig, timeout: Duration, clock: &Arc<dyn Clock>) -> Self {
        let group = Group::new(config, timeout, Arc::clone(clock));
        SentinelServer { url, name: config.name.clone(), group, master: Mutex::new(None) }
    }

    fn server(&self, host: &str, port: u16) -> Arc<RedisServer> {
        let mut master = self.master.lock();
        let address = host_port(host, port);
        match &*master {
            Some(known) if known.address() == address => Arc::clone(known),
            _ => Arc::clone(master.insert(Arc::new(RedisServer::new(self.url.at(host, port))))),
        }
    }
}

impl Dial for SentinelServer {
    fn address(&self) -> &str {
        self.url.address()
    }

    fn display_address(&self) -> Cow<'_, str> {
        self.group.master().map_or(Cow::Borrowed(&self.name), |master| Cow::Owned(format!("{} at {master}", self.name)))
    }

    fn login(&self) -> Result<Login, Failure> {
        self.url.login()
    }

    /// The Sentinels may use half of the time.
    fn dial(&self, by: Tick, clock: &dyn Clock) -> Result<Box<dyn Connection>, Failure> {
        let master = self.group.locate(by.since(clock.now()) / 2)?;
        self.server(&master.host, master.port).dial(by, clock)
    }

    fn address_changes(&self) -> Option<u64> {
        Some(self.group.address_changes())
    }

    fn suspect(&self) {
        self.group.suspect();
    }

    fn check_is_current(&self, shown: &str, within: Duration) -> Result<(), Failure> {
        self.group.locate_anew(within)?;
        let now = self.display_address();
        let was_deposed = || Failure::unsent(FailureKind::Unreachable, format!("{now} is the master now"));
        if *now == *shown { Ok(()) } else { Err(was_deposed()) }
    }

    fn master_for(&self) -> Option<Duration> {
        Some(self.group.master_for())
    }
}

impl fmt::Display for SentinelServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.url.fmt(f)
    }
}
