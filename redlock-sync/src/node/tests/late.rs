use redlock_tests::{Act, Proxy, Server, eventually};

use super::*;

/// How many connections the server has, the fixture's own left out.
fn sockets(server: &Server) -> usize {
    let list: String = server.ask(redis::cmd("CLIENT").arg("LIST").arg("TYPE").arg("normal"));
    list.lines().count() - 1
}

#[test]
fn a_release_goes_behind_the_late_acquire() {
    let server = Server::start();
    let nodes = nodes(&[server.url()]);
    let node = first(&nodes);
    eventually("the node is warm", SOON, || is_yes(&ask(node, &acquire("warm", "a"))));
    server.stop();
    let start = now();
    let late = failure(ask(node, &acquire("k", "t")));
    assert_eq!((late.kind, late.executed), (FailureKind::TimedOut, Executed::Maybe));
    assert!(late.message.starts_with("timed out after "), "{}", late.message);
    assert!(now().since(start) < 10 * TIMEOUT);
    assert!(node.outage().unwrap().message.starts_with("left out after: timed out after"));
    let start = now();
    let behind = failure(ask(node, &release("k", "t")));
    assert_eq!((behind.kind, behind.executed), (FailureKind::LeftOut, Executed::Maybe));
    assert!(behind.message.contains("written behind"), "{}", behind.message);
    assert!(now().since(start) < 10 * TIMEOUT);
    eventually("it is still there, and no thread is looking at it", SOON, || node.server().late.len() == 1);
    server.cont();
    eventually("the late socket is done", SOON, || node.server().late.len() == 0);
    assert_eq!(server.get("k"), None);
    assert!(server.get("{k}:fence").is_some(), "the acquire was executed");
    eventually("the outage ends", SOON, || node.outage().is_none());
    eventually("no socket is left but the lines'", SOON, || sockets(&server) <= 3);
}

#[test]
fn a_late_acquire_waits_for_its_release_and_others_pass_it() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let nodes = nodes(&[proxy.url()]);
    let node = first(&nodes);
    eventually("the node is warm", SOON, || is_yes(&ask(node, &acquire("warm", "a"))));
    let held = proxy.on("acquire", Act::Hold);
    assert_eq!(failure(ask(node, &acquire("k", "t"))).executed, Executed::Maybe);
    eventually("the probe ends the outage", SOON, || node.outage().is_none());
    eventually("another lock passes it", SOON, || is_yes(&ask(node, &acquire("k2", "t2"))));
    // The release goes behind and the normal way; there it finds nothing yet.
    assert_eq!(ask(node, &release("k", "t")).result, Ok(Value::Int(-1)));
    eventually("it is still there, and no thread is looking at it", SOON, || node.server().late.len() == 1);
    held.release();
    eventually("the late socket is done", SOON, || node.server().late.len() == 0);
    assert_eq!(server.get("k"), None);
    assert!(server.get("{k}:fence").is_some(), "the acquire was executed");
}

/// Has an attempt for this token become late: its reply is held back.
fn late_acquire(node: At<'_>, proxy: &Proxy, token: &str, lifetime: Duration) -> redlock_tests::Fault {
    let held = proxy.on("acquire", Act::Hold);
    let mut call = acquire("k", token);
    Arc::get_mut(&mut call).unwrap().lifetime = lifetime;
    // On a busy machine the connection may take all of the time; then nothing was sent.
    let is_late = || failure(ask_until(node, &call, Lane::Ordinary, now().after(TIMEOUT))).executed == Executed::Maybe;
    eventually("a reply is late", SOON, is_late);
    held
}

#[test]
fn a_late_socket_is_closed_when_its_time_has_passed() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let nodes = patient(&[proxy.url()]);
    let node = first(&nodes);
    let start = now();
    let _held = late_acquire(node, &proxy, "t", 2 * TIMEOUT);
    eventually("the late socket is closed", SOON, || node.server().late.len() == 0);
    assert!(now().since(start) >= 2 * TIMEOUT);
}

#[test]
fn late_sockets_are_bounded_and_other_calls_are_not_kept() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let nodes = patient(&[proxy.url()]);
    let node = first(&nodes);
    let all: Vec<_> = (0..20).map(|i| late_acquire(node, &proxy, &format!("t{i}"), LEASE)).collect();
    assert_eq!(node.server().late.len(), 16);
    let mut question = acquire("k", "t");
    Arc::get_mut(&mut question).unwrap().purpose = Purpose::Other;
    let held = proxy.on("acquire", Act::Hold);
    assert!(ask_until(node, &question, Lane::Ordinary, now().after(TIMEOUT / 4)).result.is_err());
    assert_eq!(node.server().late.len(), 16);
    for i in 4..20 {
        ask(node, &release("k", &format!("t{i}"))).result.unwrap();
    }
    drop((all, held));
    proxy.heal();
    eventually("the late sockets are done", SOON, || node.server().late.len() == 0);
    eventually("no socket is left but the lines'", SOON, || sockets(&server) <= 3);
}

#[test]
fn a_late_release_gets_through_and_is_cleared_away() {
    let server = Server::start();
    let nodes = nodes(&[server.url()]);
    let node = first(&nodes);
    eventually("the node is warm", SOON, || is_yes(&ask(node, &acquire("k", "t"))));
    // The script must be known, or the late release meets NOSCRIPT and no thread is there to answer it.
    eventually("the script is known", SOON, || ask(node, &release("k", "other")).result.is_ok());
    server.stop();
    assert_eq!(failure(ask(node, &release("k", "t"))).kind, FailureKind::TimedOut);
    server.cont();
    eventually("the late socket is done", SOON, || node.server().late.len() == 0);
    assert_eq!(server.get("k"), None);
}
