//! The holder of a lock, as other clients see it.

use std::time::Duration;

use crate::error::Error;
use crate::inner::ClientInner;
use crate::key::Key;
use crate::node::Lane;
use crate::protocol::{Next, Protocol, ReleaseArgs};
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
    /// The holder's token; [`LockId::owner`] is its readable part. A token of another library may have no readable part.
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
    let first = holders(client, key, lock)?.into_iter().next();
    Ok(first.map(|(token, remaining)| Holder::new(&token, remaining)))
}

/// All that a majority of the nodes names.
pub(crate) fn holders(
    client: &ClientInner,
    key: &Key,
    lock: &dyn Protocol,
) -> Result<Vec<(String, Option<Duration>)>, Error> {
    client.serves()?;
    let quorum = &client.quorum;
    let ballot = quorum.round(&lock.inspect(), Lane::Ordinary, quorum.round_deadline(), &|_| true);
    if !ballot.tally().is_answered() {
        return Err(quorum.failed("inspect", key.as_str(), &ballot));
    }
    Ok(ballot.of_majority())
}

/// Frees the lock on all nodes where this holder has it. True if it had a majority.
pub(crate) fn force_unlock(
    client: &ClientInner,
    key: &Key,
    lock: &dyn Protocol,
    holder: &Holder,
) -> Result<bool, Error> {
    client.serves()?;
    // What a token that is no text was read as.
    if holder.id.as_str().contains(char::REPLACEMENT_CHARACTER) {
        return Err(Error::config(format!("lock `{key}` has a holder whose token is no text: delete the key by hand")));
    }
    let quorum = &client.quorum;
    let release = ReleaseArgs { id: Some(&holder.id), keep: Duration::ZERO, wait: None, next: Next::Anybody };
    let ballot = quorum.round(&lock.release(&release), Lane::Reserved, quorum.round_deadline(), &|_| true);
    let tally = ballot.tally();
    if !tally.is_answered() {
        return Err(quorum.failed("force unlock", key.as_str(), &ballot));
    }
    // A call that was sent twice finds nothing where its first copy freed the lock.
    let is_freed = tally.won() || ballot.duplicate;
    if is_freed {
        client.taken_away(&holder.id);
    }
    Ok(is_freed)
}
