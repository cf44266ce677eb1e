//! The waiting threads read the push connection in turn: the lock around the [`Desk`], and what happens outside of it.

use std::sync::Arc;
use std::time::Duration;

use super::desk::{After, Desk, Errand, Step, Woken};
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
        Turns { clock, timeout, errands, desk: Mutex::default() }
    }

    /// One step at the desk, and what follows from it.
    pub(crate) fn with<R>(&self, step: impl FnOnce(&mut Desk, Tick) -> R) -> R {
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
