//! Replaces the library's `host` and `link`: what connections need to know of their server.

use std::sync::Arc;

use crate::clock::{Clock, Tick};
use crate::node::transport::drain::Drain;
use crate::node::transport::halves::Halves;
use crate::options::ClientOptions;
use crate::sync::Mutex;
use crate::wire::{PATIENCE, Server};
use crate::world::ModelClock;

pub(crate) struct Link {
    pub(crate) halves: Halves,
    pub(crate) master_changes: u64,
    pub(crate) validity: Option<(Tick, Tick)>,
}

pub(crate) struct HostContext {
    pub(crate) settings: ClientOptions,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) drain: Arc<Drain>,
}

pub(crate) struct Host {
    pub(crate) context: HostContext,
    pub(crate) server: Dialled,
    /// What the attempts to connect do.
    pub(crate) dials: Dials,
    /// The connection that was made and not taken.
    pub(crate) made: Mutex<Option<Link>>,
}

/// A server that is not in memory.
pub(crate) struct Dialled(pub(crate) Arc<Server>);

#[allow(clippy::unused_self, reason = "the same methods as in the library")]
impl Dialled {
    pub(crate) fn may_wait(&self) -> bool {
        true
    }
}

/// What happens when a connection is ordered.
#[derive(Clone, Copy)]
pub(crate) struct Dials {
    /// The number of attempts that fail.
    pub(crate) failures: usize,
    /// No attempt follows.
    pub(crate) gives_up: bool,
    /// The connection can be taken only after it was announced.
    pub(crate) announces_first: bool,
}

#[allow(clippy::unused_self, reason = "the same methods as in the library")]
impl Host {
    pub(crate) fn new(server: &Arc<Server>, dials: Dials) -> Arc<Host> {
        let clock: Arc<dyn Clock> = Arc::new(ModelClock);
        let context = HostContext {
            settings: ClientOptions { node_timeout: PATIENCE, ..ClientOptions::default() },
            drain: Arc::new(Drain::new(&clock)),
            clock,
        };
        Arc::new(Host { context, server: Dialled(Arc::clone(server)), dials, made: Mutex::new(None) })
    }

    pub(crate) fn master_changes(&self) -> u64 {
        0
    }

    pub(crate) fn record_round_trip(&self, _: Tick) {}
}
