//! Keeps what the library logs in this process: by thread, and for locks whose names begin with `logged:`. The tests
//! show which events are logged, and how often.

use std::cell::RefCell;
use std::sync::{LazyLock, Mutex};
use std::thread;
use std::time::Duration;

use log::{Level, LevelFilter, Log, Metadata, Record};
use redlock_tests::{Proxy, eventually};

use crate::handover::rig::{Rig, SOON, brisk, ms};

thread_local!(static BY_THREAD: RefCell<Vec<(Level, String)>> = const { RefCell::new(Vec::new()) });

static BY_NAME: Mutex<Vec<(Level, String)>> = Mutex::new(Vec::new());

struct Keeper;

impl Log for Keeper {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        let line = (record.level(), record.args().to_string());
        if line.1.contains("logged:") {
            BY_NAME.lock().unwrap().push(line.clone());
        }
        BY_THREAD.with_borrow_mut(|lines| lines.push(line));
    }

    fn flush(&self) {}
}

/// Installs the logger that keeps the messages. A process has one logger, so all tests share this one.
pub(crate) fn listen() {
    static INSTALLED: LazyLock<()> = LazyLock::new(|| {
        log::set_logger(&Keeper).unwrap();
        log::set_max_level(LevelFilter::Debug);
    });
    LazyLock::force(&INSTALLED);
}

/// Runs `f`, and returns what this thread logged meanwhile as `LEVEL: text`.
pub(crate) fn logged<R>(f: impl FnOnce() -> R) -> (R, Vec<String>) {
    listen();
    BY_THREAD.take();
    let result = f();
    (result, BY_THREAD.take().into_iter().map(|(level, text)| format!("{level}: {text}")).collect())
}

/// The log messages about a lock whose name begins with `logged:`.
pub(crate) fn said_of(key: &str) -> Vec<(Level, String)> {
    let all = BY_NAME.lock().unwrap();
    all.iter().filter(|(_, text)| text.contains(&format!("`{key}`"))).cloned().collect()
}

fn count(key: &str, level: Level, words: &str) -> usize {
    said_of(key).iter().filter(|(at, text)| *at == level && text.contains(words)).count()
}

#[test]
fn trouble_with_a_renewal_and_a_loss_are_logged_once_each() {
    listen();
    let key = "logged:lease";
    let rig = Rig::start(1);
    let guard = brisk(&rig.proxy_urls(), ms(1500)).mutex(key).lock().unwrap();
    rig.proxies.iter().for_each(Proxy::refuse);
    eventually("the failed renewal is logged", SOON, || count(key, Level::Warn, "not confirmed") == 1);
    rig.proxies.iter().for_each(Proxy::heal);
    eventually("the successful renewal is logged", SOON, || count(key, Level::Info, "renewed again") == 1);
    rig.proxies.iter().for_each(Proxy::refuse);
    eventually("the loss is logged", SOON, || count(key, Level::Warn, "was lost") == 1);
    assert!(guard.check().is_err());
    assert!(guard.unlock().unwrap_err().is_lost());
    let counts = ["not confirmed", "was lost"].map(|words| count(key, Level::Warn, words));
    assert_eq!(counts, [2, 1], "{:#?}", said_of(key));
}

#[test]
fn a_deleted_lock_that_only_the_release_finds_is_logged_once() {
    listen();
    let key = "logged:deleted";
    let rig = Rig::start(1);
    let guard = rig.client().mutex(key).lock().unwrap();
    assert!(rig.servers[0].del(key));
    drop(guard);
    eventually("the release finds the loss", SOON, || !said_of(key).is_empty());
    assert_eq!(count(key, Level::Warn, "was lost"), 1, "{:#?}", said_of(key));
}

#[test]
fn an_outage_is_logged_at_once_and_once() {
    listen();
    let key = "logged:outage";
    let rig = Rig::start(1);
    rig.proxies.iter().for_each(Proxy::refuse);
    let locks =
        redlock_tests::patient().nodes(rig.proxy_urls()).unavailable_after(Duration::from_secs(60)).build().unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| locks.mutex(key).lock().map(drop));
        eventually("the outage is logged", SOON, || count(key, Level::Warn, "cannot be reached") == 1);
        assert!(!waiter.is_finished(), "the outage was logged only after the call");
        rig.proxies.iter().for_each(Proxy::heal);
        waiter.join().unwrap().unwrap();
    });
    assert_eq!(count(key, Level::Warn, "cannot be reached"), 1, "{:#?}", said_of(key));
}

/// An outage that `try_lock` finds is logged too.
#[test]
fn each_outage_is_logged() {
    listen();
    let key = "logged:outages";
    let rig = Rig::start(1);
    let lock = brisk(&rig.proxy_urls(), ms(1500)).mutex(key);
    for nth in 1..=3 {
        rig.proxies.iter().for_each(Proxy::refuse);
        for _ in 0..20 {
            assert!(lock.try_lock().is_err_and(|error| error.is_unavailable()));
        }
        assert_eq!(count(key, Level::Warn, "cannot be reached"), nth, "{:#?}", said_of(key));
        rig.proxies.iter().for_each(Proxy::heal);
        eventually("the server answers again", SOON, || lock.try_lock().is_ok_and(|guard| guard.unlock().is_ok()));
    }
}

#[test]
fn a_deleted_lock_is_logged_once() {
    listen();
    let key = "logged:taken-away";
    let rig = Rig::start(1);
    let guard = brisk(&rig.urls(), ms(900)).mutex(key).lock().unwrap();
    assert!(rig.servers[0].del(key));
    eventually("the loss is noticed", SOON, || guard.check().is_err());
    assert!(guard.unlock().unwrap_err().is_lost());
    assert_eq!(said_of(key).len(), 1, "{:#?}", said_of(key));
}
