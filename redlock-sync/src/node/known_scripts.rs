//! What a client knows of the scripts at one server: which of them the server has, and which the user may run.
//!
//! Permissions can depend on the key. So the first call of each kind of lock checks them, and not the login.

use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::protocol::script::Script;

#[derive(Debug, Default)]
pub(super) struct KnownScripts {
    /// The scripts that the server has executed since it started.
    loaded: AtomicU64,
    /// The run id of the server, which it chose when it started.
    run_id: Mutex<String>,
    /// Incremented when a call fails for lack of permission. All earlier checks of permissions are void then.
    ///
    /// `failed` raises it after it has cleared `permitted`. Pairs with `KnownScripts::needs_check`: for a thread that
    /// reads the new number, no earlier check is valid. A check that is recorded late has the old number.
    refusals: AtomicU64,
    /// The checks of the user's permissions that have passed (`Script::needs`), each with the number of refusals at
    /// that time.
    permitted: Mutex<Vec<(&'static str, u64)>>,
}

/// A call that checks the user's permissions. Holds the number of refusals when it was sent.
#[derive(Clone, Copy)]
pub(super) struct PermissionCheck(u64);

impl KnownScripts {
    /// A connection has logged in to the server with this run id. A server that was restarted, or another one, has none
    /// of the scripts. A server without an id may have been restarted.
    ///
    /// It comes before the first call on that connection, so such a call finds the scripts forgotten. A reply that is
    /// recorded late can name a script again. Then the server answers NOSCRIPT.
    pub(super) fn logged_in(&self, run_id: &str) {
        let mut known = self.run_id.lock();
        if run_id.is_empty() || *known != run_id {
            run_id.clone_into(&mut known);
            self.loaded.store(0, Ordering::Release);
            self.permitted.lock().clear();
        }
    }

    /// True if the server has the script.
    pub(super) fn has(&self, script: &Script) -> bool {
        self.loaded.load(Ordering::Acquire) & script.bit != 0
    }

    /// The server lacks the script. If it had it before, it has lost the others too.
    pub(super) fn lacks(&self, script: &Script) {
        if self.has(script) {
            self.loaded.store(0, Ordering::Release);
        }
    }

    /// `Some` if the call must first check the user's permissions. Scripts that set keys do so, until one check of the
    /// same kind has passed. So nothing is set before the check. The check is part of the call, and not of the login:
    /// permissions can depend on the key.
    pub(super) fn needs_check(&self, script: &Script) -> Option<PermissionCheck> {
        let needs = script.needs?;
        let refusals = self.refusals.load(Ordering::Acquire);
        let is_known = self.permitted.lock().contains(&(needs, refusals));
        (!is_known).then_some(PermissionCheck(refusals))
    }

    /// The server has executed the script. Returns true for the first time.
    pub(super) fn executed(&self, script: &Script, check: Option<PermissionCheck>) -> bool {
        if let (Some(PermissionCheck(refusals)), Some(needs)) = (check, script.needs) {
            let mut permitted = self.permitted.lock();
            permitted.retain(|(known, _)| *known != needs);
            permitted.push((needs, refusals));
        }
        !self.has(script) && self.loaded.fetch_or(script.bit, Ordering::AcqRel) & script.bit == 0
    }

    /// A call failed. `lacks_permission`: because the user may not run a command.
    pub(super) fn failed(&self, lacks_permission: bool) {
        self.permitted.lock().clear();
        self.refusals.fetch_add(u64::from(lacks_permission), Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::script::{ACQUIRE, RELEASE};

    #[test]
    fn scripts_are_known_until_the_server_is_another_one() {
        let known = KnownScripts::default();
        known.logged_in("a");
        assert!(known.executed(&ACQUIRE, None) && !known.executed(&ACQUIRE, None));
        known.logged_in("a");
        assert_eq!((known.has(&ACQUIRE), known.has(&RELEASE)), (true, false));
        known.logged_in("b");
        assert!(!known.has(&ACQUIRE));
        known.executed(&ACQUIRE, None);
        known.lacks(&RELEASE);
        assert!(known.has(&ACQUIRE), "it never had the other one");
        known.lacks(&ACQUIRE);
        assert!(!known.has(&ACQUIRE));
    }

    #[test]
    fn a_server_that_hides_its_id_may_be_another_one() {
        let known = KnownScripts::default();
        known.executed(&ACQUIRE, None);
        known.logged_in("");
        assert!(!known.has(&ACQUIRE));
    }

    #[test]
    fn a_check_that_was_sent_before_a_refusal_does_not_count() {
        let known = KnownScripts::default();
        let check = known.needs_check(&ACQUIRE);
        assert!(check.is_some() && known.needs_check(&RELEASE).is_none());
        known.failed(true);
        known.executed(&ACQUIRE, check);
        let check = known.needs_check(&ACQUIRE);
        assert!(check.is_some());
        known.executed(&ACQUIRE, check);
        assert!(known.needs_check(&ACQUIRE).is_none());
    }
}
