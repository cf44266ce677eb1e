//! The circuit breaker of one server. A server that failed is left out until it answers again, on any connection. So a
//! dead server costs one timeout, not one for each call.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::{Failure, FailureKind};

/// Closed while the server answers.
#[derive(Debug, Default)]
pub(super) struct Breaker {
    /// True during an outage. While the server answers, a check costs one load.
    ///
    /// `trip` and `recover` store it while `outage` is locked. Pairs with `Breaker::is_open`: a thread that reads true
    /// locks `outage` after `trip` did. Otherwise `Breaker::outage` could find no failure during an outage.
    open: AtomicBool,
    /// The failure to report meanwhile.
    outage: Mutex<Option<Failure>>,
}

impl Breaker {
    /// Opens the breaker.
    pub(super) fn trip(&self, cause: &Failure) {
        let mut outage = self.outage.lock();
        let message = format!("left out since it failed: {}", cause.message);
        *outage = Some(Failure::unsent(FailureKind::LeftOut, message));
        self.open.store(true, Ordering::Release);
    }

    /// Closes the breaker after the server answered. Returns true if it was open.
    pub(super) fn recover(&self) -> bool {
        if !self.is_open() {
            return false;
        }
        let mut outage = self.outage.lock();
        self.open.store(false, Ordering::Release);
        outage.take().is_some()
    }

    /// True if the server is left out. Costs one load.
    pub(super) fn is_open(&self) -> bool {
        self.open.load(Ordering::Acquire)
    }

    /// The failure to report while the server is left out.
    pub(super) fn outage(&self) -> Option<Failure> {
        if self.is_open() { self.outage.lock().clone() } else { None }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by a panic")]
mod tests {
    use super::*;

    #[test]
    fn opens_and_closes() {
        let breaker = Breaker::default();
        assert_eq!(breaker.outage(), None);
        breaker.trip(&Failure::unsent(FailureKind::Unreachable, "connection refused"));
        let outage = breaker.outage().unwrap();
        assert_eq!(
            (outage.kind, outage.message.as_str()),
            (FailureKind::LeftOut, "left out since it failed: connection refused")
        );
        assert!(breaker.recover() && !breaker.recover());
        assert_eq!(breaker.outage(), None);
    }
}
