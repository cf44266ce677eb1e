//! Servers that the library does not support: members of a Redis Cluster, Sentinels, and old versions.

use std::ops::Range;
use std::time::Duration;

use redis::cmd;
use redlock_sync::{ConfigKind, Redlock};
use redlock_tests::{Act, Proxy, Server, eventually};

use crate::faults::rig::{LONG, NODE_TIMEOUT, Rig, SOON, assert_misuse, refused_at_once, within};
use crate::kinds::{Kind, each_kind};

each_kind!(all:
    fault_20_a_member_of_a_cluster,
    fault_20_a_member_of_a_cluster_that_hides_info,
    fault_20_a_sentinel,
    fault_20_a_member_of_a_cluster_and_a_sentinel_among_the_nodes,
    fault_20_a_redis_that_is_too_old;
    mutexes:
    fault_20_a_server_that_only_looks_too_old
);

/// A cluster of one server, which owns these slots.
fn member(slots: Range<u32>) -> Server {
    let server = Server::builder().arg("--cluster-enabled").arg("yes").start();
    server.ask::<()>(cmd("CLUSTER").arg("ADDSLOTS").arg(slots.collect::<Vec<_>>()));
    server
}

/// The client refuses a cluster member even if that owns all slots and so could serve every key.
fn fault_20_a_member_of_a_cluster<K: Kind>() {
    let server = member(0..16384);
    let state = || server.ask::<String>(cmd("CLUSTER").arg("INFO"));
    eventually("the cluster is up", SOON, || state().contains("cluster_state:ok"));
    for database in ["", "1"] {
        let locks = redlock_tests::open(server.url() + database);
        let error = refused_at_once::<K>(&locks);
        assert_misuse(&error, ConfigKind::Server, &server.addr().to_string(), "belongs to a Redis Cluster");
        assert!(error.to_string().contains("give the client the cluster as `redis+cluster://"), "{error}");
        assert_misuse(
            &K::new(&locks, "a").inspect().unwrap_err(),
            ConfigKind::Server,
            &server.addr().to_string(),
            "Redis Cluster",
        );
    }
    assert_eq!(server.keys(), Vec::<String>::new());
}

/// If the user may not call INFO, the client notices a member only by a key in a slot of another server.
fn fault_20_a_member_of_a_cluster_that_hides_info<K: Kind>() {
    let server = member(0..8192);
    server.ask::<()>(cmd("CONFIG").arg("SET").arg("cluster-require-full-coverage").arg("no"));
    server.ask::<()>(cmd("ACL").arg(&["SETUSER", "shy", "on", ">pw", "~*", "+@all", "-info"]));
    let url = format!("redis://shy:pw@{}/", server.addr());
    let locks = redlock_tests::patient().node(url).unavailable_after(Duration::ZERO).build().unwrap();
    // Key `b` has slot 3300, and key `a` has slot 15495.
    eventually("a key of the server's own slots can be locked", SOON, || K::new(&locks, "b").lock().is_ok());
    let error = K::new(&locks, "a").lock().err().unwrap();
    assert!(error.is_unavailable() && error.to_string().contains("CLUSTERDOWN"), "{error}");
}

fn fault_20_a_sentinel<K: Kind>() {
    let sentinel = Server::builder().sentinel().start();
    for database in ["", "1"] {
        let locks = redlock_tests::open(sentinel.url() + database);
        let error = refused_at_once::<K>(&locks);
        assert_misuse(&error, ConfigKind::Server, &sentinel.addr().to_string(), "is a Redis Sentinel");
        assert!(error.to_string().contains("give the client the servers that it watches"), "{error}");
    }
}

/// The unsupported servers have no votes. The client still takes locks with the majority of the other nodes.
fn fault_20_a_member_of_a_cluster_and_a_sentinel_among_the_nodes<K: Kind>() {
    let rig = Rig::start(3);
    let others = [member(0..16384), Server::builder().sentinel().start()];
    let urls = rig.proxies.iter().map(Proxy::url).chain(others.iter().map(Server::url));
    let builder = Redlock::builder().nodes(urls).restart_guard(false).lease(LONG).node_timeout(NODE_TIMEOUT);
    let locks = builder.build().unwrap();
    let guard = within(NODE_TIMEOUT, "lock()", || K::new(&locks, "a").lock().unwrap());
    assert_eq!(rig.having("a", guard.id().as_str()), 3);
    guard.extend(LONG).unwrap();
    guard.fencing_token().unwrap();
    K::unlock(guard).unwrap();
    assert!(rig.is_free("a"));
}

/// The server's `INFO` reply with these version lines in place of its own.
fn info_with(server: &Server, versions: &[&str]) -> Act {
    let info: String = server.ask(&cmd("INFO"));
    let is_kept = |line: &&str| !["redis_version:", "valkey_version:"].iter().any(|name| line.starts_with(name));
    Act::Text(versions.iter().copied().chain(info.lines().filter(is_kept)).collect::<Vec<_>>().join("\r\n"))
}

fn fault_20_a_redis_that_is_too_old<K: Kind>() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    proxy.on_each("INFO", info_with(&server, &["redis_version:5.0.14", "gcc_version:8.3.0"]));
    let locks = redlock_tests::open(proxy.url());
    let error = refused_at_once::<K>(&locks);
    assert_misuse(&error, ConfigKind::Server, &proxy.addr().to_string(), "is Redis 5.0.14");
    assert!(error.to_string().contains("needs Redis 6.2 or later"), "{error}");
    assert!(!locks.health().unwrap().is_ready());
    assert!(!proxy.seen().iter().any(|seen| seen.args.iter().any(|arg| arg == "a")), "the client asked for a lock");
}

/// Some servers report an old Redis version, and their own version on another line.
fn fault_20_a_server_that_only_looks_too_old<K: Kind>() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    for versions in [
        &["redis_version:6.0.16", "gcc_version:9.4.0"][..],
        &["redis_version:4.0.0", "kvrocks_version:2.4.0"],
        &["redis_version:10.0.0"],
        &["redis_version:5.x"],
        &["redis_version:"],
        &["garnet_version:1.0.50"],
        &[],
    ] {
        proxy.on_each("INFO", info_with(&server, versions));
        let locks = redlock_tests::open(proxy.url());
        let guard = K::new(&locks, "a").lock().unwrap_or_else(|error| panic!("{versions:?}: {error}"));
        K::unlock(guard).unwrap();
    }
}
