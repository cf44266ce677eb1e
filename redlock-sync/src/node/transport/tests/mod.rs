//! Tests of shared connections, with a scripted peer.
//!
//! 1. `peer.rs`: the peer. `calls.rs`: replies on one connection, in pieces of any size. `late.rs`: replies that come
//!    too late.
//! 2. `servers.rs`: real servers, pooled connections, and calls to several servers.
//! 3. `speed.rs`: throughput with many threads, compared with bare connections.

mod calls;
mod late;
mod peer;
mod servers;
mod speed;

use std::sync::Arc;
use std::time::Duration;

use super::call_queue::{Form, Payload, Progress};
use super::connection::{Connection, Setting};
use super::drain::Drain;
use super::framer::WireReply;
use super::round::{Outcome, Recipient, Round};
use super::waiting::{SentCall, wait};
use crate::clock::{Clock, SystemClock, Tick};
use crate::node::Halves;
use crate::protocol::script::{ACQUIRE, Arg, Call, INSPECT, Purpose, RELEASE};
use crate::token::LockId;

/// A time that is longer than any test takes.
const SOON: Duration = Duration::from_secs(30);

fn now() -> Tick {
    SystemClock.now()
}

fn soon() -> Tick {
    now().after(SOON)
}

/// The end of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
enum End {
    Reply(WireReply),
    Disconnected { was_written: bool },
    Abandoned(Progress),
}

fn connection(halves: Halves, clock: Arc<dyn Clock>, node_timeout: Duration) -> Arc<Connection> {
    let drain = Arc::new(Drain::new(&clock));
    let on_reply = Box::new(|_, _| {});
    let setting = Setting { clock, node_timeout, wait: Vec::new(), drain, on_reply, master_changes: 0, validity: None };
    Connection::new(halves, Box::new(()), setting)
}

fn payload(call: Arc<Call>) -> Payload {
    Payload { call, checks: false, form: Form::Digest, asks: false }
}

/// A call to which the peer replies with this number.
fn number(n: u64) -> Payload {
    payload(Call::new(&INSPECT, &[], &[Arg::Number(n)]))
}

fn script(purpose: Purpose, token: &str) -> Payload {
    let script = if purpose == Purpose::Release { &*RELEASE } else { &*ACQUIRE };
    let id = LockId::from_server(token);
    payload(Call::of_token(script, Some(&id), &["k"], &[Arg::Text(token)]))
}

fn call(connection: &Arc<Connection>, payload: &Payload, by: Tick) -> End {
    let round = Round::new(1);
    let number = connection.send(payload, round.recipient(0), false);
    let sent = [SentCall { index: 0, connection: Arc::clone(connection), number }];
    if !wait(&round, &sent, false, by, &SystemClock) && round.give_up(0) {
        return End::Abandoned(connection.abandon(number));
    }
    match round.take(0).unwrap() {
        Outcome::Replied(reply) | Outcome::Acknowledged { reply, .. } => End::Reply(reply),
        Outcome::Disconnected { was_written, .. } => End::Disconnected { was_written },
    }
}

fn ask(connection: &Arc<Connection>, n: u64, by: Tick) -> End {
    call(connection, &number(n), by)
}

/// Sends a release for which no thread waits.
fn post(connection: &Arc<Connection>, token: &str) {
    connection.send(&script(Purpose::Release, token), Recipient::Callback(Box::new(|_| {})), false);
}

fn answer(n: u64) -> End {
    End::Reply(WireReply::Int(n.cast_signed()))
}
