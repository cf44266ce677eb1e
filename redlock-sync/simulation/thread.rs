//! A thread of a client, with the functions that all kinds of work share.

use std::sync::Arc;
use std::time::Duration;

use super::world::{Event, with};
use crate::cancel::Cancel;
use crate::clock::Tick;
use crate::error::Error;
use crate::inner::ClientInner;

/// A thread of a client.
pub(super) struct Thread {
    pub(super) client: usize,
    pub(super) inner: Arc<ClientInner>,
}

impl Thread {
    pub(super) fn is_dead(&self) -> bool {
        with(|world| world.clients[self.client].is_dead)
    }

    pub(super) fn now(&self) -> Tick {
        with(|world| world.tick(self.client))
    }

    /// Returns a `Cancel` that is cancelled after this time by the client's clock, or when the client dies.
    pub(super) fn cancel_after(&self, after: Duration) -> Cancel {
        let cancel = Cancel::new();
        let (later, at_the_end, client) = (cancel.clone(), cancel.clone(), self.client);
        with(|world| {
            if world.clients[client].is_dead {
                at_the_end.cancel();
            }
            world.clients[client].cancels.push(at_the_end);
            let at = world.true_time(client, after);
            world.plan_at(at, Event::Job { client, job: Box::new(move || later.cancel()) });
        });
        cancel
    }

    /// Checks an error of a call. Returns false if the client is closed.
    pub(super) fn note_error(&self, error: &Error) -> bool {
        with(|world| {
            let client = self.client;
            world.log(|_| format!("client {client} got no lock: {error}"));
            match error {
                Error::Busy { .. } => world.counts.busy += 1,
                Error::Unavailable { .. } => world.counts.unavailable += 1,
                Error::Cancelled { .. } => world.counts.cancelled += 1,
                Error::Closed if world.clients[client].is_closed => return false,
                _ => world.violate(format!("client {client} got an error that cannot be: {error}")),
            }
            true
        })
    }
}
