//! Questions about a server itself, for readiness probes.

use std::time::Duration;

use super::TypedCall;
use super::reply::{Done, ServerInfo};
use super::script::Arg::Text;
use super::script::{Call, HEALTH, PROBE, Purpose};
use crate::key::Key;

/// A channel such as those on which clients wait.
const CHANNEL: &str = "redlock-sync:health";

/// What the server says of itself.
pub(crate) fn facts() -> TypedCall<ServerInfo> {
    Call::new(&HEALTH, Purpose::Other, None, Duration::ZERO, &[], &[Text(CHANNEL)]).into()
}

/// Whether the server takes writes from this user. The key is never there.
pub(crate) fn probe(key: &Key) -> TypedCall<Done> {
    let keys = [key.as_str(), key.queue(), key.fence()];
    Call::new(&PROBE, Purpose::Other, None, Duration::ZERO, &keys, &[Text("check mutex")]).into()
}
