//! Servers that reply with an error.

use std::thread;
use std::time::{Duration, Instant};

use redis::cmd;
use redlock_sync::{ConfigKind, Error, LostReason, Redlock};
use redlock_tests::{Act, Fault, Proxy, Server, eventually, poll};

use crate::faults::rig::{
    LEASE, LONG, NODE_TIMEOUT, Rig, SLACK, SOON, assert_misuse, assert_refused_for_now, for_each_n,
    lost_at_own_deadline, nodes_named, refused_at_once, within,
};
use crate::kinds::{Kind, each_kind};

each_kind!(all:
    fault_17_a_full_server,
    fault_18_a_master_becomes_a_replica,
    fault_18_failover_behind_an_address,
    fault_18_a_replica_among_the_nodes,
    fault_19_errors_that_pass,
    fault_19_errors_that_do_not_pass_in_time,
    fault_19_a_server_busy_with_a_script,
    fault_20_moved_and_ask,
    fault_21_no_password_and_a_wrong_one,
    fault_21_a_user_without_permission,
    fault_21_a_wrong_password_among_the_nodes,
    fault_22_no_replicas,
    fault_22_snapshots_fail,
    fault_22_no_process_is_locked_out_by_an_extended_lock_that_was_left,
);

fn fault_17_a_full_server<K: Kind>() {
    for_each_n(&[1, 3, 5], |n| {
        let rig = Rig::start(n);
        let locks = rig.open_warm::<K>();
        let guard = K::new(&locks, "held").lease(LEASE).lock().unwrap();
        rig.servers.iter().for_each(Server::fill);
        let error = K::new(&locks, "a").try_lock_for(NODE_TIMEOUT).err().unwrap();
        assert!(error.is_unavailable(), "{error}");
        let nodes = nodes_named(&error);
        assert!(nodes.len() == n && nodes.iter().all(|(_, said)| said.contains("OOM")), "{error}");
        assert!(rig.is_free("a"));
        // A lock that is held stays held, and all its operations work.
        let until = Instant::now() + guard.remaining();
        eventually("renewals go on", SOON, || {
            guard.check().unwrap();
            Instant::now() + guard.remaining() > until + LEASE / 4
        });
        guard.extend(LONG).unwrap();
        assert!(guard.remaining() > LONG / 2);
        assert!(guard.fencing_token().unwrap() > 0);
        assert!(K::new(&locks, "held").is_locked().unwrap());
        K::unlock(guard).unwrap();
        assert!(rig.is_free("held"));
        rig.servers.iter().for_each(Server::unfill);
        K::unlock(K::new(&locks, "a").try_lock_for(SOON).unwrap()).unwrap();
    });
}

fn fault_18_a_master_becomes_a_replica<K: Kind>() {
    let rig = Rig::start(1);
    let (server, other) = (&rig.servers[0], Server::start());
    let address = rig.proxies[0].addr().to_string();
    let locks = rig.open_warm::<K>();
    server.replica_of(&other);
    // The first call gets READONLY on its old connection. Later calls learn the role when they open connections.
    for said in ["READONLY", "is a replica of", "is a replica of"] {
        let error = within(NODE_TIMEOUT, "try_lock()", || K::new(&locks, "a").try_lock().err().unwrap());
        assert_refused_for_now(&error, said);
    }
    // A client that this server has never served reports a mistake.
    assert_misuse(&refused_at_once::<K>(&rig.open()), ConfigKind::Replica, &address, "is a replica of");
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let guard = K::new(&locks, "a").lock().unwrap();
            assert_eq!(server.holder("a").as_deref(), Some(guard.id().as_str()));
            K::unlock(guard).unwrap();
        });
        // Each connection asks twice.
        rig.proxies[0].wait_count("INFO", rig.proxies[0].count("INFO") + 4, SOON);
        server.promote();
        waiter.join().unwrap();
    });
}

/// After a failover, the old connections still lead to the former master, which is now a replica.
fn fault_18_failover_behind_an_address<K: Kind>() {
    let rig = Rig::start(1);
    let (old, new) = (&rig.servers[0], Server::start());
    new.replica_of(old);
    let locks = rig.open_warm::<K>();
    let guard = K::new(&locks, "held").lease(LONG).lock().unwrap();
    eventually("the replica has the key", SOON, || new.holder("held").is_some());
    new.promote();
    rig.proxies[0].target(&new);
    old.replica_of(&new);
    // The first attempt normally uses an old connection. A new connection leads to the new master.
    let taken = K::new(&locks, "a").lock().unwrap();
    assert_eq!(new.holder("a").as_deref(), Some(taken.id().as_str()));
    K::unlock(taken).unwrap();
    guard.extend(LONG).unwrap();
    K::unlock(guard).unwrap();
    assert_eq!((new.holder("a"), new.holder("held")), (None, None));
}

fn fault_18_a_replica_among_the_nodes<K: Kind>() {
    let rig = Rig::start(3);
    let other = Server::start();
    let locks = rig.open_warm::<K>();
    rig.servers[0].replica_of(&other);
    for _ in 0..2 {
        let guard = K::new(&locks, "a").lock().unwrap();
        assert_eq!(rig.having("a", guard.id().as_str()), 2);
        guard.extend(LONG).unwrap();
        guard.fencing_token().unwrap();
        K::unlock(guard).unwrap();
    }
    rig.servers[0].promote();
    let guard = K::new(&locks, "a").lock().unwrap();
    let token = guard.id().as_str();
    eventually("the promoted node has the token too", SOON, || rig.having("a", token) == 3);
    K::unlock(guard).unwrap();
}

const PASSING: [&str; 5] = [
    "LOADING Redis is loading the dataset in memory",
    "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
    "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
    "TRYAGAIN Multiple keys request during rehashing of slot",
    "CLUSTERDOWN The cluster is down",
];

/// Ends all faults after each has struck at least `hits` times.
fn release_after(faults: &[Fault], hits: usize) {
    for fault in faults {
        fault.wait_hits(hits, SOON);
    }
    faults.iter().for_each(Fault::release);
}

fn on_majority(rig: &Rig, name: &str, error: &str) -> Vec<Fault> {
    rig.proxies[..rig.need()].iter().map(|proxy| proxy.on_each(name, Act::Error(error.to_owned()))).collect()
}

fn fault_19_errors_that_pass<K: Kind>() {
    for_each_n(&[1, 3], |n| {
        let rig = Rig::start(n);
        let locks = rig.open_warm::<K>();
        for error in PASSING {
            let faults = on_majority(&rig, "*", error);
            thread::scope(|scope| {
                scope.spawn(|| release_after(&faults, 3));
                let guard = K::new(&locks, "a").lock().expect(error);
                // The release also waits until the errors pass.
                let faults = on_majority(&rig, "release", error);
                scope.spawn(move || release_after(&faults, 1));
                K::unlock(guard).expect(error);
            });
            assert!(rig.is_free("a"));
        }
    });
}

fn fault_19_errors_that_do_not_pass_in_time<K: Kind>() {
    let rig = Rig::start(1);
    let locks = rig.open_warm::<K>();
    for error in PASSING {
        let faults = on_majority(&rig, "*", error);
        // A busy machine may leave time for one attempt only. Then the next call waits for twice as long.
        let mut wait = Duration::from_millis(100);
        let said = loop {
            let (before, start) = (faults[0].hits(), Instant::now());
            let refuse = || K::new(&locks, "a").try_lock_for(wait).err().unwrap();
            let said = within(wait + NODE_TIMEOUT, "try_lock_for()", refuse);
            assert!(said.is_unavailable() && start.elapsed() >= wait, "{said}");
            if faults[0].hits() > before + 1 {
                break said;
            }
            wait *= 2;
            assert!(wait < SOON, "one attempt in {wait:?}");
        };
        assert!(nodes_named(&said)[0].1.contains(error.split(' ').next().unwrap()), "{said}");
        faults.iter().for_each(Fault::release);
    }
}

fn fault_19_a_server_busy_with_a_script<K: Kind>() {
    let rig = Rig::start(1);
    let server = &rig.servers[0];
    server.config("lua-time-limit", "5");
    let locks = rig.open_warm::<K>();
    let guard = K::new(&locks, "held").lease(LONG).lock().unwrap();
    let is_busy = || server.try_ask::<()>(&cmd("PING")).is_err_and(|error| error.code() == Some("BUSY"));
    thread::scope(|scope| {
        let script = scope.spawn(|| cmd("EVAL").arg("while true do end").arg(0).exec(&mut server.client()));
        eventually("the server is busy", SOON, is_busy);
        let error = guard.extend(LONG).unwrap_err();
        assert!(error.is_unavailable() && error.to_string().contains("BUSY"), "{error}");
        guard.check().unwrap();
        let waiter = scope.spawn(|| K::new(&locks, "a").try_lock_for(SOON).map(K::unlock));
        rig.proxies[0].wait_count("acquire", rig.proxies[0].count("acquire") + 2, SOON);
        server.ask::<()>(cmd("SCRIPT").arg("KILL"));
        script.join().unwrap().unwrap_err();
        waiter.join().unwrap().unwrap().unwrap();
    });
    K::unlock(guard).unwrap();
    assert!(rig.is_free("a") && rig.is_free("held"));
}

fn fault_20_moved_and_ask<K: Kind>() {
    for_each_n(&[1, 3], |n| {
        let rig = Rig::start(n);
        let locks = rig.open_warm::<K>();
        for error in ["MOVED 15495 127.0.0.1:7002", "ASK 15495 127.0.0.1:7002"] {
            let faults = on_majority(&rig, "acquire", error);
            let said = refused_at_once::<K>(&locks);
            assert_misuse(&said, ConfigKind::Server, &rig.proxies[0].addr().to_string(), error);
            assert!(said.to_string().contains("Redis Cluster"), "names the remedy: {said}");
            faults.iter().for_each(Fault::release);
            assert!(rig.is_free("a"));
        }
        K::unlock(K::new(&locks, "a").lock().unwrap()).unwrap();
    });
}

fn fault_21_no_password_and_a_wrong_one<K: Kind>() {
    let server = Server::builder().password("secret").start();
    let address = server.addr().to_string();
    for (auth, said) in [("", "NOAUTH"), (":wrong@", "WRONGPASS"), ("stranger:secret@", "WRONGPASS")] {
        let locks = redlock_tests::open(format!("redis://{auth}{address}/"));
        let error = refused_at_once::<K>(&locks);
        assert_misuse(&error, ConfigKind::Login, &address, said);
        assert!(!error.to_string().contains("secret") && !error.to_string().contains("wrong@"), "{error}");
        let error = within(NODE_TIMEOUT, "inspect()", || K::new(&locks, "a").inspect().unwrap_err());
        assert_misuse(&error, ConfigKind::Login, &address, said);
    }
    let locks = redlock_tests::open(server.url());
    K::unlock(K::new(&locks, "a").lock().unwrap()).unwrap();
}

fn fault_21_a_user_without_permission<K: Kind>() {
    let server = Server::start();
    let address = server.addr().to_string();
    let user = |rules: &str| {
        let mut set = cmd("ACL");
        set.arg("SETUSER").arg("ann").arg("reset").arg("on").arg(">pw");
        rules.split(' ').for_each(|rule| _ = set.arg(rule));
        server.ask::<()>(&set);
    };
    let url = format!("redis://ann:pw@{address}/");
    let locks = || Redlock::builder().node(&url).node_timeout(NODE_TIMEOUT).build().unwrap();
    // The users lack scripts, keys, SET, and most commands but INFO.
    for rules in ["~* +@all -evalsha -eval", "~other +@all", "~* +@all -set", "~* +info"] {
        user(rules);
        assert_misuse(&refused_at_once::<K>(&locks()), ConfigKind::Permission, &address, "permission|user");
        assert_eq!(server.holder("a"), None, "a key is left with `{rules}`");
    }
    // TIME is denied after the client has checked the permissions. An acquire that raises the fence counter notices
    // this after it has set the key.
    user("~* +@all");
    let fenced = locks();
    let guard = K::new(&fenced, "a").lock().unwrap();
    guard.fencing_token().unwrap();
    K::unlock(guard).unwrap();
    user("~* +@all -time");
    let error = K::new(&fenced, "a").fenced(true).try_lock().err().unwrap();
    assert_refused_for_now(&error, "permission|user");
    assert_eq!(server.holder("a"), None, "a key is left without TIME");
    // The permission is denied while the lock is held.
    user("~* +@all -info");
    let locks = locks();
    let guard = K::new(&locks, "a").lease(LONG).lock().unwrap();
    user("~* +@all -evalsha -eval");
    let error = within(NODE_TIMEOUT, "extend()", || guard.extend(LONG).unwrap_err());
    assert!(matches!(&error, Error::Config { .. }) || error.is_unavailable(), "{error}");
    guard.check().unwrap();
    let error = within(2 * NODE_TIMEOUT, "unlock()", || K::unlock(guard).unwrap_err());
    assert!(matches!(&error, Error::Unconfirmed { .. }), "{error}");
    assert!(error.to_string().contains("NOPERM"), "{error}");
}

/// The node with the wrong password has no vote. The client still takes locks with the majority of the other nodes.
fn fault_21_a_wrong_password_among_the_nodes<K: Kind>() {
    let servers: Vec<Server> = (0..3).map(|_| Server::builder().password("secret").start()).collect();
    let url = |i: usize, password: &str| format!("redis://:{password}@{}/", servers[i].addr());
    let open = |passwords: [&str; 3]| {
        let urls = passwords.iter().enumerate().map(|(i, password)| url(i, password));
        redlock_tests::patient().nodes(urls).restart_guard(false).build().unwrap()
    };
    let guard = K::new(&open(["secret", "wrong", "secret"]), "a").lock().unwrap();
    guard.fencing_token().unwrap();
    K::unlock(guard).unwrap();
    assert_misuse(
        &refused_at_once::<K>(&open(["secret", "wrong", "wrong"])),
        ConfigKind::Login,
        &servers[1].addr().to_string(),
        "WRONGPASS",
    );
    assert!(servers.iter().all(|server| server.holder("a").is_none()));
}

fn assert_named(error: &Error, said: &str) {
    assert!(
        !nodes_named(error).is_empty() && nodes_named(error).iter().all(|(_, text)| text.contains(said)),
        "{error}"
    );
}

/// The checks for servers that refuse all writes with this error.
fn refuses_writes<K: Kind>(rig: &Rig, code: &str, refuse: impl Fn(), allow: impl Fn()) {
    let locks = rig.open_warm::<K>();
    let held = K::new(&locks, "held").lock().unwrap();
    let given_up = K::new(&locks, "b").lease(LONG).lock().unwrap();
    refuse();
    let error = K::new(&locks, "a").try_lock_for(NODE_TIMEOUT / 2).err().unwrap();
    assert_named(&error, code);
    assert!(rig.is_free("a"));
    let error = within(2 * NODE_TIMEOUT, "unlock()", || K::unlock(given_up).unwrap_err());
    assert!(matches!(error, Error::Unconfirmed { confirmed: 0, .. }), "{error}");
    assert_named(&error, code);
    let error = held.extend(LONG).unwrap_err();
    assert_named(&error, code);
    let (_, reason) = lost_at_own_deadline::<K>(&held);
    assert_eq!(reason, LostReason::Unreachable);
    allow();
    assert!(K::unlock(held).unwrap_err().is_lost());
    // The client repeats the unconfirmed release, which now removes the key long before its lease ends.
    let other = K::new(&rig.open_direct(), "b");
    eventually("the release is repeated", SOON, || other.try_lock().is_ok_and(|guard| K::unlock(guard).is_ok()));
    K::unlock(K::new(&locks, "b").try_lock_for(SOON).unwrap()).unwrap();
    assert!(rig.is_free("b"));
}

fn fault_22_no_replicas<K: Kind>() {
    for_each_n(&[1, 3], |n| {
        let rig = Rig::start(n);
        let config = |value: &'static str| rig.servers.iter().for_each(|s| s.config("min-replicas-to-write", value));
        refuses_writes::<K>(&rig, "NOREPLICAS", || config("1"), || config("0"));
    });
}

fn fault_22_snapshots_fail<K: Kind>() {
    let rig = Rig::start(1);
    let server = &rig.servers[0];
    // The server cannot rename its snapshot to this name, because a directory has the name.
    std::fs::create_dir(server.dir().join("dump.rdb")).unwrap();
    let refuse = || {
        server.config("save", "3600 1000000");
        server.ask::<()>(&cmd("BGSAVE"));
        let failed = || server.info("rdb_last_bgsave_status").as_deref() == Some("err");
        eventually("a snapshot has failed", SOON + SLACK, failed);
    };
    refuses_writes::<K>(&rig, "MISCONF", refuse, || server.config("save", ""));
}

/// An unconfirmed release can leave a token under the key. The token lasts as long as `extend` asked for, which can
/// exceed the lease. The client that left the token must still be able to take the lock.
fn fault_22_no_process_is_locked_out_by_an_extended_lock_that_was_left<K: Kind>() {
    for_each_n(&[1, 3], |n| {
        let rig = Rig::start(n);
        let locks = rig.open_warm::<K>();
        let lease = LEASE;
        let lock = K::new(&locks, "b").lease(lease);
        let guard = lock.lock().unwrap();
        guard.extend(LONG).unwrap();
        rig.proxies.iter().for_each(Proxy::refuse);
        assert!(matches!(K::unlock(guard).unwrap_err(), Error::Unconfirmed { .. }));
        rig.proxies.iter().for_each(Proxy::heal);
        // This sleep lasts until the end of the original lease.
        thread::sleep(lease);
        let free = poll(SOON, || lock.try_lock().ok());
        assert!(free.is_some(), "a majority still has the lock that was left");
    });
}
