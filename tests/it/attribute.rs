//! Annotated functions on a real server.
//!
//! 1. `policies`: each policy with each return type.
//! 2. `shapes`: each shape of function, in both editions.
//! 3. `callers`: the caller's location in a function with `#[track_caller]`.
//! 4. `kinds`: each kind of lock, several keys, and values that are expressions.
//! 5. `once`: functions that run once for each key.
//! 6. `from_environment`: the default client, in its own process.
//! 7. This file: when the body runs, and when the lock is released.

mod callers;
mod from_environment;
mod kinds;
mod once;
mod policies;
#[path = "../ui/pass/shapes.rs"]
mod shapes;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::LazyLock;
use std::thread;
use std::time::Duration;

use redlock_sync::{Error, LockKey, Redlock, assert_locked, distributed_lock, key};
use redlock_tests::{Server, eventually};

use crate::logged::logged;

/// The default client of this binary. Each test uses different keys.
static DEFAULT: LazyLock<(Server, Redlock)> = LazyLock::new(|| {
    let server = Server::start();
    let settings = redlock_tests::patient().node(server.url());
    // Some functions have a lease of 3 s, which this node timeout allows.
    let locks = settings.node_timeout(Duration::from_secs(2)).build().unwrap();
    Redlock::set_default(locks.clone()).unwrap();
    (server, locks)
});

fn server() -> &'static Server {
    &DEFAULT.0
}

fn locks() -> &'static Redlock {
    &DEFAULT.1
}

fn is_free(key: &str) -> bool {
    server().get(key).is_none()
}

/// Runs `f` while another holder has the key.
fn while_busy<R>(key: &str, f: impl FnOnce() -> R) -> R {
    let guard = locks().mutex(key).try_lock().unwrap().into_send();
    let result = f();
    thread::spawn(move || guard.unlock()).join().unwrap().unwrap();
    result
}

/// Gives the key to another holder while the lock is held.
fn steal(key: &str) {
    assert!(server().get(key).is_some(), "`{key}` is not held");
    server().set(key, "another holder's");
}

fn panic_message(f: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(f)).expect_err("it should panic");
    panic.downcast_ref::<String>().cloned().unwrap_or_else(|| panic.downcast_ref::<&str>().unwrap().to_string())
}

#[test]
fn every_shape_of_function_works() {
    shapes::run(locks());
}

#[test]
fn every_shape_of_function_works_in_edition_2021() {
    let _ = locks();
    redlock_edition_2021::shapes::run(locks());
}

#[distributed_lock("busy:{id}", wait = "0s")]
fn once(id: u64, ran: &mut bool) -> Result<u64, Error> {
    *ran = true;
    Ok(id)
}

#[test]
fn the_body_does_not_run_when_busy() {
    let mut ran = false;
    while_busy("busy:1", || {
        assert!(once(1, &mut ran).unwrap_err().is_busy());
        assert!(once(2, &mut false).is_ok());
    });
    assert!(!ran);
    assert_eq!(once(1, &mut ran), Ok(1));
    assert!(ran);
}

#[distributed_lock("wait:{id}", wait = "10s")]
fn waits(id: u64) -> Result<(), Error> {
    Ok(())
}

#[test]
fn it_waits_for_as_long_as_it_may() {
    let guard = locks().mutex("wait:1").lock().unwrap().into_send();
    let holder = thread::spawn(move || {
        thread::sleep(Duration::from_millis(100));
        guard.unlock().unwrap();
    });
    waits(1).unwrap();
    holder.join().unwrap();
}

enum Path {
    Ok,
    Err,
    Early,
    Question,
    Panic,
}

#[distributed_lock("path")]
fn leaves_by(path: &Path) -> Result<u8, Error> {
    assert_locked!("path");
    assert!(!is_free("path"));
    match path {
        Path::Ok => {}
        Path::Err => return Err(Error::Closed),
        Path::Early => return Ok(1),
        Path::Question => Err(Error::Closed)?,
        Path::Panic => panic!("on purpose"),
    }
    Ok(0)
}

#[test]
fn the_lock_is_released_on_every_path() {
    let _ = locks();
    assert_eq!(leaves_by(&Path::Ok), Ok(0));
    assert!(is_free("path"));
    assert_eq!(leaves_by(&Path::Err), Err(Error::Closed));
    assert!(is_free("path"));
    assert_eq!(leaves_by(&Path::Early), Ok(1));
    assert!(is_free("path"));
    assert_eq!(leaves_by(&Path::Question), Err(Error::Closed));
    assert!(is_free("path"));
    assert_eq!(panic_message(|| drop(leaves_by(&Path::Panic))), "on purpose");
    eventually("the lock is free", Duration::from_secs(20), || is_free("path"));
    assert_eq!(leaves_by(&Path::Ok), Ok(0));
}

#[distributed_lock("nested:{id}")]
fn outer(id: u8, next: Option<u8>) -> Result<u64, Error> {
    let inside = next.map_or_else(|| inner(id), |next| outer(next, None))?;
    assert!(!is_free(&key!("nested:{id}")), "the inner call released the lock");
    Ok(inside)
}

#[distributed_lock("nested:{id}", guard = lock)]
fn inner(id: u8) -> Result<u64, Error> {
    lock.fencing_token()
}

#[test]
fn calls_nest_with_the_same_key() {
    let _ = locks();
    let first = outer(1, None).unwrap();
    assert!(is_free("nested:1"));
    assert!(outer(1, None).unwrap() > first);
}

#[test]
fn calls_nest_with_different_keys() {
    let _ = locks();
    outer(2, Some(3)).unwrap();
    assert!(is_free("nested:2") && is_free("nested:3"));
}

#[distributed_lock("nested:mutex", kind = mutex)]
fn does_not_nest(again: bool) -> Result<(), Error> {
    if again { does_not_nest(false) } else { Ok(()) }
}

#[test]
fn a_mutex_does_not_nest() {
    let _ = locks();
    does_not_nest(false).unwrap();
    assert_eq!(does_not_nest(true), Err(Error::WouldDeadlock { key: "nested:mutex".into() }));
    assert!(is_free("nested:mutex"));
}

#[distributed_lock("pair:{x}:{y}", wait = "0s")]
fn pair(x: &str, y: &str) -> Result<(), Error> {
    Ok(())
}

#[test]
fn two_parameters_do_not_collide() {
    let (x, y, z) = ("a:b", "c", "b:c");
    assert_eq!(key!("pair:{x}:{y}"), "pair:a%3Ab:c");
    while_busy("pair:a:b:c", || {
        assert!(pair("a", z).unwrap_err().is_busy());
        pair(x, y).unwrap();
    });
    while_busy("pair:a%3Ab:c", || {
        assert!(pair(x, y).unwrap_err().is_busy());
        pair("a", z).unwrap();
    });
}

#[distributed_lock("mutated:{id}")]
fn mutates(mut id: u64) -> Result<u64, Error> {
    assert!(!is_free("mutated:1"));
    id += 1;
    assert_locked!("mutated:1");
    assert!(is_free("mutated:2"));
    Ok(id)
}

#[test]
fn the_key_is_computed_once_before_the_body() {
    let _ = locks();
    assert_eq!(mutates(1), Ok(2));
    assert!(is_free("mutated:1"));
}

#[distributed_lock("lost:{id}")]
fn loses(id: &str, result: Result<u8, Error>) -> Result<u8, Error> {
    steal(&key!("lost:{id}"));
    result
}

#[test]
fn a_lost_lease_is_told() {
    let _ = locks();
    assert!(loses("ok", Ok(1)).unwrap_err().is_lost());
    assert_eq!(server().get("lost:ok").as_deref(), Some("another holder's"), "the next holder's key changed");
    let (result, logged) = logged(|| loses("err", Err(Error::Closed)));
    assert_eq!(result, Err(Error::Closed), "the loss replaced the body's error");
    assert!(logged.iter().any(|line| line.starts_with("WARN: lock `lost:err` was lost")), "{logged:?}");
    assert_eq!(server().get("lost:err").as_deref(), Some("another holder's"));
}

#[distributed_lock("unconfirmed:{id}", client = locks)]
fn no_server_confirms(id: u8, server: &Server, locks: &Redlock) -> Result<u8, Error> {
    server.kill();
    Ok(id)
}

#[test]
fn an_unconfirmed_release_is_only_logged() {
    let server = Server::start();
    let locks = redlock_tests::open(server.url());
    let (result, logged) = logged(|| no_server_confirms(5, &server, &locks));
    assert_eq!(result, Ok(5));
    assert!(logged.iter().any(|line| line.starts_with("WARN: release of `unconfirmed:5`")), "{logged:?}");
}

#[distributed_lock(
    "settings:{id}", lease = "7s", renew = false, min_hold = "2s", max_hold = "6s", prefix = PREFIX, guard = lock
)]
fn settings(id: u8) -> Result<Duration, Error> {
    assert_eq!(lock.key(), "app:settings:5");
    Ok(lock.remaining())
}

/// The shortest text that compiles: `tests/ui/fail/lease_too_short.rs` has the next shorter one.
#[distributed_lock("shortest", wait = "0s", lease = "265ms", max_hold = "265ms", client = client)]
fn shortest(client: &Redlock) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock("shortest", wait = "0s", lease = Duration::from_millis(264), client = client)]
fn too_short(client: &Redlock) -> Result<(), Error> {
    Ok(())
}

/// The macro has the shortest lease as a number of its own.
#[test]
fn the_shortest_lease_is_that_of_the_library() {
    let down = Redlock::open("redis://127.0.0.1:1/").unwrap();
    assert!(too_short(&down).unwrap_err().to_string().contains("is too short"));
    assert!(shortest(&down).unwrap_err().is_unavailable(), "no server listens there");
}

const PREFIX: &str = "app:";

#[test]
fn settings_reach_the_lock() {
    let _ = locks();
    let remaining = settings(5).unwrap();
    assert!(remaining < Duration::from_secs(6) && remaining > Duration::from_secs(3), "{remaining:?}");
    assert!(!is_free("app:settings:5"), "the lock was released before its min_hold");
}

/// Whether the lock's fence counter exists.
fn has_fence(key: &str) -> bool {
    server().get(&format!("{{{key}}}:fence")).is_some()
}

#[distributed_lock("fenced:reentrant", fenced = true)]
fn fenced_reentrant() -> Result<bool, Error> {
    Ok(has_fence("fenced:reentrant"))
}

#[distributed_lock("fenced:mutex", kind = mutex, fenced = true, guard = lock)]
fn fenced_mutex() -> Result<bool, Error> {
    lock.check()?;
    Ok(has_fence("fenced:mutex"))
}

#[distributed_lock("fenced:lazy", guard = lock)]
fn lazily_fenced() -> Result<(bool, bool), Error> {
    let before = has_fence("fenced:lazy");
    lock.fencing_token()?;
    Ok((before, has_fence("fenced:lazy")))
}

#[test]
fn a_fence_comes_with_the_lock_if_it_is_asked_for() {
    let _ = locks();
    assert_eq!(fenced_reentrant(), Ok(true));
    assert_eq!(fenced_mutex(), Ok(true));
    assert_eq!(lazily_fenced(), Ok((false, true)), "the lock was fenced too early, or not at all");
}

#[derive(LockKey)]
#[lock_key("ref:{id}:{name}")]
struct OrderRef {
    id: u64,
    name: String,
}

#[test]
fn a_derived_key_is_that_of_the_template() {
    let order = OrderRef { id: 7, name: "x:y%".into() };
    let guard = locks().mutex(&order).lock().unwrap();
    let (id, name) = (order.id, &order.name);
    assert_eq!(guard.key(), key!("ref:{id}:{name}"));
    assert_eq!(guard.key(), "ref:7:x:y%");
}

#[test]
fn assert_locked_knows_what_this_thread_holds() {
    let other = redlock_tests::open(server().url());
    let id = 5;
    let said = panic_message(|| assert_locked!("assert:{id}"));
    assert!(said.starts_with("assertion failed: this thread does not hold lock `assert:5`"), "{said}");

    let guard = locks().mutex("assert:5").lock().unwrap();
    assert_locked!("assert:{id}");
    assert_locked!("assert:{id}", client = locks());
    panic_message(|| assert_locked!("assert:{id}", client = other));
    thread::spawn(move || panic_message(|| assert_locked!("assert:{id}"))).join().unwrap();
    let guard = guard.into_send();
    panic_message(|| assert_locked!("assert:{id}"));
    guard.unlock().unwrap();

    let guard = locks().reentrant_mutex("assert:5").lock().unwrap();
    assert_locked!("assert:{id}");
    steal("assert:5");
    guard.extend(Duration::from_secs(60)).unwrap_err();
    let said = panic_message(|| assert_locked!("assert:{id}"));
    assert!(said.contains("was lost"), "{said}");
}

#[test]
fn the_default_client_is_set_once() {
    let _ = locks();
    let other = Redlock::open("redis://127.0.0.1:1/").unwrap();
    assert!(matches!(Redlock::set_default(other), Err(Error::Config { .. })));
    Redlock::default_client().unwrap().mutex("default:1").lock().unwrap().unlock().unwrap();
}
