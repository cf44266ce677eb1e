//! Pushes the tasks of a run, and pushes some of them twice.

use std::thread;
use std::time::Duration;

use redlock_sync::{IfQueued, Pushed, Queue, Task};

use crate::args::Options;
use crate::client::Log;
use crate::clock::{SEC, now};
use crate::event::{Session, What};
use crate::names::QUEUE;
use crate::until::Ending;

/// The pause between two bursts.
const BURSTS: u64 = 2 * SEC;
/// The time without a confirmation after which the run fails.
const PATIENCE: u64 = 60 * SEC;

/// The session of all pushes. No client has this number.
const ME: Session = Session { client: u8::MAX, life: 0, thread: 0, number: 0 };

pub(crate) struct Feeder<'a> {
    pub(crate) options: &'a Options,
    pub(crate) queue: &'a Queue,
    pub(crate) log: Log,
    pub(crate) ending: &'a Ending,
}

impl Feeder<'_> {
    /// Pushes all tasks within nine tenths of the run. The tasks of a burst are pushed together, the others one by one.
    pub(crate) fn feed(&self, begin: u64) {
        let mut random = fastrand::Rng::with_seed(self.options.seed);
        let span = (self.options.seconds * SEC * 9 / 10).max(1);
        let bursts = span.div_ceil(BURSTS);
        let in_bursts = bursts.saturating_mul(self.options.burst).min(self.options.tasks);
        let others = self.options.tasks - in_bursts;
        let (mut next, mut of_others) = (0, 0);
        for burst in 0..bursts {
            let first = begin + burst * BURSTS;
            if self.ending.sleep_until(first) {
                return;
            }
            let some = in_bursts * (burst + 1) / bursts - in_bursts * burst / bursts;
            self.push_all(next, some);
            next += some;
            let until = others * (burst + 1) / bursts;
            let count = (until - of_others).max(1);
            for nth in 0..until - of_others {
                if self.ending.sleep_until(first + BURSTS * nth / count) {
                    return;
                }
                self.push_one(next, &mut random);
                next += 1;
            }
            of_others = until;
        }
    }

    /// Pushes tasks that are due at once, all together.
    fn push_all(&self, first: u64, count: u64) {
        let tasks: Vec<Task> = (first..first + count).map(task).collect();
        until_ok(|from| {
            let said = self.queue.push_all(tasks.clone()).ok()?;
            // All tasks of a burst are logged with the same start, because the first can be claimed before the last is
            // pushed.
            for (task, said) in (first..).zip(said) {
                self.note(What::Pushed { task, from, is_fresh: said == Pushed::New });
            }
            Some(())
        });
    }

    /// Pushes a task that is due at once or later. Some tasks are pushed a second time, possibly while they are
    /// claimed.
    fn push_one(&self, nth: u64, random: &mut fastrand::Rng) {
        let is_later = random.u32(0..5) == 0;
        let delay = if is_later { Duration::from_millis(random.u64(1..500)) } else { Duration::ZERO };
        self.push(nth, &task(nth).after(delay), !is_later);
        if random.u32(0..5) == 0 {
            thread::sleep(Duration::from_millis(random.u64(0..15)));
            let policy = [IfQueued::Keep, IfQueued::Replace, IfQueued::Earlier][random.usize(0..3)];
            self.push(nth, &task(nth).if_queued(policy), false);
        }
    }

    fn push(&self, nth: u64, task: &Task, may_be_fresh: bool) {
        until_ok(|from| {
            let is_fresh = self.queue.push(task.clone()).ok()? == Pushed::New && may_be_fresh;
            self.note(What::Pushed { task: nth, from, is_fresh });
            Some(())
        });
    }

    fn note(&self, what: What) {
        self.log.note(ME, QUEUE, what);
    }
}

fn task(nth: u64) -> Task {
    Task::new(nth.to_string()).id(nth.to_string())
}

/// Repeats the push until the server confirms it.
fn until_ok(mut push: impl FnMut(u64) -> Option<()>) {
    let from = now();
    while push(now()).is_none() {
        assert!(now() < from + PATIENCE, "the server takes no task");
        thread::sleep(Duration::from_millis(20));
    }
}
