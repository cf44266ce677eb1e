//! How calls are written: by their own threads, or from the outbox. `pipe.rs` states the lock order and the argument.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::command::Command;
use super::outbox::Outbox;
use super::pipe::{MANY_CALLS, Pipe, UseGuard, WriteHalf};
use crate::clock::Tick;
use crate::sync::MutexGuard;

/// A packet up to this size gets no extra time.
const SMALL: usize = 64 << 10;

/// How long this many bytes take at 1 Mbit/s, the lowest rate at which a server counts as healthy.
pub(crate) fn time_at_lowest_rate(bytes: usize) -> Duration {
    Duration::from_micros(8).saturating_mul(u32::try_from(bytes).unwrap_or(u32::MAX))
}

impl Pipe {
    /// Writes the call, or leaves it in the outbox for another thread. If the connection is closed, the call is
    /// completed at once.
    pub(crate) fn send(self: &Arc<Self>, command: Command) {
        self.unanswered.fetch_add(1, Ordering::AcqRel);
        let (is_awaited, now) = (command.is_awaited(), self.clock.now());
        if !self.gathers(now)
            && let Some(writer) = self.writer.try_lock()
        {
            if self.outbox.lock().is_empty() && self.can_write(&command) {
                self.send_now(writer, command, now);
                if !is_awaited {
                    self.read_later();
                }
                return;
            }
            // Calls in the outbox are older and must be written first. Or this call must wait in the outbox.
            drop(writer);
            self.flush_missed();
        }
        let mut outbox = self.outbox.lock();
        if outbox.is_closed {
            drop(outbox);
            return self.refuse(command);
        }
        outbox.enqueue(command);
        // An awaited call needs no wake-up here: its thread reads next, or wakes the pump before it sleeps.
        if !is_awaited {
            self.wake_pump(&mut outbox);
        }
        let is_enough = outbox.len() >= MANY_CALLS;
        drop(outbox);
        if is_enough || !self.gathers(self.clock.now()) {
            self.flush();
        }
    }

    /// Leaves the call in the outbox, so that several calls of a thread travel in one packet. [`Pipe::flush`] must
    /// follow.
    pub(crate) fn enqueue(self: &Arc<Self>, command: Command) {
        self.unanswered.fetch_add(1, Ordering::AcqRel);
        let mut outbox = self.outbox.lock();
        if outbox.is_closed {
            drop(outbox);
            return self.refuse(command);
        }
        outbox.enqueue(command);
    }

    /// `now` was read before `writer` was locked. So the call in front can have a later time, and `complete_late` then
    /// tells of this call with the one in front.
    fn send_now(self: &Arc<Self>, mut writer: MutexGuard<'_, WriteHalf>, command: Command, now: Tick) {
        let in_use = UseGuard(self);
        let WriteHalf { sink, packet } = &mut *writer;
        packet.clear();
        {
            let mut in_flight = self.in_flight.lock();
            // Pairs with `close` in `pipe.rs`, which sets this and drains `in_flight` under the same mutex.
            if self.is_closed() {
                drop(in_flight);
                in_use.finish(Ok(()));
                return self.refuse(command);
            }
            // The thread of the call is this one, so it has not given it up.
            in_flight.append(command, packet, now);
            in_flight.complete(packet, now);
            self.update_oldest(&in_flight);
        }
        let written = sink.write(packet, self.write_by(packet, now));
        // `writer` is still locked, so nothing is written after a partial packet.
        in_use.finish(written);
        // First unlock, then check the mark. In the other order a call could stay in the outbox: pairs with `flush`.
        drop(writer);
        self.flush_missed();
    }

    /// The deadline of a write. Large packets get extra time.
    fn write_by(&self, packet: &[u8], now: Tick) -> Tick {
        now.after(self.node_timeout).after(time_at_lowest_rate(packet.len().saturating_sub(SMALL)))
    }

    /// Writes the outbox. If another thread is writing, that thread checks the outbox again.
    pub(crate) fn flush(self: &Arc<Self>) {
        while self.has_unwritten() {
            let writer = self.writer.try_lock().or_else(|| {
                // Pairs with `take_missed`, which a writing thread calls after it has unlocked `writer`.
                self.outbox.lock().was_missed = true;
                // That thread may have checked the mark just before it was set, so this one tries again.
                self.writer.try_lock()
            });
            let Some(writer) = writer else { return };
            self.write_outbox(writer);
        }
    }

    /// True if calls in the outbox can be written now. If not, clears the mark. The pump may sleep because the mark was
    /// set, so it is woken if calls are left.
    fn has_unwritten(self: &Arc<Self>) -> bool {
        let mut outbox = self.outbox.lock();
        outbox.was_missed &= !outbox.is_empty();
        let can_write = !outbox.is_empty() && (!self.asks_replicas || outbox.has_next(&self.in_flight.lock()));
        if !can_write {
            self.take_missed(&mut outbox);
        }
        can_write
    }

    /// True if the call need not wait for the answer to a `WAIT`.
    fn can_write(&self, command: &Command) -> bool {
        !self.asks_replicas || self.in_flight.lock().accepts(command)
    }

    fn write_outbox(self: &Arc<Self>, mut writer: MutexGuard<'_, WriteHalf>) {
        let in_use = UseGuard(self);
        let WriteHalf { sink, packet } = &mut *writer;
        packet.clear();
        let now = self.clock.now();
        {
            let mut outbox = self.outbox.lock();
            self.take_missed(&mut outbox);
            let mut in_flight = self.in_flight.lock();
            // On a closed connection the outbox is empty, and stays so.
            let refused = outbox.pack(&mut in_flight, packet, now);
            self.unanswered.fetch_sub(refused, Ordering::AcqRel);
            self.update_oldest(&in_flight);
        }
        let written = if packet.is_empty() { Ok(()) } else { sink.write(packet, self.write_by(packet, now)) };
        // `writer` is still locked, so nothing is written after a partial packet.
        in_use.finish(written);
    }

    /// Writes the outbox if another thread found `writer` locked.
    fn flush_missed(self: &Arc<Self>) {
        let was_missed = self.take_missed(&mut self.outbox.lock());
        if was_missed {
            self.flush();
        }
    }

    /// Clears the mark, and wakes the pump if the mark was set: the pump may have gone to sleep because of it.
    fn take_missed(self: &Arc<Self>, outbox: &mut Outbox) -> bool {
        let was_missed = std::mem::take(&mut outbox.was_missed);
        if was_missed && !outbox.is_closed {
            self.wake_pump(outbox);
        }
        was_missed
    }
}
