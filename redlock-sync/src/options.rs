//! Settings: their defaults, their limits, and the rules between them. No I/O.

use std::borrow::Cow;
use std::fmt;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::cancel::Cancelling;
use crate::error::Error;
use crate::observer::{LockKind, ObservedLock, Observers};

/// The shortest lease that can be set.
pub(crate) const MIN_LEASE: Duration = Duration::from_millis(10);
/// What must be left of the lease when an acquire returns. Otherwise the attempt counts as failed.
pub(crate) const MIN_VALIDITY: Duration = Duration::from_millis(10);
/// The longest lease that can be set.
pub(crate) const MAX_LEASE: Duration = Duration::from_secs(24 * 60 * 60);
/// How long a latch is kept after the last arrival: the default, and the limits.
pub(crate) const LIFETIME: Duration = Duration::from_secs(24 * 60 * 60);
pub(crate) const MIN_LIFETIME: Duration = Duration::from_secs(1);
pub(crate) const MAX_LIFETIME: Duration = Duration::from_secs(365 * 24 * 60 * 60);
/// The largest number of arrivals of a latch. With several nodes, a full check fetches all of them. `latch_arrive.lua`
/// has the same number.
pub(crate) const MOST_ARRIVALS: usize = 10_000;
/// How long a fence counter stays after the server's clock has passed it.
///
/// While the counter is there, the next fence exceeds it. Once it is gone, the next fence is the server's time, which
/// exceeds it unless that clock was set back meanwhile by more than this. A clock that is set back keeps the counter
/// for longer by as much. So only a step back after the counter's end can matter, whatever the leases are. Time daemons
/// step a running clock by 1000 s at most (the panic threshold of ntpd); this is the next larger round number.
pub(crate) const FENCE_LIFETIME: Duration = Duration::from_secs(20 * 60);
/// How long a client that is closed waits for its threads, or two node timeouts if these are longer.
pub(crate) const CLOSING: Duration = Duration::from_secs(5);

/// A random time between half of `pause` and all of it, so that waiters do not act in step.
pub(crate) fn jittered(pause: Duration) -> Duration {
    pause.mul_f64(0.5 + fastrand::f64() / 2.0)
}

/// Renewal is due when this part of the lease has passed: a third.
pub(crate) const RENEW_DIVISOR: u32 = 3;

/// The time that is subtracted from each lease, since clocks run at different speeds: 1 % and 2 ms.
pub(crate) fn drift(lease: Duration) -> Duration {
    lease / 100 + Duration::from_millis(2)
}

/// The settings of a client that concern every lock.
#[derive(Clone, Debug)]
pub(crate) struct ClientOptions {
    /// The longest wait for one node: to connect, to write, and to read.
    pub(crate) node_timeout: Duration,
    /// The largest number of connections to each server. All calls share them.
    pub(crate) connections: u32,
    pub(crate) restart_guard: bool,
    /// `None` means on with several nodes, and off with one.
    pub(crate) failover_guard: Option<bool>,
    /// How many replicas of a node must confirm what grants or extends a lease. With 0, no replica is asked.
    pub(crate) min_replicas_ack: u32,
    pub(crate) observers: Observers,
    /// How long an annotated function without a `wait` argument waits. `None` means without a limit.
    pub(crate) default_wait: Option<Duration>,
}

/// The node timeout of a client that sets none, in milliseconds. Only the samples of the documentation change it.
pub(crate) static DEFAULT_NODE_TIMEOUT: AtomicU64 = AtomicU64::new(250);

impl Default for ClientOptions {
    fn default() -> ClientOptions {
        ClientOptions {
            node_timeout: Duration::from_millis(DEFAULT_NODE_TIMEOUT.load(Ordering::Relaxed)),
            connections: 2,
            restart_guard: true,
            failover_guard: None,
            min_replicas_ack: 0,
            observers: Observers::default(),
            default_wait: None,
        }
    }
}

/// How many node timeouts something takes. A round takes one at most.
impl ClientOptions {
    /// The longest time for a round and what completes or repeats it, such as at the end of a lease.
    pub(crate) fn two_rounds(&self) -> Duration {
        self.node_timeout * 2
    }

    /// How long the drop of a guard and a downgrade wait for another round of the lease.
    pub(crate) fn half_round(&self) -> Duration {
        self.node_timeout / 2
    }

    /// How long a hand-over within the process waits for the answer of the servers. A drop has one node timeout in all.
    pub(crate) fn handover_round(&self) -> Duration {
        self.node_timeout / 4
    }

    /// How long a hand-over within the process waits for another round of the lease.
    pub(crate) fn handover_wait(&self) -> Duration {
        self.node_timeout / 8
    }

    /// The pause before a release that has no answer, or could not be sent, is sent again.
    pub(crate) fn resend_pause(&self) -> Duration {
        self.node_timeout / 10
    }
}

/// Whether others may hold the lock beside its holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Exclusive,
    Shared,
    /// Like `Shared`, but threads of a process that want the lock with the same plain settings share one lease.
    Joint,
}

/// The name and the sharing mode of a lock. Threads of one process hand a lock to each other, or share it, only if both
/// are equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    pub(crate) mode: Mode,
}

/// The settings of one lock: from the client's defaults, changed by the handle's builder methods.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct LockOptions {
    pub(crate) lease: Duration,
    pub(crate) renew: bool,
    pub(crate) min_hold: Duration,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) max_renewals: Option<u32>,
    pub(crate) fenced: bool,
    pub(crate) retry: Retry,
    /// A call that waits gives up once no majority has answered for this long.
    pub(crate) unavailable_after: Duration,
    pub(crate) holder_name: Option<String>,
    pub(crate) take_over_keys_without_ttl: bool,
    /// What cancels the waits for the lock.
    pub(crate) cancel: Cancelling,
    /// The label of the lock for observers.
    pub(crate) label: Cow<'static, str>,
}

impl Default for LockOptions {
    fn default() -> LockOptions {
        LockOptions {
            lease: Duration::from_secs(30),
            renew: true,
            min_hold: Duration::ZERO,
            max_hold: None,
            max_renewals: None,
            fenced: false,
            retry: Retry::default(),
            unavailable_after: Duration::from_secs(10),
            holder_name: None,
            take_over_keys_without_ttl: false,
            cancel: Cancelling::default(),
            label: Cow::Borrowed(""),
        }
    }
}

impl LockOptions {
    /// The lock as observers see it.
    pub(crate) fn observed<'a>(&'a self, key: &'a str, kind: LockKind) -> ObservedLock<'a> {
        ObservedLock { label: &self.label, key, kind }
    }

    /// True if a lease can be handed to another thread: no setting is counted from the time of the acquisition.
    pub(crate) fn can_change_hands(&self) -> bool {
        // All settings are named, so that the compiler asks for a decision about a new one. If an acquire has to carry
        // it out, it concerns grants (`is_as_asked_for`) and `SET NX` (`may_be_set_nx`) too.
        let LockOptions {
            renew,
            min_hold,
            max_hold,
            max_renewals,
            lease: _,
            fenced: _,
            retry: _,
            unavailable_after: _,
            holder_name: _,
            take_over_keys_without_ttl: _,
            cancel: _,
            label: _,
        } = self;
        *renew && min_hold.is_zero() && max_hold.is_none() && max_renewals.is_none()
    }

    /// True if threads can share one lease: no setting is counted from the acquisition, and none names the holder.
    pub(crate) fn is_plain(&self) -> bool {
        self.can_change_hands() && self.holder_name.is_none()
    }

    /// Checks the rules between the settings of a lock and those of its client. A call of the lock does it, not the
    /// setter: two settings can contradict each other until a third one is made.
    pub(crate) fn check(&self, settings: &ClientOptions) -> Result<(), Error> {
        check_lease("lease", self.lease, settings)?;
        if self.min_hold > self.lease {
            return Err(Error::config(format!(
                "min_hold = {:?} is longer than lease = {:?}; a minimum hold must fit into the lease",
                self.min_hold, self.lease
            )));
        }
        if let Some(max) = self.max_hold {
            check_lease("max_hold", max, settings)?;
            if self.min_hold > max {
                return Err(Error::config(format!(
                    "min_hold = {:?} is longer than max_hold = {max:?}; a minimum hold must fit into the maximum hold",
                    self.min_hold
                )));
            }
        }
        if let Some(id) = &self.holder_name {
            crate::token::check_holder_name(id)?;
        }
        self.retry.check()
    }
}

/// Returns an error unless the value of this setting is within the limits.
pub(crate) fn check_within<T: PartialOrd + fmt::Debug>(
    what: &str,
    value: &T,
    limits: RangeInclusive<T>,
) -> Result<(), Error> {
    if limits.contains(value) {
        return Ok(());
    }
    let (least, most) = limits.into_inner();
    Err(Error::config(format!("{what} = {value:?} is outside {least:?} to {most:?}")))
}

/// Returns an error unless the lease is within the limits and longer than a round can take from it.
pub(crate) fn check_lease(what: &str, lease: Duration, settings: &ClientOptions) -> Result<(), Error> {
    if what == "lease" && lease > MAX_LEASE || lease < MIN_LEASE {
        return Err(Error::config(format!("{what} = {lease:?} is outside {MIN_LEASE:?} to {MAX_LEASE:?}")));
    }
    let spent = drift(lease).saturating_add(settings.node_timeout).saturating_add(MIN_VALIDITY);
    if lease <= spent {
        return Err(Error::config(format!(
            "{what} = {lease:?} is too short; it must be longer than clock drift {:?} + node_timeout {:?} + \
             {MIN_VALIDITY:?} = {spent:?}; use a longer lease or a shorter node_timeout",
            drift(lease),
            settings.node_timeout
        )));
    }
    Ok(())
}

/// The pauses between attempts to acquire a lock if no message can notify a waiter that the lock is free. That is so if
/// a program of another library holds it, if servers cannot be reached, or if the number of attempts is limited
/// ([`max_attempts`](Retry::max_attempts)).
///
/// The default pauses grow from 2 ms to 100 ms, and half of each pause is random. With shorter pauses, a waiter finds a
/// free lock sooner, and the server has more commands to execute. The random part, the jitter, keeps processes from
/// making their attempts at the same moments again and again.
///
/// ```
/// use redlock_sync::Retry;
/// use std::time::Duration;
///
/// let steady = Retry::every(Duration::from_millis(20));
/// let growing = Retry::growing(Duration::from_millis(5), Duration::from_secs(1)).jitter(0.3);
/// let once_more = Retry::every(Duration::from_millis(50)).max_attempts(2);
/// # let _ = (steady, growing, once_more);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Retry {
    first: Duration,
    last: Duration,
    jitter: f64,
    pub(crate) max_attempts: Option<u32>,
}

/// The shortest pause. With a shorter one, polling would be a busy loop.
const MIN_PAUSE: Duration = Duration::from_micros(500);

impl Retry {
    /// Makes pauses of this length, half of which is random unless [`jitter`](Retry::jitter) sets another part. A pause
    /// is never shorter than half a millisecond, even if this is zero.
    ///
    /// ```
    /// use redlock_sync::Retry;
    /// use std::time::Duration;
    /// let retry = Retry::every(Duration::from_millis(20));
    /// # let _ = retry;
    /// ```
    #[must_use]
    pub fn every(interval: Duration) -> Retry {
        Retry::growing(interval, interval)
    }

    /// Makes pauses that grow. The first pause is `first`, and each later pause is longer by half, up to `last`. If
    /// `first` is longer than `last`, the first use of the lock returns [`Config`](Error::Config).
    ///
    /// ```
    /// use redlock_sync::Retry;
    /// use std::time::Duration;
    /// let retry = Retry::growing(Duration::from_millis(5), Duration::from_secs(1));
    /// # let _ = retry;
    /// ```
    #[must_use]
    pub fn growing(first: Duration, last: Duration) -> Retry {
        Retry { first, last, jitter: 0.5, max_attempts: None }
    }

    /// Sets the part of each pause that is random, 0.0 to 1.0; default 0.5. With a larger part, attempts of different
    /// processes are less often at the same moment. With a smaller part, pauses are closer to their set length. With
    /// 0.0, processes that have split the votes of several nodes between them split them again.
    ///
    /// ```
    /// use redlock_sync::Retry;
    /// use std::time::Duration;
    /// let retry = Retry::every(Duration::from_millis(20)).jitter(0.2);
    /// # let _ = retry;
    /// ```
    #[must_use]
    pub fn jitter(mut self, part: f64) -> Retry {
        self.jitter = part;
        self
    }

    /// Lets a call give up with [`Busy`](Error::Busy) after this many attempts, even `lock()`. Default: no limit.
    ///
    /// Such a call does not wait in the queue on the servers. While other processes with this library wait there, the
    /// lock goes to them, and each attempt finds it taken. If several processes want the lock, limit the time instead
    /// (`try_lock_for`).
    ///
    /// ```
    /// # let server = redlock_tests::Server::for_sample();
    /// # let url = server.url();
    /// use redlock_sync::{Redlock, Retry};
    /// use std::time::Duration;
    /// let locks = Redlock::open(&url)?;
    /// let _held = locks.mutex("order:42").lock()?;
    /// let twice = Retry::every(Duration::from_millis(5)).max_attempts(2);
    /// let other_thread = std::thread::spawn(move || locks.mutex("order:42").retry(twice).lock().unwrap_err().is_busy());
    /// assert!(other_thread.join().unwrap());
    /// # Ok::<(), redlock_sync::Error>(())
    /// ```
    #[must_use]
    pub fn max_attempts(mut self, attempts: u32) -> Retry {
        self.max_attempts = Some(attempts);
        self
    }

    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.first > self.last {
            return Err(Error::config(format!(
                "retry interval grows from {:?} to {:?}: the first must not be longer than the last",
                self.first, self.last
            )));
        }
        if !(0.0..=1.0).contains(&self.jitter) {
            return Err(Error::config(format!("retry jitter = {} is outside 0.0 to 1.0", self.jitter)));
        }
        if self.max_attempts == Some(0) {
            return Err(Error::config("max_attempts = 0 would never try; use 1 or more, or call try_lock"));
        }
        Ok(())
    }

    /// True if no attempt may follow the first `made`.
    pub(crate) fn is_exhausted(&self, made: u32) -> bool {
        self.max_attempts.is_some_and(|max| made >= max)
    }

    /// How long the attempts take at most, if they are counted: the sum of the pauses between them.
    pub(crate) fn total_time(&self) -> Option<Duration> {
        let pauses = self.max_attempts?.saturating_sub(1);
        // After sixty pauses the length no longer grows.
        let growing = pauses.min(60);
        let grown: Duration =
            (1..=growing).map(|made| self.pause(made, 1.0)).fold(Duration::ZERO, Duration::saturating_add);
        Some(grown.saturating_add(self.pause(61, 1.0).saturating_mul(pauses - growing)))
    }

    pub(crate) fn longest_pause(&self) -> Duration {
        self.last.max(MIN_PAUSE)
    }

    /// The pause after attempt number `made` (from 1); `random` is drawn from 0.0 to 1.0.
    pub(crate) fn pause(&self, made: u32, random: f64) -> Duration {
        let growth = 1.5_f64.powi(i32::try_from(made.saturating_sub(1).min(60)).unwrap_or(60));
        let full = (self.first.as_secs_f64() * growth).min(self.last.as_secs_f64());
        let jitter = self.jitter.clamp(0.0, 1.0);
        let seconds = full * (1.0 - jitter + jitter * random);
        Duration::try_from_secs_f64(seconds).unwrap_or(self.last).max(MIN_PAUSE)
    }
}

impl Default for Retry {
    fn default() -> Retry {
        Retry::growing(Duration::from_millis(2), Duration::from_millis(100))
    }
}

impl fmt::Display for Retry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} to {:?}, jitter {}", self.first, self.last, self.jitter)?;
        self.max_attempts.map_or(Ok(()), |n| write!(f, ", at most {n} attempts"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn pauses_grow_and_stay_in_range() {
        let retry = Retry::growing(2 * MS, 100 * MS);
        assert_eq!(retry.pause(1, 1.0), 2 * MS);
        assert_eq!(retry.pause(2, 1.0), 3 * MS);
        assert_eq!(retry.pause(1000, 1.0), 100 * MS);
        assert_eq!(retry.pause(1000, 0.0), 50 * MS);
        assert_eq!(Retry::every(Duration::ZERO).pause(9, 0.0), MIN_PAUSE);
        assert!(Retry::every(Duration::MAX).pause(u32::MAX, 1.0) > MAX_LEASE);
    }

    #[test]
    fn counted_attempts_take_a_known_time() {
        assert_eq!(Retry::every(MS).total_time(), None);
        assert_eq!(Retry::every(5 * MS).max_attempts(1).total_time(), Some(Duration::ZERO));
        assert_eq!(Retry::every(5 * MS).max_attempts(3).total_time(), Some(10 * MS));
        assert_eq!(Retry::every(5 * MS).max_attempts(1001).total_time(), Some(5000 * MS));
        assert!(Retry::every(Duration::MAX).max_attempts(u32::MAX).total_time() > Some(MAX_LEASE));
    }

    #[test]
    fn contradictions_are_refused() {
        assert!(Retry::growing(2 * MS, MS).check().is_err());
        assert!(Retry::every(MS).jitter(f64::NAN).check().is_err());
        assert!(Retry::every(MS).max_attempts(0).check().is_err());
        assert!(Retry::every(Duration::ZERO).check().is_ok());
    }

    #[test]
    fn a_lease_must_outlast_a_round() {
        let settings = ClientOptions::default();
        for bad in [Duration::ZERO, 9 * MS, 260 * MS, MAX_LEASE + MS, Duration::MAX] {
            let options = LockOptions { lease: bad, ..LockOptions::default() };
            assert!(options.check(&settings).is_err(), "{bad:?}");
        }
        for good in [300 * MS, MAX_LEASE] {
            let options = LockOptions { lease: good, ..LockOptions::default() };
            assert!(options.check(&settings).is_ok(), "{good:?}");
        }
        let options = LockOptions { min_hold: Duration::from_secs(31), ..LockOptions::default() };
        assert!(options.check(&settings).is_err());
        let held = |min_hold| LockOptions { min_hold, max_hold: Some(600 * MS), ..LockOptions::default() };
        assert!(held(601 * MS).check(&settings).unwrap_err().to_string().contains("max_hold"));
        assert!(held(600 * MS).check(&settings).is_ok());
    }
}
