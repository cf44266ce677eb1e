//! The two ends of a connection, which are used at the same time: one writes and one reads. A socket, a server in memory and the simulation have them.

use std::any::Any;
use std::fmt;

use crate::clock::Tick;

/// How an exchange on a connection ended early. The connection is of no more use for anything else.
#[derive(Debug)]
pub(crate) enum Broken {
    TimedOut,
    /// The time is over, but the bytes were moving, at an eighth of the floor at least: there are more than fit into the
    /// time, which says nothing of the server.
    Slow,
    /// Reset, closed, or no longer understood; with a message.
    Closed(String),
    /// What listens there is not Redis, or TLS does not come about as the server and the certificates are set up; with
    /// a message.
    Unusable(String),
}

impl Broken {
    /// What is told of it.
    pub(crate) fn words(&self) -> String {
        match self {
            Broken::Closed(why) | Broken::Unusable(why) => why.clone(),
            Broken::TimedOut | Broken::Slow => "timed out while writing".to_owned(),
        }
    }
}

/// Where commands are written.
pub(crate) trait Sink: Send {
    /// Writes all of it by then. After an error the server has at most a part, and the connection is of no more use.
    fn write(&mut self, bytes: &[u8], by: Tick) -> Result<(), Broken>;
}

/// Where replies are read.
pub(crate) trait Source: Send {
    /// Reads what is there, and waits until then for the first of it. Zero: nothing has come; a later call goes on.
    fn read(&mut self, room: &mut [u8], until: Tick) -> Result<usize, Broken>;
}

/// Closes a connection on which other threads may read and write: their calls then end.
pub(crate) trait Shut: Send + Sync {
    fn shut(&self);
}

/// A connection that is ready for calls.
pub(crate) struct Ends {
    pub(crate) sink: Box<dyn Sink>,
    pub(crate) source: Box<dyn Source>,
    pub(crate) shut: Box<dyn Shut>,
    /// Where it comes from, until it is of no more use: a pool makes another one then.
    pub(crate) pool_slot: Box<dyn Any + Send>,
}

/// A connection that was made, with what is known of it.
pub(crate) struct NewConnection {
    pub(crate) ends: Ends,
    /// How often connections to the server had broken before it was made, as its host counts.
    pub(crate) generation: u64,
    /// From when on it shall be replaced, and from when on it must not be used: what it logged in with has run out then.
    pub(crate) validity: Option<(Tick, Tick)>,
}

impl fmt::Debug for Ends {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ends").finish_non_exhaustive()
    }
}
