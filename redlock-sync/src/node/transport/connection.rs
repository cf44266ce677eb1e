//! A connection that all threads of a client share. Calls are executed and answered in the order in which they are sent.
//!
//! One mutex guards the state, and it is never held during a system call on the socket. Two halves of the connection
//! are in the state while no thread uses them. A thread that writes or reads takes the half out, so no other thread can
//! have it.
//!
//! *Each call is written.* [`Connection::send`] appends the bytes, and writes them. It leaves them there in two cases.
//! First, another thread has the writing half: it looks again before it brings the half back. Second, the thread with
//! the reading half works on replies: it writes before it waits for more. So calls gather in one packet while others
//! are answered. A write never waits. If the socket has no room, or there is too much to write for one thread, the drain
//! thread goes on ([`drain`](super::drain)), and so does each thread that reads.
//!
//! *Each reply is read.* `round.rs` says how threads take turns at reading. If no thread waits for a call, the drain
//! thread reads.
//!
//! *Each reply goes to its own call.* Bytes and entry of a call are appended in one step. Replies come in the order of
//! the calls. A reply for which no call was written closes the connection, because all later replies would be shifted.
//!
//! *Replicas.* If replicas must acknowledge calls, a packet with such calls ends with a `WAIT`. One suffices for all:
//! replicas apply writes in order. Until it is answered, nothing else is written. The server executes nothing behind it
//! anyway, and if replicas hang, one `WAIT` behind another would take longer than a node timeout.

use std::any::Any;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use smallvec::SmallVec;

use super::drain::Drain;
use super::framer::{Framer, Garbled, WireReply};
use super::halves::{Broken, Halves, Sink, Source};
use super::round::{Outcome, Recipient, Round};
use crate::clock::{Clock, Tick};
use crate::protocol::script::{Call, Purpose};
use crate::sync::{AtomicBool, AtomicUsize, Condvar, Mutex, MutexGuard};

/// A thread that has worked on replies for longer than this may get no processor time. Others do not wait until it
/// writes their calls.
const AT_WORK: Duration = Duration::from_millis(1);

/// A thread writes this many packets for others. The drain thread writes the rest.
const MOST_PACKETS: usize = 8;

/// While bytes wait for room in the socket, it is tried again after this time.
const RETRY: Duration = Duration::from_millis(1);

/// A reply for which no thread waits is mostly read by the next call. After this time the drain thread reads it.
const NAP: Duration = Duration::from_millis(20);

const ASKING: &[u8] = b"*1\r\n$6\r\nASKING\r\n";
const PING: &[u8] = b"*1\r\n$4\r\nPING\r\n";

/// How long this many bytes take at 1 Mbit/s, the lowest rate at which a server counts as healthy.
pub(crate) fn time_at_lowest_rate(bytes: usize) -> Duration {
    Duration::from_micros(8).saturating_mul(u32::try_from(bytes).unwrap_or(u32::MAX))
}

/// The limit of a `WAIT`: a quarter of a node timeout. So a call with a `WAIT` is answered in time behind another
/// `WAIT`, even if replicas do not acknowledge.
pub(crate) fn time_for_replicas(node_timeout: Duration) -> Duration {
    node_timeout / 4
}

/// How a script is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Digest,
    /// With its source, for a server that does not know the script.
    Source,
    /// As `SET NX` with this lease, in a first attempt.
    SetNx {
        lease: Duration,
    },
}

/// A call as it is written.
#[derive(Clone)]
pub(crate) struct Payload {
    pub(crate) call: Arc<Call>,
    /// The script first checks the user's permissions.
    pub(crate) checks: bool,
    pub(crate) form: Form,
    /// `ASKING` goes first, so that the server accepts a call for a slot that is migrating to it.
    pub(crate) asks: bool,
}

impl Payload {
    fn write_to(&self, bytes: &mut Vec<u8>) {
        let Payload { call, checks, form, .. } = self;
        match form {
            Form::Digest => call.write_to(bytes, *checks),
            Form::Source => call.write_source_to(bytes, *checks),
            Form::SetNx { lease } => call.write_set_nx_to(bytes, *lease),
        }
    }
}

/// How far a call without an outcome has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// No byte of it was handed to the socket. It will be.
    Unsent,
    /// The server may have executed it, or may still do so.
    Sent,
    /// The server has executed it, but has not replied to the `WAIT` after it.
    Unacknowledged,
}

/// What a connection needs to know of its server and client.
pub(crate) struct Setting {
    pub(crate) clock: Arc<dyn Clock>,
    /// The node timeout. Unlimited in memory.
    pub(crate) node_timeout: Duration,
    /// The encoded `WAIT` command, or empty if replicas are not asked.
    pub(crate) wait: Vec<u8>,
    pub(crate) drain: Arc<Drain>,
    /// Called with the time at which the latest answered call was sent. Must neither wait nor send.
    pub(crate) on_reply: Box<dyn Fn(Tick) + Send + Sync>,
    /// The value of `Host::generation` before the connection was made.
    pub(crate) generation: u64,
    /// When to replace the connection, and when it must not get new calls because its login expires.
    pub(crate) validity: Option<(Tick, Tick)>,
}

pub(crate) struct Connection {
    state: Mutex<State>,
    /// When the first unanswered call was sent, in nanoseconds; 0 without one. Only a hint: it decides whether the
    /// connection is late. A late value is the same as a look a moment earlier.
    ///
    /// `note_oldest` stores it while `state` is locked. Pairs with `Connection::is_late` and `Connection::oldest`.
    oldest: AtomicU64,
    /// The number of bytes read.
    read: AtomicUsize,
    /// Pairs with `Connection::is_closed`: a thread that reads true orders another connection. `close` sets it after it
    /// has given up the place. Otherwise the pool could have no room for that one.
    is_closed: AtomicBool,
    setting: Setting,
    pub(crate) node_timeout: Duration,
    shut: Box<dyn Fn() + Send + Sync>,
}

struct State {
    /// Bytes of calls that the writing half has not taken.
    out: Vec<u8>,
    /// The calls without an outcome, in the order of their bytes.
    pending: VecDeque<Entry>,
    /// The number of the first of them.
    first: u64,
    /// How many at the end of `pending` are whole in `out`.
    unwritten: usize,
    /// How many at the begin of `pending` have a reply, and wait for that to the `WAIT` behind them.
    replied: usize,
    /// A `WAIT` is unanswered.
    is_waiting: bool,
    reader: Option<Reader>,
    writer: Option<Writer>,
    /// Since when the thread with the reading half works on replies. `None` while it waits for bytes.
    at_work: Option<Tick>,
    /// The drain thread looks after this connection.
    is_drained: bool,
    closed: Option<Arc<Broken>>,
    /// The place in the pool.
    place: Option<Box<dyn Any + Send>>,
}

struct Entry {
    to: Recipient,
    /// `None` for `ASKING`, `PING` and `WAIT`.
    call: Option<Arc<Call>>,
    has_source: bool,
    is_wait: bool,
    /// The number of its bytes.
    len: usize,
    sent: Tick,
    /// Its thread sleeps, or has slept, until somebody reads for it.
    sleeps: bool,
    /// The reply, while that to the `WAIT` is due.
    reply: Option<WireReply>,
}

impl Entry {
    fn new(to: Recipient, call: Option<Arc<Call>>, len: usize, sent: Tick) -> Entry {
        Entry { to, call, has_source: false, is_wait: false, len, sent, sleeps: false, reply: None }
    }

    fn is_unattended(&self) -> bool {
        self.call.is_some() && !matches!(self.to, Recipient::Round(..))
    }

    fn is_for_replicas(&self) -> bool {
        self.call.as_ref().is_some_and(|call| call.script.is_for_replicas)
    }
}

/// The reading half, and the bytes of the next reply.
struct Reader {
    source: Box<dyn Source>,
    framer: Framer,
}

/// The writing half, and the packet that is being written.
struct Writer {
    sink: Box<dyn Sink>,
    packet: Vec<u8>,
    /// How much of the packet is written.
    written: usize,
    /// When the socket has last taken some of it.
    moved: Tick,
}

impl Writer {
    fn has_rest(&self) -> bool {
        self.written < self.packet.len()
    }
}

/// Outcomes to deliver after all mutexes are unlocked.
type Outcomes = SmallVec<[(Recipient, Outcome); 2]>;

impl State {
    /// True if there are bytes that could be written now.
    fn has_unwritten(&self) -> bool {
        !self.out.is_empty() && !self.is_waiting || self.writer.as_ref().is_some_and(Writer::has_rest)
    }

    /// Gives all of `out` to the writing half.
    fn pack(&mut self, writer: &mut Writer, setting: &Setting, now: Tick) {
        let written = self.pending.len() - self.unwritten;
        if !setting.wait.is_empty() && self.pending.iter().skip(written).any(Entry::is_for_replicas) {
            self.out.extend_from_slice(&setting.wait);
            // A server that waits for replicas is not late. An idle server looks at that limit ten times a second.
            let limit = time_for_replicas(setting.node_timeout) + Duration::from_millis(100);
            self.pending.push_back(Entry { is_wait: true, ..Entry::new(Recipient::Nobody, None, 0, now.after(limit)) });
            self.is_waiting = true;
        }
        writer.packet.clear();
        std::mem::swap(&mut writer.packet, &mut self.out);
        writer.written = 0;
        writer.moved = now;
        self.unwritten = 0;
    }

    /// Assigns a reply to its call. Returns when that was sent, or `None` if no call that was written expects a reply.
    fn assign(&mut self, reply: WireReply, outcomes: &mut Outcomes) -> Option<Tick> {
        let written = self.pending.len() - self.unwritten;
        let is_waiting = self.is_waiting;
        let entry = self.pending.get_mut(self.replied).filter(|_| self.replied < written)?;
        let sent = entry.sent;
        if entry.is_wait {
            self.is_waiting = false;
            for entry in self.pending.iter_mut().take(self.replied) {
                if let Some(said) = entry.reply.take() {
                    let outcome = Outcome::Acknowledged { reply: said, replicas: reply.clone() };
                    outcomes.push((std::mem::take(&mut entry.to), outcome));
                }
            }
        } else if is_waiting && entry.is_for_replicas() && !reply.is_error() {
            entry.reply = Some(reply);
        } else {
            outcomes.push((std::mem::take(&mut entry.to), Outcome::Replied(reply)));
        }
        self.replied += 1;
        // The calls whose acknowledgement is due keep their places.
        while self.replied > 0 && self.pending.front().is_some_and(|entry| entry.reply.is_none()) {
            self.pending.pop_front();
            (self.replied, self.first) = (self.replied - 1, self.first + 1);
        }
        Some(sent)
    }

    fn place_of(&self, number: u64) -> Option<usize> {
        usize::try_from(number.checked_sub(self.first)?).ok().filter(|place| *place < self.pending.len())
    }

    /// True if no byte of this call was handed to the socket. A `PING` takes its place, unless it is a release.
    fn take_back(&mut self, place: usize) -> bool {
        let written = self.pending.len() - self.unwritten;
        let Some(ahead) = place.checked_sub(written) else { return false };
        let begin: usize = self.pending.iter().skip(written).take(ahead).map(|entry| entry.len).sum();
        if let Some(entry) = self.pending.get_mut(place)
            && entry.call.as_ref().is_some_and(|call| call.script.purpose != Purpose::Release)
        {
            self.out.splice(begin..begin + entry.len, PING.iter().copied());
            (entry.call, entry.len) = (None, PING.len());
        }
        true
    }

    fn has_unattended(&self) -> bool {
        self.pending.iter().skip(self.replied).any(Entry::is_unattended)
    }

    /// The thread that reads next: the first one that sleeps. It must be notified once the state is unlocked.
    fn next_reader(&self) -> Option<Arc<Condvar>> {
        self.reader.as_ref()?;
        self.pending.iter().filter(|entry| entry.sleeps).find_map(|entry| match &entry.to {
            Recipient::Round(round, _) => round.reads_next(),
            _ => None,
        })
    }
}

fn notify(thread: Option<Arc<Condvar>>) {
    if let Some(thread) = thread {
        thread.notify_one();
    }
}

impl Connection {
    pub(crate) fn new(halves: Halves, place: Box<dyn Any + Send>, setting: Setting) -> Arc<Connection> {
        let Halves { sink, source, shut } = halves;
        let state = State {
            out: Vec::new(),
            pending: VecDeque::new(),
            first: 0,
            unwritten: 0,
            replied: 0,
            is_waiting: false,
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

    pub(crate) fn generation(&self) -> u64 {
        self.setting.generation
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
        self.state.lock().pending.len()
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

    fn note_oldest(&self, state: &State) {
        let oldest = state.pending.get(state.replied).map_or(0, |entry| entry.sent.as_nanos().max(1));
        self.oldest.store(oldest, Ordering::Release);
    }

    pub(crate) fn has_read(&self) -> usize {
        self.read.load(Ordering::Relaxed)
    }

    fn has_unanswered(&self, is_it: impl Fn(&Entry) -> bool) -> bool {
        self.is_busy() && self.state.lock().pending.iter().any(is_it)
    }

    /// True if a call is unanswered that may set this token.
    pub(crate) fn may_set(&self, token: &str) -> bool {
        let sets = |call: &Arc<Call>| {
            call.script.purpose == Purpose::Acquire && call.token.as_ref().is_some_and(|own| own.as_str() == token)
        };
        self.has_unanswered(|entry| entry.call.as_ref().is_some_and(sets))
    }

    /// True if a thread reads.
    pub(crate) fn is_being_read(&self) -> bool {
        self.state.lock().reader.is_none()
    }

    /// True if an unanswered call has the same words.
    pub(crate) fn has_like(&self, call: &Call) -> bool {
        self.has_unanswered(|entry| entry.call.as_ref().is_some_and(|other| other.is_like(call)))
    }

    /// True if an unanswered call brings the source of this script.
    pub(crate) fn has_source_of(&self, call: &Call) -> bool {
        let is_it = |other: &Arc<Call>| other.script.sha == call.script.sha;
        self.has_unanswered(|entry| entry.has_source && entry.call.as_ref().is_some_and(is_it))
    }

    // --- writing -----------------------------------------------------------------------------------------------------

    /// Sends a call, and returns its number. If the connection is closed, its outcome says so at once. `more`: another
    /// call follows, and [`Connection::flush`] after the last one, so that all travel in one packet.
    pub(crate) fn send(self: &Arc<Self>, payload: &Payload, to: Recipient, more: bool) -> u64 {
        let is_unattended = !matches!(to, Recipient::Round(..));
        if is_unattended && !self.is_busy() {
            // An idle connection may have been closed by the server. That is seen without waiting.
            self.read_available();
        }
        let now = self.setting.clock.now();
        let mut state = self.state.lock();
        if let Some(why) = state.closed.clone() {
            drop(state);
            to.deliver(Outcome::Disconnected { was_written: false, why });
            return 0;
        }
        if payload.asks {
            state.out.extend_from_slice(ASKING);
            state.pending.push_back(Entry::new(Recipient::Nobody, None, ASKING.len(), now));
            state.unwritten += 1;
        }
        let before = state.out.len();
        payload.write_to(&mut state.out);
        let len = state.out.len() - before;
        let entry = Entry::new(to, Some(Arc::clone(&payload.call)), len, now);
        state.pending.push_back(Entry { has_source: payload.form == Form::Source, ..entry });
        let number = self.appended(state, !more, now);
        if is_unattended {
            self.look_after(number);
        }
        number
    }

    /// Sends a `PING`. Its reply comes behind all others.
    pub(crate) fn ping(self: &Arc<Self>, to: Recipient) -> u64 {
        let now = self.setting.clock.now();
        let mut state = self.state.lock();
        if let Some(why) = state.closed.clone() {
            drop(state);
            to.deliver(Outcome::Disconnected { was_written: false, why });
            return 0;
        }
        state.out.extend_from_slice(PING);
        state.pending.push_back(Entry::new(to, None, PING.len(), now));
        self.appended(state, true, now)
    }

    /// A call was appended. Returns its number.
    fn appended<'a>(self: &'a Arc<Self>, mut state: MutexGuard<'a, State>, flushes: bool, now: Tick) -> u64 {
        state.unwritten += 1;
        let number = state.first + state.pending.len() as u64 - 1;
        if self.oldest() == 0 {
            self.note_oldest(&state);
        }
        if flushes && state.at_work.is_none_or(|since| now.since(since) >= AT_WORK) {
            self.write(state);
        }
        number
    }

    /// Writes the calls that were sent with more to follow.
    pub(crate) fn flush(self: &Arc<Self>) {
        self.write(self.state.lock());
    }

    /// Writes what fits into the socket, unless another thread writes.
    fn write<'a>(self: &'a Arc<Self>, mut state: MutexGuard<'a, State>) {
        if !state.has_unwritten() {
            return;
        }
        let Some(mut writer) = state.writer.take() else { return };
        let (mut packets, mut is_stuck) = (0, false);
        while !self.is_closed() && packets < MOST_PACKETS && !is_stuck {
            let now = self.setting.clock.now();
            if !writer.has_rest() {
                if !state.has_unwritten() {
                    break;
                }
                state.pack(&mut writer, &self.setting, now);
            }
            drop(state);
            let in_use = UseGuard(self);
            let rest = writer.packet.get(writer.written..).unwrap_or_default();
            let written = writer.sink.write(rest);
            // The socket of a server that does not read stays full.
            let is_late = now.since(writer.moved) >= self.node_timeout;
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
            self.setting.drain.look_after(self, self.setting.clock.now().after(RETRY));
        }
    }

    // --- reading -----------------------------------------------------------------------------------------------------

    fn take_reader(&self) -> Option<Reader> {
        self.state.lock().reader.take()
    }

    /// Reads until the call of this round has its outcome, or until the deadline. Returns false at once if another
    /// thread reads.
    pub(super) fn read_for(self: &Arc<Self>, round: &Round, index: usize, until: Tick) -> bool {
        let Some(mut reader) = self.take_reader() else { return false };
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
        true
    }

    /// Writes what is left, reads once, and delivers the outcomes. Returns whether bytes arrived before the deadline, and
    /// the time.
    fn read(self: &Arc<Self>, reader: &mut Reader, until: Tick) -> (bool, Tick) {
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
    fn dispatch(&self, framer: &mut Framer, now: Tick) -> Result<(), Broken> {
        let (mut outcomes, mut latest, mut result) = (Outcomes::new(), None, Ok(()));
        let mut state = self.state.lock();
        state.at_work = Some(now);
        loop {
            match framer.take_reply() {
                Ok(None) => break,
                Ok(Some(reply)) => match state.assign(reply, &mut outcomes) {
                    Some(sent) => latest = Some(sent),
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
            (self.setting.on_reply)(sent);
        }
        for (to, outcome) in outcomes {
            to.deliver(outcome);
        }
        result
    }

    /// The thread does not read any more. It writes what has gathered, and wakes the thread that reads next.
    fn bring_back(self: &Arc<Self>, reader: Reader) {
        let mut state = self.state.lock();
        state.at_work = None;
        if self.is_closed() {
            return;
        }
        state.reader = Some(reader);
        let next = state.next_reader();
        let has_unwritten = state.has_unwritten();
        drop(state);
        notify(next);
        if has_unwritten {
            self.flush();
        }
    }

    /// Wakes the thread that reads next, if no thread reads.
    pub(super) fn wake_a_reader(&self) {
        let next = self.state.lock().next_reader();
        notify(next);
    }

    /// Marks that the thread of this call sleeps until another one reads for it. Returns false if no thread reads.
    pub(super) fn may_sleep(&self, number: u64) -> bool {
        let mut state = self.state.lock();
        if state.reader.is_some() {
            return false;
        }
        let place = state.place_of(number);
        if let Some(entry) = place.and_then(|place| state.pending.get_mut(place)) {
            entry.sleeps = true;
        }
        true
    }

    // --- calls for which no thread waits -----------------------------------------------------------------------------

    /// The thread of this call has given it up. Its reply is still read. Returns how far the call has come. If it was not
    /// written, it is not sent any more, unless it is a release.
    pub(crate) fn abandon(self: &Arc<Self>, number: u64) -> Progress {
        let mut state = self.state.lock();
        let place = state.place_of(number);
        let Some(entry) = place.and_then(|place| state.pending.get_mut(place)) else { return Progress::Sent };
        entry.to = Recipient::Nobody;
        let is_unacknowledged = entry.reply.is_some();
        let progress = match place {
            _ if is_unacknowledged => Progress::Unacknowledged,
            Some(place) if state.take_back(place) => Progress::Unsent,
            _ => Progress::Sent,
        };
        drop(state);
        self.look_after(number);
        progress
    }

    /// Makes sure that the reply to a call is read for which no thread waits.
    fn look_after(self: &Arc<Self>, number: u64) {
        if self.node_timeout == Duration::MAX {
            // In memory the reply is already there.
            return self.read_available();
        }
        let mut state = self.state.lock();
        if state.place_of(number).is_none() || std::mem::replace(&mut state.is_drained, true) {
            return;
        }
        drop(state);
        let soon = self.setting.clock.now().after(NAP.min(self.node_timeout / 8));
        if !self.setting.drain.look_after(self, soon) {
            // The system starts no thread, so this one reads for a moment.
            self.state.lock().is_drained = false;
            self.read_unattended(soon);
        }
    }

    /// Reads what has arrived, and writes what fits. Returns when to look again, or `None` if nothing is left to do. The
    /// drain thread calls it.
    pub(super) fn tend(self: &Arc<Self>) -> Option<Tick> {
        self.read_available();
        self.write(self.state.lock());
        let now = self.setting.clock.now();
        let mut state = self.state.lock();
        let late = now.before(self.node_timeout);
        let is_late = |entry: &&mut Entry| entry.sent <= late && matches!(entry.to, Recipient::Callback(_));
        let silent: Vec<Recipient> =
            state.pending.iter_mut().filter(is_late).map(|entry| std::mem::take(&mut entry.to)).collect();
        let again = if self.is_closed() {
            None
        } else if state.has_unwritten() {
            Some(now.after(RETRY))
        } else {
            state.has_unattended().then(|| now.after(self.node_timeout / 8))
        };
        state.is_drained = again.is_some();
        drop(state);
        tell_late(silent);
        again
    }

    /// Reads what has arrived, without waiting, if no thread reads.
    fn read_available(self: &Arc<Self>) {
        let Some(mut reader) = self.take_reader() else { return };
        while self.read(&mut reader, Tick::ZERO).0 && !self.is_closed() {}
        self.bring_back(reader);
    }

    /// Reads replies for which no thread waits, until the deadline at most.
    fn read_unattended(self: &Arc<Self>, until: Tick) {
        let Some(mut reader) = self.take_reader() else { return };
        while self.state.lock().has_unattended() && !self.is_closed() && self.read(&mut reader, until).1 < until {}
        self.bring_back(reader);
    }

    /// True if a callback waits for an outcome.
    pub(crate) fn has_callbacks(&self) -> bool {
        self.has_unanswered(|entry| matches!(entry.to, Recipient::Callback(_)))
    }

    /// The client ends. Tells the callbacks that no reply came in time.
    pub(crate) fn give_up_callbacks(&self) {
        let mut state = self.state.lock();
        let are_callbacks = |entry: &&mut Entry| matches!(entry.to, Recipient::Callback(_));
        let silent = state.pending.iter_mut().filter(are_callbacks);
        let silent: Vec<Recipient> = silent.map(|entry| std::mem::take(&mut entry.to)).collect();
        drop(state);
        tell_late(silent);
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
        loop {
            state = self.state.lock();
            let written = state.pending.len() - state.unwritten;
            let outcome = |place| Outcome::Disconnected { was_written: place < written, why: Arc::clone(&why) };
            let callbacks: Vec<(Recipient, Outcome)> = state
                .pending
                .iter_mut()
                .enumerate()
                .filter(|(_, entry)| matches!(entry.to, Recipient::Callback(_)))
                .map(|(place, entry)| (std::mem::take(&mut entry.to), outcome(place)))
                .collect();
            if callbacks.is_empty() {
                state.closed = Some(Arc::clone(&why));
                let pending = std::mem::take(&mut state.pending);
                (state.out, state.unwritten, state.replied) = (Vec::new(), 0, 0);
                self.note_oldest(&state);
                drop(state);
                let ended = pending.into_iter().enumerate();
                return ended.for_each(|(place, entry)| entry.to.deliver(outcome(place)));
            }
            drop(state);
            callbacks.into_iter().for_each(|(to, outcome)| to.deliver(outcome));
        }
    }
}

fn tell_late(silent: Vec<Recipient>) {
    for to in silent {
        if let Recipient::Callback(callback) = to {
            callback(None);
        }
    }
}

/// Guards a use of one half. Closes the connection if the use fails or panics.
struct UseGuard<'a>(&'a Connection);

impl UseGuard<'_> {
    fn finish<T: Default>(self, result: Result<T, Broken>) -> T {
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
