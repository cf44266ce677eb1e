//! The calls of one thread to one or several servers. A [`Command`] is a call on its way to a server. [`Outcomes`] is
//! what the thread waits for.
//!
//! One mutex guards all outcomes of a thread. The thread checks them and begins to wait under this mutex, and each
//! outcome is set under it. So no outcome is missed between the check and the wait. No other mutex is locked while this
//! one is held.

use std::sync::Arc;
use std::time::Duration;

use smallvec::SmallVec;

use super::framer::WireReply;
use super::halves::Broken;
use super::table::UnansweredCall;
use crate::clock::{Clock, Tick};
use crate::protocol::script::{Call, Purpose};
use crate::sync::{Condvar, Mutex};
use crate::token::LockId;

/// What became of a call at one server.
#[derive(Clone, Debug)]
pub(crate) enum Outcome {
    Replied(WireReply),
    /// The reply to the call, and the reply to the `WAIT` after it.
    Acknowledged {
        reply: WireReply,
        replicas: WireReply,
    },
    /// The connection broke or was closed.
    Disconnected {
        /// True if the server may have received the call.
        was_written: bool,
        why: Arc<Broken>,
    },
}

/// The state of a call to one server.
#[derive(Debug)]
enum CallState {
    /// The server is not asked, or the outcome was taken.
    Empty,
    Awaited(Progress),
    Done(Outcome),
    /// No thread waits for it. A reply goes to the callback.
    Abandoned,
}

impl CallState {
    fn is_awaited(&self) -> bool {
        matches!(self, CallState::Awaited(_))
    }
}

/// How far a call without an outcome has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// In an outbox.
    Unsent,
    /// The server may have executed it, or may still do so.
    Sent,
    /// The server has executed it, but has not replied to the `WAIT` after it.
    Unacknowledged,
}

/// Receives the outcomes of calls for which no thread waits, each with the index of its call. It is called once for
/// each call, by a thread that reads, or that closes the connection. It must neither wait nor send anything. The
/// outcome is `None` if no reply came in time; the call may still be executed.
pub(crate) type Callback = Arc<dyn Fn(usize, Option<Outcome>) + Send + Sync>;

/// The outcomes of the calls of one thread. Each call has an index.
pub(crate) struct Outcomes {
    states: Mutex<SmallVec<[CallState; 1]>>,
    /// Notified when an outcome ends the wait of the thread. `None` if a callback gets the outcomes.
    changed: Option<Arc<Condvar>>,
    /// Gets the outcomes of calls for which no thread waits.
    callback: Option<Callback>,
}

impl Outcomes {
    /// Outcomes for this many calls.
    pub(crate) fn new(calls: usize, callback: Option<Callback>) -> Arc<Outcomes> {
        let states = (0..calls).map(|_| CallState::Empty).collect();
        let changed = callback.is_none().then(|| Arc::new(Condvar::new()));
        Arc::new(Outcomes { states: Mutex::new(states), changed, callback })
    }

    /// A command for the call with this index. An index has one command at a time.
    pub(crate) fn command(
        self: &Arc<Self>,
        index: usize,
        payload: Payload,
        unanswered: Option<UnansweredCall>,
    ) -> Command {
        self.set(index, CallState::Awaited(Progress::Unsent));
        Command { outcomes: Arc::clone(self), index, payload, unanswered }
    }

    fn set(&self, index: usize, new: CallState) {
        if let Some(state) = self.states.lock().get_mut(index) {
            *state = new;
        }
    }

    /// True if the call has no outcome and was not given up.
    pub(crate) fn is_awaited(&self, index: usize) -> bool {
        self.states.lock().get(index).is_some_and(CallState::is_awaited)
    }

    /// Takes the outcome, if there is one.
    pub(crate) fn take(&self, index: usize) -> Option<Outcome> {
        let mut states = self.states.lock();
        let state = states.get_mut(index).filter(|state| matches!(state, CallState::Done(_)))?;
        match std::mem::replace(state, CallState::Empty) {
            CallState::Done(outcome) => Some(outcome),
            _ => None,
        }
    }

    /// True while the thread has to go on waiting.
    pub(crate) fn is_pending(&self) -> bool {
        is_pending(&self.states.lock())
    }

    /// Sleeps until an outcome ends the wait, or until the deadline.
    pub(crate) fn sleep(&self, until: Tick, clock: &dyn Clock) {
        let Some(changed) = &self.changed else { return };
        let mut states = self.states.lock();
        if is_pending(&states) && clock.now() < until {
            clock.wait_until(changed, &mut states, until);
        }
    }

    /// Gives up a call. `None` if it has an outcome. A call in an outbox is not written any more, unless it is a
    /// release.
    pub(super) fn give_up(&self, index: usize) -> Option<Progress> {
        let mut states = self.states.lock();
        let state = states.get_mut(index)?;
        let CallState::Awaited(progress) = *state else { return None };
        *state = CallState::Abandoned;
        Some(progress)
    }
}

/// True while a call has no outcome. If a connection broke, or a server returned an error such as `NOSCRIPT`, the
/// thread does not wait for the other servers. It may send the call again.
fn is_pending(states: &[CallState]) -> bool {
    let may_be_repeated = |state: &CallState| match state {
        CallState::Done(Outcome::Disconnected { .. }) => true,
        CallState::Done(Outcome::Replied(reply)) => reply.is_error(),
        _ => false,
    };
    !states.iter().any(may_be_repeated) && states.iter().any(CallState::is_awaited)
}

const ASKING: &[u8] = b"*1\r\n$6\r\nASKING\r\n";

/// The content of a call on the wire.
#[derive(Clone)]
pub(crate) struct Payload {
    pub(crate) call: Arc<Call>,
    /// The script first checks the user's permissions.
    pub(crate) checks: bool,
    pub(crate) form: Form,
    /// Sends `ASKING` first, so that the server accepts a call for a slot that is migrating to it. The reply to
    /// `ASKING` comes before that to the call.
    pub(crate) asks: bool,
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

/// A thread to wake or a callback to call, after all mutexes are released.
#[must_use = "the thread sleeps until then"]
pub(super) enum Wakeup {
    /// The thread that waits for these outcomes.
    Thread(Arc<Outcomes>),
    Callback {
        callback: Callback,
        index: usize,
        outcome: Option<Outcome>,
        /// Keeps calls about the key on this connection until the callback has returned.
        _unanswered: Option<UnansweredCall>,
    },
}

/// A call on its way to one server.
pub(crate) struct Command {
    outcomes: Arc<Outcomes>,
    index: usize,
    pub(super) payload: Payload,
    /// Until the call is answered, calls about the same key go over the same connection.
    unanswered: Option<UnansweredCall>,
}

impl Command {
    /// Marks that no thread waits for it.
    pub(crate) fn unattended(self) -> Command {
        self.outcomes.set(self.index, CallState::Abandoned);
        self
    }

    /// Must be called before the first byte is written. Returns false if the thread has given the call up, and it need
    /// not be sent.
    pub(super) fn begin(&mut self) -> bool {
        let mut states = self.outcomes.states.lock();
        if let Some(CallState::Awaited(progress @ Progress::Unsent)) = states.get_mut(self.index) {
            *progress = Progress::Sent;
            return true;
        }
        drop(states);
        let has_callback = self.outcomes.callback.is_some();
        // If the script is unknown, no thread would send it again. So it is sent with its source.
        if !has_callback {
            self.payload.form = Form::Source;
        }
        has_callback || self.is_release()
    }

    /// Appends the bytes of the call.
    pub(super) fn write_to(&self, packet: &mut Vec<u8>) {
        let Payload { call, checks, form, asks } = &self.payload;
        if *asks {
            packet.extend_from_slice(ASKING);
        }
        match form {
            Form::Digest => call.write_to(packet, *checks),
            Form::Source => call.write_source_to(packet, *checks),
            Form::SetNx { lease } => call.write_set_nx_to(packet, *lease),
        }
    }

    /// True if it is sent before other calls.
    pub(super) fn is_urgent(&self) -> bool {
        matches!(self.payload.call.script.purpose, Purpose::Release | Purpose::Urgent)
    }

    /// True for a release. It is sent even if its thread has given it up.
    pub(super) fn is_release(&self) -> bool {
        self.payload.call.script.purpose == Purpose::Release
    }

    /// True if a yes counts only after replicas have acknowledged it.
    pub(super) fn is_for_replicas(&self) -> bool {
        self.payload.call.script.is_for_replicas
    }

    /// Marks that the reply came, and that the reply to the `WAIT` is still due.
    pub(super) fn mark_unacknowledged(&self) {
        if let Some(CallState::Awaited(progress @ Progress::Sent)) = self.outcomes.states.lock().get_mut(self.index) {
            *progress = Progress::Unacknowledged;
        }
    }

    /// The token that it may set, if it is an acquire, or that it removes, if it is a release.
    pub(super) fn token(&self, purpose: Purpose) -> Option<&str> {
        let call = &self.payload.call;
        call.token.as_ref().filter(|_| call.script.purpose == purpose).map(LockId::as_str)
    }

    /// True if it is about a key of this group, or if `group` is `None`.
    pub(super) fn is_about(&self, group: Option<usize>) -> bool {
        group.is_none() || self.unanswered.as_ref().map(|call| call.group) == group
    }

    /// True if a thread waits for it.
    pub(super) fn is_awaited(&self) -> bool {
        self.outcomes.is_awaited(self.index)
    }

    /// True if no thread waits for it and a callback gets its outcome.
    pub(super) fn is_abandoned(&self) -> bool {
        self.outcomes.callback.is_some()
            && matches!(self.outcomes.states.lock().get(self.index), Some(CallState::Abandoned))
    }

    pub(super) fn is_of(&self, outcomes: &Arc<Outcomes>, index: usize) -> bool {
        self.index == index && Arc::ptr_eq(&self.outcomes, outcomes)
    }

    /// Sets the outcome. The returned [`Wakeup`] wakes the thread or calls the callback.
    pub(super) fn complete(self, outcome: Outcome) -> Option<Wakeup> {
        let mut states = self.outcomes.states.lock();
        let state = states.get_mut(self.index)?;
        if state.is_awaited() {
            *state = CallState::Done(outcome);
            let is_pending = is_pending(&states);
            drop(states);
            return (!is_pending).then_some(Wakeup::Thread(self.outcomes));
        }
        let callback = self.outcomes.callback.clone().filter(|_| matches!(state, CallState::Abandoned))?;
        *state = CallState::Empty;
        drop(states);
        Some(Wakeup::Callback { callback, index: self.index, outcome: Some(outcome), _unanswered: self.unanswered })
    }

    /// Tells the callback that no reply came in time, unless it was called before. It is not called again.
    pub(super) fn complete_late(&self) -> Option<Wakeup> {
        let mut states = self.outcomes.states.lock();
        let state = states.get_mut(self.index).filter(|state| matches!(state, CallState::Abandoned))?;
        let callback = self.outcomes.callback.clone()?;
        *state = CallState::Empty;
        Some(Wakeup::Callback { callback, index: self.index, outcome: None, _unanswered: None })
    }
}

/// What to notify after some replies were read.
#[derive(Default)]
pub(super) struct Wakeups {
    threads: SmallVec<[Wakeup; 2]>,
    callbacks: SmallVec<[Wakeup; 2]>,
}

impl Wakeups {
    pub(super) fn add(&mut self, wakeup: Option<Wakeup>) {
        let Some(wakeup) = wakeup else { return };
        match wakeup {
            Wakeup::Thread(_) => self.threads.push(wakeup),
            Wakeup::Callback { .. } => self.callbacks.push(wakeup),
        }
    }

    /// Wakes the threads. The callbacks may be called only after all mutexes are released.
    pub(super) fn notify_threads(&mut self) {
        self.threads.drain(..).for_each(Wakeup::notify);
    }

    pub(super) fn notify(mut self) {
        self.notify_threads();
        self.callbacks.into_iter().for_each(Wakeup::notify);
    }
}

impl Wakeup {
    pub(super) fn notify(self) {
        match self {
            Wakeup::Thread(outcomes) => {
                // `complete` has unlocked the states. Pairs with `Outcomes::sleep`, which reads them under their lock
                // before it sleeps. So no notification is lost.
                if let Some(changed) = &outcomes.changed {
                    changed.notify_one();
                }
            }
            Wakeup::Callback { callback, index, outcome, _unanswered } => callback(index, outcome),
        }
    }
}
