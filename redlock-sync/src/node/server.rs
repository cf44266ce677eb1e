//! One server with its connections.

use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock, Weak};

use super::connections::Connections;
use super::health::Step;
use super::host::{Host, Reconnect};
use super::known_scripts::PermissionCheck;
use super::transport::call_queue::{Form, Payload};
use super::transport::connection::Connection;
use super::transport::halves::Broken;
use super::transport::round::Recipient;
use super::{Failure, FailureKind, Value, redis_reply};
use crate::clock::Tick;
use crate::options::ClientOptions;
use crate::protocol::script::{Call, Purpose};
use crate::token::LockId;

/// A longer call carries a body, and goes over the connection for bodies.
const BODY_SIZE: usize = 64 << 10;

/// Before the reply of a script that could not publish.
const UNTOLD: &[u8] = b"untold";

/// True if the call or its reply can have the body of a task.
pub(super) fn carries_body(call: &Call) -> bool {
    call.script.brings_bodies || call.script.takes_bodies && call.len() > BODY_SIZE
}

pub(crate) struct Server {
    pub(super) host: Arc<Host>,
    calls: Connections,
    /// The connection for calls with bodies of tasks, so that other calls do not wait behind a body.
    bodies: OnceLock<Connections>,
}

impl Server {
    pub(super) fn new(host: Arc<Host>) -> Arc<Server> {
        // `WAIT` concerns only writes of its own connection. So a call that is sent again must use the same connection.
        let ClientOptions { connections, min_replicas_ack, .. } = host.context.settings;
        let most = if min_replicas_ack > 0 { 1 } else { usize::try_from(connections).unwrap_or(usize::MAX) };
        let server = Arc::new(Server { calls: Connections::new(&host, most), host, bodies: OnceLock::new() });
        server.host.set_connections(Arc::downgrade(&server) as Weak<dyn Reconnect>);
        server
    }

    pub(super) fn address(&self) -> &str {
        self.host.server.address()
    }

    /// Records an outage if the server hangs. Perhaps no thread has waited for it long enough to notice.
    pub(super) fn note_if_hung(&self, call: &Call) {
        if !self.host.health.is_down() && self.calls.is_hung() {
            let why =
                format!("timed out: a call has not been answered for {:?}", self.host.context.settings.node_timeout);
            self.record_timeout(self.connections(call), &Failure::unsent(FailureKind::TimedOut, why));
        }
    }

    /// The failure because of which the server is left out now, if it is.
    pub(super) fn outage(&self) -> Option<Failure> {
        let hung = || Failure::unsent(FailureKind::LeftOut, "left out: it has not answered earlier calls");
        self.host.health.outage().or_else(|| self.calls.is_hung().then(hung))
    }

    /// The connections for a call. A release uses those for bodies if the acquire of its token is unanswered there.
    pub(super) fn connections(&self, call: &Call) -> &Connections {
        let is_behind = |bodies: &&Connections| {
            let is_release = |token: &&LockId| call.script.purpose == Purpose::Release && !token.as_str().is_empty();
            call.token.as_ref().filter(is_release).is_some_and(|token| bodies.may_set(token.as_str()))
        };
        if carries_body(call) {
            return self.connections_for_bodies();
        }
        self.bodies.get().filter(is_behind).unwrap_or(&self.calls)
    }

    pub(super) fn connections_for_bodies(&self) -> &Connections {
        self.bodies.get_or_init(|| Connections::new(&self.host, 1))
    }

    /// The connections of both kinds.
    pub(super) fn all_connections(&self) -> impl Iterator<Item = &Connections> {
        std::iter::once(&self.calls).chain(self.bodies.get())
    }

    /// True if the call must carry the script's source on this connection.
    ///
    /// If an unanswered call there brings the source, the server knows the script before it executes a release behind
    /// it. Otherwise each of many releases would carry the source to a server that hangs. If the server refuses that
    /// call, the release fails with `NOSCRIPT`, and is sent again with its source.
    pub(super) fn needs_source(&self, call: &Call, connection: &Connection) -> bool {
        self.is_unknown(call) && !(call.script.purpose == Purpose::Release && connection.has_source_of(call))
    }

    /// True if the call brings the script's source, and the server has not executed the script yet. Perhaps no thread
    /// waits that could send a release again, and a body is not sent twice.
    fn is_unknown(&self, call: &Call) -> bool {
        let brings_it = call.script.purpose == Purpose::Release || call.script.takes_bodies && call.len() > BODY_SIZE;
        brings_it && !self.host.scripts.has(call.script)
    }

    /// Records that no reply came in time.
    pub(super) fn record_timeout(&self, connections: &Connections, failure: &Failure) {
        self.host.record_failure(Step::Call, failure);
        connections.connect_another();
        self.host.tell_health();
    }

    /// Records what a reply says about the server, and returns the result of the call. Logs a change of its health.
    pub(super) fn record_reply(
        &self,
        call: &Call,
        check: Option<PermissionCheck>,
        result: Result<Value, Failure>,
    ) -> Result<Value, Failure> {
        let result = self.note_reply(call, check, result);
        self.host.tell_health();
        result
    }

    /// The same without the log.
    pub(super) fn note_reply(
        &self,
        call: &Call,
        check: Option<PermissionCheck>,
        result: Result<Value, Failure>,
    ) -> Result<Value, Failure> {
        match &result {
            Ok(_) => {
                if self.host.scripts.executed(call.script, check) {
                    self.host.context.served.fetch_or(call.script.bit, Ordering::Relaxed);
                }
            }
            Err(failure) => {
                self.host.scripts.failed(redis_reply::lacks_permission(failure));
                if redis_reply::wants_new_connection(failure) {
                    let all = self.all_connections().flat_map(Connections::all);
                    all.for_each(|one| one.close(Broken::Closed("the client has to log in again".into())));
                }
            }
        }
        let result = result.map_err(|failure| self.classify(call, failure));
        self.host.note_reply(call, &result);
        result.map(|said| self.publish_untold(said)).map_err(|failure| self.host.with_server(failure))
    }

    /// Publishes what a script could not publish (`lua/push.lua`), and returns the rest of its reply. If a message gets
    /// lost, its wait tries again by itself, as after any lost message.
    fn publish_untold(&self, said: Value) -> Value {
        let Some([Value::Text(mark), reply, Value::List(messages)]) = said.items() else { return said };
        if mark != UNTOLD {
            return said;
        }
        self.host.context.drain.be_eager();
        for message in messages.iter().filter_map(Value::text) {
            let channel = message.split('/').next().unwrap_or_default();
            let call = Call::publish(channel, &message);
            if let Some(connection) = self.calls.choose(&call, false, self.host.context.clock.now(), None) {
                let payload = Payload { call, checks: false, form: Form::Digest, asks: false };
                connection.send(&payload, Recipient::Nobody, false);
            }
        }
        reply.clone()
    }

    /// Adapts the kind of a failure. A refusal passes if this node has served the client before: then the mistake is
    /// the server's, such as a password that is being changed. A missing permission passes if the node has executed a
    /// script for the same kind of lock. In a Sentinel group "is a replica" passes, since the new master will be found.
    pub(super) fn classify(&self, call: &Call, failure: Failure) -> Failure {
        let served = self.host.context.served.load(Ordering::Relaxed);
        let was_served = if redis_reply::lacks_permission(&failure) { served & call.script.kin } else { served } != 0;
        let passes = match failure.kind {
            FailureKind::Denied | FailureKind::Tls => was_served,
            FailureKind::Replica => was_served || self.host.can_fail_over(),
            _ => false,
        };
        if passes { Failure { kind: FailureKind::Transient, ..failure } } else { failure }
    }
}

impl Reconnect for Server {
    fn connect_another(&self) {
        self.calls.connect_another();
    }

    fn has_usable(&self) -> bool {
        self.calls.has_usable()
    }

    fn has_answered_since(&self, then: Tick) -> bool {
        self.calls.has_answered_since(then)
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.host.fmt(f)
    }
}
