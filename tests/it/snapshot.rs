//! The content of a snapshot: on a server, in memory, on several servers and on a cluster.

use std::thread;
use std::time::Duration;

use redlock_sync::{Error, LockKind, Redlock, Snapshot, SnapshotOptions, Task};
use redlock_tests::{Cluster, Group, Server, eventually, servers};

use crate::place::{Database, InMemory, Place};

const SOON: Duration = Duration::from_secs(30);

fn builder() -> redlock_sync::Builder {
    Redlock::builder().node_timeout(Duration::from_secs(5))
}

fn seen(locks: &Redlock) -> Snapshot {
    locks.snapshot(&SnapshotOptions::default()).unwrap()
}

fn fill(server: &Server, script: &str) {
    server.ask::<()>(redis::cmd("EVAL").arg(script).arg(0));
}

/// Makes five thousand locks.
const ORDERS: &str = "for i = 1, 5000 do redis.call('SET', 'order:' .. i, string.format('%032x', i) .. ':shop') end";

/// The rows of a snapshot: each has the name of a lock, its kind, the holder name, and the number of waits.
fn rows(seen: &Snapshot) -> Vec<(&str, LockKind, &str, u64)> {
    seen.locks.iter().map(|held| (&*held.name, held.kind, held.holder.id.holder_name(), held.waiting)).collect()
}

fn holders_and_waits_of_every_kind<P: Place>() {
    let place = [P::one()];
    let [mine, other] = [0, 1].map(|_| P::client(&place, builder().key_prefix("a*b:")));
    let _hidden = P::client(&place, builder()).mutex("aXb:order:1").lock().unwrap();
    let order = mine.mutex("order:42").holder_name("billing").lock().unwrap();
    let readers = [mine.rw_lock("prices").holder_name("one").read(), other.rw_lock("prices").holder_name("two").read()];
    let permit = mine.semaphore("{geo}coder", 1).holder_name("map").acquire().unwrap();
    mine.count_down_latch("import", 2).count_down().unwrap();
    _ = mine.once("report").run(|_| Ok::<(), Error>(())).unwrap();
    thread::scope(|scope| {
        scope.spawn(|| other.mutex("order:42").lock().unwrap().unlock());
        scope.spawn(|| other.rw_lock("prices").write().unwrap().unlock());
        scope.spawn(|| other.semaphore("{geo}coder", 1).acquire().unwrap().release());
        scope.spawn(|| other.count_down_latch("import", 2).wait());
        let waiting = || {
            let seen = seen(&mine);
            seen.locks
                .iter()
                .map(|held| held.waiting)
                .chain(seen.latches.iter().map(|latch| latch.waiting))
                .collect::<Vec<_>>()
        };
        place[0].until("all wait", || waiting() == [1; 5]);
        let seen = seen(&mine);
        let expected = [
            ("order:42", LockKind::Mutex, "billing", 1),
            ("prices", LockKind::Read, "one", 1),
            ("prices", LockKind::Read, "two", 1),
            ("{geo}coder", LockKind::Semaphore, "map", 1),
        ];
        let mut found = rows(&seen);
        found.sort_unstable();
        assert_eq!(found, expected);
        let latch = &seen.latches[..];
        assert!(matches!(latch, [one] if one.name == "import" && one.arrived == 1 && !one.is_open), "{latch:?}");
        assert!(seen.locks.iter().all(|held| (held.nodes, held.of) == (1, 1) && held.holder.remaining.is_some()));
        order.unlock().unwrap();
        for reader in readers {
            _ = reader.unwrap().unlock().unwrap();
        }
        permit.release().unwrap();
        mine.count_down_latch("import", 2).count_down().unwrap();
    });
}

fn queues_in_numbers<P: Place>() {
    let place = [P::one()];
    let locks = P::client(&place, builder().key_prefix("P:"));
    let (mails, files) = (locks.queue("emails"), locks.queue("{7}:files"));
    for id in ["a", "b", "c"] {
        mails.push(Task::new("welcome").id(id)).unwrap();
    }
    mails.push(Task::new("remind").after(Duration::from_secs(3600))).unwrap();
    files.push("x").unwrap();
    files.claim().unwrap().fail("no such file").unwrap();
    let _job = mails.claim().unwrap();
    P::client(&place, builder()).queue("hidden").push("x").unwrap();
    place[0].until("a task grows old", || !seen(&locks).queues[0].oldest.is_zero());
    for options in [SnapshotOptions::default(), SnapshotOptions::default().only_queues()] {
        let seen = locks.snapshot(&options).unwrap();
        let [mails, files] = &seen.queues[..] else { panic!("{seen:?}") };
        assert_eq!((&*mails.name, mails.tasks, mails.due, mails.claimed, mails.dead), ("emails", 4, 2, 1, 0));
        assert_eq!((&*files.name, files.tasks, files.due, files.claimed, files.dead), ("{7}:files", 0, 0, 0, 1));
        assert!(mails.problem.is_none() && files.oldest.is_zero());
    }
    let of = |pattern: &str| {
        let seen = locks.snapshot(&SnapshotOptions::default().pattern(pattern)).unwrap();
        seen.queues.into_iter().map(|queue| queue.name).collect::<Vec<_>>()
    };
    assert_eq!((of("e*"), of("{7}*"), of("[e]*")), (vec!["emails".into()], vec!["{7}:files".into()], vec![]));
}

fn a_holder_is_followed_and_the_rest_left_out<P: Place>() {
    let place = [P::one()];
    let locks = P::client(&place, builder().node_timeout(P::LEASE / 3).lease(P::LEASE));
    let guards = ["a", "b", "c"].map(|name| locks.mutex(name).lock().unwrap());
    let first = seen(&locks);
    place[0].pass(P::LEASE / 2);
    locks.mutex("a").force_unlock(&locks.mutex("a").inspect().unwrap().remove(0)).unwrap();
    let _again = locks.mutex("a").lock().unwrap();
    let next = locks.snapshot(&SnapshotOptions::default().limit(2)).unwrap().following(&first);
    let [a, b] = &next.locks[..] else { panic!("{next:?}") };
    assert!(a.seen_for.is_zero() && b.seen_for >= P::LEASE / 2, "{next:?}");
    assert!(b.lease >= first.locks[1].lease && b.lease >= b.holder.remaining, "{next:?}");
    assert_eq!(next.left_out, 1);
    drop(guards);
}

macro_rules! on_each_place {
    ($($test:ident),+) => {$(
        mod $test {
            #[test]
            fn on_servers() {
                super::$test::<super::Database>();
            }
            #[test]
            fn in_memory() {
                super::$test::<super::InMemory>();
            }
        }
    )+};
}

on_each_place!(holders_and_waits_of_every_kind, queues_in_numbers, a_holder_is_followed_and_the_rest_left_out);

#[test]
fn servers_that_differ_are_marked() {
    let all = servers(3);
    let locks = <Server as Place>::client(&all, Redlock::builder().node_timeout(Duration::from_secs(2)));
    let _guard = locks.mutex("job").lock().unwrap();
    all[2].del("job");
    all[1].set("odd", &format!("{:032x}:left", 7));
    locks.count_down_latch("import", 2).count_down().unwrap();
    let now = seen(&locks);
    let nodes: Vec<_> = now.locks.iter().map(|held| (&*held.name, held.nodes, held.of)).collect();
    assert_eq!(nodes, [("job", 2, 3), ("odd", 1, 3)]);
    assert!(now.latches[0].arrived == 1 && now.queues.is_empty() && now.round_trips.iter().all(Option::is_some));
    all[0].kill();
    let now = seen(&locks);
    assert!(now.health.nodes()[0].problem.is_some() && now.round_trips[0].is_none(), "{now:?}");
    all[1].kill();
    let error = locks.snapshot(&SnapshotOptions::default()).unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
}

#[test]
fn all_masters_of_a_cluster_are_looked_at() {
    let cluster = Cluster::without_replicas();
    let open = || builder().node(cluster.url()).build().unwrap();
    let mine = open();
    let names = ["bar", "c", "foo"];
    let guards = names.map(|name| mine.mutex(name).lock().unwrap());
    let permits = mine.semaphore("many", 200);
    let held: Vec<_> = (0..150).map(|_| permits.acquire().unwrap()).collect();
    for name in names {
        mine.queue(name).push("x").unwrap();
        mine.count_down_latch(format!("{name}:latch"), 2).count_down().unwrap();
    }
    // The new client has made no call before.
    let seen = seen(&open());
    let locks: Vec<&str> =
        seen.locks.iter().filter(|held| held.kind == LockKind::Mutex).map(|held| &*held.name).collect();
    assert_eq!(locks, names);
    assert_eq!(seen.locks.len(), 3 + 150);
    assert_eq!(seen.queues.iter().map(|queue| (&*queue.name, queue.tasks)).collect::<Vec<_>>(), names.map(|n| (n, 1)));
    assert_eq!(seen.latches.len(), 3);
    assert_eq!(open().snapshot(&SnapshotOptions::default().pattern("fo*")).unwrap().locks.len(), 1);
    drop((guards, held));
}

#[test]
fn the_master_of_a_group_is_looked_at() {
    let group = Group::start(1, 1);
    let locks = builder().node(group.url()).build().unwrap();
    let _guard = locks.mutex("order:42").lock().unwrap();
    assert_eq!(seen(&locks).locks.len(), 1);
}

/// The test measures the server's processor time, on which a busy machine has no influence. It includes the server's
/// other work.
#[test]
fn a_viewer_costs_a_server_little() {
    let server = Server::start();
    fill(&server, ORDERS);
    let locks = redlock_tests::open(server.url());
    seen(&locks);
    let busy = || {
        let said: String = server.ask(redis::cmd("INFO").arg("cpu"));
        let of = |name: &str| said.lines().find_map(|line| line.strip_prefix(name)?.parse::<f64>().ok()).unwrap();
        Duration::from_secs_f64(of("used_cpu_user:") + of("used_cpu_sys:"))
    };
    let before = busy();
    let now = locks.snapshot(&SnapshotOptions::default().server_share(0.05)).unwrap();
    let cost = busy().saturating_sub(before);
    assert_eq!(now.locks.len(), 5000);
    assert!(cost < now.took.mul_f64(0.1), "{cost:?} of {:?}", now.took);
}

#[test]
fn a_closed_client_ends_a_pass() {
    let server = Server::start();
    fill(&server, ORDERS);
    let locks = redlock_tests::open(server.url());
    thread::scope(|scope| {
        let pass = scope.spawn(|| locks.snapshot(&SnapshotOptions::default().server_share(0.001)));
        let said = || -> String { server.ask(redis::cmd("INFO").arg("commandstats")) };
        let reads = |said: String| said.lines().any(|line| line.starts_with("cmdstat_getrange:"));
        eventually("the pass has begun", SOON, || reads(said()));
        locks.shutdown(Duration::ZERO).unwrap();
        assert!(pass.join().unwrap().is_err());
    });
}

/// With this share, the scan of one server takes longer than the test waits.
#[test]
fn all_servers_are_read_at_the_same_time() {
    let all = servers(3);
    for server in &all {
        fill(server, ORDERS);
    }
    let locks = <Server as Place>::client(&all, Redlock::builder().node_timeout(Duration::from_secs(2)));
    thread::scope(|scope| {
        let pass = scope.spawn(|| locks.snapshot(&SnapshotOptions::default().server_share(0.001)));
        let is_read = |server: &Server| {
            let said: String = server.ask(redis::cmd("INFO").arg("commandstats"));
            said.lines().any(|line| line.starts_with("cmdstat_getrange:"))
        };
        eventually("all servers are read", Duration::from_secs(10), || all.iter().all(is_read));
        locks.shutdown(Duration::ZERO).unwrap();
        assert!(pass.join().unwrap().is_err());
    });
}

/// The page of the command lists each field.
#[test]
fn a_snapshot_is_json() {
    let server = Server::start();
    let locks = redlock_tests::open(server.url());
    let guard = locks.mutex("order:42").holder_name("bil\u{1b}ling").lock().unwrap();
    locks.queue("emails").push(vec![0xff, b'a']).unwrap();
    locks.count_down_latch("import", 1).count_down().unwrap();
    for (name, wait) in [("passed", "web-3:1234:00ff/7"), ("passed:old", "00ff/7")] {
        let token = format!("{:032x}:granted:redlock-sync:{wait}", 7);
        server.ask::<()>(redis::cmd("SET").arg(name).arg(token).arg("PX").arg(60_000));
    }
    let tree = serde_json::to_value(seen(&locks)).unwrap();
    let passed = |at: usize| (tree["locks"][at]["state"].as_str(), tree["locks"][at]["holder_name"].as_str());
    assert_eq!(passed(1), (Some("granted"), Some("web-3:1234")));
    assert_eq!(passed(2), (Some("granted"), Some("granted:redlock-sync:00ff/7")));
    let lock = &tree["locks"][0];
    assert_eq!(
        (lock["kind"].as_str(), lock["state"].as_str(), lock["mode"].as_str()),
        (Some("mutex"), Some("held"), Some("exclusive"))
    );
    assert_eq!(
        (lock["holder"].as_str(), lock["holder_name"].as_str()),
        (Some(&guard.id().as_str()[..8]), Some("bil\u{1b}ling"))
    );
    assert!((1..=30_000).contains(&lock["remaining_ms"].as_u64().unwrap()), "{lock}");
    assert!(!tree.to_string().contains(guard.id().as_str()), "the snapshot shows a whole token");
    let task = serde_json::to_value(&locks.queue("emails").peek(1).unwrap()[0]).unwrap();
    assert_eq!((task["body"].as_str(), task["is_text"].as_bool()), (Some("\u{fffd}a"), Some(false)));
    let page = include_str!("../../redlock-cli/README.md");
    for shown in
        [lock, &tree["latches"][0], &tree["queues"][0], &tree["health"], &tree["health"]["nodes"][0], &task, &tree]
    {
        for field in shown.as_object().unwrap().keys() {
            assert!(page.contains(&format!("`{field}`")), "the page does not have {field}");
        }
    }
    assert_eq!(serde_json::to_value(redlock_sync::LostReason::MaxHold).unwrap(), "max_hold");
}

/// If the script copied values, they would stay in Lua's memory for a while.
#[test]
fn large_values_and_sets_are_not_copied() {
    let server = Server::start();
    fill(&server, "for i = 1, 40 do redis.call('SET', 'page:' .. i, string.rep('x', 1024 * 1024)) end");
    fill(&server, "for i = 1, 4000 do redis.call('ZADD', 'scores:' .. i % 4, i, string.rep('x', 8192) .. i) end");
    let locks = redlock_tests::open(server.url());
    let _guard = locks.mutex("order:42").lock().unwrap();
    let of_lua = || server.info("used_memory_lua").unwrap().parse::<u64>().unwrap();
    let before = of_lua();
    for _ in 0..10 {
        assert_eq!(seen(&locks).locks.len(), 1);
        let copied = of_lua().saturating_sub(before);
        assert!(copied < 4 * 1024 * 1024, "{copied} bytes");
    }
}

#[test]
fn all_holders_of_a_lock_are_shown() {
    let server = Server::start();
    let readers =
        "for i = 1, 1500 do redis.call('ZADD', 'prices', '9e15', 'r' .. string.format('%032x', i) .. ':shop') end";
    fill(&server, readers);
    // Some holders that have expired, and a sorted set that is no lock.
    fill(
        &server,
        "for i = 1, 300 do redis.call('ZADD', 'prices', i, 'r' .. string.format('%032x', i + 9999) .. ':shop') end",
    );
    fill(&server, "for i = 1, 300 do redis.call('ZADD', 'scores', i, i) end");
    let locks = redlock_tests::open(server.url());
    assert_eq!(locks.snapshot(&SnapshotOptions::default().name("prices")).unwrap().locks.len(), 1500);
    assert_eq!(seen(&locks).locks.len(), 1500);
}

/// A key of a queue is listed with the queue, whatever its content. Names of locks may end like a queue's key.
#[test]
fn a_lock_whose_name_ends_like_a_key_of_a_queue_is_shown() {
    let server = Server::start();
    let locks = redlock_tests::open(server.url());
    for name in ["emails:q2:due", "jobs:q:daily", "emails::q2:dead", "{a}b}:q2:due"] {
        let held = locks.mutex(name).lock().unwrap();
        let shown: Vec<String> = seen(&locks).locks.into_iter().map(|one| one.name).collect();
        assert_eq!(shown, [name]);
        assert!(seen(&locks).queues.is_empty());
        held.unlock().unwrap();
    }
    for name in ["emails", "user:{7}"] {
        locks.queue(name).push("welcome").unwrap();
    }
    let queues: Vec<String> = seen(&locks).queues.into_iter().map(|queue| queue.name).collect();
    assert_eq!(queues, ["emails", "user:{7}"]);
}
