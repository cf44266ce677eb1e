use redlock_tests::{Proxy, Server, eventually, servers};

use super::*;

#[test]
fn a_refused_port_fails_fast_with_the_reason() {
    let server = Server::start();
    server.kill();
    let nodes = patient(&[server.url()]);
    let start = now();
    let refused = failure(ask(first(&nodes), &acquire("k", "a")));
    assert_eq!((refused.kind, refused.executed), (FailureKind::Unreachable, Executed::No));
    assert_eq!(refused.message, "connection refused");
    assert!(now().since(start) < SOON / 2, "it did not wait for the node timeout");
}

#[test]
fn a_node_is_left_out_until_a_probe_finds_it_back() {
    let server = Server::start();
    let nodes = patient(&[server.url()]);
    let node = first(&nodes);
    assert!(is_yes(&ask(node, &acquire("k", "a"))));
    server.kill();
    let gone = failure(ask(node, &acquire("k", "a")));
    assert_eq!(
        (gone.kind, gone.executed),
        (FailureKind::Unreachable, Executed::No),
        "it was seen before the call was sent"
    );
    let outage = node.outage().unwrap();
    assert_eq!((outage.kind, outage.executed), (FailureKind::LeftOut, Executed::No));
    assert!(outage.message.starts_with("left out since it failed: "), "{}", outage.message);
    server.restart();
    eventually("the probe finds it back", SOON, || node.outage().is_none());
    let answer = ask(node, &acquire("k", "a"));
    assert!(is_yes(&answer), "{answer:?}");
}

#[test]
fn a_call_during_an_outage_is_tried_and_ends_it() {
    let server = Server::start();
    let nodes = patient(&[server.url()]);
    let node = first(&nodes);
    server.kill();
    assert!(ask(node, &acquire("k", "a")).result.is_err());
    server.restart();
    // The pause between probes has grown. A call does not wait for the next probe.
    eventually("a call gets through", SOON, || is_yes(&ask(node, &acquire("k", "a"))));
    assert_eq!(node.outage(), None);
}

#[test]
fn a_black_hole_costs_one_timeout_and_not_the_other_nodes() {
    let servers = servers(3);
    let proxy = Proxy::start(&servers[0]);
    proxy.black_hole();
    let nodes = nodes(&[proxy.url(), servers[1].url(), servers[2].url()]);
    let (call, start) = (acquire("k", "a"), now());
    let Answers { results, .. } = nodes.call(&call, start.after(TIMEOUT), &|_| true, 2);
    assert!(now().since(start) < 10 * TIMEOUT);
    let mut answers = results.into_iter().map(|result| Answer { result, duplicate: false });
    let hole = failure(answers.next().unwrap());
    assert_eq!((hole.kind, hole.executed), (FailureKind::TimedOut, Executed::No));
    assert!(answers.all(|answer| is_yes(&answer)));
    eventually("it is left out", SOON, || first(&nodes).outage().is_some());
    proxy.heal();
    eventually("the probe finds it back", SOON, || first(&nodes).outage().is_none());
}

#[test]
fn many_callers_of_a_black_hole_leave_threads_for_the_other_nodes() {
    const SLOW: Duration = Duration::from_secs(1);
    let servers = servers(2);
    let proxy = Proxy::start(&servers[0]);
    proxy.black_hole();
    // On a busy machine, it takes a while to make twelve connections one after the other.
    let nodes = nodes_with(&[proxy.url(), servers[1].url()], &settings(SLOW));
    std::thread::scope(|scope| {
        for i in 0..12 {
            let nodes = &nodes;
            scope.spawn(move || {
                let call = acquire(&format!("k{i}"), "t");
                let mut results = nodes.call(&call, now().after(3 * SLOW), &|_| true, 2).results;
                let other = Answer { result: results.pop().unwrap(), duplicate: false };
                assert!(results.pop().unwrap().is_err() && is_yes(&other), "{other:?}");
            });
        }
    });
}

/// One of three servers begins to hang. All calls within that node timeout still win by the other two servers.
#[test]
fn calls_go_on_when_one_of_three_servers_begins_to_hang() {
    const SLOW: Duration = Duration::from_secs(2);
    let servers = servers(3);
    let nodes = nodes_with(&servers.iter().map(Server::url).collect::<Vec<_>>(), &settings(SLOW));
    let call = |key: &str| nodes.call(&acquire(key, "t"), now().after(SLOW), &|_| true, 2).results;
    let won = |results: &[Result<Value, Failure>]| results.iter().filter(|result| result.is_ok()).count() >= 2;
    eventually("all are warm", SOON, || call("warm").iter().all(Result::is_ok));
    servers[0].stop();
    std::thread::scope(|scope| {
        for t in 0..8 {
            let (call, won) = (&call, &won);
            scope.spawn(move || {
                for n in 0..3 {
                    let results = call(&format!("k{t}:{n}"));
                    assert!(won(&results), "{results:?}");
                }
            });
        }
    });
    servers[0].cont();
    eventually("it is back", SOON, || first(&nodes).outage().is_none());
}

/// A thread waits for the reply of a server that is silent, and for its first connection to another one. Once there is
/// a connection, it sends its call.
#[test]
fn a_connection_comes_while_another_server_is_silent() {
    let servers = servers(2);
    // Even an eighth of the node timeout is longer than the test waits, so nothing but the connection sends the call.
    let nodes = nodes_with(&servers.iter().map(Server::url).collect::<Vec<_>>(), &settings(10 * SOON));
    assert!(is_yes(&ask(first(&nodes), &acquire("warm", "t"))));
    servers[0].stop();
    std::thread::scope(|scope| {
        let results = scope.spawn(|| nodes.call(&acquire("k", "t"), Tick::NEVER, &|_| true, 2).results);
        eventually("the other server has the call", SOON, || servers[1].get("k").is_some());
        servers[0].cont();
        assert!(results.join().unwrap().iter().all(Result::is_ok));
    });
}

#[test]
fn everything_ends_with_the_client() {
    let server = Server::start();
    let nodes = patient(&[server.url()]);
    assert!(is_yes(&ask(first(&nodes), &acquire("k", "a"))));
    drop(nodes);
    eventually("the connections are closed", SOON, || server.info("connected_clients").as_deref() == Some("1"));
}

#[cfg(feature = "tls")]
#[test]
fn tls_with_a_server_that_has_none_fails_in_time() {
    let server = Server::start();
    let nodes = nodes(&[format!("rediss://127.0.0.1:{}", server.port())]);
    let start = now();
    let failure = failure(ask(first(&nodes), &acquire("k", "a")));
    assert_eq!(failure.executed, Executed::No, "{}", failure.message);
    assert!(now().since(start) < SOON, "{}", failure.message);
}
