//! A connection for calls, shared by all threads of a client. Calls are executed and answered in the order in which they are written.
//!
//! | mutex | what it guards |
//! |---|---|
//! | `write` | the end that writes |
//! | `turn` | the end that reads, and what was read of the next reply |
//! | `outbox` | calls that are not written, and what the pump does |
//! | `owed` | calls that are written, in the order of their replies |
//!
//! Order of locks: `write` or `turn`, `outbox`, `owed`, then [`Outcomes`]. No thread waits for `write` while it has the turn: a thread that writes may wait
//! for room in the socket, which is made when replies are read. That is also why `owed` is not a part of what `write` guards.
//!
//! While no other thread reads, a call is written at once by its own thread. Otherwise it is put into the outbox, where calls gather; what is there is
//! written in one packet before the reader waits for more bytes. The outbox is written earlier when [`MANY`] calls are in it, or when the reader has waited
//! for longer than [`GATHERING`]: no call waits for replies of others over a network.
//!
//! 1. *A call in the outbox is written.* The reader writes the outbox before it waits. The thread of a call reads next, or makes sure before it sleeps
//!    that the pump is awake; so does a thread that puts a call there for which no thread waits. The pump does not sleep while the outbox has a call. A thread that cannot write because another one does says so
//!    (`was_missed`); the other one looks again after it has given `write` back.
//! 2. *A reply is read while a thread waits for it.* Its thread reads, or another one does, or it sleeps. Before it sleeps it makes sure that the pump is
//!    awake, and says that it sleeps (`is_relied_on`). The pump decides to sleep under the mutex of the outbox, when no thread sleeps that waits for a call
//!    which is owed; a packet moves from the outbox to `owed` under the same mutex.
//! 3. *A reply goes to its own call.* A call is owed before its first byte is written, under `write`, and replies are given in the order in which they come,
//!    under `turn`. A connection on which that may not hold is never used again: see [`Section`].

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::command::{Abandoned, Command, Outcome, Outcomes, Sending, Wakeup};
use super::ends::{Broken, Ends, Shut, Sink, Source};
use super::framer::{Framer, Garbled};
use super::outbox::{Answered, Interest, Outbox, Owed};
use crate::clock::{Clock, Tick};
use crate::protocol::script::Call;
use crate::sync::{AtomicBool, AtomicUsize, Condvar, Mutex, MutexGuard};

/// As long as the reader has not waited for longer, for each unanswered call, calls gather in the outbox: a server on the same machine answers within that
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
pub(crate) trait Hearer: Send + Sync {
    /// The server has answered what was written at that moment.
    fn heard(&self, written: Tick);
}

pub(crate) struct Pipe {
    write: Mutex<Writing>,
    turn: Mutex<Reading>,
    pub(super) outbox: Mutex<Outbox>,
    pub(super) owed: Mutex<Owed>,
    /// The pump sleeps here, with the mutex of the outbox.
    pub(super) wake: Arc<Condvar>,
    /// Whether a thread has the turn ([`FREE`], [`AT_WORK`]), and since when it waits for bytes, in nanoseconds. Only a hint: it decides which thread writes.
    reader: AtomicU64,
    /// How many calls are not answered, and since when the first of those that are written, in nanoseconds; zero if there is none. Hints too: they decide
    /// which connection a call goes over, and whether one is late.
    unanswered: AtomicUsize,
    oldest: AtomicU64,
    /// Bytes that were read.
    read: AtomicUsize,
    /// Of no more use. Set before the calls are told so.
    is_over: AtomicBool,
    shut: Box<dyn Shut>,
    hearer: Arc<dyn Hearer>,
    pub(super) clock: Arc<dyn Clock>,
    /// How long a write may take, and how long the pump waits for bytes at a time.
    pub(super) patience: Duration,
    /// Its place in the pool, given back at the end: threads may hold this for longer, and others are made all the same.
    keeper: Mutex<Option<Box<dyn std::any::Any + Send>>>,
}

struct Writing {
    sink: Box<dyn Sink>,
    packet: Vec<u8>,
}

pub(super) struct Reading {
    source: Box<dyn Source>,
    framer: Framer,
}

impl Pipe {
    /// `wait` is the command that asks for replicas behind what is for them; empty if they are not asked.
    pub(crate) fn new(
        ends: Ends,
        hearer: Arc<dyn Hearer>,
        clock: Arc<dyn Clock>,
        patience: Duration,
        wait: Vec<u8>,
    ) -> Arc<Pipe> {
        let Ends { sink, source, shut, keeper } = ends;
        Arc::new(Pipe {
            write: Mutex::new(Writing { sink, packet: Vec::new() }),
            turn: Mutex::new(Reading { source, framer: Framer::new() }),
            outbox: Mutex::new(Outbox::default()),
            owed: Mutex::new(Owed::new(wait)),
            wake: Arc::new(Condvar::new()),
            reader: AtomicU64::new(FREE),
            unanswered: AtomicUsize::new(0),
            oldest: AtomicU64::new(0),
            read: AtomicUsize::new(0),
            is_over: AtomicBool::new(false),
            shut,
            hearer,
            clock,
            patience,
            keeper: Mutex::new(Some(keeper)),
        })
    }

    /// The connection is of no more use.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
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

    /// To be called under the mutex of what is owed, after each change.
    fn note_oldest(&self, owed: &Owed) {
        self.oldest.store(owed.oldest().map_or(0, Tick::as_nanos), Ordering::Release);
    }

    /// A release stands behind each acquire that may still be executed, and no call waits to be written: of calls about keys of that group, if one is given.
    pub(crate) fn is_undone(&self, group: Option<usize>) -> bool {
        let outbox = self.outbox.lock();
        !outbox.has(group) && self.owed.lock().is_undone(group)
    }

    /// A call that may set this token is not answered.
    pub(crate) fn may_set(&self, token: &str) -> bool {
        let outbox = self.outbox.lock();
        outbox.may_set(token) || self.owed.lock().may_set(token)
    }

    /// A call with the same words is not answered.
    pub(crate) fn has_like(&self, call: &Call) -> bool {
        let outbox = self.outbox.lock();
        outbox.has_like(call) || self.owed.lock().has_like(call)
    }

    /// The reader has waited for so long that no reply is likely to come at once.
    pub(crate) fn reader_waits(&self) -> bool {
        match self.reader.load(Ordering::Relaxed) {
            FREE | AT_WORK => false,
            since => {
                let unanswered = u32::try_from(self.len()).unwrap_or(u32::MAX).max(1);
                self.clock.now().since(Tick::from_nanos(since)) > GATHERING.saturating_mul(unanswered)
            }
        }
    }

    /// A thread reads, and has not waited for long: calls gather.
    fn gathers(&self) -> bool {
        self.reader.load(Ordering::Relaxed) != FREE && !self.reader_waits()
    }

    /// Writes the call, or leaves it in the outbox, from where it is written. On a connection that is over it ends at once.
    pub(crate) fn send(self: &Arc<Self>, command: Command) {
        self.unanswered.fetch_add(1, Ordering::AcqRel);
        if !self.gathers()
            && let Some(write) = self.write.try_lock()
        {
            if self.outbox.lock().is_empty() {
                return self.send_now(write, command);
            }
            // Calls in the outbox came before it.
            drop(write);
            self.look_again();
        }
        let is_awaited = command.is_awaited();
        let mut outbox = self.outbox.lock();
        if outbox.is_over {
            drop(outbox);
            return self.refuse(command);
        }
        outbox.put(command);
        // The thread of a call reads next, or makes sure that the pump is awake.
        if !is_awaited {
            self.rouse(&mut outbox);
        }
        let is_enough = outbox.len() >= MANY;
        drop(outbox);
        if is_enough || !self.gathers() {
            self.flush();
        }
    }

    /// Leaves the call in the outbox. [`Pipe::flush`] must follow: so several calls of a thread travel in one packet.
    pub(crate) fn put(self: &Arc<Self>, command: Command) {
        self.unanswered.fetch_add(1, Ordering::AcqRel);
        let mut outbox = self.outbox.lock();
        if outbox.is_over {
            drop(outbox);
            return self.refuse(command);
        }
        outbox.put(command);
    }

    fn send_now(self: &Arc<Self>, mut write: MutexGuard<'_, Writing>, command: Command) {
        let section = Section::new(self);
        let Writing { sink, packet } = &mut *write;
        packet.clear();
        let now = self.clock.now();
        let sending = {
            let mut owed = self.owed.lock();
            // Under the mutex under which the owed calls are told of the end.
            if self.is_over() {
                drop(owed);
                section.ended(Ok(()));
                return self.refuse(command);
            }
            let sending = owed.append(command, packet, now);
            owed.complete(packet, now);
            self.note_oldest(&owed);
            sending
        };
        let written = sink.write(packet, self.write_by(packet, now));
        // With `write` locked: behind a part of a packet nothing is written.
        section.ended(written);
        drop(write);
        self.look_again();
        if sending == Sending::Unattended {
            self.tidy();
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
        while self.has_left() {
            let write = self.write.try_lock().or_else(|| {
                self.outbox.lock().was_missed = true;
                // It may have looked just before.
                self.write.try_lock()
            });
            let Some(write) = write else { return };
            self.write_outbox(write);
        }
    }

    /// Calls wait to be written. If there are none, none was missed.
    fn has_left(&self) -> bool {
        let mut outbox = self.outbox.lock();
        outbox.was_missed &= !outbox.is_empty();
        !outbox.is_empty()
    }

    fn write_outbox(self: &Arc<Self>, mut write: MutexGuard<'_, Writing>) {
        let section = Section::new(self);
        let Writing { sink, packet } = &mut *write;
        packet.clear();
        let now = self.clock.now();
        {
            let mut outbox = self.outbox.lock();
            self.was_missed(&mut outbox);
            let mut owed = self.owed.lock();
            // None is moved once the connection is over: then the outbox is empty, and stays so.
            let refused = outbox.pack(&mut owed, packet, now);
            self.unanswered.fetch_sub(refused, Ordering::AcqRel);
            self.note_oldest(&owed);
        }
        let written = if packet.is_empty() { Ok(()) } else { sink.write(packet, self.write_by(packet, now)) };
        // With `write` locked: behind a part of a packet nothing is written.
        section.ended(written);
    }

    /// Another thread may have found `write` locked, and left it to this one to write.
    fn look_again(self: &Arc<Self>) {
        let was_missed = self.was_missed(&mut self.outbox.lock());
        if was_missed {
            self.flush();
        }
    }

    /// The pump does not wait for that: it may sleep by now.
    fn was_missed(self: &Arc<Self>, outbox: &mut Outbox) -> bool {
        let was_missed = std::mem::take(&mut outbox.was_missed);
        if was_missed && !outbox.is_over {
            self.rouse(outbox);
        }
        was_missed
    }

    /// Reads until this call of the thread has its outcome, at most until then. Nothing is read if another thread reads.
    pub(crate) fn read_for(self: &Arc<Self>, outcomes: &Arc<Outcomes>, index: usize, until: Tick) {
        let Some(mut turn) = self.turn.try_lock() else { return };
        self.reader.store(AT_WORK, Ordering::Relaxed);
        let mut wakeups = Vec::new();
        while outcomes.is_awaited(index) && !self.is_over() {
            // Before it waits, the others go on.
            wakeups.extract_if(.., |wakeup: &mut Wakeup| wakeup.is_of_thread()).for_each(Wakeup::notify);
            if !self.read(&mut turn, until, &mut wakeups) && self.clock.now() >= until {
                break;
            }
        }
        self.give_back(turn);
        wakeups.into_iter().for_each(Wakeup::notify);
    }

    /// Writes what is in the outbox, reads once, and gives the replies that have come. False if no bytes have come by then.
    pub(super) fn read(self: &Arc<Self>, turn: &mut Reading, until: Tick, wakeups: &mut Vec<Wakeup>) -> bool {
        self.flush();
        let section = Section::new(self);
        self.reader.store(self.clock.now().as_nanos(), Ordering::Relaxed);
        let read = turn.source.read(turn.framer.room(), until);
        self.reader.store(AT_WORK, Ordering::Relaxed);
        let given = read.and_then(|read| {
            self.read.fetch_add(read, Ordering::Relaxed);
            turn.framer.filled(read);
            self.give(&mut turn.framer, wakeups).map(|()| read > 0)
        });
        section.ended(given)
    }

    /// Gives each reply to its call.
    fn give(&self, framer: &mut Framer, wakeups: &mut Vec<Wakeup>) -> Result<(), Broken> {
        let mut heard = None;
        while let Some(reply) =
            framer.take_reply().map_err(|Garbled| Broken::Cut("sent what is no reply of Redis".into()))?
        {
            let answered = {
                let mut owed = self.owed.lock();
                let answered = owed.answer(reply);
                self.note_oldest(&owed);
                answered
            };
            let (answered, written) = answered.ok_or_else(|| Broken::Cut("sent a reply to no call".into()))?;
            heard = Some(written);
            let mut end = |command: Command, outcome| {
                self.unanswered.fetch_sub(1, Ordering::AcqRel);
                wakeups.extend(command.end(outcome));
            };
            match answered {
                Answered::Call(command, reply) => end(command, Outcome::Replied(reply)),
                Answered::Held(held) => held.into_iter().for_each(|(command, outcome)| end(command, outcome)),
                Answered::Nothing => {}
            }
        }
        if let Some(written) = heard {
            self.hearer.heard(written);
        }
        Ok(())
    }

    /// To be called before a thread sleeps until a call of this connection has its outcome. False if no pump will read and write for it.
    pub(crate) fn rely_on_pump(self: &Arc<Self>) -> bool {
        let mut outbox = self.outbox.lock();
        outbox.is_relied_on = true;
        let is_there = outbox.is_over || self.rouse(&mut outbox);
        let is_left = !outbox.is_empty();
        drop(outbox);
        if is_left && (!is_there || self.reader_waits()) {
            self.flush();
        }
        is_there
    }

    /// The thread goes without the outcome: see [`Outcomes::leave`].
    pub(crate) fn leave(self: &Arc<Self>, outcomes: &Arc<Outcomes>, index: usize, is_release: bool) -> Abandoned {
        let abandoned = outcomes.leave(index, is_release);
        match abandoned {
            Abandoned::Answered => {}
            Abandoned::Unsent => {
                let removed = self.outbox.lock().remove(outcomes, index);
                self.unanswered.fetch_sub(removed, Ordering::AcqRel);
            }
            Abandoned::Sent | Abandoned::Unacknowledged | Abandoned::WillBeSent => self.tidy(),
        }
        abandoned
    }

    /// The turn to read, once it is free.
    pub(super) fn turn(&self) -> MutexGuard<'_, Reading> {
        let turn = self.turn.lock();
        self.reader.store(AT_WORK, Ordering::Relaxed);
        turn
    }

    pub(super) fn give_back(&self, turn: MutexGuard<'_, Reading>) {
        self.reader.store(FREE, Ordering::Relaxed);
        drop(turn);
    }

    pub(super) fn interest(&self) -> Interest {
        self.owed.lock().interest()
    }

    /// Ends the connection. Each call that is not answered is told so, with whether the server may have it.
    pub(crate) fn end(&self, why: Broken) {
        let why = Arc::new(why);
        let owed = {
            let mut owed = self.owed.lock();
            self.is_over.store(true, Ordering::SeqCst);
            owed.end()
        };
        let unsent = self.outbox.lock().end();
        // Moved between the two: nothing, since a packet that is owed from now on was begun before, and its writer fails or has failed.
        self.shut.shut();
        drop(self.keeper.lock().take());
        self.wake.notify_all();
        let owed = owed.chain(self.owed.lock().end()).map(|command| command.end(cut(true, &why)));
        let ended: Vec<Option<Wakeup>> = owed.chain(unsent.map(|command| command.end(cut(false, &why)))).collect();
        self.unanswered.fetch_sub(ended.len(), Ordering::AcqRel);
        ended.into_iter().for_each(notify);
    }

    /// The connection is over.
    fn refuse(&self, command: Command) {
        self.unanswered.fetch_sub(1, Ordering::AcqRel);
        notify(command.end(cut(false, &Arc::new(Broken::Cut("connection is gone".into())))));
    }
}

/// A use of one end. The connection is over unless it ends well: a panic on the way counts, too.
struct Section<'a> {
    pipe: &'a Pipe,
    has_ended: bool,
}

impl Section<'_> {
    fn new(pipe: &Pipe) -> Section<'_> {
        Section { pipe, has_ended: false }
    }

    fn ended<T: Default>(mut self, result: Result<T, Broken>) -> T {
        self.has_ended = true;
        result.unwrap_or_else(|why| {
            self.pipe.end(why);
            T::default()
        })
    }
}

impl Drop for Section<'_> {
    fn drop(&mut self) {
        if !self.has_ended {
            self.pipe.end(Broken::Cut("a thread panicked while it used the connection".into()));
        }
    }
}

fn cut(was_written: bool, why: &Arc<Broken>) -> Outcome {
    Outcome::Cut { was_written, why: Arc::clone(why) }
}

fn notify(wakeups: Option<Wakeup>) {
    wakeups.into_iter().for_each(Wakeup::notify);
}

impl fmt::Debug for Pipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pipe").field("is_over", &self.is_over()).finish_non_exhaustive()
    }
}
