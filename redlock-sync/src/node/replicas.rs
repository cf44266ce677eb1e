//! Acknowledgements by replicas ([`Builder::min_replicas_ack`](crate::Builder::min_replicas_ack)). A `WAIT` command
//! follows the calls of a packet.
//!
//! A yes counts only if its script wrote something in the same packet. An earlier copy of the call may have been
//! written over another connection, for which this `WAIT` says nothing. So those scripts write even if nothing changes.

use std::time::Duration;

use super::{Executed, Failure, FailureKind, Value};
use crate::protocol::reply::is_no;

/// The result of a call, given its reply and the reply to the `WAIT` after it. If too few replicas acknowledged it,
/// the failure says that the call was executed.
pub(super) fn checked_result(
    said: Result<Value, Failure>,
    replicas: Result<Value, Failure>,
    least: u32,
    waited: Duration,
) -> Result<Value, Failure> {
    let yes = said?;
    if is_no(&yes) {
        return Ok(yes);
    }
    match replicas {
        Ok(Value::Int(replicas)) if replicas >= i64::from(least) => Ok(yes),
        Ok(Value::Int(replicas)) => Err(too_few(&format!("{replicas} of {least}"), waited)),
        Ok(other) => Err(too_few(&format!("{other:?} of {least}"), waited)),
        Err(failure) => Err(Failure { executed: Executed::Maybe, ..failure }),
    }
}

/// The failure of a call that this many replicas acknowledged.
pub(super) fn too_few(how_many: &str, waited: Duration) -> Failure {
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
    use crate::node::redis_reply;

    #[test]
    fn too_few_is_a_refusal_of_what_may_have_been_done() {
        let checked = |replicas| checked_result(Ok(Value::Int(1)), replicas, 2, Duration::from_millis(125));
        assert_eq!((checked(Ok(Value::Int(2))), checked(Ok(Value::Int(3)))), (Ok(Value::Int(1)), Ok(Value::Int(1))));
        let failure = checked(Ok(Value::Int(1))).unwrap_err();
        assert_eq!((failure.kind, failure.executed), (FailureKind::Refused, Executed::Maybe));
        assert!(failure.message.contains("by 1 of 2 replicas within 125 ms"), "{}", failure.message);
        let forbidden = redis::parse_redis_value(b"-NOPERM this user has no permissions to run the 'wait' command\r\n");
        let failure = checked(redis_reply::value(forbidden.unwrap())).unwrap_err();
        assert_eq!((failure.kind, failure.executed), (FailureKind::Denied, Executed::Maybe));
    }
}
