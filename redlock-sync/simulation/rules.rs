//! Rules that a run can leave out, so that it shows what the other rules find.

use std::sync::LazyLock;

use super::world::World;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rule {
    /// When a client acquires a lock, a majority of the nodes has its token, and no call of another client removes it.
    Support,
    /// A token is used for only one attempt or one grant, and an id for only one wait.
    Ids,
    /// A hold lasts as long as its own settings say.
    Settings,
    /// A released lock becomes free after a while.
    Releases,
    /// A lock that a failed attempt took becomes free after a while.
    Attempts,
    /// No single node keeps the token of a released lock or of a failed attempt.
    Nodes,
}

static LEFT_OUT: LazyLock<String> = LazyLock::new(|| std::env::var("REDLOCK_SIM_WITHOUT").unwrap_or_default());

impl Rule {
    fn is_left_out(self) -> bool {
        LEFT_OUT.split(',').any(|name| name.eq_ignore_ascii_case(&format!("{self:?}")))
    }
}

impl World {
    /// Like [`violate`](World::violate), for a rule that can be left out.
    pub(super) fn breaks(&mut self, rule: Rule, what: String) {
        if !rule.is_left_out() {
            self.violate(what);
        }
    }
}
