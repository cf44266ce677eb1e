//! A node as seen by a client: the simulated implementation of the interface between rounds and servers
//! (`node/link.rs`).

use std::fmt;
use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use redis::RedisConnectionInfo;

use super::plan::US;
use super::server::Command;
use super::world::{sleep, try_with, wait, with};
use crate::clock::{Clock, Tick};
use crate::node::memory::command;
use crate::node::{Broken, Dial, Failure, FailureKind, Halves, Login, Sink, Source};

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

    fn dial(&self, by: Tick, clock: &dyn Clock) -> Result<Halves, Failure> {
        let (began, trip) = with(|world| (world.now, 2 * world.one_way()));
        loop {
            let left = by.since(clock.now());
            let is_dead = with(|world| world.clients[self.client].is_dead);
            match self.attempt(began, trip) {
                _ if is_dead => return Err(Failure::unsent(FailureKind::Unreachable, "the process is dead")),
                Ok(id) => return Ok(halves(id, self.client)),
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

/// The client's end of a connection: both halves.
struct SimulatedConnection {
    id: usize,
    client: usize,
}

fn halves(id: usize, client: usize) -> Halves {
    let both = Arc::new(SimulatedConnection { id, client });
    let (sink, source) = (Box::new(Arc::clone(&both)), Box::new(Arc::clone(&both)));
    // Wakes a read that waits, so that it returns.
    let shut = move || {
        try_with(|world| {
            world.connections[both.id].is_broken = true;
            world.wake_reader(both.id);
        });
    };
    Halves { sink, source, shut: Box::new(shut) }
}

fn cut() -> Broken {
    Broken::Closed("connection reset by peer".into())
}

impl Sink for Arc<SimulatedConnection> {
    fn write(&mut self, bytes: &[u8]) -> Result<usize, Broken> {
        let mut commands = Vec::new();
        let mut rest = bytes;
        let sent = with(|world| world.tick(self.client));
        while let Some((words, behind)) = command(rest) {
            commands.push(Command::read(&words, sent));
            rest = behind;
        }
        let is_written = with(|world| {
            if world.clients[self.client].is_dead {
                return false;
            }
            for command in &commands {
                world.note_command(command);
            }
            let is_written = world.write(self.id, commands.clone());
            world.note_sent(self.client, &commands, is_written);
            is_written
        });
        if is_written { Ok(bytes.len()) } else { Err(cut()) }
    }
}

impl Source for Arc<SimulatedConnection> {
    /// Waits until there are bytes, until the deadline, or until the connection breaks.
    fn read(&mut self, room: &mut [u8], until: Tick) -> Result<usize, Broken> {
        loop {
            let (read, is_broken, left) = with(|world| {
                let left = until.since(world.tick(self.client));
                let connection = &mut world.connections[self.id];
                (connection.unread.read(room).unwrap(), connection.is_broken, left)
            });
            if read > 0 {
                return Ok(read);
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
                return Ok(0);
            }
            wait(|world, waiter| {
                world.connections[self.id].waiter = Some(waiter);
                world.true_time(self.client, left)
            });
        }
    }
}

impl Drop for SimulatedConnection {
    /// A connection that is dropped together with a failed schedule finds no world.
    fn drop(&mut self) {
        try_with(|world| world.close(self.id));
    }
}
