//! What is done for the push connection in the background: subscribing, beats, and closing it when it is not needed.

use std::collections::HashSet;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;

use super::Listener;
use super::connection::{Pulse, Subscription};
use super::desk::{Arrived, Errand};
use super::watching::Watched;
use crate::node::{Failure, FailureKind, Heard, Node, Value};
use crate::protocol::script::{Arg, Call, PUBLISH, Purpose};
use crate::token;

/// Published to see whether it arrives.
const BEAT: &str = "0";
/// Published to wake the thread that reads.
pub(super) const LOOK: &str = "look";
/// Locks that are looked after in one call.
const MOST_WATCHED: usize = 1000;

/// Why no message arrives. Each is logged once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Cause {
    Subscribe,
    Publish,
    /// What is published arrives at no connection.
    Lost,
    NoRandom,
}

#[derive(Debug, Default)]
pub(super) struct Warnings(Mutex<HashSet<Cause>>);

/// How an attempt to listen ended without success.
enum Deaf {
    /// Until the set-up of the server is changed.
    Refused(Cause, String),
    Failed {
        is_left_out: bool,
    },
}

/// A subscription that was confirmed.
struct Listening {
    node: usize,
    channel: Arc<str>,
    arrived: Arrived,
}

impl Listener {
    /// Leaves an errand to the background threads.
    pub(super) fn run(&self, errand: Errand) {
        let pause = match &errand {
            // Clients that lost the same server do not come back to it in step.
            Errand::Connect(pause) => pause.mul_f64(0.5 + fastrand::f64() / 2.0),
            Errand::Rest(pause) => *pause,
            Errand::Beat(_) | Errand::Wake(_) => Duration::ZERO,
        };
        let job = Job { listener: self.this.clone(), errand: Some(errand) };
        self.quorum.nodes.background().after(pause, move || job.run());
    }

    /// One attempt to listen.
    fn attempt(&self) {
        if !self.turns.attempt() {
            return;
        }
        match self.listen() {
            Ok(Listening { node, channel, arrived }) => self.turns.install(node, &channel, arrived),
            Err(Deaf::Failed { is_left_out }) => self.turns.failed(is_left_out),
            Err(Deaf::Refused(cause, why)) => {
                self.warn(cause, &why);
                self.turns.refused();
            }
        }
    }

    /// Subscribes, publishes on the channel, and waits for that message to arrive: only then are pushes known to arrive.
    fn listen(&self) -> Result<Listening, Deaf> {
        let Some((node, member)) = self.quorum.wake_node() else { return Err(Deaf::Failed { is_left_out: true }) };
        let channel = self.turns.channel().map_or_else(|| self.new_channel(), Ok)?;
        let timeout = self.quorum.limits.node_timeout;
        // To connect, and then to subscribe.
        let by = self.quorum.now().after(2 * timeout);
        let mut conn = member.subscribe(&channel, by).map_err(|failure| not_subscribed(member, &failure))?;
        let subscription = Subscription { node, channel: Arc::clone(&channel), generation: 0 };
        let receivers = self.publish(&subscription, BEAT, &[]).map_err(|failure| not_published(member, &failure))?;
        let wait = if receivers > 0 { timeout } else { Duration::ZERO };
        match conn.receive(wait) {
            Heard::Message(first) if receivers > 0 => Ok(Listening { node, channel, arrived: Arrived { conn, first } }),
            Heard::Message(_) | Heard::Nothing if receivers == 0 => {
                Err(Deaf::Refused(Cause::Lost, member.address().to_owned()))
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
        self.turns.name_channel(Arc::clone(&channel));
        Ok(channel)
    }

    /// The number of connections that receive it. On the way these locks are looked after.
    pub(super) fn publish(&self, subscription: &Subscription, text: &str, watched: &[Watched]) -> Result<u64, Failure> {
        let keys: Vec<&str> = watched.iter().map(|watched| &*watched.key).collect();
        let mut args = vec![Arg::Text(&subscription.channel), Arg::Text(text)];
        args.extend(watched.iter().map(|watched| Arg::Text(&watched.id)));
        let call = Call::new(&PUBLISH, Purpose::Other, None, Duration::ZERO, &keys, &args);
        let number = |value: &Value| if let Value::Int(n) = value { u64::try_from(*n).unwrap_or(0) } else { 0 };
        Ok(match self.quorum.ask_one(subscription.node, &call, self.quorum.round_deadline())? {
            Value::List(said) => {
                let due =
                    said.iter().skip(1).filter_map(|i| watched.get(usize::try_from(number(i)).ok()?.checked_sub(1)?));
                if self.turns.look(due.map(|watched| watched.number).collect()) {
                    drop(self.publish(subscription, LOOK, &[]));
                }
                said.first().map_or(0, number)
            }
            receivers => number(&receivers),
        })
    }

    fn beat(&self, subscription: &Subscription) {
        let pulse = if self.is_better_elsewhere(subscription) { Pulse::Deaf } else { self.pulse(subscription) };
        self.turns.beaten(subscription.generation, pulse);
    }

    /// All clients shall listen at the same node.
    fn is_better_elsewhere(&self, subscription: &Subscription) -> bool {
        self.quorum.len() > 1 && self.quorum.wake_node().is_some_and(|(node, _)| node != subscription.node)
    }

    fn pulse(&self, subscription: &Subscription) -> Pulse {
        let watched = self.turns.watched();
        let (first, rest) = watched.split_at(watched.len().min(MOST_WATCHED));
        let pulse = match self.publish(subscription, BEAT, first) {
            Ok(0) => Pulse::Deaf,
            Ok(_) => Pulse::Sent(self.quorum.now()),
            // The attempt to subscribe anew will say what is missing.
            Err(failure) if is_refusal(&failure) => Pulse::Deaf,
            Err(_) => Pulse::Quiet,
        };
        for more in rest.chunks(MOST_WATCHED) {
            if matches!(pulse, Pulse::Sent(_)) {
                drop(self.publish(subscription, BEAT, more));
            }
        }
        pulse
    }

    fn warn(&self, cause: Cause, why: &str) {
        if !self.warnings.0.lock().insert(cause) {
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

fn not_subscribed(node: &Node, failure: &Failure) -> Deaf {
    match failure.kind {
        FailureKind::Refused => Deaf::Refused(
            Cause::Subscribe,
            format!("node {} refuses to subscribe: {}", node.address(), failure.message),
        ),
        kind => Deaf::Failed { is_left_out: kind == FailureKind::LeftOut },
    }
}

fn not_published(node: &Node, failure: &Failure) -> Deaf {
    if is_refusal(failure) {
        return Deaf::Refused(
            Cause::Publish,
            format!("node {} refuses to publish: {}", node.address(), failure.message),
        );
    }
    Deaf::Failed { is_left_out: false }
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
            Some(Errand::Rest(_)) => listener.turns.rest(),
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
            listener.turns.gave_up();
        }
    }
}
