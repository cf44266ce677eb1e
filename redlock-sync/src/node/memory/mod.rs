//! A node in memory. It runs the library's own scripts on its own store, behind the interface of `link.rs`. Several
//! threads may share it.
//!
//! 1. `store.rs`: the data, and the commands that scripts use.
//! 2. `lua.rs`: runs a script on a store.
//! 3. `memory_server.rs`: a server, and what tests can do to it.
//! 4. `memory_connection.rs`: a connection to a server.
//! 5. `rules.rs`: how other servers differ from Redis.
//! 6. `served.rs`: a server over TCP.
//!
//! `like_a_server` compares it with a server.

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by a panic")]
mod like_a_server;
mod lua;
mod memory_connection;
mod memory_server;
mod rules;
mod served;
mod store;

#[cfg(test)]
pub(crate) use self::lua::run;
#[cfg(test)]
pub(crate) use self::memory_connection::command;
pub(crate) use self::memory_server::MemoryServer;
pub use self::rules::Rule;
pub(crate) use self::served::serve;
pub(crate) use self::store::MemoryReply;
#[cfg(test)]
pub(crate) use self::store::{Data, Item, Store, StoredText};

/// The reply as bytes of the protocol.
pub(crate) fn encoded(reply: &MemoryReply) -> Vec<u8> {
    match reply {
        MemoryReply::Nil => b"$-1\r\n".to_vec(),
        MemoryReply::Ok => b"+OK\r\n".to_vec(),
        MemoryReply::Int(n) => format!(":{n}\r\n").into_bytes(),
        MemoryReply::Bulk(bytes) => [format!("${}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat(),
        MemoryReply::List(items) => {
            let head = format!("*{}\r\n", items.len()).into_bytes();
            items.iter().fold(head, |bytes, item| [bytes, encoded(item)].concat())
        }
        MemoryReply::Error(message) => format!("-{}\r\n", message.replace(['\r', '\n'], " ")).into_bytes(),
    }
}

/// A message of a channel, as bytes of the protocol.
pub(crate) fn message(channel: &[u8], text: &[u8]) -> Vec<u8> {
    encoded(&MemoryReply::List([b"message", channel, text].map(|word| MemoryReply::Bulk(word.to_vec())).into()))
}

/// The result that a client gets for this reply.
#[cfg(test)]
pub(crate) fn outcome(reply: &MemoryReply) -> Result<super::Value, super::Failure> {
    super::redis_reply::value(redis::parse_redis_value(&encoded(reply)).unwrap_or_default())
}
