//! The holder of a lock, as other clients see it.

use std::time::Duration;

use crate::error::Error;
use crate::inner::ClientInner;
use crate::key::Key;
use crate::node::Lane;
use crate::protocol::Protocol;
use crate::token::LockId;

/// The holder of a lock at this moment, as seen by a majority of the nodes.
///
/// ```
/// # let server = redlock_tests::Server::start();
/// # let url = server.url();
/// let locks = redlock_sync::Redlock::open(&url)?;
/// let order = locks.mutex("order:42");
/// assert!(order.inspect()?.is_none());
/// let guard = order.lock()?;
/// let holder = order.inspect()?.unwrap();
/// assert_eq!(&holder.id, guard.id());
/// assert!(holder.remaining.unwrap() <= std::time::Duration::from_secs(30));
/// # Ok::<(), redlock_sync::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// The holder's token; [`LockId::owner`] is its readable part. Of another program's token the whole may be unreadable.
    pub id: LockId,
    /// Time-to-live of the key; the holder may lengthen it. `None` if some program set the key without one.
    pub remaining: Option<Duration>,
}

impl Holder {
    pub(crate) fn new(token: &str, remaining: Option<Duration>) -> Holder {
        Holder { id: LockId::from_server(token), remaining }
    }
}

/// Asks all nodes for the holder of a lock that has one.
pub(crate) fn inspect(client: &ClientInner, key: &Key, lock: &dyn Protocol) -> Result<Option<Holder>, Error> {
    let first = all(client, key, lock)?.into_iter().next();
    Ok(first.map(|(token, remaining)| Holder::new(&token, remaining)))
}

/// Asks all nodes for the holders of the lock: the tokens that a majority has, each with the time for which it surely does.
pub(crate) fn all(
    client: &ClientInner,
    key: &Key,
    lock: &dyn Protocol,
) -> Result<Vec<(String, Option<Duration>)>, Error> {
    client.ready()?;
    let quorum = &client.quorum;
    let ballot = quorum.round(&lock.inspect(), Lane::Ordinary, quorum.round_deadline(), &|_| true);
    if !ballot.tally().is_answered() {
        return Err(quorum.failed("inspect", key.as_str(), &ballot));
    }
    Ok(ballot.of_majority())
}
