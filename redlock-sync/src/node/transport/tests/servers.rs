//! Tests with real servers, pooled connections, and calls to several servers.

use std::collections::HashSet;
use std::thread;

use redlock_tests::{Act, Proxy, Server, eventually, servers};

use super::super::halves::Broken;
use super::*;
use crate::key::Key;
use crate::node::connections::Connections;
use crate::node::{Answers, Executed, FailureKind, NodeUrl, Nodes, Value, server};
use crate::options::ClientOptions;
use crate::protocol::{AcquireArgs, Exclusive, Next, QueuePolicy, ReleaseArgs};

/// A client of some servers.
pub(super) struct Client(Nodes);

impl Client {
    pub(super) fn new(urls: &[String], node_timeout: Duration) -> Client {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        let settings = ClientOptions { node_timeout, ..ClientOptions::default() };
        let parsed: Vec<_> = urls.iter().map(|url| NodeUrl::parse(url).unwrap()).collect();
        Client(Nodes::new(&parsed, &settings, &clock).unwrap())
    }

    pub(super) fn server(&self) -> &server::Server {
        self.0.all[0].server()
    }

    pub(super) fn ask(&self, call: &Arc<Call>) -> Answers {
        self.0.call(call, soon(), &|_| true, self.0.len() / 2 + 1)
    }

    pub(super) fn post(&self, call: &Arc<Call>, on_answers: impl FnOnce(Answers) + Send + 'static) {
        self.0.post(call, Box::new(on_answers));
    }

    fn is_idle(&self) -> bool {
        self.server().all_connections().flat_map(Connections::all).all(|one| !one.is_busy())
    }
}

fn exclusive(key: &str) -> Exclusive {
    Exclusive { key: Key::new("", key).unwrap() }
}

pub(super) fn acquire(key: &str, token: &str) -> Arc<Call> {
    let id = LockId::from_server(token);
    let lease = 2 * SOON;
    let args = AcquireArgs { id: &id, lease, fence: None, wait: None, policy: QueuePolicy::None, take_over: &[] };
    exclusive(key).acquire(&args).call
}

pub(super) fn release(key: &str, token: &str) -> Arc<Call> {
    let id = LockId::from_server(token);
    exclusive(key).release(&ReleaseArgs { id: Some(&id), keep: Duration::ZERO, wait: None, next: Next::Anybody }).call
}

fn yes(answers: &Answers) -> usize {
    let is_yes = |value: &Value| {
        matches!(value, Value::Int(1..)) || matches!(value, Value::List(list) if list.first() == Some(&Value::Int(1)))
    };
    answers.results.iter().filter(|result| result.as_ref().is_ok_and(is_yes)).count()
}

/// The number of connections to the server, without the connection of the fixture.
fn sockets(server: &Server) -> usize {
    let list: String = server.ask(redis::cmd("CLIENT").arg("LIST").arg("TYPE").arg("normal"));
    list.lines().count() - 1
}

#[test]
fn many_threads_share_a_few_connections() {
    let server = Server::start();
    let client = Client::new(&[server.url()], SOON);
    thread::scope(|scope| {
        for t in 0..24 {
            let client = &client;
            scope.spawn(move || {
                for n in 0..20 {
                    let (key, token) = (format!("k{t}"), format!("t{t}:{n}"));
                    for call in [acquire(&key, &token), release(&key, &token)] {
                        let answers = client.ask(&call);
                        assert_eq!(yes(&answers), 1, "{token}: {answers:?}");
                    }
                }
            });
        }
    });
    assert!((1..=3).contains(&sockets(&server)), "{} connections", sockets(&server));
    assert_eq!(server.keys(), Vec::<String>::new());
}

#[test]
fn a_held_lock_is_a_no_and_a_script_that_is_unknown_is_sent() {
    let server = Server::start();
    let client = Client::new(&[server.url()], SOON);
    assert_eq!(yes(&client.ask(&acquire("k", "a"))), 1);
    assert!(matches!(&client.ask(&acquire("k", "b")).results[0], Ok(Value::List(no)) if no[0] == Value::Int(0)));
    let _: () = server.ask(redis::cmd("SCRIPT").arg("FLUSH"));
    assert_eq!(yes(&client.ask(&release("k", "a"))), 1);
    assert_eq!(yes(&client.ask(&acquire("k", "b"))), 1);
}

#[test]
fn several_servers_and_one_that_is_gone() {
    let servers = servers(3);
    let client = Client::new(&servers.iter().map(Server::url).collect::<Vec<_>>(), SOON);
    assert_eq!(yes(&client.ask(&acquire("k", "t"))), 3);
    assert_eq!(yes(&client.ask(&release("k", "t"))), 3);
    servers[1].kill();
    // Two answers decide, and the round does not wait for the third.
    let answers = client.ask(&acquire("k", "t2"));
    assert_eq!(yes(&answers), 2, "{answers:?}");
    let left_out = client.ask(&release("k", "t2"));
    assert_eq!(yes(&left_out), 2, "{left_out:?}");
    eventually("the server is left out", SOON, || {
        let answers = client.ask(&acquire("k", "t3"));
        client.ask(&release("k", "t3"));
        answers.results[1].as_ref().is_err_and(|why| why.kind == FailureKind::LeftOut)
    });
}

/// If a connection breaks during a call, the call is sent once more, and the answer says so.
#[test]
fn a_connection_that_breaks_is_made_anew() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let client = Client::new(&[proxy.url()], SOON);
    assert_eq!(yes(&client.ask(&acquire("k", "a"))), 1);
    proxy.on("release", Act::ResetAfter);
    let again = client.ask(&release("k", "a"));
    assert!(again.duplicate && again.results[0].is_ok(), "{again:?}");
    assert_eq!(server.get("k"), None);
    proxy.drop_connections();
    assert_eq!(yes(&client.ask(&acquire("k", "b"))), 1);
}

/// The server hangs, and calls are given up and undone. After it continues, no key is left and no call is lost.
#[test]
fn a_server_that_hangs_and_goes_on() {
    let server = Server::start();
    let client = Client::new(&[server.url()], Duration::from_secs(1));
    eventually("it is warm", SOON, || yes(&client.ask(&acquire("warm", "w"))) == 1);
    server.stop();
    let tokens: Vec<String> = (0..8).map(|n| format!("t{n}")).collect();
    thread::scope(|scope| {
        for token in &tokens {
            let client = &client;
            scope.spawn(move || {
                let late = client.ask(&acquire(token, token));
                let failure = late.results[0].as_ref().unwrap_err();
                if failure.executed == Executed::Maybe {
                    let undone = client.ask(&release(token, token));
                    assert_eq!(undone.results[0].as_ref().unwrap_err().executed, Executed::Maybe);
                }
            });
        }
    });
    server.cont();
    eventually("the server is used again", SOON, || {
        yes(&client.ask(&acquire("k", "a"))) == 1 || yes(&client.ask(&release("k", "a"))) == 9
    });
    eventually("all of it is undone", SOON, || {
        let held: HashSet<String> = server.keys().into_iter().collect();
        tokens.iter().all(|token| !held.contains(token))
    });
}

/// One connection falls silent while the server works. Calls for other keys continue, and the connection is replaced. A
/// release follows its acquire.
#[test]
fn one_connection_that_falls_silent() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let client = Client::new(&[proxy.url()], Duration::from_secs(1));
    eventually("it is warm", SOON, || yes(&client.ask(&acquire("warm", "w"))) == 1);
    let held = proxy.on("acquire", Act::Hold);
    let late = client.ask(&acquire("k", "t"));
    assert_eq!(late.results[0].as_ref().unwrap_err().executed, Executed::Maybe);
    let undone = client.ask(&release("k", "t"));
    assert_eq!(undone.results[0].as_ref().unwrap_err().executed, Executed::Maybe, "{undone:?}");
    // An unanswered attempt is undone, as in the library.
    eventually("another lock passes it", SOON, || {
        let is_held = yes(&client.ask(&acquire("other", "o"))) == 1;
        if !is_held {
            client.ask(&release("other", "o"));
        }
        is_held
    });
    // Over the other connection, the release would find no token, although the acquire is still to come.
    let again = client.ask(&release("k", "t"));
    let is_due = client.server().all_connections().any(|all| all.may_set("t"));
    assert!(!is_due || again.results[0].as_ref().is_err_and(|why| why.executed == Executed::Maybe), "{again:?}");
    held.release();
    eventually("the release was behind", SOON, || server.get("k").is_none() && proxy.count("release") > 0);
    eventually("all is answered", SOON, || client.is_idle());
    assert_eq!(server.get("k"), None);
}

/// Releases for which no thread waits arrive before the client ends.
#[test]
fn the_last_handle_is_dropped_in_the_midst_of_releases() {
    let server = Server::start();
    let client = Client::new(&[server.url()], SOON);
    for n in 0..40 {
        assert_eq!(yes(&client.ask(&acquire(&format!("k{n}"), "t"))), 1);
    }
    thread::scope(|scope| {
        for t in 0..8 {
            let client = &client;
            scope.spawn(move || {
                for n in (0..40).filter(|n| n % 8 == t) {
                    let call = release(&format!("k{n}"), "t");
                    client.post(&call, |_| ());
                }
            });
        }
    });
    eventually("all is answered", SOON, || client.is_idle());
    drop(client);
    assert_eq!(server.keys(), Vec::<String>::new());
    eventually("its connections end", SOON, || sockets(&server) == 0);
}

/// Threads still hold broken connections. New connections are made no matter how many are held.
#[test]
fn connections_that_broke_and_are_still_held() {
    let server = Server::start();
    let client = Client::new(&[server.url()], Duration::from_secs(5));
    let mut held = Vec::new();
    for n in 0..12 {
        let answers = client.ask(&acquire(&format!("k{n}"), "t"));
        assert_eq!(yes(&answers), 1, "{} connections broke: {answers:?}", held.len());
        for one in client.server().all_connections().flat_map(Connections::all) {
            one.close(Broken::Closed("broken".into()));
            held.push(one);
        }
    }
}

/// The server is down. The call fails at once with the cause, and the pool continues to try.
#[test]
fn a_server_that_comes_later() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    proxy.refuse();
    let client = Client::new(&[proxy.url()], SOON);
    let failure = client.ask(&acquire("k", "t")).results.remove(0).unwrap_err();
    assert_eq!((failure.kind, failure.executed), (FailureKind::Unreachable, Executed::No), "{failure:?}");
    proxy.heal();
    eventually("the pool has a connection", SOON, || yes(&client.ask(&acquire("k", "t"))) == 1);
}
