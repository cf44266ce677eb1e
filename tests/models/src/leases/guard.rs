//! A guard, as a thread has it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use shuttle::rand::{Rng, thread_rng};
use shuttle::thread::{self, JoinHandle};

use super::{Rig, Watch};
use crate::error::Error;
use crate::lease::Lease;
use crate::options::RENEW_DIVISOR;
use crate::world;

/// A guard.
pub(crate) struct Guard {
    pub(super) rig: Rig,
    pub(super) lease: Lease,
    pub(super) watch: Arc<Watch>,
    /// The rounds of the token until the lock was acquired, and the renewals that this guard has waited for.
    pub(super) rounds: usize,
}

impl Guard {
    pub(crate) fn token(&self) -> &str {
        self.lease.inner().id.as_str()
    }

    /// Lets time pass until the next renewal is due, and no further. Waits until it was sent.
    pub(crate) fn renewed(&mut self) {
        let (server, token) = (self.rig.server(), self.token());
        let last = server.rounds(token)[self.rounds - 1];
        world::pass_until(last.after(self.rig.options.lease / RENEW_DIVISOR));
        server.until_rounds(token, self.rounds + 1);
        self.rounds += 1;
    }

    /// Relies on the lock for a moment. No other thread does so at that time.
    pub(super) fn hold(&self) {
        let was_held = std::mem::replace(&mut *self.rig.is_held.lock(), true);
        assert!(!was_held, "two hold the lock");
        *self.rig.is_held.lock() = false;
    }

    pub(crate) fn unlock(self) -> Result<(), Error> {
        let outcome = self.lease.release();
        self.watch.is_orderly.store(outcome.is_ok(), Ordering::SeqCst);
        self.watch.over();
        match &outcome {
            Ok(()) | Err(Error::Unconfirmed { .. }) => {}
            Err(error) => assert!(error.is_lost(), "{error}"),
        }
        outcome
    }

    pub(super) fn drop(self) {
        let Guard { lease, watch, .. } = self;
        drop(lease);
        watch.is_orderly.store(watch.told() == 0 && watch.is_released(), Ordering::SeqCst);
        watch.over();
    }

    /// Ends the guard in one of the two ways.
    pub(crate) fn end(self) {
        if thread_rng().r#gen() { self.drop() } else { _ = self.unlock() }
    }

    pub(super) fn watch(&self) -> JoinHandle<()> {
        let watch = Arc::clone(&self.watch);
        thread::spawn(move || {
            for _ in 0..3 {
                watch.check();
            }
        })
    }
}
