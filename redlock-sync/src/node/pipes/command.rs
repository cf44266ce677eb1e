//! The calls of one thread to one server or several. A [`Command`] is a call on its way to a server. [`Outcomes`] is what the thread waits for.
//!
//! All outcomes of a thread are under one mutex. The thread looks at it and begins to wait under that mutex, and each outcome is noted under it: so none
//! is noted between the look and the wait. The mutex is the last in the order of locks: nothing is locked under it.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use super::ends::Broken;
use super::framer::Reply;
use super::table::Claim;
use crate::clock::{Clock, Tick};
use crate::protocol::script::{Call, Note, Purpose};
use crate::sync::{Condvar, Mutex};
use crate::token::LockId;

/// What a call became at one server.
#[derive(Clone, Debug)]
pub(crate) enum Outcome {
    Replied(Reply),
    /// The reply, and what the server said of its replicas behind it.
    Acknowledged {
        reply: Reply,
        replicas: Reply,
    },
    /// The connection is of no more use.
    Disconnected {
        /// The server may have the call.
        was_written: bool,
        why: Arc<Broken>,
    },
}

/// How far a call has come at one server.
#[derive(Debug)]
enum CallState {
    /// The server is not asked, or the outcome was taken.
    Empty,
    /// In an outbox.
    Unsent,
    /// The server may have it.
    Sent,
    /// The server has answered it, and has not said which replicas have it.
    Unacknowledged,
    Done(Outcome),
    /// Its thread has gone. The thread that reads passes the reply to the callback.
    Abandoned,
}

impl CallState {
    fn is_awaited(&self) -> bool {
        matches!(self, CallState::Unsent | CallState::Sent | CallState::Unacknowledged)
    }
}

/// How a thread pending a call whose time was up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Abandoned {
    /// It was answered before.
    Answered,
    /// It is not written any more.
    Unsent,
    /// The server may have executed it, or may still do so.
    Sent,
    /// The server has executed it, and has not said which replicas have it.
    Unacknowledged,
    /// It will be written: a release gets through.
    WillBeSent,
}

/// Called with what becomes of calls for which no thread waits, by a thread that reads or that ends the connection: it must neither wait nor send anything.
pub(crate) trait Callback: Send + Sync {
    /// Once for each call. `None`: it was not answered in time, and may be executed later.
    fn call(&self, index: usize, outcome: Option<Outcome>);
}

/// What the calls of one thread became: each has a place in it.
pub(crate) struct Outcomes {
    states: Mutex<Vec<CallState>>,
    /// Notified when an outcome is noted that ends the wait.
    changed: Arc<Condvar>,
    callback: Option<Arc<dyn Callback>>,
}

/// What is pending to wait for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum WaitStatus {
    /// Each server that was asked has an outcome.
    Done,
    /// A connection broke: the thread may send the call again.
    Disconnected,
    Pending,
}

impl Outcomes {
    /// For so many calls.
    pub(crate) fn new(calls: usize, callback: Option<Arc<dyn Callback>>) -> Arc<Outcomes> {
        let states = (0..calls).map(|_| CallState::Empty).collect();
        Arc::new(Outcomes { states: Mutex::new(states), changed: Arc::new(Condvar::new()), callback })
    }

    /// The call on its way to one of the servers. An index has one command at a time.
    pub(crate) fn command(
        self: &Arc<Self>,
        index: usize,
        payload: Payload,
        is_urgent: bool,
        claim: Option<Claim>,
    ) -> Command {
        self.set(index, CallState::Unsent);
        Command { outcomes: Arc::clone(self), index, payload, is_urgent, claim }
    }

    fn set(&self, index: usize, new: CallState) {
        if let Some(state) = self.states.lock().get_mut(index) {
            *state = new;
        }
    }

    /// It has neither an outcome nor was it pending.
    pub(crate) fn is_awaited(&self, index: usize) -> bool {
        self.states.lock().get(index).is_some_and(CallState::is_awaited)
    }

    fn is_abandoned(&self, index: usize) -> bool {
        matches!(self.states.lock().get(index), Some(CallState::Abandoned))
    }

    /// The outcome, once.
    pub(crate) fn take(&self, index: usize) -> Option<Outcome> {
        let mut states = self.states.lock();
        let state = states.get_mut(index).filter(|state| matches!(state, CallState::Done(_)))?;
        match std::mem::replace(state, CallState::Empty) {
            CallState::Done(outcome) => Some(outcome),
            _ => None,
        }
    }

    /// What is pending to wait for.
    pub(crate) fn wait_status(&self) -> WaitStatus {
        wait_status(&self.states.lock())
    }

    /// Sleeps until there is an outcome that ends the wait, at most until then.
    pub(crate) fn sleep(&self, until: Tick, clock: &dyn Clock) {
        let mut states = self.states.lock();
        if wait_status(&states) == WaitStatus::Pending && clock.now() < until {
            clock.wait_until(&self.changed, &mut states, until);
        }
    }

    /// The thread goes. What is in an outbox is not written any more, but for a release.
    pub(crate) fn give_up(&self, index: usize, is_release: bool) -> Abandoned {
        let mut states = self.states.lock();
        let Some(state) = states.get_mut(index) else { return Abandoned::Answered };
        let abandoned = match state {
            CallState::Empty | CallState::Done(_) | CallState::Abandoned => return Abandoned::Answered,
            CallState::Unsent if is_release => Abandoned::WillBeSent,
            CallState::Unsent => Abandoned::Unsent,
            CallState::Sent => Abandoned::Sent,
            CallState::Unacknowledged => Abandoned::Unacknowledged,
        };
        *state = CallState::Abandoned;
        abandoned
    }
}

fn wait_status(states: &[CallState]) -> WaitStatus {
    if states.iter().any(|state| matches!(state, CallState::Done(Outcome::Disconnected { .. }))) {
        return WaitStatus::Disconnected;
    }
    if states.iter().any(CallState::is_awaited) { WaitStatus::Pending } else { WaitStatus::Done }
}

const ASKING: &[u8] = b"*1\r\n$6\r\nASKING\r\n";

/// What is written for a call.
#[derive(Clone)]
pub(crate) enum Payload {
    Script {
        call: Arc<Call>,
        note: Note,
        form: Form,
        /// Behind `ASKING`, which lets the call in for a slot that is on its way to that server.
        asks: bool,
    },
    #[cfg_attr(not(test), allow(dead_code, reason = "for tests"))]
    /// A command that is no script, in the form of the protocol, with one reply.
    Plain(Cow<'static, [u8]>),
}

/// How a call is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Digest,
    /// For a server that does not know the script.
    Source,
    /// A first attempt, as `SET NX`.
    Native,
}

/// Whether a command is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sending {
    Awaited,
    /// No thread waits for its reply.
    Unattended,
    /// Its thread has gone, and it need not be written.
    Refused,
}

/// A thread to wake, or a callback to call, once nothing is locked.
#[must_use = "the thread sleeps until then"]
pub(super) struct Wakeup {
    outcomes: Arc<Outcomes>,
    pending: Option<PendingCallback>,
}

/// For the callback.
struct PendingCallback {
    index: usize,
    outcome: Option<Outcome>,
    /// Calls about the key stay on this connection until the callback has returned.
    _claim: Option<Claim>,
}

/// A call on its way to one server.
pub(crate) struct Command {
    outcomes: Arc<Outcomes>,
    index: usize,
    payload: Payload,
    /// Releases and renewals go before attempts.
    pub(super) is_urgent: bool,
    /// Until it is answered, calls about the same key go over the same connection.
    claim: Option<Claim>,
}

impl Command {
    /// No thread waits for it.
    pub(crate) fn unattended(self) -> Command {
        self.outcomes.set(self.index, CallState::Abandoned);
        self
    }

    /// To be called before its first byte goes out.
    pub(super) fn begin(&mut self) -> Sending {
        let mut states = self.outcomes.states.lock();
        if let Some(state @ CallState::Unsent) = states.get_mut(self.index) {
            *state = CallState::Sent;
            return Sending::Awaited;
        }
        drop(states);
        if !self.is_release() && self.outcomes.callback.is_none() {
            return Sending::Refused;
        }
        // No thread will be there to answer a NOSCRIPT.
        if let Payload::Script { form, .. } = &mut self.payload
            && self.outcomes.callback.is_none()
        {
            *form = Form::Source;
        }
        Sending::Unattended
    }

    /// Appends what is written.
    pub(super) fn write_to(&self, packet: &mut Vec<u8>) {
        if self.asks() {
            packet.extend_from_slice(ASKING);
        }
        match &self.payload {
            Payload::Script { call, note, form: Form::Digest, .. } => call.write_to(packet, *note),
            Payload::Script { call, note, form: Form::Source, .. } => call.write_source_to(packet, *note),
            Payload::Script { call, form: Form::Native, .. } => call.write_native_to(packet),
            Payload::Plain(command) => packet.extend_from_slice(command),
        }
    }

    /// One reply comes before its own.
    pub(super) fn asks(&self) -> bool {
        matches!(self.payload, Payload::Script { asks: true, .. })
    }

    fn call(&self) -> Option<&Arc<Call>> {
        match &self.payload {
            Payload::Script { call, .. } => Some(call),
            Payload::Plain(_) => None,
        }
    }

    pub(super) fn is_like(&self, call: &Call) -> bool {
        self.call().is_some_and(|own| own.is_like(call))
    }

    /// It takes a token away, and has to get through.
    pub(super) fn is_release(&self) -> bool {
        self.call().is_some_and(|call| call.purpose == Purpose::Release)
    }

    /// Its yes counts only once replicas have what it wrote.
    pub(super) fn is_for_replicas(&self) -> bool {
        self.call().is_some_and(|call| call.script.is_for_replicas())
    }

    /// It was answered, and what the server says of its replicas follows.
    pub(super) fn mark_unacknowledged(&self) {
        if let Some(state @ CallState::Sent) = self.outcomes.states.lock().get_mut(self.index) {
            *state = CallState::Unacknowledged;
        }
    }

    /// The token that it may set.
    pub(super) fn acquires(&self) -> Option<&str> {
        let call = self.call().filter(|call| call.purpose == Purpose::Acquire)?;
        call.token.as_ref().map(LockId::as_str)
    }

    /// The token that it takes away.
    pub(super) fn releases(&self) -> Option<&str> {
        let call = self.call().filter(|call| call.purpose == Purpose::Release)?;
        call.token.as_ref().map(LockId::as_str)
    }

    /// The group of its key.
    pub(super) fn group(&self) -> Option<usize> {
        self.claim.as_ref().map(Claim::group)
    }

    /// A thread waits for it.
    pub(super) fn is_awaited(&self) -> bool {
        self.outcomes.is_awaited(self.index)
    }

    /// No thread waits for it, and a callback is to be told its outcome.
    pub(super) fn is_abandoned(&self) -> bool {
        self.outcomes.callback.is_some() && self.outcomes.is_abandoned(self.index)
    }

    pub(super) fn is_of(&self, outcomes: &Arc<Outcomes>, index: usize) -> bool {
        self.index == index && Arc::ptr_eq(&self.outcomes, outcomes)
    }

    /// Notes the outcome. [`Wakeup::notify`] wakes its thread.
    pub(super) fn complete(self, outcome: Outcome) -> Option<Wakeup> {
        let mut states = self.outcomes.states.lock();
        let state = states.get_mut(self.index)?;
        let pending = match state {
            CallState::Unsent | CallState::Sent | CallState::Unacknowledged => {
                *state = CallState::Done(outcome);
                if wait_status(&states) == WaitStatus::Pending {
                    return None;
                }
                None
            }
            CallState::Abandoned if self.outcomes.callback.is_some() => {
                *state = CallState::Empty;
                Some(PendingCallback { index: self.index, outcome: Some(outcome), _claim: self.claim })
            }
            _ => return None,
        };
        drop(states);
        Some(Wakeup { outcomes: self.outcomes, pending })
    }

    /// Tells its callback, if it has one that was not called yet, that no outcome came in time. The callback is not called again.
    pub(super) fn complete_late(&self) -> Option<Wakeup> {
        let mut states = self.outcomes.states.lock();
        let state = states.get_mut(self.index).filter(|state| matches!(state, CallState::Abandoned))?;
        self.outcomes.callback.as_ref()?;
        *state = CallState::Empty;
        drop(states);
        let pending = Some(PendingCallback { index: self.index, outcome: None, _claim: None });
        Some(Wakeup { outcomes: Arc::clone(&self.outcomes), pending })
    }
}

impl Wakeup {
    /// A thread goes on. A callback is called only once nothing is locked.
    pub(super) fn is_of_thread(&self) -> bool {
        self.pending.is_none()
    }

    pub(super) fn notify(self) {
        if let (Some(pending), Some(callback)) = (self.pending, &self.outcomes.callback) {
            callback.call(pending.index, pending.outcome);
        } else {
            self.outcomes.changed.notify_one();
        }
    }
}

impl fmt::Debug for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Command")
            .field("index", &self.index)
            .field("is_release", &self.is_release())
            .finish_non_exhaustive()
    }
}
