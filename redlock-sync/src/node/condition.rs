//! What the log says of one node: a line when its condition changes, and none for each call.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use crate::clock::Tick;

/// The condition that was logged last.
#[derive(Debug, Default)]
pub(super) struct Condition {
    /// Set while it is not `Well`, so that a call that is answered costs one load.
    is_bad: AtomicBool,
    state: Mutex<State>,
    /// When it was first told that it is bad.
    since: Mutex<Option<Tick>>,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Well,
    Down(During),
    /// It answers, and its set-up is wrong; with the first word of the cause.
    Unusable(During, String),
}

/// At what a node failed, and so what has to succeed before it counts as well again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum During {
    Connect,
    /// A server that accepts connections and does not execute calls is not well with each connection.
    Call,
}

/// What succeeded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Success {
    Connected,
    /// A call other than an acquire, which may need fewer permissions.
    Answered,
    Acquired,
}

/// What to log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum News {
    Down,
    Back,
    Unusable,
    Usable,
}

impl Condition {
    pub(super) fn down(&self, during: During) -> Option<News> {
        let mut state = self.state.lock();
        let is_new = !matches!(*state, State::Down(_));
        // A failure to connect is the plainer one: the next connection ends it.
        if is_new || during == During::Connect {
            self.set(&mut state, State::Down(during));
        }
        is_new.then_some(News::Down)
    }

    /// The same cause with other details, such as another slot of a cluster, is no change.
    pub(super) fn unusable(&self, during: During, cause: &str) -> Option<News> {
        let word = cause.split(' ').next().unwrap_or_default().to_owned();
        let new = State::Unusable(during, word);
        let mut state = self.state.lock();
        if *state == new {
            return None;
        }
        self.set(&mut state, new);
        Some(News::Unusable)
    }

    pub(super) fn succeeded(&self, success: Success) -> Option<News> {
        if !self.is_bad.load(Ordering::Acquire) {
            return None;
        }
        let mut state = self.state.lock();
        let news = match (&*state, success) {
            (State::Down(During::Connect), _) | (State::Down(_), Success::Answered | Success::Acquired) => News::Back,
            (State::Unusable(During::Connect, _), _) | (State::Unusable(..), Success::Acquired) => News::Usable,
            _ => return None,
        };
        self.set(&mut state, State::Well);
        Some(news)
    }

    /// For how long it has been told to be bad; from now on it is not, if this is the news.
    pub(super) fn lasts(&self, news: News, now: Tick) -> Duration {
        let mut since = self.since.lock();
        let first = *since.get_or_insert(now);
        if matches!(news, News::Back | News::Usable) {
            *since = None;
        }
        now.since(first)
    }

    fn set(&self, state: &mut State, new: State) {
        self.is_bad.store(new != State::Well, Ordering::Release);
        *state = new;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_change_is_told_once() {
        let node = Condition::default();
        assert_eq!(node.succeeded(Success::Connected), None);
        assert_eq!((node.down(During::Connect), node.down(During::Connect)), (Some(News::Down), None));
        assert_eq!((node.succeeded(Success::Connected), node.succeeded(Success::Acquired)), (Some(News::Back), None));
        let replica = "is a replica of a:1";
        assert_eq!(node.unusable(During::Connect, replica), Some(News::Unusable));
        assert_eq!(node.unusable(During::Connect, replica), None);
        assert_eq!(node.unusable(During::Connect, "WRONGPASS invalid"), Some(News::Unusable));
        assert_eq!(node.down(During::Connect), Some(News::Down));
        assert_eq!(node.unusable(During::Connect, replica), Some(News::Unusable));
        assert_eq!(node.succeeded(Success::Connected), Some(News::Usable));
    }

    #[test]
    fn it_is_bad_from_the_first_cause_to_the_end_of_all() {
        let (node, second) = (Condition::default(), Duration::from_secs(1));
        let [first, later, last] = [0, 1, 3].map(|n| Tick::ZERO.after(second * n));
        assert_eq!(node.lasts(News::Down, first), Duration::ZERO);
        assert_eq!(node.lasts(News::Unusable, later), second);
        assert_eq!(node.lasts(News::Usable, last), second * 3);
        assert_eq!(node.lasts(News::Down, last), Duration::ZERO);
    }

    #[test]
    fn connections_alone_do_not_make_a_node_well_that_executes_no_calls() {
        let node = Condition::default();
        for _ in 0..3 {
            let first = node.down(During::Call);
            assert_eq!((node.succeeded(Success::Connected), first.is_some()), (None, first.is_some()));
        }
        assert_eq!(node.down(During::Call), None);
        assert_eq!(node.succeeded(Success::Answered), Some(News::Back));
        assert_eq!(node.unusable(During::Call, "NOPERM this user may not run TIME"), Some(News::Unusable));
        assert_eq!((node.succeeded(Success::Connected), node.succeeded(Success::Answered)), (None, None));
        assert_eq!(node.unusable(During::Call, "NOPERM this user may not run DEL"), None);
        assert_eq!(node.succeeded(Success::Acquired), Some(News::Usable));
    }

    #[test]
    fn a_server_that_goes_away_as_well_is_back_with_the_next_connection() {
        let node = Condition::default();
        assert_eq!((node.down(During::Call), node.down(During::Connect)), (Some(News::Down), None));
        assert_eq!(node.succeeded(Success::Connected), Some(News::Back));
    }
}
