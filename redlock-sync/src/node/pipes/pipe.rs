//! A connection for calls, shared by all threads of a client. Calls are executed and answered in the order in which
//! they are written.
//!
//! | mutex | what it guards |
//! |---|---|
//! | `writer` | the writing half |
//! | `reader` | the reading half, and the bytes of the next reply |
//! | `outbox` | calls to be written, and the state of the pump |
//! | `in_flight` | calls that are written, in the order of their replies |
//!
//! Lock order: `writer` or `reader`, then `outbox`, `in_flight`, and [`Outcomes`]. A thread that holds `reader` never
//! waits for `writer`: the writing thread may wait for room in the socket, and only reading makes room. For the same
//! reason `writer` does not guard the calls in flight.
//!
//! While no thread reads, each thread writes its own call at once. A call to a server that is not [`NEAR`] is always
//! written at once. Otherwise calls gather in the outbox, and the reader writes them in one packet before it waits for
//! more bytes. The outbox is written earlier if it holds [`MANY_CALLS`] calls, or if the reader has waited for longer
//! than [`GATHERING`]. So no call waits for a network round trip of other calls.
//!
//! If replicas must acknowledge calls, their packet ends with a `WAIT`. The server executes nothing behind it until it
//! is answered. Meanwhile, further calls that need a `WAIT` stay in the outbox. Other calls are written.
//!
//! 1. *Each call in the outbox is written.* The reader writes the outbox before it waits. If calls must stay there, the
//!    reply to a `WAIT` is due. The next reader after that reply writes them. The thread of a call reads next, or makes
//!    sure that the pump is awake before it sleeps. If no thread waits for a call, the thread that enqueues it wakes
//!    the pump. The pump does not sleep while the outbox has a call. A thread that finds another one writing sets
//!    `was_missed`. The other thread checks that mark after it has unlocked `writer`.
//! 2. *A reply is read while a thread waits for it.* The waiting thread reads, or another one does, or the waiting
//!    thread sleeps. Before it sleeps, it wakes the pump and sets `is_relied_on`. The pump decides to sleep under the
//!    `outbox` mutex, and only if no sleeping thread waits for a call in flight. Calls move from the outbox to
//!    `in_flight` under the same mutex.
//! 3. *Each reply goes to its own call.* A call joins `in_flight` before its first byte is written, under `writer`.
//!    Replies are assigned in the order of arrival, under `reader`. If this order may be violated, the connection is
//!    closed: see [`UseGuard`].

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::command::{Command, Form, Outcome, Outcomes, Progress, Wakeup, Wakeups};
use super::framer::{Framer, Garbled};
use super::halves::{Broken, Halves, Sink, Source};
use super::outbox::{InFlight, Outbox};
use crate::clock::{Clock, Tick};
use crate::protocol::script::{Call, Purpose};
use crate::sync::{AtomicBool, AtomicUsize, Condvar, Mutex, MutexGuard};

/// Calls to a near server gather in the outbox while the reader has waited for less than this, times the number of
/// unanswered calls. The server answers within this time, so a call would not be executed earlier.
const GATHERING: Duration = Duration::from_micros(30);

/// A server is near if it has answered a call within this time. On longer ways, a call that gathers would wait for a
/// reply to another call, and each call is written at once.
const NEAR: Duration = Duration::from_micros(200);

/// An outbox with this many calls is written at once, so that the server works while other replies are read.
pub(super) const MANY_CALLS: usize = 12;

/// No thread reads.
const FREE: u64 = 0;
/// The reading thread is busy, and does not wait for bytes.
const AT_WORK: u64 = 1;

pub(crate) struct Pipe {
    pub(super) writer: Mutex<WriteHalf>,
    reader: Mutex<ReadHalf>,
    pub(super) outbox: Mutex<Outbox>,
    pub(super) in_flight: Mutex<InFlight>,
    /// The pump sleeps on this condition variable, with the `outbox` mutex.
    pub(super) wake: Arc<Condvar>,
    /// The state of the reader: [`FREE`], [`AT_WORK`], or when it began to wait for bytes, in nanoseconds. Only a hint:
    /// it decides which thread writes.
    reading_since: AtomicU64,
    /// The number of unanswered calls, and when the oldest of those in flight was written, in nanoseconds (0 if there
    /// is none). Only hints: they decide which connection a call uses, and whether a connection is late.
    ///
    /// `send` and `enqueue` raise the number. `dispatch`, `give_up`, `close`, `refuse` and `write_outbox` lower it. It
    /// pairs with `Pipe::len`. `update_oldest` stores the time, which pairs with `Pipe::is_late` and `Pipe::oldest`. A
    /// late value is the same as a look a moment earlier.
    pub(super) unanswered: AtomicUsize,
    oldest: AtomicU64,
    /// The shortest time from a write to its reply, in nanoseconds. Only a hint: it decides whether calls gather.
    shortest: AtomicU64,
    /// The number of bytes read.
    read: AtomicUsize,
    /// Set before calls learn that the connection is closed.
    ///
    /// `Pipe::close` sets it after it has given up `pool_slot`. Pairs with `Pipe::is_closed`: a thread that reads true
    /// orders another connection. Otherwise the pool could have no room for that one.
    is_closed: AtomicBool,
    /// Packets can end with a `WAIT`.
    pub(super) asks_replicas: bool,
    shut: Box<dyn Fn() + Send + Sync>,
    /// Called with the time at which the latest answered call was written.
    on_reply: Box<dyn Fn(Tick) + Send + Sync>,
    pub(super) clock: Arc<dyn Clock>,
    /// The node timeout. It limits a write, and each read of the pump.
    pub(super) node_timeout: Duration,
    /// The place in the pool. It is dropped on close, since threads may hold the pipe for longer while the pool makes
    /// another connection.
    pool_slot: Mutex<Option<Box<dyn Any + Send>>>,
}

pub(super) struct WriteHalf {
    pub(super) sink: Box<dyn Sink>,
    pub(super) packet: Vec<u8>,
}

pub(super) struct ReadHalf {
    source: Box<dyn Source>,
    framer: Framer,
}

impl Pipe {
    /// `wait` is the encoded `WAIT` command, or empty if replicas are not asked.
    pub(crate) fn new(
        halves: Halves,
        pool_slot: Box<dyn Any + Send>,
        on_reply: Box<dyn Fn(Tick) + Send + Sync>,
        clock: Arc<dyn Clock>,
        node_timeout: Duration,
        wait: Vec<u8>,
    ) -> Arc<Pipe> {
        let Halves { sink, source, shut } = halves;
        Arc::new(Pipe {
            writer: Mutex::new(WriteHalf { sink, packet: Vec::new() }),
            reader: Mutex::new(ReadHalf { source, framer: Framer::new() }),
            outbox: Mutex::new(Outbox::default()),
            asks_replicas: !wait.is_empty(),
            in_flight: Mutex::new(InFlight::new(wait)),
            wake: Arc::new(Condvar::new()),
            reading_since: AtomicU64::new(FREE),
            unanswered: AtomicUsize::new(0),
            oldest: AtomicU64::new(0),
            shortest: AtomicU64::new(0),
            read: AtomicUsize::new(0),
            is_closed: AtomicBool::new(false),
            shut,
            on_reply,
            clock,
            node_timeout,
            pool_slot: Mutex::new(Some(pool_slot)),
        })
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::SeqCst)
    }

    /// The number of unanswered calls.
    pub(crate) fn len(&self) -> usize {
        self.unanswered.load(Ordering::Acquire)
    }

    /// True if a call in flight has been unanswered for this long.
    pub(crate) fn is_late(&self, by: Duration, now: Tick) -> bool {
        let oldest = self.oldest.load(Ordering::Acquire);
        oldest > 0 && now.since(Tick::from_nanos(oldest)) >= by
    }

    /// When the oldest call in flight was written, in nanoseconds. 0 if there is none. For a `WAIT`, its limit is
    /// added.
    pub(crate) fn oldest(&self) -> u64 {
        self.oldest.load(Ordering::Acquire)
    }

    /// Must be called after each change, while `in_flight` is locked.
    pub(super) fn update_oldest(&self, in_flight: &InFlight) {
        let oldest = in_flight.oldest(self.node_timeout).map_or(0, Tick::as_nanos);
        self.oldest.store(oldest, Ordering::Release);
    }

    /// True if a release follows each acquire in flight, and the outbox is empty. If a group is given, only calls about
    /// its keys count.
    pub(crate) fn is_released(&self, group: Option<usize>) -> bool {
        let outbox = self.outbox.lock();
        !outbox.all().any(|command| command.is_about(group)) && self.in_flight.lock().is_released(group)
    }

    /// True if an unanswered call may set this token.
    pub(crate) fn may_set(&self, token: &str) -> bool {
        self.has_unanswered(|command| command.token(Purpose::Acquire) == Some(token))
    }

    /// True if an identical call is unanswered.
    pub(crate) fn has_like(&self, call: &Call) -> bool {
        self.has_unanswered(|command| command.payload.call.is_like(call))
    }

    /// True if an unanswered call brings the source of this call's script. The server executes that call first.
    pub(crate) fn has_source_of(&self, call: &Call) -> bool {
        self.has_unanswered(|Command { payload, .. }| {
            payload.form == Form::Source && payload.call.script.sha == call.script.sha
        })
    }

    fn has_unanswered(&self, is_it: impl Fn(&Command) -> bool) -> bool {
        let outbox = self.outbox.lock();
        outbox.all().any(&is_it) || self.in_flight.lock().unanswered().any(&is_it)
    }

    /// True if the reader has waited for so long that no reply is expected at once.
    pub(crate) fn reader_waits(&self, now: Tick) -> bool {
        match self.reading_since.load(Ordering::Relaxed) {
            FREE | AT_WORK => false,
            since => {
                let unanswered = u32::try_from(self.len()).unwrap_or(u32::MAX).max(1);
                !self.is_near() || now.since(Tick::from_nanos(since)) > GATHERING.saturating_mul(unanswered)
            }
        }
    }

    /// True if calls gather: a thread reads, and has not waited for long.
    pub(super) fn gathers(&self, now: Tick) -> bool {
        self.reading_since.load(Ordering::Relaxed) != FREE && !self.reader_waits(now)
    }

    fn is_near(&self) -> bool {
        Duration::from_nanos(self.shortest.load(Ordering::Relaxed)) < NEAR
    }

    fn record_round_trip(&self, took: Duration) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX).max(1);
        let shortest = self.shortest.load(Ordering::Relaxed);
        if shortest == 0 || nanos < shortest {
            self.shortest.store(nanos, Ordering::Relaxed);
        }
    }

    pub(crate) fn has_read(&self) -> usize {
        self.read.load(Ordering::Relaxed)
    }

    /// Reads until this call has its outcome, or until the deadline. Returns at once if another thread reads.
    pub(crate) fn read_for(self: &Arc<Self>, outcomes: &Arc<Outcomes>, index: usize, until: Tick) {
        let Some(mut reader) = self.reader.try_lock() else { return };
        self.reading_since.store(AT_WORK, Ordering::Relaxed);
        let mut wakeups = Wakeups::default();
        while outcomes.is_awaited(index) && !self.is_closed() {
            // The threads whose replies have arrived are woken before this one waits.
            wakeups.notify_threads();
            let (has_read, began) = self.read(&mut reader, until, &mut wakeups);
            // A read that began after the deadline took what had already arrived.
            if (!has_read || began >= until) && self.clock.now() >= until {
                break;
            }
        }
        self.unlock_reader(reader);
        wakeups.notify();
    }

    /// Writes the outbox, reads once, and dispatches the replies. Returns whether bytes arrived before the deadline,
    /// and when the read began.
    pub(super) fn read(self: &Arc<Self>, reader: &mut ReadHalf, until: Tick, wakeups: &mut Wakeups) -> (bool, Tick) {
        self.flush();
        let in_use = UseGuard(self);
        let began = self.clock.now();
        self.reading_since.store(began.as_nanos(), Ordering::Relaxed);
        let read = reader.source.read(reader.framer.room(), until);
        self.reading_since.store(AT_WORK, Ordering::Relaxed);
        let given = read.and_then(|read| {
            self.read.fetch_add(read, Ordering::Relaxed);
            reader.framer.filled(read);
            self.dispatch(&mut reader.framer, wakeups).map(|()| read > 0)
        });
        (in_use.finish(given), began)
    }

    /// Passes each reply to its call.
    fn dispatch(&self, framer: &mut Framer, wakeups: &mut Wakeups) -> Result<(), Broken> {
        let mut latest_written = None;
        while let Some(reply) =
            framer.take_reply().map_err(|Garbled| Broken::Closed("sent data that is not a Redis reply".into()))?
        {
            let assigned = {
                let mut in_flight = self.in_flight.lock();
                let assigned = in_flight.assign(reply);
                self.update_oldest(&in_flight);
                assigned
            };
            let none = || Broken::Closed("sent a reply that no call expects".into());
            let (completed, written) = assigned.ok_or_else(none)?;
            latest_written = Some(written);
            for (command, outcome) in completed {
                self.unanswered.fetch_sub(1, Ordering::AcqRel);
                wakeups.add(command.complete(outcome));
            }
        }
        if let Some(written) = latest_written {
            self.record_round_trip(self.clock.now().since(written));
            (self.on_reply)(written);
        }
        Ok(())
    }

    /// Must be called before a thread sleeps until a call has its outcome. Returns false if no pump will write and read
    /// for it.
    pub(crate) fn rely_on_pump(self: &Arc<Self>) -> bool {
        let mut outbox = self.outbox.lock();
        // Pairs with `has_work` in `pump.rs`, which decides to sleep under the same mutex.
        outbox.is_relied_on = true;
        let is_there = outbox.is_closed || self.wake_pump(&mut outbox);
        let has_unwritten = !outbox.is_empty();
        drop(outbox);
        if has_unwritten && (!is_there || self.reader_waits(self.clock.now())) {
            self.flush();
        }
        is_there
    }

    /// Gives up a call: see [`Outcomes::give_up`].
    pub(crate) fn give_up(
        self: &Arc<Self>,
        outcomes: &Arc<Outcomes>,
        index: usize,
        is_release: bool,
    ) -> Option<Progress> {
        let progress = outcomes.give_up(index)?;
        if progress == Progress::Unsent && !is_release {
            let removed = self.outbox.lock().remove(outcomes, index);
            self.unanswered.fetch_sub(removed, Ordering::AcqRel);
        } else {
            self.read_later();
        }
        Some(progress)
    }

    /// Locks the reading half, when it is free.
    pub(super) fn lock_reader(&self) -> MutexGuard<'_, ReadHalf> {
        let reader = self.reader.lock();
        self.reading_since.store(AT_WORK, Ordering::Relaxed);
        reader
    }

    pub(super) fn unlock_reader(&self, reader: MutexGuard<'_, ReadHalf>) {
        self.reading_since.store(FREE, Ordering::Relaxed);
        drop(reader);
    }

    /// Closes the connection. Each unanswered call learns whether the server may have it.
    pub(crate) fn close(&self, why: Broken) {
        // First: a thread that sees `is_closed` orders another connection, and the pool must have room for it then.
        drop(self.pool_slot.lock().take());
        let why = Arc::new(why);
        let (sent, unsent) = {
            // Both are locked. Otherwise a call could move to the emptied `in_flight`. A thread that reads at this
            // moment would give it the reply to an earlier call.
            let (mut outbox, mut in_flight) = (self.outbox.lock(), self.in_flight.lock());
            // Pairs with the check in `send_now` in `writing.rs`: no call joins `in_flight` after the drain.
            self.is_closed.store(true, Ordering::SeqCst);
            let drained = (in_flight.drain(), outbox.drain());
            self.update_oldest(&in_flight);
            drained
        };
        (self.shut)();
        // Both are unlocked. Pairs with `Pipe::has_work`, which reads the outbox under its lock before it sleeps. So no
        // notification is lost.
        self.wake.notify_all();
        let calls = sent.map(|command| (command, true)).chain(unsent.map(|command| (command, false)));
        let end = |(command, was_written): (Command, bool)| {
            self.unanswered.fetch_sub(1, Ordering::AcqRel);
            command.complete(disconnected(was_written, &why))
        };
        let ended: Vec<Option<Wakeup>> = calls.map(end).collect();
        ended.into_iter().flatten().for_each(Wakeup::notify);
    }

    /// Completes a call on a closed connection.
    pub(super) fn refuse(&self, command: Command) {
        self.unanswered.fetch_sub(1, Ordering::AcqRel);
        let why = Arc::new(Broken::Closed("the connection is closed".into()));
        command.complete(disconnected(false, &why)).into_iter().for_each(Wakeup::notify);
    }
}

/// Guards a use of one half. Closes the connection if the use fails or panics.
pub(super) struct UseGuard<'a>(pub(super) &'a Pipe);

impl UseGuard<'_> {
    pub(super) fn finish<T: Default>(self, result: Result<T, Broken>) -> T {
        let pipe = self.0;
        std::mem::forget(self);
        result.unwrap_or_else(|why| {
            pipe.close(why);
            T::default()
        })
    }
}

impl Drop for UseGuard<'_> {
    fn drop(&mut self) {
        self.0.close(Broken::Closed("a thread panicked while it used the connection".into()));
    }
}

fn disconnected(was_written: bool, why: &Arc<Broken>) -> Outcome {
    Outcome::Disconnected { was_written, why: Arc::clone(why) }
}
