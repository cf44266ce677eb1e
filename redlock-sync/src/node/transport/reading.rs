//! How a thread reads from a connection, for itself and for others.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::call_queue::Outcomes;
use super::connection::{Connection, RETRY, Reader, State, UseGuard, Writer, deliver};
use super::framer::{Framer, Garbled};
use super::halves::Broken;
use super::round::Round;
use crate::clock::Tick;
use crate::sync::Condvar;

fn notify(thread: Option<Arc<Condvar>>) {
    if let Some(thread) = thread {
        thread.notify_one();
    }
}

impl Connection {
    pub(super) fn take_reader(&self) -> Option<Reader> {
        self.state.lock().reader.take()
    }

    /// True if another thread has the reading half, or was woken to take it. If the second thread got the half before
    /// that one, that one would have been woken in vain. After an eighth of a node timeout it may.
    fn is_away(&self, state: &State) -> bool {
        let is_recent = |since| self.setting.clock.now().since(since) < self.node_timeout / 8;
        state.reader.is_none() || state.at_work.is_some_and(is_recent)
    }

    /// Takes the reading half. `None` if another thread reads, or shall read and the thread of this round was not woken
    /// to do so.
    pub(super) fn take_reader_for(&self, round: &Round) -> Option<Reader> {
        let mut state = self.state.lock();
        if self.is_away(&state) && !round.is_to_read() { None } else { state.reader.take() }
    }

    /// Reads until the call of this round has its outcome, or until the deadline.
    pub(super) fn read_for(self: &Arc<Self>, round: &Round, index: usize, mut reader: Reader, until: Tick) {
        let mut began = self.setting.clock.now();
        while round.awaits(index) {
            let (has_read, now) = self.read(&mut reader, until);
            // A read that began after the deadline took what had already arrived.
            if (!has_read || began >= until) && now >= until || self.is_closed() {
                break;
            }
            began = now;
        }
        self.bring_back(reader);
    }

    /// Writes what is left, reads once, and delivers the outcomes. Returns whether bytes arrived before the deadline,
    /// and the time.
    pub(super) fn read(self: &Arc<Self>, reader: &mut Reader, until: Tick) -> (bool, Tick) {
        let mut state = self.state.lock();
        state.at_work = None;
        if state.has_unwritten() {
            self.write(state);
            state = self.state.lock();
        }
        let is_stuck = state.writer.as_ref().is_some_and(Writer::has_rest);
        drop(state);
        // While bytes wait for room, they are tried again soon.
        let until = if is_stuck { until.min(self.setting.clock.now().after(RETRY)) } else { until };
        let in_use = UseGuard(self);
        let read = reader.source.read(reader.framer.room(), until);
        let now = self.setting.clock.now();
        let read = in_use.finish(read.and_then(|read| {
            self.read.fetch_add(read, Ordering::Relaxed);
            reader.framer.filled(read);
            self.dispatch(&mut reader.framer, now).map(|()| read)
        }));
        (read > 0, now)
    }

    /// Passes each reply to its call.
    pub(super) fn dispatch(&self, framer: &mut Framer, now: Tick) -> Result<(), Broken> {
        let (mut outcomes, mut latest, mut result) = (Outcomes::new(), None, Ok(()));
        let mut state = self.state.lock();
        state.at_work = Some(now);
        loop {
            match framer.take_reply() {
                Ok(None) => break,
                Ok(Some(reply)) => match state.queue.assign(reply, &mut outcomes) {
                    // The time of a `WAIT` is in the future.
                    Some(sent) => latest = Some(sent.min(now)),
                    None => result = Err(Broken::Closed("sent a reply that no call expects".into())),
                },
                Err(Garbled) => result = Err(Broken::Closed("sent data that is not a Redis reply".into())),
            }
            if result.is_err() {
                break;
            }
        }
        self.note_oldest(&state);
        drop(state);
        if let Some(sent) = latest {
            (self.setting.on_reply)(sent, now);
        }
        deliver(outcomes);
        result
    }

    /// The thread does not read any more. It writes what has gathered, and wakes the thread that reads next.
    pub(super) fn bring_back(self: &Arc<Self>, reader: Reader) {
        let mut state = self.state.lock();
        state.at_work = None;
        if self.is_closed() {
            return;
        }
        state.reader = Some(reader);
        let next = state.next_reader(&*self.setting.clock);
        let has_unwritten = state.has_unwritten();
        drop(state);
        notify(next);
        if has_unwritten {
            self.flush();
        }
    }

    /// Wakes the thread that reads next, if no thread reads.
    pub(super) fn wake_a_reader(&self) {
        let next = self.state.lock().next_reader(&*self.setting.clock);
        notify(next);
    }

    /// Marks that the thread of this call sleeps until another one reads for it. Returns for how long, or `None` if it
    /// can read by itself.
    ///
    /// The thread that reads, or shall read, may get no processor time, while calls wait until it writes them. So the
    /// sleeping thread looks again soon, and writes them itself.
    pub(super) fn may_sleep(self: &Arc<Self>, number: u64) -> Option<Duration> {
        let mut state = self.state.lock();
        if !self.is_away(&state) {
            return None;
        }
        state.queue.mark_asleep(number);
        let longest = self.node_timeout / 8;
        if !state.has_unwritten() {
            return Some(longest);
        }
        if state.is_at_work(self.setting.clock.now()) {
            return Some(longest / 2);
        }
        self.write(state);
        Some(longest)
    }
}
