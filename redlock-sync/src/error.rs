//! The one error type.

use std::fmt;
use std::io;
use std::time::Duration;

use crate::names::{escaped, key_in_message, printable};

/// Why an operation on a lock did not succeed. **If a call that acquires a lock returns `Ok`, its guard held the lock
/// when the call returned.**
///
/// There are four situations, because a program reacts to them differently:
///
/// - Another holder has the lock: [`Busy`](Error::Busy).
/// - Too few servers answer: [`Unavailable`](Error::Unavailable), [`Unconfirmed`](Error::Unconfirmed).
/// - The lock was held, and is not held any more: [`Lost`](Error::Lost).
/// - The call cannot work as written: [`WouldDeadlock`](Error::WouldDeadlock), [`WrongType`](Error::WrongType),
///   [`Config`](Error::Config), [`Closed`](Error::Closed).
///
/// If the program stopped the call itself, the error is [`Cancelled`](Error::Cancelled). Only a queue of tasks can be
/// [`Full`](Error::Full). A table says what to do about each: [errors, and how to
/// react](https://github.com/redlock-sync/redlock-sync/blob/main/docs/guide.md#errors).
///
/// ```
/// # let server = redlock_tests::Server::for_sample();
/// # let url = server.url();
/// use redlock_sync::{Error, Redlock};
///
/// let locks = Redlock::open(&url)?;
/// let _held = locks.mutex("order:42").lock()?;
/// match locks.mutex("order:42").try_lock() {
///     Ok(_guard) => unreachable!("it is held above"),
///     Err(Error::Busy { key, .. }) => assert_eq!(key, "order:42"),
///     Err(other) => return Err(other),
/// }
/// # Ok::<(), redlock_sync::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// Another holder has the lock, or attempts at the same time split the votes so that none of them won. Nothing of
    /// this attempt is left on any node. If a [`CountDownLatch`](crate::CountDownLatch) returns it, the latch is not
    /// open yet.
    Busy {
        /// The lock's key, with prefix.
        key: String,
        /// The time after which a majority of the nodes is free of the key if nothing renews it. If the holder has
        /// died, the lock ends after this time. Most holders release much earlier, so this does not say how long a
        /// waiter has to wait. `None` if it is not known.
        expires_in: Option<Duration>,
        /// True if the calling thread itself holds the lock, by another guard of the same client. Then waiting does not
        /// help.
        by_this_thread: bool,
        /// True if the call waited for a [`CountDownLatch`](crate::CountDownLatch), which is not open yet.
        is_latch: bool,
    },
    /// No majority of the nodes could be asked, or could answer. After an acquire, the client has sent a release to
    /// every node that may have voted. If that could not be delivered, the key ends with its time-to-live. After an
    /// extend or a fence, the lock may still be held, for as long as before: call
    /// [`Lease::check`](crate::Lease::check). A call that changes a queue or a latch may still have been executed.
    Unavailable {
        /// What was tried: `acquire`, `adopt`, `extend`, `fence`, `inspect` and the like. A latch has `count down`,
        /// `wait for` and `reset`. A job that is run once has `look for the mark of`, `mark` and `forget`.
        op: &'static str,
        /// The lock's key, with prefix.
        key: String,
        /// How many nodes the client has.
        of: usize,
        /// What went wrong, node by node.
        nodes: Vec<NodeError>,
    },
    /// The lock was held and no longer is. Another holder may have it now: stop the work that needs it. What was done
    /// since the last [`check`](crate::Lease::check) that was `Ok` may have overlapped with another holder.
    Lost {
        /// The lock's key, with prefix.
        key: String,
        /// How it was lost.
        reason: LostReason,
    },
    /// A release was sent in time, but no majority of the nodes confirmed it. This guard does not hold the lock any
    /// more. The client repeats the release in the background (up to 4096 locks at a time). It stops when a majority
    /// has confirmed the release, the lease has ended, or the client is [shut down](crate::Redlock::shutdown). Unlike
    /// after [`Lost`](Error::Lost), the lease had not run out when the release was sent. So the work under the lock is
    /// not in doubt, and only the next holder may have to wait longer.
    Unconfirmed {
        /// The lock's key, with prefix.
        key: String,
        /// How many nodes confirmed that this lease's token is gone.
        confirmed: usize,
        /// How many nodes the client has.
        of: usize,
        /// What went wrong, node by node.
        nodes: Vec<NodeError>,
    },
    /// This thread holds the lock already, and would wait for itself for ever. The outer guard still holds the lock.
    WouldDeadlock {
        /// The lock's key, with prefix.
        key: String,
    },
    /// The key on the server, or one of its [helper keys][keys], holds something other than this kind of lock has
    /// there. The call does not touch it. After an acquire or a release, nothing is held. After an extend or a fence,
    /// call [`Lease::check`](crate::Lease::check).
    ///
    /// [keys]: https://github.com/redlock-sync/redlock-sync/blob/main/docs/operations.md#keys
    WrongType {
        /// What was tried.
        op: &'static str,
        /// The lock's key, with prefix.
        key: String,
        /// The node that said so.
        node: NodeError,
    },
    /// A setting, a URL, a name or the set-up of the servers cannot work. Trying again does not help. After an acquire,
    /// nothing is held. After [`Lease::extend`](crate::Lease::extend) or
    /// [`Lease::fencing_token`](crate::Lease::fencing_token), the lock may still be held, for as long as before: call
    /// [`Lease::check`](crate::Lease::check). Such a call returns this error if its length is not valid, or if a server
    /// refuses it.
    Config {
        /// What has to be corrected, and by whom.
        kind: ConfigKind,
        /// The mistake, and how to correct it if that is known.
        message: String,
    },
    /// The queue has as many tasks as its [`max_len`](crate::Queue::max_len) allows. A [`push`](crate::Queue::push)
    /// queued nothing. A [`push_all`](crate::Queue::push_all) sends several requests. It queued the tasks of those
    /// before the refused one.
    Full {
        /// The key of the queue, with prefix.
        key: String,
        /// How many tasks there are.
        len: u64,
    },
    /// A [`Cancel`](crate::Cancel) stopped the call while it waited. This thread holds nothing, and no server has it in
    /// a queue. A server that could not be reached removes it from the queue when its turn comes. Once the `Cancel` is
    /// cancelled, each later call with it fails like this, also one that would not wait.
    Cancelled {
        /// What the call waited for: `acquire` or `claim`, or for a latch `wait for` or `count down`.
        op: &'static str,
        /// The lock's key, with prefix.
        key: String,
    },
    /// The client was [shut down](crate::Redlock::shutdown), or a shutdown goes on. Or the client or the guard was made
    /// before a fork, and is used in the child. Nothing is acquired. During a shutdown, locks that are held stay held
    /// until its grace ends. The child's copy of a guard holds nothing, and the parent keeps its locks.
    Closed,
}

/// What one node answered, or why it did not.
///
/// ```
/// use redlock_sync::{Error, Redlock};
/// use std::time::Duration;
///
/// // Nothing listens on port 1.
/// let locks = Redlock::open("redis://127.0.0.1:1/")?;
/// let Err(Error::Unavailable { nodes, .. }) = locks.mutex("order:42").try_lock() else { panic!() };
/// assert_eq!(nodes[0].node, 1);
/// assert_eq!(nodes[0].address, "127.0.0.1:1");
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeError {
    /// The node's place in the list given to the client, counted from 1.
    pub node: usize,
    /// The node's address without user and password.
    pub address: String,
    /// What happened.
    pub message: String,
}

/// What has to be corrected after [`Error::Config`].
///
/// ```
/// use redlock_sync::{ConfigKind, Error, Redlock};
/// let Err(Error::Config { kind, .. }) = Redlock::open("localhost") else { panic!() };
/// assert_eq!(kind, ConfigKind::Setting); // it is no URL
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ConfigKind {
    /// A setting, a URL, a name or a call of this program: correct the program or its environment.
    Setting,
    /// A server refused the user or the password: correct the credentials.
    Login,
    /// The user may not run a command, or use a key: give it the permission, by the [line for `ACL SETUSER`][line].
    ///
    /// [line]: https://github.com/redlock-sync/redlock-sync/blob/main/docs/operations.md#permissions
    Permission,
    /// A server is a replica, which keeps no locks: give the client the master, or the Sentinel group.
    Replica,
    /// The certificate of a server is not trusted, or is for another host, or the server refuses that of this client:
    /// correct the certificates or the URL. If only one side speaks TLS, that can look like a server that is away.
    Tls,
    /// A server cannot keep locks as it is: it is no Redis, too old, of another mode, protected, or lacks a command.
    /// Correct the server or the URL.
    Server,
}

/// How a held lock was lost.
///
/// ```
/// # let server = redlock_tests::Server::for_sample();
/// # let url = server.url();
/// use redlock_sync::{LostReason, Redlock};
///
/// let locks = Redlock::open(&url)?;
/// let guard = locks.mutex("order:42").lock()?;
/// locks.unlock_all()?;
/// assert_eq!(guard.check().unwrap_err().lost_reason(), Some(LostReason::Revoked));
/// # Ok::<(), redlock_sync::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LostReason {
    /// The lease ran out: it has `renew(false)`, or the process was stopped or asleep until it was too late.
    Expired,
    /// The key holds another token on so many nodes that no majority can hold this lease's token. If
    /// [`Mutex::adopt`](crate::Mutex::adopt) returns it, the token was adopted before, or another holder has the lock.
    Taken,
    /// The key is gone from so many nodes that no majority can hold this lease's token. It was deleted by hand, taken
    /// away by [`Mutex::force_unlock`](crate::Mutex::force_unlock) through another client, or lost by a restart or a
    /// failover. If [`Mutex::adopt`](crate::Mutex::adopt) returns it, the lease has ended, the token is that of another
    /// lock, or an earlier `adopt` failed and its lock was released.
    Deleted,
    /// No majority of the nodes answered a renewal until the lease ran out.
    Unreachable,
    /// The client gave the lock up: [`Redlock::unlock_all`](crate::Redlock::unlock_all),
    /// [`Redlock::shutdown`](crate::Redlock::shutdown) after its grace, or
    /// [`Mutex::force_unlock`](crate::Mutex::force_unlock) through the same client.
    Revoked,
    /// `max_hold` or `max_renewals` was reached.
    MaxHold,
}

impl Error {
    pub(crate) fn config(message: impl Into<String>) -> Error {
        Error::config_of(ConfigKind::Setting, &message.into())
    }

    pub(crate) fn config_of(kind: ConfigKind, message: &str) -> Error {
        Error::Config { kind, message: printable(message) }
    }

    /// Returns true for [`Busy`](Error::Busy): another holder has the lock, or the votes were split. Waiting helps,
    /// unless [`by_this_thread`](Error::Busy::by_this_thread) is set.
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// let locks = redlock_sync::Redlock::open(&url)?;
    /// let _held = locks.mutex("order:42").lock()?;
    /// assert!(locks.mutex("order:42").try_lock().unwrap_err().is_busy());
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    #[must_use]
    pub fn is_busy(&self) -> bool {
        matches!(self, Error::Busy { .. })
    }

    /// Returns true for [`Unavailable`](Error::Unavailable): no majority of the nodes could be asked. The call gave
    /// no lock, and may succeed once they are back. A call that changes a queue or a latch may still have been
    /// executed. The result is false for [`Unconfirmed`](Error::Unconfirmed), because then the work under the lock is
    /// done and must not be repeated.
    ///
    /// ```
    /// let locks = redlock_sync::Redlock::open("redis://127.0.0.1:1/")?;
    /// assert!(locks.mutex("order:42").try_lock().unwrap_err().is_unavailable());
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    #[must_use]
    pub fn is_unavailable(&self) -> bool {
        matches!(self, Error::Unavailable { .. })
    }

    /// Returns true for [`Lost`](Error::Lost): the lock was held and no longer is.
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// let locks = redlock_sync::Redlock::open(&url)?;
    /// let guard = locks.mutex("order:42").lock()?;
    /// locks.unlock_all()?;
    /// assert!(guard.unlock().unwrap_err().is_lost());
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    #[must_use]
    pub fn is_lost(&self) -> bool {
        matches!(self, Error::Lost { .. })
    }

    /// Returns how the lock was lost, for [`Lost`](Error::Lost).
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// use redlock_sync::LostReason;
    /// let locks = redlock_sync::Redlock::open(&url)?;
    /// let guard = locks.mutex("order:42").lock()?;
    /// locks.unlock_all()?;
    /// assert_eq!(guard.unlock().unwrap_err().lost_reason(), Some(LostReason::Revoked));
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    #[must_use]
    pub fn lost_reason(&self) -> Option<LostReason> {
        match self {
            Error::Lost { reason, .. } => Some(*reason),
            _ => None,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = |key: &str| key_in_message(key, "", "in queue ");
        match self {
            Error::Busy { key, is_latch: true, .. } => write!(f, "latch `{}` is still closed", escaped(key)),
            Error::Busy { key, expires_in, by_this_thread, is_latch: false } => {
                let holder = if *by_this_thread { "another guard of this thread" } else { "another holder" };
                write!(f, "lock `{}` is held by {holder}", escaped(key))?;
                expires_in.map_or(Ok(()), |d| write!(f, "; the lease ends in {} ms unless renewed", d.as_millis()))
            }
            Error::Unavailable { op, key, of, nodes } => {
                write!(f, "failed to {op} {}: ", place(key))?;
                match of {
                    1 => f.write_str("the server cannot be reached or used")?,
                    // What needs all nodes, such as the reset of a latch.
                    of if !nodes.is_empty() && of.saturating_sub(nodes.len()) > of / 2 => {
                        write!(f, "not all of {of} nodes can be reached or used")?;
                    }
                    of => write!(f, "no majority of {of} nodes can be reached or used")?,
                }
                write_nodes(f, nodes)
            }
            Error::Lost { key, reason } => {
                write!(f, "{} was lost: {reason}", key_in_message(key, "lock ", "a claim in queue "))
            }
            Error::Unconfirmed { key, confirmed, of, nodes } => {
                let what = key_in_message(key, "release of ", "the end of a claim in queue ");
                match of {
                    1 => write!(f, "{what} was not confirmed by the server")?,
                    of => write!(f, "{what} was confirmed by only {confirmed} of {of} nodes")?,
                }
                write_nodes(f, nodes)
            }
            Error::WouldDeadlock { key } => write!(
                f,
                "failed to acquire lock `{}`: this thread holds it already and would wait for itself",
                escaped(key)
            ),
            Error::WrongType { op, key, node } => {
                write!(f, "failed to {op} {}: a key holds a value of another type: {node}", place(key))
            }
            Error::Full { key, len } => {
                write!(f, "{} is full: it has {len} tasks", key_in_message(key, "queue ", "queue "))
            }
            Error::Config { message, .. } => write!(f, "{message}"),
            Error::Cancelled { op, key } => write!(f, "the wait to {op} {} was cancelled", place(key)),
            Error::Closed => write!(
                f,
                "the lock client was shut down, or this process is a forked child, which has to open a client of its own"
            ),
        }
    }
}

fn write_nodes(f: &mut fmt::Formatter<'_>, nodes: &[NodeError]) -> fmt::Result {
    nodes.iter().enumerate().try_for_each(|(i, node)| {
        f.write_str(if i == 0 { ": " } else { "; " })?;
        write!(f, "{node}")
    })
}

impl fmt::Display for NodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {} ({}): {}", self.node, printable(&self.address), printable(&self.message))
    }
}

impl LostReason {
    /// Its name in snake case, for JSON and for metrics.
    #[allow(dead_code, reason = "only features use it")]
    pub(crate) fn name(self) -> &'static str {
        match self {
            LostReason::Expired => "expired",
            LostReason::Taken => "taken",
            LostReason::Deleted => "deleted",
            LostReason::Unreachable => "unreachable",
            LostReason::Revoked => "revoked",
            LostReason::MaxHold => "max_hold",
        }
    }
}

impl fmt::Display for LostReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LostReason::Expired => "its lease ran out",
            LostReason::Taken => "the key holds another token",
            LostReason::Deleted => "the key is gone from the server",
            LostReason::Unreachable => "no majority of nodes answered before its lease ran out",
            LostReason::Revoked => "this client gave it up",
            LostReason::MaxHold => "`max_hold` or `max_renewals` was reached",
        })
    }
}

impl std::error::Error for Error {}
impl std::error::Error for NodeError {}

/// For functions that return `io::Result`. The kind is `WouldBlock` for `Busy`, `TimedOut` for `Unavailable` and
/// `Unconfirmed`, and `Deadlock` for `WouldDeadlock`. It is `InvalidInput` for `WrongType` and `Config`,
/// `QuotaExceeded` for `Full`, and `Other` for `Lost`, `Cancelled` and `Closed`. The error itself is kept inside:
/// [`io::Error::get_ref`].
impl From<Error> for io::Error {
    fn from(error: Error) -> io::Error {
        let kind = match &error {
            Error::Busy { .. } => io::ErrorKind::WouldBlock,
            Error::Unavailable { .. } | Error::Unconfirmed { .. } => io::ErrorKind::TimedOut,
            Error::WouldDeadlock { .. } => io::ErrorKind::Deadlock,
            Error::WrongType { .. } | Error::Config { .. } => io::ErrorKind::InvalidInput,
            Error::Full { .. } => io::ErrorKind::QuotaExceeded,
            Error::Lost { .. } | Error::Cancelled { .. } | Error::Closed => io::ErrorKind::Other,
        };
        io::Error::new(kind, error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node() -> NodeError {
        NodeError { node: 2, address: "10.0.0.2:6379".into(), message: "timed out after 200 ms".into() }
    }

    #[test]
    fn messages_name_operation_key_and_node() {
        let e = Error::Unavailable { op: "extend", key: "order:7\n".into(), of: 3, nodes: vec![node(), node()] };
        assert_eq!(
            e.to_string(),
            "failed to extend `order:7\\n`: no majority of 3 nodes can be reached or used: \
             node 2 (10.0.0.2:6379): timed out after 200 ms; node 2 (10.0.0.2:6379): timed out after 200 ms"
        );
        let e = Error::Unavailable { op: "acquire", key: "k".into(), of: 1, nodes: vec![node()] };
        assert!(
            e.to_string().starts_with("failed to acquire `k`: the server cannot be reached or used: node 2"),
            "{e}"
        );
        let of = |of| Error::Unconfirmed { key: "k".into(), confirmed: 0, of, nodes: vec![] }.to_string();
        assert_eq!(of(1), "release of `k` was not confirmed by the server");
        assert_eq!(of(3), "release of `k` was confirmed by only 0 of 3 nodes");
    }

    #[test]
    fn a_busy_lock_is_no_latch() {
        let busy = |is_latch| Error::Busy { key: "k".into(), expires_in: None, by_this_thread: false, is_latch };
        assert_eq!(busy(false).to_string(), "lock `k` is held by another holder");
        assert_eq!(busy(true).to_string(), "latch `k` is still closed");
    }

    #[test]
    fn io_error_keeps_the_kind_and_the_source() {
        let io: io::Error =
            Error::Busy { key: "k".into(), expires_in: None, by_this_thread: false, is_latch: false }.into();
        assert_eq!(io.kind(), io::ErrorKind::WouldBlock);
        assert!(io.to_string().contains("`k`"));
    }

    #[test]
    fn errors_cross_threads() {
        fn check<T: Send + Sync + 'static>() {}
        check::<Error>();
    }
}
