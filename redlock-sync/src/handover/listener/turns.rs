//! The waiting threads read the push connection in turn: the lock around the [`Desk`], and what happens outside of it.

use std::sync::Arc;
use std::time::Duration;

use super::awaits::Awaits;
use super::connection::{Pulse, Subscription};
use super::desk::{After, Arrived, Desk, Errand, Step, Woken};
use super::ended::OnLatePush;
#[cfg(test)]
use super::pushed::Pushed;
use super::watching::Watched;
use crate::clock::{Clock, Tick};
use crate::node::{Heard, Push};
use crate::sync::Mutex;

/// Does what has to be done elsewhere. Must not wait, nor come back here on the same thread.
pub(crate) type Errands = Box<dyn Fn(Errand) + Send + Sync>;

pub(crate) struct Turns {
    clock: Arc<dyn Clock>,
    /// How long a beat may be on its way.
    timeout: Duration,
    errands: Errands,
    desk: Mutex<Desk>,
}

impl Turns {
    pub(crate) fn new(clock: Arc<dyn Clock>, timeout: Duration, errands: Errands) -> Turns {
        Turns { clock, timeout, errands, desk: Mutex::new(Desk::new()) }
    }

    /// One step at the desk, and what follows from it.
    fn with<R>(&self, step: impl FnOnce(&mut Desk, Tick) -> R) -> R {
        let mut desk = self.desk.lock();
        let result = step(&mut desk, self.clock.now());
        debug_assert!(desk.is_sound());
        let after = std::mem::take(&mut desk.after);
        drop(desk);
        self.follow_up(after);
        result
    }

    fn follow_up(&self, mut after: After) {
        after.errands.drain(..).for_each(|errand| (self.errands)(errand));
        after.late.drain(..).for_each(|(ended, pushed)| ended(pushed));
    }

    pub(crate) fn begin(&self) -> u64 {
        self.with(|desk, _| desk.begin())
    }

    pub(crate) fn end(&self, number: u64) {
        self.with(|desk, now| desk.end(number, now));
    }

    pub(crate) fn subscription(&self, number: u64) -> Option<Subscription> {
        self.with(|desk, _| desk.subscription(number))
    }

    pub(crate) fn listens(&self) -> bool {
        self.with(|desk, _| desk.connection.subscription().is_some())
    }

    pub(crate) fn polls(&self) -> bool {
        self.with(|desk, _| desk.polls())
    }

    #[cfg(test)]
    pub(crate) fn take(&self, number: u64) -> Option<Pushed> {
        self.with(|desk, _| desk.take(number))
    }

    pub(crate) fn watch_ended(&self, number: u64, ended: OnLatePush) {
        self.with(|desk, now| desk.watch_ended(number, ended, now));
    }

    /// Ends all waits. Where a thread reads that has to be woken, if there is one.
    pub(crate) fn close(&self) -> Option<Subscription> {
        self.with(|desk, _| desk.close())
    }

    pub(crate) fn attempt(&self) -> bool {
        self.with(|desk, _| desk.attempt())
    }

    pub(crate) fn channel(&self) -> Option<Arc<str>> {
        self.with(|desk, _| desk.channel())
    }

    pub(crate) fn name_channel(&self, channel: Arc<str>) {
        self.with(|desk, _| desk.name_channel(channel));
    }

    pub(crate) fn install(&self, node: usize, channel: &Arc<str>, arrived: Arrived) {
        self.with(|desk, now| desk.install(node, channel, arrived, now));
    }

    pub(crate) fn refused(&self) {
        self.with(|desk, _| desk.refused());
    }

    pub(crate) fn failed(&self, is_left_out: bool) {
        self.with(|desk, _| desk.failed(is_left_out));
    }

    /// An attempt ended without a word, and nothing is planned.
    pub(crate) fn gave_up(&self) {
        self.with(|desk, _| desk.gave_up());
    }

    pub(crate) fn beaten(&self, generation: u64, pulse: Pulse) {
        self.with(|desk, now| desk.beaten(generation, pulse, now));
    }

    pub(crate) fn rest(&self) {
        self.with(Desk::rest);
    }

    pub(crate) fn await_also(&self, number: u64, awaits: Awaits) {
        self.with(|desk, _| desk.await_also(number, awaits));
    }

    pub(crate) fn watched(&self) -> Vec<Watched> {
        self.with(|desk, _| desk.watched())
    }

    pub(crate) fn look(&self, numbers: Vec<u64>) -> bool {
        self.with(|desk, _| desk.look(numbers))
    }

    pub(crate) fn servers_are_back(&self) -> Option<Subscription> {
        self.with(|desk, _| desk.servers_are_back())
    }

    /// Sleeps until then, or until something is there for this wait. Reads meanwhile, if no other thread does.
    pub(crate) fn sleep(&self, number: u64, until: Tick) -> Woken {
        let mut brought: Option<(Box<dyn Push>, Heard)> = None;
        loop {
            let mut desk = self.desk.lock();
            let now = self.clock.now();
            if let Some((conn, heard)) = brought.take() {
                desk.heard(conn, heard, now, self.timeout);
            }
            let step = desk.step(number, until, now, self.timeout);
            debug_assert!(desk.is_sound());
            match step {
                Step::Nap(moved, nap) if desk.after.is_empty() => {
                    self.clock.wait_until(&moved, &mut desk, now.after(nap));
                }
                step => {
                    let after = std::mem::take(&mut desk.after);
                    drop(desk);
                    let hand = Hand::of(self, step);
                    self.follow_up(after);
                    match hand {
                        Ok(hand) => brought = hand.and_then(Hand::read),
                        Err(woken) => return woken,
                    }
                }
            }
        }
    }
}

/// The connection in the hand of the thread that reads. If that panics, the connection is of no more use, and another one is made.
struct Hand<'a> {
    turns: &'a Turns,
    conn: Option<Box<dyn Push>>,
    read_for: Duration,
}

impl<'a> Hand<'a> {
    fn of(turns: &'a Turns, step: Step) -> Result<Option<Hand<'a>>, Woken> {
        match step {
            Step::Read(conn, read_for) => Ok(Some(Hand { turns, conn: Some(conn), read_for })),
            Step::Nap(..) => Ok(None),
            Step::Woken(woken) => Err(woken),
        }
    }

    fn read(mut self) -> Option<(Box<dyn Push>, Heard)> {
        let heard = self.conn.as_mut()?.receive(self.read_for);
        Some((self.conn.take()?, heard))
    }
}

impl Drop for Hand<'_> {
    fn drop(&mut self) {
        if let Some(conn) = self.conn.take() {
            self.turns.with(|desk, now| desk.broke(Some(conn), now));
        }
    }
}
