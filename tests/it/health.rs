//! `health()` and `is_ready()` describe what is wrong with the servers.

use std::time::Duration;

use redis::cmd;
use redlock_sync::testing::Memory;
use redlock_sync::{Builder, Error, Health, Redlock};
use redlock_tests::{Server, Stopwatch, eventually, servers};

/// A time that suffices for every step here, even on a busy machine.
const SOON: Duration = Duration::from_secs(30);

fn settings() -> Builder {
    Redlock::builder().restart_guard(false).node_timeout(Duration::from_secs(2))
}

fn one(server: &Server) -> Redlock {
    settings().node(server.url()).build().unwrap()
}

fn health(server: &Server) -> Health {
    one(server).health().unwrap()
}

/// Whether the client is ready, and its only warning.
fn warning(server: &Server) -> (bool, String) {
    let health = health(server);
    let [warning] = health.warnings() else { panic!("{health}") };
    assert!(warning.starts_with(&server.addr().to_string()), "{warning}");
    (health.is_ready(), warning.clone())
}

#[test]
fn a_sound_server_is_ready_and_nothing_is_left_on_it() {
    let server = Server::builder().persistent().start();
    let locks = one(&server);
    let health = locks.health().unwrap();
    assert!(health.is_ready() && locks.is_ready() && health.warnings().is_empty(), "{health}");
    let node = &health.nodes()[0];
    assert_eq!(node.version, server.info("valkey_version").or_else(|| server.info("redis_version")));
    assert_eq!((node.append_only, node.replicas, node.evicted_keys), (Some(true), Some(0), Some(0)));
    assert!(node.used_memory > Some(0) && node.uptime.is_some());
    assert!(node.clock.unwrap().elapsed().unwrap() < SOON);
    assert!(health.to_string().starts_with("ready: 1 of 1 servers"), "{health}");
    assert_eq!(server.keys(), Vec::<String>::new());

    locks.shutdown(Duration::ZERO).unwrap();
    assert_eq!(locks.health().unwrap_err(), Error::Closed);
    assert!(!locks.is_ready());
}

#[test]
fn what_is_wrong_with_a_server_is_said() {
    let server = Server::start();
    assert!(warning(&server).1.contains("set appendonly yes"));
    server.config("appendonly", "yes");
    eventually("the file is written", SOON, || server.info("aof_rewrite_in_progress").as_deref() == Some("0"));

    server.config("maxmemory", "500mb");
    server.config("maxmemory-policy", "allkeys-lru");
    let (is_ready, said) = warning(&server);
    assert!(is_ready && said.contains("maxmemory-policy is allkeys-lru") && said.contains("noeviction"), "{said}");

    server.fill();
    let (is_ready, said) = warning(&server);
    assert!(!is_ready && said.contains("memory is full"), "{said}");
    server.unfill();
    assert!(one(&server).is_ready());

    let master = Server::start();
    server.replica_of(&master);
    let (is_ready, said) = warning(&server);
    assert!(!is_ready && said.contains("replica"), "{said}");
    let said = health(&master).to_string();
    assert!(said.contains("has 1 replicas and waits for none") && said.contains("min-replicas-to-write"), "{said}");

    let acks = |replicas| settings().node(master.url()).min_replicas_ack(replicas).build().unwrap().health().unwrap();
    let said = acks(1).to_string();
    assert!(acks(1).is_ready() && !said.contains("replicas"), "{said}");
    let said = acks(2).to_string();
    assert!(!acks(2).is_ready() && said.contains("1 replicas are connected to it, but 2 must confirm"), "{said}");
}

#[test]
fn missing_permissions_are_named() {
    let server = Server::builder().persistent().start();
    let user = |rules: &str| {
        let rules = rules.split(' ').collect::<Vec<_>>();
        server.ask::<()>(cmd("ACL").arg("SETUSER").arg("probe").arg("reset").arg("on").arg(">secret").arg(rules));
        let url = format!("redis://probe:secret@{}/", server.addr());
        settings().node(url).build().unwrap().health().unwrap()
    };
    let all = user("~* &* +@all");
    assert!(all.is_ready() && all.warnings().is_empty(), "{all}");

    let few = user("~* &* +@all -zadd -zcard");
    assert!(!few.is_ready(), "{few}");
    assert!(few.warnings()[0].contains("ZADD") && few.warnings()[0].contains("ZCARD"), "{few}");

    let hidden = user("~* &* +@all -info");
    assert!(hidden.is_ready() && hidden.warnings()[0].contains("give the user +info"), "{hidden}");

    let other = user("~order:* ~{order:*}:* &* +@all");
    assert!(other.is_ready() && other.warnings()[0].contains("~PREFIXredlock-sync:health"), "{other}");

    if !server.info("redis_version").is_some_and(|version| version.starts_with("6.")) {
        _ = user("~* &* +@all -wait");
        let url = format!("redis://probe:secret@{}/", server.addr());
        let said = settings().node(url).min_replicas_ack(1).build().unwrap().health().unwrap().to_string();
        assert!(said.contains("give the user +wait"), "{said}");
        let deaf = user("~* resetchannels +@all");
        assert!(deaf.is_ready() && deaf.warnings()[0].contains("&redlock-sync:*"), "{deaf}");
    }
    let wrong = settings().node(format!("redis://probe:wrong@{}/", server.addr())).build().unwrap();
    assert!(!wrong.is_ready() && wrong.health().unwrap().warnings()[0].contains("WRONGPASS"));
}

#[test]
fn a_majority_is_enough() {
    let servers = servers(3);
    let locks = settings().nodes(servers.iter().map(Server::url)).build().unwrap();
    let health = locks.health().unwrap();
    assert!(health.is_ready() && health.warnings().is_empty(), "{health}");
    servers[1].kill();
    let health = locks.health().unwrap();
    assert!(health.is_ready() && health.nodes()[1].problem.is_some(), "{health}");
    assert!(health.warnings()[0].contains("cannot be used"), "{health}");
    // For a server that hangs, the client waits at most one node timeout in each of the two rounds.
    servers[2].stop();
    let began = Stopwatch::start();
    assert!(!locks.is_ready());
    assert!(began.elapsed() < SOON / 2, "is_ready took {:?}", began.elapsed());
    servers[2].cont();
    eventually("two servers answer", SOON, || locks.is_ready());

    // A restart is reported as long as it matters for votes.
    let guarded = settings().nodes(servers.iter().map(Server::url)).restart_guard(true).lease(SOON * 20);
    let guarded = guarded.build().unwrap();
    _ = guarded.mutex("order:42").try_lock();
    let said = guarded.health().unwrap().to_string();
    assert!(said.contains("restarted") && said.contains("casts no vote"), "{said}");
}

/// Locks on servers that are not independent are refused, whatever the servers reply.
#[test]
fn servers_that_are_not_independent_are_not_ready() {
    let (server, other) = (Server::start(), Server::start());
    let twice = [server.url(), server.url().replace("127.0.0.1", "localhost"), other.url()];
    let locks = settings().nodes(twice).build().unwrap();
    let health = locks.health().unwrap();
    assert!(!health.is_ready() && !locks.is_ready(), "{health}");
    assert!(health.warnings().iter().any(|warning| warning.contains("is the same server as node 2")), "{health}");
    assert!(matches!(locks.mutex("order:42").try_lock(), Err(Error::Config { .. })));
}

#[test]
fn nodes_in_memory_have_a_health_too() {
    let memory = Memory::new(3);
    let locks = memory.client();
    let health = locks.health().unwrap();
    assert!(health.is_ready() && health.warnings().is_empty(), "{health}");
    memory.take_away(1);
    memory.take_away(3);
    assert!(!locks.is_ready());
    memory.bring_back(1);
    assert!(locks.is_ready());
}
