//! A node as a client sees it: the in-memory side of the contract of [`Node`]. As in the real one, a call has a connection to itself; what
//! is late keeps its connection, on which a release can follow; after a reset there is no order.

use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use super::network::{End, Late, Link};
use super::plan::{MS, Time, US, chance};
use super::pushes::SimulatedPush;
use super::server::{Body, Execution};
use super::world::{sleep, wait, with};
use crate::clock::Tick;
use crate::node::{Answer, Begun, ConnectWait, Executed, Failure, FailureKind, Node, Pending, Push, Simulated, Value};
use crate::protocol::script::{self, Purpose};
use crate::token::LockId;

/// At most so many late connections are kept for each node.
const MOST_LATE: usize = 16;
const FIRST_PROBE: Time = 20 * MS;

/// Node `node` for client `client`.
#[derive(Debug)]
pub(super) struct SimulatedNode {
    pub(super) client: usize,
    pub(super) node: usize,
}

fn failure(kind: FailureKind, executed: Executed, message: &str) -> Failure {
    Failure { kind, executed, message: message.to_owned() }
}

fn execution_of(call: &script::Call) -> Rc<Execution> {
    Rc::new(Execution { script: call.script, keys: call.keys(), args: call.args() })
}

/// What the call is about; empty for a question.
pub(super) fn token(call: &script::Call) -> &str {
    call.token.as_ref().map_or("", LockId::as_str)
}

impl SimulatedNode {
    fn link<R>(&self, f: impl FnOnce(&mut Link) -> R) -> R {
        with(|world| f(&mut world.clients[self.client].links[self.node]))
    }

    fn is_dead(&self) -> bool {
        with(|world| world.clients[self.client].is_dead)
    }

    /// Notes that the node seems to be dead.
    fn note(&self) {
        with(|world| {
            let probe = world.now + FIRST_PROBE;
            world.clients[self.client].links[self.node].outage.get_or_insert((probe, FIRST_PROBE));
        });
    }

    /// True if there is a connection now. Waits for one until `until` at most.
    fn connect(&self, until: Option<Tick>) -> Result<bool, Failure> {
        loop {
            let SimulatedNode { client, node } = *self;
            let (ready, left) = with(|world| {
                let reaches = world.reaches(client, node);
                let (now, trip) = (world.now, 2 * world.one_way());
                let is_cold = !world.is_healed() && chance(world.plan.cold);
                let link = &mut world.clients[client].links[node];
                if link.warm.is_some() && !is_cold {
                    return (Some(Ok(true)), Duration::ZERO);
                }
                let there = *link.connecting.get_or_insert(now + trip);
                if there <= now {
                    link.connecting = None;
                    if reaches {
                        world.greet(client, node);
                        return (Some(Ok(true)), Duration::ZERO);
                    }
                    if !world.servers[node].is_up {
                        return (Some(Err(())), Duration::ZERO);
                    }
                }
                let left = until.map_or(Duration::ZERO, |until| until.since(world.tick(client)));
                (None, left.min(Duration::from_nanos(there.saturating_sub(now).max(100 * US))))
            });
            match ready {
                Some(Ok(there)) => return Ok(there),
                Some(Err(())) => {
                    self.note();
                    return Err(failure(FailureKind::Unreachable, Executed::No, "connection refused"));
                }
                None if left.is_zero() => return Ok(false),
                None => sleep(client, left),
            }
        }
    }

    fn send(&self, execution: Rc<Execution>) -> InFlightParts {
        let body = Body::Script(execution);
        let (call, connection) = with(|world| world.write(self.client, self.node, body, None));
        InFlightParts { call, connection, sent: self.now() }
    }

    fn now(&self) -> Tick {
        with(|world| world.tick(self.client))
    }

    /// Writes a release behind every late call for its token.
    fn send_behind(&self, call: &script::Call) -> bool {
        let now = self.now();
        let connections: Vec<usize> = self.link(|link| {
            link.late.retain(|late| late.keep_until > now);
            let mine = link.late.iter_mut().filter(|late| late.token == token(call));
            mine.map(|late| {
                late.has_release = true;
                late.connection
            })
            .collect()
        });
        let mut any = false;
        for connection in connections {
            let body = Body::Script(execution_of(call));
            with(|world| {
                if !world.connections[connection].is_cut {
                    any = true;
                    world.write(self.client, self.node, body, Some(connection));
                }
            });
        }
        any
    }

    fn shelve(&self, call: &script::Call, connection: usize) {
        if call.purpose == Purpose::Other {
            return;
        }
        let keep_until = self.now().after(call.lifetime);
        let is_release = call.purpose == Purpose::Release;
        self.link(|link| {
            if link.late.len() >= MOST_LATE {
                link.late.pop_front();
            }
            link.late.push_back(Late {
                token: token(call).to_owned(),
                connection,
                keep_until,
                has_release: is_release,
            });
        });
    }

    fn timed_out(&self, since: Tick) -> Failure {
        let timeout = with(|world| world.plan.limits.node_timeout);
        if self.now().since(since) >= timeout / 2 {
            self.note();
        }
        failure(FailureKind::TimedOut, Executed::Maybe, "timed out")
    }

    /// The end of the call, if it comes by then.
    fn await_end(&self, call: usize, by: Tick) -> Option<End> {
        // What has come already is seen; a late call gets a millisecond.
        let by = by.max(self.now().after(Duration::from_millis(1)));
        loop {
            let (end, left) = with(|world| (world.calls[call].end.take(), by.since(world.tick(self.client))));
            if end.is_some() || left.is_zero() || self.is_dead() {
                return end;
            }
            wait(|world, waiter| {
                world.calls[call].waiter = Some(waiter);
                world.true_time(self.client, left)
            });
        }
    }
}

struct InFlightParts {
    call: usize,
    connection: usize,
    sent: Tick,
}

struct InFlight<'a> {
    node: &'a SimulatedNode,
    call: &'a script::Call,
    parts: Option<InFlightParts>,
}

impl InFlight<'_> {
    /// `None` if the connection broke.
    fn read(&self, parts: &InFlightParts, by: Tick) -> Option<Result<Value, Failure>> {
        match self.node.await_end(parts.call, by) {
            Some(End::Reply(result)) => {
                self.node.link(|link| link.outage = None);
                Some(result)
            }
            Some(End::Cut) => {
                self.node.link(|link| link.warm = None);
                None
            }
            None => {
                self.node.shelve(self.call, parts.connection);
                Some(Err(self.node.timed_out(parts.sent)))
            }
        }
    }

    /// Sends the call once more; `executed` is whether the first transmission may have been.
    fn again(&self, by: Tick, executed: Executed) -> Result<Value, Failure> {
        let unreachable = |executed| failure(FailureKind::Unreachable, executed, "connection reset");
        match self.node.connect(Some(by)) {
            Ok(true) => {}
            Ok(false) => {
                self.node.note();
                return Err(unreachable(executed));
            }
            Err(failure) => return Err(Failure { executed, ..failure }),
        }
        let parts = self.node.send(execution_of(self.call));
        self.read(&parts, by).unwrap_or_else(|| {
            self.node.note();
            Err(unreachable(Executed::Maybe))
        })
    }
}

impl Pending for InFlight<'_> {
    fn finish(mut self: Box<Self>, by: Tick) -> Answer {
        let Some(parts) = self.parts.take() else {
            return Answer { result: self.again(by, Executed::No), duplicate: false };
        };
        match self.read(&parts, by) {
            Some(result) => Answer { result, duplicate: false },
            None => Answer { result: self.again(by, Executed::Maybe), duplicate: true },
        }
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        if let Some(parts) = self.parts.take() {
            self.node.shelve(self.call, parts.connection);
        }
    }
}

impl Node for SimulatedNode {
    fn address(&self) -> &'static str {
        "simulated"
    }

    fn outage(&self) -> Option<Failure> {
        let is_out = with(|world| world.is_out(self.client, self.node));
        is_out.then(|| failure(FailureKind::LeftOut, Executed::No, "left out"))
    }

    fn uptime(&self) -> Option<Duration> {
        let (uptime, at) = self.link(|link| link.uptime)?;
        Some(uptime + self.now().since(at))
    }

    fn run_id(&self) -> Option<String> {
        self.link(|link| link.uptime).map(|_| self.node.to_string())
    }

    fn subscribe(&self, channel: &str, by: Tick) -> Result<Box<dyn Push>, Failure> {
        let unreachable = || failure(FailureKind::Unreachable, Executed::No, "no connection to listen on");
        if self.is_dead() || self.outage().is_some() || self.connect(Some(by)) != Ok(true) {
            return Err(unreachable());
        }
        let (subscription, call) = with(|world| {
            let subscription = world.new_subscription(self.client, self.node, channel);
            (subscription, world.write(self.client, self.node, Body::Subscribe(subscription), None).0)
        });
        // Dropped, it is closed.
        let push = Box::new(SimulatedPush(subscription));
        match self.await_end(call, by) {
            Some(End::Reply(Ok(_))) => Ok(push),
            Some(End::Reply(Err(refused))) => Err(refused),
            _ => Err(unreachable()),
        }
    }
}

impl Simulated for SimulatedNode {
    fn as_node(&self) -> &dyn Node {
        self
    }

    fn begin<'a>(&'a self, call: &'a script::Call, by: Tick, connect: ConnectWait) -> Begun<'a> {
        if self.is_dead() {
            return Begun::Failed(failure(FailureKind::Unreachable, Executed::No, "the process is dead"));
        }
        let execution = execution_of(call);
        with(|world| world.note_call(&execution, connect == ConnectWait::AtOnce));
        let behind = call.purpose == Purpose::Release && self.send_behind(call);
        if behind && self.outage().is_some() {
            return Begun::Failed(failure(FailureKind::LeftOut, Executed::Maybe, "written behind the late call"));
        }
        let until = match connect {
            ConnectWait::AtOnce => None,
            ConnectWait::Slice(slice) => Some(self.now().after(slice).min(by)),
        };
        match self.connect(until) {
            Ok(true) => {}
            Ok(false) if self.now() >= by && until.is_some() => {
                return Begun::Failed(failure(FailureKind::TimedOut, Executed::No, "no connection in time"));
            }
            Ok(false) => return Begun::Cold,
            Err(failure) => return Begun::Failed(failure),
        }
        // A connection that is found broken while it is written on is replaced when the reply is due.
        let is_stale =
            with(|world| world.clients[self.client].links[self.node].warm != Some(world.servers[self.node].epoch));
        let parts = if is_stale && fastrand::bool() {
            self.link(|link| link.warm = None);
            None
        } else {
            Some(self.send(execution))
        };
        Begun::Sent(Box::new(InFlight { node: self, call, parts }))
    }
}

impl fmt::Debug for InFlight<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("InFlight")
    }
}
