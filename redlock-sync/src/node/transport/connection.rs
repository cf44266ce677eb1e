//! A connection that all threads of a client share. Calls are executed and answered in the order in which they are
//! sent.
//!
//! One mutex guards the state, and it is never held during a system call on the socket. Two halves of the connection
//! are in the state while no thread uses them. A thread that writes or reads takes the half out, so no other thread can
//! have it.
//!
//! *Each call is written.* [`Connection::send`] appends the bytes, and writes them. It leaves them there in two cases.
//! First, another thread has the writing half: it looks again before it brings the half back. Second, the thread with
//! the reading half works on replies: it writes before it waits for more. So calls gather in one packet while others
//! are answered. A write never waits. If the socket has no room, or there is too much to write for one thread, the
//! drain thread goes on ([`drain`](super::drain)), and so does each thread that reads.
//!
//! *Each reply is read.* `waiting.rs` says how threads take turns at reading. If no thread waits for a call, the drain
//! thread reads.
//!
//! *Each reply goes to its own call.* Replies come in the order of the calls ([`CallQueue`]). A reply for which no call
//! was written closes the connection, because all later replies would be shifted.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::call_queue::{CallQueue, Outcomes, Payload};
use super::drain::{Drain, Drained};
use super::framer::Framer;
use super::halves::{Broken, Halves, Sink, Source};
use super::round::{Outcome, Recipient};
use crate::clock::{Clock, Tick};
use crate::protocol::script::{Call, Purpose};
use crate::sync::{AtomicBool, AtomicUsize, Condvar, Mutex, MutexGuard};

/// A thread that has been at work for longer than this may get no processor time. Others do not wait until it writes
/// their calls.
pub(super) const AT_WORK: Duration = Duration::from_millis(1);

/// A thread writes this many packets for others. The drain thread writes the rest.
const MOST_PACKETS: usize = 8;

/// A full socket may get room in steps of this size.
const LARGE_STEP: usize = 256 << 10;

/// While bytes wait for room in the socket, it is tried again after this time.
pub(super) const RETRY: Duration = Duration::from_millis(1);

/// How long this many bytes take at 1 Mbit/s, the lowest rate at which a server counts as healthy.
pub(crate) fn time_at_lowest_rate(bytes: usize) -> Duration {
    Duration::from_micros(8).saturating_mul(u32::try_from(bytes).unwrap_or(u32::MAX))
}

/// The limit of a `WAIT`: a quarter of a node timeout. So a call with a `WAIT` is answered in time behind another
/// `WAIT`, even if replicas do not acknowledge.
pub(crate) fn time_for_replicas(node_timeout: Duration) -> Duration {
    node_timeout / 4
}

/// What a connection needs to know of its server and client.
pub(crate) struct Setting {
    pub(crate) clock: Arc<dyn Clock>,
    /// The node timeout. Unlimited in memory.
    pub(crate) node_timeout: Duration,
    /// The encoded `WAIT` command, or empty if replicas are not asked.
    pub(crate) wait: Vec<u8>,
    pub(crate) drain: Arc<Drain>,
    /// Called with the time at which the latest answered call was sent, and the time now. Must neither wait nor send.
    pub(crate) on_reply: Box<dyn Fn(Tick, Tick) + Send + Sync>,
    /// The value of `Host::master_changes` before the connection was made.
    pub(crate) master_changes: u64,
    /// When to replace the connection, and when it must not get new calls because its login expires.
    pub(crate) validity: Option<(Tick, Tick)>,
}

pub(crate) struct Connection {
    pub(super) state: Mutex<State>,
    /// When the first unanswered call was sent, in nanoseconds; 0 without one. Only a hint: it decides whether the
    /// connection is late. A late value is the same as a look a moment earlier.
    ///
    /// `note_oldest` stores it while `state` is locked. Pairs with `Connection::is_late` and `Connection::oldest`.
    oldest: AtomicU64,
    made: Tick,
    /// The number of bytes read.
    pub(super) read: AtomicUsize,
    /// Pairs with `Connection::is_closed`: a thread that reads true orders another connection. `close` sets it after it
    /// has given up the place. Otherwise the pool could have no room for that one.
    is_closed: AtomicBool,
    pub(super) setting: Setting,
    pub(crate) node_timeout: Duration,
    shut: Box<dyn Fn() + Send + Sync>,
}

pub(super) struct State {
    pub(super) queue: CallQueue,
    pub(super) reader: Option<Reader>,
    pub(super) writer: Option<Writer>,
    /// Since when the thread with the reading half works on replies, or, if the half lies here, since when a thread has
    /// been on its way to take it. That thread writes before it reads, so calls gather meanwhile. `None` while a thread
    /// waits for bytes, or if nobody shall read.
    pub(super) at_work: Option<Tick>,
    /// The drain thread looks after this connection.
    pub(super) is_drained: bool,
    pub(super) closed: Option<Arc<Broken>>,
    /// The place in the pool.
    pub(super) place: Option<Box<dyn Any + Send>>,
}

/// The reading half, and the bytes of the next reply.
pub(super) struct Reader {
    pub(super) source: Box<dyn Source>,
    pub(super) framer: Framer,
}

/// The writing half, and the packet that is being written.
pub(super) struct Writer {
    sink: Box<dyn Sink>,
    packet: Vec<u8>,
    /// How much of the packet is written.
    written: usize,
    /// When the socket has last taken some of it.
    moved: Tick,
}

impl Writer {
    pub(super) fn has_rest(&self) -> bool {
        self.written < self.packet.len()
    }
}

impl State {
    /// True if there are bytes that could be written now.
    pub(super) fn has_unwritten(&self) -> bool {
        self.queue.has_unwritten() || self.writer.as_ref().is_some_and(Writer::has_rest)
    }

    /// True if a thread writes all calls in a moment.
    pub(super) fn is_at_work(&self, now: Tick) -> bool {
        self.at_work.is_some_and(|since| now.since(since) < AT_WORK)
    }

    /// Chooses the thread that reads next, if none does. It must be notified once the state is unlocked.
    pub(super) fn next_reader(&mut self, clock: &dyn Clock) -> Option<Arc<Condvar>> {
        self.reader.as_ref()?;
        let next = self.queue.next_reader();
        self.at_work = next.as_ref().map(|_| clock.now());
        next
    }
}

impl Connection {
    pub(crate) fn new(halves: Halves, place: Box<dyn Any + Send>, setting: Setting) -> Arc<Connection> {
        let Halves { sink, source, shut } = halves;
        let state = State {
            queue: CallQueue::default(),
            reader: Some(Reader { source, framer: Framer::new() }),
            writer: Some(Writer { sink, packet: Vec::new(), written: 0, moved: Tick::ZERO }),
            at_work: None,
            is_drained: false,
            closed: None,
            place: Some(place),
        };
        Arc::new(Connection {
            state: Mutex::new(state),
            oldest: AtomicU64::new(0),
            made: setting.clock.now(),
            read: AtomicUsize::new(0),
            is_closed: AtomicBool::new(false),
            node_timeout: setting.node_timeout,
            setting,
            shut,
        })
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::SeqCst)
    }

    /// When it was made.
    pub(crate) fn made(&self) -> Tick {
        self.made
    }

    pub(crate) fn master_changes(&self) -> u64 {
        self.setting.master_changes
    }

    pub(crate) fn validity(&self) -> Option<(Tick, Tick)> {
        self.setting.validity
    }

    /// True if a call is unanswered.
    pub(crate) fn is_busy(&self) -> bool {
        self.oldest() > 0
    }

    #[cfg(test)]
    pub(super) fn unanswered(&self) -> usize {
        self.state.lock().queue.len()
    }

    /// True if a call has been unanswered for this long.
    pub(crate) fn is_late(&self, by: Duration, now: Tick) -> bool {
        let oldest = self.oldest();
        oldest > 0 && now.since(Tick::from_nanos(oldest)) >= by
    }

    /// When the first unanswered call was sent, in nanoseconds. 0 if there is none. For a `WAIT`, its limit is added.
    pub(crate) fn oldest(&self) -> u64 {
        self.oldest.load(Ordering::Acquire)
    }

    pub(super) fn note_oldest(&self, state: &State) {
        let oldest = state.queue.oldest().map_or(0, |sent| sent.as_nanos().max(1));
        self.oldest.store(oldest, Ordering::Release);
    }

    pub(crate) fn has_read(&self) -> usize {
        self.read.load(Ordering::Relaxed)
    }

    fn has_unanswered(&self, is_it: impl Fn(&Call, bool) -> bool) -> bool {
        self.is_busy() && self.state.lock().queue.has_call(is_it)
    }

    /// True if a call is unanswered that may set this token.
    pub(crate) fn may_set(&self, token: &str) -> bool {
        self.has_unanswered(|call, _| {
            call.script.purpose == Purpose::Acquire && call.token.as_ref().is_some_and(|own| own.as_str() == token)
        })
    }

    /// True if a thread reads.
    pub(crate) fn is_being_read(&self) -> bool {
        self.state.lock().reader.is_none()
    }

    /// True if an unanswered call has the same words.
    pub(crate) fn has_like(&self, call: &Call) -> bool {
        self.has_unanswered(|other, _| other.is_like(call))
    }

    /// True if an unanswered call brings the source of this script.
    pub(crate) fn has_source_of(&self, call: &Call) -> bool {
        self.has_unanswered(|other, has_source| has_source && other.script.sha == call.script.sha)
    }

    // --- writing -----------------------------------------------------------------------------------------------------

    /// Sends a call, and returns its number. If the connection is closed, its outcome says so at once. `more`: another
    /// call follows, and [`Connection::flush`] after the last one, so that all travel in one packet.
    pub(crate) fn send(self: &Arc<Self>, payload: &Payload, to: Recipient, more: bool) -> u64 {
        let is_unattended = !matches!(to, Recipient::Round(..));
        self.look_if_idle();
        let number = self.append(to, !more, |queue, to, now| queue.append(payload, to, now));
        if is_unattended {
            self.look_after(number);
        }
        number
    }

    /// Notices if the server has closed an idle connection, or has sent a reply that no call expects. The next call
    /// must not take that for its own.
    pub(crate) fn look_if_idle(self: &Arc<Self>) {
        if !self.is_busy() {
            self.read_available();
        }
    }

    /// Sends a `PING`. Its reply comes behind all others.
    pub(crate) fn ping(self: &Arc<Self>, to: Recipient) -> u64 {
        self.append(to, true, CallQueue::append_ping)
    }

    fn append(
        self: &Arc<Self>,
        to: Recipient,
        flushes: bool,
        append: impl FnOnce(&mut CallQueue, Recipient, Tick) -> u64,
    ) -> u64 {
        let now = self.setting.clock.now();
        let mut state = self.state.lock();
        if let Some(why) = state.closed.clone() {
            drop(state);
            to.deliver(Outcome::Disconnected { was_written: false, why });
            return 0;
        }
        let number = append(&mut state.queue, to, now);
        if !self.is_busy() {
            self.note_oldest(&state);
        }
        if flushes && !state.is_at_work(now) {
            self.write(state);
        }
        number
    }

    /// Writes the calls that were sent with more to follow.
    pub(crate) fn flush(self: &Arc<Self>) {
        self.write(self.state.lock());
    }

    /// Writes what fits into the socket, unless another thread writes.
    pub(super) fn write<'a>(self: &'a Arc<Self>, mut state: MutexGuard<'a, State>) {
        if !state.has_unwritten() {
            return;
        }
        let Some(mut writer) = state.writer.take() else { return };
        let (mut packets, mut is_stuck) = (0, false);
        while !self.is_closed() && packets < MOST_PACKETS && !is_stuck {
            if !writer.has_rest() && !state.queue.has_unwritten() {
                break;
            }
            let now = self.setting.clock.now();
            if !writer.has_rest() {
                // A server that waits for replicas is not late. An idle server looks at that limit ten times a second.
                let late = now.after(time_for_replicas(self.node_timeout)).after(Duration::from_millis(100));
                state.queue.pack(&mut writer.packet, &self.setting.wait, late);
                (writer.written, writer.moved) = (0, now);
            }
            drop(state);
            let in_use = UseGuard(self);
            let rest = writer.packet.get(writer.written..).unwrap_or_default();
            let written = writer.sink.write(rest);
            // The socket of a server that does not read stays full. On a slow way, it gets room in large steps.
            let is_late = now.since(writer.moved) >= self.node_timeout.saturating_add(time_at_lowest_rate(LARGE_STEP));
            let written = in_use.finish(written.and_then(|written| match written {
                0 if is_late => Err(Broken::TimedOut),
                written => Ok(written),
            }));
            if written > 0 {
                (writer.written, writer.moved) = (writer.written + written, now);
            }
            is_stuck = writer.has_rest();
            packets += 1;
            state = self.state.lock();
        }
        if self.is_closed() {
            // The half ends with the connection.
            return;
        }
        let is_left = writer.has_rest() || state.has_unwritten();
        state.writer = Some(writer);
        if is_left {
            drop(state);
            let pause = if is_stuck { RETRY } else { Duration::ZERO };
            let at = self.setting.clock.now().after(pause);
            self.setting.drain.look_after(&(Arc::clone(self) as Arc<dyn Drained>), at);
        }
    }

    // --- the end -----------------------------------------------------------------------------------------------------

    /// Gives the place in the pool back.
    pub(crate) fn give_up_place(&self) {
        // The pool locks nothing of ours.
        drop(self.state.lock().place.take());
    }

    /// Closes the connection. Each unanswered call learns whether the server may have it.
    ///
    /// Callbacks come first: they record the tokens of this client that may be left on the server. A thread that learns
    /// of the break can meet such a token at once, over another connection. So no thread learns of it before.
    pub(crate) fn close(&self, why: Broken) {
        let mut state = self.state.lock();
        if self.is_closed() {
            return;
        }
        // The place first: a thread that sees `is_closed` orders another connection, and the pool must have room then.
        drop(state.place.take());
        self.is_closed.store(true, Ordering::SeqCst);
        // No other thread takes a half from now on, and who has one drops it.
        let halves = (state.reader.take(), state.writer.take());
        drop(state);
        (self.shut)();
        drop(halves);
        let why = Arc::new(why);
        let outcome = |was_written| Outcome::Disconnected { was_written, why: Arc::clone(&why) };
        loop {
            state = self.state.lock();
            let callbacks = state.queue.break_callbacks(outcome);
            if callbacks.is_empty() {
                state.closed = Some(Arc::clone(&why));
                let ended = state.queue.break_all(outcome);
                self.note_oldest(&state);
                drop(state);
                return deliver(ended);
            }
            drop(state);
            deliver(callbacks);
        }
    }
}

pub(super) fn deliver(outcomes: Outcomes) {
    outcomes.into_iter().for_each(|(to, outcome)| to.deliver(outcome));
}

/// Guards a use of one half. Closes the connection if the use fails or panics.
pub(super) struct UseGuard<'a>(pub(super) &'a Connection);

impl UseGuard<'_> {
    pub(super) fn finish<T: Default>(self, result: Result<T, Broken>) -> T {
        let connection = self.0;
        std::mem::forget(self);
        result.unwrap_or_else(|why| {
            connection.close(why);
            T::default()
        })
    }
}

impl Drop for UseGuard<'_> {
    fn drop(&mut self) {
        self.0.close(Broken::Closed("a thread panicked while it used the connection".into()));
    }
}
