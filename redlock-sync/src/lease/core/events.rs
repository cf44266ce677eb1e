//! The events of a lease for observers, and its `Debug`.

use std::fmt;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::Core;
use crate::error::Error;
use crate::lease::state::LeaseState;
use crate::observer::{Event, ObservedLock};

impl Core {
    pub(crate) fn observed(&self) -> ObservedLock<'_> {
        self.options.observed(self.key.as_str(), self.protocol().shown())
    }

    /// Reports a release after the lock was `held` for that time, if observers were notified of the acquisition. A loss
    /// is reported when it is noticed, not here.
    pub(in crate::lease) fn tell_end(&self, held: Option<Duration>, result: &Result<(), Error>) {
        if let Some(held) = held
            && !matches!(result, Err(Error::Lost { .. } | Error::Closed))
        {
            let (lock, confirmed) = (self.observed(), result.is_ok());
            self.quorum.limits.observers.notify(&Event::Released { lock, held, confirmed });
        }
    }

    /// Called without `io`, since an observer may take any time.
    pub(super) fn tell_renewal(&self, outcome: &Result<(), Error>) {
        let observers = &self.quorum.limits.observers;
        if observers.are_there() && self.is_observed.load(Ordering::Relaxed) {
            let (lock, remaining) = (self.observed(), self.remaining());
            observers.notify(&match outcome {
                Ok(()) => Event::Renewed { lock, remaining },
                Err(error) => Event::RenewalFailed { lock, remaining, error },
            });
        }
    }
}

impl fmt::Debug for Core {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = if self.process.is_forked_child() { LeaseState::Released } else { self.state.lock().now };
        f.debug_struct("Lease")
            .field("key", &self.key.as_str())
            .field("id", &self.id)
            .field("state", &state)
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}
