//! Waits against real servers.
//!
//! 1. This module: notifications that arrive.
//! 2. `breaks.rs`: connections that break, and servers that are down.
//! 3. `refusals.rs`: users without the permission to subscribe.
//! 4. `endings.rs`: closing, idle connections, and ended waits.
//! 5. `reading.rs`: scripted connections, without a server.

mod breaks;
mod endings;
mod reading;
mod refusals;

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use redlock_tests::{Server, eventually};

use super::*;
use crate::clock::{Clock, SystemClock};
use crate::handover::listener::waiter_table::WaiterTable;
use crate::options::ClientOptions;

impl WaiterTable {
    /// Takes a notification that arrived, without waiting.
    fn take(&mut self, number: u64) -> Option<Notification> {
        self.waits.get_mut(&number)?.notifications.pop_front()
    }
}

impl ListenerWait {
    fn take(&self) -> Option<Notification> {
        self.listener.waiters.with(|table, _| table.take(self.number))
    }
}

const SOON: Duration = Duration::from_secs(10);
const TIMEOUT: Duration = Duration::from_millis(250);

fn now() -> Tick {
    SystemClock.now()
}

fn soon() -> Tick {
    now().after(SOON)
}

fn listener_with(urls: impl Iterator<Item = String>, on_late_grant: OnLateGrant) -> Arc<Listener> {
    let settings = ClientOptions { node_timeout: TIMEOUT, ..ClientOptions::default() };
    Listener::new(Arc::new(crate::tests::quorum(urls, settings, Arc::new(SystemClock))), on_late_grant)
}

fn listener_of(urls: impl Iterator<Item = String>) -> Arc<Listener> {
    listener_with(urls, Box::new(|_, _| {}))
}

fn listener(url: String) -> Arc<Listener> {
    listener_of(std::iter::once(url))
}

/// Begins a wait, and waits until it knows its subscription.
fn wait(listener: &Arc<Listener>) -> (ListenerWait, Subscription) {
    let wait = listener.begin();
    let subscription = connected(&wait);
    (wait, subscription)
}

fn connected(wait: &ListenerWait) -> Subscription {
    let until = soon();
    loop {
        if let Some(subscription) = wait.subscription() {
            return subscription;
        }
        assert_eq!(wait.sleep(until, &Cancelling::default()), Woken::Connected);
    }
}

fn publish(server: &Server, channel: &str, text: &str) -> u64 {
    server.ask(redis::cmd("PUBLISH").arg(channel).arg(text))
}

/// Pushes a grant whose fencing token is the number of the wait. Returns true if a connection received it.
fn notify(server: &Server, subscription: &Subscription, number: u64) -> bool {
    let Subscription { channel, .. } = subscription;
    publish(server, channel, &format!("{channel}/{number} {number} 300 0123456789abcdef0123456789abcdef k")) == 1
}

fn fence(woken: Woken) -> u64 {
    match woken {
        Woken::Notified(notification) => notification.fence,
        other => panic!("{other:?}"),
    }
}

fn kill_pushes(server: &Server) -> u64 {
    server.ask(redis::cmd("CLIENT").arg("KILL").arg("TYPE").arg("pubsub"))
}

fn subscribers(server: &Server) -> usize {
    server.ask::<Vec<String>>(redis::cmd("PUBSUB").arg("CHANNELS").arg("redlock-sync:*")).len()
}

#[test]
fn a_lone_wait_hears_its_push() {
    let server = Server::start();
    let listener = listener(server.url());
    let (wait, subscription) = wait(&listener);
    let place = format!(":{}:", std::process::id());
    assert!(subscription.channel.starts_with("redlock-sync:") && subscription.channel.contains(&place));
    assert_eq!(wait.sleep(now().after(Duration::from_millis(20)), &Cancelling::default()), Woken::Timer);
    assert!(notify(&server, &subscription, wait.number));
    let Woken::Notified(notification) = wait.sleep(soon(), &Cancelling::default()) else { panic!() };
    let ms = Duration::from_millis;
    let random = Some("0123456789abcdef0123456789abcdef".to_owned());
    let told = Notification { fence: wait.number, time: ms(300), random, key: Some("k".to_owned()) };
    assert_eq!(notification, told);
    assert_eq!(wait.sleep(now(), &Cancelling::default()), Woken::Timer);
}

#[test]
fn pushes_that_come_while_the_thread_is_busy_are_kept() {
    let server = Server::start();
    let listener = listener(server.url());
    let (one, subscription) = wait(&listener);
    let other = listener.begin();
    assert_ne!(one.number, other.number);
    publish(&server, &subscription.channel, "no notification");
    publish(
        &server,
        &subscription.channel,
        &format!("redlock-sync:0/{} 1 300 0123456789abcdef0123456789abcdef k", one.number),
    );
    assert!(notify(&server, &subscription, other.number));
    assert!(notify(&server, &subscription, one.number));
    assert_eq!(fence(one.sleep(soon(), &Cancelling::default())), one.number);
    // The thread that read the notification has kept it.
    assert_eq!(other.take().map(|notification| notification.fence), Some(other.number));
    assert_eq!(other.take(), None);
}

/// Starts threads that sleep. Each sends its number when it gets a notification, and sleeps again.
fn crowd(listener: &Arc<Listener>, size: usize, woken: &mpsc::Sender<(u64, Tick)>) -> Vec<thread::JoinHandle<()>> {
    (0..size)
        .map(|_| {
            let (listener, woken) = (Arc::clone(listener), woken.clone());
            let run = move || {
                let (wait, _) = wait(&listener);
                woken.send((wait.number, now())).unwrap();
                loop {
                    match wait.sleep(Tick::NEVER, &Cancelling::default()) {
                        Woken::Notified(notification) => {
                            assert_eq!(notification.fence, wait.number);
                            woken.send((wait.number, now())).unwrap();
                        }
                        Woken::Closed => return,
                        other => panic!("{other:?}"),
                    }
                }
            };
            thread::Builder::new().stack_size(256 * 1024).spawn(run).unwrap()
        })
        .collect()
}

#[test]
fn a_crowd_in_which_each_hears_its_own() {
    const CROWD: usize = 512;
    let server = Server::start();
    let listener = listener(server.url());
    let (tell, told) = mpsc::channel();
    let threads = crowd(&listener, CROWD, &tell);
    let mut numbers: Vec<u64> = told.iter().take(CROWD).map(|(number, _)| number).collect();
    let subscription = listener.begin().subscription().unwrap();
    for _ in 0..2 {
        fastrand::shuffle(&mut numbers);
        for number in &numbers {
            assert!(notify(&server, &subscription, *number));
        }
        let mut heard: Vec<u64> = told.iter().take(CROWD).map(|(number, _)| number).collect();
        heard.sort_unstable();
        numbers.sort_unstable();
        assert_eq!(heard, numbers);
    }
    listener.close();
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(subscribers(&server), 0);
}
