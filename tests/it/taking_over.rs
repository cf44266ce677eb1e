//! Locks that change hands by a token that the holder leaves, and by force.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use redlock_sync::testing::Memory;
use redlock_sync::{Error, LockToken, LostReason, Redlock};
use redlock_tests::{Act, Proxy, Server, Stopwatch, eventually, servers};

const KEY: &str = "order:42";
const SOON: Duration = Duration::from_secs(20);
const MS: Duration = Duration::from_millis(1);
const TOKEN: &str = "left:0123456789abcdef0123456789abcdef:me";

fn open(servers: &[Server]) -> Redlock {
    Redlock::builder().nodes(servers.iter().map(Server::url)).node_timeout(1000 * MS).build().unwrap()
}

/// The part of the token that Redis has.
fn stored(token: &LockToken) -> &str {
    token.as_str().strip_prefix("left:").unwrap()
}

fn lost(error: &Error) -> Option<LostReason> {
    if let Error::Lost { reason, .. } = error { Some(*reason) } else { None }
}

#[test]
fn a_token_is_adopted_by_another_client_once_and_its_fence_exceeds() {
    let servers = servers(1);
    let (here, there) = (open(&servers), open(&servers));
    for fenced in [false, true] {
        let guard = here.mutex(KEY).fenced(fenced).lock().unwrap();
        let fence = guard.fencing_token().unwrap();
        let token: LockToken = guard.into_token().unwrap().as_str().parse().unwrap();
        assert!(there.mutex(KEY).try_lock().unwrap_err().is_busy(), "the left lock is free");
        assert_eq!(here.unlock_all().unwrap().given_up.len(), 0, "unlock_all gave up the left lock");
        let adopted = there.mutex(KEY).fenced(fenced).adopt(&token).unwrap();
        assert!(adopted.fencing_token().unwrap() > fence);
        let second = here.mutex(KEY).adopt(&token).unwrap_err();
        assert_eq!(lost(&second), Some(LostReason::Taken), "{second}");
        adopted.check().unwrap();
        adopted.unlock().unwrap();
        assert_eq!(lost(&there.mutex(KEY).adopt(&token).unwrap_err()), Some(LostReason::Deleted));
        assert!(!here.mutex(KEY).is_locked().unwrap());
    }
}

fn is_refused(error: &Error, nodes: usize) -> bool {
    let parts = [KEY, &format!("{nodes} servers"), "keep the guard in one process", "one server"];
    matches!(error, Error::Config { .. }) && parts.iter().all(|part| error.to_string().contains(part))
}

/// The guard that makes no token is released like one that is dropped.
#[test]
fn input_15_with_several_servers_no_lock_is_left_or_adopted() {
    let servers = servers(3);
    let memory = Memory::new(5);
    for (locks, nodes) in [(open(&servers), 3), (memory.client(), 5)] {
        let refused = locks.mutex(KEY).lock().unwrap().into_token().unwrap_err();
        assert!(is_refused(&refused, nodes), "{refused}");
        locks.mutex(KEY).lock().unwrap().unlock().unwrap();
        let refused = locks.mutex(KEY).adopt(&TOKEN.parse().unwrap()).unwrap_err();
        assert!(is_refused(&refused, nodes), "{refused}");
    }
    let proxies: Vec<Proxy> = servers.iter().map(Proxy::start).collect();
    let locks = Redlock::builder().nodes(proxies.iter().map(Proxy::url)).build().unwrap();
    assert!(is_refused(&locks.mutex(KEY).adopt(&TOKEN.parse().unwrap()).unwrap_err(), 3));
    assert!(proxies.iter().all(|proxy| proxy.seen().is_empty()), "the refused call was sent");
    eventually("the lock is free", SOON, || servers.iter().all(|server| server.get(KEY).is_none()));
}

/// All clients try to adopt the token at the same time. Returns how many succeeded.
fn adopt_at_once(clients: &[Redlock], token: &LockToken) -> usize {
    let won = AtomicUsize::new(0);
    thread::scope(|scope| {
        for locks in clients {
            let won = &won;
            scope.spawn(move || match locks.mutex(KEY).adopt(token) {
                Ok(guard) => {
                    guard.check().unwrap();
                    won.fetch_add(1, Ordering::SeqCst);
                    // The guard is forgotten, so that the lock stays taken until all clients have tried.
                    std::mem::forget(guard);
                }
                Err(error) => assert!(lost(&error).is_some(), "{error}"),
            });
        }
    });
    let won = won.into_inner();
    for locks in clients {
        drop(locks.unlock_all());
    }
    won
}

#[test]
fn of_many_that_adopt_one_token_one_holds_the_lock() {
    let servers = servers(1);
    let clients: Vec<Redlock> = (0..6).map(|_| open(&servers)).collect();
    for _ in 0..20 {
        let token = clients[0].mutex(KEY).try_lock_for(SOON).unwrap().into_token().unwrap();
        assert_eq!(adopt_at_once(&clients, &token), 1);
    }
}

/// The server executes the call, and the client does not get the reply. The lock is then released, and not given back
/// to the token.
#[test]
fn an_adoption_without_a_reply_is_released() {
    for act in [Act::ResetAfter, Act::HoldReply] {
        let server = Server::start();
        let proxy = Proxy::start(&server);
        let here = open(std::slice::from_ref(&server));
        let there = Redlock::builder().node(proxy.url()).node_timeout(1000 * MS).build().unwrap();
        let left = || here.mutex(KEY).lock().unwrap().into_token().unwrap();
        // This call makes the server load the script.
        there.mutex(KEY).adopt(&left()).unwrap().unlock().unwrap();
        let token = left();
        let adopts = proxy.on_each("adopt", act);
        let error = there.mutex(KEY).adopt(&token).unwrap_err();
        assert!(error.is_unavailable(), "{error}");
        adopts.release();
        proxy.heal();
        eventually("no token is left", SOON, || server.get(KEY).is_none());
        assert_eq!(lost(&here.mutex(KEY).adopt(&token).unwrap_err()), Some(LostReason::Deleted));
        here.mutex(KEY).try_lock().unwrap().unlock().unwrap();
    }
}

/// A server that hangs may execute the call when it continues, or never. In both cases no thread is locked out.
#[test]
fn after_an_adoption_by_a_server_that_hangs_the_lock_is_adopted_or_free() {
    let servers = servers(1);
    let (here, there) = (open(&servers), open(&servers));
    for _ in 0..4 {
        let token = here.mutex(KEY).try_lock_for(SOON).unwrap().into_token().unwrap();
        // This call connects the client.
        there.mutex(KEY).is_locked().unwrap();
        servers[0].stop();
        let error = there.mutex(KEY).adopt(&token).unwrap_err();
        servers[0].cont();
        assert!(error.is_unavailable(), "{error}");
        eventually("the token is adopted or lost", SOON, || match there.mutex(KEY).adopt(&token) {
            Ok(guard) => guard.unlock().is_ok(),
            Err(error) => lost(&error).is_some(),
        });
        eventually("no token is left", SOON, || servers[0].get(KEY).is_none());
    }
}

/// The server refuses the connection, so it never executes the call.
#[test]
fn an_adoption_that_does_not_reach_the_server_can_be_tried_again() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let token = open(std::slice::from_ref(&server)).mutex(KEY).lock().unwrap().into_token().unwrap();
    let locks = Redlock::builder().node(proxy.url()).node_timeout(500 * MS).build().unwrap();
    proxy.refuse();
    let error = locks.mutex(KEY).adopt(&token).unwrap_err();
    assert!(error.is_unavailable(), "{error}");
    proxy.heal();
    assert_eq!(server.get(KEY).as_deref(), Some(stored(&token)));
    let adopted = || match locks.mutex(KEY).adopt(&token) {
        Ok(guard) => guard.unlock().is_ok(),
        Err(error) if error.is_unavailable() => false,
        Err(error) => panic!("{error}"),
    };
    eventually("the lock is adopted", SOON, adopted);
}

/// A copy of the call arrives after the connection broke, so no release can follow it. The client takes the lock from
/// the token of its own call.
#[test]
fn an_adoption_that_arrives_after_its_release_does_not_lock_its_client_out() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let locks = Redlock::builder().node(proxy.url()).node_timeout(500 * MS).build().unwrap();
    let left = || locks.mutex(KEY).lock().unwrap().into_token().unwrap();
    // This call makes the server load the script.
    locks.mutex(KEY).adopt(&left()).unwrap().unlock().unwrap();
    let token = left();
    proxy.on_each("adopt", Act::ResetBefore);
    let error = locks.mutex(KEY).adopt(&token).unwrap_err();
    assert!(error.is_unavailable(), "{error}");
    let call = proxy.seen().into_iter().rfind(|seen| seen.name == "adopt").unwrap();
    proxy.heal();
    let release = |seen: &redlock_tests::Seen| seen.name == "release" && seen.args.contains(&call.args[5]);
    eventually("the adoption is released twice", SOON, || proxy.seen().into_iter().filter(release).count() > 1);
    // The reply to the second release has arrived by then, so the client does not repeat it.
    thread::sleep(200 * MS);
    let mut late = redis::cmd("EVALSHA");
    late.arg(&call.args);
    server.ask::<redis::Value>(&late);
    assert_eq!(server.get(KEY).as_ref(), Some(&call.args[5]), "the late call did not adopt the lock");
    locks.mutex(KEY).try_lock().unwrap().unlock().unwrap();
    assert_eq!(server.keys(), [""; 0]);
}

#[test]
fn a_lock_that_is_not_adopted_ends_with_its_lease() {
    let server = Server::start();
    let locks = Redlock::builder().node(server.url()).node_timeout(400 * MS).build().unwrap();
    let order = locks.mutex(KEY).lease(1200 * MS);
    let token = order.lock().unwrap().into_token().unwrap();
    let next = order.try_lock_for(SOON).unwrap();
    assert_eq!(lost(&order.clone().adopt(&token).unwrap_err()), None, "the adoption reported a loss");
    next.unlock().unwrap();
    assert!(lost(&order.adopt(&token).unwrap_err()).is_some());
}

/// A restarted server can have a token again that another holder has already adopted.
#[test]
fn a_server_that_is_too_young_for_an_attempt_is_so_for_an_adoption() {
    let server = Server::start();
    let locks = || redlock_tests::patient().node(server.url()).lease(6 * SOON);
    let token = locks().build().unwrap().mutex(KEY).lock().unwrap().into_token().unwrap();
    let guarded = locks().failover_guard(true).build().unwrap().mutex(KEY).adopt(&token).unwrap_err();
    assert!(guarded.is_unavailable() && guarded.to_string().contains("restarted"), "{guarded}");
    assert_eq!(server.get(KEY), None, "what the attempt set was not released");
}

#[test]
fn an_adopted_lock_is_renewed_and_goes_to_those_that_wait() {
    let server = Server::start();
    let one = std::slice::from_ref(&server);
    let short = || Redlock::builder().node(server.url()).node_timeout(700 * MS).lease(2100 * MS).build().unwrap();
    let (here, there) = (short(), short());
    let token = here.mutex(KEY).lock().unwrap().into_token().unwrap();
    let adopted = there.mutex(KEY).adopt(&token).unwrap();
    let waiter = thread::spawn(move || here.mutex(KEY).try_lock_for(SOON).map(redlock_sync::MutexGuard::into_send));
    let passed = std::time::Instant::now() + 4200 * MS;
    eventually("two leases pass, with renewals", SOON, || {
        adopted.check().unwrap();
        std::time::Instant::now() > passed
    });
    adopted.unlock().unwrap();
    waiter.join().unwrap().unwrap().unlock().unwrap();
    assert!(!open(one).mutex(KEY).is_locked().unwrap());
}

#[test]
fn a_lock_that_was_lost_leaves_no_token() {
    let server = Server::start();
    let locks = open(std::slice::from_ref(&server));
    let guard = locks.mutex(KEY).lock().unwrap();
    locks.unlock_all().unwrap();
    assert_eq!(lost(&guard.into_token().unwrap_err()), Some(LostReason::Revoked));
    server.set(KEY, "another program's");
    let token: LockToken = TOKEN.parse().unwrap();
    assert_eq!(lost(&locks.mutex(KEY).adopt(&token).unwrap_err()), Some(LostReason::Taken));
    assert_eq!(server.get(KEY).as_deref(), Some("another program's"));
    for text in
        ["", "left:", "left:0123", "left:0123456789abcdef0123456789abcdeg:me", "0123456789abcdef0123456789abcdef:me"]
    {
        assert!(matches!(text.parse::<LockToken>(), Err(Error::Config { .. })), "{text}");
    }
}

#[test]
fn a_key_of_another_type_is_not_adopted() {
    let server = Server::start();
    let locks = open(std::slice::from_ref(&server));
    let token = locks.mutex(KEY).lock().unwrap().into_token().unwrap();
    server.ask::<()>(redis::cmd("DEL").arg(KEY));
    server.ask::<()>(redis::cmd("LPUSH").arg(KEY).arg("x"));
    let error = locks.mutex(KEY).adopt(&token).unwrap_err();
    assert!(matches!(error, Error::WrongType { op: "adopt", .. }), "{error}");
}

#[test]
fn a_full_server_lets_a_token_be_adopted() {
    let server = Server::start();
    let locks = open(std::slice::from_ref(&server));
    let token = locks.mutex(KEY).lock().unwrap().into_token().unwrap();
    server.fill();
    locks.mutex(KEY).fenced(true).adopt(&token).unwrap().unlock().unwrap();
}

#[test]
fn force_frees_the_lock_of_the_holder_that_was_shown_and_no_other() {
    for nodes in [1, 3] {
        let servers = servers(nodes);
        let (here, there) = (open(&servers), open(&servers));
        let guard = here.mutex(KEY).lock().unwrap();
        let holder = there.mutex(KEY).inspect().unwrap().remove(0);
        assert_eq!(there.mutex(KEY).force_unlock(&holder), Ok(true));
        let next = there.mutex(KEY).lock().unwrap();
        assert_eq!(there.mutex(KEY).force_unlock(&holder), Ok(false), "the next holder's lock was freed");
        next.check().unwrap();
        let reason = lost(&guard.unlock().unwrap_err());
        assert_eq!(reason, Some(LostReason::Taken));
        let own = there.mutex(KEY).inspect().unwrap().remove(0);
        assert_eq!(there.mutex(KEY).force_unlock(&own), Ok(true));
        assert_eq!(lost(&next.check().unwrap_err()), Some(LostReason::Revoked), "the own guard did not notice");
        drop(next);
        assert_eq!(there.reentrant_mutex(KEY).force_unlock(&holder), Ok(false));
    }
}

#[test]
fn a_holder_that_renews_learns_of_force_and_a_waiter_gets_the_lock() {
    let server = Server::start();
    let short = || Redlock::builder().node(server.url()).node_timeout(1000 * MS).lease(3000 * MS).build().unwrap();
    let (here, there) = (short(), short());
    let guard = here.mutex(KEY).lock().unwrap();
    let waiter = thread::spawn({
        let there = there.clone();
        move || there.mutex(KEY).try_lock_for(SOON).map(redlock_sync::MutexGuard::into_send)
    });
    let holder = there.mutex(KEY).inspect().unwrap().remove(0);
    assert_eq!(there.mutex(KEY).force_unlock(&holder), Ok(true));
    let next = waiter.join().unwrap().unwrap();
    eventually("check() reports the loss", SOON, || guard.check().is_err());
    next.unlock().unwrap();
}

#[test]
fn without_a_majority_force_is_unavailable() {
    let servers = servers(3);
    let locks = open(&servers);
    let guard = locks.mutex(KEY).lock().unwrap();
    let holder = locks.mutex(KEY).inspect().unwrap().remove(0);
    servers[1..].iter().for_each(Server::kill);
    let error = locks.mutex(KEY).force_unlock(&holder).unwrap_err();
    assert!(matches!(error, Error::Unavailable { op: "force unlock", of: 3, .. }), "{error}");
    drop(guard);
}

#[test]
fn force_says_so_where_it_cannot_name_the_holder() {
    let server = Server::start();
    let locks = open(std::slice::from_ref(&server));
    server.set(KEY, "");
    let holder = locks.mutex(KEY).inspect().unwrap().remove(0);
    assert!(matches!(locks.mutex(KEY).force_unlock(&holder), Err(Error::Config { .. })));
}

#[test]
fn an_adopted_lock_lasts_for_the_lease_of_its_new_holder() {
    let server = Server::start();
    let locks = open(std::slice::from_ref(&server));
    let token = locks.mutex(KEY).lease(Duration::from_secs(3600)).lock().unwrap().into_token().unwrap();
    let guard = locks.mutex(KEY).lease(2000 * MS).renew(false).adopt(&token).unwrap();
    let left = server.pttl(KEY).unwrap();
    assert!(left <= 2000 * MS && left > 500 * MS, "{left:?}");
    guard.unlock().unwrap();
}

#[test]
fn threads_of_the_client_that_uses_force_go_on_at_once() {
    let server = Server::start();
    let locks = open(std::slice::from_ref(&server));
    let guard = locks.mutex(KEY).renew(false).lock().unwrap();
    let waiter = thread::spawn({
        let locks = locks.clone();
        move || locks.mutex(KEY).try_lock_for(SOON).map(redlock_sync::MutexGuard::into_send)
    });
    let holder = locks.mutex(KEY).inspect().unwrap().remove(0);
    assert_eq!(locks.mutex(KEY).force_unlock(&holder), Ok(true));
    waiter.join().unwrap().unwrap().unlock().unwrap();
    assert!(guard.check().is_err());
}

#[test]
fn a_token_that_is_no_text_is_not_taken_away_by_force() {
    let server = Server::start();
    server.ask::<()>(redis::cmd("SET").arg(KEY).arg(&b"\xff\xfe"[..]));
    let order = open(std::slice::from_ref(&server)).mutex(KEY);
    let holder = order.inspect().unwrap().remove(0);
    assert!(matches!(order.force_unlock(&holder), Err(Error::Config { .. })));
}

/// The holder releases on a majority, but not on the node on which the waits listen. That node continues to name the
/// former holder.
#[test]
fn a_release_that_misses_the_node_where_waits_listen_does_not_keep_them_asleep() {
    let servers = servers(3);
    let (holder, waiting) = (open(&servers), open(&servers));
    let guard = holder.mutex(KEY).lock().unwrap();
    let waiter =
        thread::spawn(move || waiting.mutex(KEY).try_lock_for(SOON * 3).map(redlock_sync::MutexGuard::into_send));
    eventually("the wait is in the queues", SOON, || {
        servers.iter().all(|server| server.keys().iter().any(|key| key.ends_with(":waits")))
    });
    // The test simulates a release that misses the node on which the waits listen, and that notifies none of them.
    let listens = |server: &&Server| {
        !server.ask::<Vec<String>>(redis::cmd("PUBSUB").arg("CHANNELS").arg("redlock-sync:*")).is_empty()
    };
    let wake_node = servers.iter().find(listens).unwrap();
    let began = Stopwatch::start();
    let token = guard.id().as_str().to_owned();
    for server in &servers {
        server.ask::<()>(redis::cmd("DEL").arg(format!("{{{KEY}}}:waits")));
    }
    guard.unlock().unwrap();
    wake_node.ask::<()>(redis::cmd("SET").arg(KEY).arg(token).arg("PX").arg(30_000));
    waiter.join().unwrap().unwrap().unlock().unwrap();
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
}

/// If an id could be adopted as a token, then the guard would lose its lock, although its holder never gave it away.
#[test]
fn the_id_of_a_guard_is_no_token() {
    let server = Server::start();
    let locks = Redlock::open(server.url()).unwrap();
    let guard = locks.mutex("order:42").lock().unwrap();
    let id = guard.id().as_str().to_owned();
    assert!(matches!(id.parse::<LockToken>(), Err(Error::Config { .. })));
    let token = guard.into_token().unwrap();
    assert_ne!(token.as_str(), id);
    assert_eq!(server.get("order:42"), Some(id));
    let adopted = locks.mutex("order:42").adopt(&token.as_str().parse().unwrap()).unwrap();
    adopted.unlock().unwrap();
}
