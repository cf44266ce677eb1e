//! The settings of one hold, drawn at random. All clients use different settings on the same locks. The settings of one
//! hold must not affect another hold.

use std::time::Duration;

use redlock_sync::{MultiLock, Mutex, ReentrantMutex, Retry, RwLock, Semaphore};

use super::job::nanos;
use crate::event::Wants;

#[derive(Debug, Clone)]
pub(super) struct Terms {
    pub(super) lease: Duration,
    renew: bool,
    max_renewals: Option<u32>,
    max_hold: Option<Duration>,
    min_hold: Duration,
    holder_name: Option<&'static str>,
    fenced: bool,
    retry: Option<Retry>,
}

/// Applies the settings to a lock. All kinds of lock have the same setters, but no common trait.
macro_rules! set {
    ($terms:ident, $lock:ident) => {{
        let lock = $lock.min_hold($terms.min_hold);
        set!($terms, lock, but no minimum)
    }};
    ($terms:ident, $lock:ident, but no minimum) => {{
        let mut lock = $lock.lease($terms.lease).renew($terms.renew).fenced($terms.fenced);
        if let Some(times) = $terms.max_renewals {
            lock = lock.max_renewals(times);
        }
        if let Some(hold) = $terms.max_hold {
            lock = lock.max_hold(hold);
        }
        if let Some(holder_name) = $terms.holder_name {
            lock = lock.holder_name(holder_name);
        }
        if let Some(retry) = &$terms.retry {
            lock = lock.retry(retry.clone());
        }
        lock
    }};
}

impl Terms {
    pub(super) fn plain(lease: Duration) -> Self {
        Terms {
            lease,
            renew: true,
            max_renewals: None,
            max_hold: None,
            min_hold: Duration::ZERO,
            holder_name: None,
            fenced: false,
            retry: None,
        }
    }

    /// Settings of a hold that ends with its lease.
    pub(super) fn fixed(lease: Duration) -> Self {
        Terms { renew: false, ..Terms::plain(lease) }
    }

    /// Random settings, most of them the defaults.
    pub(super) fn any(lease: Duration, random: &mut fastrand::Rng) -> Self {
        let mut terms = match random.u8(..100) {
            0..70 => Terms::plain(lease),
            70..94 => Terms::bounded(lease, random),
            94..98 => Terms { min_hold: lease / 4, ..Terms::plain(lease) },
            _ => Terms { min_hold: lease, ..Terms::plain(lease) },
        };
        if random.u8(..10) == 0 {
            terms.holder_name = Some("one-for-all");
        }
        // The acquire, or the grant, then returns a fencing token.
        terms.fenced = random.bool();
        if random.u8(..6) == 0 {
            terms.retry = Some(retry(random));
        }
        terms
    }

    /// Settings of a hold that ends after a time without an unlock.
    pub(super) fn bounded(lease: Duration, random: &mut fastrand::Rng) -> Self {
        let plain = Terms::plain(lease);
        match random.u8(..3) {
            0 => Terms { renew: false, ..plain },
            1 => Terms { max_renewals: Some(random.u32(..3)), ..plain },
            // The maximum hold can be shorter or longer than the lease.
            _ => Terms { max_hold: Some(lease.mul_f64(0.7 + random.f64() * 1.5)), ..plain },
        }
    }

    pub(super) fn mutex(&self, lock: Mutex) -> Mutex {
        set!(self, lock)
    }

    pub(super) fn reentrant(&self, lock: ReentrantMutex) -> ReentrantMutex {
        set!(self, lock)
    }

    pub(super) fn rw_lock(&self, lock: RwLock) -> RwLock {
        set!(self, lock)
    }

    pub(super) fn semaphore(&self, lock: Semaphore) -> Semaphore {
        set!(self, lock)
    }

    /// Applies the settings to a multi-lock, which has no minimum hold.
    pub(super) fn several(&self, lock: MultiLock) -> MultiLock {
        set!(self, lock, but no minimum)
    }

    pub(super) fn wants(&self) -> Wants {
        let most = self.max_renewals.map_or(u64::MAX, u64::from);
        Wants {
            lease: nanos(self.lease),
            renewals: if self.renew { most } else { 0 },
            max_hold: self.max_hold.map_or(u64::MAX, nanos),
            min_hold: nanos(self.min_hold),
        }
    }
}

fn retry(random: &mut fastrand::Rng) -> Retry {
    let millis = Duration::from_millis;
    match random.u8(..4) {
        0 => Retry::every(millis(5)),
        1 => Retry::growing(millis(1), millis(50)).jitter(1.0),
        2 => Retry::every(millis(20)).jitter(0.0),
        _ => Retry::every(millis(10)).max_attempts(random.u32(1..40)),
    }
}
