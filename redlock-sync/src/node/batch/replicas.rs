//! Acknowledgements of replicas ([`Builder::min_replicas_ack`](crate::Builder::min_replicas_ack)): a `WAIT` behind the
//! calls of a packet.
//!
//! The server answers it when so many replicas have the last write of this connection. They get all writes in one
//! order, so they have the earlier ones of the packet too: one `WAIT` is right for all of its calls. A yes counts only
//! if its script wrote something in this packet, since the write of an earlier copy may have come by another
//! connection, for which this `WAIT` does not speak: those scripts write even where nothing changes.

use std::time::Duration;

use super::{Batch, Cut, Due, Members, Rider, Way};
use crate::clock::Tick;
use crate::node::link::Broken;
use crate::node::{Executed, Failure, FailureKind, Value, reply};
use crate::protocol::reply::is_no;

/// Whether one of these calls needs them.
pub(super) fn are_asked(members: &Members, riders: &[Rider], due: &[Due]) -> bool {
    due.iter().any(|due| is_for_them(members, riders, due))
}

/// Has the server ask them behind these calls, if one of the calls needs it.
pub(super) fn ask(packet: &mut Vec<u8>, members: &Members, deadline: Tick, riders: &[Rider], due: &[Due]) {
    if are_asked(members, riders, due) {
        write_to(packet, members.settings.min_replicas_ack, deadline.since(members.clock.now()));
    }
}

/// Whether this reply counts only once they have what it tells of.
pub(super) fn must_have(members: &Members, riders: &[Rider], due: &Due, reply: &Value) -> bool {
    !is_no(reply) && is_for_them(members, riders, due)
}

fn is_for_them(members: &Members, riders: &[Rider], due: &Due) -> bool {
    members.settings.min_replicas_ack > 0
        && riders.get(due.ride.rider).is_some_and(|rider| rider.call.script.is_for_replicas())
}

impl Batch<'_> {
    /// What the replicas have of the calls that were answered with a yes. Returns those that met NOSCRIPT.
    pub(super) fn read_acknowledgements(
        &mut self,
        way: &Way,
        held: Vec<(Due, Value)>,
        unknown: Vec<Due>,
    ) -> Result<Vec<Due>, Cut> {
        let (least, reply) = (self.members.settings.min_replicas_ack, self.receive_one(way));
        let waited = held.first().map_or(Duration::ZERO, |(due, _)| self.members.clock.now().since(due.sent_at));
        let broken = match reply {
            Ok(reply) => {
                let acknowledged = judge(reply, least, waited);
                for (due, yes) in held {
                    self.judge(way, &due, acknowledged.clone().map(|()| yes));
                }
                return Ok(unknown);
            }
            Err(broken) => broken,
        };
        let unanswered = held.into_iter().map(|(due, _)| due).chain(unknown).collect();
        match broken {
            // It has answered the calls, so this says nothing of the node.
            Broken::TimedOut | Broken::Slow => self.give_up_on(way, unanswered, 0, &silent(least, waited)),
            broken => return self.not_read(way, broken, unanswered, 0),
        }
        Ok(Vec::new())
    }
}

/// Appends it. The server may take half of the time that is left: it looks at its timers every 100 ms if it has nothing
/// else to do, and what it says shall come in time.
fn write_to(packet: &mut Vec<u8>, least: u32, left: Duration) {
    // None would be without a limit.
    let ms = (left / 2).as_millis().max(1);
    packet.extend_from_slice(&redis::cmd("WAIT").arg(least).arg(ms.to_string()).get_packed_command());
}

/// Whether enough of them have acknowledged, by the server's reply. If not, the calls were executed all the same.
fn judge(reply: redis::Value, least: u32, waited: Duration) -> Result<(), Failure> {
    match reply::value(reply) {
        Ok(Value::Int(replicas)) if replicas >= i64::from(least) => Ok(()),
        Ok(Value::Int(replicas)) => Err(too_few(&format!("{replicas} of {least}"), waited)),
        Ok(other) => Err(too_few(&format!("{other:?} of {least}"), waited)),
        Err(failure) => Err(Failure { executed: Executed::Maybe, ..failure }),
    }
}

/// The server did not say it in time.
fn silent(least: u32, waited: Duration) -> Failure {
    too_few(&format!("fewer than {least}"), waited)
}

fn too_few(how_many: &str, waited: Duration) -> Failure {
    let message = format!(
        "written, but acknowledged by {how_many} replicas within {} ms (`Builder::min_replicas_ack`)",
        waited.as_millis()
    );
    Failure::new(FailureKind::Refused, Executed::Maybe, message)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by a panic")]
mod tests {
    use super::*;

    #[test]
    fn the_server_is_given_half_of_the_time_and_never_all_of_it() {
        let asked = |left| {
            let mut packet = Vec::new();
            write_to(&mut packet, 2, left);
            String::from_utf8(packet).unwrap()
        };
        assert_eq!(asked(Duration::from_millis(250)), "*3\r\n$4\r\nWAIT\r\n$1\r\n2\r\n$3\r\n125\r\n");
        assert!(asked(Duration::ZERO).ends_with("$1\r\n1\r\n"));
    }

    #[test]
    fn too_few_is_a_refusal_of_what_may_have_been_done() {
        let judged = |replicas| judge(redis::Value::Int(replicas), 2, Duration::from_millis(125));
        assert_eq!((judged(2), judged(3)), (Ok(()), Ok(())));
        let failure = judged(1).unwrap_err();
        assert_eq!((failure.kind, failure.executed), (FailureKind::Refused, Executed::Maybe));
        assert!(failure.message.contains("by 1 of 2 replicas within 125 ms"), "{}", failure.message);
        let forbidden = redis::parse_redis_value(b"-NOPERM this user has no permissions to run the 'wait' command\r\n");
        let failure = judge(forbidden.unwrap(), 2, Duration::ZERO).unwrap_err();
        assert_eq!((failure.kind, failure.executed), (FailureKind::Misuse, Executed::Maybe));
    }
}
