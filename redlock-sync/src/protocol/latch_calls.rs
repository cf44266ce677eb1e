//! The calls of a count-down latch to one node. A latch has no holder, and so no lease and no fence.

use std::time::Duration;

use super::reply::{LatchStatus, Released};
use super::script::Arg::{self, Number, Text};
use super::script::{Call, LATCH_ARRIVE, LATCH_LOOK, LATCH_RESET};
use super::{TypedCall, WaitArgs, millis};
use crate::key::Key;

/// The member that marks a latch as open. It is stored beside the arrivals, or instead of them.
const OPEN: &str = "!";

#[derive(Debug)]
pub(crate) struct LatchCalls {
    pub(crate) key: Key,
    /// The key of the waits. It is gone once the latch has opened.
    pub(crate) waits: String,
    /// How many arrivals open it.
    pub(crate) count: usize,
}

impl LatchCalls {
    pub(crate) fn new(key: Key, count: usize) -> LatchCalls {
        LatchCalls { waits: key.latch_waits(), key, count }
    }

    fn keys(&self) -> [&str; 2] {
        [self.key.as_str(), &self.waits]
    }

    fn count(&self) -> Arg<'static> {
        Number(u64::try_from(self.count).unwrap_or(u64::MAX))
    }

    /// Stores arrivals, and keeps the latch for at least this long.
    pub(crate) fn arrive(&self, arrivals: &[&str], lifetime: Duration) -> TypedCall<()> {
        let mut args = vec![self.count(), Number(millis(lifetime))];
        args.extend(arrivals.iter().map(|arrival| Text(arrival)));
        Call::new(&LATCH_ARRIVE, &self.keys(), &args).into()
    }

    /// Marks it as open.
    pub(crate) fn open(&self, lifetime: Duration) -> TypedCall<()> {
        self.arrive(&[OPEN], lifetime)
    }

    /// Asks whether it is open, and if not, for the arrivals. The node notifies the wait when it opens.
    pub(crate) fn check(&self, wait: Option<WaitArgs<'_>>, with_arrivals: bool) -> TypedCall<LatchStatus> {
        let (wait, stays) = wait.map_or(("", 0), |wait| (wait.id, millis(wait.stays)));
        let args = [self.count(), Number(with_arrivals.into()), Text(wait), Number(stays)];
        Call::new(&LATCH_LOOK, &self.keys(), &args).into()
    }

    /// Forgets the arrivals.
    pub(crate) fn reset(&self) -> TypedCall<Released> {
        Call::new(&LATCH_RESET, &[self.key.as_str()], &[]).into()
    }
}
