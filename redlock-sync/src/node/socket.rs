//! A Redis server at a URL, and a socket to it, by the `redis` crate.

use std::error::Error;
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

use redis::{ConnectionAddr, ConnectionInfo, RedisConnectionInfo, RedisError};

use super::link::{Broken, Connection, Dial, SHORTEST};
use super::resolve::Resolver;
use super::{Failure, FailureKind, Login, NodeUrl};
use crate::clock::{Clock, Tick};

/// A server at a URL.
pub(super) struct RedisServer {
    url: NodeUrl,
    resolver: Option<Resolver>,
}

impl RedisServer {
    pub(super) fn new(url: NodeUrl) -> RedisServer {
        let resolver = match url.info().addr() {
            ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
                Some(Resolver::new(host, *port))
            }
            _ => None,
        };
        RedisServer { url, resolver }
    }

    fn dial_one(&self, address: ConnectionAddr, within: Duration) -> Result<redis::Connection, Failure> {
        // No login here: our own handshake does it, in one round trip and with the server's own words if it refuses.
        let quiet = RedisConnectionInfo::default().set_skip_set_lib_name();
        let info: ConnectionInfo = self.url.info().clone().set_addr(address).set_redis_settings(quiet);
        #[cfg(feature = "tls")]
        let client = match self.url.tls() {
            Some(tls) => tls.client(info)?,
            None => open(info)?,
        };
        #[cfg(not(feature = "tls"))]
        let client = open(info)?;
        client.get_connection_with_timeout(within).map_err(|e| failed(&e))
    }

    /// The addresses to dial, and into how many parts each dial's time has to be divided.
    fn addresses(&self, within: Duration) -> Result<(Vec<ConnectionAddr>, u32), Failure> {
        let own = self.url.info().addr();
        let Some(resolver) = &self.resolver else { return Ok((vec![own.clone()], 1)) };
        let found = resolver.resolve(within);
        let found = found.map_err(|why| Failure::unsent(FailureKind::Unreachable, why))?;
        let parts = u32::try_from(found.len()).unwrap_or(u32::MAX);
        if matches!(own, ConnectionAddr::TcpTls { .. }) {
            // A certificate is for the name, so the crate has to dial the name; it tries all addresses with the same timeout.
            return Ok((vec![own.clone()], parts));
        }
        Ok((found.iter().map(|a| ConnectionAddr::Tcp(a.ip().to_string(), a.port())).collect(), parts))
    }
}

impl Dial for RedisServer {
    fn address(&self) -> &str {
        self.url.address()
    }

    fn login(&self) -> Result<Login, Failure> {
        self.url.login()
    }

    /// Tries one address after another; all of them share the time.
    fn dial(&self, by: Tick, clock: &dyn Clock) -> Result<Box<dyn Connection>, Failure> {
        let left = || by.since(clock.now());
        let (addresses, parts) = self.addresses(left())?;
        let mut last = None;
        let mut ahead = parts;
        for address in addresses {
            let share = (left() / ahead.max(1)).max(SHORTEST);
            match self.dial_one(address, share) {
                Ok(socket) => return Ok(Box::new(socket)),
                Err(failure) => last = Some(failure),
            }
            ahead = ahead.saturating_sub(1);
        }
        Err(last.unwrap_or_else(|| Failure::unsent(FailureKind::Unreachable, "has no address")))
    }
}

impl fmt::Display for RedisServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.url.fmt(f)
    }
}

impl Connection for redis::Connection {
    fn send(&mut self, commands: &[u8]) -> Result<(), Broken> {
        self.send_packed_command(commands).map_err(|e| broken(&e))
    }

    fn receive(&mut self) -> Result<redis::Value, Broken> {
        self.recv_response().map_err(|e| broken(&e))
    }

    /// By `PubSub::get_message`, as a time-out there leaves no reply to skip. The `PubSub` itself keeps nothing from one call to the next; its
    /// destructor would unsubscribe and wait for the server.
    fn hear(&mut self) -> Result<Vec<u8>, Broken> {
        let heard = ManuallyDrop::new(self.as_pubsub()).get_message();
        heard.map(|message| message.get_payload_bytes().to_vec()).map_err(|e| broken(&e))
    }

    fn set_read_timeout(&mut self, timeout: Duration) -> Result<(), Broken> {
        redis::Connection::set_read_timeout(self, Some(timeout)).map_err(|e| broken(&e))
    }

    fn set_write_timeout(&mut self, timeout: Duration) -> Result<(), Broken> {
        redis::Connection::set_write_timeout(self, Some(timeout)).map_err(|e| broken(&e))
    }
}

fn open(info: ConnectionInfo) -> Result<redis::Client, Failure> {
    redis::Client::open(info).map_err(|e| failed(&e))
}

fn failed(error: &RedisError) -> Failure {
    broken(error).while_connecting()
}

/// A read with a time-out ends when a signal is handled, whatever `SA_RESTART` says.
fn is_interrupted(error: &RedisError) -> bool {
    let cause = error.source().and_then(|source| source.downcast_ref::<Arc<dyn Error + Send + Sync>>());
    let io = cause.and_then(|cause| cause.downcast_ref::<io::Error>());
    io.is_some_and(|error| error.kind() == io::ErrorKind::Interrupted)
}

/// What an error of the connection means.
fn broken(error: &RedisError) -> Broken {
    match tls_refusal(error) {
        _ if error.is_timeout() => Broken::TimedOut,
        _ if is_interrupted(error) => Broken::Interrupted,
        Some(why) => Broken::Distrusted(why),
        None => Broken::Cut(io_text(&error.to_string())),
    }
}

#[cfg(feature = "tls")]
use super::tls::refusal as tls_refusal;

#[cfg(not(feature = "tls"))]
fn tls_refusal(_: &RedisError) -> Option<String> {
    None
}

/// An I/O error's text in the style of our messages: "connection refused".
fn io_text(text: &str) -> String {
    let text = text.split(" (os error").next().unwrap_or(text);
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_lowercase().chain(chars).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_in_our_style() {
        assert_eq!(io_text("Connection refused (os error 111)"), "connection refused");
        assert_eq!(io_text(""), "");
    }
}
