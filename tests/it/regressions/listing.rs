//! The cost of listing a server's locks.

use redis::cmd;
use redlock_sync::{Redlock, Snapshot, SnapshotOptions};
use redlock_tests::Server;

fn all(locks: &Redlock) -> Snapshot {
    locks.snapshot(&SnapshotOptions::default()).unwrap()
}

fn fill(server: &Server, script: &str) {
    server.ask::<()>(cmd("EVAL").arg(script).arg(0));
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
        assert_eq!(all(&locks).locks.len(), 1);
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
    assert_eq!(all(&locks).locks.len(), 1500);
}

/// A key of a queue is listed with the queue, whatever its content. Names of locks may end like a queue's key.
#[test]
fn a_lock_whose_name_ends_like_a_key_of_a_queue_is_shown() {
    let server = Server::start();
    let locks = redlock_tests::open(server.url());
    for name in ["emails:q2:due", "jobs:q:daily", "emails::q2:dead", "{a}b}:q2:due"] {
        let held = locks.mutex(name).lock().unwrap();
        let shown: Vec<String> = all(&locks).locks.into_iter().map(|one| one.name).collect();
        assert_eq!(shown, [name]);
        assert!(all(&locks).queues.is_empty());
        held.unlock().unwrap();
    }
    for name in ["emails", "user:{7}"] {
        locks.queue(name).push("welcome").unwrap();
    }
    let queues: Vec<String> = all(&locks).queues.into_iter().map(|queue| queue.name).collect();
    assert_eq!(queues, ["emails", "user:{7}"]);
}
