//! Observers: the events, their order, and their number.

use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use redlock_sync::{Error, Event, LockKind, ObservedLock, Observer, Redlock, distributed_lock};

use crate::rig::ms;
use redlock_tests::eventually;

use crate::place::{InMemory, Place, each_place};

/// An observer that is a function.
pub(crate) struct Calls<F>(pub(crate) F);

impl<F: Fn(&Event<'_>) + Send + Sync> Observer for Calls<F> {
    fn event(&self, event: &Event<'_>) {
        (self.0)(event);
    }
}

/// Records the events.
#[derive(Default)]
struct Journal {
    told: Mutex<Vec<String>>,
}

impl Journal {
    fn told(&self) -> Vec<String> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The events without renewals, whose times vary.
    fn told_of_calls(&self) -> Vec<String> {
        self.told().into_iter().filter(|told| !told.starts_with("renew")).collect()
    }

    fn count(&self, begin: &str) -> usize {
        self.told().iter().filter(|told| told.starts_with(begin)).count()
    }
}

impl Observer for Journal {
    fn event(&self, event: &Event<'_>) {
        let of = |lock: ObservedLock<'_>| format!("{} {} {}", lock.label, lock.key, lock.kind);
        let told = match *event {
            Event::Wanted { lock, .. } => format!("wanted {}", of(lock)),
            Event::Acquired { lock, .. } => format!("acquired {}", of(lock)),
            Event::NotAcquired { lock, error, .. } => format!("not acquired {}: {}", of(lock), error.is_busy()),
            Event::Renewed { lock, remaining, .. } => {
                assert!(remaining > Duration::ZERO);
                format!("renewed {}", of(lock))
            }
            Event::RenewalFailed { lock, error, .. } => format!("renewal failed {}: {error}", of(lock)),
            Event::Lost { lock, reason, .. } => format!("lost {}: {reason:?}", of(lock)),
            Event::Released { lock, confirmed, .. } => format!("released {}: {confirmed}", of(lock)),
            Event::Job { queue, id, attempt, verdict, waited, .. } => {
                assert!(id != "c" || waited >= ms(60), "{waited:?}");
                format!("job {queue} {id} {attempt} {verdict}")
            }
            Event::NodeDown { node, .. } => format!("down {node}"),
            Event::NodeUp { node, after, .. } => {
                assert!(after > Duration::ZERO);
                format!("up {node}")
            }
            _ => format!("{event:?}"),
        };
        self.told.lock().unwrap_or_else(PoisonError::into_inner).push(told);
    }
}

fn watched<P: Place>(nodes: &[P]) -> (Redlock, Arc<Journal>) {
    let journal = Arc::new(Journal::default());
    let settings = Redlock::builder().restart_guard(false).key_prefix("shop:").lease(P::LEASE);
    (P::client(nodes, settings.observer(Arc::clone(&journal))), journal)
}

fn each_call_is_told<P: Place>() {
    let nodes = P::start(1);
    let (locks, journal) = watched(&nodes);
    let other = P::client(&nodes, Redlock::builder().restart_guard(false).key_prefix("shop:"));
    locks.mutex("a").lock().unwrap().unlock().unwrap();
    let theirs = other.mutex("a").lock().unwrap();
    assert!(locks.mutex("a").try_lock().err().unwrap().is_busy());
    theirs.unlock().unwrap();
    locks.mutex("a").lock().unwrap().unlock().unwrap();
    let a = " shop:a mutex";
    let told = ["wanted", "acquired", "released", "wanted", "not acquired", "wanted", "acquired", "released"];
    let ends = ["", "", ": true", "", ": true", "", "", ": true"];
    let told: Vec<String> = told.iter().zip(ends).map(|(what, end)| format!("{what} {a}{end}")).collect();
    assert_eq!(journal.told(), told);
}

fn a_loss_is_told_once_and_is_no_release<P: Place>() {
    let nodes = P::start(1);
    let (locks, journal) = watched(&nodes);
    let guard = locks.mutex("a").lock().unwrap();
    nodes[0].until("the lock is renewed", || journal.count("renewed") > 0);
    nodes[0].del("shop:a");
    nodes[0].until("the loss is reported", || journal.count("lost") > 0);
    assert!(guard.unlock().unwrap_err().is_lost());
    let revoked = locks.mutex("b").lock().unwrap();
    locks.unlock_all().unwrap();
    drop(revoked);
    let told = journal.told_of_calls();
    let [_, _, lost, _, _, given_up] = &told[..] else { panic!("{told:?}") };
    assert_eq!((lost.as_str(), given_up.as_str()), ("lost  shop:a mutex: Deleted", "lost  shop:b mutex: Revoked"));
}

/// However a lock is handed from thread to thread, each acquisition has exactly one release.
fn acquisitions_and_releases_are_as_many<P: Place>() {
    let nodes = P::start(1);
    let (locks, journal) = watched(&nodes);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..20 {
                    locks.mutex("a").label("a").lock().unwrap().unlock().unwrap();
                }
            });
        }
    });
    for what in ["wanted a", "acquired a", "released a"] {
        assert_eq!(journal.count(what), 160, "{what}");
    }
    // A nested hold is no new acquisition.
    let (outer, inner) = (locks.reentrant_mutex("n").lock().unwrap(), locks.reentrant_mutex("n").lock().unwrap());
    inner.unlock().and(outer.unlock()).unwrap();
    assert_eq!((journal.count("acquired  shop:n"), journal.count("released  shop:n")), (1, 1));
    locks.multi_lock(["x", "y"]).label("pair").lock().unwrap().unlock().unwrap();
    assert_eq!((journal.count("acquired pair shop:"), journal.count("released pair shop:")), (2, 2));
    locks.semaphore("s", 2).label("permits").acquire().unwrap().release().unwrap();
    assert_eq!(journal.count("released permits shop:s semaphore"), 1);
    let prices = locks.rw_lock("r").label("prices");
    prices.read().unwrap().unlock().unwrap();
    prices.write().unwrap().unlock().unwrap();
    let of = |kind: LockKind| journal.count(&format!("released prices shop:r {kind}"));
    assert_eq!((of(LockKind::Read), of(LockKind::Write)), (1, 1));
}

#[test]
fn an_adopted_lock_is_a_new_acquisition() {
    let nodes = InMemory::start(1);
    let (locks, journal) = watched(&nodes);
    let token = locks.mutex("t").lock().unwrap().into_token().unwrap();
    locks.mutex("t").adopt(&token).unwrap().unlock().unwrap();
    assert_eq!((journal.count("acquired  shop:t"), journal.count("released  shop:t")), (2, 2));
}

fn guards_know_how_long_it_took<P: Place>() {
    let nodes = P::start(1);
    let (locks, _) = watched(&nodes);
    let guard = locks.mutex("a").lock().unwrap();
    thread::scope(|scope| {
        let other = scope.spawn(|| {
            let guard = locks.mutex("a").lock().unwrap();
            (guard.waited(), guard.held_for())
        });
        thread::sleep(ms(60));
        assert!(guard.held_for() >= ms(60));
        guard.unlock().unwrap();
        let (waited, held) = other.join().unwrap();
        assert!(waited > Duration::ZERO && held < waited + P::LEASE, "{waited:?} {held:?}");
    });
}

each_place!(
    each_call_is_told,
    a_loss_is_told_once_and_is_no_release,
    acquisitions_and_releases_are_as_many,
    guards_know_how_long_it_took,
);

/// One of several observers panics. This must not affect the other observers or the lock.
#[test]
fn a_panic_of_an_observer_is_caught() {
    let journal = Arc::new(Journal::default());
    let memory = redlock_sync::testing::Memory::new(1);
    let settings =
        Redlock::builder().observer(Calls(|_: &Event<'_>| panic!("on purpose"))).observer(Arc::clone(&journal));
    let locks = memory.build(settings).unwrap();
    let guard = locks.mutex("a").lock().unwrap();
    // A renewal is due after 10 s of the lease of 30 s.
    memory.advance(Duration::from_secs(12));
    eventually("the lock is renewed", Duration::from_secs(10), || journal.count("renewed") > 0);
    guard.check().unwrap();
    guard.unlock().unwrap();
    assert_eq!(journal.count("released"), 1);

    let _held = locks.mutex("b").lock().unwrap();
    memory.take_away(1);
    assert!(locks.mutex("a").try_lock().unwrap_err().is_unavailable());
    assert_eq!(journal.count("not acquired  a mutex: false"), 1);
    memory.advance(Duration::from_secs(12));
    let why = "renewal failed  b mutex: failed to renew `b`";
    eventually("a renewal fails", Duration::from_secs(10), || journal.count("renewal failed") > 0);
    assert!(journal.count(why) > 0, "{:?}", journal.told());
}

#[distributed_lock("stock:<item>:{shelf}", client = locks)]
fn annotated(locks: &Redlock, item: &str, shelf: u64) -> Result<String, Error> {
    Ok(format!("{item} {shelf}"))
}

#[test]
fn the_name_of_an_annotated_function_is_its_template() {
    let journal = Arc::new(Journal::default());
    let memory = redlock_sync::testing::Memory::new(1);
    let locks = memory.build(Redlock::builder().observer(Arc::clone(&journal))).unwrap();
    annotated(&locks, "tea", 7).unwrap();
    assert_eq!(journal.told()[1], "acquired stock:<item>:{shelf} stock:tea:7 mutex");
}

/// Each claim has exactly one event for its end.
#[test]
fn the_end_of_each_claim_is_told_and_servers_that_go_and_come() {
    let (server, journal) = (redlock_tests::Server::start(), Arc::new(Journal::default()));
    let settings = Redlock::builder().node(server.url()).node_timeout(ms(2000)).key_prefix("shop:");
    let locks = settings.observer(Arc::clone(&journal)).build().unwrap();
    let mails = locks.queue("mails").retry(redlock_sync::Retry::every(ms(1)).max_attempts(2));
    mails.push(redlock_sync::Task::new("body").id("a")).unwrap();
    mails.claim().unwrap().again_after(Duration::ZERO).unwrap();
    drop(mails.claim().unwrap());
    mails.claim().unwrap().retry("boom").unwrap();
    mails.push(redlock_sync::Task::new("body").id("b")).unwrap();
    mails.claim().unwrap().ack().unwrap();
    mails.push(redlock_sync::Task::new("body").id("c")).unwrap();
    thread::sleep(ms(60));
    let lost = mails.claim().unwrap();
    assert!(lost.waited() >= ms(60));
    assert!(mails.remove("c").unwrap());
    assert!(lost.ack().unwrap_err().is_lost());
    let jobs: Vec<String> =
        journal.told().into_iter().filter_map(|told| Some(told.strip_prefix("job ")?.into())).collect();
    let expected = ["a 1 again", "a 1 retry", "a 2 dead", "b 1 done", "c 1 lost"].map(|end| format!("mails {end}"));
    assert_eq!(jobs, expected);
    // One label can cover several queues.
    let one = locks.queue("mails:{7}").label("mails of one");
    one.push(redlock_sync::Task::new("body").id("d")).unwrap();
    one.claim().unwrap().ack().unwrap();
    assert!(journal.told().contains(&"job mails of one d 1 done".to_owned()), "{:?}", journal.told());

    server.kill();
    assert!(mails.try_claim().is_err());
    server.restart();
    let soon = Duration::from_secs(20);
    eventually("the server answers again", soon, || mails.try_claim().is_ok() && journal.count("up") == 1);
    let told = journal.told();
    let nodes: Vec<&String> = told.iter().filter(|told| told.starts_with("down") || told.starts_with("up")).collect();
    assert_eq!(nodes, [&format!("down {}", server.addr()), &format!("up {}", server.addr())]);
}
