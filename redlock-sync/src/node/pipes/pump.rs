//! The pump: a thread that writes and reads for sleeping threads, and for calls for which no thread waits.
//!
//! A single thread on a connection writes and reads by itself. So the pump is started when it is needed, and ends after
//! it was idle for a while. If the system cannot start a thread, each caller checks its own call every
//! [`WITHOUT_PUMP`](super::waiting).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use super::command::{Command, Wakeup, Wakeups};
use super::halves::Broken;
use super::outbox::{Interest, Outbox, Pump};
use super::pipe::Pipe;
use crate::clock::Tick;

/// An idle pump ends after this time.
const IDLE: Duration = Duration::from_secs(10);
/// A reply for which no thread waits is mostly read by the next call. After this time the pump reads it.
const NAP: Duration = Duration::from_millis(20);

impl Pipe {
    /// Makes sure that the pump runs and is awake. Returns false if no thread can be started.
    pub(super) fn wake_pump(self: &Arc<Self>, outbox: &mut Outbox) -> bool {
        match outbox.pump {
            Pump::Awake => {}
            Pump::Asleep | Pump::Napping => {
                outbox.pump = Pump::Awake;
                self.wake.notify_one();
            }
            // The outbox is locked, so no thread can rely on a pump that failed to start.
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
        // Not `handler::caught`: handlers do not run here, and each observer is caught by itself.
        if catch_unwind(AssertUnwindSafe(run)).is_err() {
            self.close(Broken::Closed("the thread that reads the replies panicked".into()));
        }
    }

    /// Sleeps until there is work. Returns false if the pump should end.
    fn has_work(&self) -> bool {
        let mut outbox = self.outbox.lock();
        let end = self.clock.now().after(IDLE);
        let mut has_napped = false;
        loop {
            let interest = self.in_flight.lock().interest();
            outbox.is_relied_on &= interest == Interest::Awaited || !outbox.is_empty();
            let is_due =
                outbox.is_relied_on && interest == Interest::Awaited || has_napped && interest == Interest::Unattended;
            // If a write was missed, the thread that is writing flushes the outbox, or wakes the pump.
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

    /// Writes the outbox and reads once. Another thread may read before the next call of this.
    fn work(self: &Arc<Self>) {
        let mut wakeups = Wakeups::default();
        let mut reader = self.lock_reader();
        self.flush();
        // Another thread may have read the reply, or may have given its call up before it was written.
        if self.in_flight.lock().interest() != Interest::None {
            let until = self.clock.now().after(self.node_timeout);
            self.read(&mut reader, until, &mut wakeups);
        }
        // Threads are woken while the reader is still locked, so that their next calls gather in the outbox.
        wakeups.notify_threads();
        self.unlock_reader(reader);
        wakeups.notify();
        let now = self.clock.now();
        if self.is_late(self.node_timeout, now) {
            let late = self.in_flight.lock().complete_late(now.before(self.node_timeout));
            late.into_iter().for_each(Wakeup::notify);
        }
    }

    /// Has the pump read a reply for which no thread waits. In memory the reply is already there.
    pub(super) fn read_later(self: &Arc<Self>) {
        if self.node_timeout == Duration::MAX {
            return self.finish(self.clock.now());
        }
        let mut outbox = self.outbox.lock();
        if outbox.pump != Pump::Napping && !outbox.is_closed {
            self.wake_pump(&mut outbox);
        }
    }

    /// Sends and receives what no thread waits for, when the client ends. Calls unanswered at the deadline are late.
    pub(crate) fn finish(self: &Arc<Self>, until: Tick) {
        while self.has_unattended() {
            let mut wakeups = Wakeups::default();
            // The pump may hold it, for at most a node timeout.
            let mut reader = self.lock_reader();
            if self.has_unattended() {
                self.read(&mut reader, until, &mut wakeups);
            }
            self.unlock_reader(reader);
            wakeups.notify();
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
