//! A node that consists of a master and a replica. Writes of the master reach the replica late, and the replica can
//! take over without the last ones. The former master continues for a while, since it does not know of the failover.
//! Clients learn of a failover at different times. They use `failover_guard` and `min_replicas_ack`.

use std::sync::LazyLock;
use std::time::Duration;

use super::connection::Connection;
use super::kinds::DrawnKind;
use super::plan::{Fault, Plan, Time, US, chance, nanos};
use super::replication::{Items, Replication, Sequel, Write};
use super::server::Server;
use super::world::{Event, World};
use crate::node::memory::{MemoryReply, encoded};

/// The share of schedules that get a replica, among those that can have one, per mille.
const SHARE: u32 = 200;

/// True if every schedule that can have a replica gets one.
static ALWAYS: LazyLock<bool> = LazyLock::new(|| std::env::var("REDLOCK_SIM_REPLICA").is_ok());

impl Plan {
    /// Decides whether the node has a replica, and draws the failovers.
    pub(super) fn draw_replica(&mut self, level: u32) {
        // Programs in other languages do not wait for replicas.
        self.has_replica = self.nodes == 1 && self.foreign == 0 && level > 0 && (*ALWAYS || chance(SHARE));
        if !self.has_replica {
            return;
        }
        (self.settings.failover_guard, self.settings.min_replicas_ack) = (Some(true), 1);
        // A short lease leaves some time between the periods in which the guard refuses all locks.
        self.lease = self.pace;
        self.healed = nanos(self.pace) * fastrand::u64(10..=30);
        let healed = self.healed;
        let fault = || {
            let long = fastrand::u64(0..healed);
            if chance(200) {
                Fault::Forget { long: long / 20 }
            } else {
                Fault::FailOver { long, is_killed: chance(300) }
            }
        };
        self.faults.retain(|(_, fault)| !matches!(fault, Fault::Restart { .. }));
        self.faults.extend((0..fastrand::u32(1..=3)).map(|_| (fastrand::u64(0..healed), fault())));
        self.faults.sort_by_key(|(at, _)| *at);
    }

    /// The number of servers, including those that form one node together.
    pub(super) fn servers(&self) -> usize {
        self.nodes + usize::from(self.has_replica)
    }

    /// Draws a kind of lock. Schedules with a replica have no latches and no queues. These do not wait for replicas,
    /// and are not promised to survive a failover.
    pub(super) fn draw_kind(&self) -> DrawnKind {
        let is_meant =
            |kind: &DrawnKind| !matches!(kind, DrawnKind::Latch { .. } | DrawnKind::Queue) || !self.has_replica;
        std::iter::repeat_with(|| DrawnKind::draw(self.nodes)).find(is_meant).unwrap_or(DrawnKind::Mutex)
    }
}

// --- what clients see ------------------------------------------------------------------------------------------------

impl World {
    /// The number of failovers that this client knows of.
    pub(super) fn moves(&self, client: usize) -> Option<u64> {
        let heard = self.replication.heard[client] <= self.now;
        self.plan.has_replica.then(|| self.replication.moves - u64::from(!heard))
    }

    /// How long the current master has been the master.
    pub(super) fn master_for(&self) -> Option<Duration> {
        let age =
            self.replication.since.map_or(Duration::from_secs(3600), |since| Duration::from_nanos(self.now - since));
        self.plan.has_replica.then_some(age)
    }

    /// The server that a new connection to a node reaches. A client that has not learned of a failover may reach the
    /// former master.
    pub(super) fn server_of(&mut self, client: usize, node: usize) -> usize {
        if !self.plan.has_replica {
            return node;
        }
        let is_late = !self.replication.is_linked && self.replication.heard[client] > self.now && fastrand::bool();
        if is_late {
            return self.replication.replica();
        }
        self.replication.heard[client] = self.replication.heard[client].min(self.now);
        self.replication.master
    }

    /// Delays the news of a failover for a process that is paused.
    pub(super) fn hears_late(&mut self, client: usize, until: Time) {
        if self.plan.has_replica && self.replication.heard[client] > self.now {
            let late = until + self.hearing();
            self.replication.heard[client] = self.replication.heard[client].max(late);
        }
    }

    /// The time that a client takes to learn of a failover.
    fn hearing(&self) -> Time {
        if self.is_healed() { 0 } else { fastrand::u64(0..2 * nanos(self.plan.pace)) }
    }
}

// --- between the servers ---------------------------------------------------------------------------------------------

impl World {
    /// A copy of a server's data before a script runs, if the node has a replica.
    pub(super) fn before_write(&self, server: usize) -> Option<Items> {
        self.plan.has_replica.then(|| self.servers[server].store.items().clone())
    }

    /// Sends the writes of a script to the replica.
    pub(super) fn after_write(&mut self, connection: usize, server: usize, before: Option<Items>) {
        let Some(before) = before else { return };
        let store = &mut self.servers[server].store;
        if !std::mem::take(&mut store.has_written) && *store.items() == before {
            return;
        }
        let items = store.items().clone();
        let (there, back) = (self.one_way(), self.one_way());
        let now = self.now;
        let Replication { master, is_linked, written, stream, .. } = &mut self.replication;
        *written += 1;
        self.connections[connection].written = *written;
        if *is_linked && *master == server {
            let last = stream.back().map_or((0, 0), |last| (last.arrives, last.back));
            let arrives = (now + there).max(last.0 + US);
            let back = (arrives + back).max(last.1 + US);
            stream.push_back(Write { number: *written, arrives, back, items: Some(items) });
        }
    }

    /// Applies the writes that have arrived at the replica.
    fn replicate(&mut self) {
        let (now, replica) = (self.now, self.replication.replica());
        let Replication { stream, acknowledged, .. } = &mut self.replication;
        for write in stream.iter_mut().take_while(|write| write.arrives <= now) {
            if let Some(items) = write.items.take() {
                self.servers[replica].store.set_items(items);
            }
        }
        while let Some(number) = stream.front().filter(|write| write.back <= now).map(|write| write.number) {
            *acknowledged = number;
            stream.pop_front();
        }
    }

    /// `WAIT`: replies when the replica has the last write of the connection, or at the end of this time.
    pub(super) fn wait_for_replica(&mut self, connection: usize, long: Time) {
        let Connection { written: write, is_cut, .. } = self.connections[connection];
        if !is_cut {
            let latest = self.now + long;
            self.connections[connection].blocked_until = latest;
            // The reply follows the replies to the commands before it.
            self.plan_at(self.now + US, Event::Replication(Sequel::Answer { connection, write, latest }));
        }
    }

    fn try_answer(&mut self, connection: usize, write: u64, latest: Time) {
        self.replicate();
        let server = self.connections[connection].node;
        let Replication { master, is_linked, acknowledged, ref stream, .. } = self.replication;
        let follows = is_linked && master == server;
        let has = follows && acknowledged >= write;
        if has || self.now >= latest {
            self.connections[connection].blocked_until = self.now;
            self.send_back(connection, encoded(&MemoryReply::Int(i64::from(has))), Vec::new());
            return;
        }
        let back = stream.iter().find(|one| follows && one.number >= write).map_or(latest, |one| one.back);
        self.plan_at(back.min(latest), Event::Replication(Sequel::Answer { connection, write, latest }));
    }

    pub(super) fn handle_replication(&mut self, event: Sequel) {
        match event {
            Sequel::Answer { connection, write, latest } => {
                let Server { is_up, epoch, .. } = self.servers[self.connections[connection].node];
                if is_up && epoch == self.connections[connection].epoch {
                    self.try_answer(connection, write, latest);
                }
            }
            Sequel::Follow { restarted } => self.follow(restarted),
        }
    }
}

// --- what happens to them --------------------------------------------------------------------------------------------

impl World {
    /// Makes the replica the master, with the data that it has. The former master continues for this time, or is killed
    /// at once.
    pub(super) fn fail_over(&mut self, long: Time, is_killed: bool) {
        self.replicate();
        if !self.replication.is_linked || self.servers.iter().any(|server| !server.is_up) {
            return;
        }
        let (now, former) = (self.now, self.replication.master);
        let heard = (0..self.clients.len()).map(|client| now.max(self.clients[client].paused_until) + self.hearing());
        let heard = heard.collect();
        let Replication { moves, written, .. } = self.replication;
        self.replication = Replication {
            master: 1 - former,
            since: Some(now),
            moves: moves + 1,
            heard,
            written,
            ..Replication::default()
        };
        self.counts.failovers += 1;
        if is_killed {
            self.servers[former].is_up = false;
            self.cut_lines(former);
        }
        let until = (now + long).min(self.plan.healed.max(now));
        self.plan_at(until, Event::Replication(Sequel::Follow { restarted: is_killed.then_some(former) }));
        self.log(|_| format!("server {} becomes the master", 1 - former));
    }

    /// Restarts the master without its data, before any failover. The replica then copies the empty data.
    pub(super) fn forget(&mut self, long: Time) {
        let master = self.replication.master;
        if !self.replication.is_linked || self.servers.iter().any(|server| !server.is_up) {
            return;
        }
        self.counts.restarts += 1;
        self.replication.is_linked = false;
        self.replication.stream.clear();
        self.servers[master].is_up = false;
        self.servers[master].store.set_items(Items::new());
        self.cut_lines(master);
        let until = (self.now + long).min(self.plan.healed.max(self.now));
        self.plan_at(until, Event::Replication(Sequel::Follow { restarted: Some(master) }));
        self.log(|_| format!("server {master} forgets everything"));
    }

    fn follow(&mut self, restarted: Option<usize>) {
        self.replicate();
        if let Some(server) = restarted {
            self.come_up(server);
        }
        let (master, replica) = (self.replication.master, self.replication.replica());
        let items = self.servers[master].store.items().clone();
        self.servers[replica].store.set_items(items);
        if restarted != Some(replica) && restarted != Some(master) {
            // A master that becomes a replica closes its connections.
            self.servers[replica].epoch += 1;
            self.cut_lines(replica);
        }
        self.replication.is_linked = true;
        self.replication.acknowledged = self.replication.written;
        self.log(|_| format!("server {replica} follows server {master}"));
    }

    /// Gives the replica the clock of the master. A group of servers is promised to work only if its clocks agree.
    pub(super) fn with_replica(mut self) -> World {
        if let [master, replica] = &mut self.servers[..]
            && self.plan.has_replica
        {
            replica.set_clock_as(master);
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulation::run::schedule;

    #[test]
    fn some_schedules_have_a_replica_that_takes_over() {
        let has_replica = |seed: &u64| Plan::draw(*seed, Some(1)).has_replica;
        let many = (0..2000).filter(has_replica).count();
        assert!(many > 50, "{many} of 2000");
        let run: Vec<_> = (0..200).filter(has_replica).map(|seed| schedule(seed, Some(1), false)).collect();
        let failovers: u64 = run.iter().map(|outcome| outcome.counts.failovers).sum();
        let locks: u64 = run.iter().map(|outcome| outcome.counts.acquisitions).sum();
        assert!(failovers > 5 && locks > 20, "{failovers} failovers, {locks} locks");
    }
}
