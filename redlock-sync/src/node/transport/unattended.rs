//! Calls for which no thread waits: those of dropped guards, and those that were given up.

use std::sync::Arc;
use std::time::Duration;

use super::call_queue::Progress;
use super::connection::{Connection, RETRY};
use super::drain::Drained;
use super::round::Recipient;
use crate::clock::Tick;

/// A reply for which no thread waits is mostly read by the next call. After this time the drain thread reads it.
const NAP: Duration = Duration::from_millis(20);
/// The same if the reply can bring what the client has to publish.
const SHORT_NAP: Duration = Duration::from_millis(1);

impl Connection {
    /// The thread of this call has given it up. Its reply is still read. Returns how far the call has come. If it was
    /// not written, it is not sent any more, unless it is a release.
    pub(crate) fn abandon(self: &Arc<Self>, number: u64) -> Progress {
        let progress = self.state.lock().queue.abandon(number);
        self.look_after(number);
        progress
    }

    /// Makes sure that the reply to a call is read for which no thread waits.
    pub(super) fn look_after(self: &Arc<Self>, number: u64) {
        if self.node_timeout == Duration::MAX {
            // In memory the reply is already there.
            self.read_available();
            return;
        }
        let mut state = self.state.lock();
        if !state.queue.has(number) || std::mem::replace(&mut state.is_drained, true) {
            return;
        }
        drop(state);
        let nap = if self.setting.drain.is_eager() { SHORT_NAP } else { NAP.min(self.node_timeout / 8) };
        let soon = self.setting.clock.now().after(nap);
        if !self.setting.drain.look_after(&(Arc::clone(self) as Arc<dyn Drained>), soon) {
            // The system starts no thread, so this one waits for the reply.
            self.state.lock().is_drained = false;
            self.read_unattended(self.setting.clock.now().after(self.node_timeout));
        }
    }

    /// Reads what has arrived, without waiting. Returns false if another thread reads.
    pub(super) fn read_available(self: &Arc<Self>) -> bool {
        let Some(mut reader) = self.take_reader() else { return false };
        while self.read(&mut reader, Tick::ZERO).0 && !self.is_closed() {}
        self.bring_back(reader);
        true
    }

    /// Reads replies for which no thread waits, until the deadline at most.
    pub(super) fn read_unattended(self: &Arc<Self>, until: Tick) {
        let Some(mut reader) = self.take_reader() else { return };
        while self.state.lock().queue.has_unattended() && !self.is_closed() && self.read(&mut reader, until).1 < until {
        }
        self.bring_back(reader);
    }

    /// After what time to look again for the reply to the oldest call.
    fn pause(&self, oldest: Option<Tick>, now: Tick) -> Duration {
        let usual = self.node_timeout / 8;
        match oldest {
            // Each pause is as long as the wait so far, so a server that hangs is not asked all the time.
            Some(sent) if self.setting.drain.is_eager() => now.since(sent).max(SHORT_NAP).min(usual),
            _ => usual,
        }
    }

    /// True if a callback waits for an outcome, or may just be called: by a thread that works on replies, or by one
    /// that closes the connection.
    pub(crate) fn has_callbacks(&self) -> bool {
        let state = self.state.lock();
        let is_at_work = state.reader.is_none() && state.at_work.is_some();
        state.closed.is_none() && (is_at_work || self.is_closed() || state.queue.has_callbacks())
    }

    /// The client ends. Tells the callbacks that no reply came in time.
    pub(crate) fn give_up_callbacks(&self) {
        let silent = self.state.lock().queue.take_callbacks(Tick::NEVER);
        tell_late(silent);
    }
}

fn tell_late(silent: Vec<Recipient>) {
    for to in silent {
        if let Recipient::Callback(callback) = to {
            callback(None);
        }
    }
}

impl Drained for Connection {
    fn tend(self: Arc<Self>) -> Option<Tick> {
        // If another thread reads, replies may have arrived that it has not handled yet.
        let patience = if self.read_available() { self.node_timeout } else { self.node_timeout * 2 };
        self.write(self.state.lock());
        let now = self.setting.clock.now();
        let mut state = self.state.lock();
        let silent = state.queue.take_callbacks(now.before(patience));
        let again = if self.is_closed() {
            None
        } else if state.has_unwritten() {
            Some(now.after(RETRY))
        } else {
            state.queue.has_unattended().then(|| now.after(self.pause(state.queue.oldest(), now)))
        };
        state.is_drained = again.is_some();
        drop(state);
        tell_late(silent);
        again
    }
}
