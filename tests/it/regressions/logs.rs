use std::thread;
use std::time::Duration;

use log::Level;
use redlock_tests::{Proxy, eventually};

use crate::handover::rig::{Rig, SOON, brisk, ms};
use crate::logged::{listen, said_of as said};

fn count(key: &str, level: Level, words: &str) -> usize {
    said(key).iter().filter(|(at, text)| *at == level && text.contains(words)).count()
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
    assert_eq!(counts, [2, 1], "{:#?}", said(key));
}

#[test]
fn a_deleted_lock_that_only_the_release_finds_is_logged_once() {
    listen();
    let key = "logged:deleted";
    let rig = Rig::start(1);
    let guard = rig.client().mutex(key).lock().unwrap();
    assert!(rig.servers[0].del(key));
    drop(guard);
    eventually("the release finds the loss", SOON, || !said(key).is_empty());
    assert_eq!(count(key, Level::Warn, "was lost"), 1, "{:#?}", said(key));
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
    assert_eq!(count(key, Level::Warn, "cannot be reached"), 1, "{:#?}", said(key));
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
        assert_eq!(count(key, Level::Warn, "cannot be reached"), nth, "{:#?}", said(key));
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
    assert_eq!(said(key).len(), 1, "{:#?}", said(key));
}
