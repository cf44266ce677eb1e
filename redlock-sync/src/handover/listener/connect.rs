//! Background work for the notification connection: subscribing, sending heartbeats, and closing it when it is not
//! needed.

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::Listener;
use super::connection_state::{Heartbeat, Subscription};
use super::waiter_table::{BackgroundTask, WaiterTable};
use super::watching::LockCheck;
use crate::handover::rules::SET_CHECK_INTERVAL;
use crate::node::{Failure, FailureKind, Heard, Node, Value};
use crate::options::jittered;
use crate::protocol::script::{Arg, CHECK_LOCKS, Call};
use crate::token;

/// The message of a heartbeat: published to see whether it arrives.
const HEARTBEAT: &str = "0";
/// Published to wake the thread that reads.
pub(super) const WAKE_READER: &str = "wake";
/// Locks that one call can check.
const LOCKS_PER_CALL: usize = 1000;
/// Calls in one packet.
const CALLS_PER_PACKET: usize = 64;

/// The end of each warning that no message arrives.
const POLLS: &str = "until notifications arrive, waiting threads poll";

/// How an attempt to listen failed.
enum ListenError {
    /// Subscribing fails until the server's configuration is changed. The step that failed, and the warning.
    Refused(&'static str, String),
    Failed {
        is_left_out: bool,
    },
}

impl Listener {
    /// Hands a task to the background threads.
    pub(super) fn run(self: &Arc<Listener>, task: BackgroundTask) {
        let pause = match &task {
            // A random factor: clients that lost the same server do not reconnect at the same moment.
            BackgroundTask::Connect(pause) => jittered(*pause),
            BackgroundTask::CloseIfIdle(pause) => *pause,
            BackgroundTask::Heartbeat(_) | BackgroundTask::WakeReader(_) | BackgroundTask::LateGrant(..) => {
                Duration::ZERO
            }
        };
        let run = TaskRun { listener: Arc::downgrade(self), task: Some(task) };
        self.quorum.nodes.background().after(pause, move || run.run());
    }

    /// One attempt to listen.
    fn attempt(&self) {
        if !self.waiters.with(|table, _| table.attempt()) {
            return;
        }
        match self.listen() {
            Ok(()) => {}
            Err(ListenError::Failed { is_left_out }) => self.waiters.with(|table, _| table.failed(is_left_out)),
            Err(ListenError::Refused(step, warning)) => {
                self.warn(step, &warning);
                self.waiters.with(|table, _| table.refused());
            }
        }
    }

    /// Subscribes, publishes on the channel, and waits for that message. Only when it arrives is it certain that
    /// notifications arrive. The subscription is installed then.
    fn listen(&self) -> Result<(), ListenError> {
        let Some((node, member)) = self.quorum.notification_server() else {
            return Err(ListenError::Failed { is_left_out: true });
        };
        let channel = self.waiters.with(|table, _| table.channel.clone()).map_or_else(|| self.new_channel(), Ok)?;
        let timeout = self.quorum.settings.node_timeout;
        // One timeout to connect, and one to subscribe.
        let by = self.quorum.now().after(2 * timeout);
        let mut conn = member.subscribe(&channel, by).map_err(|failure| not_subscribed(member, &failure))?;
        let subscription = Subscription { node, channel, generation: 0 };
        let receivers = self.publish(&subscription, HEARTBEAT).map_err(|failure| not_published(member, &failure))?;
        let wait = if receivers > 0 { timeout } else { Duration::ZERO };
        match conn.receive(wait) {
            Heard::Message(first) if receivers > 0 => {
                self.waiters.with(|table, now| table.install(subscription, conn, &first, now));
                Ok(())
            }
            // In a cluster, another server may have executed the publication.
            Heard::Message(_) | Heard::Nothing if receivers == 0 && !self.quorum.nodes.are_in_slots() => {
                let warning = format!(
                    "node {}: a message published on a channel redlock-sync:* did not arrive at the subscribed \
                     connection, perhaps because a proxy uses several servers; {POLLS}",
                    member.address()
                );
                Err(ListenError::Refused("receive", warning))
            }
            // The connection broke, or the server stopped in between.
            _ => Err(ListenError::Failed { is_left_out: false }),
        }
    }

    fn new_channel(&self) -> Result<Arc<str>, ListenError> {
        let channel = token::channel().map_err(|error| {
            self.warn("draw a channel", &format!("{error}; {POLLS}"));
            ListenError::Failed { is_left_out: false }
        })?;
        self.waiters.with(|table, _| table.channel = Some(Arc::clone(&channel)));
        Ok(channel)
    }

    /// Publishes a message. Returns the number of connections that receive it.
    pub(super) fn publish(&self, subscription: &Subscription, text: &str) -> Result<u64, Failure> {
        let call = Call::publish(&subscription.channel, text);
        self.quorum.ask_one(subscription.node, &call).map(|said| number(&said))
    }

    fn heartbeat(&self, subscription: &Subscription) {
        let heartbeat = if self.is_better_elsewhere(subscription) {
            Heartbeat::Failed
        } else {
            self.publish_heartbeat(subscription)
        };
        self.waiters.with(|table, now| table.heartbeat_ended(subscription.generation, heartbeat, now));
    }

    /// All clients must listen on the same node.
    fn is_better_elsewhere(&self, subscription: &Subscription) -> bool {
        self.quorum.len() > 1 && self.quorum.notification_server().is_some_and(|(node, _)| node != subscription.node)
    }

    fn publish_heartbeat(&self, subscription: &Subscription) -> Heartbeat {
        let checks = self.checks();
        match self.publish(subscription, HEARTBEAT) {
            Ok(0) => Heartbeat::Failed,
            Ok(_) => {
                let sent = self.quorum.now();
                self.check_locks(subscription, &checks);
                Heartbeat::Sent(sent)
            }
            // The next attempt to subscribe will report what is missing.
            Err(failure) if is_refusal(&failure) => Heartbeat::Failed,
            // The server may hang, and then it still has the subscription. But these waits rely on its answers.
            Err(_) => {
                for part in &checks {
                    self.wake(part);
                }
                Heartbeat::Idle
            }
        }
    }

    /// Asks a server about these locks. Waits whose call fails make attempts, which find out why.
    fn check_locks(&self, subscription: &Subscription, parts: &[Vec<LockCheck>]) {
        for parts in parts.chunks(CALLS_PER_PACKET) {
            let calls: Vec<_> = parts.iter().map(|part| call(part)).collect();
            let said = self.quorum.ask_one_all(subscription.node, &calls);
            for (said, part) in said.into_iter().zip(parts) {
                match said {
                    Ok(said) => self.learn(&said, part),
                    Err(_) => self.wake(part),
                }
            }
        }
    }

    /// Applies what a server says of these locks.
    fn learn(&self, said: &Value, checks: &[LockCheck]) {
        let mut due = Vec::new();
        let mut later = Vec::new();
        let wait = |place: &Value| usize::try_from(number(place)).ok()?.checked_sub(1).and_then(|i| checks.get(i));
        for place in said.items().unwrap_or_default() {
            match place {
                Value::List(found) => later.extend(found.first().and_then(wait).zip(found.get(1)).map(end)),
                place => due.extend(wait(place).map(|check| check.number)),
            }
        }
        self.waiters.with(|table, now| table.set_next_check(later, now));
        self.waiters.with(|table, _| table.wake_to_check(due));
    }

    fn wake(&self, checks: &[LockCheck]) {
        self.waiters.with(|table, _| table.wake_to_check(checks.iter().map(|check| check.number)));
    }

    /// The locks to check, in parts that fit into one call. In a cluster each part is one lock: while a slot moves, two
    /// locks of that slot can be on two servers.
    fn checks(&self) -> Vec<Vec<LockCheck>> {
        let most = if self.quorum.nodes.are_in_slots() { 1 } else { LOCKS_PER_CALL };
        let mut parts: Vec<Vec<LockCheck>> = Vec::new();
        for check in self.waiters.with(|table, now| table.due_checks(now)) {
            match parts.last_mut() {
                Some(part) if part.len() < most => part.push(check),
                _ => parts.push(vec![check]),
            }
        }
        parts
    }

    /// Logs the first warning of each step.
    fn warn(&self, step: &'static str, warning: &str) {
        if self.warned.lock().insert(step) {
            log::warn!("{warning}");
        }
    }
}

/// A call that checks these locks.
fn call(checks: &[LockCheck]) -> Arc<Call> {
    let keys: Vec<&str> = checks.iter().map(|check| &*check.key).collect();
    let args: Vec<Arg<'_>> = checks.iter().map(|check| Arg::Text(&check.what)).collect();
    Call::new(&CHECK_LOCKS, &keys, &args)
}

fn number(value: &Value) -> u64 {
    if let Value::Int(n) = value { u64::try_from(*n).unwrap_or(0) } else { 0 }
}

/// When to read a set again whose first member ends after `left`. A member lives through its last millisecond.
fn end((check, left): (&LockCheck, &Value)) -> (u64, Duration) {
    (check.number, Duration::from_millis(number(left).saturating_add(1)).min(SET_CHECK_INTERVAL))
}

fn not_subscribed(node: &Node, failure: &Failure) -> ListenError {
    match failure.kind {
        FailureKind::Refused => refused("subscribe", node, failure),
        kind => ListenError::Failed { is_left_out: kind == FailureKind::LeftOut },
    }
}

fn not_published(node: &Node, failure: &Failure) -> ListenError {
    if is_refusal(failure) {
        return refused("publish", node, failure);
    }
    ListenError::Failed { is_left_out: false }
}

fn refused(step: &'static str, node: &Node, failure: &Failure) -> ListenError {
    let why = format!("node {} does not let this client {step}: {}", node.address(), failure.message);
    ListenError::Refused(step, format!("{why}; {POLLS}{}", rule_against(&failure.message)))
}

/// What an administrator can do, unless the message says it: after a refused login, permissions are not the matter.
pub(super) fn rule_against(message: &str) -> &'static str {
    let is_about_the_login = ["NOAUTH", "WRONGPASS"].iter().any(|code| message.starts_with(code));
    if is_about_the_login { "" } else { "; to allow this: `ACL SETUSER <user> &redlock-sync:* +subscribe +publish`" }
}

/// True if the server answered, and will not soon answer otherwise.
fn is_refusal(failure: &Failure) -> bool {
    failure.is_answer() && failure.kind != FailureKind::Transient
}

/// A background task that is planned or runs. If an attempt to connect panics, or the system starts no thread for it,
/// it is not repeated before the next wait begins. Every repetition could fail at once in the same way.
struct TaskRun {
    listener: Weak<Listener>,
    task: Option<BackgroundTask>,
}

impl TaskRun {
    fn run(mut self) {
        let Some(listener) = self.listener.upgrade() else { return };
        match &self.task {
            Some(BackgroundTask::Connect(_)) => listener.attempt(),
            Some(BackgroundTask::Heartbeat(subscription)) => listener.heartbeat(subscription),
            Some(BackgroundTask::WakeReader(subscription)) => drop(listener.publish(subscription, WAKE_READER)),
            Some(BackgroundTask::CloseIfIdle(_)) => listener.waiters.with(WaiterTable::close_if_idle),
            Some(BackgroundTask::LateGrant(wait, grant)) => {
                (listener.on_late_grant)(wait, grant);
            }
            None => {}
        }
        self.task = None;
    }
}

impl Drop for TaskRun {
    fn drop(&mut self) {
        if let Some(BackgroundTask::Connect(_)) = self.task
            && let Some(listener) = self.listener.upgrade()
        {
            listener.waiters.with(|table, _| table.gave_up());
        }
    }
}
