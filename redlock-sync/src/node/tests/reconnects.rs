use std::sync::Barrier;
use std::thread;

use redlock_tests::{Act, Proxy, Server, eventually};

use super::*;

#[test]
fn a_cold_node_is_connected_once() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    proxy.latency(Duration::from_millis(50));
    let nodes = patient(&[proxy.url()]);
    assert!(ask(first(&nodes), &acquire("k", "a")).result.is_ok());
    assert_eq!(proxy.connections(), 1);
}

#[test]
fn releases_use_the_connection_of_the_attempts() {
    let server = Server::start();
    let nodes = patient(&[server.url()]);
    assert!(is_yes(&ask(first(&nodes), &acquire("k", "a"))));
    let before = server.info("total_connections_received");
    assert!(ask(first(&nodes), &release("k", "a")).result.is_ok());
    assert_eq!(server.info("total_connections_received"), before);
}

#[test]
fn a_crowd_shares_a_few_connections() {
    const CROWD: usize = 200;
    let server = Server::start();
    let proxy = Proxy::start(&server);
    proxy.latency(Duration::from_millis(5));
    let nodes = patient(&[proxy.url()]);
    let together = Barrier::new(CROWD);
    thread::scope(|scope| {
        for i in 0..CROWD {
            let (nodes, together) = (&nodes, &together);
            scope.spawn(move || {
                let (key, token) = (format!("k{i}"), format!("t{i}"));
                together.wait();
                for _ in 0..3 {
                    let won = ask(first(nodes), &acquire(&key, &token));
                    assert!(is_yes(&won) && !won.duplicate, "{won:?}");
                    let freed = ask(first(nodes), &release(&key, &token));
                    assert_eq!((freed.result, freed.duplicate), (Ok(Value::Int(1)), false));
                }
            });
        }
    });
    assert!(proxy.connections() <= 3, "{}", proxy.connections());
}

#[test]
fn one_retry_absorbs_a_restart_whatever_the_number_of_stale_connections() {
    let server = Server::start();
    let nodes = patient(&[server.url()]);
    let node = first(&nodes);
    let together = Barrier::new(6);
    thread::scope(|scope| {
        for i in 0..6 {
            let (together, node) = (&together, node);
            scope.spawn(move || {
                together.wait();
                assert!(is_yes(&ask(node, &acquire(&format!("k{i}"), "a"))));
            });
        }
    });
    server.restart();
    let mut duplicate = false;
    // An attempt to connect may have failed while the server was starting. The next one follows a quarter of a second
    // later.
    eventually("the server is used again", SOON, || {
        let answer = ask(node, &acquire("k", "a"));
        duplicate |= answer.duplicate;
        is_yes(&answer)
    });
    assert!(!duplicate, "the end of the idle connections was seen before the call was sent");
    for i in 0..6 {
        let answer = ask(node, &acquire(&format!("k{i}"), "a"));
        assert!(is_yes(&answer) && !answer.duplicate, "{answer:?}");
    }
    assert!(node.uptime().unwrap() < SOON);
}

#[test]
fn a_reset_is_retried_once_and_tells_of_the_duplicate() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let nodes = patient(&[proxy.url()]);
    let node = first(&nodes);
    assert!(is_yes(&ask(node, &acquire("warm", "a"))));
    for act in [Act::ResetBefore, Act::ResetAfter, Act::CutReply(3)] {
        let fault = proxy.on("acquire", act);
        let answer = ask(node, &acquire("k", "a"));
        assert!(is_yes(&answer) && answer.duplicate, "{answer:?}");
        assert_eq!(fault.hits(), 1);
    }
    proxy.on_each("acquire", Act::ResetAfter);
    let failure = failure(ask(node, &acquire("k2", "a")));
    assert_eq!((failure.kind, failure.executed), (FailureKind::Unreachable, Executed::Maybe));
    proxy.heal();
    eventually("the probe ends the outage", SOON, || node.outage().is_none());
}

#[test]
fn construction_does_no_io_and_a_server_twice_is_refused() {
    let server = Server::start();
    let before = server.info("total_connections_received");
    drop(patient(&[server.url()]));
    assert_eq!(server.info("total_connections_received"), before);
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let of = |urls: &[&str]| {
        let urls: Vec<_> = urls.iter().map(|url| NodeUrl::parse(url).unwrap()).collect();
        Nodes::new(&urls, &ClientOptions::default(), &clock).map(|nodes| nodes.len()).map_err(|e| e.to_string())
    };
    assert_eq!(of(&["redis://a", "redis://b"]), Ok(2));
    assert!(of(&["redis://a", "redis://b", "redis://A:6379/1"]).unwrap_err().starts_with("nodes 1 and 3 are the same"));
}
