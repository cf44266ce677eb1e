//! The semaphore: a limited number of holders at a time.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::acquire::MaxWait;
use crate::error::Error;
use crate::handover::rules::MIN_RESERVATION;
use crate::inner::ClientInner;
use crate::key::Key;
use crate::lock::handle::{Handle, inspection};
use crate::lock::holder::{HoldMode, Holder};
use crate::lock::permit::SemaphorePermit;
use crate::lock::reentry;
use crate::lock::settings::settings;
use crate::lock::with::closures;
use crate::options::LockOptions;
use crate::protocol::Protocol;
use crate::protocol::permits::{self as protocol, MAX_PERMITS};
use crate::quorum::Quorum;

/// A lock of which all processes together hold at most a number of permits.
/// [`Redlock::semaphore`](crate::Redlock::semaphore) makes it.
///
/// Picture a car park: a car that finds all places taken waits in a queue. A semaphore limits how many cars are inside,
/// not how many enter in a second.
///
/// ```
/// # let server = redlock_tests::Server::for_sample();
/// # let url = server.url();
/// let locks = redlock_sync::Redlock::open(&url)?;
/// let geocoder = locks.semaphore("geocoder", 2); // its owner allows two calls at a time
/// let permit = geocoder.acquire()?; // blocks until there is one
/// permit.check()?; // a permit is a lease, as the guard of a mutex is
/// assert_eq!(geocoder.available()?, 1);
/// permit.release()?;
/// assert_eq!(geocoder.available()?, 2);
/// # Ok::<(), redlock_sync::Error>(())
/// ```
///
/// Each permit has a lease, as a mutex has. A thread renews the lease while the guard lives. If the process dies, the
/// permit is free again after the lease. Under [the same two conditions](crate#what-is-promised), there are never more
/// holders than permits. All settings of a mutex apply but `take_over_keys_without_ttl`. Where they say "lock", read
/// "permit".
///
/// A thread may hold several permits. If it waits for one while it holds others, it can wait for ever, and no error
/// reports that. With one server, [`acquire_many`](Semaphore::acquire_many) takes several at once.
///
/// # Order
///
/// On one server, threads of all processes get permits in the order in which they began to wait. When it is a thread's
/// turn, a permit is reserved for it for half a second, or for two node timeouts if they are longer. If the thread does
/// not claim the permit in that time, it loses its turn. On several servers, any attempt may get a free permit. A
/// release wakes the threads that have waited longest, so they usually come first.
///
/// On several servers, different permits are on different majorities, so each server can lend another [slot](#slots) to
/// an attempt. Then a call that does not wait asks which slots are free on a majority, and tries these.
/// [`try_acquire`](Semaphore::try_acquire) can still return `Busy` although a permit is free. That happens in two cases
/// only. Other calls acquire, release or wait for permits at that moment. Or it is the first call after a server has
/// begun to hang. Calls that wait try again.
///
/// # A holder that is stuck
///
/// A semaphore has no `force_unlock`, unlike [a mutex](crate::Mutex::force_unlock). That is because permits that were
/// acquired together are one lease. So such a call could take away more than the permit that is stuck. End the process
/// of the holder. Then its lease ends by itself.
///
/// # Changing the number
///
/// The number is in the handle and not on the servers. While processes with an old and a new number run, at most the
/// larger number of permits is held. If the new number is smaller, no holder loses its permit. Permits beyond the new
/// number are not given again after their release.
///
/// # Slots
///
/// A server lends numbered slots. A permit is a slot that a majority of the nodes lent to the same holder. So each
/// slot is a mutex by itself, and one round trip asks for all of them.
#[derive(Clone)]
pub struct Semaphore {
    handle: Handle,
    permits: u32,
}

impl Semaphore {
    pub(crate) fn new(
        client: Arc<ClientInner>,
        key: Result<Key, Error>,
        options: Arc<LockOptions>,
        permits: u32,
    ) -> Semaphore {
        let key = key.and_then(|key| check_permits(&key, permits).map(|()| key));
        let quorum = Arc::clone(&client.quorum);
        let lock = |key| for_many(key, permits, 1, &quorum);
        Semaphore { handle: Handle::new(client, key, options, lock), permits }
    }

    fn set(self, change: impl FnOnce(&mut LockOptions)) -> Semaphore {
        Semaphore { handle: self.handle.set(change), ..self }
    }

    /// Blocks until this thread has a permit.
    ///
    /// # Errors
    /// - [`Busy`](Error::Busy) only if the [`retry`](Semaphore::retry) policy gives up
    /// - [`Unavailable`](Error::Unavailable) once no majority of the nodes could be asked for the client's
    ///   [`unavailable_after`](crate::Builder::unavailable_after)
    /// - [`WrongType`](Error::WrongType) if a lock of another kind has the name
    /// - [`Config`](Error::Config), also for a number of permits outside 1 to 1024, and [`Closed`](Error::Closed) at
    ///   once
    ///
    /// Nothing is held after an error.
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// let locks = redlock_sync::Redlock::open(&url)?;
    /// let permit = locks.semaphore("geocoder", 10).acquire()?;
    /// assert!(permit.slot() < 10);
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    #[must_use = "the permit is in its `Ok`: write `let permit = ….acquire()?;`"]
    pub fn acquire(&self) -> Result<SemaphorePermit, Error> {
        self.acquire_permits(1, MaxWait::Forever)
    }

    /// Blocks until this thread has this number of permits. It gets all of them at once, and holds none while it waits.
    ///
    /// The thread has its place in the [order](Semaphore#order) like any other. When it is its turn, free permits are
    /// kept for it until there are enough. Threads that came later wait meanwhile, although some permits are free.
    ///
    /// **This works with one server only**: one server, one Sentinel group or one cluster. With a client of several,
    /// acquire one permit at a time. A thread that holds one and waits for the next can wait for ever, so give each
    /// call a limit, and release what you have if one returns `Busy`.
    ///
    /// The permits are one lease, so they are renewed, released and lost together. If a process dies while permits are
    /// kept for one of its threads, these permits stay taken for about one lease of that process.
    ///
    /// # Errors
    /// - [`Config`](Error::Config) for zero permits, for more than the semaphore has, and for more than one permit with
    ///   a client of several servers
    /// - the errors of [`acquire`](Semaphore::acquire)
    ///
    /// Nothing is held after an error.
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// let locks = redlock_sync::Redlock::open(&url)?;
    /// let workers = locks.semaphore("cores", 8);
    /// let job = workers.acquire_many(3)?; // a job on three cores
    /// assert_eq!(job.slots().len(), 3);
    /// assert_eq!(workers.available()?, 5);
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    #[must_use = "the permit is in its `Ok`: write `let permit = ….acquire_many(…)?;`"]
    pub fn acquire_many(&self, permits: u32) -> Result<SemaphorePermit, Error> {
        self.acquire_permits(permits, MaxWait::Forever)
    }

    /// Makes one attempt, with one round trip to each node. If several nodes [lent different slots](Semaphore#order),
    /// there is a second round trip. The call takes one node timeout at most.
    ///
    /// # Errors
    /// - [`Busy`](Error::Busy) if no permit is free, or all free permits are reserved for threads that wait
    /// - [`Unavailable`](Error::Unavailable) without a majority
    /// - the errors of [`acquire`](Semaphore::acquire)
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// let locks = redlock_sync::Redlock::open(&url)?;
    /// let geocoder = locks.semaphore("geocoder", 1);
    /// let _permit = geocoder.try_acquire()?;
    /// assert!(geocoder.try_acquire().unwrap_err().is_busy());
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    #[must_use = "the permit is in its `Ok`: write `let permit = ….try_acquire()?;`"]
    pub fn try_acquire(&self) -> Result<SemaphorePermit, Error> {
        self.acquire_permits(1, MaxWait::No)
    }

    /// Makes one attempt to get this number of permits, all or none. It is for
    /// [`acquire_many`](Semaphore::acquire_many) what [`try_acquire`](Semaphore::try_acquire) is for
    /// [`acquire`](Semaphore::acquire).
    ///
    /// # Errors
    /// - [`Busy`](Error::Busy) if fewer permits are free, or free permits are reserved for threads that wait
    /// - the errors of [`acquire_many`](Semaphore::acquire_many)
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// let locks = redlock_sync::Redlock::open(&url)?;
    /// let workers = locks.semaphore("cores", 8);
    /// let job = workers.try_acquire_many(5)?;
    /// assert!(workers.try_acquire_many(5).unwrap_err().is_busy());
    /// # drop(job);
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    #[must_use = "the permit is in its `Ok`: write `let permit = ….try_acquire_many(…)?;`"]
    pub fn try_acquire_many(&self, permits: u32) -> Result<SemaphorePermit, Error> {
        self.acquire_permits(permits, MaxWait::No)
    }

    /// Blocks until this thread has a permit, for at most `wait`, and makes a last attempt at the end. The call takes
    /// at most one node timeout longer than `wait`. If it has to take back an attempt that came too late, it takes a
    /// quarter of a node timeout more.
    ///
    /// # Errors
    /// - [`Busy`](Error::Busy) if this thread got no permit in that time
    /// - [`Unavailable`](Error::Unavailable) if no majority could be asked at the end of the wait, or before for the
    ///   client's [`unavailable_after`](crate::Builder::unavailable_after)
    /// - the errors of [`acquire`](Semaphore::acquire)
    ///
    /// Nothing is held after an error.
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// use std::time::Duration;
    /// let locks = redlock_sync::Redlock::open(&url)?;
    /// let permit = locks.semaphore("geocoder", 10).try_acquire_for(Duration::from_secs(2))?;
    /// # drop(permit);
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    #[must_use = "the permit is in its `Ok`: write `let permit = ….try_acquire_for(…)?;`"]
    pub fn try_acquire_for(&self, wait: Duration) -> Result<SemaphorePermit, Error> {
        self.acquire_permits(1, self.handle.for_at_most(wait))
    }

    /// Like [`acquire_many`](Semaphore::acquire_many), but blocks for at most `wait`. The call takes as long as
    /// [`try_acquire_for`](Semaphore::try_acquire_for).
    ///
    /// # Errors
    /// The errors of [`try_acquire_for`](Semaphore::try_acquire_for) and [`acquire_many`](Semaphore::acquire_many).
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// use std::time::Duration;
    /// let locks = redlock_sync::Redlock::open(&url)?;
    /// let job = locks.semaphore("cores", 8).try_acquire_many_for(3, Duration::from_secs(2))?;
    /// # drop(job);
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    #[must_use = "the permit is in its `Ok`: write `let permit = ….try_acquire_many_for(…)?;`"]
    pub fn try_acquire_many_for(&self, permits: u32, wait: Duration) -> Result<SemaphorePermit, Error> {
        self.acquire_permits(permits, self.handle.for_at_most(wait))
    }

    /// Like [`try_acquire_for`](Semaphore::try_acquire_for), but with a deadline in place of a length of time.
    ///
    /// # Errors
    /// The errors of [`try_acquire_for`](Semaphore::try_acquire_for).
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// use std::time::{Duration, Instant};
    /// let locks = redlock_sync::Redlock::open(&url)?;
    /// let permit = locks.semaphore("geocoder", 10).try_acquire_until(Instant::now() + Duration::from_secs(2))?;
    /// # drop(permit);
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    #[must_use = "the permit is in its `Ok`: write `let permit = ….try_acquire_until(…)?;`"]
    pub fn try_acquire_until(&self, deadline: Instant) -> Result<SemaphorePermit, Error> {
        self.acquire_permits(1, self.handle.until(deadline))
    }

    /// Like [`try_acquire_many_for`](Semaphore::try_acquire_many_for), but with a deadline in place of a length of
    /// time.
    ///
    /// # Errors
    /// The errors of [`try_acquire_many_for`](Semaphore::try_acquire_many_for).
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// use std::time::{Duration, Instant};
    /// let locks = redlock_sync::Redlock::open(&url)?;
    /// let job = locks.semaphore("cores", 8).try_acquire_many_until(3, Instant::now() + Duration::from_secs(2))?;
    /// # drop(job);
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    #[must_use = "the permit is in its `Ok`: write `let permit = ….try_acquire_many_until(…)?;`"]
    pub fn try_acquire_many_until(&self, permits: u32, deadline: Instant) -> Result<SemaphorePermit, Error> {
        self.acquire_permits(permits, self.handle.until(deadline))
    }

    /// Returns how many permits are free at this moment. A permit is not free if a majority of the nodes has lent it,
    /// or keeps it for a thread that waits. The number can have changed when the call returns, so use it to watch, not
    /// to decide.
    ///
    /// # Errors
    /// - [`Unavailable`](Error::Unavailable) without a majority, or if only a node without a usable answer knows
    ///   whether a permit is lent. While one of several nodes is away, that is so for each permit that is just being
    ///   acquired or released.
    /// - [`WrongType`](Error::WrongType) if the key holds something else
    /// - [`Config`](Error::Config), [`Closed`](Error::Closed)
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// let locks = redlock_sync::Redlock::open(&url)?;
    /// let geocoder = locks.semaphore("geocoder", 10);
    /// let permit = geocoder.acquire()?;
    /// assert_eq!(geocoder.available()?, 9);
    /// # drop(permit);
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    pub fn available(&self) -> Result<u32, Error> {
        let lent = self.lent()?.into_iter().filter(|(slot, _)| *slot < self.permits).count();
        Ok(self.permits.saturating_sub(u32::try_from(lent).unwrap_or(u32::MAX)))
    }

    inspection!("locks.semaphore(\"geocoder\", 10)", "acquire");

    fn holders(&self) -> Result<Vec<Holder>, Error> {
        let holders = self.lent()?.into_iter().map(|(_, holder)| holder);
        Ok(holders.filter(|holder| !holder.id.is_reservation()).collect())
    }

    /// The slots that are lent or reserved, in ascending order.
    fn lent(&self) -> Result<Vec<(u32, Holder)>, Error> {
        let slot = |(member, remaining): (String, _)| {
            let (slot, token) = member.split_once(' ')?;
            Some((slot.parse().ok()?, Holder::new(HoldMode::Shared, token, remaining)))
        };
        let mut lent: Vec<(u32, Holder)> = self.handle.holders()?.into_iter().filter_map(slot).collect();
        lent.sort_unstable_by_key(|(slot, _)| *slot);
        Ok(lent)
    }

    fn acquire_permits(&self, many: u32, wait: MaxWait) -> Result<SemaphorePermit, Error> {
        // A lock of another kind by this name that this thread holds stays ahead of it in the queue of this process. So
        // the call does not wait: the servers report the conflict at once.
        let held = reentry::held_by_thread(self.handle.client.id, self.handle.key()?.as_str());
        let wait = if held.is_none() { wait } else { MaxWait::No };
        let lease = if many == 1 { self.handle.acquire(wait) } else { self.for_many(many)?.acquire(wait) };
        Ok(SemaphorePermit::new(lease?))
    }

    /// A handle that takes `many` permits at once.
    fn for_many(&self, many: u32) -> Result<Handle, Error> {
        let key = self.handle.key()?;
        if !(1..=self.permits).contains(&many) {
            let permits = self.permits;
            return Err(Error::config(format!(
                "cannot acquire {many} permits at once of semaphore `{key}`, which has {permits}"
            )));
        }
        let what = format!("acquire {many} permits at once of semaphore `{key}`");
        self.handle.client.quorum.needs_one_server(&what, "acquire one permit at a time, with a limit for the wait")?;
        let lock = Arc::new(for_many(key.clone(), self.permits, many, &self.handle.client.quorum));
        Ok(Handle { lock: Ok((key.clone(), lock)), ..self.handle.clone() })
    }
}

/// The protocol of attempts for `many` permits at once.
fn for_many(key: Key, total: u32, many: u32, quorum: &Quorum) -> Protocol {
    let (several, reservation) = (quorum.len() > 1, MIN_RESERVATION.max(quorum.settings.two_rounds()));
    Protocol::Semaphore(protocol::Permits { key, total, many, several, reservation, first: None, slots: Vec::new() })
}

/// # With a closure
impl Semaphore {
    closures!("locks.semaphore(\"geocoder\", 1)", SemaphorePermit release, with acquire);
}

/// # Settings
///
/// Each is a method that returns the handle with this setting.
impl Semaphore {
    settings!("locks.semaphore(\"geocoder\", 1)": lease renew min_hold max_hold unavailable_after cancel label fenced);
}

/// # Settings that are rarely needed
impl Semaphore {
    settings!("locks.semaphore(\"geocoder\", 1)": max_renewals retry holder_name);
}

fn check_permits(key: &Key, permits: u32) -> Result<(), Error> {
    if (1..=MAX_PERMITS).contains(&permits) {
        return Ok(());
    }
    Err(Error::config(format!("semaphore `{key}` cannot have {permits} permits; use 1 to {MAX_PERMITS}")))
}

impl fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Semaphore")
            .field("key", &self.handle.key())
            .field("permits", &self.permits)
            .field("options", &self.handle.options)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Memory;

    #[test]
    fn semaphores_work_in_memory() {
        for nodes in [1, 3] {
            let memory = Memory::new(nodes);
            let (one, other) = (memory.client().semaphore("k", 2), memory.client().semaphore("k", 2));
            let held = [one.acquire().unwrap(), one.clone().renew(false).acquire().unwrap()];
            assert_eq!(other.inspect().unwrap().len(), 2);
            assert!(other.try_acquire().unwrap_err().is_busy());
            let waiter = other.clone();
            let (tell, told) = std::sync::mpsc::channel();
            std::thread::spawn(move || tell.send(waiter.acquire().unwrap().release()).unwrap());
            // The time advances in steps. A round of the waiting thread takes no longer than one step.
            let step = |_: u32| {
                memory.advance(Duration::from_secs(1));
                told.recv_timeout(Duration::from_millis(10)).ok()
            };
            (0..3000).find_map(step).unwrap().unwrap();
            assert!(held[1].check().unwrap_err().is_lost());
            memory.deny("k", 1);
            assert!(other.try_acquire().unwrap_err().is_busy());
            other.try_acquire().unwrap().release().unwrap();
        }
    }

    #[test]
    fn the_number_is_checked() {
        let key = Key::new("", "k").unwrap();
        assert!(check_permits(&key, 1).is_ok() && check_permits(&key, 1024).is_ok());
        assert!(check_permits(&key, 0).is_err() && check_permits(&key, 1025).is_err());
    }

    #[test]
    fn only_the_sendable_permit_is_send() {
        fn send<T: Send>() {}
        send::<SemaphorePermit<crate::GuardSend>>();
        send::<Semaphore>();
    }
}
