//! Events that end the sleep of a wait, besides its timer and a notification. `watching.rs` detects them.

use std::sync::Arc;

use crate::clock::Tick;

/// What else ends the sleep of a wait. The sleep then returns [`Woken::Timer`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Awaits {
    Nothing,
    /// The lock with this key is free, or granted to the wait with this id. Checked once a second, for all waits of the
    /// client together.
    Lock(Arc<str>, Arc<str>),
    /// This sorted set is gone, or one of its members has ended, which cannot happen before the given moment. Once a
    /// second the client checks that the sets of all its waits exist. It reads a set only at that moment, unless it
    /// watches few sets.
    Set(Arc<str>, Tick),
    /// A server can be reached again.
    Servers,
    /// A task is due. Such a wait makes a claim every few seconds, so heartbeats are sent less often.
    Task,
}
