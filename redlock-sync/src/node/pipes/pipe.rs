//! A connection for calls, shared by all threads of a client. Calls are executed and answered in the order in which they are written.
//!
//! | mutex | what it guards |
//! |---|---|
//! | `write` | the end that writes |
//! | `turn` | the end that reads, and what was read of the next reply |
//! | `outbox` | calls that are not written, and what the pump does |
//! | `owed` | calls that are written, in the order of their replies |
//!
//! Order of locks: `write` or `turn`, `outbox`, `owed`, then a [`Trip`]. No thread waits for `write` while it has the turn: a thread that writes may wait
//! for room in the socket, which is made when replies are read. That is also why `owed` is not a part of what `write` guards.
//!
//! A call is written at once by its own thread where that is possible. Otherwise it is put into the outbox, where calls gather while another thread
//! reads; what is there is written in one packet before that thread waits for more bytes. Once the reader has waited for longer than [`GATHERING`], a call
//! that comes is written at once: no call waits for replies of others over a network.
//!
//! 1. *A call in the outbox is written.* The reader writes the outbox before it waits. A thread that puts a call there, and one that goes to sleep, make
//!    sure that the pump is awake, and the pump does not sleep while the outbox has a call. A thread that cannot write because another one does says so
//!    (`was_missed`); the other one looks again after it has given `write` back.
//! 2. *A reply is read while a thread waits for it.* Its thread reads, or another one does, or it sleeps. Before it sleeps it makes sure that the pump is
//!    awake. The pump decides to sleep under the mutex of the outbox, when no thread waits for any call that is owed; a packet moves from the outbox to
//!    `owed` under the same mutex.
//! 3. *A reply goes to its own call.* A call is owed before its first byte is written, under `write`, and replies are given in the order in which they come,
//!    under `turn`. A connection on which that may not hold is never used again: see [`Section`].

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::ends::{Broken, Ends, Shut, Sink, Source};
use super::flight::{Boarding, Flight, News, Outcome, Parting, Trip};
use super::framer::{Framer, Garbled};
use super::outbox::{Interest, Outbox, Owed, Pump};
use crate::clock::{Clock, Tick};
use crate::sync::{AtomicBool, Condvar, Mutex, MutexGuard};

/// As long as the reader has not waited for longer, calls gather in the outbox: on one machine the next replies come within that time.
const GATHERING: Duration = Duration::from_micros(30);

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
    /// Since when the reader waits for bytes, in nanoseconds; zero while it does not. Only a hint: it decides which thread writes.
    waits_since: AtomicU64,
    /// Of no more use. Set before the calls are told so.
    is_over: AtomicBool,
    shut: Box<dyn Shut>,
    hearer: Arc<dyn Hearer>,
    pub(super) clock: Arc<dyn Clock>,
    /// How long a write may take, and how long the pump waits for bytes at a time.
    pub(super) patience: Duration,
    /// Dropped last, when no thread uses the connection any more.
    _keeper: Mutex<Box<dyn std::any::Any + Send>>,
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
    pub(crate) fn new(ends: Ends, hearer: Arc<dyn Hearer>, clock: Arc<dyn Clock>, patience: Duration) -> Arc<Pipe> {
        let Ends { sink, source, shut, keeper } = ends;
        Arc::new(Pipe {
            write: Mutex::new(Writing { sink, packet: Vec::new() }),
            turn: Mutex::new(Reading { source, framer: Framer::new() }),
            outbox: Mutex::new(Outbox::default()),
            owed: Mutex::new(Owed::default()),
            wake: Arc::new(Condvar::new()),
            waits_since: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
            shut,
            hearer,
            clock,
            patience,
            _keeper: Mutex::new(keeper),
        })
    }

    /// The connection is of no more use.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::SeqCst)
    }

    /// How many calls are not answered.
    pub(crate) fn len(&self) -> usize {
        // Under both mutexes: a packet moves from one to the other.
        let outbox = self.outbox.lock();
        outbox.len() + self.owed.lock().len()
    }

    /// When the call was written that is unanswered for longest.
    pub(crate) fn oldest(&self) -> Option<Tick> {
        self.owed.lock().oldest()
    }

    /// A release stands behind each acquire that may still be executed, and no call waits to be written: of calls about keys of that group, if one is given.
    pub(crate) fn is_undone(&self, group: Option<usize>) -> bool {
        let outbox = self.outbox.lock();
        !outbox.has(group) && self.owed.lock().is_undone(group)
    }

    /// The reader has waited for so long that no reply is likely to come at once.
    pub(crate) fn reader_waits(&self) -> bool {
        match self.waits_since.load(Ordering::Relaxed) {
            0 => false,
            since => nanos(self.clock.now()).saturating_sub(since) > nanos(Tick::ZERO.after(GATHERING)),
        }
    }

    /// Writes the call, or leaves it in the outbox, from where it is written. On a connection that is over it ends at once.
    pub(crate) fn send(self: &Arc<Self>, flight: Flight) {
        if let Some(write) = self.write.try_lock() {
            if self.outbox.lock().is_empty() {
                return self.send_now(write, flight);
            }
            // Calls in the outbox came before it.
            drop(write);
            self.look_again();
        }
        let mut outbox = self.outbox.lock();
        if outbox.is_over {
            drop(outbox);
            return tell(flight.end(cut(false, &over())));
        }
        outbox.put(flight);
        // As long as the pump is awake the call is written in any case.
        self.rouse(&mut outbox);
        drop(outbox);
        if self.reader_waits() {
            self.flush();
        }
    }

    fn send_now(self: &Arc<Self>, mut write: MutexGuard<'_, Writing>, flight: Flight) {
        let section = Section::new(self);
        let Writing { sink, packet } = &mut *write;
        packet.clear();
        let now = self.clock.now();
        let boarding = {
            let mut owed = self.owed.lock();
            // Under the mutex under which the owed calls are told of the end.
            if self.is_over() {
                drop(owed);
                section.ended(Ok(()));
                return tell(flight.end(cut(false, &over())));
            }
            owed.board(flight, packet, now)
        };
        let written = sink.write(packet, now.after(self.patience));
        drop(write);
        section.ended(written);
        self.look_again();
        if boarding == Boarding::Unattended {
            self.tidy();
        }
    }

    /// Writes what is in the outbox, unless another thread writes: that one looks again.
    pub(super) fn flush(self: &Arc<Self>) {
        while !self.outbox.lock().is_empty() {
            let write = self.write.try_lock().or_else(|| {
                self.outbox.lock().was_missed = true;
                // It may have looked just before.
                self.write.try_lock()
            });
            let Some(write) = write else { return };
            self.write_outbox(write);
        }
    }

    fn write_outbox(self: &Arc<Self>, mut write: MutexGuard<'_, Writing>) {
        let section = Section::new(self);
        let Writing { sink, packet } = &mut *write;
        packet.clear();
        let now = self.clock.now();
        {
            let mut outbox = self.outbox.lock();
            outbox.was_missed = false;
            // None is moved once the connection is over: then the outbox is empty, and stays so.
            outbox.pack(&mut self.owed.lock(), packet, now);
        }
        let written = if packet.is_empty() { Ok(()) } else { sink.write(packet, now.after(self.patience)) };
        drop(write);
        section.ended(written);
    }

    /// Another thread may have found `write` locked, and left it to this one to write.
    fn look_again(self: &Arc<Self>) {
        let was_missed = std::mem::take(&mut self.outbox.lock().was_missed);
        if was_missed {
            self.flush();
        }
    }

    /// Reads until this call of the thread has its outcome, at most until then. Nothing is read if another thread reads.
    pub(crate) fn read_for(self: &Arc<Self>, trip: &Arc<Trip>, seat: usize, until: Tick) {
        let Some(mut turn) = self.turn.try_lock() else { return };
        let mut news = Vec::new();
        while trip.is_awaited(seat) && !self.is_over() {
            // Before it waits, the others go on.
            news.drain(..).for_each(News::tell);
            if !self.read(&mut turn, until, &mut news) && self.clock.now() >= until {
                break;
            }
        }
        drop(turn);
        news.into_iter().for_each(News::tell);
    }

    /// Writes what is in the outbox, reads once, and gives the replies that have come. False if no bytes have come by then.
    pub(super) fn read(self: &Arc<Self>, turn: &mut Reading, until: Tick, news: &mut Vec<News>) -> bool {
        self.flush();
        let section = Section::new(self);
        self.waits_since.store(nanos(self.clock.now()), Ordering::Relaxed);
        let read = turn.source.read(turn.framer.room(), until);
        self.waits_since.store(0, Ordering::Relaxed);
        let given = read.and_then(|read| {
            turn.framer.filled(read);
            self.give(&mut turn.framer, news).map(|()| read > 0)
        });
        section.ended(given)
    }

    /// Gives each reply to its call.
    fn give(&self, framer: &mut Framer, news: &mut Vec<News>) -> Result<(), Broken> {
        let mut heard = None;
        while let Some(reply) = framer.take_reply().map_err(|Garbled| garbled())? {
            let answered = self.owed.lock().answer();
            let (flight, written) = answered.ok_or_else(|| Broken::Cut("sent a reply to no call".into()))?;
            heard = Some(written);
            news.extend(flight.and_then(|flight| flight.end(Outcome::Replied(reply))));
        }
        if let Some(written) = heard {
            self.hearer.heard(written);
        }
        Ok(())
    }

    /// To be called before a thread sleeps until a call of this connection has its outcome. False if no pump will read and write for it.
    pub(crate) fn rely_on_pump(self: &Arc<Self>) -> bool {
        let mut outbox = self.outbox.lock();
        let is_there = outbox.is_over || self.rouse(&mut outbox);
        let is_left = !outbox.is_empty();
        drop(outbox);
        if is_left && (!is_there || self.reader_waits()) {
            self.flush();
        }
        is_there
    }

    /// The thread goes without the outcome: see [`Trip::leave`].
    pub(crate) fn leave(self: &Arc<Self>, trip: &Arc<Trip>, seat: usize, is_release: bool) -> Parting {
        let parting = trip.leave(seat, is_release);
        match parting {
            Parting::Answered => {}
            Parting::Unsent => self.outbox.lock().remove(trip, seat),
            Parting::Sent | Parting::WillBeSent => self.tidy(),
        }
        parting
    }

    /// A reply will come for which no thread waits: the pump shall look after it.
    fn tidy(self: &Arc<Self>) {
        let mut outbox = self.outbox.lock();
        if outbox.pump != Pump::Naps && !outbox.is_over {
            self.rouse(&mut outbox);
        }
    }

    /// The turn to read, once it is free.
    pub(super) fn turn(&self) -> MutexGuard<'_, Reading> {
        self.turn.lock()
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
        self.wake.notify_all();
        let owed = owed.chain(self.owed.lock().end()).map(|flight| flight.end(cut(true, &why)));
        let ended: Vec<News> = owed.chain(unsent.map(|flight| flight.end(cut(false, &why)))).flatten().collect();
        ended.into_iter().for_each(News::tell);
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

fn over() -> Arc<Broken> {
    Arc::new(Broken::Cut("connection is gone".into()))
}

fn garbled() -> Broken {
    Broken::Cut("sent what is no reply of Redis".into())
}

fn tell(news: Option<News>) {
    news.into_iter().for_each(News::tell);
}

fn nanos(tick: Tick) -> u64 {
    u64::try_from(tick.since(Tick::ZERO).as_nanos()).unwrap_or(u64::MAX)
}

impl fmt::Debug for Pipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pipe").field("is_over", &self.is_over()).finish_non_exhaustive()
    }
}
