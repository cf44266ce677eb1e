//! The circuit breaker of one server: a server that just failed is left out until it answers, on whatever connection, so that a dead server costs one
//! time-out once and not one per call.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

use super::{Failure, FailureKind};

/// Closed while the node is well.
#[derive(Debug, Default)]
pub(super) struct Breaker {
    /// Set while there is an outage, so that the common case costs one load.
    open: AtomicBool,
    outage: Mutex<Option<Failure>>,
}

impl Breaker {
    /// Opens.
    pub(super) fn trip(&self, failure: &Failure) {
        let mut outage = self.outage.lock();
        *outage = Some(failure.clone());
        self.open.store(true, Ordering::Release);
    }

    /// Closes: the node answered. True if it was open.
    pub(super) fn recover(&self) -> bool {
        if !self.is_open() {
            return false;
        }
        let mut outage = self.outage.lock();
        self.open.store(false, Ordering::Release);
        outage.take().is_some()
    }

    /// The node is left out. Costs nothing.
    pub(super) fn is_open(&self) -> bool {
        self.open.load(Ordering::Acquire)
    }

    /// The failure to report for a node that is left out.
    pub(super) fn outage(&self) -> Option<Failure> {
        if !self.is_open() {
            return None;
        }
        let outage = self.outage.lock();
        let cause = outage.as_ref()?;
        Some(Failure::unsent(FailureKind::LeftOut, format!("left out after: {}", cause.message)))
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
            (FailureKind::LeftOut, "left out after: connection refused")
        );
        assert!(breaker.recover() && !breaker.recover());
        assert_eq!(breaker.outage(), None);
    }
}
