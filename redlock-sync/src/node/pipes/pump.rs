//! The thread that writes and reads for others: for threads that sleep, and for calls for which no thread waits.
//!
//! A thread alone on a connection needs none: it writes and reads itself. So the pump is started when it is needed, and ends when it was idle for a while.
//! Where the system starts no thread, callers look after their calls themselves, every [`WITHOUT_PUMP`](super::waiting).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use super::command::{Command, Wakeup};
use super::ends::Broken;
use super::outbox::{Interest, Outbox, Pump};
use super::pipe::Pipe;
use crate::clock::Tick;

/// An idle pump ends after that.
const IDLE: Duration = Duration::from_secs(10);
/// Replies for which no thread waits are mostly read by the next call. After that time the pump reads them.
const NAP: Duration = Duration::from_millis(20);

impl Pipe {
    /// Makes sure that there is a pump which is awake. False if no thread can be started.
    pub(super) fn wake_pump(self: &Arc<Self>, outbox: &mut Outbox) -> bool {
        match outbox.pump {
            Pump::Awake => {}
            Pump::Asleep | Pump::Napping => {
                outbox.pump = Pump::Awake;
                self.wake.notify_one();
            }
            // Under the mutex: no thread relies on a pump that does not come.
            Pump::Absent => {
                let pipe = Arc::clone(self);
                if self.clock.start("redlock-pump", Box::new(move || pipe.pump())).is_err() {
                    return false;
                }
                outbox.pump = Pump::Awake;
            }
        }
        true
    }

    fn pump(self: Arc<Self>) {
        let run = || {
            while self.has_work() {
                self.work();
            }
        };
        if catch_unwind(AssertUnwindSafe(run)).is_err() {
            self.close(Broken::Closed("the thread that reads for others panicked".into()));
        }
    }

    /// Sleeps until there is work. False if the pump shall end.
    fn has_work(&self) -> bool {
        let mut outbox = self.outbox.lock();
        let end = self.clock.now().after(IDLE);
        let mut has_napped = false;
        loop {
            let interest = self.interest();
            outbox.is_relied_on &= interest == Interest::Awaited || !outbox.is_empty();
            let is_due =
                outbox.is_relied_on && interest == Interest::Awaited || has_napped && interest == Interest::Unattended;
            // What was missed is written by another thread, which wakes the pump.
            let has_unwritten = !outbox.is_empty() && !outbox.was_missed;
            if !outbox.is_closed && (is_due || has_unwritten) {
                outbox.pump = Pump::Awake;
                return true;
            }
            let now = self.clock.now();
            if outbox.is_closed || interest == Interest::None && now >= end {
                outbox.pump = Pump::Absent;
                return false;
            }
            let naps = interest != Interest::None;
            let until = if naps { now.after(NAP) } else { end };
            outbox.pump = if naps { Pump::Napping } else { Pump::Asleep };
            self.clock.idle_until(&self.wake, &mut outbox, until);
            has_napped = outbox.pump == Pump::Napping && self.clock.now() >= until;
        }
    }

    /// Writes what is there, and reads once. Between two reads another thread may take the reader.
    fn work(self: &Arc<Self>) {
        let mut wakeups = Vec::new();
        let mut reader = self.lock_reader();
        self.flush();
        // What was due may have been read by the last thread that had the reader, or its thread has gone before it was written.
        if self.interest() != Interest::None {
            let until = self.clock.now().after(self.patience);
            self.read(&mut reader, until, &mut wakeups);
        }
        // While it wakes them, their next calls gather.
        wakeups.extract_if(.., |wakeup: &mut Wakeup| wakeup.is_of_thread()).for_each(Wakeup::notify);
        self.unlock_reader(reader);
        wakeups.into_iter().for_each(Wakeup::notify);
        if self.is_late(self.patience) {
            let late = self.in_flight.lock().complete_late(self.clock.now().before(self.patience));
            late.into_iter().for_each(Wakeup::notify);
        }
    }

    /// A reply will come for which no thread waits: the pump shall look after it. In memory it has come.
    pub(super) fn read_later(self: &Arc<Self>) {
        if self.patience == Duration::MAX {
            return self.finish(self.clock.now());
        }
        let mut outbox = self.outbox.lock();
        if outbox.pump != Pump::Napping && !outbox.is_closed {
            self.wake_pump(&mut outbox);
        }
    }

    /// Writes and reads what no thread waits for, at most until then, for a client that ends. What is unanswered then is late.
    pub(crate) fn finish(self: &Arc<Self>, until: Tick) {
        while self.has_unattended() {
            let mut wakeups = Vec::new();
            // The pump may have it, which began to read before, and does so for a node timeout at most.
            let mut reader = self.lock_reader();
            if self.has_unattended() {
                self.read(&mut reader, until, &mut wakeups);
            }
            self.unlock_reader(reader);
            wakeups.into_iter().for_each(Wakeup::notify);
            if self.clock.now() >= until {
                let late = {
                    let outbox = self.outbox.lock();
                    let mut late = self.in_flight.lock().complete_late(Tick::NEVER);
                    late.extend(outbox.all().filter_map(Command::complete_late));
                    late
                };
                return late.into_iter().for_each(Wakeup::notify);
            }
        }
    }

    fn has_unattended(&self) -> bool {
        let outbox = self.outbox.lock();
        !outbox.is_closed
            && (outbox.all().any(Command::is_abandoned) || self.in_flight.lock().all().any(Command::is_abandoned))
    }
}
