//! What observers are told of a lease, and how long it took and lasts.

use std::sync::Arc;
use std::time::Duration;

use super::Core;
use crate::clock::Tick;
use crate::error::Error;
use crate::observer::{Event, ObservedLock};

impl Core {
    fn observed(&self) -> ObservedLock<'_> {
        self.options.observed(self.key.as_str(), self.protocol.kind())
    }

    /// A call that began then has got this lock. From now on observers are told of it.
    pub(crate) fn acquired(self: &Arc<Self>, wanted: Tick) {
        let observers = &self.quorum.limits.observers;
        if self.wanted.set(wanted).is_err() || !observers.are_there() {
            return;
        }
        observers.tell(&Event::Acquired { lock: self.observed(), waited: self.waited() });
        let lease = Arc::downgrade(self);
        self.on_lost(Box::new(move |error| {
            if let (Some(core), Some(reason)) = (lease.upgrade(), error.lost_reason()) {
                let (lock, held) = (core.observed(), core.held_for());
                core.quorum.limits.observers.tell(&Event::Lost { lock, held, reason });
            }
        }));
    }

    pub(in crate::lease) fn waited(&self) -> Duration {
        self.wanted.get().map_or(Duration::ZERO, |wanted| self.taken.since(*wanted))
    }

    pub(in crate::lease) fn held_for(&self) -> Duration {
        self.quorum.now().since(self.taken)
    }

    /// Its guard gave it up, beginning then. Of a loss observers were told when it was noticed.
    pub(in crate::lease) fn tell_end(&self, began: Tick, result: &Result<(), Error>) {
        let observers = &self.quorum.limits.observers;
        let is_over = !matches!(result, Err(Error::Lost { .. } | Error::Closed));
        if observers.are_there() && is_over && self.wanted.get().is_some() {
            let (lock, held, confirmed) = (self.observed(), began.since(self.taken), result.is_ok());
            observers.tell(&Event::Released { lock, held, confirmed });
        }
    }

    /// Called without `io`: an observer takes as long as it takes.
    pub(super) fn tell_renewal(&self, confirmed: bool) {
        let observers = &self.quorum.limits.observers;
        if observers.are_there() && self.wanted.get().is_some() {
            let (lock, remaining) = (self.observed(), self.remaining());
            observers.tell(&if confirmed {
                Event::Renewed { lock, remaining }
            } else {
                Event::RenewalFailed { lock, remaining }
            });
        }
    }
}
