//! The part that all lock handles share: the client, the checked key, and the settings.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::acquire::{MaxWait, acquire, join};
use crate::clock::tick_at;
use crate::error::Error;
use crate::inner::ClientInner;
use crate::key::Key;
use crate::lease::Lease;
use crate::lock::holder::{HoldMode, Holder};
use crate::lock::reentry::held_by_thread;
use crate::options::LockOptions;
use crate::protocol::{LeaseCalls, Next, Protocol, ReleaseArgs, Request};

/// A lock by name, with its settings. It has no state, and is cheap to make. If the name is invalid, the first use
/// reports that.
#[derive(Debug, Clone)]
pub(crate) struct Handle {
    pub(crate) client: Arc<ClientInner>,
    pub(crate) lock: Result<(Key, Arc<Protocol>), Error>,
    pub(crate) options: Arc<LockOptions>,
}

impl Handle {
    pub(crate) fn new(
        client: Arc<ClientInner>,
        key: Result<Key, Error>,
        options: Arc<LockOptions>,
        protocol: impl FnOnce(Key) -> Protocol,
    ) -> Handle {
        Handle { client, lock: key.map(|key| (key.clone(), Arc::new(protocol(key)))), options }
    }

    /// The same lock with changed settings.
    pub(crate) fn set(mut self, change: impl FnOnce(&mut LockOptions)) -> Handle {
        change(Arc::make_mut(&mut self.options));
        self
    }

    pub(crate) fn key(&self) -> Result<&Key, Error> {
        self.lock.as_ref().map(|(key, _)| key).map_err(Error::clone)
    }

    /// The request of an acquire. Returns an error if the settings contradict each other.
    pub(crate) fn request(&self) -> Result<Request, Error> {
        self.options.check(&self.client.quorum.settings)?;
        let (key, protocol) = self.lock.clone()?;
        Ok(Request { key, protocol, options: Arc::clone(&self.options) })
    }

    pub(crate) fn acquire(&self, wait: MaxWait) -> Result<Lease, Error> {
        let (key, protocol) = self.lock.as_ref().map_err(Error::clone)?;
        if let Some(lease) = join(&self.client, key.as_str(), protocol.kind(), &self.options) {
            return Ok(lease);
        }
        acquire(&self.client, &self.request()?, wait)
    }

    pub(crate) fn for_at_most(&self, wait: Duration) -> MaxWait {
        MaxWait::Until(self.client.quorum.now().after(wait))
    }

    pub(crate) fn until(&self, deadline: Instant) -> MaxWait {
        MaxWait::Until(tick_at(&*self.client.quorum.clock, deadline))
    }

    /// Returns an error if this thread holds the lock, unless that lease certainly ends within `wait`.
    pub(crate) fn check_not_held(&self, wait: MaxWait) -> Result<(), Error> {
        let (key, protocol) = self.lock.as_ref().map_err(Error::clone)?;
        let Some((own, is_nested)) = held_by_thread(self.client.id, key.as_str()) else { return Ok(()) };
        // A lock of another kind by the same name. The attempt goes on: the servers then report the type of the key.
        if own.protocol().kind().name != protocol.kind().name {
            return Ok(());
        }
        if is_nested {
            own.check()?;
        }
        if own.surely_ends().is_some_and(|end| end <= wait.until()) {
            return Ok(());
        }
        let key = key.as_str().to_owned();
        if wait == MaxWait::Forever {
            return Err(Error::WouldDeadlock { key });
        }
        Err(Error::Busy { key, expires_in: Some(own.remaining()), by_this_thread: true, is_latch: false })
    }

    /// Asks all nodes for the holder of a lock that has one.
    pub(crate) fn inspect(&self) -> Result<Vec<Holder>, Error> {
        let first = self.holders()?.into_iter().next();
        Ok(first.iter().map(|(token, remaining)| Holder::new(HoldMode::Exclusive, token, *remaining)).collect())
    }

    /// The holders that a majority of the nodes has, with their tokens as stored on the servers. The result is an error
    /// if a node that did not answer may give another token its majority.
    pub(crate) fn holders(&self) -> Result<Vec<(String, Option<Duration>)>, Error> {
        let (key, protocol) = self.lock.as_ref().map_err(Error::clone)?;
        self.client.check_not_ended()?;
        let quorum = &self.client.quorum;
        let ballot = quorum.round(&protocol.inspect(), quorum.round_deadline());
        let holders = ballot.of_majority();
        if !ballot.is_answered() || ballot.may_have_other_holder() {
            return Err(quorum.failed("inspect", key.as_str(), &ballot));
        }
        Ok(holders)
    }

    /// Releases the lock on all nodes where this holder has it. Returns true if that was a majority.
    pub(crate) fn force_unlock(&self, holder: &Holder) -> Result<bool, Error> {
        let (key, protocol) = self.lock.as_ref().map_err(Error::clone)?;
        self.client.check_not_ended()?;
        // A token that is not valid UTF-8 was read with this replacement character.
        if holder.id.as_str().is_empty() || holder.id.as_str().contains(char::REPLACEMENT_CHARACTER) {
            let problem = format!("the holder of lock `{key}` has a token that is not valid: delete the key by hand");
            return Err(Error::config(problem));
        }
        let quorum = &self.client.quorum;
        let release = ReleaseArgs { id: Some(&holder.id), keep: Duration::ZERO, wait: None, next: Next::Anybody };
        let ballot = quorum.round(&protocol.release(&release), quorum.round_deadline());
        if !ballot.is_answered() {
            return Err(quorum.failed("force unlock", key.as_str(), &ballot));
        }
        // If the call was sent twice, the second copy finds no key where the first one released the lock.
        let is_freed = ballot.won() || ballot.duplicate;
        if is_freed {
            self.client.mark_force_unlocked(&holder.id);
        }
        Ok(is_freed)
    }
}

/// The methods that show whether a lock is held, and by whom. They call `holders` of the handle.
macro_rules! inspection {
    ($open:literal, $take:literal) => {
        /// Returns whether any process holds the lock, or a permit of the semaphore, at this moment, on a majority of
        /// the nodes. That can have changed when the call returns, so use it to watch a system, not to decide. A holder
        /// calls [`check`](crate::Lease::check).
        ///
        /// # Errors
        /// - [`Unavailable`](crate::Error::Unavailable) without a majority, or if only a node without a usable answer
        ///   knows whether there is a holder, or another one
        /// - [`WrongType`](crate::Error::WrongType) if the key holds something else
        /// - [`Config`](crate::Error::Config), [`Closed`](crate::Error::Closed)
        ///
        /// ```
        /// # let server = redlock_tests::Server::for_sample();
        /// # let url = server.url();
        /// let locks = redlock_sync::Redlock::open(&url)?;
        #[doc = concat!("let lock = ", $open, ";")]
        /// assert!(!lock.is_locked()?);
        #[doc = concat!("let guard = lock.", $take, "()?;")]
        /// assert!(lock.is_locked()?);
        /// # drop(guard);
        /// # Ok::<(), redlock_sync::Error>(())
        /// ```
        pub fn is_locked(&self) -> Result<bool, $crate::Error> {
            Ok(!self.holders()?.is_empty())
        }

        /// Returns the holders of the lock at this moment, on a majority of the nodes. The list is empty if the lock is
        /// free.
        ///
        /// - A mutex has one holder at most.
        /// - The holders of a read-write lock are one writer or all readers, as their
        ///   [`mode`](crate::Holder::mode) says; at most a thousand of each node. Threads of a process that read by one
        ///   lease are one holder. For a moment after a release, the list also has waiters for which the lock is kept.
        ///   The token of such a waiter has `granted:` behind its first part.
        /// - A semaphore has a holder for each permit, in the order of the [slots](crate::SemaphorePermit::slot), also
        ///   beyond the number of this handle.
        ///
        /// # Errors
        /// The errors of `is_locked`.
        ///
        /// ```
        /// # let server = redlock_tests::Server::for_sample();
        /// # let url = server.url();
        /// let locks = redlock_sync::Redlock::open(&url)?;
        #[doc = concat!("let lock = ", $open, ".holder_name(\"me\");")]
        #[doc = concat!("let guard = lock.", $take, "()?;")]
        /// assert_eq!(lock.inspect()?[0].name(), "me");
        /// # drop(guard);
        /// # Ok::<(), redlock_sync::Error>(())
        /// ```
        pub fn inspect(&self) -> Result<Vec<$crate::Holder>, $crate::Error> {
            self.holders()
        }
    };
}

/// The method that takes a lock away from its holder. Only exclusive kinds have it.
macro_rules! force_unlock {
    ($open:literal) => {
        /// Takes the lock away from a holder that `inspect` showed, if its token is still the same. Use it if you know
        /// that the holder is gone or stuck. Returns true if a majority of the nodes freed the lock, and false if that
        /// holder has no majority any more. Threads that wait are notified. Waiters of the holder's own client go on
        /// after that client has detected the loss. Only mutexes have this call. Readers of one process share a lease,
        /// a writer can become a reader, and several permits can have one lease. So the call could end work that is not
        /// stuck. If such a holder is stuck, end its process. Then its lease ends by itself.
        ///
        /// `inspect` shows a string of another program as a holder too. This library gives each lock a time-to-live, so
        /// if [`remaining`](crate::Holder::remaining) is `None`, the string may be no lock.
        ///
        /// Threads of one client that hand a lock to each other have the same token. So `force_unlock` can take the
        /// lock from the next thread of that client instead.
        ///
        /// **The holder may still be at work.** Its guard is [`Lost`](crate::Error::Lost) about a second later. On a
        /// Redis Cluster, that is at its next renewal or at the end of its lease, and for a holder of this same client,
        /// at once. Until then, another holder can be at work beside it, and only [fencing
        /// tokens](crate::Lease::fencing_token) protect the resource.
        ///
        /// # Errors
        /// - [`Unavailable`](crate::Error::Unavailable) if no majority answered. The lock may be freed on some nodes,
        ///   so call again
        /// - [`WrongType`](crate::Error::WrongType) if the key holds something else
        /// - [`Config`](crate::Error::Config), also if the token, of another program, is empty or not valid UTF-8
        /// - [`Closed`](crate::Error::Closed)
        ///
        /// ```
        /// # let server = redlock_tests::Server::for_sample();
        /// # let url = server.url();
        /// let locks = redlock_sync::Redlock::open(&url)?;
        #[doc = concat!("let stuck = ", $open, ".lock()?;")]
        #[doc = concat!("let holders = ", $open, ".inspect()?;")]
        #[doc = concat!("assert!(", $open, ".force_unlock(&holders[0])?);")]
        #[doc = concat!("assert!(!", $open, ".force_unlock(&holders[0])?); // no longer")]
        /// assert!(stuck.unlock().unwrap_err().is_lost());
        /// # Ok::<(), redlock_sync::Error>(())
        /// ```
        pub fn force_unlock(&self, holder: &crate::Holder) -> Result<bool, crate::Error> {
            self.handle.force_unlock(holder)
        }
    };
}

/// Implements `Deref` to the lease for a guard.
macro_rules! derefs_to_lease {
    ($guard:ident $(<$bound:ident>)?, $($lease:ident).+) => {
        impl$(<$bound>)? std::ops::Deref for $guard$(<$bound>)? {
            type Target = $crate::Lease;

            fn deref(&self) -> &$crate::Lease {
                &self.$($lease).+
            }
        }

        impl$(<$bound>)? std::fmt::Debug for $guard$(<$bound>)? {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.debug_tuple(stringify!($guard)).field(&self.$($lease).+).finish()
            }
        }
    };
}

pub(crate) use {derefs_to_lease, force_unlock, inspection};
