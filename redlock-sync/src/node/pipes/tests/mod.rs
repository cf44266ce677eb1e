//! Tests of shared connections, with real servers and with a scripted peer.
//!
//! 1. `peer.rs`: the peer. `pipe_calls.rs`: replies on one connection, in pieces of any size. `timeouts.rs`: replies
//!    that come too late.
//! 2. `servers.rs`: real servers, pooled connections, and calls to several servers.
//! 3. `speed.rs`: throughput with many threads, compared with bare connections.

mod peer;
mod pipe_calls;
mod servers;
mod speed;
mod timeouts;

use std::sync::Arc;
use std::time::Duration;

use super::command::{Form, Outcome, Outcomes, Payload, Progress};
use super::framer::WireReply;
use super::pipe::Pipe;
use super::waiting;
use crate::clock::{Clock, SystemClock, Tick};
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

fn call(pipe: &Arc<Pipe>, payload: Payload, is_release: bool, by: Tick) -> End {
    let outcomes = Outcomes::new(1, None);
    pipe.send(outcomes.command(0, payload, None));
    if !waiting::wait(&outcomes, &[(0, Arc::clone(pipe))], by, &*pipe.clock)
        && let Some(progress) = pipe.give_up(&outcomes, 0, is_release)
    {
        return End::Abandoned(progress);
    }
    match outcomes.take(0).unwrap() {
        Outcome::Replied(reply) | Outcome::Acknowledged { reply, .. } => End::Reply(reply),
        Outcome::Disconnected { was_written, .. } => End::Disconnected { was_written },
    }
}

fn ask(pipe: &Arc<Pipe>, n: u64, by: Tick) -> End {
    call(pipe, number(n), false, by)
}

fn answer(n: u64) -> End {
    End::Reply(WireReply::Int(n.cast_signed()))
}
