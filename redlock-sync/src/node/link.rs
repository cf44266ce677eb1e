//! One connection.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;
use std::{fmt, io};

use redis::{Connection, RedisError};

/// A read waits at least this long, so that a reply which has come already is seen.
pub(super) const SHORTEST: Duration = Duration::from_millis(1);

/// How an exchange on a connection ended early. The connection is of no more use for anything else.
#[derive(Debug)]
pub(super) enum Broken {
    TimedOut,
    /// A signal came while a read waited. The crate will skip the reply when it comes, so this connection brings it no more.
    Interrupted,
    /// Reset, closed, or no longer understood; with a message.
    Cut(String),
    /// TLS does not come about as the server and the certificates are set up; with a message.
    Distrusted(String),
}

/// A connection to a server.
pub(super) struct Link {
    /// Boxed, since links are moved about. None once it was taken out.
    wire: Option<Box<Connection>>,
    /// Tells the links of a node apart.
    id: u64,
    /// Links of an earlier generation than their host's are stale.
    generation: u64,
    /// The longest a read may wait: what the socket is set to most of the time.
    longest: Duration,
    /// What the socket is set to now, so that it is told only of changes.
    read_timeout: Duration,
    poisoned: bool,
    /// When the user's permissions were found to be enough, as the host counts (`Host::permissions`).
    pub(super) permitted: Option<u64>,
    /// Replies to so many commands come first, and are skipped.
    pub(super) owed: usize,
}

impl Link {
    /// The socket must have `longest` as its read timeout.
    pub(super) fn live(wire: Connection, id: u64, generation: u64, longest: Duration) -> Link {
        let (wire, read_timeout) = (Some(Box::new(wire)), longest);
        Link { wire, id, generation, longest, read_timeout, poisoned: false, permitted: None, owed: 0 }
    }

    pub(super) fn id(&self) -> u64 {
        self.id
    }

    /// From now on no read waits for longer.
    pub(super) fn set_longest(&mut self, longest: Duration) {
        self.longest = longest;
    }

    pub(super) fn generation(&self) -> u64 {
        self.generation
    }

    pub(super) fn is_broken(&self) -> bool {
        self.poisoned
    }

    /// Keeps the link from being used again.
    pub(super) fn poison(&mut self) {
        self.poisoned = true;
    }

    /// Takes the connection out; the link is of no more use.
    pub(super) fn take(&mut self) -> Option<Box<Connection>> {
        self.poisoned = true;
        self.wire.take()
    }

    /// Writes all of `bytes`. After an error the server has at most a part, which it can never execute.
    pub(super) fn send(&mut self, bytes: &[u8]) -> Result<(), Broken> {
        let sent = self.wire()?.send_packed_command(bytes);
        self.checked(sent)
    }

    /// Reads one reply, waiting for about `left`. To be called exactly once for each command sent: after a time-out the connection
    /// counts a reply to skip.
    pub(super) fn receive(&mut self, left: Duration) -> Result<redis::Value, Broken> {
        let set = self.set_read_timeout(left);
        self.checked(set)?;
        let received = self.wire()?.recv_response();
        self.checked(received)
    }

    /// Tells the socket only of a change that matters: most calls have nearly the whole time left.
    fn set_read_timeout(&mut self, left: Duration) -> Result<(), RedisError> {
        let wanted = left.max(SHORTEST).min(self.longest);
        let wanted = if nearly(wanted, self.longest) { self.longest } else { wanted };
        if wanted == self.read_timeout || wanted < self.read_timeout && nearly(wanted, self.read_timeout) {
            return Ok(());
        }
        if let Some(wire) = &self.wire {
            wire.set_read_timeout(Some(wanted))?;
            self.read_timeout = wanted;
        }
        Ok(())
    }

    fn wire(&mut self) -> Result<&mut Connection, Broken> {
        self.wire.as_deref_mut().ok_or_else(|| Broken::Cut("connection is gone".into()))
    }

    fn checked<T>(&mut self, result: Result<T, RedisError>) -> Result<T, Broken> {
        result.map_err(|e| {
            self.poisoned = true;
            broken(&e)
        })
    }
}

/// At least 7/8 of `full`.
fn nearly(part: Duration, full: Duration) -> bool {
    part >= full.saturating_sub(full / 8)
}

/// A read with a time-out ends when a signal is handled, whatever `SA_RESTART` says.
pub(super) fn is_interrupted(error: &RedisError) -> bool {
    let cause = error.source().and_then(|source| source.downcast_ref::<Arc<dyn Error + Send + Sync>>());
    let io = cause.and_then(|cause| cause.downcast_ref::<io::Error>());
    io.is_some_and(|error| error.kind() == io::ErrorKind::Interrupted)
}

/// What an error of the connection means.
pub(super) fn broken(error: &RedisError) -> Broken {
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
pub(super) fn io_text(text: &str) -> String {
    let text = text.split(" (os error").next().unwrap_or(text);
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_lowercase().chain(chars).collect())
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("id", &self.id).field("poisoned", &self.poisoned).finish_non_exhaustive()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by a panic")]
mod tests {
    use super::*;

    #[test]
    fn texts_are_in_our_style() {
        assert_eq!(io_text("Connection refused (os error 111)"), "connection refused");
        assert_eq!(io_text(""), "");
    }

    #[test]
    fn seven_eighths_count_as_all() {
        let ms = Duration::from_millis;
        assert!(nearly(ms(175), ms(200)) && nearly(ms(200), ms(200)) && !nearly(ms(174), ms(200)));
    }
}
