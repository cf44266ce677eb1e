use redlock_tests::{Act, Proxy, Server};

use super::*;

#[test]
fn a_lock_is_taken_refused_and_freed() {
    let server = Server::start();
    let nodes = patient(&[server.url()]);
    let node = first(&nodes);
    assert!(is_yes(&ask(node, &acquire("k", "a"))));
    assert_eq!(server.get("k").as_deref(), Some("a"));
    let other = ask(node, &acquire("k", "b"));
    assert!(matches!(other.result.unwrap(), Value::List(items) if items[0] == Value::Int(0)));
    let answer = ask(node, &release("k", "a"));
    assert_eq!((answer.result, answer.duplicate), (Ok(Value::Int(1)), false));
    assert_eq!(ask(node, &release("k", "a")).result, Ok(Value::Int(-1)));
    assert_eq!(node.address(), format!("127.0.0.1:{}", server.port()));
    assert!(node.uptime().is_some() && node.outage().is_none());
}

#[test]
fn a_server_that_forgot_the_script_is_sent_the_source() {
    let server = Server::start();
    let nodes = patient(&[server.url()]);
    for _ in 0..2 {
        server.ask::<()>(redis::cmd("SCRIPT").arg("FLUSH"));
        assert!(is_yes(&ask(first(&nodes), &acquire("k", "a"))));
    }
}

#[test]
fn errors_of_the_server_keep_their_kind() {
    let server = Server::start();
    let nodes = patient(&[server.url()]);
    let node = first(&nodes);
    server.ask::<()>(redis::cmd("LPUSH").arg("list").arg("x"));
    let wrong = failure(ask(node, &acquire("list", "a")));
    assert_eq!((wrong.kind, wrong.executed), (FailureKind::WrongType, Executed::No));
    assert!(is_yes(&ask(node, &acquire("k", "a"))));
    server.fill();
    let full = failure(ask(node, &acquire("other", "a")));
    assert_eq!((full.kind, full.executed), (FailureKind::Refused, Executed::No));
    assert!(full.message.contains("OOM"), "{}", full.message);
    assert_eq!(ask(node, &release("k", "a")).result, Ok(Value::Int(1)));
    assert_eq!(node.outage(), None);
}

#[test]
fn errors_that_pass_keep_their_kind() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let nodes = patient(&[proxy.url()]);
    for (error, kind) in [
        ("LOADING dataset", FailureKind::Transient),
        ("MOVED 1 a:1", FailureKind::Misuse),
        ("NOREPLICAS few", FailureKind::Refused),
    ] {
        proxy.on("acquire", Act::Error(error.into()));
        let failure = failure(ask(first(&nodes), &acquire("k", "a")));
        assert_eq!((failure.kind, failure.executed), (kind, Executed::No));
        assert!(failure.message.starts_with(error), "{}", failure.message);
    }
}

#[test]
fn a_database_and_a_unix_socket_are_used() {
    let server = Server::builder().unix_socket().start();
    let nodes = patient(&[format!("{}3", server.url())]);
    assert!(is_yes(&ask(first(&nodes), &acquire("k", "a"))));
    assert_eq!(server.get("k"), None);
    let by_path = patient(&[format!("{}?db=3", server.unix_url())]);
    assert_eq!(ask(first(&by_path), &release("k", "a")).result, Ok(Value::Int(1)));
    assert!(format!("{nodes:?}").contains("/3"));
}

#[test]
fn names_are_resolved() {
    let server = Server::start();
    let nodes = patient(&[format!("redis://localhost:{}", server.port())]);
    assert!(is_yes(&ask(first(&nodes), &acquire("k", "a"))));
    // The resolver refuses so long a part by itself. For another name it may wait for its own servers.
    let name = format!("nowhere.{}.invalid", "x".repeat(64));
    let nowhere = nodes_with(&[format!("redis://{name}")], &settings(SOON));
    let failure = failure(ask(first(&nowhere), &acquire("k", "a")));
    assert_eq!((failure.kind, failure.executed), (FailureKind::Unreachable, Executed::No));
    assert!(failure.message.contains(&name), "{}", failure.message);
}
