//! The proof that a kind of lock needs no change of acquire, lease, quorum and node: a counting permit on one node, in this file and one script. It has
//! none of what only some kinds have: no fences, and no queue on the server.

use std::sync::LazyLock;
use std::time::Duration;

use super::*;
use crate::acquire::Wait;
use crate::key::Key;
use crate::lock::handle::Handle;
use crate::observer::LockKind;
use crate::options::{self, LockOptions, Mode};
use crate::protocol::reply::{Acquired, Extended, Holders, Released};
use crate::protocol::script::{Arg, Call, Purpose, Script};
use crate::protocol::{AcquireArgs, BEHIND, Protocol, ReleaseArgs, TypedCall, millis};
use crate::token::LockId;

static PERMIT: LazyLock<Script> = LazyLock::new(|| {
    let source = include_str!("permit.lua");
    Script::new("acquire", source, None, 0)
});

#[derive(Debug)]
struct Permit {
    key: Key,
    at_most: u64,
}

impl Permit {
    fn call<R>(&self, operation: &str, purpose: Purpose, id: Option<&LockId>, lease: Duration) -> TypedCall<R> {
        let token = id.map_or("", LockId::as_str);
        let args = [Arg::Text(operation), Arg::Text(token), Arg::Number(millis(lease)), Arg::Number(self.at_most)];
        Call::new(&PERMIT, purpose, id, lease.max(BEHIND), &[self.key.as_str()], &args).into()
    }
}

impl Protocol for Permit {
    fn acquire(&self, args: &AcquireArgs<'_>) -> TypedCall<Acquired> {
        self.call("acquire", Purpose::Acquire, Some(args.id), args.lease)
    }

    fn extend(&self, id: &LockId, lease: Duration) -> TypedCall<Extended> {
        self.call("extend", Purpose::Other, Some(id), lease)
    }

    fn release(&self, args: &ReleaseArgs<'_>) -> TypedCall<Released> {
        self.call("release", Purpose::Release, args.id, Duration::ZERO)
    }

    fn inspect(&self) -> TypedCall<Holders> {
        self.call("inspect", Purpose::Other, None, Duration::ZERO)
    }

    fn kind(&self) -> options::Kind {
        options::Kind { name: "permit", mode: Mode::Shared }
    }

    fn shown(&self) -> LockKind {
        LockKind::Semaphore
    }
}

/// A lease that ends soon where it is not renewed.
const SHORT: Duration = Duration::from_millis(600);

fn permits(locks: &Redlock) -> Handle<Permit> {
    let options = LockOptions { lease: SHORT, ..LockOptions::default() };
    let client = Arc::clone(locks.inner());
    Handle::new(client, Key::new("", KEY, 100), options.into(), |key| Permit { key, at_most: 2 })
}

fn start() -> (Server, Redlock) {
    let server = Server::start();
    let locks = Redlock::open(server.url()).unwrap();
    (server, locks)
}

#[test]
fn a_permit_is_held_by_two_and_renewed() {
    let (server, locks) = start();
    let elsewhere = Redlock::open(server.url()).unwrap();
    let (here, there) = (permits(&locks), permits(&elsewhere));
    let first = here.acquire(Wait::Forever).unwrap();
    let second = there.acquire(Wait::Forever).unwrap();
    assert!(here.acquire(Wait::No).unwrap_err().is_busy());
    assert!(first.fencing_token().unwrap_err().to_string().contains("it is a permit"));
    // Two leases later both are held still, and no one else came in.
    let outlasted = SystemClock.now().after(SHORT * 2);
    while SystemClock.now() < outlasted {
        assert!(here.acquire(Wait::No).is_err());
        SystemClock.sleep(SHORT / 20);
    }
    assert_eq!((first.check(), second.check()), (Ok(()), Ok(())));
    first.finish().unwrap();
    here.acquire(Wait::No).unwrap().finish().unwrap();
    second.finish().unwrap();
    assert!(here.inspect().unwrap().is_none());
}

#[test]
fn a_waiter_gets_what_another_gives_up_or_loses() {
    let (_server, locks) = start();
    let permits = permits(&locks);
    let first = permits.acquire(Wait::No).unwrap();
    let second = permits.acquire(Wait::No).unwrap();
    let waiter = thread::spawn({
        let permits = permits.clone();
        move || permits.acquire(Wait::Forever)
    });
    eventually("a thread waits", SOON, || permits.acquire(Wait::No).is_err());
    first.finish().unwrap();
    let third = waiter.join().unwrap().unwrap();
    assert_eq!(locks.unlock_all().unwrap().given_up.len(), 2);
    assert!(second.check().unwrap_err().is_lost() && third.check().unwrap_err().is_lost());
    assert!(permits.inspect().unwrap().is_none());
}

#[test]
fn never_more_than_two_of_many_threads_hold_a_permit() {
    let (_server, locks) = start();
    let permits = permits(&locks);
    let (inside, most) = (AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..5 {
                    let lease = permits.acquire(Wait::Forever).unwrap();
                    most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    SystemClock.sleep(Duration::from_millis(2));
                    inside.fetch_sub(1, Ordering::SeqCst);
                    lease.finish().unwrap();
                }
            });
        }
    });
    assert_eq!(most.load(Ordering::SeqCst), 2);
}
