use redlock_tests::{Act, Proxy, Server, eventually};

use super::*;

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
    assert!(node.outage().unwrap().message.starts_with("left out"));
    let behind = failure(ask(node, &release("k", "t")));
    assert_eq!(behind.executed, Executed::Maybe, "{}", behind.message);
    server.cont();
    eventually("the outage ends", SOON, || node.outage().is_none());
    eventually("the acquire was executed", SOON, || server.get("{k}:fence").is_some());
    eventually("the release was behind", SOON, || server.get("k").is_none());
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
    eventually("another lock passes it", SOON, || is_yes(&ask(node, &acquire("k2", "t2"))));
    assert_eq!(failure(ask(node, &release("k", "t"))).executed, Executed::Maybe);
    held.release();
    eventually("the acquire was executed", SOON, || server.get("{k}:fence").is_some());
    eventually("the release was behind", SOON, || server.get("k").is_none());
}

#[test]
fn a_late_release_gets_through() {
    let server = Server::start();
    let nodes = nodes(&[server.url()]);
    let node = first(&nodes);
    eventually("the node is warm", SOON, || is_yes(&ask(node, &acquire("k", "t"))));
    server.stop();
    assert_eq!(failure(ask(node, &release("k", "t"))).kind, FailureKind::TimedOut);
    server.cont();
    eventually("it was executed", SOON, || server.get("k").is_none());
}
