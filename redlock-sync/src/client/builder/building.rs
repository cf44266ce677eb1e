//! A client from settings that are checked.

use std::sync::Arc;
#[cfg(any(test, feature = "testing"))]
use std::sync::Weak;
use std::time::Duration;

use super::{Builder, MAX_CONNECTIONS, Redlock};
use crate::clock::Clock;
use crate::error::Error;
use crate::inner::ClientInner;
#[cfg(any(test, feature = "testing"))]
use crate::node::Dial;
use crate::node::{NodeSettings, NodeUrl, Nodes};
use crate::quorum::Quorum;

impl Builder {
    /// As `build`, with a clock that a test may have made.
    pub(crate) fn build_by(self, clock: Arc<dyn Clock>) -> Result<Redlock, Error> {
        if self.urls.is_empty() {
            return Err(Error::config(
                "no node given; name at least one, such as .node(\"redis://127.0.0.1/\"), or REDIS_URL=redis://127.0.0.1/ for a client from the environment",
            ));
        }
        self.check().map_err(|error| self.blame(error))?;
        let url = |url: &Result<NodeUrl, Error>| Ok(url.clone()?.with_credentials(self.credentials.clone()));
        let urls = self.urls.iter().map(url).collect::<Result<Vec<_>, Error>>()?;
        #[cfg(feature = "tls")]
        let urls = self.certified(urls)?;
        if urls.len().is_multiple_of(2) {
            log::warn!("{} nodes tolerate no more failures than {}; take an odd number", urls.len(), urls.len() - 1);
        }
        let nodes = Nodes::new(&urls, self.node_settings(), &clock)?;
        Ok(self.on(nodes, clock))
    }

    /// With certificates for TLS, if they can be used.
    #[cfg(feature = "tls")]
    fn certified(&self, urls: Vec<NodeUrl>) -> Result<Vec<NodeUrl>, Error> {
        let Some(tls) = &self.tls else { return Ok(urls) };
        if !urls.iter().any(NodeUrl::speaks_tls) {
            return Err(Error::config("certificates are given, but no server's URL begins with `rediss://`"));
        }
        tls.check()?;
        Ok(urls.into_iter().map(|url| url.with_tls(Some(tls.clone()))).collect())
    }

    fn check(&self) -> Result<(), Error> {
        if !(1..=MAX_CONNECTIONS).contains(&self.connections) {
            let each = self.connections;
            return Err(Error::config(format!("connections = {each} is outside 1 to {MAX_CONNECTIONS}")));
        }
        if self.limits.node_timeout < Duration::from_millis(1) {
            let timeout = self.limits.node_timeout;
            return Err(Error::config(format!("node_timeout = {timeout:?} is less than 1 ms")));
        }
        self.options.check(&self.limits)
    }

    /// Values that are right one by one and do not go together: names the variables that were set.
    fn blame(&self, error: Error) -> Error {
        if self.variables.is_empty() {
            return error;
        }
        Error::config(format!("{error} (set by {})", self.variables.join(", ")))
    }

    pub(crate) fn names_no_server(&self) -> bool {
        self.urls.is_empty()
    }

    fn node_settings(&self) -> NodeSettings {
        NodeSettings {
            node_timeout: self.limits.node_timeout,
            connections: self.connections,
            failover_guard: self.limits.failover_guard.unwrap_or(self.urls.len() > 1),
            min_replicas_ack: self.limits.min_replicas_ack,
        }
    }

    fn on(self, nodes: Nodes, clock: Arc<dyn Clock>) -> Redlock {
        let inner = ClientInner::new(Quorum::new(nodes, clock, self.limits));
        Redlock { inner, prefix: self.prefix.into(), options: Arc::new(self.options) }
    }
}

/// For clients of nodes in memory.
#[cfg(any(test, feature = "testing"))]
impl Builder {
    pub(crate) fn check_without_urls(&self) -> Result<(), Error> {
        match self.urls.first() {
            Some(_) => Err(Error::config("the settings name a server; a client of nodes in memory has no other")),
            None => self.check(),
        }
    }

    /// The settings must have been checked.
    pub(crate) fn build_on(self, servers: Vec<Arc<dyn Dial>>, clock: Arc<dyn Clock>) -> (Redlock, Weak<ClientInner>) {
        let nodes = Nodes::of(servers, self.node_settings(), &clock);
        let client = self.on(nodes, clock);
        let inner = Arc::downgrade(&client.inner);
        (client, inner)
    }
}
