//! Questions about a server itself, for readiness probes.

use super::TypedCall;
use super::script::Arg::Text;
use super::script::{Call, HEALTH, PROBE};
use crate::key::Key;

/// A channel name of the form that clients listen on.
const CHANNEL: &str = "redlock-sync:health";

/// Asks for facts about the server.
pub(crate) fn facts() -> TypedCall<String> {
    Call::new(&HEALTH, &[], &[Text(CHANNEL)]).into()
}

/// Asks whether this user may write. The key never exists.
pub(crate) fn probe(key: &Key) -> TypedCall<()> {
    let keys = [key.as_str(), key.queue(), key.fence()];
    Call::new(&PROBE, &keys, &[Text("check mutex")]).into()
}
