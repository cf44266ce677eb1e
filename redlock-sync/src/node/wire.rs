//! Calls as bytes.

use crate::script::Call;

/// Whether a call is sent for the first time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Time {
    First,
    Again,
}

/// The call by digest; packed once for all nodes of a round.
pub(super) fn packed(call: &Call) -> &[u8] {
    call.packed.get_or_init(|| pack(call, "EVALSHA", &call.script.sha, Time::First))
}

/// The call by digest, sent a second time.
pub(super) fn packed_again(call: &Call) -> Vec<u8> {
    pack(call, "EVALSHA", &call.script.sha, Time::Again)
}

/// The call with its source, for a server that does not know the digest.
pub(super) fn packed_with_source(call: &Call, time: Time) -> Vec<u8> {
    pack(call, "EVAL", call.script.source, time)
}

fn pack(call: &Call, command: &str, script: &str, time: Time) -> Vec<u8> {
    let mut cmd = redis::cmd(command);
    cmd.arg(script).arg(call.keys.len()).arg(&call.keys).arg(&call.args);
    if call.tells_again && time == Time::Again {
        cmd.arg("again");
    }
    cmd.get_packed_command()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by a panic")]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::script::{Purpose, RELEASE};

    #[test]
    fn keys_are_counted() {
        let call = Call::new(&RELEASE, Purpose::Release, "t", Duration::ZERO).key("k").text("t").number(0);
        let expected =
            format!("*6\r\n$7\r\nEVALSHA\r\n$40\r\n{}\r\n$1\r\n1\r\n$1\r\nk\r\n$1\r\nt\r\n$1\r\n0\r\n", RELEASE.sha);
        assert_eq!(String::from_utf8_lossy(packed(&call)), expected);
        let none = Call::new(&RELEASE, Purpose::Other, "t", Duration::ZERO);
        assert!(packed(&none).ends_with(b"$1\r\n0\r\n"));
    }
}
