//! What is done for the push connection in the background: subscribing, beats, and closing it when it is not needed.

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::Listener;
use super::connection::{Pulse, Subscription};
use super::desk::{Arrived, Desk, Errand};
use super::watching::Watched;
use crate::handover::rules::SET_LOOK;
use crate::node::{Failure, FailureKind, Heard, Node, Value};
use crate::protocol::script::{Arg, Call, PUBLISH, Purpose};
use crate::token;

/// Published to see whether it arrives.
const BEAT: &str = "0";
/// Published to wake the thread that reads.
pub(super) const LOOK: &str = "look";
/// Only looks.
const NOTHING: &str = "";
/// Locks that are looked after in one call.
const MOST_WATCHED: usize = 1000;
/// Calls in one packet.
const MOST_LOOKS: usize = 64;

/// Why no message arrives. Each is logged once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Cause {
    Subscribe,
    Publish,
    /// What is published arrives at no connection.
    Lost,
    NoRandom,
}

/// How an attempt to listen ended without success.
enum Deaf {
    /// Until the set-up of the server is changed.
    Refused(Cause, String),
    Failed {
        is_left_out: bool,
    },
}

impl Listener {
    /// Leaves an errand to the background threads.
    pub(super) fn run(&self, errand: Errand) {
        let pause = match &errand {
            // Clients that lost the same server do not come back to it in step.
            Errand::Connect(pause) => pause.mul_f64(0.5 + fastrand::f64() / 2.0),
            Errand::Rest(pause) => *pause,
            Errand::Beat(_) | Errand::Wake(_) | Errand::GiveBack(_) => Duration::ZERO,
        };
        let job = Job { listener: self.this.clone(), errand: Some(errand) };
        self.quorum.nodes.background().after(pause, move || job.run());
    }

    /// One attempt to listen.
    fn attempt(&self) {
        if !self.turns.with(|desk, _| desk.attempt()) {
            return;
        }
        match self.listen() {
            Ok(arrived) => self.turns.with(|desk, now| desk.install(arrived, now)),
            Err(Deaf::Failed { is_left_out }) => self.turns.with(|desk, _| desk.failed(is_left_out)),
            Err(Deaf::Refused(cause, why)) => {
                self.warn(cause, &why);
                self.turns.with(|desk, _| desk.refused());
            }
        }
    }

    /// Subscribes, publishes on the channel, and waits for that message to arrive: only then are pushes known to arrive.
    fn listen(&self) -> Result<Arrived, Deaf> {
        let Some((node, member)) = self.quorum.wake_node() else { return Err(Deaf::Failed { is_left_out: true }) };
        let channel = self.turns.with(|desk, _| desk.channel()).map_or_else(|| self.new_channel(), Ok)?;
        let timeout = self.quorum.limits.node_timeout;
        // To connect, and then to subscribe.
        let by = self.quorum.now().after(2 * timeout);
        let mut conn = member.subscribe(&channel, by).map_err(|failure| not_subscribed(member, &failure))?;
        let subscription = Subscription { node, channel: Arc::clone(&channel), generation: 0 };
        let receivers = self.publish(&subscription, BEAT, &[]).map_err(|failure| not_published(member, &failure))?;
        let wait = if receivers > 0 { timeout } else { Duration::ZERO };
        match conn.receive(wait) {
            Heard::Message(first) if receivers > 0 => Ok(Arrived { node, channel, conn, first }),
            // In a cluster another server than before may have been asked.
            Heard::Message(_) | Heard::Nothing if receivers == 0 && !self.quorum.nodes.are_in_slots() => {
                Err(Deaf::Refused(Cause::Lost, member.address().into_owned()))
            }
            // It broke, or the server has stopped in between.
            _ => Err(Deaf::Failed { is_left_out: false }),
        }
    }

    fn new_channel(&self) -> Result<Arc<str>, Deaf> {
        let channel = token::channel().map_err(|error| {
            self.warn(Cause::NoRandom, &error.to_string());
            Deaf::Failed { is_left_out: false }
        })?;
        self.turns.with(|desk, _| desk.name_channel(Arc::clone(&channel)));
        Ok(channel)
    }

    /// The number of connections that receive it. On the way these locks are looked after.
    pub(super) fn publish(&self, subscription: &Subscription, text: &str, watched: &[Watched]) -> Result<u64, Failure> {
        let call = call(subscription, text, watched);
        let said = self.quorum.ask_one(subscription.node, &call, self.quorum.round_deadline())?;
        Ok(self.learn(subscription, said, watched))
    }

    /// Takes over what a server says of these locks; how many connections received what was published.
    fn learn(&self, subscription: &Subscription, said: Value, watched: &[Watched]) -> u64 {
        let Value::List(said) = said else { return number(&said) };
        let (mut due, mut later) = (Vec::new(), Vec::new());
        let wait = |place: &Value| usize::try_from(number(place)).ok()?.checked_sub(1).and_then(|i| watched.get(i));
        for place in said.iter().skip(1) {
            match place {
                Value::List(found) => later.extend(found.first().and_then(wait).zip(found.get(1)).map(end)),
                place => due.extend(wait(place).map(|watched| watched.number)),
            }
        }
        self.turns.with(|desk, now| desk.look_after(later, now));
        if self.turns.with(|desk, _| desk.look(due)) {
            drop(self.publish(subscription, LOOK, &[]));
        }
        said.first().map_or(0, number)
    }

    fn beat(&self, subscription: &Subscription) {
        let pulse = if self.is_better_elsewhere(subscription) { Pulse::Deaf } else { self.pulse(subscription) };
        self.turns.with(|desk, now| desk.beaten(subscription.generation, pulse, now));
    }

    /// All clients shall listen at the same node.
    fn is_better_elsewhere(&self, subscription: &Subscription) -> bool {
        self.quorum.len() > 1 && self.quorum.wake_node().is_some_and(|(node, _)| node != subscription.node)
    }

    fn pulse(&self, subscription: &Subscription) -> Pulse {
        let watched = self.watched();
        // A cluster is asked for its own beat: its reply shall not depend on a slot.
        let together = watched.first().filter(|_| !self.quorum.nodes.are_in_slots()).map_or(&[][..], Vec::as_slice);
        let pulse = match self.publish(subscription, BEAT, together) {
            Ok(0) => Pulse::Deaf,
            Ok(_) => Pulse::Sent(self.quorum.now()),
            // The attempt to subscribe anew will say what is missing.
            Err(failure) if is_refusal(&failure) => Pulse::Deaf,
            Err(_) => Pulse::Quiet,
        };
        let more = watched.get(usize::from(!together.is_empty())..).unwrap_or_default();
        if matches!(pulse, Pulse::Sent(_)) {
            self.look_after(subscription, more);
        }
        pulse
    }

    /// Looks after locks that cannot be named in one call.
    fn look_after(&self, subscription: &Subscription, parts: &[Vec<Watched>]) {
        for parts in parts.chunks(MOST_LOOKS) {
            let calls: Vec<_> = parts.iter().map(|part| call(subscription, NOTHING, part)).collect();
            let said = self.quorum.ask_one_all(subscription.node, &calls);
            for (said, part) in said.into_iter().zip(parts) {
                if let Ok(said) = said {
                    self.learn(subscription, said, part);
                }
            }
        }
    }

    /// The locks to look after, in parts of which each can be named in one call: in a cluster one by one, since also those of one slot can be at two
    /// servers while that moves.
    fn watched(&self) -> Vec<Vec<Watched>> {
        let most = if self.quorum.nodes.are_in_slots() { 1 } else { MOST_WATCHED };
        let mut parts: Vec<Vec<Watched>> = Vec::new();
        for watched in self.turns.with(|desk, now| desk.watched(now)) {
            match parts.last_mut() {
                Some(part) if part.len() < most => part.push(watched),
                _ => parts.push(vec![watched]),
            }
        }
        parts
    }

    fn warn(&self, cause: Cause, why: &str) {
        if !self.warned.lock().insert(cause) {
            return;
        }
        let polls = "until that works, threads that wait for a lock ask for it again and again";
        let rule = "allow it: `ACL SETUSER <user> &redlock-sync:* +subscribe +publish`";
        match cause {
            Cause::Subscribe | Cause::Publish => log::warn!("{why}; {polls}; {rule}"),
            Cause::Lost => log::warn!(
                "node {why}: what is published on a channel of the form redlock-sync:* does not arrive at the connection that is subscribed to it, as \
                 with a proxy that sends the two to different servers; {polls}"
            ),
            Cause::NoRandom => log::warn!("{why}; {polls}"),
        }
    }
}

/// Publishes that, and looks after these locks.
fn call(subscription: &Subscription, text: &str, watched: &[Watched]) -> Arc<Call> {
    let keys: Vec<&str> = watched.iter().map(|watched| &*watched.key).collect();
    let mut args = vec![Arg::Text(&subscription.channel), Arg::Text(text)];
    args.extend(watched.iter().map(|watched| Arg::Text(watched.of.text())));
    Call::new(&PUBLISH, Purpose::Other, None, Duration::ZERO, &keys, &args)
}

fn number(value: &Value) -> u64 {
    if let Value::Int(n) = value { u64::try_from(*n).unwrap_or(0) } else { 0 }
}

/// When a set that was looked into is due again: a member lives through its last ms.
fn end((watched, left): (&Watched, &Value)) -> (u64, Duration) {
    (watched.number, Duration::from_millis(number(left).saturating_add(1)).min(SET_LOOK))
}

fn not_subscribed(node: &Node, failure: &Failure) -> Deaf {
    match failure.kind {
        FailureKind::Refused => refused(Cause::Subscribe, "subscribe", node, failure),
        kind => Deaf::Failed { is_left_out: kind == FailureKind::LeftOut },
    }
}

fn not_published(node: &Node, failure: &Failure) -> Deaf {
    if is_refusal(failure) {
        return refused(Cause::Publish, "publish", node, failure);
    }
    Deaf::Failed { is_left_out: false }
}

fn refused(cause: Cause, to: &str, node: &Node, failure: &Failure) -> Deaf {
    Deaf::Refused(cause, format!("node {} refuses to {to}: {}", node.address(), failure.message))
}

/// The server answered, and will not answer otherwise soon.
fn is_refusal(failure: &Failure) -> bool {
    failure.is_answer() && failure.kind != FailureKind::Transient
}

/// An errand on its way. An attempt to connect that does not begin, since the system starts no thread, or that panics, is not repeated before the
/// next wait begins: each repetition could end in the same way at once.
struct Job {
    listener: Weak<Listener>,
    errand: Option<Errand>,
}

impl Job {
    fn run(mut self) {
        let Some(listener) = self.listener.upgrade() else { return };
        match &self.errand {
            Some(Errand::Connect(_)) => listener.attempt(),
            Some(Errand::Beat(subscription)) => listener.beat(subscription),
            Some(Errand::Wake(subscription)) => drop(listener.publish(subscription, LOOK, &[])),
            Some(Errand::Rest(_)) => listener.turns.with(Desk::rest),
            Some(Errand::GiveBack(stray)) => listener.strays.get().into_iter().for_each(|give_back| give_back(stray)),
            None => {}
        }
        self.errand = None;
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        if let Some(Errand::Connect(_)) = self.errand
            && let Some(listener) = self.listener.upgrade()
        {
            listener.turns.with(|desk, _| desk.gave_up());
        }
    }
}
