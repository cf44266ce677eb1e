//! The health of one server, a circuit breaker. A server that does not answer is left out until it answers again, on
//! any connection. So a dead server costs one timeout, not one for each call. The log has one line for each change of
//! health, and none for each call.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use super::{Failure, FailureKind};
use crate::clock::Tick;
use crate::handler::caught;

#[derive(Debug, Default)]
pub(super) struct Health {
    /// True while the server is down, so that a look costs one load.
    ///
    /// `set` stores it while `history` is locked. Pairs with `Health::outage`: a thread that reads true locks `history`
    /// after that. Otherwise it could find no outage.
    is_down: AtomicBool,
    /// True while the server is not `Up`, so that an answer costs one load. Stored and read in the same way.
    is_bad: AtomicBool,
    /// True while a change is not reported, so that a look costs one load. Stored while `history` is locked.
    has_news: AtomicBool,
    history: Mutex<History>,
}

#[derive(Debug, Default)]
struct History {
    current: State,
    /// When the server has last ceased to be `Up`.
    bad_since: Option<Tick>,
    /// When it has last become `Up` again.
    came_back: Tick,
    unreported: VecDeque<Change>,
    /// A thread reports the changes, and takes each new one too.
    is_being_reported: bool,
}

#[derive(Debug, Default)]
enum State {
    #[default]
    Up,
    /// It does not answer this step. The failure is that of calls meanwhile.
    Down(Step, Failure),
    /// It did not answer a call. A client could log in since then, so the next call is sent. It counts as down in the
    /// log until it answers one.
    HalfOpen,
    /// It answers, but refuses something until its configuration is changed. The string is the first word of the cause.
    Refuses(Step, String),
}

/// A step that failed. The server is well again once it accepts the same step or a later one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Step {
    /// To connect and to log in.
    LogIn,
    /// Any call.
    Call,
    /// An acquire. Other calls may need fewer permissions.
    Acquire,
}

/// A change to report, with its cause, or with the length of the bad period that ends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Change {
    Down(String),
    Up(Duration),
    Refuses(String),
    Accepts(Duration),
}

impl Health {
    /// The server has not answered since `silent_since`. A failure to log in replaces a failed call: then the next
    /// login suffices as proof. Returns false if it was down already, or has come back since then: after a pause of
    /// this process, many threads find at the same time that their calls are late.
    pub(super) fn went_down(&self, step: Step, cause: &Failure, silent_since: Tick, now: Tick) -> bool {
        let mut history = self.history.lock();
        if history.came_back > silent_since {
            return false;
        }
        let is_new = !matches!(history.current, State::Down(..) | State::HalfOpen);
        let step = match history.current {
            State::Down(former, _) => step.min(former),
            _ => step,
        };
        let outage = Failure::unsent(FailureKind::LeftOut, format!("left out since it failed: {}", cause.message));
        let change = is_new.then(|| Change::Down(cause.message.clone()));
        self.set(&mut history, State::Down(step, outage), change, now);
        is_new
    }

    /// The server refuses a step. The same cause with other details, such as another slot of a cluster, is not a
    /// change. Returns true if the server was down: it answers again.
    pub(super) fn refused(&self, step: Step, cause: &str, now: Tick) -> bool {
        let word = cause.split(' ').next().unwrap_or_default();
        let mut history = self.history.lock();
        let was_down = matches!(history.current, State::Down(..));
        if !matches!(&history.current, State::Refuses(former, known) if *former == step && known == word) {
            let new = State::Refuses(step, word.to_owned());
            self.set(&mut history, new, Some(Change::Refuses(cause.to_owned())), now);
        }
        was_down
    }

    /// The server accepted a step. Returns true if it was down.
    pub(super) fn accepted(&self, step: Step, now: impl FnOnce() -> Tick) -> bool {
        if !self.is_bad.load(Ordering::Acquire) {
            return false;
        }
        let mut history = self.history.lock();
        let was_down = matches!(history.current, State::Down(..));
        let ended: fn(Duration) -> Change = match history.current {
            State::Down(failed, _) if step < failed => {
                self.set(&mut history, State::HalfOpen, None, now());
                return true;
            }
            State::Refuses(refused, _) if step >= refused => Change::Accepts,
            State::Down(..) => Change::Up,
            State::HalfOpen if step >= Step::Call => Change::Up,
            _ => return false,
        };
        let now = now();
        let lasted = now.since(history.bad_since.unwrap_or(now));
        self.set(&mut history, State::Up, Some(ended(lasted)), now);
        was_down
    }

    /// The failure of calls while the server is left out.
    pub(super) fn outage(&self) -> Option<Failure> {
        if !self.is_down.load(Ordering::Acquire) {
            return None;
        }
        match &self.history.lock().current {
            State::Down(_, outage) => Some(outage.clone()),
            _ => None,
        }
    }

    /// True while the server is left out.
    pub(super) fn is_down(&self) -> bool {
        self.is_down.load(Ordering::Acquire)
    }

    /// Calls `report` with each change, in the order in which they came. If another thread does that now, it takes the
    /// changes of this thread too. So `report` never runs under a lock, and its last call is for the current state.
    pub(super) fn report(&self, report: impl Fn(Change)) {
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

    fn next_unreported(&self) -> Option<Change> {
        let mut history = self.history.lock();
        let next = history.unreported.pop_front();
        self.has_news.store(!history.unreported.is_empty(), Ordering::Release);
        history.is_being_reported = next.is_some();
        next
    }

    fn set(&self, history: &mut History, new: State, change: Option<Change>, now: Tick) {
        let is_bad = !matches!(new, State::Up);
        self.is_bad.store(is_bad, Ordering::Release);
        self.is_down.store(matches!(new, State::Down(..)), Ordering::Release);
        history.current = new;
        if !is_bad && history.bad_since.is_some() {
            history.came_back = now;
        }
        history.bad_since = is_bad.then(|| history.bad_since.unwrap_or(now));
        history.unreported.extend(change);
        self.has_news.store(!history.unreported.is_empty(), Ordering::Release);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by a panic")]
mod tests {
    use std::cell::RefCell;

    use super::*;

    const NOW: fn() -> Tick = || Tick::ZERO;

    fn reported(health: &Health) -> Vec<Change> {
        let reported = RefCell::new(Vec::new());
        health.report(|change| reported.borrow_mut().push(change));
        reported.into_inner()
    }

    /// The kinds of the changes that are reported.
    fn kinds(health: &Health) -> Vec<&'static str> {
        let kind = |change: &Change| match change {
            Change::Down(_) => "down",
            Change::Up(_) => "up",
            Change::Refuses(_) => "refuses",
            Change::Accepts(_) => "accepts",
        };
        reported(health).iter().map(kind).collect()
    }

    fn went_down(health: &Health, step: Step) -> bool {
        health.went_down(step, &Failure::unsent(FailureKind::Unreachable, "connection refused"), Tick::ZERO, Tick::ZERO)
    }

    fn refused(health: &Health, step: Step, cause: &str) -> bool {
        health.refused(step, cause, Tick::ZERO)
    }

    #[test]
    fn a_server_that_is_down_is_left_out_until_it_answers() {
        let health = Health::default();
        assert_eq!((health.outage(), health.is_down()), (None, false));
        assert_eq!((went_down(&health, Step::LogIn), went_down(&health, Step::LogIn)), (true, false));
        let outage = health.outage().unwrap();
        assert_eq!(
            (outage.kind, outage.message.as_str()),
            (FailureKind::LeftOut, "left out since it failed: connection refused")
        );
        assert!(health.accepted(Step::LogIn, NOW) && !health.accepted(Step::LogIn, NOW));
        assert_eq!((health.outage(), health.is_down()), (None, false));
    }

    #[test]
    fn each_change_is_reported_once() {
        let health = Health::default();
        assert!(!health.accepted(Step::LogIn, NOW));
        went_down(&health, Step::LogIn);
        went_down(&health, Step::LogIn);
        health.accepted(Step::LogIn, NOW);
        health.accepted(Step::Acquire, NOW);
        assert_eq!((kinds(&health), kinds(&health)), (vec!["down", "up"], vec![]));
        let replica = "is a replica of a:1";
        assert!(!refused(&health, Step::LogIn, replica) && !refused(&health, Step::LogIn, replica));
        assert!(!refused(&health, Step::LogIn, "WRONGPASS invalid"));
        assert!(went_down(&health, Step::LogIn) && refused(&health, Step::LogIn, replica), "a refusal is an answer");
        assert!(!health.accepted(Step::LogIn, NOW));
        assert_eq!(kinds(&health), ["refuses", "refuses", "down", "refuses", "accepts"]);
    }

    /// An observer can use the client, which can change the health again.
    #[test]
    fn a_change_while_one_is_reported_is_reported_behind_it() {
        let (health, reported) = (Health::default(), RefCell::new(Vec::new()));
        went_down(&health, Step::LogIn);
        health.report(|change| {
            if health.accepted(Step::LogIn, NOW) {
                health.report(|_| panic!("in the middle of another one"));
            }
            reported.borrow_mut().push(change);
        });
        let expected = [Change::Down("connection refused".into()), Change::Up(Duration::ZERO)];
        assert_eq!(reported.into_inner(), expected);
    }

    #[test]
    fn it_is_bad_from_the_first_cause_to_the_end_of_all() {
        let (health, second) = (Health::default(), Duration::from_secs(1));
        let [first, later, last] = [0, 1, 3].map(|n| Tick::ZERO.after(second * n));
        let refused = Failure::unsent(FailureKind::Unreachable, "connection refused");
        assert!(health.went_down(Step::LogIn, &refused, first, first) && health.refused(Step::LogIn, "NOAUTH", later));
        health.accepted(Step::LogIn, || last);
        assert!(health.went_down(Step::LogIn, &refused, last, last) && health.accepted(Step::LogIn, || last));
        let ended = |change: &Change| matches!(change, Change::Up(_) | Change::Accepts(_));
        let reported: Vec<_> = reported(&health).into_iter().filter(ended).collect();
        assert_eq!(reported, [Change::Accepts(second * 3), Change::Up(Duration::ZERO)]);
    }

    /// Otherwise the log would have many lines after a pause of this process.
    #[test]
    fn a_call_that_was_late_before_the_server_came_back_does_not_take_it_down() {
        let (health, second) = (Health::default(), Duration::from_secs(1));
        let [before, back, later] = [1, 2, 3].map(|n| Tick::ZERO.after(second * n));
        let late = Failure::unsent(FailureKind::TimedOut, "timed out");
        assert!(health.went_down(Step::Call, &late, before, before) && health.accepted(Step::Call, || back));
        assert!(!health.went_down(Step::Call, &late, before, back) && !health.is_down());
        assert!(health.went_down(Step::Call, &late, back, later) && health.is_down());
        assert_eq!(kinds(&health), ["down", "up", "down"]);
    }

    #[test]
    fn logins_alone_do_not_make_a_server_well_that_answers_no_calls() {
        let health = Health::default();
        for n in 0..3 {
            assert_eq!(went_down(&health, Step::Call), n == 0);
            assert!(health.accepted(Step::LogIn, NOW) && !health.is_down(), "the next call is sent");
        }
        assert!(!health.accepted(Step::LogIn, NOW) && !health.accepted(Step::Call, NOW));
        assert_eq!(kinds(&health), ["down", "up"]);
    }

    #[test]
    fn a_server_that_goes_away_as_well_is_back_with_the_next_login() {
        let health = Health::default();
        assert_eq!((went_down(&health, Step::Call), went_down(&health, Step::LogIn)), (true, false));
        assert!(health.accepted(Step::LogIn, NOW));
        assert_eq!(kinds(&health), ["down", "up"]);
    }

    #[test]
    fn other_calls_do_not_end_the_refusal_of_an_acquire() {
        let health = Health::default();
        refused(&health, Step::Acquire, "NOPERM this user may not run TIME");
        health.accepted(Step::LogIn, NOW);
        health.accepted(Step::Call, NOW);
        refused(&health, Step::Acquire, "NOPERM this user may not run DEL");
        assert_eq!(kinds(&health), ["refuses"]);
        health.accepted(Step::Acquire, NOW);
        assert_eq!(kinds(&health), ["accepts"]);
    }
}
