//! A node in memory. It runs the library's own scripts on its own store, behind the interface of `link.rs`. Several
//! threads may share it.
//!
//! 1. `store.rs`: the data, and the commands that scripts use.
//! 2. `lua.rs`: runs a script on a store.
//! 3. `memory_server.rs`: a server, and what tests can do to it.
//! 4. `memory_connection.rs`: a connection to a server.

mod lua;
mod memory_connection;
mod memory_server;
mod store;

#[cfg(test)]
pub(crate) use self::lua::run;
#[cfg(test)]
pub(crate) use self::memory_connection::command;
pub(crate) use self::memory_server::MemoryServer;
pub(crate) use self::store::MemoryReply;
#[cfg(test)]
pub(crate) use self::store::{Data, Item, Store, StoredText};

/// The reply as the `redis` crate would read it from a socket.
pub(crate) fn on_the_wire(reply: MemoryReply) -> redis::Value {
    match reply {
        MemoryReply::Nil => redis::Value::Nil,
        MemoryReply::Ok => redis::Value::Okay,
        MemoryReply::Int(n) => redis::Value::Int(n),
        MemoryReply::Bulk(bytes) => redis::Value::BulkString(bytes),
        MemoryReply::List(items) => redis::Value::Array(items.into_iter().map(on_the_wire).collect()),
        MemoryReply::Error(message) => {
            let line = message.replace(['\r', '\n'], " ");
            redis::parse_redis_value(format!("-{line}\r\n").as_bytes()).unwrap_or_default()
        }
    }
}

/// The reply as bytes of the protocol.
pub(crate) fn encoded(reply: &redis::Value) -> Vec<u8> {
    match reply {
        redis::Value::Int(n) => format!(":{n}\r\n").into_bytes(),
        redis::Value::Okay => b"+OK\r\n".to_vec(),
        redis::Value::SimpleString(text) => format!("+{text}\r\n").into_bytes(),
        redis::Value::BulkString(bytes) => [format!("${}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat(),
        redis::Value::Array(items) => {
            let head = format!("*{}\r\n", items.len()).into_bytes();
            items.iter().fold(head, |bytes, item| [bytes, encoded(item)].concat())
        }
        redis::Value::ServerError(error) => {
            format!("-{} {}\r\n", error.code(), error.details().unwrap_or_default()).into_bytes()
        }
        _ => b"$-1\r\n".to_vec(),
    }
}

/// The result that a client gets for this reply.
#[cfg(test)]
pub(crate) fn outcome(reply: MemoryReply) -> Result<super::Value, super::Failure> {
    super::redis_reply::value(on_the_wire(reply))
}
