//! Count-down latches with several clients, on one server and on three, and with faults of servers.

mod waits;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use redis::cmd;
use redlock_sync::{CountDownLatch, Error, Redlock};
use redlock_tests::{Act, Proxy, Server, Stopwatch, eventually, servers};

use crate::rig::until_older;

/// A time that suffices for every step here, even on a busy machine.
const SOON: Duration = Duration::from_secs(30);
const KEY: &str = "import";
const WAITS: &str = "{import}:latch_waits";

fn open(servers: &[Server]) -> Redlock {
    let urls: Vec<String> = servers.iter().map(Server::url).collect();
    Redlock::builder().nodes(urls).node_timeout(Duration::from_secs(1)).build().unwrap()
}

/// Waits until a wait for the latch is on all servers.
fn one_waits(servers: &[Server]) {
    let waits = |server: &Server| server.keys().contains(&WAITS.to_owned());
    eventually("a wait is known to the servers", SOON, || servers.iter().all(waits));
}

/// The arrivals on a server.
fn stored(server: &Server) -> Vec<String> {
    server.ask(cmd("ZRANGE").arg(KEY).arg(0).arg(-1))
}

/// Stores an arrival on one server only.
fn store_on(server: &Server, arrival: &str) {
    let _: i64 = server.ask(cmd("ZADD").arg(KEY).arg("9000000000000002").arg(arrival));
}

fn opens_when_the_last_has_arrived(nodes: usize) {
    let servers = servers(nodes);
    let clients: Vec<Redlock> = (0..3).map(|_| open(&servers)).collect();
    let latch = |client: usize| clients[client].count_down_latch(KEY, 12);
    let sent = AtomicUsize::new(0);
    thread::scope(|scope| {
        for waiter in 0..6 {
            let (latch, sent) = (latch(waiter % 3), &sent);
            scope.spawn(move || {
                latch.wait_for(SOON).unwrap();
                assert_eq!(sent.load(Ordering::SeqCst), 12, "opened before the last arrival was sent");
            });
        }
        let arrive = |worker: usize| {
            let (latch, sent) = (latch(worker % 3), &sent);
            scope.spawn(move || {
                sent.fetch_add(1, Ordering::SeqCst);
                latch.count_down().unwrap();
            })
        };
        let workers: Vec<_> = (0..11).map(arrive).collect();
        for worker in workers {
            worker.join().unwrap();
        }
        assert!(!latch(0).is_open().unwrap());
        assert_eq!(latch(1).arrived().unwrap(), 11);
        sent.fetch_add(1, Ordering::SeqCst);
        latch(2).count_down().unwrap();
    });
    assert!((0..3).all(|client| latch(client).is_open().unwrap()));
    assert_eq!(latch(0).arrived().unwrap(), 12);
    latch(0).wait().unwrap();
    for server in &servers {
        assert!(server.pttl(KEY).unwrap() > Duration::from_secs(86_000));
        assert!(!server.keys().contains(&WAITS.to_owned()), "a wait is left");
    }
}

#[test]
fn it_opens_when_the_last_worker_has_arrived() {
    opens_when_the_last_has_arrived(1);
}

#[test]
fn it_opens_on_several_nodes_when_the_last_worker_has_arrived() {
    opens_when_the_last_has_arrived(3);
}

#[test]
fn kind_05_a_worker_that_is_started_again_counts_once() {
    for nodes in [1, 3] {
        let servers = servers(nodes);
        let latch = open(&servers).count_down_latch(KEY, 3);
        for _ in 0..5 {
            latch.count_down_as("part 1").unwrap();
            open(&servers).count_down_latch(KEY, 3).count_down_as("!").unwrap();
        }
        assert_eq!((latch.arrived().unwrap(), latch.is_open().unwrap()), (2, false));
        latch.count_down().unwrap();
        assert!(latch.is_open().unwrap());
    }
}

#[test]
fn kind_05_an_arrival_whose_reply_is_lost_counts_once() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let locks = Redlock::builder().node(proxy.url()).node_timeout(Duration::from_secs(1)).build().unwrap();
    let latch = locks.count_down_latch(KEY, 3);
    latch.count_down().unwrap();
    for act in [Act::ResetAfter, Act::CutReply(2), Act::ResetBefore] {
        let struck = proxy.on("count down", act);
        let before = latch.arrived().unwrap();
        latch.count_down().unwrap();
        assert_eq!((struck.hits(), latch.arrived().unwrap()), (1, before + 1));
    }
}

#[test]
fn a_wait_in_vain_is_busy_and_leaves_nothing() {
    for nodes in [1, 3] {
        let servers = servers(nodes);
        let latch = open(&servers).count_down_latch(KEY, 1);
        let began = Stopwatch::start();
        let error = latch.wait_for(Duration::from_millis(300)).unwrap_err();
        let took = began.elapsed();
        assert!(matches!(&error, Error::Busy { key, by_this_thread: false, .. } if key == KEY), "{error}");
        assert!(error.to_string().ends_with("is still closed"), "{error}");
        assert!(took >= Duration::from_millis(300) && took < Duration::from_secs(5), "{took:?}");
        assert!(latch.wait_until(Instant::now()).unwrap_err().is_busy());
        assert!(servers.iter().all(|server| server.keys().is_empty()));
    }
}

/// The notification must wake the wait sooner than its next attempt would.
fn wakes_promptly(nodes: usize, most: Duration) {
    let servers = servers(nodes);
    let (here, there) = (open(&servers), open(&servers));
    let once = || {
        let woken = thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                here.count_down_latch(KEY, 1).wait_for(SOON).unwrap();
                Instant::now()
            });
            one_waits(&servers);
            let sent = Instant::now();
            there.count_down_latch(KEY, 1).count_down().unwrap();
            waiter.join().unwrap() - sent
        });
        there.count_down_latch(KEY, 1).reset().unwrap();
        woken
    };
    let best = (0..5).map(|_| once()).min().unwrap();
    println!("woken on {nodes} node(s) after {best:?}");
    assert!(best < most, "{best:?}");
}

#[test]
fn the_last_arrival_wakes_the_waits() {
    wakes_promptly(1, Duration::from_millis(500));
    wakes_promptly(3, Duration::from_millis(300));
}

#[test]
fn kind_02_a_node_of_three_that_loses_its_data_gets_the_arrivals_back() {
    let servers = servers(3);
    let latch = open(&servers).count_down_latch(KEY, 3);
    latch.count_down_as("a").unwrap();
    latch.count_down_as("b").unwrap();
    servers[0].restart();
    eventually("a call repairs the node", SOON, || {
        assert!(!latch.is_open().unwrap());
        stored(&servers[0]).len() == 2
    });
    assert!(servers[0].pttl(KEY).unwrap() <= Duration::from_secs(86_400));
    servers[1].kill();
    assert_eq!(latch.arrived().unwrap(), 2);
    latch.count_down_as("c").unwrap();
    latch.wait_for(SOON).unwrap();
}

#[test]
fn kind_06_a_latch_that_was_open_for_one_thread_stays_open() {
    let servers = servers(3);
    let latch = open(&servers).count_down_latch(KEY, 2);
    latch.count_down_as("a").unwrap();
    store_on(&servers[0], "=b");
    assert!(latch.is_open().unwrap());
    servers[0].kill();
    assert!(latch.is_open().unwrap());
    assert!(open(&servers).count_down_latch(KEY, 2).is_open().unwrap());
}

#[test]
fn a_node_that_restarted_just_now_does_not_call_it_closed() {
    let servers = servers(3);
    let lifetime = Duration::from_secs(6);
    until_older(&servers, lifetime);
    let latch = open(&servers).count_down_latch(KEY, 1).lifetime(lifetime);
    assert!(!latch.is_open().unwrap());
    // If all nodes answer, then each arrival is on one of them, so the restarts do not matter.
    servers[..2].iter().for_each(Server::restart);
    eventually("the latch is closed although two nodes restarted", SOON, || match latch.is_open() {
        Ok(is_open) => !is_open,
        Err(error) => {
            assert!(error.to_string().matches("casts no vote").count() < 2, "{error}");
            false
        }
    });
    servers[0].restart();
    // The killed node could have arrivals that the other two nodes do not have.
    servers[1].kill();
    let mut said = String::new();
    eventually("the restarted node is reached again", SOON, || {
        said = latch.is_open().unwrap_err().to_string();
        said.contains("casts no vote")
    });
    eventually("the restarted node is old enough", SOON, || latch.is_open().is_ok_and(|is_open| !is_open));
}

#[test]
fn threads_that_wait_on_several_nodes_seldom_fetch_the_arrivals() {
    let servers = servers(3);
    let proxies: Vec<Proxy> = servers.iter().map(Proxy::start).collect();
    let locks = redlock_tests::patient().nodes(proxies.iter().map(Proxy::url)).build().unwrap();
    locks.count_down_latch(KEY, 2).count_down_as("a").unwrap();
    let told = || -> Vec<bool> {
        let seen = proxies[0].seen().into_iter().filter(|seen| seen.name == "wait for");
        // The digest, the number of keys, two keys and the count come first.
        seen.map(|seen| seen.args[5] == "1").collect()
    };
    thread::scope(|scope| {
        scope.spawn(|| locks.count_down_latch(KEY, 2).wait_for(SOON).unwrap());
        eventually("the wait checks the latch several times", SOON, || told().len() >= 5);
        assert!(told().iter().filter(|&&is_full| is_full).count() <= 2, "{:?}", told());
        // An arrival on one node only makes the numbers differ.
        store_on(&servers[1], "=b");
    });
}

#[test]
fn a_wait_outlives_a_restart_of_the_server() {
    let server = Server::builder().persistent().start();
    let servers = std::slice::from_ref(&server);
    for keeps_data in [true, false] {
        let (here, there) = (open(servers), open(servers));
        there.count_down_latch(KEY, 2).count_down_as("a").unwrap();
        let sent = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                here.count_down_latch(KEY, 2).wait_for(SOON).unwrap();
                assert!(sent.load(Ordering::SeqCst));
            });
            one_waits(servers);
            if keeps_data {
                server.restart_with_data();
            } else {
                server.restart();
            }
            let latch = there.count_down_latch(KEY, 2);
            eventually("the server answers", SOON, || latch.arrived().is_ok());
            assert_eq!(latch.arrived().unwrap(), usize::from(keeps_data));
            sent.store(true, Ordering::SeqCst);
            // If the data is lost, then the latch is closed, and the workers repeat their arrivals.
            latch.count_down_as("a").unwrap();
            latch.count_down_as("b").unwrap();
        });
        there.count_down_latch(KEY, 2).reset().unwrap();
    }
}

#[test]
fn a_reset_closes_it_on_all_nodes_or_fails() {
    let servers = servers(3);
    let latch = open(&servers).count_down_latch(KEY, 1);
    latch.reset().unwrap();
    latch.count_down().unwrap();
    assert!(latch.is_open().unwrap());
    servers[2].stop();
    assert!(latch.reset().unwrap_err().is_unavailable());
    servers[2].cont();
    eventually("the latch is reset", SOON, || latch.reset().is_ok());
    assert!(!latch.is_open().unwrap());
    assert!(servers.iter().all(|server| server.keys().is_empty()));
}

/// A process counts down as its last act, and just then the server is unreachable.
#[test]
fn an_arrival_is_repeated_while_the_client_shuts_down() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let locks = redlock_tests::open(proxy.url());
    let latch = locks.count_down_latch(KEY, 1);
    let struck = proxy.on_each("count down", Act::ResetBefore);
    thread::scope(|scope| {
        let arrival = scope.spawn(|| latch.count_down());
        eventually("the arrival is sent", SOON, || struck.hits() > 0);
        let ended = scope.spawn(|| locks.shutdown(SOON));
        let is_closed = || matches!(locks.mutex("other").try_lock(), Err(Error::Closed));
        eventually("the client shuts down", SOON, is_closed);
        let before = struck.hits();
        eventually("the client repeats the arrival", SOON, || struck.hits() > before + 2);
        struck.release();
        arrival.join().unwrap().unwrap();
        assert_eq!(ended.join().unwrap().unwrap().unconfirmed, 0);
    });
    assert_eq!(stored(&server).len(), 1);
}

#[test]
fn kind_08_a_full_server_takes_no_arrival_and_lets_open_latches_open() {
    let servers = servers(3);
    let urls: Vec<String> = servers.iter().map(Server::url).collect();
    let locks = redlock_tests::patient().nodes(urls).unavailable_after(Duration::ZERO).build().unwrap();
    let latch = locks.count_down_latch(KEY, 2);
    latch.count_down_as("a").unwrap();
    store_on(&servers[0], "=b");
    servers.iter().for_each(Server::fill);
    assert!(locks.count_down_latch("other", 1).count_down().is_err());
    assert!(locks.count_down_latch("other", 1).wait_for(Duration::from_millis(100)).unwrap_err().is_busy());
    latch.wait_for(SOON).unwrap();
    servers[0].kill();
    assert!(latch.is_open().unwrap());
}

#[test]
fn input_12_the_number_of_arrivals_is_checked() {
    let locks = Redlock::open("redis://127.0.0.1:1/").unwrap();
    let latch = |name: &str, count| locks.count_down_latch(name, count);
    let long = latch(KEY, 1).lifetime(Duration::from_secs(366 * 86_400));
    let all = [
        ("many", latch(KEY, 10_001).count_down()),
        ("unnamed", latch("", 1).wait()),
        ("helper", latch(WAITS, 1).wait()),
        ("short", latch(KEY, 1).lifetime(Duration::ZERO).is_open().map(drop)),
        ("long", long.arrived().map(drop)),
        ("no id", latch(KEY, 1).count_down_as("")),
        ("long id", latch(KEY, 1).count_down_as(&"x".repeat(201))),
    ];
    for (what, outcome) in all {
        assert!(matches!(outcome, Err(Error::Config { .. })), "{what}: {outcome:?}");
    }
    assert!(latch("many", 10_001).wait().unwrap_err().to_string().contains("10001"));
}

#[test]
fn a_latch_of_none_is_open() {
    let server = Server::start();
    let latch = open(std::slice::from_ref(&server)).count_down_latch(KEY, 0);
    latch.wait().unwrap();
    assert!(latch.is_open().unwrap());
}

/// Servers restart without their data, one after the other, while workers arrive. Each waiter checks that all arrivals
/// were sent.
#[test]
fn kind_06_a_latch_never_opens_early_though_servers_crash() {
    let servers = servers(3);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut rng = fastrand::Rng::with_seed(7);
            while !is_over.load(Ordering::SeqCst) {
                servers[rng.usize(..servers.len())].restart();
                thread::sleep(Duration::from_millis(rng.u64(20..200)));
            }
        });
        (0..12).for_each(|round| crashing_round(&servers, &format!("round {round}")));
        is_over.store(true, Ordering::SeqCst);
    });
}

fn crashing_round(servers: &[Server], name: &str) {
    const WORKERS: usize = 6;
    const WAITERS: usize = 3;
    let (sent, through) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let latch = || -> CountDownLatch {
        let urls: Vec<String> = servers.iter().map(Server::url).collect();
        redlock_tests::patient().nodes(urls).build().unwrap().count_down_latch(name, WORKERS)
    };
    thread::scope(|scope| {
        for _ in 0..WAITERS {
            let (latch, sent, through) = (latch(), &sent, &through);
            scope.spawn(move || {
                let began = Stopwatch::start();
                while latch.wait_for(Duration::from_secs(1)).is_err() {
                    assert!(began.elapsed() < SOON, "the latch never opened although arrivals are repeated");
                }
                through.fetch_add(1, Ordering::SeqCst);
                assert_eq!(sent.load(Ordering::SeqCst), WORKERS, "{name} opened early");
            });
        }
        for worker in 0..WORKERS {
            let (latch, sent, through) = (latch(), &sent, &through);
            scope.spawn(move || {
                thread::sleep(Duration::from_millis(fastrand::u64(0..300)));
                sent.fetch_add(1, Ordering::SeqCst);
                // Arrivals are gone if most servers lose them. So the workers repeat them until all threads have seen
                // the latch open.
                let mut has_seen = false;
                let began = Stopwatch::start();
                while through.load(Ordering::SeqCst) < WORKERS + WAITERS && began.elapsed() < SOON {
                    if !has_seen && latch.is_open().unwrap_or(false) {
                        has_seen = true;
                        through.fetch_add(1, Ordering::SeqCst);
                    }
                    drop(latch.count_down_as(&worker.to_string()));
                    thread::sleep(Duration::from_millis(20));
                }
            });
        }
    });
}
