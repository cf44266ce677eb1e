use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};

use redlock_tests::{Proxy, servers};

use super::*;

#[test]
fn a_killed_connection_is_made_anew_on_the_same_channel() {
    let server = Server::start();
    let listener = listener(server.url());
    let (wait, before) = wait(&listener);
    for _ in 0..3 {
        thread::scope(|scope| {
            let sleeper = scope.spawn(|| wait.sleep(soon(), &Cancelling::default()));
            eventually("it is subscribed", SOON, || kill_pushes(&server) == 1);
            assert_eq!(sleeper.join().unwrap(), Woken::Connected);
        });
    }
    let after = wait.subscription().unwrap();
    assert_eq!((&after.channel, after.node), (&before.channel, before.node));
    assert_eq!(after.generation, before.generation + 3);
    assert!(notify(&server, &after, wait.number));
    assert_eq!(fence(wait.sleep(soon(), &Cancelling::default())), wait.number);
}

/// A proxy that forwards everything. On command, it holds back the messages of the server on connections with a
/// subscription.
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

/// Forwards bytes from one side to the other. Hides the end of one side from the other side.
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
    let listener = listener(muffler.url());
    let (wait, before) = wait(&listener);
    muffler.set_mute(true);
    let unmute = || {
        // By then, the connection has broken, and attempts to listen again fail.
        SystemClock.sleep(Duration::from_millis(2500));
        assert_eq!(wait.subscription(), None);
        muffler.set_mute(false);
    };
    thread::scope(|scope| {
        let start = now();
        let sleeper = scope.spawn(|| wait.sleep(soon(), &Cancelling::default()));
        unmute();
        assert_eq!(sleeper.join().unwrap(), Woken::Connected);
        assert!(now().since(start) < Duration::from_secs(5));
    });
    assert_eq!(wait.subscription().unwrap().generation, before.generation + 1);
}

#[test]
fn a_subscription_that_the_server_forgot_is_made_anew() {
    let server = Server::start();
    let muffler = Muffler::start(&server);
    let listener = listener(muffler.url());
    let (wait, before) = wait(&listener);
    // The client does not see the end of its connection. On a busy machine, it may have needed a second connection.
    assert!(kill_pushes(&server) >= 1);
    let start = now();
    assert_eq!(wait.sleep(soon(), &Cancelling::default()), Woken::Connected);
    println!("a second and a round trip: {:?}", now().since(start));
    assert_eq!(wait.subscription().unwrap().generation, before.generation + 1);
}

#[test]
fn a_server_that_hangs_keeps_its_subscriptions() {
    let server = Server::start();
    let listener = listener(server.url());
    let (wait, subscription) = wait(&listener);
    server.stop();
    assert_eq!(wait.sleep(now().after(Duration::from_millis(2500)), &Cancelling::default()), Woken::Timer);
    server.cont();
    assert_eq!(wait.sleep(now().after(Duration::from_millis(1500)), &Cancelling::default()), Woken::Timer);
    assert_eq!(wait.subscription(), Some(subscription.clone()));
    assert!(notify(&server, &subscription, wait.number));
    assert_eq!(fence(wait.sleep(soon(), &Cancelling::default())), wait.number);
}

#[test]
fn a_server_that_comes_back_is_subscribed_to_again() {
    let server = Server::start();
    let listener = listener(server.url());
    let (wait, before) = wait(&listener);
    server.kill();
    assert_eq!(wait.sleep(now().after(Duration::from_millis(500)), &Cancelling::default()), Woken::Timer);
    assert_eq!(wait.subscription(), None);
    assert!(!wait.must_poll());
    server.restart();
    assert_eq!(wait.sleep(soon(), &Cancelling::default()), Woken::Connected);
    assert_eq!(wait.subscription().unwrap().generation, before.generation + 1);
}

#[test]
fn a_proxy_is_no_hindrance() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let listener = listener(proxy.url());
    let (wait, subscription) = wait(&listener);
    assert!(notify(&server, &subscription, wait.number));
    assert_eq!(fence(wait.sleep(soon(), &Cancelling::default())), wait.number);
    proxy.drop_connections();
    assert_eq!(wait.sleep(soon(), &Cancelling::default()), Woken::Connected);
}

/// All clients of the same nodes listen on the same node, even if they name the nodes in different orders. They move if
/// it fails.
#[test]
fn clients_meet_at_one_node() {
    let servers = servers(3);
    let urls: Vec<String> = servers.iter().map(Server::url).collect();
    let listeners = [listener_of(urls.iter().cloned()), listener_of(urls.iter().rev().cloned())];
    let waits = [listeners[0].begin(), listeners[1].begin()];
    let places = || {
        [
            waits[0].subscription().map(|subscription| subscription.node),
            waits[1].subscription().map(|subscription| subscription.node),
        ]
    };
    let meet = || matches!(places(), [Some(a), Some(b)] if a + b == 2);
    // A client's first attempt does not know the run id of any node. After a round, the client knows all of them.
    for listener in &listeners {
        let call = crate::protocol::script::Call::publish("x", "");
        let call = crate::protocol::TypedCall::<crate::protocol::reply::Released>::from(call);
        listener.quorum.round(&call, soon());
    }
    let sleep = || {
        for wait in &waits {
            wait.sleep(now().after(Duration::from_millis(20)), &Cancelling::default());
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
