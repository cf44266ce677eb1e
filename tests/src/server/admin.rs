//! The connection of the fixture to a server, and shortcuts that use it.

use std::fmt;
use std::time::Duration;

use redis::{
    Client, Cmd, Connection, FromRedisValue, IntoConnectionInfo, ProtocolVersion, RedisError, RedisResult, cmd,
};

use super::Server;

/// The time for which the fixture waits for an answer.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A connection that is made when it is needed. It counts its commands, so that they can be subtracted from the count
/// of the server.
pub(super) struct Admin {
    url: String,
    connection: Option<Connection>,
    /// The number of commands that are not from clients. They are those of the fixture since the start of the server
    /// process, and all that were executed before it was ready.
    sent: u64,
}

impl Admin {
    pub(super) fn new(url: String) -> Self {
        Self { url, connection: None, sent: 0 }
    }

    /// True if the process `pid` answers and has loaded its data. Another process could have the port.
    pub(super) fn ready(&mut self, pid: u32) -> RedisResult<bool> {
        let info: String = self.query(cmd("INFO").arg("default"))?;
        self.sent = executed(&info) + 1;
        Ok(field(&info, "process_id") == Some(&pid.to_string()) && field(&info, "loading") != Some("1"))
    }

    fn query<T: FromRedisValue>(&mut self, command: &Cmd) -> RedisResult<T> {
        let connection = match &mut self.connection {
            Some(connection) => connection,
            none => {
                let connection = none.insert(connect(&self.url)?);
                self.sent += u64::from(self.url.contains('@')); // The connection has sent AUTH.
                connection
            }
        };
        self.sent += 1;
        let answer = command.query(connection);
        if answer.as_ref().is_err_and(RedisError::is_io_error) {
            self.connection = None;
        }
        answer
    }

    /// Works like [`Admin::query`], but repeats the command on a new connection if the old one is gone.
    fn query_again<T: FromRedisValue>(&mut self, command: &Cmd) -> RedisResult<T> {
        match self.query(command) {
            Err(error) if error.is_connection_dropped() => self.query(command),
            answer => answer,
        }
    }
}

impl fmt::Debug for Admin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Admin").field("sent", &self.sent).finish_non_exhaustive()
    }
}

/// Makes a connection with timeouts. It sends nothing by itself, except AUTH if there is a password.
fn connect(url: &str) -> RedisResult<Connection> {
    let info = url.into_connection_info()?;
    let settings = info.redis_settings().clone();
    let settings = settings.set_protocol(ProtocolVersion::RESP2).set_skip_set_lib_name();
    let connection = Client::open(info.set_redis_settings(settings))?.get_connection_with_timeout(TIMEOUT)?;
    connection.set_read_timeout(Some(TIMEOUT))?;
    connection.set_write_timeout(Some(TIMEOUT))?;
    Ok(connection)
}

/// The value of one line of INFO.
fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
}

/// The number of commands that the server has counted. It does not include the INFO that asks for it.
fn executed(info: &str) -> u64 {
    let count = field(info, "total_commands_processed").and_then(|count| count.parse().ok());
    count.expect("INFO has a number of commands")
}

/// Shortcuts for set-up and checks. Each of them panics if the server does not answer.
impl Server {
    /// A separate plain connection, with timeouts of half a minute.
    pub fn client(&self) -> Connection {
        connect(&self.url()).unwrap_or_else(|error| panic!("cannot connect to {self}: {error}"))
    }

    /// Sends one command on the connection of the fixture.
    pub fn ask<T: FromRedisValue>(&self, command: &Cmd) -> T {
        self.try_ask(command).unwrap_or_else(|error| panic!("{self} did not answer as it should: {error}"))
    }

    /// Sends one command on the connection of the fixture. The server may return an error.
    ///
    /// # Errors
    ///
    /// Returns the error of the server, or of the connection.
    pub fn try_ask<T: FromRedisValue>(&self, command: &Cmd) -> RedisResult<T> {
        self.with_admin(|admin| admin.query_again(command))
    }

    pub(super) fn with_admin<T>(&self, work: impl FnOnce(&mut Admin) -> T) -> T {
        // A panic of another thread leaves nothing in a partial state here. The connection is used or dropped as a
        // whole.
        work(&mut self.admin.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
    }

    /// All keys of database 0, sorted.
    pub fn keys(&self) -> Vec<String> {
        let mut keys: Vec<String> = self.ask(cmd("KEYS").arg("*"));
        keys.sort();
        keys
    }

    /// The string at `key`, if there is one.
    pub fn get(&self, key: &str) -> Option<String> {
        self.ask(cmd("GET").arg(key))
    }

    /// The token of the holder at `key`, if there is one. It is the string of a mutex, or what follows the slot of a
    /// permit or the letter of a reader or writer.
    pub fn holder(&self, key: &str) -> Option<String> {
        let look = "if redis.call('TYPE', KEYS[1]).ok ~= 'zset' then return redis.call('GET', KEYS[1]) end
            local member = redis.call('ZRANGE', KEYS[1], 0, 0)[1]
            return string.match(member, '^%d+ (.*)$') or string.sub(member, 2)";
        self.ask(cmd("EVAL").arg(look).arg(1).arg(key))
    }

    /// Adds 300 000 keys that expire after `ms` to `2 * ms`. A server that searches all of them is slow to expire other
    /// keys.
    pub fn crowd(&self, ms: usize) {
        let fill = "for i = ARGV[1], ARGV[2] do redis.call('SET', 'crowd:' .. string.format('%d', i), i, 'PX', ARGV[3] + i % ARGV[3]) end";
        for batch in 0..15 {
            let (from, to) = (batch * 20_000 + 1, (batch + 1) * 20_000);
            self.ask::<()>(cmd("EVAL").arg(fill).arg(0).arg(from).arg(to).arg(ms));
        }
        // On a busy machine, many of them can have expired by now.
        let there: usize = self.ask(&cmd("DBSIZE"));
        if there < 200_000 {
            self.crowd(2 * ms);
        }
    }

    /// Sets the string at `key`, without a time to live.
    pub fn set(&self, key: &str, value: &str) {
        self.ask::<()>(cmd("SET").arg(key).arg(value));
    }

    /// Deletes `key`. Returns true if it existed.
    pub fn del(&self, key: &str) -> bool {
        self.ask(cmd("DEL").arg(key))
    }

    /// The time to live of `key`. `None` if there is no such key, or if it never expires.
    pub fn pttl(&self, key: &str) -> Option<Duration> {
        let millis: i64 = self.ask(cmd("PTTL").arg(key));
        u64::try_from(millis).ok().map(Duration::from_millis)
    }

    /// One field of INFO, for example `"connected_clients"`.
    pub fn info(&self, name: &str) -> Option<String> {
        let info: String = self.ask(cmd("INFO").arg("default"));
        field(&info, name).map(str::to_owned)
    }

    /// Works like [`Server::info`], for a server that may not answer.
    pub(super) fn try_info(&self, name: &str) -> Option<String> {
        let info: String = self.try_ask(cmd("INFO").arg("default")).ok()?;
        field(&info, name).map(str::to_owned)
    }

    /// The number of commands that clients have executed since the last start of the server. The commands of the
    /// fixture do not count. Commands that the server refused (for lack of memory, or before AUTH) do not count either.
    /// Commands of replicas do count.
    pub fn commands_processed(&self) -> u64 {
        self.with_admin(|admin| {
            let info: String = admin.query_again(cmd("INFO").arg("stats")).expect("INFO is answered");
            (executed(&info) + 1).saturating_sub(admin.sent)
        })
    }

    /// Sends a SET. Returns true if the server refused it for lack of memory.
    pub(super) fn is_full(&self) -> bool {
        self.with_admin(|admin| {
            let refused = admin.query_again::<()>(cmd("SET").arg("redlock-tests:full").arg("")).err();
            let full = refused.is_some_and(|error| error.code() == Some("OOM"));
            if full {
                admin.sent -= 1; // The server does not count refused commands.
            } else {
                _ = admin.query::<()>(cmd("DEL").arg("redlock-tests:full"));
            }
            full
        })
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the server on port {} (process {})", self.port(), self.pid())
    }
}
