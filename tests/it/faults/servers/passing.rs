//! A server that has served a client refuses it for a while. That counts as an outage.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use redis::cmd;
use redlock_sync::{Error, Redlock, RunOutcome};
use redlock_tests::{Act, Proxy, Server, Stopwatch, eventually, patient, poll};

use crate::rig::for_each;

const SOON: Duration = Duration::from_secs(30);
const LONG: Duration = Duration::from_secs(60);
/// How long the calls of one test may be unavailable.
const OUTAGE: Duration = Duration::from_secs(2);

/// A worker, a candidate, a holder and a waiter of one client, all of which the server has served.
struct Crew {
    proxy: Proxy,
    locks: Redlock,
    _worker: redlock_sync::Worker,
    done: mpsc::Receiver<Vec<u8>>,
    candidate: redlock_sync::LeaderHandle,
    terms: Arc<AtomicUsize>,
    held: redlock_sync::MutexGuard,
}

impl Crew {
    fn start(proxy: Proxy, user: &str) -> Crew {
        let url = format!("redis://{user}{}/", proxy.addr());
        let locks = patient().node(url).lease(LONG).unavailable_after(SOON).build().unwrap();
        let held = locks.mutex("held").lock().unwrap();
        let (tell, done) = mpsc::channel();
        let worker = locks.queue("tasks").worker(1, move |job| drop(tell.send(job.body().to_vec()))).unwrap();
        locks.queue("tasks").push("before").unwrap();
        assert_eq!(done.recv_timeout(SOON).unwrap(), b"before");
        // Each term ends at once, so the candidate takes the lock again and again.
        let terms = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&terms);
        let leader = locks.leader("leader").pause(Duration::from_millis(10));
        let candidate = leader.spawn(move |_| {
            count.fetch_add(1, Ordering::SeqCst);
            Ok::<_, Error>(())
        });
        let crew = Crew { proxy, locks, _worker: worker, done, candidate: candidate.unwrap(), terms, held };
        crew.leads_again();
        crew
    }

    fn leads_again(&self) {
        let before = self.terms.load(Ordering::SeqCst);
        eventually("the candidate leads again", SOON, || self.terms.load(Ordering::SeqCst) > before);
    }

    /// Lets the server refuse the client, until the client has asked twenty times. Then all go on.
    fn outlasts(&self, said: &str, refuse: impl FnOnce(), serve: impl FnOnce()) {
        refuse();
        // A call can find a connection that has just been closed. Those after it are refused.
        let refused = || self.locks.mutex("free").try_lock().err().filter(|error| error.to_string().contains(said));
        let error = poll(SOON, refused).unwrap_or_else(|| panic!("no call was refused with {said}"));
        assert!(error.is_unavailable(), "{said}: {error}");
        let timed = self.locks.mutex("free").unavailable_after(Duration::ZERO).try_lock_for(LONG).unwrap_err();
        assert!(timed.is_unavailable(), "{said}: {timed}");
        thread::scope(|scope| {
            let locks = &self.locks;
            let waiter = scope.spawn(|| locks.mutex("free").lock().map(drop));
            self.proxy.wait_count("*", self.proxy.count("*") + 20, SOON);
            assert!(!waiter.is_finished(), "{said}: the waiter has not waited");
            serve();
            waiter.join().unwrap().unwrap_or_else(|error| panic!("{said}: {error}"));
        });
        self.held.check().unwrap();
        self.locks.queue("tasks").push("after").unwrap();
        assert_eq!(self.done.recv_timeout(SOON).expect(said), b"after");
        self.leads_again();
        self.held.extend(LONG).unwrap();
    }

    fn end(self) {
        self.candidate.resign();
        self.candidate.join().unwrap();
        self.held.unlock().unwrap();
    }
}

#[test]
fn a_login_that_is_refused_for_a_while_ends_no_worker_and_no_candidate() {
    let server = Server::start();
    let user = |rules: &[&str]| server.ask::<()>(cmd("ACL").arg("SETUSER").arg("locks").arg(rules));
    let end_connections = || _ = server.ask::<usize>(cmd("CLIENT").arg("KILL").arg("USER").arg("locks"));
    user(&["on", ">first", "~*", "&*", "+@all"]);
    let crew = Crew::start(Proxy::start(&server), "locks:first@");
    crew.outlasts(
        "WRONGPASS",
        || {
            user(&["resetpass", ">second"]);
            end_connections();
            // A first contact does not wait.
            let url = format!("redis://locks:first@{}/", server.addr());
            let new = patient().node(url).build().unwrap().mutex("a").lock().unwrap_err();
            assert!(matches!(new, Error::Config { .. }), "{new}");
        },
        || user(&[">first"]),
    );
    crew.outlasts("NOPERM", || user(&["-@all"]), || user(&["+@all"]));
    crew.end();
}

/// The texts of servers and proxies, each of which a client with a mistake gets too.
const TEXTS: [&str; 8] = [
    "NOAUTH Authentication required.",
    "WRONGPASS invalid username-password pair or user is disabled.",
    "NOPERM User locks has no permissions to run the 'evalsha' command",
    "NOPERM No permissions to access a key",
    "DENIED Redis is running in protected mode because protected mode is enabled",
    "READONLY You can't write against a read only replica.",
    "ERR Client sent AUTH, but no password is set",
    "ERR max number of clients reached",
];

#[test]
fn whatever_a_server_says_for_a_while_ends_no_worker_and_no_candidate() {
    for_each("", &[&TEXTS[..4], &TEXTS[4..]], |texts| {
        let server = Server::start();
        let crew = Crew::start(Proxy::start(&server), "");
        let proxy = &crew.proxy;
        for text in texts {
            let code = text.split(' ').next().unwrap();
            crew.outlasts(
                code,
                || {
                    proxy.on_each("*", Act::Error((*text).to_owned()));
                    proxy.drop_connections();
                },
                || proxy.heal(),
            );
        }
        crew.end();
    });
}

/// Another service has the address for a while.
#[test]
fn another_service_at_the_address_ends_no_worker_and_no_candidate() {
    let server = Server::start();
    let crew = Crew::start(Proxy::start(&server), "");
    let proxy = &crew.proxy;
    let other = Server::builder().arg("--cluster-enabled").arg("yes").start();
    crew.outlasts(
        "belongs to a Redis Cluster",
        || {
            proxy.target(&other);
            proxy.drop_connections();
        },
        || {
            proxy.target(&server);
            proxy.drop_connections();
        },
    );
    crew.end();
}

/// The server has executed no mark of this client before. The lock of the job is of the same kind.
#[test]
fn a_missing_permission_does_not_end_the_first_mark_of_a_job() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let locks = patient().node(proxy.url()).lease(LONG).unavailable_after(SOON).build().unwrap();
    let ran = thread::scope(|scope| {
        locks.once("job").run(|_| {
            proxy.on_each("*", Act::Error("NOPERM No permissions to access a key".to_owned()));
            let refused = proxy.count("*") + 5;
            scope.spawn({
                let proxy = &proxy;
                move || {
                    proxy.wait_count("*", refused, SOON);
                    proxy.heal();
                }
            });
            Ok::<_, Error>(7)
        })
    });
    assert_eq!(ran, Ok(RunOutcome::Ran(7)));
    assert!(locks.once("job").is_done().unwrap());
}

#[test]
fn calls_for_a_key_that_is_refused_do_not_shorten_those_for_others() {
    let server = Server::start();
    let user = |rules: &[&str]| server.ask::<()>(cmd("ACL").arg("SETUSER").arg("locks").arg(rules));
    user(&["on", "nopass", "~*", "&*", "+@all"]);
    let url = format!("redis://locks:any@{}/", server.addr());
    let locks = patient().node(url).unavailable_after(OUTAGE).build().unwrap();
    let [one, other] = ["one", "other"].map(|name| locks.mutex(name));
    one.lock().unwrap().unlock().unwrap();
    let allow = |pattern: &str| user(&["resetkeys", pattern]);
    allow("~*other*");
    // This call takes up all the time that calls for its key may be unavailable.
    assert!(one.lock().unwrap_err().is_unavailable());
    allow("~none");
    let asked = Stopwatch::start();
    assert!(other.lock().unwrap_err().is_unavailable());
    assert!(asked.elapsed() >= OUTAGE, "{:?}", asked.elapsed());
    allow("~*");
    one.lock().unwrap().unlock().unwrap();
}

/// A proxy or a server that knows no script, even one that it was just sent.
#[test]
fn a_server_that_knows_no_script_holds_up_no_call() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let locks = patient().node(proxy.url()).unavailable_after(Duration::ZERO).build().unwrap();
    proxy.on_each("*", Act::Error("NOSCRIPT No matching script.".to_owned()));
    for error in [
        locks.semaphore("a", 2).try_acquire().map(drop).unwrap_err(),
        locks.queue("tasks").push("body").map(drop).unwrap_err(),
    ] {
        assert!(error.to_string().contains("NOSCRIPT"), "{error}");
    }
    proxy.heal();
    locks.queue("tasks").push("body").unwrap();
}
