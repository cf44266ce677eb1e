//! What ends the sleep of a wait besides its timer and a push. How it is noticed: `watching.rs`.

use std::sync::Arc;

/// What else ends the sleep of a wait, with [`Woken::Timer`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Awaits {
    #[default]
    Nothing,
    /// That the lock with this key is free, or granted to the wait with this id. Looked at once a second, for all waits of the client together.
    Lock(Arc<str>, Arc<str>),
    /// That a server can be reached again.
    Servers,
}
