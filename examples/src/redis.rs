//! The Redis that an example uses: a server of yours, or a private one that ends with the example.

use std::env;

use redlock_sync::Redlock;
use redlock_tests::{Server, servers};

/// The servers of an example.
#[derive(Debug)]
pub struct Redis {
    urls: Vec<String>,
    private: Vec<Server>,
}

impl Redis {
    /// The server that `REDIS_URL` names, or else a private one on a free port.
    #[must_use]
    pub fn any() -> Self {
        match env::var("REDIS_URL") {
            Ok(url) if !url.is_empty() => Self { urls: vec![url], private: Vec::new() },
            _ => Self::private(1),
        }
    }

    /// Checks that the server of `REDIS_URL` can be used. The error says what to do.
    ///
    /// # Errors
    /// The error has the server's reply, or says that it did not answer.
    pub fn answers(&self) -> Result<(), String> {
        let ask = || Redlock::open(self.url())?.mutex("redlock-example:answers").is_locked();
        if !self.private.is_empty() {
            return Ok(());
        }
        ask().map(drop).map_err(|error| {
            format!("the server that REDIS_URL names cannot be used; without that variable a private one is started: {error}")
        })
    }

    /// Starts `n` private servers. They end with this value.
    #[must_use]
    pub fn private(n: usize) -> Self {
        let private = servers(n);
        Self { urls: private.iter().map(Server::url).collect(), private }
    }

    /// The URL of the first server.
    #[must_use]
    pub fn url(&self) -> &str {
        self.urls.first().map_or("", String::as_str)
    }

    /// The URLs of all servers.
    #[must_use]
    pub fn urls(&self) -> &[String] {
        &self.urls
    }

    /// The private servers, for example to kill one. The list is empty if `REDIS_URL` names the server.
    #[must_use]
    pub fn servers(&self) -> &[Server] {
        &self.private
    }

    /// Describes for a reader where the server is, and whether it is private.
    #[must_use]
    pub fn describe(&self) -> String {
        let hosts: Vec<_> = self.urls.iter().map(|url| place(url)).collect();
        let whose = if self.private.is_empty() { "from REDIS_URL" } else { "private, gone when this ends" };
        format!("Redis at {} ({whose})", hosts.join(", "))
    }
}

/// The host of a URL, without user and password. These stand before `@`, or after `?`.
fn place(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let rest = rest.split_once('?').map_or(rest, |(rest, _)| rest);
    rest.rsplit_once('@').map_or(rest, |(_, rest)| rest).trim_end_matches('/')
}
