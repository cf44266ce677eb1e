//! A connection for calls, shared by all threads of a client. Calls are executed and answered in the order in which they are written.
//!
//! | mutex | what it guards |
//! |---|---|
//! | `writer` | the end that writes |
//! | `reader` | the end that reads, and what was read of the next reply |
//! | `outbox` | calls that are not written, and what the pump does |
//! | `in_flight` | calls that are written, in the order of their replies |
//!
//! Order of locks: `writer` or `reader`, `outbox`, `in_flight`, then [`Outcomes`]. No thread waits for `writer` while it has the reader: a thread that writes may wait
//! for room in the socket, which is made when replies are read. That is also why `in_flight` is not a part of what `writer` guards.
//!
//! While no other thread reads, a call is written at once by its own thread. Otherwise it is put into the outbox, where calls gather; what is there is
//! written in one packet before the reading_since waits for more bytes. The outbox is written earlier when [`MANY`] calls are in it, or when the reading_since has waited
//! for longer than [`GATHERING`]: no call waits for replies of others over a network.
//!
//! 1. *A call in the outbox is written.* The reading_since writes the outbox before it waits. The thread of a call reads next, or makes sure before it sleeps
//!    that the pump is awake; so does a thread that puts a call there for which no thread waits. The pump does not sleep while the outbox has a call. A thread that cannot writer because another one does says so
//!    (`was_missed`); the other one looks again after it has given `writer` back.
//! 2. *A reply is read while a thread waits for it.* Its thread reads, or another one does, or it sleeps. Before it sleeps it makes sure that the pump is
//!    awake, and says that it sleeps (`is_relied_on`). The pump decides to sleep under the mutex of the outbox, when no thread sleeps that waits for a call
//!    which is in_flight; a packet moves from the outbox to `in_flight` under the same mutex.
//! 3. *A reply goes to its own call.* A call is in_flight before its first byte is written, under `writer`, and replies are given in the order in which they come,
//!    under `reader`. A connection on which that may not hold is never used again: see [`UseGuard`].

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::command::{Abandoned, Command, Outcome, Outcomes, Sending, Wakeup};
use super::ends::{Broken, Ends, Shut, Sink, Source};
use super::framer::{Framer, Garbled};
use super::outbox::{Answered, InFlight, Interest, Outbox};
use crate::clock::{Clock, Tick};
use crate::protocol::script::Call;
use crate::sync::{AtomicBool, AtomicUsize, Condvar, Mutex, MutexGuard};

/// As long as the reading_since has not waited for longer, for each unanswered call, calls gather in the outbox: a server on the same machine answers within that
/// time, and a call that is written sooner waits there.
const GATHERING: Duration = Duration::from_micros(30);

/// An outbox with this many calls is written at once: the server works on them while the replies to others are read.
pub(super) const MANY: usize = 12;

/// A packet that is not longer has no time of its own.
const SMALL: usize = 64 << 10;

/// No thread reads.
const FREE: u64 = 0;
/// The thread that reads does not wait for bytes now.
const AT_WORK: u64 = 1;

/// Is told of what concerns all connections to a server.
pub(crate) trait ReplyObserver: Send + Sync {
    /// The server has answered what was written at that moment.
    fn on_reply(&self, written: Tick);
}

pub(crate) struct Pipe {
    writer: Mutex<WriteHalf>,
    reader: Mutex<ReadHalf>,
    pub(super) outbox: Mutex<Outbox>,
    pub(super) in_flight: Mutex<InFlight>,
    /// The pump sleeps here, with the mutex of the outbox.
    pub(super) wake: Arc<Condvar>,
    /// Whether a thread has the reader ([`FREE`], [`AT_WORK`]), and since when it waits for bytes, in nanoseconds. Only a hint: it decides which thread writes.
    reading_since: AtomicU64,
    /// How many calls are not answered, and since when the first of those that are written, in nanoseconds; zero if there is none. Hints too: they decide
    /// which connection a call goes over, and whether one is late.
    unanswered: AtomicUsize,
    oldest: AtomicU64,
    /// Bytes that were read.
    read: AtomicUsize,
    /// Of no more use. Set before the calls are told so.
    is_closed: AtomicBool,
    shut: Box<dyn Shut>,
    observer: Arc<dyn ReplyObserver>,
    pub(super) clock: Arc<dyn Clock>,
    /// How long a writer may take, and how long the pump waits for bytes at a time.
    pub(super) patience: Duration,
    /// Its place in the pool, given back at the end: threads may hold this for longer, and others are made all the same.
    pool_slot: Mutex<Option<Box<dyn std::any::Any + Send>>>,
}

struct WriteHalf {
    sink: Box<dyn Sink>,
    packet: Vec<u8>,
}

pub(super) struct ReadHalf {
    source: Box<dyn Source>,
    framer: Framer,
}

impl Pipe {
    /// `wait` is the command that asks for replicas behind what is for them; empty if they are not asked.
    pub(crate) fn new(
        ends: Ends,
        observer: Arc<dyn ReplyObserver>,
        clock: Arc<dyn Clock>,
        patience: Duration,
        wait: Vec<u8>,
    ) -> Arc<Pipe> {
        let Ends { sink, source, shut, pool_slot } = ends;
        Arc::new(Pipe {
            writer: Mutex::new(WriteHalf { sink, packet: Vec::new() }),
            reader: Mutex::new(ReadHalf { source, framer: Framer::new() }),
            outbox: Mutex::new(Outbox::default()),
            in_flight: Mutex::new(InFlight::new(wait)),
            wake: Arc::new(Condvar::new()),
            reading_since: AtomicU64::new(FREE),
            unanswered: AtomicUsize::new(0),
            oldest: AtomicU64::new(0),
            read: AtomicUsize::new(0),
            is_closed: AtomicBool::new(false),
            shut,
            observer,
            clock,
            patience,
            pool_slot: Mutex::new(Some(pool_slot)),
        })
    }

    /// The connection is of no more use.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::SeqCst)
    }

    /// How many calls are not answered.
    pub(crate) fn len(&self) -> usize {
        self.unanswered.load(Ordering::Acquire)
    }

    /// A call is written and not answered for so long.
    pub(crate) fn is_late(&self, by: Duration) -> bool {
        let oldest = self.oldest.load(Ordering::Acquire);
        oldest > 0 && self.clock.now().since(Tick::from_nanos(oldest)) >= by
    }

    /// When the call was written that is unanswered for longest, in nanoseconds; zero if there is none.
    pub(crate) fn oldest(&self) -> u64 {
        self.oldest.load(Ordering::Acquire)
    }

    /// To be called under the mutex of what is in_flight, after each change.
    fn update_oldest(&self, in_flight: &InFlight) {
        self.oldest.store(in_flight.oldest().map_or(0, Tick::as_nanos), Ordering::Release);
    }

    /// A release stands behind each acquire that may still be executed, and no call waits to be written: of calls about keys of that group, if one is given.
    pub(crate) fn is_released(&self, group: Option<usize>) -> bool {
        let outbox = self.outbox.lock();
        !outbox.has(group) && self.in_flight.lock().is_released(group)
    }

    /// A call that may set this token is not answered.
    pub(crate) fn may_set(&self, token: &str) -> bool {
        let outbox = self.outbox.lock();
        outbox.may_set(token) || self.in_flight.lock().may_set(token)
    }

    /// A call with the same words is not answered.
    pub(crate) fn has_like(&self, call: &Call) -> bool {
        let outbox = self.outbox.lock();
        outbox.has_like(call) || self.in_flight.lock().has_like(call)
    }

    /// The reading_since has waited for so long that no reply is likely to come at once.
    pub(crate) fn reader_waits(&self) -> bool {
        match self.reading_since.load(Ordering::Relaxed) {
            FREE | AT_WORK => false,
            since => {
                let unanswered = u32::try_from(self.len()).unwrap_or(u32::MAX).max(1);
                self.clock.now().since(Tick::from_nanos(since)) > GATHERING.saturating_mul(unanswered)
            }
        }
    }

    /// A thread reads, and has not waited for long: calls gather.
    fn gathers(&self) -> bool {
        self.reading_since.load(Ordering::Relaxed) != FREE && !self.reader_waits()
    }

    /// Writes the call, or leaves it in the outbox, from where it is written. On a connection that is over it ends at once.
    pub(crate) fn send(self: &Arc<Self>, command: Command) {
        self.unanswered.fetch_add(1, Ordering::AcqRel);
        if !self.gathers()
            && let Some(writer) = self.writer.try_lock()
        {
            if self.outbox.lock().is_empty() {
                return self.send_now(writer, command);
            }
            // Calls in the outbox came before it.
            drop(writer);
            self.flush_missed();
        }
        let is_awaited = command.is_awaited();
        let mut outbox = self.outbox.lock();
        if outbox.is_closed {
            drop(outbox);
            return self.refuse(command);
        }
        outbox.enqueue(command);
        // The thread of a call reads next, or makes sure that the pump is awake.
        if !is_awaited {
            self.wake_pump(&mut outbox);
        }
        let is_enough = outbox.len() >= MANY;
        drop(outbox);
        if is_enough || !self.gathers() {
            self.flush();
        }
    }

    /// Leaves the call in the outbox. [`Pipe::flush`] must follow: so several calls of a thread travel in one packet.
    pub(crate) fn enqueue(self: &Arc<Self>, command: Command) {
        self.unanswered.fetch_add(1, Ordering::AcqRel);
        let mut outbox = self.outbox.lock();
        if outbox.is_closed {
            drop(outbox);
            return self.refuse(command);
        }
        outbox.enqueue(command);
    }

    fn send_now(self: &Arc<Self>, mut writer: MutexGuard<'_, WriteHalf>, command: Command) {
        let in_use = UseGuard::new(self);
        let WriteHalf { sink, packet } = &mut *writer;
        packet.clear();
        let now = self.clock.now();
        let sending = {
            let mut in_flight = self.in_flight.lock();
            // Under the mutex under which the in_flight calls are told of the end.
            if self.is_closed() {
                drop(in_flight);
                in_use.finish(Ok(()));
                return self.refuse(command);
            }
            let sending = in_flight.append(command, packet, now);
            in_flight.complete(packet, now);
            self.update_oldest(&in_flight);
            sending
        };
        let written = sink.write(packet, self.write_by(packet, now));
        // With `writer` locked: behind a part of a packet nothing is written.
        in_use.finish(written);
        drop(writer);
        self.flush_missed();
        if sending == Sending::Unattended {
            self.read_later();
        }
    }

    /// Bodies of tasks need time of their own: as long as they take at the lowest rate at which a server counts as well, 1 Mbit in a second.
    fn write_by(&self, packet: &[u8], now: Tick) -> Tick {
        let bytes = u32::try_from(packet.len().saturating_sub(SMALL)).unwrap_or(u32::MAX);
        now.after(self.patience).after(Duration::from_micros(8).saturating_mul(bytes))
    }

    /// How many bytes were read.
    pub(crate) fn has_read(&self) -> usize {
        self.read.load(Ordering::Relaxed)
    }

    /// Writes what is in the outbox, unless another thread writes: that one looks again.
    pub(crate) fn flush(self: &Arc<Self>) {
        while self.has_unwritten() {
            let writer = self.writer.try_lock().or_else(|| {
                self.outbox.lock().was_missed = true;
                // It may have looked just before.
                self.writer.try_lock()
            });
            let Some(writer) = writer else { return };
            self.write_outbox(writer);
        }
    }

    /// Calls wait to be written. If there are none, none was missed.
    fn has_unwritten(&self) -> bool {
        let mut outbox = self.outbox.lock();
        outbox.was_missed &= !outbox.is_empty();
        !outbox.is_empty()
    }

    fn write_outbox(self: &Arc<Self>, mut writer: MutexGuard<'_, WriteHalf>) {
        let in_use = UseGuard::new(self);
        let WriteHalf { sink, packet } = &mut *writer;
        packet.clear();
        let now = self.clock.now();
        {
            let mut outbox = self.outbox.lock();
            self.take_missed(&mut outbox);
            let mut in_flight = self.in_flight.lock();
            // None is moved once the connection is over: then the outbox is empty, and stays so.
            let refused = outbox.pack(&mut in_flight, packet, now);
            self.unanswered.fetch_sub(refused, Ordering::AcqRel);
            self.update_oldest(&in_flight);
        }
        let written = if packet.is_empty() { Ok(()) } else { sink.write(packet, self.write_by(packet, now)) };
        // With `writer` locked: behind a part of a packet nothing is written.
        in_use.finish(written);
    }

    /// Another thread may have found `writer` locked, and left it to this one to writer.
    fn flush_missed(self: &Arc<Self>) {
        let was_missed = self.take_missed(&mut self.outbox.lock());
        if was_missed {
            self.flush();
        }
    }

    /// The pump does not wait for that: it may sleep by now.
    fn take_missed(self: &Arc<Self>, outbox: &mut Outbox) -> bool {
        let was_missed = std::mem::take(&mut outbox.was_missed);
        if was_missed && !outbox.is_closed {
            self.wake_pump(outbox);
        }
        was_missed
    }

    /// Reads until this call of the thread has its outcome, at most until then. Nothing is read if another thread reads.
    pub(crate) fn read_for(self: &Arc<Self>, outcomes: &Arc<Outcomes>, index: usize, until: Tick) {
        let Some(mut reader) = self.reader.try_lock() else { return };
        self.reading_since.store(AT_WORK, Ordering::Relaxed);
        let mut wakeups = Vec::new();
        while outcomes.is_awaited(index) && !self.is_closed() {
            // Before it waits, the others go on.
            wakeups.extract_if(.., |wakeup: &mut Wakeup| wakeup.is_of_thread()).for_each(Wakeup::notify);
            if !self.read(&mut reader, until, &mut wakeups) && self.clock.now() >= until {
                break;
            }
        }
        self.unlock_reader(reader);
        wakeups.into_iter().for_each(Wakeup::notify);
    }

    /// Writes what is in the outbox, reads once, and gives the replies that have come. False if no bytes have come by then.
    pub(super) fn read(self: &Arc<Self>, reader: &mut ReadHalf, until: Tick, wakeups: &mut Vec<Wakeup>) -> bool {
        self.flush();
        let in_use = UseGuard::new(self);
        self.reading_since.store(self.clock.now().as_nanos(), Ordering::Relaxed);
        let read = reader.source.read(reader.framer.room(), until);
        self.reading_since.store(AT_WORK, Ordering::Relaxed);
        let given = read.and_then(|read| {
            self.read.fetch_add(read, Ordering::Relaxed);
            reader.framer.filled(read);
            self.dispatch(&mut reader.framer, wakeups).map(|()| read > 0)
        });
        in_use.finish(given)
    }

    /// Gives each reply to its call.
    fn dispatch(&self, framer: &mut Framer, wakeups: &mut Vec<Wakeup>) -> Result<(), Broken> {
        let mut heard = None;
        while let Some(reply) =
            framer.take_reply().map_err(|Garbled| Broken::Closed("sent what is no reply of Redis".into()))?
        {
            let answered = {
                let mut in_flight = self.in_flight.lock();
                let answered = in_flight.answer(reply);
                self.update_oldest(&in_flight);
                answered
            };
            let (answered, written) = answered.ok_or_else(|| Broken::Closed("sent a reply to no call".into()))?;
            heard = Some(written);
            let mut end = |command: Command, outcome| {
                self.unanswered.fetch_sub(1, Ordering::AcqRel);
                wakeups.extend(command.complete(outcome));
            };
            match answered {
                Answered::Call(command, reply) => end(command, Outcome::Replied(reply)),
                Answered::Acknowledged(acknowledged) => {
                    acknowledged.into_iter().for_each(|(command, outcome)| end(command, outcome))
                }
                Answered::Nothing => {}
            }
        }
        if let Some(written) = heard {
            self.observer.on_reply(written);
        }
        Ok(())
    }

    /// To be called before a thread sleeps until a call of this connection has its outcome. False if no pump will read and writer for it.
    pub(crate) fn rely_on_pump(self: &Arc<Self>) -> bool {
        let mut outbox = self.outbox.lock();
        outbox.is_relied_on = true;
        let is_there = outbox.is_closed || self.wake_pump(&mut outbox);
        let has_unwritten = !outbox.is_empty();
        drop(outbox);
        if has_unwritten && (!is_there || self.reader_waits()) {
            self.flush();
        }
        is_there
    }

    /// The thread goes without the outcome: see [`Outcomes::give_up`].
    pub(crate) fn give_up(self: &Arc<Self>, outcomes: &Arc<Outcomes>, index: usize, is_release: bool) -> Abandoned {
        let abandoned = outcomes.give_up(index, is_release);
        match abandoned {
            Abandoned::Answered => {}
            Abandoned::Unsent => {
                let removed = self.outbox.lock().remove(outcomes, index);
                self.unanswered.fetch_sub(removed, Ordering::AcqRel);
            }
            Abandoned::Sent | Abandoned::Unacknowledged | Abandoned::WillBeSent => self.read_later(),
        }
        abandoned
    }

    /// The reader to read, once it is free.
    pub(super) fn lock_reader(&self) -> MutexGuard<'_, ReadHalf> {
        let reader = self.reader.lock();
        self.reading_since.store(AT_WORK, Ordering::Relaxed);
        reader
    }

    pub(super) fn unlock_reader(&self, reader: MutexGuard<'_, ReadHalf>) {
        self.reading_since.store(FREE, Ordering::Relaxed);
        drop(reader);
    }

    pub(super) fn interest(&self) -> Interest {
        self.in_flight.lock().interest()
    }

    /// Ends the connection. Each call that is not answered is told so, with whether the server may have it.
    pub(crate) fn close(&self, why: Broken) {
        let why = Arc::new(why);
        let in_flight = {
            let mut in_flight = self.in_flight.lock();
            self.is_closed.store(true, Ordering::SeqCst);
            in_flight.drain()
        };
        let unsent = self.outbox.lock().drain();
        // Moved between the two: nothing, since a packet that is in_flight from now on was begun before, and its writer fails or has failed.
        self.shut.shut();
        drop(self.pool_slot.lock().take());
        self.wake.notify_all();
        let in_flight =
            in_flight.chain(self.in_flight.lock().drain()).map(|command| command.complete(disconnected(true, &why)));
        let ended: Vec<Option<Wakeup>> =
            in_flight.chain(unsent.map(|command| command.complete(disconnected(false, &why)))).collect();
        self.unanswered.fetch_sub(ended.len(), Ordering::AcqRel);
        ended.into_iter().for_each(notify);
    }

    /// The connection is over.
    fn refuse(&self, command: Command) {
        self.unanswered.fetch_sub(1, Ordering::AcqRel);
        notify(command.complete(disconnected(false, &Arc::new(Broken::Closed("connection is gone".into())))));
    }
}

/// A use of one end. The connection is over unless it ends well: a panic on the way counts, too.
struct UseGuard<'a> {
    pipe: &'a Pipe,
    has_ended: bool,
}

impl UseGuard<'_> {
    fn new(pipe: &Pipe) -> UseGuard<'_> {
        UseGuard { pipe, has_ended: false }
    }

    fn finish<T: Default>(mut self, result: Result<T, Broken>) -> T {
        self.has_ended = true;
        result.unwrap_or_else(|why| {
            self.pipe.close(why);
            T::default()
        })
    }
}

impl Drop for UseGuard<'_> {
    fn drop(&mut self) {
        if !self.has_ended {
            self.pipe.close(Broken::Closed("a thread panicked while it used the connection".into()));
        }
    }
}

fn disconnected(was_written: bool, why: &Arc<Broken>) -> Outcome {
    Outcome::Disconnected { was_written, why: Arc::clone(why) }
}

fn notify(wakeups: Option<Wakeup>) {
    wakeups.into_iter().for_each(Wakeup::notify);
}

impl fmt::Debug for Pipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pipe").field("is_closed", &self.is_closed()).finish_non_exhaustive()
    }
}
