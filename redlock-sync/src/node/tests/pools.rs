use redlock_tests::{Act, Proxy, Server, eventually};

use super::*;

fn small(server: &Server) -> Nodes {
    nodes_with(&[server.url()], NodeSettings { pool_size: 1, reserved_size: 1, node_timeout: TIMEOUT })
}

#[test]
fn releases_do_not_wait_behind_attempts() {
    let server = Server::start();
    let nodes = small(&server);
    let node = first(&nodes);
    let (call, by) = (acquire("k", "a"), now().after(SOON));
    let Begun::Sent(pending) = node.begin(&call, Lane::Ordinary, by, Patience::Wait) else { panic!() };
    let refused = failure(ask(node, &acquire("k", "b")));
    assert_eq!((refused.trouble, refused.executed), (Trouble::TimedOut, Executed::No));
    assert!(refused.message.contains("all 1 are in use"), "{}", refused.message);
    assert_eq!(node.outage(), None);
    assert!(ask_on(node, &release("k", "a"), Lane::Reserved).result.is_ok());
    assert!(pending.finish(by).result.is_ok());
}

#[test]
fn a_waiter_gets_the_place_of_a_connection_that_broke() {
    let server = Server::start();
    let nodes = nodes_with(&[server.url()], NodeSettings { pool_size: 1, reserved_size: 1, node_timeout: SOON });
    let node = first(&nodes);
    let (call, by) = (acquire("k", "a"), now().after(SOON));
    let Begun::Sent(pending) = node.begin(&call, Lane::Ordinary, by, Patience::Wait) else { panic!() };
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| ask(node, &acquire("k2", "b")));
        let looking = scope.spawn(|| send_in_slices(node, &acquire("k3", "c")));
        drop(pending);
        assert!(is_yes(&waiting.join().unwrap()));
        assert!(looking.join().unwrap().is_ok());
    });
}

/// Sends the call as a round does it.
fn send_in_slices(node: &RedisNode, call: &Call) -> Result<Value, Failure> {
    let by = now().after(node.host.settings.node_timeout);
    let slices = std::iter::repeat(Patience::Slice(Duration::from_millis(2)));
    for patience in std::iter::once(Patience::AtOnce).chain(slices) {
        match node.begin(call, Lane::Ordinary, by, patience) {
            Begun::Sent(pending) => return pending.finish(by).result,
            Begun::Failed(failure) => return Err(failure),
            Begun::Cold => {}
        }
    }
    unreachable!("a call fails in time")
}

#[test]
fn a_cold_node_is_connected_once() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    // Long enough for many looks.
    proxy.latency(Duration::from_millis(50));
    let nodes = patient(&[proxy.url()]);
    assert!(send_in_slices(first(&nodes), &acquire("k", "a")).is_ok());
    // One; or two, if the machine was so slow to begin with the first that it was asked for again.
    assert!(proxy.connections() <= 2, "{}", proxy.connections());
}

#[test]
fn a_cold_node_says_why_it_cannot_be_connected() {
    let server = Server::start();
    let nodes = patient(&[server.url()]);
    server.kill();
    let failure = send_in_slices(first(&nodes), &acquire("k", "a")).unwrap_err();
    assert!(failure.message.contains("connection refused") && failure.executed == Executed::No, "{failure:?}");
}

#[test]
fn who_lost_his_connection_to_another_asks_again() {
    let server = Server::start();
    let nodes = nodes_with(&[server.url()], NodeSettings { pool_size: 2, reserved_size: 1, node_timeout: SOON });
    let node = first(&nodes);
    let (call, by) = (acquire("k", "a"), now().after(SOON));
    assert!(matches!(node.begin(&call, Lane::Ordinary, by, Patience::AtOnce), Begun::Cold));
    eventually("it is connected", SOON, || node.pools.connections() == 1);
    let Begun::Sent(pending) = node.begin(&call, Lane::Reserved, by, Patience::Wait) else { panic!() };
    eventually("there is another", SOON, || {
        match node.begin(&call, Lane::Ordinary, by, Patience::Slice(Duration::from_millis(2))) {
            Begun::Sent(pending) => is_yes(&pending.finish(by)),
            _ => false,
        }
    });
    assert!(pending.finish(by).result.is_ok());
}

#[test]
fn the_reserved_lane_uses_a_hot_ordinary_connection() {
    let server = Server::start();
    let nodes = patient(&[server.url()]);
    assert!(is_yes(&ask(first(&nodes), &acquire("k", "a"))));
    let before = server.info("total_connections_received");
    assert!(ask_on(first(&nodes), &release("k", "a"), Lane::Reserved).result.is_ok());
    assert_eq!(server.info("total_connections_received"), before);
}

#[test]
fn one_retry_absorbs_a_restart_whatever_the_number_of_stale_connections() {
    let server = Server::start();
    let nodes = patient(&[server.url()]);
    let node = first(&nodes);
    let by = now().after(SOON);
    let calls: Vec<_> = (0..5).map(|i| acquire(&format!("k{i}"), "a")).collect();
    let pending: Vec<_> = calls.iter().map(|call| node.begin(call, Lane::Ordinary, by, Patience::Wait)).collect();
    for begun in pending {
        let Begun::Sent(pending) = begun else { panic!() };
        assert!(is_yes(&pending.finish(by)));
    }
    server.restart();
    let answer = ask(node, &acquire("k", "a"));
    assert!(is_yes(&answer), "{answer:?}");
    assert!(answer.ghost);
    for call in &calls {
        let answer = ask(node, call);
        assert!(is_yes(&answer) && !answer.ghost, "{answer:?}");
    }
    assert!(node.uptime().unwrap() < SOON);
}

#[test]
fn a_reset_is_retried_once_and_tells_of_the_ghost() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let nodes = patient(&[proxy.url()]);
    let node = first(&nodes);
    assert!(is_yes(&ask(node, &acquire("warm", "a"))));
    for act in [Act::ResetBefore, Act::ResetAfter, Act::CutReply(3)] {
        let fault = proxy.on("acquire", act);
        let answer = ask(node, &acquire("k", "a"));
        assert!(is_yes(&answer) && answer.ghost, "{answer:?}");
        assert_eq!(fault.hits(), 1);
    }
    proxy.on_each("acquire", Act::ResetAfter);
    let failure = failure(ask(node, &acquire("k2", "a")));
    assert_eq!((failure.trouble, failure.executed), (Trouble::Unreachable, Executed::Maybe));
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
        Nodes::new(&urls, NodeSettings::default(), &clock).map(|nodes| nodes.len()).map_err(|e| e.to_string())
    };
    assert_eq!(of(&["redis://a", "redis://b"]), Ok(2));
    assert!(of(&["redis://a", "redis://b", "redis://A:6379/1"]).unwrap_err().starts_with("nodes 1 and 3 are the same"));
    assert!(of(&[]).is_err());
}
