//! One call to one node: its progress, and the failures that it can end with.

use std::sync::Arc;

use super::cluster::redirect::Route;
use super::connections::Connections;
use super::known_scripts::PermissionCheck;
use super::members::Node;
use super::server::Server;
use super::transport::connection::Connection;
use super::{Executed, Failure, FailureKind, Value};
use crate::clock::Tick;
use crate::protocol::script::{Call, Purpose};

/// The progress of a call at one server.
pub(super) enum TargetState {
    /// Waits for a connection.
    Unsent,
    /// A release for a server that is left out. It is written if that takes no time, and its reply is not awaited.
    Unattended(Failure),
    Sent {
        connection: Arc<Connection>,
        /// Its number on the connection.
        number: u64,
        check: Option<PermissionCheck>,
    },
    Done(Result<Value, Failure>),
}

/// The first connection over which a call was sent broke.
pub(super) struct FirstBreak {
    pub(super) at: Tick,
    pub(super) why: String,
}

/// One call to one node.
pub(super) struct Target {
    pub(super) node: usize,
    pub(super) call: Arc<Call>,
    /// The server that is asked for the node.
    pub(super) server: Option<Arc<Server>>,
    pub(super) route: Route,
    /// A call of the exchange carries a body. All its calls then use the connection for bodies, so that the server gets
    /// them in their order.
    is_beside_body: bool,
    pub(super) state: TargetState,
    /// The server does not know the script.
    pub(super) needs_source: bool,
    /// The call fails if another connection breaks that was made later.
    pub(super) first_break: Option<FirstBreak>,
    /// The server may have a copy of the call.
    pub(super) duplicate: bool,
    /// How many bytes the connection had read at the last deadline.
    pub(super) has_read: usize,
}

impl Target {
    /// `is_beside_body`: a call of the exchange carries a body.
    pub(super) fn new(
        call: &Arc<Call>,
        node: usize,
        member: &Node,
        is_asked: bool,
        can_leave_out: bool,
        is_beside_body: bool,
    ) -> Target {
        let server = if is_asked { member.server_for(call) } else { None };
        let state = match &server {
            None => TargetState::Done(Err(Failure::unsent(FailureKind::LeftOut, "not asked"))),
            Some(server) => {
                server.note_if_hung(call);
                // No other server can stand in for a member of a cluster. It is left out all the same, since another
                // server may have taken over its slots.
                let leaves_out = can_leave_out || server.host.is_in_cluster();
                match leaves_out.then(|| server.outage()).flatten() {
                    // The release must follow an unanswered acquire, if there is one on that connection.
                    Some(outage) if call.script.purpose == Purpose::Release => TargetState::Unattended(outage),
                    Some(outage) => {
                        // The new connection finds out when the server is back.
                        server.connections(call).connect_another();
                        TargetState::Done(Err(server.host.with_server(outage)))
                    }
                    None => TargetState::Unsent,
                }
            }
        };
        let call = Arc::clone(call);
        let (route, needs_source, duplicate) = (Route::default(), false, false);
        Target {
            node,
            call,
            server,
            route,
            is_beside_body,
            state,
            needs_source,
            first_break: None,
            duplicate,
            has_read: 0,
        }
    }

    /// The connections to a server for this call.
    pub(super) fn connections<'a>(&self, server: &'a Server) -> &'a Connections {
        if self.is_beside_body { server.connections_for_bodies() } else { server.connections(&self.call) }
    }

    /// Sets the state. If the call was sent, also records how many bytes its connection has read.
    pub(super) fn set_state(&mut self, state: TargetState) {
        if let TargetState::Sent { connection, .. } = &state {
            self.has_read = connection.has_read();
        }
        self.state = state;
    }

    /// True if the call was neither sent before nor redirected.
    pub(super) fn is_first(&self) -> bool {
        self.first_break.is_none() && self.route == Route::default()
    }
}

/// The failure of a call for which there was no connection.
pub(super) fn without_connection(target: &Target, server: &Server, failure: Failure) -> Failure {
    let executed = if target.duplicate { Executed::Maybe } else { failure.executed };
    let message = match &target.first_break {
        Some(first) => both(&first.why, &failure.message),
        None => failure.message,
    };
    server.host.with_server(server.classify(&target.call, Failure { executed, message, ..failure }))
}

pub(super) fn both(first: &str, second: &str) -> String {
    if first == second { first.to_owned() } else { format!("{first}, then {second}") }
}

pub(super) fn executed(was_written: bool) -> Executed {
    if was_written { Executed::Maybe } else { Executed::No }
}

pub(super) fn timed_out(executed: Executed, message: &str) -> Failure {
    Failure::new(FailureKind::TimedOut, executed, message)
}
