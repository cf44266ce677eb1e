//! The status of a server as it was logged last. The log has one line for each change of status, and none for each
//! call.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::clock::Tick;

/// The status that was logged last.
#[derive(Debug, Default)]
pub(super) struct ServerStatus {
    /// True while the status is not `Up`, so that an answered call costs one load.
    is_bad: AtomicBool,
    current: Mutex<Status>,
    /// When the first bad status of this period was reported.
    since: Mutex<Option<Tick>>,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum Status {
    #[default]
    Up,
    Down(Step),
    /// The server answers, but its configuration is wrong. The string is the first word of the cause.
    Unusable(Step, String),
}

/// The step that failed or succeeded. After a failure, the same step or a later one must succeed before the status is
/// `Up` again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Step {
    Connect,
    /// Any call. A server can accept connections and yet execute no call.
    Call,
    /// An acquire. Other calls can succeed while it fails, since some need fewer permissions.
    Acquire,
}

/// The change to log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum StatusChange {
    Down,
    Up,
    Unusable,
    Usable,
}

impl ServerStatus {
    pub(super) fn down(&self, step: Step) -> Option<StatusChange> {
        let mut current = self.current.lock();
        let is_new = !matches!(*current, Status::Down(_));
        // A failure to connect replaces a failed call: then the next connection suffices as proof.
        if is_new || step == Step::Connect {
            self.set(&mut current, Status::Down(step));
        }
        is_new.then_some(StatusChange::Down)
    }

    /// The same cause with other details, such as another slot of a cluster, is not a change.
    pub(super) fn unusable(&self, step: Step, cause: &str) -> Option<StatusChange> {
        let word = cause.split(' ').next().unwrap_or_default().to_owned();
        let new = Status::Unusable(step, word);
        let mut current = self.current.lock();
        if *current == new {
            return None;
        }
        self.set(&mut current, new);
        Some(StatusChange::Unusable)
    }

    pub(super) fn succeeded(&self, step: Step) -> Option<StatusChange> {
        if !self.is_bad.load(Ordering::Acquire) {
            return None;
        }
        let mut current = self.current.lock();
        let change = match &*current {
            Status::Down(failed) if step >= *failed => StatusChange::Up,
            Status::Unusable(failed, _) if step >= *failed => StatusChange::Usable,
            _ => return None,
        };
        self.set(&mut current, Status::Up);
        Some(change)
    }

    /// How long the status has been bad. If the change is an improvement, the period ends.
    pub(super) fn lasts(&self, change: StatusChange, now: Tick) -> Duration {
        let mut since = self.since.lock();
        let first = *since.get_or_insert(now);
        if matches!(change, StatusChange::Up | StatusChange::Usable) {
            *since = None;
        }
        now.since(first)
    }

    fn set(&self, current: &mut Status, new: Status) {
        self.is_bad.store(new != Status::Up, Ordering::Release);
        *current = new;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_change_is_told_once() {
        let node = ServerStatus::default();
        assert_eq!(node.succeeded(Step::Connect), None);
        assert_eq!((node.down(Step::Connect), node.down(Step::Connect)), (Some(StatusChange::Down), None));
        assert_eq!((node.succeeded(Step::Connect), node.succeeded(Step::Acquire)), (Some(StatusChange::Up), None));
        let replica = "is a replica of a:1";
        assert_eq!(node.unusable(Step::Connect, replica), Some(StatusChange::Unusable));
        assert_eq!(node.unusable(Step::Connect, replica), None);
        assert_eq!(node.unusable(Step::Connect, "WRONGPASS invalid"), Some(StatusChange::Unusable));
        assert_eq!(node.down(Step::Connect), Some(StatusChange::Down));
        assert_eq!(node.unusable(Step::Connect, replica), Some(StatusChange::Unusable));
        assert_eq!(node.succeeded(Step::Connect), Some(StatusChange::Usable));
    }

    #[test]
    fn it_is_bad_from_the_first_cause_to_the_end_of_all() {
        let (node, second) = (ServerStatus::default(), Duration::from_secs(1));
        let [first, later, last] = [0, 1, 3].map(|n| Tick::ZERO.after(second * n));
        assert_eq!(node.lasts(StatusChange::Down, first), Duration::ZERO);
        assert_eq!(node.lasts(StatusChange::Unusable, later), second);
        assert_eq!(node.lasts(StatusChange::Usable, last), second * 3);
        assert_eq!(node.lasts(StatusChange::Down, last), Duration::ZERO);
    }

    #[test]
    fn connections_alone_do_not_make_a_node_well_that_executes_no_calls() {
        let node = ServerStatus::default();
        for _ in 0..3 {
            let first = node.down(Step::Call);
            assert_eq!((node.succeeded(Step::Connect), first.is_some()), (None, first.is_some()));
        }
        assert_eq!(node.down(Step::Call), None);
        assert_eq!(node.succeeded(Step::Call), Some(StatusChange::Up));
        assert_eq!(node.unusable(Step::Acquire, "NOPERM this user may not run TIME"), Some(StatusChange::Unusable));
        assert_eq!((node.succeeded(Step::Connect), node.succeeded(Step::Call)), (None, None));
        assert_eq!(node.unusable(Step::Acquire, "NOPERM this user may not run DEL"), None);
        assert_eq!(node.succeeded(Step::Acquire), Some(StatusChange::Usable));
    }

    #[test]
    fn a_server_that_goes_away_as_well_is_back_with_the_next_connection() {
        let node = ServerStatus::default();
        assert_eq!((node.down(Step::Call), node.down(Step::Connect)), (Some(StatusChange::Down), None));
        assert_eq!(node.succeeded(Step::Connect), Some(StatusChange::Up));
    }
}
