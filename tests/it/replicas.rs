//! A lease that replicas must have before it counts.

use std::sync::{Arc, Condvar};
use std::thread;
use std::time::Duration;

use redis::cmd;
use redlock_sync::{Builder, Error, Event, Mutex, Redlock, ReentrantMutex, RwLock, Semaphore};
use redlock_tests::{Server, eventually};

use crate::kinds::{Kind, OfOneKey};
use crate::observer::Calls;

/// A time that suffices for every step here, even on a busy machine.
const SOON: Duration = Duration::from_secs(30);
const LONG: Duration = Duration::from_secs(60);

/// A master and its replica. The master runs its timers often, so that it soon knows how many replicas have
/// acknowledged.
fn pair() -> (Server, Server) {
    let server = || Server::builder().arg("--hz").arg("100").start();
    let (master, replica) = thread::scope(|scope| {
        let replica = scope.spawn(server);
        (server(), replica.join().unwrap())
    });
    replica.replica_of(&master);
    (master, replica)
}

fn settings(master: &Server) -> Builder {
    let timeout = Duration::from_millis(600);
    Redlock::builder().node(master.url()).lease(LONG).node_timeout(timeout).unavailable_after(SOON)
}

fn open(master: &Server) -> Redlock {
    settings(master).min_replicas_ack(1).build().unwrap()
}

/// Asserts that the error names the node, and says that too few replicas have acknowledged. On a busy machine, their
/// number may come too late.
#[track_caller]
fn assert_refused<T>(master: &Server, outcome: Result<T, Error>) {
    let Err(error) = outcome else { panic!("the call succeeded without the replica") };
    let text = error.to_string();
    let is_counted = text.contains("0 of 1 replicas") || text.contains("fewer than 1 replicas");
    let is_told = is_counted && text.contains(&master.addr().to_string());
    assert!(error.is_unavailable() && is_told, "{text}");
}

/// A barrier for threads of a test. It fails if one of the threads does not come.
struct Phase {
    all: usize,
    /// The number of waiting threads, and how often all threads have come.
    waiting: std::sync::Mutex<(usize, usize)>,
    come: Condvar,
}

impl Phase {
    fn new(all: usize) -> Phase {
        Phase { all, waiting: std::sync::Mutex::default(), come: Condvar::new() }
    }

    #[track_caller]
    fn wait(&self) {
        let mut waiting = self.waiting.lock().unwrap();
        waiting.0 += 1;
        if waiting.0 == self.all {
            *waiting = (0, waiting.1 + 1);
            self.come.notify_all();
            return;
        }
        let phase = waiting.1;
        let (_waiting, out) = self.come.wait_timeout_while(waiting, LONG, |waiting| waiting.1 == phase).unwrap();
        assert!(!out.timed_out(), "another thread has failed");
    }
}

fn waits(master: &Server) -> u64 {
    let stats: String = master.ask(cmd("INFO").arg("commandstats"));
    let line = stats.lines().find_map(|line| line.strip_prefix("cmdstat_wait:calls="));
    line.map_or(0, |line| line.split(',').next().unwrap().parse().unwrap())
}

/// The calls of one kind while the replica runs, while it is stopped, and after it has continued. `phase` waits for all
/// kinds.
fn kind<K: Kind>(name: &str, master: &Server, replica: &Server, phase: &Phase) {
    let (locks, other) = (open(master), settings(master).build().unwrap());
    let key = |part: &str| format!("{name}:{part}");
    let held = K::new(&locks, &key("held")).lock().unwrap();
    let has = |key: &str| !replica.ask::<Vec<String>>(cmd("KEYS").arg(key)).is_empty();
    assert!(has(&key("held")), "the call returned before the replica had the key");
    let _busy = K::new(&other, &key("busy")).lock().unwrap();
    phase.wait();
    phase.wait();

    let lock = K::new(&locks, &key("a"));
    assert_refused(master, lock.try_lock());
    assert_refused(master, lock.clone().fenced(true).try_lock_for(Duration::from_millis(300)));
    assert!(!lock.is_locked().unwrap(), "the failed attempt left the lock taken");
    // The server has executed the first call, so the second one changes nothing there. It must fail all the same.
    assert_refused(master, held.extend(LONG * 2));
    assert_refused(master, held.extend(LONG));
    assert_refused(master, held.fencing_token());
    assert!(K::new(&locks, &key("busy")).try_lock().err().unwrap().is_busy(), "the lock is not reported as busy");
    held.check().unwrap();
    let waiting = thread::spawn(move || lock.lock().map(|guard| (guard.fencing_token().unwrap(), K::unlock(guard))));
    phase.wait();
    phase.wait();

    waiting.join().unwrap().unwrap().1.unwrap();
    held.extend(LONG * 2).unwrap();
    held.fencing_token().unwrap();
    assert!(held.remaining() > LONG);
    K::unlock(held).unwrap();
}

fn tasks(master: &Server, phase: &Phase) {
    let locks = open(master);
    let at_once = settings(master).min_replicas_ack(1).unavailable_after(Duration::ZERO).build().unwrap();
    let (queue, latch) = (locks.queue("mails").lease(LONG), at_once.count_down_latch("import", 2));
    queue.push("first").unwrap();
    queue.push("second").unwrap();
    let job = queue.claim().unwrap();
    latch.count_down().unwrap();
    phase.wait();
    phase.wait();

    assert_refused(master, queue.try_claim());
    assert_refused(master, queue.push(redlock_sync::Task::new("third").id("third")));
    assert_refused(master, queue.push(redlock_sync::Task::new("third").id("third")));
    assert_refused(master, job.extend(LONG));
    assert_refused(master, job.extend(LONG / 2));
    assert_refused(master, latch.count_down());
    job.ack().unwrap();
    phase.wait();
    phase.wait();

    let bodies: Vec<_> = (0..2).map(|_| queue.try_claim_for(SOON).unwrap().unwrap()).collect();
    assert_eq!(
        (bodies[0].body(), bodies[1].body()),
        (&b"second"[..], &b"third"[..]),
        "the failed claim has kept its task"
    );
    assert_eq!(bodies[0].attempt(), 1);
}

#[test]
fn nothing_is_given_that_the_replica_lacks() {
    let (master, replica) = pair();
    let (master, replica) = (&master, &replica);
    let phase = &Phase::new(7);
    thread::scope(|scope| {
        scope.spawn(|| kind::<Mutex>("mutex", master, replica, phase));
        scope.spawn(|| kind::<ReentrantMutex>("reentrant", master, replica, phase));
        scope.spawn(|| kind::<Semaphore>("semaphore", master, replica, phase));
        scope.spawn(|| kind::<RwLock>("rw", master, replica, phase));
        scope.spawn(|| kind::<OfOneKey>("multi", master, replica, phase));
        scope.spawn(|| tasks(master, phase));
        phase.wait();
        replica.stop();
        phase.wait();
        phase.wait();
        replica.cont();
        phase.wait();
    });
}

#[test]
fn a_lock_that_is_granted_is_asked_for_and_one_question_serves_a_packet() {
    let (master, replica) = pair();
    // A grant lasts for at most half a minute.
    let open = || settings(&master).lease(LONG / 4).min_replicas_ack(1).build().unwrap();
    let (locks, holder) = (open(), open());
    locks.multi_lock(["a", "b", "c", "d"]).try_lock().unwrap().unlock().unwrap();
    let before = waits(&master);
    locks.multi_lock(["a", "b", "c", "d"]).try_lock().unwrap().unlock().unwrap();
    assert_eq!(waits(&master), before + 1);

    let held = holder.mutex("a").lock().unwrap();
    let waiter = thread::spawn(move || locks.mutex("a").lock().map(drop));
    eventually("the wait is queued", SOON, || master.keys().contains(&"{a}:waits".to_owned()));
    replica.stop();
    let before = waits(&master);
    held.unlock().unwrap();
    eventually("the client asks for acknowledgements", SOON, || waits(&master) >= before + 3);
    assert!(!waiter.is_finished());
    replica.cont();
    waiter.join().unwrap().unwrap();
}

/// A write of another connection must be acknowledged too. So an extension fails if the lease is already long enough,
/// but by a write that the replica lacks.
#[test]
fn what_was_written_by_a_connection_that_is_gone_counts_for_nothing() {
    let (master, replica) = pair();
    let locks = open(&master);
    locks.queue("mails").push("first").unwrap();
    let (mutex, permit) = (locks.mutex("a").lock().unwrap(), locks.semaphore("b", 2).acquire().unwrap());
    let (reader, job) = (locks.rw_lock("c").read().unwrap(), locks.queue("mails").lease(LONG).claim().unwrap());
    let leases: [&redlock_sync::Lease; 4] = [&mutex, &permit, &reader, &job];
    replica.stop();
    for lease in leases {
        assert_refused(&master, lease.extend(LONG * 10));
    }
    master.ask::<usize>(cmd("CLIENT").arg("KILL").arg("TYPE").arg("normal").arg("SKIPME").arg("yes"));
    for lease in leases {
        assert_refused(&master, lease.extend(LONG));
    }
    replica.cont();
    for lease in leases {
        lease.extend(LONG).unwrap();
    }
}

#[test]
fn a_user_that_may_not_ask_replicas_is_told() {
    let server = Server::start();
    server.ask::<()>(cmd("ACL").arg("SETUSER").arg("locks").arg(&["on", ">secret", "~*", "&*", "+@all", "-wait"]));
    let url = format!("redis://locks:secret@{}/", server.addr());
    let error = redlock_tests::patient().node(&url).min_replicas_ack(1).build().unwrap().mutex("a").lock().unwrap_err();
    assert!(matches!(error, Error::Config { .. }) && error.to_string().contains("'wait'"), "{error}");
    assert_eq!(server.keys(), [""; 0], "the failed attempt left a key");
    drop(redlock_tests::open(&url).mutex("a").lock().unwrap());
}

/// While a replica hangs, each refusal of many threads names the replicas. The master does not seem to hang, so locks
/// that are held can be released.
#[test]
fn many_threads_learn_that_a_replica_hangs() {
    let (master, replica) = pair();
    let outages = Arc::new(std::sync::Mutex::new(Vec::<String>::new()));
    let seen = Arc::clone(&outages);
    let observer = move |event: &Event<'_>| {
        if let Event::NodeDown { why, .. } = event {
            seen.lock().unwrap().push((*why).to_owned());
        }
    };
    // Four times as long as a `WAIT`.
    let timeout = Duration::from_secs(4);
    let builder = settings(&master).node_timeout(timeout).min_replicas_ack(1);
    let locks = builder.observer(Calls(observer)).build().unwrap();
    let held: Vec<_> = (0..5).map(|n| locks.mutex(format!("held:{n}")).lock().unwrap()).collect();
    replica.stop();
    thread::scope(|scope| {
        for n in 0..20 {
            let (locks, master) = (&locks, &master);
            scope.spawn(move || {
                for _ in 0..2 {
                    assert_refused(master, locks.mutex(format!("k{n}")).try_lock());
                }
            });
        }
        for guard in held {
            guard.unlock().unwrap();
        }
    });
    assert_eq!(*outages.lock().unwrap(), [""; 0]);
    replica.cont();
    locks.mutex("again").lock().unwrap().unlock().unwrap();
}
