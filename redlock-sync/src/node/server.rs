//! A node that is one Redis server.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::host::Host;
use super::late::LateReplies;
use super::{Failure, Node, NodeSettings, Push, push};
use crate::clock::{Clock, Tick};

/// One Redis server, with what is late there.
pub(crate) struct RedisNode {
    pub(super) host: Arc<Host>,
    pub(super) late: Arc<LateReplies>,
}

impl RedisNode {
    pub(super) fn new(host: Arc<Host>) -> RedisNode {
        let late = LateReplies::new(Arc::clone(&host.clock), host.background.clone());
        RedisNode { host, late }
    }
}

/// The servers of a client, and what their rounds need to know.
pub(super) struct Members {
    pub(super) nodes: Vec<RedisNode>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) settings: NodeSettings,
}

impl Node for RedisNode {
    fn address(&self) -> &str {
        self.host.server.address()
    }

    fn outage(&self) -> Option<Failure> {
        self.host.breaker.outage()
    }

    fn uptime(&self) -> Option<Duration> {
        self.host.identities.uptime(self.host.member, self.host.clock.now())
    }

    fn run_id(&self) -> Option<String> {
        self.host.identities.run_id(self.host.member)
    }

    fn subscribe(&self, channel: &str, by: Tick) -> Result<Box<dyn Push>, Failure> {
        push::subscribe(&self.host, channel, by)
    }
}

impl fmt::Debug for RedisNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisNode").field("host", &self.host).field("late", &self.late).finish_non_exhaustive()
    }
}
