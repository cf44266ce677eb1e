//! Servers behind TLS, with a private authority and certificates of every sort.
//!
//! Which authorities a process trusts stands in its environment, so the client is an agent.

mod relay;

use std::fs;
use std::process::Command;

use redlock_sync::{Error, Redlock};
use redlock_tests::Server;
use rustls::version::{TLS12, TLS13};

use self::relay::{Authority, Relay};

/// What a refusal may take; a failure that can pass is tried again for ten seconds.
const AT_ONCE_MS: u64 = 2000;

/// What an agent that trusts `authority` says after using the server at this URL, and after how many ms.
fn agent(server: &Server, authority: &Authority, url: &str) -> (u64, String) {
    let file = server.dir().join("authority.pem");
    fs::write(&file, authority.pem()).unwrap();
    agent_with("SSL_CERT_FILE", file.to_str().unwrap(), url)
}

fn agent_with(variable: &str, value: &str, url: &str) -> (u64, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_agent"));
    command.args(["tls", url]).env_remove("SSL_CERT_FILE").env_remove("SSL_CERT_DIR").env(variable, value);
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8(output.stdout).unwrap();
    let (ms, end) = said.trim_end().split_once(' ').unwrap();
    (ms.parse().unwrap(), end.to_owned())
}

/// Asserts that it was refused at once, with the address and with these words.
#[track_caller]
fn refused((ms, end): (u64, String), words: &[&str]) {
    assert!(ms < AT_ONCE_MS, "after {ms} ms: {end}");
    assert!(end.starts_with("config ") && end.contains("node 1 ("), "{end}");
    assert!(words.iter().all(|word| end.contains(word)), "{words:?} in: {end}");
}

#[test]
fn input_14_an_authority_that_is_trusted() {
    let (server, authority) = (Server::start(), Authority::new());
    for (host, version) in [("127.0.0.1", &TLS13), ("localhost", &TLS13), ("localhost", &TLS12)] {
        let relay = Relay::start(&server, authority.config(host, false, &[version]));
        let (_, end) = agent(&server, &authority, &relay.url(host));
        assert_eq!(end, "ok", "{host} {version:?}");
        assert_eq!(server.get("a"), None);
        // A directory does, too.
        let (_, end) = agent_with("SSL_CERT_DIR", server.dir().to_str().unwrap(), &relay.url(host));
        assert_eq!(end, "ok");
    }
}

#[test]
fn input_14_an_authority_that_is_not_trusted() {
    let (server, authority) = (Server::start(), Authority::new());
    let relay = Relay::start(&server, authority.config("127.0.0.1", false, &[&TLS13]));
    refused(agent(&server, &Authority::new(), &relay.url("127.0.0.1")), &["invalid peer certificate", "SSL_CERT_FILE"]);
    // By the certificates of this system, whatever they are.
    let error = Redlock::open(relay.url("127.0.0.1")).unwrap().mutex("a").lock().unwrap_err();
    assert!(matches!(&error, Error::Config { message } if message.contains("SSL_CERT_FILE")), "{error}");
}

#[test]
fn input_14_a_certificate_for_another_host() {
    let (server, authority) = (Server::start(), Authority::new());
    let relay = Relay::start(&server, authority.config("redis.example", false, &[&TLS13]));
    refused(agent(&server, &authority, &relay.url("localhost")), &["not valid for name", "redis.example", "host name"]);
}

#[test]
fn input_14_a_client_certificate_is_asked_for() {
    let (server, authority) = (Server::start(), Authority::new());
    for version in [&TLS13, &TLS12] {
        let relay = Relay::start(&server, authority.config("127.0.0.1", true, &[version]));
        let words = ["client certificate", "tls-auth-clients no"];
        refused(agent(&server, &authority, &relay.url("127.0.0.1")), &words);
    }
}

#[test]
fn input_14_certificates_that_cannot_be_read() {
    let (server, authority) = (Server::start(), Authority::new());
    let relay = Relay::start(&server, authority.config("127.0.0.1", false, &[&TLS13]));
    let nowhere = server.dir().join("nowhere.pem");
    let words = ["nowhere.pem", "SSL_CERT_FILE"];
    refused(agent_with("SSL_CERT_FILE", nowhere.to_str().unwrap(), &relay.url("127.0.0.1")), &words);
}
