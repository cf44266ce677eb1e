//! The calls of a connection: their bytes, and the replies that are due, in one order. Bytes and entry of a call are
//! appended in one step. So a reply is always for the first entry that has none.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use super::framer::WireReply;
use super::round::{Outcome, Recipient};
use crate::clock::Tick;
use crate::protocol::script::{Call, Purpose};
use crate::sync::Condvar;

const ASKING: &[u8] = b"*1\r\n$6\r\nASKING\r\n";
const PING: &[u8] = b"*1\r\n$4\r\nPING\r\n";

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
    /// No byte of it was handed to the socket.
    Unsent,
    /// The server may have executed it, or may still do so.
    Sent,
    /// The server has executed it, but has not replied to the `WAIT` after it.
    Unacknowledged,
}

/// Outcomes to deliver once all mutexes are unlocked.
pub(super) type Outcomes = SmallVec<[(Recipient, Outcome); 2]>;

#[derive(Default)]
pub(super) struct CallQueue {
    /// Bytes that were not handed to the socket.
    out: Vec<u8>,
    pending: VecDeque<Entry>,
    /// The number of the first entry.
    first: u64,
    /// How many entries at the end are whole in `out`.
    unwritten: usize,
    /// How many entries at the begin have a reply, and wait for that to the `WAIT` behind them.
    replied: usize,
    /// A `WAIT` is unanswered.
    is_waiting: bool,
}

#[derive(Default)]
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
    fn is_for_replicas(&self) -> bool {
        self.call.as_ref().is_some_and(|call| call.script.is_for_replicas)
    }

    fn has_callback(&self) -> bool {
        matches!(self.to, Recipient::Callback(_))
    }
}

impl CallQueue {
    /// Appends a call, and returns its number.
    pub(super) fn append(&mut self, payload: &Payload, to: Recipient, now: Tick) -> u64 {
        if payload.asks {
            self.out.extend_from_slice(ASKING);
            self.push(Entry { len: ASKING.len(), sent: now, ..Entry::default() });
        }
        let before = self.out.len();
        payload.write_to(&mut self.out);
        let (len, has_source) = (self.out.len() - before, payload.form == Form::Source);
        let call = Some(Arc::clone(&payload.call));
        self.push(Entry { to, call, has_source, len, sent: now, ..Entry::default() })
    }

    pub(super) fn append_ping(&mut self, to: Recipient, now: Tick) -> u64 {
        self.out.extend_from_slice(PING);
        self.push(Entry { to, len: PING.len(), sent: now, ..Entry::default() })
    }

    fn push(&mut self, entry: Entry) -> u64 {
        self.pending.push_back(entry);
        self.unwritten += 1;
        self.first + self.pending.len() as u64 - 1
    }

    /// True if there are bytes that can be written now. Behind a `WAIT` nothing is written until it is answered. The
    /// server executes nothing there anyway, and if replicas hang, one `WAIT` behind another would take longer than a
    /// node timeout.
    pub(super) fn has_unwritten(&self) -> bool {
        !self.out.is_empty() && !self.is_waiting
    }

    /// Moves the bytes to a packet, which must be written. If replicas must acknowledge a call in it, it ends with this
    /// `WAIT`, which is late at that time. One suffices for all calls: replicas apply writes in order.
    pub(super) fn pack(&mut self, packet: &mut Vec<u8>, wait: &[u8], late: Tick) {
        let written = self.written();
        if !wait.is_empty() && self.pending.iter().skip(written).any(Entry::is_for_replicas) {
            self.out.extend_from_slice(wait);
            self.push(Entry { is_wait: true, sent: late, ..Entry::default() });
            self.is_waiting = true;
        }
        packet.clear();
        std::mem::swap(packet, &mut self.out);
        self.unwritten = 0;
    }

    /// How many entries were written, in part at least.
    fn written(&self) -> usize {
        self.pending.len() - self.unwritten
    }

    /// Assigns a reply to its call. Returns when that was sent, or `None` if no call that was written expects a reply.
    pub(super) fn assign(&mut self, reply: WireReply, outcomes: &mut Outcomes) -> Option<Tick> {
        let (written, is_waiting) = (self.written(), self.is_waiting);
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

    /// True if this call has no reply.
    pub(super) fn has(&self, number: u64) -> bool {
        self.place_of(number).is_some()
    }

    /// When the first call without a reply was sent. For a `WAIT`, when it is late.
    pub(super) fn oldest(&self) -> Option<Tick> {
        self.pending.get(self.replied).map(|entry| entry.sent)
    }

    /// True if this is so for an unanswered call; the second argument says whether it brings its source.
    pub(super) fn has_call(&self, is_it: impl Fn(&Call, bool) -> bool) -> bool {
        self.pending.iter().any(|entry| entry.call.as_ref().is_some_and(|call| is_it(call, entry.has_source)))
    }

    // --- threads -----------------------------------------------------------------------------------------------------

    /// Marks that the thread of this call sleeps until another one reads for it.
    pub(super) fn mark_asleep(&mut self, number: u64) {
        let place = self.place_of(number);
        if let Some(entry) = place.and_then(|place| self.pending.get_mut(place)) {
            entry.sleeps = true;
        }
    }

    /// Chooses the thread that reads next: the first one that sleeps. It must be notified.
    pub(super) fn next_reader(&self) -> Option<Arc<Condvar>> {
        self.pending.iter().filter(|entry| entry.sleeps).find_map(|entry| match &entry.to {
            Recipient::Round(round, _) => round.reads_next(),
            _ => None,
        })
    }

    /// The thread of this call has given it up. Returns how far it has come. If it was not written, a `PING` takes its
    /// place, unless it is a release.
    pub(super) fn abandon(&mut self, number: u64) -> Progress {
        let written = self.written();
        let Some(place) = self.place_of(number) else { return Progress::Sent };
        let begin: usize = self.pending.iter().take(place).skip(written).map(|entry| entry.len).sum();
        let Some(entry) = self.pending.get_mut(place) else { return Progress::Sent };
        entry.to = Recipient::Nobody;
        if entry.reply.is_some() {
            return Progress::Unacknowledged;
        }
        if place < written {
            return Progress::Sent;
        }
        if entry.call.as_ref().is_some_and(|call| call.script.purpose != Purpose::Release) {
            self.out.splice(begin..begin + entry.len, PING.iter().copied());
            (entry.call, entry.len) = (None, PING.len());
        }
        Progress::Unsent
    }

    // --- calls for which no thread waits -----------------------------------------------------------------------------

    pub(super) fn has_unattended(&self) -> bool {
        self.pending.iter().any(|entry| !matches!(entry.to, Recipient::Round(..)))
    }

    pub(super) fn has_callbacks(&self) -> bool {
        self.pending.iter().any(Entry::has_callback)
    }

    /// Takes the callbacks of calls that were sent by then.
    pub(super) fn take_callbacks(&mut self, by: Tick) -> Vec<Recipient> {
        let due = self.pending.iter_mut().filter(|entry| entry.sent <= by && entry.has_callback());
        due.map(|entry| std::mem::take(&mut entry.to)).collect()
    }

    // --- the end -----------------------------------------------------------------------------------------------------

    /// The callbacks of a connection that breaks, with the outcomes that `of` makes. It is told whether the server may
    /// have the call.
    pub(super) fn break_callbacks(&mut self, of: impl Fn(bool) -> Outcome) -> Outcomes {
        let written = self.written();
        let callbacks = self.pending.iter_mut().enumerate().filter(|(_, entry)| entry.has_callback());
        callbacks.map(|(place, entry)| (std::mem::take(&mut entry.to), of(place < written))).collect()
    }

    /// The same for all calls. The queue is empty then.
    pub(super) fn break_all(&mut self, of: impl Fn(bool) -> Outcome) -> Outcomes {
        let written = self.written();
        (self.out, self.unwritten, self.replied) = (Vec::new(), 0, 0);
        let all = std::mem::take(&mut self.pending);
        all.into_iter().enumerate().map(|(place, entry)| (entry.to, of(place < written))).collect()
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.pending.len()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by a panic")]
mod tests {
    use super::super::round::Round;
    use super::*;
    use crate::protocol::script::{ACQUIRE, Arg, RELEASE};
    use crate::token::LockId;

    const NOW: Tick = Tick::ZERO;
    const WAIT: &[u8] = b"WAIT";

    fn payload(purpose: Purpose, asks: bool) -> Payload {
        let script = if purpose == Purpose::Release { &*RELEASE } else { &*ACQUIRE };
        let id = LockId::from_server("t");
        let call = Call::of_token(script, Some(&id), &["k"], &[Arg::Text("t")]);
        Payload { call, checks: false, form: Form::Digest, asks }
    }

    /// Appends a call, and returns its number and what gets its outcome.
    fn append(queue: &mut CallQueue, purpose: Purpose) -> (u64, Arc<Round>) {
        let round = Round::new(1);
        (queue.append(&payload(purpose, false), round.recipient(0), NOW), round)
    }

    fn pack(queue: &mut CallQueue, wait: &[u8]) -> String {
        let mut packet = Vec::new();
        queue.pack(&mut packet, wait, NOW);
        String::from_utf8(packet).unwrap()
    }

    /// Assigns a reply, and returns how many calls got an outcome. `None` if no call expects it.
    fn reply(queue: &mut CallQueue, n: i64) -> Option<usize> {
        let mut outcomes = Outcomes::new();
        queue.assign(WireReply::Int(n), &mut outcomes)?;
        let many = outcomes.len();
        outcomes.into_iter().for_each(|(to, outcome)| to.deliver(outcome));
        Some(many)
    }

    fn said(round: &Round) -> Option<i64> {
        match round.take(0)? {
            Outcome::Replied(WireReply::Int(n)) | Outcome::Acknowledged { reply: WireReply::Int(n), .. } => Some(n),
            other => panic!("{other:?}"),
        }
    }

    /// A reply that nobody asked for must not go to a call that is still to be written: all later replies would go to
    /// the call before theirs.
    #[test]
    fn a_call_that_was_not_written_gets_no_reply() {
        let mut queue = CallQueue::default();
        assert_eq!(reply(&mut queue, 1), None);
        let (_, first) = append(&mut queue, Purpose::Acquire);
        pack(&mut queue, b"");
        let (_, second) = append(&mut queue, Purpose::Acquire);
        assert_eq!((reply(&mut queue, 1), reply(&mut queue, 2)), (Some(1), None));
        assert_eq!((said(&first), said(&second)), (Some(1), None));
    }

    #[test]
    fn a_call_that_was_given_up_before_it_was_written_is_not_sent() {
        let mut queue = CallQueue::default();
        let calls = [Purpose::Acquire, Purpose::Acquire, Purpose::Release].map(|one| append(&mut queue, one));
        assert_eq!([1, 2].map(|n: usize| queue.abandon(calls[n].0)), [Progress::Unsent; 2]);
        let packet = pack(&mut queue, b"");
        assert_eq!(packet.matches("EVALSHA").count(), 2, "the first call and the release: {packet}");
        let (ping, release) = (packet.find("PING").unwrap(), packet.rfind("EVALSHA").unwrap());
        assert!(packet.find("EVALSHA").unwrap() < ping && ping < release, "{packet}");
        assert_eq!(queue.abandon(calls[0].0), Progress::Sent);
        assert_eq!([1, 2, 3, 4].map(|n| reply(&mut queue, n)), [Some(1), Some(1), Some(1), None]);
    }

    #[test]
    fn the_reply_to_asking_is_nobodys() {
        let mut queue = CallQueue::default();
        let round = Round::new(1);
        let number = queue.append(&payload(Purpose::Acquire, true), round.recipient(0), NOW);
        assert!(pack(&mut queue, b"").starts_with("*1\r\n$6\r\nASKING"));
        assert_eq!((reply(&mut queue, 1), said(&round), queue.has(number)), (Some(1), None, true));
        assert_eq!((reply(&mut queue, 2), said(&round), queue.has(number)), (Some(1), Some(2), false));
    }

    /// While a `WAIT` is unanswered, nothing is written. Its reply acknowledges all calls before it.
    #[test]
    fn one_wait_for_replicas_at_a_time() {
        let mut queue = CallQueue::default();
        for n in 0..2 {
            let purposes = [Purpose::Acquire, Purpose::Release, Purpose::Acquire];
            let calls = purposes.map(|one| append(&mut queue, one));
            assert!(pack(&mut queue, WAIT).ends_with("WAIT"));
            let (later, last) = append(&mut queue, Purpose::Release);
            assert!(!queue.has_unwritten());
            assert_eq!([1, 2, 3].map(|n| reply(&mut queue, n)), [Some(0), Some(1), Some(0)], "round {n}");
            assert_eq!(calls.each_ref().map(|(_, round)| said(round)), [None, Some(2), None]);
            assert_eq!(queue.abandon(calls[2].0), Progress::Unacknowledged);
            assert_eq!(reply(&mut queue, 9), Some(2));
            assert_eq!(said(&calls[0].1), Some(1));
            assert!(queue.has_unwritten() && queue.has(later) && !queue.has(calls[2].0));
            assert!(!pack(&mut queue, WAIT).contains("WAIT"), "no call needs replicas");
            assert_eq!((reply(&mut queue, 4), said(&last)), (Some(1), Some(4)));
        }
    }

    #[test]
    fn a_break_tells_what_the_server_may_have() {
        let mut queue = CallQueue::default();
        append(&mut queue, Purpose::Acquire);
        pack(&mut queue, b"");
        append(&mut queue, Purpose::Acquire);
        let why = Arc::new(super::super::halves::Broken::TimedOut);
        let outcome = |was_written| Outcome::Disconnected { was_written, why: Arc::clone(&why) };
        let was_written = |(_, outcome)| matches!(outcome, Outcome::Disconnected { was_written: true, .. });
        assert_eq!(queue.break_all(outcome).into_iter().map(was_written).collect::<Vec<_>>(), [true, false]);
        assert_eq!((queue.len(), queue.oldest()), (0, None));
    }
}
