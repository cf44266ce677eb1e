//! The faults of a server and of its proxy.

use std::thread;
use std::time::Duration;

use redis::{Cmd, cmd};
use redlock_tests::{Act, Proxy, Server};

use super::Field;
use crate::plan::{Fault, Kind};

/// Errors of a server that are temporary.
const PASSING: [&str; 4] = [
    "LOADING Redis is loading the dataset in memory",
    "BUSY Redis is busy running a script",
    "TRYAGAIN Multiple keys request during rehashing of slot",
    "MASTERDOWN Link with MASTER is down",
];

pub(super) fn strike(field: &Field<'_>, node: usize, fault: &Fault, length: Duration) -> usize {
    let (server, proxy) = (&field.servers[node], &field.proxies[node]);
    match fault.kind {
        Kind::Kill => {
            server.kill();
            thread::sleep(length);
            server.restart_with_data();
        }
        Kind::Empty => {
            server.kill();
            thread::sleep(length);
            server.restart();
        }
        Kind::Stop => {
            server.stop();
            thread::sleep(length);
            server.cont();
        }
        Kind::Amnesia => forget(field, node, fault, length),
        Kind::Reset => proxy.drop_connections(),
        Kind::Partition => {
            field.proxies.iter().for_each(Proxy::refuse);
            thread::sleep(length);
            field.proxies.iter().for_each(Proxy::heal);
        }
        Kind::Refuse => {
            proxy.refuse();
            thread::sleep(length);
            proxy.heal();
        }
        Kind::Hole => {
            proxy.black_hole();
            thread::sleep(length);
            proxy.heal();
        }
        Kind::Latency => {
            proxy.latency(field.distance + Duration::from_millis(fault.amount));
            thread::sleep(length);
            proxy.heal();
        }
        Kind::Scripts => ask(server, cmd("SCRIPT").arg("FLUSH")),
        Kind::Full => {
            server.fill();
            thread::sleep(length);
            server.unfill();
        }
        Kind::Password => {
            server.config("requirepass", "changed");
            proxy.drop_connections();
            thread::sleep(length);
            server.config("requirepass", "");
        }
        Kind::Role => {
            ask(server, cmd("REPLICAOF").arg("127.0.0.1").arg(field.other.port()));
            thread::sleep(length);
            server.promote();
        }
        Kind::Flush => {
            if !field.beyond {
                proxy.refuse();
            }
            ask(server, &cmd("FLUSHALL"));
            thread::sleep(length);
            proxy.heal();
        }
        _ => return strike_commands(field, node, fault, length),
    }
    1
}

/// Loses the data of a node at the worst time. First, a minority of the nodes is unreachable until all locks are on a
/// bare majority, which includes this node. Then this node restarts empty while the minority becomes reachable.
/// Together they are a majority that knows no lock.
fn forget(field: &Field<'_>, node: usize, fault: &Fault, length: Duration) {
    let away = fault.away(field.servers.len()).into_iter().map(|node| &field.proxies[node]);
    away.clone().for_each(Proxy::refuse);
    thread::sleep(length);
    field.servers[node].kill();
    away.for_each(Proxy::heal);
    field.servers[node].restart();
}

fn ask(server: &Server, command: &Cmd) {
    server.ask::<()>(command);
}

fn strike_commands(field: &Field<'_>, node: usize, fault: &Fault, length: Duration) -> usize {
    let proxy = &field.proxies[node];
    let number = usize::try_from(fault.amount).expect("a small number");
    let amount = Duration::from_millis(fault.amount);
    let act = match fault.kind {
        Kind::Hold => Act::Hold,
        Kind::HoldReply | Kind::Stall => Act::HoldReply,
        Kind::ResetBefore => Act::ResetBefore,
        Kind::ResetAfter => Act::ResetAfter,
        Kind::Cut => Act::CutReply(number),
        Kind::Silence => Act::BlackHole,
        Kind::Delay => Act::Delay(amount),
        Kind::Error => Act::Error(PASSING[number % PASSING.len()].to_owned()),
        other => panic!("{} strikes no commands", other.word()),
    };
    let rule = if fault.each { proxy.on_each(fault.command, act) } else { proxy.on(fault.command, act) };
    thread::sleep(length);
    rule.release();
    let hits = rule.hits();
    // This also removes a rule that has not acted.
    proxy.heal();
    hits
}
