//! The circuit breaker of one node: a node that just failed is left out and probed in the background, so that a dead node costs one
//! time-out once and not one per call.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use super::{Failure, FailureKind};

/// When the first probe goes out after a failure.
pub(super) const FIRST_PROBE: Duration = Duration::from_millis(20);
const LAST_PROBE: Duration = Duration::from_millis(250);

/// The pause after a probe that failed.
pub(super) fn next_pause(pause: Duration) -> Duration {
    pause.saturating_mul(2).min(LAST_PROBE)
}

/// Closed while the node is well.
#[derive(Debug, Default)]
pub(super) struct Breaker {
    /// Set while `state` holds an outage, so that the common case costs one load.
    open: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    outage: Option<Failure>,
    /// A probe is planned or under way; there is never a second one.
    probing: bool,
}

impl Breaker {
    /// Opens. True if the caller has to start probing.
    pub(super) fn trip(&self, failure: &Failure) -> bool {
        let mut state = self.state.lock();
        state.outage = Some(failure.clone());
        self.open.store(true, Ordering::Release);
        !std::mem::replace(&mut state.probing, true)
    }

    /// Closes: the node answered. True if it was open.
    pub(super) fn recover(&self) -> bool {
        if !self.is_open() {
            return false;
        }
        let mut state = self.state.lock();
        self.open.store(false, Ordering::Release);
        state.outage.take().is_some()
    }

    /// True if the probe is needed no more; then the next failure starts a new one.
    pub(super) fn probe_is_done(&self) -> bool {
        let mut state = self.state.lock();
        state.probing = state.outage.is_some();
        !state.probing
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
        let state = self.state.lock();
        let cause = state.outage.as_ref()?;
        Some(Failure::unsent(FailureKind::LeftOut, format!("left out after: {}", cause.message)))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by a panic")]
mod tests {
    use super::*;

    #[test]
    fn opens_closes_and_probes_once() {
        let breaker = Breaker::default();
        assert_eq!(breaker.outage(), None);
        let failure = Failure::unsent(FailureKind::Unreachable, "connection refused");
        assert!(breaker.trip(&failure) && !breaker.trip(&failure));
        let outage = breaker.outage().unwrap();
        assert_eq!(
            (outage.kind, outage.message.as_str()),
            (FailureKind::LeftOut, "left out after: connection refused")
        );
        assert!(!breaker.probe_is_done());
        breaker.recover();
        assert_eq!(breaker.outage(), None);
        assert!(!breaker.trip(&failure));
        breaker.recover();
        assert!(breaker.probe_is_done() && breaker.trip(&failure));
    }

    #[test]
    fn pauses_double_up_to_a_bound() {
        assert_eq!(next_pause(FIRST_PROBE), 2 * FIRST_PROBE);
        assert_eq!(next_pause(LAST_PROBE), LAST_PROBE);
    }
}
