use redlock_tests::{Proxy, Server, eventually, servers};

use super::*;

#[test]
fn one_server_under_two_addresses_is_found_out() {
    let server = Server::start();
    let proxy = Proxy::start(&server);
    let nodes = patient(&[server.url(), proxy.url()]);
    assert!(is_yes(&ask(first(&nodes), &acquire("k", "a"))));
    assert_eq!(nodes.conflict(), None);
    assert!(is_yes(&ask(at(&nodes, 1), &acquire("k", "a"))));
    let conflict = nodes.conflict().unwrap();
    assert!(conflict.starts_with("node 1 (") && conflict.contains("is the same server as node 2 ("), "{conflict}");
}

#[test]
fn a_replica_is_refused_by_name() {
    let servers = servers(2);
    servers[1].replica_of(&servers[0]);
    let nodes = patient(&[servers[0].url(), servers[1].url()]);
    let refused = failure(ask(at(&nodes, 1), &acquire("k", "a")));
    assert_eq!((refused.kind, refused.executed), (FailureKind::Replica, Executed::No));
    assert_eq!(refused.message, format!("is a replica of 127.0.0.1:{}", servers[0].port()));
    assert!(nodes.conflict().unwrap().contains("is a replica of node 1"));
    assert_eq!(at(&nodes, 1).outage(), None);
    servers[1].promote();
    eventually("the promoted server serves", SOON, || is_yes(&ask(at(&nodes, 1), &acquire("k", "a"))));
    assert_eq!(nodes.conflict(), None);
}

#[test]
fn a_master_that_becomes_a_replica_is_noticed() {
    let servers = servers(2);
    let nodes = patient(&[servers[0].url()]);
    assert!(is_yes(&ask(first(&nodes), &acquire("k", "a"))));
    servers[0].replica_of(&servers[1]);
    let readonly = failure(ask(first(&nodes), &acquire("k2", "a")));
    // The server has served this client before, so the refusal may pass.
    assert_eq!((readonly.kind, readonly.executed), (FailureKind::Transient, Executed::No), "{}", readonly.message);
    let replica = failure(ask(first(&nodes), &acquire("k2", "a")));
    assert!(replica.message.starts_with("is a replica of"), "{}", replica.message);
}

#[test]
fn passwords_are_given_and_their_refusal_is_told() {
    let server = Server::builder().password("secret").start();
    assert!(is_yes(&ask(first(&patient(&[server.url()])), &acquire("k", "a"))));
    let with = |login: &str| {
        let nodes = patient(&[format!("redis://{login}127.0.0.1:{}", server.port())]);
        let failure = failure(ask(first(&nodes), &acquire("k", "a")));
        assert_eq!((failure.kind, failure.executed), (FailureKind::Denied, Executed::No), "{}", failure.message);
        assert!(!failure.message.contains("guess") && !format!("{nodes:?}").contains("guess"));
        failure.message
    };
    assert!(with(":guess@").starts_with("WRONGPASS"));
    assert!(with("stranger:guess@").starts_with("WRONGPASS"));
    assert!(with("").starts_with("NOAUTH"));
    let open = Server::start();
    let nodes = patient(&[format!("redis://:guess@127.0.0.1:{}", open.port())]);
    assert_eq!(failure(ask(first(&nodes), &acquire("k", "a"))).kind, FailureKind::Denied);
}

#[test]
fn a_server_that_hides_its_identity_serves_all_the_same() {
    let server = Server::start();
    let rights = ["ACL", "SETUSER", "u", "on", ">pw", "~*", "+@scripting", "+@read", "+@write", "+time", "-info"];
    let mut command = redis::cmd(rights[0]);
    server.ask::<()>(command.arg(&rights[1..]));
    let nodes = patient(&[format!("redis://u:pw@127.0.0.1:{}", server.port())]);
    assert!(is_yes(&ask(first(&nodes), &acquire("k", "a"))));
    assert_eq!(first(&nodes).uptime(), None);
    server.ask::<()>(redis::cmd("ACL").arg("SETUSER").arg("u").arg("-evalsha"));
    let refused = failure(ask(first(&nodes), &acquire("k", "a")));
    assert_eq!((refused.kind, refused.executed), (FailureKind::Transient, Executed::No), "{}", refused.message);
}

#[test]
fn a_database_that_does_not_exist_is_told() {
    let server = Server::start();
    let nodes = patient(&[format!("{}99", server.url())]);
    let failure = failure(ask(first(&nodes), &acquire("k", "a")));
    assert_eq!((failure.kind, failure.executed), (FailureKind::Denied, Executed::No), "{}", failure.message);
}

#[test]
fn a_server_with_too_many_clients_counts_as_unreachable() {
    let server = Server::start();
    server.config("maxclients", "1");
    let nodes = patient(&[server.url()]);
    let failure = failure(ask(first(&nodes), &acquire("k", "a")));
    assert_eq!((failure.kind, failure.executed), (FailureKind::Unreachable, Executed::No), "{}", failure.message);
    server.config("maxclients", "100");
    eventually("there is room", SOON, || is_yes(&ask(first(&nodes), &acquire("k", "a"))));
}
