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
    /// Each step on a mutex is one of the models in `tests/proof`.
    Models,
}

static LEFT_OUT: LazyLock<String> = LazyLock::new(|| std::env::var("REDLOCK_SIM_WITHOUT").unwrap_or_default());

impl Rule {
    fn is_left_out(self) -> bool {
        LEFT_OUT.split(',').any(|name| name.eq_ignore_ascii_case(&format!("{self:?}")))
    }
}

/// The models are the only rule.
static ONLY_MODELS: LazyLock<bool> =
    LazyLock::new(|| std::env::var("REDLOCK_SIM_ONLY").is_ok_and(|only| only == "models"));

impl World {
    /// Records a violation. Only the first one counts.
    pub(super) fn violate(&mut self, what: String) {
        self.log(|_| format!("VIOLATION: {what}"));
        if !*ONLY_MODELS {
            self.violation.get_or_insert(what);
        }
    }

    /// Like [`violate`](World::violate), for a rule that can be left out.
    pub(super) fn breaks(&mut self, rule: Rule, what: String) {
        if !rule.is_left_out() {
            self.violate(what);
        }
    }

    /// Records a step that the models do not have.
    pub(super) fn refuse(&mut self, what: &str) {
        let what = format!("refused by the model: {what}");
        if *ONLY_MODELS {
            self.log(|_| format!("VIOLATION: {what}"));
            self.violation.get_or_insert(what);
        } else {
            self.breaks(Rule::Models, what);
        }
    }
}
