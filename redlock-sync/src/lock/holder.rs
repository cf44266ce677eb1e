//! The holder of a lock, as other clients see it.

use std::time::Duration;

use crate::token::LockId;

/// Whether a holder has the lock alone.
///
/// ```
/// # let server = redlock_tests::Server::for_sample();
/// # let url = server.url();
/// use redlock_sync::HoldMode;
/// let locks = redlock_sync::Redlock::open(&url)?;
/// let prices = locks.rw_lock("prices");
/// let writer = prices.write()?;
/// assert_eq!(prices.inspect()?[0].mode, HoldMode::Exclusive);
/// let reader = writer.downgrade()?;
/// assert_eq!(prices.inspect()?[0].mode, HoldMode::Shared);
/// # drop(reader);
/// # Ok::<(), redlock_sync::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum HoldMode {
    /// No other holder: a mutex, or a read-write lock that is held to write.
    Exclusive,
    /// Others may hold it too: a read-write lock that is held to read, or a permit of a semaphore.
    Shared,
}

/// The holder of a lock at this moment, as seen by a majority of the nodes.
///
/// ```
/// # let server = redlock_tests::Server::for_sample();
/// # let url = server.url();
/// let locks = redlock_sync::Redlock::open(&url)?;
/// let order = locks.mutex("order:42");
/// assert!(order.inspect()?.is_empty());
/// let guard = order.lock()?;
/// let holder = &order.inspect()?[0];
/// assert_eq!(&holder.id, guard.id());
/// assert!(holder.remaining.unwrap() <= std::time::Duration::from_secs(30));
/// # Ok::<(), redlock_sync::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// Whether others can hold the lock beside it.
    pub mode: HoldMode,
    /// The id of its acquisition. [`name`](Holder::name) has the readable part.
    pub id: LockId,
    /// Time-to-live of the key; the holder may extend it. `None` if some program set the key without one.
    pub remaining: Option<Duration>,
}

impl Holder {
    pub(crate) fn new(mode: HoldMode, token: &str, remaining: Option<Duration>) -> Holder {
        Holder { mode, id: LockId::from_server(token), remaining }
    }

    /// Returns the name of the holder: host, process and thread, or what [`holder_name`](crate::Mutex::holder_name)
    /// set. If another process granted the lock to a waiter, the name is host and process of the waiter. It is empty if
    /// the token has no readable part.
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// let locks = redlock_sync::Redlock::open(&url)?;
    /// let order = locks.mutex("order:42").holder_name("billing");
    /// let guard = order.lock()?;
    /// assert_eq!(order.inspect()?[0].name(), "billing");
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    #[must_use]
    pub fn name(&self) -> &str {
        let name = self.id.holder_name();
        // The channels of older clients do not name host and process.
        self.waiter().and_then(|waiter| waiter.rsplit_once(':')).map_or(name, |(place, _)| place)
    }

    /// The waiter to which another process granted the lock.
    fn waiter(&self) -> Option<&str> {
        self.id.holder_name().strip_prefix("granted:redlock-sync:")
    }
}

/// It has no more of the token than `Display` shows.
#[cfg(feature = "serde")]
impl serde::Serialize for Holder {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct;
        let mut holder = to.serialize_struct("Holder", 5)?;
        holder.serialize_field("mode", &self.mode)?;
        holder.serialize_field("state", if self.waiter().is_some() { "granted" } else { "held" })?;
        holder.serialize_field("holder", &self.id.shown())?;
        holder.serialize_field("holder_name", self.name())?;
        holder.serialize_field("remaining_ms", &self.remaining.map(crate::serial::ms))?;
        holder.end()
    }
}
