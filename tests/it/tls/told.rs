//! Servers whose addresses come from other servers: those of a Sentinel group, and of a cluster. The URL does not name
//! the servers that have the locks.

use std::time::Duration;

use redis::cmd;
use redlock_sync::{ConfigKind, Error, Redlock, Tls};
use redlock_tests::{Cluster, Server, eventually};
use rustls::version::TLS13;

use super::SOON;
use super::relay::{Authority, Relay};

/// A relay in front of a server, which asks for a client certificate.
fn front(server: &Server, authority: &Authority) -> Relay {
    Relay::start(server, authority.config("127.0.0.1", true, &[&TLS13]))
}

/// Asserts that a client with the authority's certificates can take locks, and that other clients are refused with a
/// reason.
fn is_for_those_who_are_known(url: &str, authority: &Authority) {
    let open = |tls| {
        let settings = Redlock::builder().node(url).node_timeout(Duration::from_secs(2)).unavailable_after(SOON);
        settings.tls(tls).build().unwrap()
    };
    let (mine, other) = (authority.identity(), Authority::new().identity());
    let locks = open(Tls::new().ca_pem(authority.pem()).identity_pem(&mine.0, &mine.1));
    for key in ["foo", "bar", "c"] {
        locks.mutex(key).lock().unwrap().unlock().unwrap();
    }
    let refused = |tls, words: &str| {
        let error = open(tls).mutex("foo").lock().unwrap_err();
        assert!(
            matches!(&error, Error::Config { message, kind: ConfigKind::Tls } if message.contains(words)),
            "{error:?}"
        );
    };
    refused(
        Tls::new().ca_pem(authority.pem()).identity_pem(&other.0, &other.1),
        "does not accept the client's certificate",
    );
    refused(Tls::new().identity_pem(&mine.0, &mine.1), "certificate");
}

#[test]
fn certificates_are_for_sentinels_and_for_the_server_that_they_tell() {
    let (server, sentinel, authority) = (Server::start(), Server::builder().sentinel().start(), Authority::new());
    let [at_server, at_sentinel] = [&server, &sentinel].map(|server| front(server, &authority).port());
    // The Sentinel itself uses no TLS, so it regards the master as down.
    sentinel.ask::<()>(cmd("SENTINEL").arg(&["MONITOR", "main", "127.0.0.1", &at_server.to_string(), "1"]));
    is_for_those_who_are_known(&format!("rediss+sentinel://127.0.0.1:{at_sentinel}/main"), &authority);
}

#[test]
fn certificates_are_for_all_servers_of_a_cluster() {
    let (cluster, authority) = (Cluster::without_replicas(), Authority::new());
    let ports: Vec<u16> = cluster.servers().iter().map(|server| front(server, &authority).port()).collect();
    for (server, port) in cluster.servers().iter().zip(&ports) {
        server.config("cluster-announce-port", &port.to_string());
    }
    eventually("all servers announce the ports of the relays", SOON, || {
        let told: Vec<String> =
            cluster.servers().iter().map(|server| server.ask(cmd("CLUSTER").arg("NODES"))).collect();
        told.iter().all(|nodes| ports.iter().all(|port| nodes.contains(&format!(":{port}@"))))
    });
    is_for_those_who_are_known(&format!("rediss+cluster://127.0.0.1:{}", ports[0]), &authority);
}
