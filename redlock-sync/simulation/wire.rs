//! A node as seen by a client: the simulated implementation of the interface between rounds and servers
//! (`node/link.rs`).

use std::collections::VecDeque;
use std::fmt;
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::time::Duration;

use redis::RedisConnectionInfo;

use super::connection::Connection;
use super::plan::US;
use super::server::Command;
use super::world::{sleep, try_with, wait, with};
use crate::clock::{Clock, Tick};
use crate::node::memory::{command, encoded};
use crate::node::{Broken, Connection as Wire, Dial, Failure, FailureKind, Halves, Login, Sink, Source};

/// The node `node` as seen by the client `client`.
pub(super) struct SimulatedServer {
    client: usize,
    node: usize,
    address: String,
    login: RedisConnectionInfo,
}

impl SimulatedServer {
    pub(super) fn new(client: usize, node: usize) -> SimulatedServer {
        SimulatedServer { client, node, address: format!("simulated:{node}"), login: RedisConnectionInfo::default() }
    }

    /// Returns the new connection if the outcome of the attempt is known. `Err(Some(time))` is the time until it may be
    /// known. `Err(None)` says that the node refuses the connection.
    fn attempt(&self, began: u64, trip: u64) -> Result<usize, Option<Duration>> {
        let SimulatedServer { client, node, .. } = *self;
        with(|world| {
            let heals = world.clients[client].paths[node].partitioned_until;
            let there = heals.max(began + trip);
            if world.now < there {
                return Err(Some(Duration::from_nanos((there - world.now).max(50 * US))));
            }
            let server = world.server_of(client, node);
            if world.reaches(client, server) { Ok(world.open(client, server)) } else { Err(None) }
        })
    }
}

impl Dial for SimulatedServer {
    fn address(&self) -> &str {
        &self.address
    }

    fn address_changes(&self) -> Option<u64> {
        with(|world| world.moves(self.client))
    }

    fn master_for(&self) -> Option<Duration> {
        with(|world| world.master_for())
    }

    fn login(&self) -> Result<Login, Failure> {
        Ok(self.login.clone().into())
    }

    fn dial(&self, by: Tick, clock: &dyn Clock) -> Result<Box<dyn Wire>, Failure> {
        let (began, trip) = with(|world| (world.now, 2 * world.one_way()));
        loop {
            let left = by.since(clock.now());
            let is_dead = with(|world| world.clients[self.client].is_dead);
            match self.attempt(began, trip) {
                _ if is_dead => return Err(Failure::unsent(FailureKind::Unreachable, "the process is dead")),
                Ok(id) => {
                    return Ok(Box::new(SimulatedConnection { id, client: self.client, read_timeout: left, skips: 0 }));
                }
                Err(None) => return Err(Failure::unsent(FailureKind::Unreachable, "connection refused")),
                Err(Some(_)) if left.is_zero() => {
                    return Err(Failure::unsent(FailureKind::TimedOut, "timed out while connecting"));
                }
                Err(Some(pause)) => sleep(self.client, pause.min(left)),
            }
        }
    }
}

impl fmt::Display for SimulatedServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.address)
    }
}

/// The client's end of a connection.
struct SimulatedConnection {
    id: usize,
    client: usize,
    read_timeout: Duration,
    /// The number of replies to skip, because the read that waited for them has timed out.
    skips: usize,
}

fn cut() -> Broken {
    Broken::Closed("connection reset by peer".into())
}

impl SimulatedConnection {
    /// Waits until `take` returns something, until the timeout, or until the connection breaks.
    fn read<T>(&self, mut take: impl FnMut(&mut Connection) -> Option<T>) -> Result<T, Broken> {
        let by = with(|world| world.tick(self.client)).after(self.read_timeout);
        loop {
            let (found, is_broken, left) = with(|world| {
                let left = by.since(world.tick(self.client));
                let connection = &mut world.connections[self.id];
                (take(connection), connection.is_broken, left)
            });
            if let Some(found) = found {
                return Ok(found);
            }
            if with(|world| world.clients[self.client].is_dead) {
                // Time passes for a dead client too.
                sleep(self.client, Duration::from_millis(1));
                return Err(cut());
            }
            if is_broken {
                return Err(cut());
            }
            if left.is_zero() {
                return Err(Broken::TimedOut);
            }
            wait(|world, waiter| {
                world.connections[self.id].waiter = Some(waiter);
                world.true_time(self.client, left)
            });
        }
    }
}

impl Wire for SimulatedConnection {
    fn send(&mut self, bytes: &[u8]) -> Result<(), Broken> {
        let mut commands = Vec::new();
        let mut rest = bytes;
        while let Some((words, behind)) = command(rest) {
            commands.push(Command::read(&words));
            rest = behind;
        }
        let is_written = with(|world| {
            if world.clients[self.client].is_dead {
                return false;
            }
            for command in &commands {
                world.note_command(command);
            }
            world.write(self.id, commands)
        });
        if is_written { Ok(()) } else { Err(cut()) }
    }

    fn receive(&mut self) -> Result<redis::Value, Broken> {
        let mut skips = self.skips;
        let reply = self.read(|connection| {
            while skips > 0 && connection.replies.pop_front().is_some() {
                skips -= 1;
            }
            connection.replies.pop_front()
        });
        self.skips = skips + usize::from(matches!(reply, Err(Broken::TimedOut)));
        reply
    }

    fn receive_message(&mut self) -> Result<Vec<u8>, Broken> {
        self.read(|connection| connection.notifications.pop_front())
    }

    fn set_read_timeout(&mut self, timeout: Duration) {
        self.read_timeout = timeout;
    }

    fn split(self: Box<Self>) -> Halves {
        let SimulatedConnection { id, client, .. } = *self;
        let other = || ManuallyDrop::new(SimulatedConnection { id, client, read_timeout: Duration::ZERO, skips: 0 });
        let whole = Arc::new(*self);
        let back = Back { connection: other(), bytes: VecDeque::new(), _whole: Arc::clone(&whole) };
        let front = Front { connection: other(), _whole: Arc::clone(&whole) };
        // Wakes a read that waits, so that it returns.
        let shut = move || {
            try_with(|world| {
                world.connections[whole.id].is_broken = true;
                world.wake_reader(whole.id);
            });
        };
        Halves { sink: Box::new(front), source: Box::new(back), shut: Box::new(shut) }
    }
}

/// The writing half of a connection.
struct Front {
    connection: ManuallyDrop<SimulatedConnection>,
    _whole: Arc<SimulatedConnection>,
}

/// The reading half of a connection, with the bytes that have arrived.
struct Back {
    connection: ManuallyDrop<SimulatedConnection>,
    bytes: VecDeque<u8>,
    _whole: Arc<SimulatedConnection>,
}

impl Sink for Front {
    fn write(&mut self, bytes: &[u8], _: Tick) -> Result<(), Broken> {
        self.connection.send(bytes)
    }
}

impl Source for Back {
    fn read(&mut self, room: &mut [u8], until: Tick) -> Result<usize, Broken> {
        if self.bytes.is_empty() {
            let now = with(|world| world.tick(self.connection.client));
            self.connection.read_timeout = until.since(now);
            match self.connection.read(|connection| connection.replies.pop_front()) {
                Ok(reply) => self.bytes.extend(encoded(&reply)),
                Err(Broken::TimedOut) => return Ok(0),
                Err(broken) => return Err(broken),
            }
        }
        let bytes = room.len().min(self.bytes.len());
        for (byte, room) in self.bytes.drain(..bytes).zip(room) {
            *room = byte;
        }
        Ok(bytes)
    }
}

impl Drop for SimulatedConnection {
    /// A connection that is dropped together with a failed schedule finds no world.
    fn drop(&mut self) {
        try_with(|world| world.close(self.id));
    }
}
