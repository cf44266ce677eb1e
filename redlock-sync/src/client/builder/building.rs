//! Checks the settings, and builds a client from them.

use std::sync::Arc;
#[cfg(any(test, feature = "testing"))]
use std::sync::Weak;
use std::time::Duration;

use super::{Builder, MAX_CONNECTIONS, Redlock};
use crate::clock::Clock;
use crate::error::Error;
use crate::inner::ClientInner;
use crate::names::{escaped, has_hash_tag};
#[cfg(any(test, feature = "testing"))]
use crate::node::Dial;
use crate::node::{NodeUrl, Nodes};
use crate::options::check_within;
use crate::quorum::Quorum;

impl Builder {
    /// Like `build`, but with a clock that may be a test clock.
    pub(crate) fn build_by(self, clock: Arc<dyn Clock>) -> Result<Redlock, Error> {
        if self.urls.is_empty() {
            return Err(Error::config(
                "no node given; add one, such as .node(\"redis://127.0.0.1/\"), or set REDIS_URL=redis://127.0.0.1/ \
                 for a client from the environment",
            ));
        }
        self.check().map_err(|error| self.with_variables(error))?;
        let url = |url: &Result<NodeUrl, Error>| Ok(url.clone()?.with_credentials(self.credentials.clone()));
        let urls = self.urls.iter().map(url).collect::<Result<Vec<_>, Error>>()?;
        #[cfg(feature = "tls")]
        let urls = self.with_certificates(urls)?;
        if urls.len().is_multiple_of(2) {
            log::warn!("{} nodes tolerate no more failures than {}; take an odd number", urls.len(), urls.len() - 1);
        }
        let nodes = Nodes::new(&urls, &self.settings, &clock)?;
        Ok(self.on(nodes, clock))
    }

    /// Adds the certificates for TLS to the URLs. Returns an error if no URL uses TLS.
    #[cfg(feature = "tls")]
    fn with_certificates(&self, urls: Vec<NodeUrl>) -> Result<Vec<NodeUrl>, Error> {
        let Some(tls) = &self.tls else { return Ok(urls) };
        if !urls.iter().any(NodeUrl::speaks_tls) {
            return Err(Error::config("certificates are given, but no server's URL begins with `rediss://`"));
        }
        tls.check()?;
        Ok(urls.into_iter().map(|url| url.with_tls(tls)).collect())
    }

    fn check(&self) -> Result<(), Error> {
        check_within("connections", &self.settings.connections, 1..=MAX_CONNECTIONS)?;
        if self.settings.node_timeout < Duration::from_millis(1) {
            let timeout = self.settings.node_timeout;
            return Err(Error::config(format!("node_timeout = {timeout:?} is less than 1 ms")));
        }
        // `Key::of` would refuse each name without a hash tag, also the key of `health`.
        if self.prefix.contains('}') && !has_hash_tag(&self.prefix) {
            let prefix = self.prefix.chars().take(40).collect::<String>();
            return Err(Error::config(format!(
                "key_prefix = `{}` has a `}}` but no hash tag (`{{…}}` that is not empty); remove the `}}`",
                escaped(&prefix)
            )));
        }
        self.options.check(&self.settings)
    }

    /// Adds the names of the environment variables that were set to an error about settings that contradict each other.
    fn with_variables(&self, error: Error) -> Error {
        if self.variables.is_empty() {
            return error;
        }
        Error::config(format!("{error} (set by {})", self.variables.join(", ")))
    }

    pub(crate) fn names_no_server(&self) -> bool {
        self.urls.is_empty()
    }

    fn on(self, nodes: Nodes, clock: Arc<dyn Clock>) -> Redlock {
        let inner = ClientInner::new(Quorum::new(nodes, clock, self.settings));
        Redlock { inner, prefix: self.prefix.into(), options: Arc::new(self.options) }
    }
}

/// Builds clients of nodes in memory and of the simulation.
#[cfg(any(test, feature = "testing"))]
impl Builder {
    pub(crate) fn check_without_urls(&self) -> Result<(), Error> {
        match self.urls.first() {
            Some(_) => Err(Error::config(
                "the settings name a server, but this client uses only nodes in memory; remove the server",
            )),
            None => self.check(),
        }
    }

    /// Builds a client on these nodes. The settings must have been checked.
    pub(crate) fn build_on(self, servers: Vec<Arc<dyn Dial>>, clock: Arc<dyn Clock>) -> (Redlock, Weak<ClientInner>) {
        let nodes = Nodes::of(servers, &self.settings, &clock, None);
        let client = self.on(nodes, clock);
        let inner = Arc::downgrade(&client.inner);
        (client, inner)
    }
}
