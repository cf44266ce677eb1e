//! The raw limit: bare connections, and only the commands that no implementation can avoid.
//!
//! 1. A lock needs `SET NX PX`, and a script that compares and deletes.
//! 2. A hand-over passes a token with LPUSH and BLPOP.
//! 3. A lock on several nodes writes to all of them, then reads from all of them.
//!
//! The bytes of all commands are packed beforehand.

use std::time::Duration;

use redis::io::tcp::TcpSettings;
use redis::{Client, Cmd, Connection, IntoConnectionInfo, ProtocolVersion, Value, cmd};

use super::{Outcome, clock};

const RELEASE: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0";
const EXTEND: &str =
    "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('PEXPIRE', KEYS[1], ARGV[2]) end return 0";

/// A token that is as long as the tokens of the library.
const TOKEN: &str = "0123456789abcdef0123456789abcdef:some-host:12345:1";
const LEASE_MS: u64 = 30_000;

/// The time for which a raw connection waits for a reply. It is longer than any BLPOP here.
const PATIENCE: Duration = Duration::from_secs(10);

/// One bare connection.
pub struct Wire(Connection);

impl Wire {
    /// Opens a connection to this URL.
    pub fn open(url: &str) -> Outcome<Self> {
        let info = url.into_connection_info()?.set_tcp_settings(TcpSettings::default().set_nodelay(true));
        let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP2).set_skip_set_lib_name();
        let connection = Client::open(info.set_redis_settings(settings))?.get_connection_with_timeout(PATIENCE)?;
        connection.set_read_timeout(Some(PATIENCE))?;
        connection.set_write_timeout(Some(PATIENCE))?;
        Ok(Self(connection))
    }

    /// Sends a packed command.
    pub fn send(&mut self, packed: &[u8]) -> Outcome<()> {
        Ok(self.0.send_packed_command(packed)?)
    }

    /// Receives the next reply. An error reply is returned as an error.
    pub fn receive(&mut self) -> Outcome<Value> {
        Ok(self.0.recv_response()?.extract_error()?)
    }

    /// Sends a command and waits for its reply.
    pub fn call(&mut self, packed: &[u8]) -> Outcome<Value> {
        self.send(packed)?;
        self.receive()
    }

    /// Loads a script, and returns the packed call of it with one key.
    fn script(&mut self, source: &str, key: &str, args: &[&str]) -> Outcome<Vec<u8>> {
        let sha: String = cmd("SCRIPT").arg("LOAD").arg(source).query(&mut self.0)?;
        Ok(packed(cmd("EVALSHA").arg(sha).arg(1).arg(key).arg(args)))
    }
}

/// The packed bytes of a command.
pub fn packed(command: &Cmd) -> Vec<u8> {
    command.get_packed_command()
}

/// The raw lock on one key, on one node or on several nodes.
pub struct RawLock {
    wires: Vec<Wire>,
    acquire: Vec<u8>,
    release: Vec<u8>,
}

impl RawLock {
    /// Connects to each of these nodes.
    pub fn open(urls: &[String], key: &str) -> Outcome<Self> {
        let mut wires = urls.iter().map(|url| Wire::open(url)).collect::<Outcome<Vec<_>>>()?;
        let acquire = packed(cmd("SET").arg(key).arg(TOKEN).arg("NX").arg("PX").arg(LEASE_MS));
        let mut release = Vec::new();
        for wire in &mut wires {
            release = wire.script(RELEASE, key, &[TOKEN])?;
        }
        Ok(Self { wires, acquire, release })
    }

    /// Acquires and releases the lock. Each step writes to all nodes, then reads from all nodes.
    pub fn pair(&mut self) -> Outcome<()> {
        self.acquire()?;
        self.release()
    }

    /// Acquires the lock. Returns an error if the lock is held.
    pub fn acquire(&mut self) -> Outcome<()> {
        round(&mut self.wires, &self.acquire, &Value::Okay)
    }

    /// Releases the lock.
    pub fn release(&mut self) -> Outcome<()> {
        round(&mut self.wires, &self.release, &Value::Int(1))
    }

    /// Measures the time of each of `n` pairs of acquire and release.
    pub fn pairs(&mut self, n: usize, samples: &mut Vec<u64>) -> Outcome<()> {
        super::stats::timed(n, samples, || self.pair())
    }
}

fn round(wires: &mut [Wire], call: &[u8], expected: &Value) -> Outcome<()> {
    for wire in &mut *wires {
        wire.send(call)?;
    }
    for wire in wires {
        let reply = wire.receive()?;
        if reply != *expected {
            return Err(format!("a raw lock was answered {reply:?}").into());
        }
    }
    Ok(())
}

/// A token in a list. The process that has popped the token holds it.
pub struct RawRing {
    wire: Wire,
    pop: Vec<u8>,
    push: Vec<u8>,
}

impl RawRing {
    /// Connects to the server of the list.
    pub fn open(url: &str, list: &str) -> Outcome<Self> {
        let pop = packed(cmd("BLPOP").arg(list).arg(5));
        Ok(Self { wire: Wire::open(url)?, pop, push: packed(cmd("LPUSH").arg(list).arg(TOKEN)) })
    }

    /// Waits for the token. Returns false if it does not arrive within five seconds.
    pub fn pop(&mut self) -> Outcome<bool> {
        Ok(self.wire.call(&self.pop)? != Value::Nil)
    }

    /// Passes the token on.
    pub fn push(&mut self) -> Outcome<()> {
        self.wire.call(&self.push).map(drop)
    }
}

/// Measures a thread that only extends a lock, this many times per second. Returns its processor time in per cent of
/// one core.
pub fn extending_cpu(url: &str, per_second: u32, span: Duration) -> Outcome<f64> {
    let mut lock = RawLock::open(&[url.to_owned()], "raw-extend")?;
    lock.acquire()?;
    let wire = &mut lock.wires[0];
    let extend = wire.script(EXTEND, "raw-extend", &[TOKEN, &LEASE_MS.to_string()])?;
    let (start, before) = (clock::now(), clock::thread_cpu());
    let pause = clock::nanos(Duration::from_secs(1) / per_second);
    let end = start + clock::nanos(span);
    let mut due = start;
    while due < end {
        clock::sleep_until(due);
        wire.call(&extend)?;
        due += pause;
    }
    let used = clock::thread_cpu() - before;
    lock.release()?;
    Ok(super::stats::float(used) / super::stats::float(end - start) * 100.0)
}
