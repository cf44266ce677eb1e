//! The status of a server as it was logged last. The log has one line for each change of status, and none for each
//! call.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::clock::Tick;
use crate::handler::caught;

/// The status that was logged last.
#[derive(Debug, Default)]
pub(super) struct ServerStatus {
    /// True while the status is not `Up`, so that an answered call costs one load.
    ///
    /// `set` stores it while `history` is locked. Pairs with `ServerStatus::succeeded`: a thread that reads true locks
    /// `history` after that. Otherwise it could find the former `Up`, and not report that the server is back.
    is_bad: AtomicBool,
    /// True while a change is unreported, so that a look costs one load. Stored while `history` is locked.
    has_news: AtomicBool,
    history: Mutex<History>,
}

#[derive(Debug, Default)]
struct History {
    current: Status,
    /// When the first bad status of this period was reported.
    bad_since: Option<Tick>,
    unreported: VecDeque<StatusChange>,
    /// A thread reports the changes, and takes each new one too.
    is_being_reported: bool,
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

/// A change to log, with its cause, or with the length of the bad period that ends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum StatusChange {
    Down(String),
    Up(Duration),
    Unusable(String),
    Usable(Duration),
}

impl ServerStatus {
    /// Records a failure. Returns true if there is a change to [`report`](ServerStatus::report).
    pub(super) fn down(&self, step: Step, cause: &str, now: Tick) -> bool {
        let mut history = self.history.lock();
        let is_new = !matches!(history.current, Status::Down(_));
        // A failure to connect replaces a failed call: then the next connection suffices as proof.
        if is_new || step == Step::Connect {
            let change = is_new.then(|| StatusChange::Down(cause.to_owned()));
            self.set(&mut history, Status::Down(step), change, now);
        }
        is_new
    }

    /// The same cause with other details, such as another slot of a cluster, is not a change.
    pub(super) fn unusable(&self, step: Step, cause: &str, now: Tick) -> bool {
        let word = cause.split(' ').next().unwrap_or_default().to_owned();
        let new = Status::Unusable(step, word);
        let mut history = self.history.lock();
        if history.current == new {
            return false;
        }
        self.set(&mut history, new, Some(StatusChange::Unusable(cause.to_owned())), now);
        true
    }

    pub(super) fn succeeded(&self, step: Step, now: impl FnOnce() -> Tick) -> bool {
        if !self.is_bad.load(Ordering::Acquire) {
            return false;
        }
        let mut history = self.history.lock();
        let (failed, ended): (_, fn(Duration) -> StatusChange) = match &history.current {
            Status::Down(failed) => (*failed, StatusChange::Up),
            Status::Unusable(failed, _) => (*failed, StatusChange::Usable),
            Status::Up => return false,
        };
        if step < failed {
            return false;
        }
        let now = now();
        let lasted = now.since(history.bad_since.unwrap_or(now));
        self.set(&mut history, Status::Up, Some(ended(lasted)), now);
        true
    }

    /// Calls `report` with each change, in the order in which they came. If another thread does that now, it takes the
    /// changes of this thread too. So `report` never runs under a lock, and its last call is for the current status.
    pub(super) fn report(&self, report: impl Fn(StatusChange)) {
        if std::mem::replace(&mut self.history.lock().is_being_reported, true) {
            return;
        }
        while let Some(change) = self.next_unreported() {
            // A logger that panics must not keep the later changes back.
            _ = caught(|| report(change));
        }
    }

    /// True if a change is not reported yet.
    pub(super) fn has_news(&self) -> bool {
        self.has_news.load(Ordering::Acquire)
    }

    fn next_unreported(&self) -> Option<StatusChange> {
        let mut history = self.history.lock();
        let next = history.unreported.pop_front();
        self.has_news.store(!history.unreported.is_empty(), Ordering::Release);
        history.is_being_reported = next.is_some();
        next
    }

    fn set(&self, history: &mut History, new: Status, change: Option<StatusChange>, now: Tick) {
        let is_bad = new != Status::Up;
        self.is_bad.store(is_bad, Ordering::Release);
        history.current = new;
        history.bad_since = is_bad.then(|| history.bad_since.unwrap_or(now));
        history.unreported.extend(change);
        self.has_news.store(!history.unreported.is_empty(), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    /// The kinds of the changes that are reported.
    fn reported(node: &ServerStatus) -> Vec<&'static str> {
        let reported = RefCell::new(Vec::new());
        node.report(|change| {
            reported.borrow_mut().push(match change {
                StatusChange::Down(_) => "down",
                StatusChange::Up(_) => "up",
                StatusChange::Unusable(_) => "unusable",
                StatusChange::Usable(_) => "usable",
            });
        });
        reported.into_inner()
    }

    fn down(node: &ServerStatus, step: Step) -> bool {
        node.down(step, "refused", Tick::ZERO)
    }

    fn unusable(node: &ServerStatus, step: Step, cause: &str) -> bool {
        node.unusable(step, cause, Tick::ZERO)
    }

    fn succeeded(node: &ServerStatus, step: Step) -> bool {
        node.succeeded(step, || Tick::ZERO)
    }

    #[test]
    fn each_change_is_reported_once() {
        let node = ServerStatus::default();
        assert!(!succeeded(&node, Step::Connect));
        assert_eq!((down(&node, Step::Connect), down(&node, Step::Connect)), (true, false));
        assert_eq!((succeeded(&node, Step::Connect), succeeded(&node, Step::Acquire)), (true, false));
        assert_eq!((reported(&node), reported(&node)), (vec!["down", "up"], vec![]));
        let replica = "is a replica of a:1";
        assert!(unusable(&node, Step::Connect, replica) && !unusable(&node, Step::Connect, replica));
        assert!(unusable(&node, Step::Connect, "WRONGPASS invalid"));
        assert!(down(&node, Step::Connect) && unusable(&node, Step::Connect, replica));
        assert!(succeeded(&node, Step::Connect));
        assert_eq!(reported(&node), ["unusable", "unusable", "down", "unusable", "usable"]);
    }

    /// An observer can use the client, which can change the status again.
    #[test]
    fn a_change_while_one_is_reported_is_reported_behind_it() {
        let (node, reported) = (ServerStatus::default(), RefCell::new(Vec::new()));
        down(&node, Step::Call);
        node.report(|change| {
            if succeeded(&node, Step::Call) {
                node.report(|_| panic!("in the middle of another one"));
            }
            reported.borrow_mut().push(change);
        });
        assert_eq!(reported.into_inner(), [StatusChange::Down("refused".into()), StatusChange::Up(Duration::ZERO)]);
    }

    #[test]
    fn it_is_bad_from_the_first_cause_to_the_end_of_all() {
        let (node, second) = (ServerStatus::default(), Duration::from_secs(1));
        let [first, later, last] = [0, 1, 3].map(|n| Tick::ZERO.after(second * n));
        assert!(node.down(Step::Connect, "refused", first));
        assert!(node.unusable(Step::Connect, "NOAUTH", later));
        assert!(node.succeeded(Step::Connect, || last));
        assert!(node.down(Step::Connect, "refused", last) && node.succeeded(Step::Connect, || last));
        let reported = RefCell::new(Vec::new());
        node.report(|change| reported.borrow_mut().push(change));
        let ended = |change: &StatusChange| matches!(change, StatusChange::Up(_) | StatusChange::Usable(_));
        let reported: Vec<_> = reported.into_inner().into_iter().filter(ended).collect();
        assert_eq!(reported, [StatusChange::Usable(second * 3), StatusChange::Up(Duration::ZERO)]);
    }

    #[test]
    fn connections_alone_do_not_make_a_node_well_that_executes_no_calls() {
        let node = ServerStatus::default();
        for n in 0..3 {
            assert_eq!((down(&node, Step::Call), succeeded(&node, Step::Connect)), (n == 0, false));
        }
        assert!(succeeded(&node, Step::Call));
        assert!(unusable(&node, Step::Acquire, "NOPERM this user may not run TIME"));
        assert_eq!((succeeded(&node, Step::Connect), succeeded(&node, Step::Call)), (false, false));
        assert!(!unusable(&node, Step::Acquire, "NOPERM this user may not run DEL"));
        assert!(succeeded(&node, Step::Acquire));
    }

    #[test]
    fn a_server_that_goes_away_as_well_is_back_with_the_next_connection() {
        let node = ServerStatus::default();
        assert_eq!((down(&node, Step::Call), down(&node, Step::Connect)), (true, false));
        assert!(succeeded(&node, Step::Connect));
        assert_eq!(reported(&node), ["down", "up"]);
    }
}
