//! A node that is a Sentinel group (`--sentinel`): a master, its replicas, and their faults. Clients connect without a
//! proxy, because the sentinels return the addresses of the servers.

use std::thread;
use std::time::{Duration, Instant};

use redis::cmd;
use redlock_sync::Builder;
use redlock_tests::{Group, Server};

use crate::plan::Kind;

const REPLICAS: u32 = 2;
const SENTINELS: usize = 3;
/// A time limit that is longer than any failover. The sentinels turn a former master into a replica after about ten
/// seconds.
const LONG: Duration = Duration::from_secs(120);
/// The pause between two checks of the group.
const LOOK: Duration = Duration::from_millis(100);
/// The longest time for which replicas are separated from their master. It is too short for the sentinels to count them
/// as down.
const APART: Duration = Duration::from_millis(300);

pub(crate) fn start() -> Group {
    Group::start(REPLICAS as usize, SENTINELS)
}

/// Adds the settings that the library needs for a Sentinel group to lose no lock. Other nodes need none.
pub(crate) fn guarded(settings: Builder, url: &str) -> Builder {
    if url.contains("+sentinel://") { settings.failover_guard(true).min_replicas_ack(REPLICAS) } else { settings }
}

/// Executes the fault and waits until the group is whole again.
pub(crate) fn strike(group: &Group, kind: Kind, length: Duration, nth: usize) {
    let master = group.master();
    let sentinel = &group.sentinels[nth % group.sentinels.len()];
    match kind {
        Kind::KillMaster => kill(group, master, length),
        Kind::Apart => {
            let old = group.apart(|master| {
                thread::sleep(length.min(APART));
                master.kill();
                master
            });
            kill(group, old, length);
        }
        // The master restarts before the sentinels notice it, so the replicas lose their data too.
        Kind::Forget => master.restart(),
        Kind::Depose => {
            master.stop();
            group.moved_from(master);
            thread::sleep(length);
            master.cont();
        }
        Kind::FailOver => _ = group.fail_over(),
        Kind::KillReplica => {
            let replicas = group.replicas();
            let replica = replicas[nth % replicas.len()];
            replica.kill();
            thread::sleep(length);
            replica.restart();
            replica.replica_of(master);
        }
        Kind::StopSentinel => during(length, || sentinel.stop(), || sentinel.cont()),
        Kind::KillSentinel => during(length, || sentinel.kill(), || sentinel.restart()),
        Kind::Stop => during(length, || master.stop(), || master.cont()),
        Kind::Reset => _ = master.try_ask::<usize>(cmd("CLIENT").arg("KILL").arg("TYPE").arg("normal")),
        Kind::Scripts => master.ask(cmd("SCRIPT").arg("FLUSH")),
        other => panic!("{} does not strike a group", other.word()),
    }
    wait_until_whole(group);
}

fn during(length: Duration, begin: impl FnOnce(), end: impl FnOnce()) {
    begin();
    thread::sleep(length);
    end();
}

/// Kills the master, unless it is already dead. The server restarts empty, as a replica of the new master.
fn kill(group: &Group, master: &Server, length: Duration) {
    master.kill();
    let new = group.moved_from(master);
    thread::sleep(length);
    master.restart();
    master.replica_of(new);
}

fn wait_until_whole(group: &Group) {
    let by = Instant::now() + LONG;
    while !group.is_whole() {
        assert!(Instant::now() < by, "the group is not whole after {LONG:?}");
        thread::sleep(LOOK);
    }
}
