//! What ends the sleep of a wait besides its timer and a push. How it is noticed: `watching.rs`.

use std::sync::Arc;

use crate::clock::Tick;

/// What else ends the sleep of a wait, with [`Woken::Timer`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Awaits {
    #[default]
    Nothing,
    /// That the lock with this key is free, or granted to the wait with this id. LatchStatus at once a second, for all waits of the client together.
    Lock(Arc<str>, Arc<str>),
    /// That this sorted set is gone, or that a member of it has come to its end, which none does before then. That it is there is looked at once a second,
    /// for all waits together; what is in it at that moment only, unless there are few.
    Set(Arc<str>, Tick),
    /// That a server can be reached again.
    Servers,
    /// That a task is due. Its wait looks by itself every few seconds, so the push connection is tested less often.
    Task,
}
