//! The two halves of a connection. One thread writes while another one reads. Sockets, servers in memory and the
//! simulation implement them.

use crate::clock::Tick;

/// Why a step on a connection failed. The connection cannot be used any more.
#[derive(Debug)]
pub(crate) enum Broken {
    TimedOut,
    /// The connection was reset or closed, or sent bytes that cannot be understood. The string says why.
    Closed(String),
    /// The peer is not Redis. The string says so.
    Unusable(String),
    /// TLS fails because of a setting or a certificate. The string says why.
    Tls(String),
}

impl Broken {
    /// The message for users.
    pub(crate) fn words(&self) -> String {
        match self {
            Broken::Closed(why) | Broken::Unusable(why) | Broken::Tls(why) => why.clone(),
            Broken::TimedOut => "timed out while writing".to_owned(),
        }
    }
}

/// The writing half.
pub(crate) trait Sink: Send {
    /// Writes what fits into the socket, without waiting for more room. Returns how many of the bytes are written. The
    /// next call must begin with the rest. After an error the server has at most a part of them, and the connection
    /// cannot be used any more.
    fn write(&mut self, bytes: &[u8]) -> Result<usize, Broken>;
}

/// The reading half.
pub(crate) trait Source: Send {
    /// Reads available bytes, or waits for some until the deadline. After the deadline it does not wait. Zero means
    /// that nothing has arrived; the next call continues.
    fn read(&mut self, room: &mut [u8], until: Tick) -> Result<usize, Broken>;
}

/// The two halves of a connection.
pub(crate) struct Halves {
    pub(crate) sink: Box<dyn Sink>,
    pub(crate) source: Box<dyn Source>,
    /// Closes the connection while other threads may read and write. Their calls then return.
    pub(crate) shut: Box<dyn Fn() + Send + Sync>,
}
