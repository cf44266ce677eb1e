//! Pushes the tasks of a run, and pushes some of them twice.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use redlock_sync::{IfQueued, Pushed, Queue, Task};

use super::args::Options;
use super::history::Log;
use crate::clock::{SEC, now};

/// The pause between two bursts.
const BURSTS: u64 = 2 * SEC;
/// The time without a confirmation after which the run fails.
const PATIENCE: u64 = 60 * SEC;

pub(crate) struct Feeder<'a> {
    pub(crate) options: &'a Options,
    pub(crate) queue: Queue,
    pub(crate) log: &'a Log,
    pub(crate) is_over: &'a AtomicBool,
}

impl Feeder<'_> {
    /// Pushes all tasks within nine tenths of the run. The tasks of a burst are pushed together, the others one by one.
    pub(crate) fn feed(&self, begin: u64) {
        let mut random = fastrand::Rng::with_seed(self.options.seed);
        let span = (self.options.seconds * SEC * 9 / 10).max(1);
        let bursts = span.div_ceil(BURSTS);
        let in_bursts = bursts.saturating_mul(u64::from(self.options.burst)).min(u64::from(self.options.tasks));
        let others = u64::from(self.options.tasks) - in_bursts;
        let (mut next, mut of_others) = (0, 0);
        for burst in 0..bursts {
            let first = begin + burst * BURSTS;
            sleep_until(first);
            if self.is_over.load(Ordering::SeqCst) {
                return;
            }
            let some = in_bursts * (burst + 1) / bursts - in_bursts * burst / bursts;
            self.push_all(next, some);
            next += some;
            let until = others * (burst + 1) / bursts;
            let count = (until - of_others).max(1);
            for nth in 0..until - of_others {
                if self.is_over.load(Ordering::SeqCst) {
                    return;
                }
                sleep_until(first + BURSTS * nth / count);
                self.push_one(next, &mut random);
                next += 1;
            }
            of_others = until;
        }
    }

    /// Pushes tasks that are due at once, all together.
    fn push_all(&self, first: u64, count: u64) {
        let ids: Vec<String> = (first..first + count).map(|n| n.to_string()).collect();
        let tasks: Vec<Task> = ids.iter().map(|id| Task::new(id.as_str()).id(id.as_str())).collect();
        until_ok(|from| {
            let said = self.queue.push_all(tasks.clone()).ok()?;
            // All tasks of a burst are logged with the same start, because the first can be claimed before the last is
            // pushed.
            for (id, said) in ids.iter().zip(said) {
                self.tell(id, from, "due", said);
            }
            Some(())
        });
    }

    /// Pushes a task that is due at once or later. Some tasks are pushed a second time, possibly while they are
    /// claimed.
    fn push_one(&self, nth: u64, random: &mut fastrand::Rng) {
        let id = nth.to_string();
        let is_later = random.u32(0..5) == 0;
        let delay = if is_later { Duration::from_millis(random.u64(1..500)) } else { Duration::ZERO };
        let (task, when) =
            (Task::new(id.as_str()).id(id.as_str()).after(delay), if is_later { "later" } else { "due" });
        self.push(&id, &task, when);
        if random.u32(0..5) == 0 {
            thread::sleep(Duration::from_millis(random.u64(0..15)));
            let policy = [IfQueued::Keep, IfQueued::Replace, IfQueued::Earlier][random.usize(0..3)];
            let again = Task::new(id.as_str()).id(id.as_str()).if_queued(policy);
            self.push(&id, &again, "later");
        }
    }

    fn push(&self, id: &str, task: &Task, when: &str) {
        until_ok(|from| {
            let said = self.queue.push(task.clone()).ok()?;
            self.tell(id, from, when, said);
            Some(())
        });
    }

    fn tell(&self, id: &str, from: u64, when: &str, said: Pushed) {
        self.log.line(&format!("push {id} {from} {} {when} {said:?}", now()));
    }
}

fn sleep_until(at: u64) {
    thread::sleep(Duration::from_nanos(at.saturating_sub(now())));
}

/// Repeats the push until the server confirms it.
fn until_ok(mut push: impl FnMut(u64) -> Option<()>) {
    let from = now();
    while push(now()).is_none() {
        assert!(now() < from + PATIENCE, "the server takes no task");
        thread::sleep(Duration::from_millis(20));
    }
}
