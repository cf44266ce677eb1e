//! Short histories for unit tests. Times are in ms, there is one lock, and each holder `n` is a separate client.

use crate::clock::MS;
use crate::event::{Event, KINDS, Op, Outcome, Session, Wants, What};
use crate::history::{History, Stored, Struck};
use crate::names::SEVERAL;
use crate::plan::{Fault, Kind, Target};

#[derive(Debug, Default)]
pub(super) struct Story {
    events: Vec<Event>,
    /// The lock and the thread number of the following events.
    key: usize,
    thread: u16,
    pub(super) history: History,
}

pub(super) fn session(n: u8) -> Session {
    Session { client: n, life: 0, thread: 0, number: u32::from(n) }
}

impl Story {
    pub(super) fn new() -> Self {
        let history = History { nodes: 3, keys: 1, clients: 9, end: 100_000 * MS, ..History::default() };
        Self { events: Vec::new(), key: 0, thread: 0, history }
    }

    /// Sets the lock of the following events.
    pub(super) fn of(self, key: usize) -> Self {
        Self { key, ..self }
    }

    /// Adds a multi-lock of two keys. Each key is held as long as the multi-lock.
    pub(super) fn several(self, n: u8, at: u64, looks: &[(u64, u64)]) -> Self {
        let story = Self { thread: KINDS, ..self }.of(SEVERAL).hold(n, at, looks).of(0);
        (0..2).fold(story, |story, nth| {
            let token = Self::token_of_part(n, nth);
            let story = story.part(n, nth, at, What::Held { token });
            let look = |story: Self, &(at, until)| story.part(n, nth, at, What::Check { until: Some(until * MS) });
            looks.iter().take(1).fold(story, look)
        })
    }

    pub(super) fn part_lost(self, n: u8, nth: usize, at: u64) -> Self {
        self.part(n, nth, at, What::Check { until: None })
    }

    pub(super) fn token_of_part(n: u8, nth: usize) -> String {
        format!("a:token{n}.{nth}")
    }

    fn part(mut self, n: u8, nth: usize, at: u64, what: What) -> Self {
        self.events.push(Event { at: at * MS, session: self.session(n).part(nth), key: nth, what });
        self
    }

    pub(super) fn event(mut self, at: u64, n: u8, what: What) -> Self {
        self.events.push(Event { at: at * MS, session: self.session(n), key: self.key, what });
        self
    }

    fn session(&self, n: u8) -> Session {
        Session { thread: self.thread, ..session(n) }
    }

    /// Adds a hold that begins at this time, with a lease of 100 ms. Each entry of `looks` is the time of a check and
    /// the time that it promised.
    pub(super) fn hold(self, n: u8, at: u64, looks: &[(u64, u64)]) -> Self {
        self.hold_with(n, at, Wants::plain(100 * MS), looks)
    }

    /// Adds a hold like [`Story::hold`], with these settings.
    pub(super) fn hold_with(self, n: u8, at: u64, wants: Wants, looks: &[(u64, u64)]) -> Self {
        let story = self.event(at.saturating_sub(1), n, What::Wants(wants));
        let story = story.call(n, Op::Lock, at.saturating_sub(1), u64::MAX / MS).done(n, Op::Lock, at, Outcome::Ok);
        let story = story.event(at, n, What::Held { token: format!("a:token{n}") });
        story.looks(n, looks)
    }

    pub(super) fn looks(self, n: u8, looks: &[(u64, u64)]) -> Self {
        looks.iter().fold(self, |story, &(at, until)| story.event(at, n, What::Check { until: Some(until * MS) }))
    }

    pub(super) fn lost(self, n: u8, at: u64) -> Self {
        self.event(at, n, What::Check { until: None })
    }

    pub(super) fn unlock(self, n: u8, at: u64) -> Self {
        self.call(n, Op::Unlock, at, 300).done(n, Op::Unlock, at + 1, Outcome::Ok)
    }

    pub(super) fn call(self, n: u8, op: Op, at: u64, limit: u64) -> Self {
        self.event(at, n, What::Call { op, limit: limit.saturating_mul(MS) })
    }

    pub(super) fn done(self, n: u8, op: Op, at: u64, outcome: Outcome) -> Self {
        self.event(at, n, What::Return { op, outcome })
    }

    pub(super) fn number(self, n: u8, at: u64, fence: u64) -> Self {
        self.event(at, n, What::Number { fence })
    }

    pub(super) fn told(self, n: u8, at: u64) -> Self {
        self.event(at, n, What::Told)
    }

    pub(super) fn stored(mut self, n: u8, at: u64, fence: u64, accepted: bool) -> Self {
        self.history.stored.push(Stored { at: at * MS, session: session(n), key: 0, fence, accepted });
        self
    }

    pub(super) fn struck(mut self, kind: Kind, target: Target, from: u64, until: u64) -> Self {
        let fault = Fault { at: from, length: until - from, target, kind, command: "", each: false, amount: 0 };
        self.history.struck.push(Struck { fault, from: from * MS, until: until * MS, hits: 1 });
        self
    }

    pub(super) fn history(self) -> History {
        self.history.with_events(self.events)
    }
}
