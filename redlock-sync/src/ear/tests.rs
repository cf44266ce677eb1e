//! Waits against real servers.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use redlock_tests::{Proxy, Server, eventually, servers};

use super::*;
use crate::clock::{Clock, SystemClock};
use crate::config::Limits;

const SOON: Duration = Duration::from_secs(10);
const TIMEOUT: Duration = Duration::from_millis(250);

fn now() -> Tick {
    SystemClock.now()
}

fn soon() -> Tick {
    now().after(SOON)
}

fn ear_of(urls: impl Iterator<Item = String>) -> Arc<Ear> {
    let limits = Limits { node_timeout: TIMEOUT, ..Limits::default() };
    Ear::new(Arc::new(crate::tests::quorum(urls, limits, Arc::new(SystemClock))))
}

fn ear(url: String) -> Arc<Ear> {
    ear_of(std::iter::once(url))
}

/// A wait that knows where it listens.
fn wait(ear: &Arc<Ear>) -> (Wait, Place) {
    let wait = ear.begin();
    let place = connected(&wait);
    (wait, place)
}

fn connected(wait: &Wait) -> Place {
    let until = soon();
    loop {
        if let Some(place) = wait.place() {
            return place;
        }
        assert_eq!(wait.sleep(until), Woken::Connected);
    }
}

fn publish(server: &Server, channel: &str, text: &str) -> u64 {
    server.ask(redis::cmd("PUBLISH").arg(channel).arg(text))
}

/// Pushes a grant whose fence is the number of the wait; true if a connection received it.
fn push(server: &Server, place: &Place, number: u64) -> bool {
    let Place { channel, .. } = place;
    publish(server, channel, &format!("{channel}/{number} {number} 300 20 3 abc")) == 1
}

fn fence(woken: Woken) -> u64 {
    match woken {
        Woken::Push(pushed) => pushed.fence,
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
    let ear = ear(server.url());
    let (wait, place) = wait(&ear);
    assert_eq!(place.channel.len(), "redlock-sync:".len() + 16);
    assert_eq!(wait.sleep(now().after(Duration::from_millis(20))), Woken::Timer);
    assert!(push(&server, &place, wait.number()));
    let Woken::Push(pushed) = wait.sleep(soon()) else { panic!() };
    let ms = Duration::from_millis;
    let random = Some("abc".to_owned());
    assert_eq!(pushed, Pushed { fence: wait.number(), span: ms(300), age: ms(20), pauses: 3, random });
    assert_eq!(wait.sleep(now()), Woken::Timer);
}

#[test]
fn pushes_that_come_while_the_thread_is_busy_are_kept() {
    let server = Server::start();
    let ear = ear(server.url());
    let (one, place) = wait(&ear);
    let other = ear.begin();
    assert_ne!(one.number(), other.number());
    publish(&server, &place.channel, "neither a push");
    publish(&server, &place.channel, &format!("redlock-sync:0/{} 1 300 20 3 abc", one.number()));
    assert!(push(&server, &place, other.number()));
    assert!(push(&server, &place, one.number()));
    assert_eq!(fence(one.sleep(soon())), one.number());
    // The one that read has kept it.
    assert_eq!(other.take().map(|pushed| pushed.fence), Some(other.number()));
    assert_eq!(other.take(), None);
}

/// Threads that sleep, each of which sends its number when it was pushed to and then sleeps again.
fn crowd(ear: &Arc<Ear>, size: usize, woken: &mpsc::Sender<(u64, Tick)>) -> Vec<thread::JoinHandle<()>> {
    (0..size)
        .map(|_| {
            let (ear, woken) = (Arc::clone(ear), woken.clone());
            let run = move || {
                let (wait, _) = wait(&ear);
                woken.send((wait.number(), now())).unwrap();
                loop {
                    match wait.sleep(Tick::NEVER) {
                        Woken::Push(pushed) => {
                            assert_eq!(pushed.fence, wait.number());
                            woken.send((wait.number(), now())).unwrap();
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
    let ear = ear(server.url());
    let (tell, told) = mpsc::channel();
    let threads = crowd(&ear, CROWD, &tell);
    let mut numbers: Vec<u64> = told.iter().take(CROWD).map(|(number, _)| number).collect();
    let place = ear.begin().place().unwrap();
    for _ in 0..2 {
        fastrand::shuffle(&mut numbers);
        for number in &numbers {
            assert!(push(&server, &place, *number));
        }
        let mut heard: Vec<u64> = told.iter().take(CROWD).map(|(number, _)| number).collect();
        heard.sort_unstable();
        numbers.sort_unstable();
        assert_eq!(heard, numbers);
    }
    ear.close();
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(subscribers(&server), 0);
}

#[test]
fn a_killed_connection_is_made_anew_on_the_same_channel() {
    let server = Server::start();
    let ear = ear(server.url());
    let (wait, before) = wait(&ear);
    for _ in 0..3 {
        thread::scope(|scope| {
            let sleeper = scope.spawn(|| wait.sleep(soon()));
            eventually("it is subscribed", SOON, || kill_pushes(&server) == 1);
            assert_eq!(sleeper.join().unwrap(), Woken::Connected);
        });
    }
    let after = wait.place().unwrap();
    assert_eq!((&after.channel, after.node), (&before.channel, before.node));
    assert_eq!(after.since, before.since + 3);
    assert!(push(&server, &after, wait.number()));
    assert_eq!(fence(wait.sleep(soon())), wait.number());
}

/// Passes everything, until it is told to keep to itself what the server says on connections with a subscription.
struct Muffler {
    port: u16,
    is_mute: Arc<AtomicBool>,
}

impl Muffler {
    fn start(server: &Server) -> Muffler {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (is_mute, target) = (Arc::new(AtomicBool::new(false)), server.addr());
        let muffler = Muffler { port, is_mute: Arc::clone(&is_mute) };
        thread::spawn(move || {
            for client in listener.incoming() {
                let (client, server) = (client.unwrap(), TcpStream::connect(target).unwrap());
                let listens = Arc::new(AtomicBool::new(false));
                let (is_mute, listens_too) = (Arc::clone(&is_mute), Arc::clone(&listens));
                let (from, to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                thread::spawn(move || {
                    pass(from, to, |bytes| {
                        let subscribes = bytes.windows(9).any(|word| word == b"SUBSCRIBE");
                        listens.fetch_or(subscribes, Ordering::SeqCst);
                        true
                    });
                });
                thread::spawn(move || {
                    pass(server, client, |_| !listens_too.load(Ordering::SeqCst) || !is_mute.load(Ordering::SeqCst));
                });
            }
        });
        muffler
    }

    fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    fn set_mute(&self, mute: bool) {
        self.is_mute.store(mute, Ordering::SeqCst);
    }
}

/// The end of one side is kept from the other.
fn pass(mut from: TcpStream, mut to: TcpStream, passes: impl Fn(&[u8]) -> bool) {
    let mut buffer = [0; 4096];
    while let Ok(n @ 1..) = from.read(&mut buffer) {
        if passes(&buffer[..n]) && to.write_all(&buffer[..n]).is_err() {
            return;
        }
    }
    thread::park();
}

#[test]
fn a_connection_on_which_nothing_arrives_is_replaced() {
    let server = Server::start();
    let muffler = Muffler::start(&server);
    let ear = ear(muffler.url());
    let (wait, before) = wait(&ear);
    muffler.set_mute(true);
    let unmute = || {
        // By then it has broken, and attempts to listen anew fail.
        SystemClock.sleep(Duration::from_millis(2500));
        assert_eq!(wait.place(), None);
        muffler.set_mute(false);
    };
    thread::scope(|scope| {
        let start = now();
        let sleeper = scope.spawn(|| wait.sleep(soon()));
        unmute();
        assert_eq!(sleeper.join().unwrap(), Woken::Connected);
        assert!(now().since(start) < Duration::from_secs(5));
    });
    assert_eq!(wait.place().unwrap().since, before.since + 1);
}

#[test]
fn a_subscription_that_the_server_forgot_is_made_anew() {
    let server = Server::start();
    let muffler = Muffler::start(&server);
    let ear = ear(muffler.url());
    let (wait, before) = wait(&ear);
    // The client does not see the end of its connection.
    assert_eq!(kill_pushes(&server), 1);
    let start = now();
    assert_eq!(wait.sleep(soon()), Woken::Connected);
    assert!(now().since(start) < Duration::from_secs(2), "a second and a round trip");
    assert_eq!(wait.place().unwrap().since, before.since + 1);
}

#[test]
fn a_server_that_hangs_keeps_its_subscriptions() {
    let server = Server::start();
    let ear = ear(server.url());
    let (wait, place) = wait(&ear);
    server.stop();
    assert_eq!(wait.sleep(now().after(Duration::from_millis(2500))), Woken::Timer);
    server.cont();
    assert_eq!(wait.sleep(now().after(Duration::from_millis(1500))), Woken::Timer);
    assert_eq!(wait.place(), Some(place.clone()));
    assert!(push(&server, &place, wait.number()));
    assert_eq!(fence(wait.sleep(soon())), wait.number());
}

#[test]
fn a_server_that_comes_back_is_subscribed_to_again() {
    let server = Server::start();
    let ear = ear(server.url());
    let (wait, before) = wait(&ear);
    server.kill();
    assert_eq!(wait.sleep(now().after(Duration::from_millis(500))), Woken::Timer);
    assert_eq!(wait.place(), None);
    assert!(!wait.polls());
    server.restart();
    assert_eq!(wait.sleep(soon()), Woken::Connected);
    assert_eq!(wait.place().unwrap().since, before.since + 1);
}

#[test]
fn a_proxy_is_no_hindrance() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let ear = ear(proxy.url());
    let (wait, place) = wait(&ear);
    assert!(push(&server, &place, wait.number()));
    assert_eq!(fence(wait.sleep(soon())), wait.number());
    proxy.drop_connections();
    assert_eq!(wait.sleep(soon()), Woken::Connected);
}

/// A client whose user has only these rights.
fn limited(server: &Server, rights: &[&str]) -> Arc<Ear> {
    let mut command = redis::cmd("ACL");
    command.arg("SETUSER").arg("app").arg("reset").arg("on").arg(">pw").arg("~*").arg(rights);
    server.ask::<()>(&command);
    ear(server.url().replace("redis://", "redis://app:pw@"))
}

fn refused(wait: &Wait) {
    let until = soon();
    while !wait.polls() {
        assert_eq!(wait.sleep(until), Woken::Connected);
    }
    assert_eq!(wait.place(), None);
    // Known now.
    assert_eq!(wait.sleep(now().after(Duration::from_millis(5))), Woken::Timer);
}

#[test]
fn a_user_without_channels_has_to_poll() {
    let server = Server::start();
    for rights in [&["+@all", "resetchannels"][..], &["+@all", "&*", "-subscribe"], &["+@all", "&*", "-publish"]] {
        let ear = limited(&server, rights);
        let wait = ear.begin();
        refused(&wait);
        refused(&ear.begin());
    }
}

#[test]
fn the_rule_that_the_warning_names_is_enough() {
    let server = Server::start();
    let ear =
        limited(&server, &["+evalsha", "+eval", "+info", "resetchannels", "&redlock-sync:*", "+subscribe", "+publish"]);
    let (wait, place) = wait(&ear);
    assert!(push(&server, &place, wait.number()));
    assert_eq!(fence(wait.sleep(soon())), wait.number());
}

#[test]
fn a_refusal_that_comes_later_is_noticed() {
    let server = Server::start();
    let ear = limited(&server, &["+@all", "&*"]);
    let (wait, _) = wait(&ear);
    // Without its channel the server ends the connection.
    server.ask::<()>(redis::cmd("ACL").arg("SETUSER").arg("app").arg("resetchannels"));
    refused(&wait);
}

#[test]
fn closing_wakes_all() {
    let server = Server::start();
    let ear = ear(server.url());
    let (tell, told) = mpsc::channel();
    let threads = crowd(&ear, 20, &tell);
    told.iter().take(20).for_each(drop);
    let start = now();
    ear.close();
    for thread in threads {
        thread.join().unwrap();
    }
    assert!(now().since(start) < Duration::from_millis(500), "the reader too");
    assert_eq!(ear.begin().sleep(soon()), Woken::Closed);
    assert_eq!(subscribers(&server), 0);
}

#[test]
fn closing_while_the_server_hangs_takes_a_second() {
    let server = Server::start();
    let ear = ear(server.url());
    let (wait, _) = wait(&ear);
    thread::scope(|scope| {
        let sleeper = scope.spawn(|| wait.sleep(soon()));
        SystemClock.sleep(Duration::from_millis(50));
        server.stop();
        let start = now();
        ear.close();
        assert_eq!(sleeper.join().unwrap(), Woken::Closed);
        assert!(now().since(start) < Duration::from_secs(2));
        server.cont();
    });
}

#[test]
fn closing_before_there_is_a_connection() {
    let server = Server::start();
    server.stop();
    let ear = ear(server.url());
    let wait = ear.begin();
    ear.close();
    assert_eq!(wait.sleep(soon()), Woken::Closed);
    server.cont();
}

/// A ghost, and the fences of what came to it.
fn ghost() -> (Ghost, Arc<Mutex<Vec<u64>>>) {
    let came = Arc::new(Mutex::new(Vec::new()));
    let theirs = Arc::clone(&came);
    (Box::new(move |pushed| theirs.lock().push(pushed.fence)), came)
}

#[test]
fn a_grant_to_a_wait_that_is_over_goes_to_its_ghost() {
    let server = Server::start();
    let ear = ear(server.url());
    let (alive, place) = wait(&ear);
    let (over, plain) = (ear.begin(), ear.begin());
    let (ghost, came) = ghost();
    ear.haunt(over.number(), ghost);
    let (over, plain) = (over.number(), plain.number());
    for number in [over, plain, over, alive.number()] {
        assert!(push(&server, &place, number));
    }
    assert_eq!(fence(alive.sleep(soon())), alive.number());
    assert_eq!(*came.lock(), [over, over]);
    assert_eq!(alive.place(), Some(place));
}

#[test]
fn what_was_kept_for_a_wait_goes_to_its_ghost() {
    let server = Server::start();
    let ear = ear(server.url());
    let (alive, place) = wait(&ear);
    let over = ear.begin();
    let number = over.number();
    for number in [number, alive.number()] {
        assert!(push(&server, &place, number));
    }
    alive.sleep(soon());
    let (ghost, came) = ghost();
    ear.haunt(number, ghost);
    assert_eq!(*came.lock(), [number]);
    assert_eq!(over.take(), None);
}

#[test]
fn with_the_last_wait_the_channel_of_its_ghosts_ends() {
    let server = Server::start();
    let ear = ear(server.url());
    let mut channels = Vec::new();
    for _ in 0..2 {
        let (last, place) = wait(&ear);
        ear.haunt(last.number(), ghost().0);
        assert_eq!(subscribers(&server), 1);
        drop(last);
        eventually("nobody hears there", SOON, || subscribers(&server) == 0);
        channels.push(place.channel);
    }
    // As well if the wait is over first, and its channel is not heard at the time.
    let (last, place) = wait(&ear);
    channels.push(place.channel);
    let number = last.number();
    drop(last);
    ear.haunt(number, ghost().0);
    eventually("nobody hears there", SOON, || subscribers(&server) == 0);
    let (_wait, place) = wait(&ear);
    channels.push(place.channel);
    channels.sort_unstable();
    channels.dedup();
    assert_eq!(channels.len(), 4);
}

#[test]
fn a_connection_outlives_the_last_wait_for_a_while() {
    let server = Server::start();
    let ear = ear(server.url());
    let (last, before) = wait(&ear);
    drop(last);
    SystemClock.sleep(Duration::from_secs(1));
    let next = ear.begin();
    assert_eq!(next.place(), Some(before.clone()));
    SystemClock.sleep(Duration::from_secs(10));
    assert_eq!(next.place(), Some(before));
    drop(next);
    SystemClock.sleep(Duration::from_secs(8));
    assert_eq!(subscribers(&server), 1);
    eventually("it is closed", SOON, || subscribers(&server) == 0);
}

#[test]
fn everything_ends_with_the_client() {
    let server = Server::start();
    let ear = ear(server.url());
    drop(wait(&ear).0);
    drop(ear);
    eventually("the connections are closed", SOON, || server.info("connected_clients").as_deref() == Some("1"));
}

/// All clients of the same nodes listen at the same one, in whatever order they name them, and move when it fails.
#[test]
fn clients_meet_at_one_node() {
    let servers = servers(3);
    let urls: Vec<String> = servers.iter().map(Server::url).collect();
    let ears = [ear_of(urls.iter().cloned()), ear_of(urls.iter().rev().cloned())];
    let waits = [ears[0].begin(), ears[1].begin()];
    let places = || [waits[0].place().map(|place| place.node), waits[1].place().map(|place| place.node)];
    let meet = || matches!(places(), [Some(a), Some(b)] if a + b == 2);
    // The first attempt of a client knows no node's run id; a round makes all of them known.
    for ear in &ears {
        let call = crate::script::Call::new(
            &crate::script::PUBLISH,
            crate::script::Purpose::Other,
            None,
            Duration::ZERO,
            &[],
            &[crate::script::Arg::Text("x"), crate::script::Arg::Text("")],
        );
        ear.quorum.round(&call, crate::node::Lane::Ordinary, soon(), &|_| true);
    }
    let sleep = || {
        for wait in &waits {
            wait.sleep(now().after(Duration::from_millis(20)));
        }
    };
    eventually("they meet", SOON, || {
        sleep();
        meet()
    });
    let at = places()[0].unwrap();
    servers[at].kill();
    eventually("they meet elsewhere", SOON, || {
        sleep();
        meet() && places()[0] != Some(at)
    });
    servers[at].restart();
}
