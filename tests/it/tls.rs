//! Servers behind TLS, with a private authority and with valid and invalid certificates.
//!
//! The environment of a process names the authorities that it trusts. So the tests run clients in a separate process.

mod relay;
mod told;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use redlock_sync::{Builder, ConfigKind, Error, Redlock, Tls};
use redlock_tests::{Server, eventually};
use rustls::version::{TLS12, TLS13};

use self::relay::{Authority, Relay};

/// The longest time of a refusal. A client would repeat a temporary failure for ten seconds.
const AT_ONCE_MS: u64 = 2000;

/// The output of a process that trusts `authority` and uses the server at this URL, and its duration in ms.
fn agent(server: &Server, authority: &Authority, url: &str) -> (u64, String) {
    let file = server.dir().join("authority.pem");
    put(&file, authority.pem()).unwrap();
    agent_with("SSL_CERT_FILE", file.to_str().unwrap(), url)
}

fn agent_with(variable: &str, value: &str, url: &str) -> (u64, String) {
    agent_in(&[(variable, value)], url)
}

fn agent_in(environment: &[(&str, &str)], url: &str) -> (u64, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_agent"));
    // The environment of the tests must not matter.
    for variable in ["SSL_CERT_FILE", "SSL_CERT_DIR", "REDIS_URL", "REDLOCK_NODES"] {
        command.env_remove(variable);
    }
    command.args(["tls", url]).envs(environment.iter().copied());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8(output.stdout).unwrap();
    let (ms, end) = said.trim_end().split_once(' ').unwrap();
    (ms.parse().unwrap(), end.to_owned())
}

/// Asserts that the call was refused at once, by an error with the node and these words.
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
        // `SSL_CERT_DIR` works too.
        let (_, end) = agent_with("SSL_CERT_DIR", server.dir().to_str().unwrap(), &relay.url(host));
        assert_eq!(end, "ok");
    }
}

#[test]
fn input_14_an_authority_that_is_not_trusted() {
    let (server, authority) = (Server::start(), Authority::new());
    let relay = Relay::start(&server, authority.config("127.0.0.1", false, &[&TLS13]));
    refused(agent(&server, &Authority::new(), &relay.url("127.0.0.1")), &["invalid peer certificate", "SSL_CERT_FILE"]);
    // This client uses the certificates of the system, whatever they are.
    let error = redlock_tests::open(relay.url("127.0.0.1")).mutex("a").lock().unwrap_err();
    assert!(
        matches!(&error, Error::Config { message, kind: ConfigKind::Tls } if message.contains("SSL_CERT_FILE")),
        "{error}"
    );
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
        let words = ["client certificate", "Builder::tls", "tls-auth-clients no"];
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

#[test]
fn input_14_a_plain_url_for_a_port_with_tls() {
    let (server, authority) = (Server::start(), Authority::new());
    for version in [&TLS13, &TLS12] {
        let relay = Relay::start(&server, authority.config("127.0.0.1", false, &[version]));
        let plain = format!("redis://127.0.0.1:{}/", relay.port());
        let error = redlock_tests::open(plain).mutex("a").lock().unwrap_err();
        let is_told = |text: &str| text.contains("speaks TLS: use `rediss`") && text.contains("node 1 (");
        assert!(matches!(&error, Error::Config { message, kind: ConfigKind::Tls } if is_told(message)), "{error}");
    }
}

// --- a given authority and certificate ---

const SOON: Duration = Duration::from_secs(30);

/// The certificate and key files of a client.
struct Files {
    ca: PathBuf,
    certificate: PathBuf,
    key: PathBuf,
}

impl Files {
    fn of(dir: &Path, authority: &Authority) -> Files {
        let files = Files { ca: dir.join("ca.pem"), certificate: dir.join("client.pem"), key: dir.join("client.key") };
        files.write(authority);
        files
    }

    fn write(&self, authority: &Authority) {
        let (certificate, key) = authority.identity();
        for (file, text) in [(&self.ca, authority.pem()), (&self.certificate, certificate), (&self.key, key)] {
            put(file, text).unwrap();
        }
    }

    fn tls(&self) -> Tls {
        Tls::new().ca_file(&self.ca).identity_files(&self.certificate, &self.key)
    }
}

fn settings(relay: &Relay, tls: Tls) -> Builder {
    Redlock::builder()
        .node(relay.url("127.0.0.1"))
        .node_timeout(Duration::from_secs(2))
        .unavailable_after(SOON)
        .tls(tls)
}

#[test]
fn input_14_a_client_certificate_that_is_given() {
    let (server, authority) = (Server::start(), Authority::new());
    let files = Files::of(&server.dir(), &authority);
    let (certificate, key) = authority.identity();
    for version in [&TLS13, &TLS12] {
        let relay = Relay::start(&server, authority.config("127.0.0.1", true, &[version]));
        let texts = Tls::new().ca_pem(authority.pem()).identity_pem(&certificate, &key);
        for tls in [files.tls(), texts] {
            assert!(!format!("{tls:?}").contains("BEGIN"));
            settings(&relay, tls).build().unwrap().mutex("a").lock().unwrap().unlock().unwrap();
        }
        // This client's certificate is of an authority that the server does not trust.
        let (certificate, key) = Authority::new().identity();
        let stranger = Tls::new().ca_file(&files.ca).identity_pem(certificate, key);
        let error = settings(&relay, stranger).build().unwrap().mutex("a").lock().unwrap_err();
        let is_told = |text: &str| text.contains("does not accept the client's certificate") && text.contains("node 1");
        assert!(matches!(&error, Error::Config { message, kind: ConfigKind::Tls } if is_told(message)), "{error}");
    }
    let relay = Relay::start(&server, authority.config("127.0.0.1", true, &[&TLS13]));
    let [ca, certificate, key] = [&files.ca, &files.certificate, &files.key].map(|path| path.to_str().unwrap());
    let named = [("REDLOCK_TLS_CA", ca), ("REDLOCK_TLS_CERT", certificate), ("REDLOCK_TLS_KEY", key)];
    assert_eq!(agent_in(&named, &relay.url("127.0.0.1")).1, "ok");
    // If certificates are given, then the system's certificates are not read.
    let nowhere = server.dir().join("nowhere.pem");
    let unread = [&named[..], &[("SSL_CERT_FILE", nowhere.to_str().unwrap())]].concat();
    assert_eq!(agent_in(&unread, &relay.url("127.0.0.1")).1, "ok");
}

/// The server has shown that it speaks TLS, so the call is sent again over another connection.
#[test]
fn bytes_of_another_protocol_break_a_connection_that_has_worked() {
    let (server, authority) = (Server::start(), Authority::new());
    let relay = Relay::start(&server, authority.config("127.0.0.1", false, &[&TLS13]));
    let locks = settings(&relay, Tls::new().ca_pem(authority.pem())).build().unwrap();
    for n in 0..5 {
        locks.mutex(format!("{n}")).lock().unwrap().unlock().unwrap();
        relay.garble();
    }
    locks.mutex("last").lock().unwrap().unlock().unwrap();
}

#[test]
fn input_14_files_that_cannot_be_used() {
    let (server, authority) = (Server::start(), Authority::new());
    let files = Files::of(&server.dir(), &authority);
    let (other_certificate, other_key) = authority.identity();
    let relay = Relay::start(&server, authority.config("127.0.0.1", false, &[&TLS13]));
    let key = fs::read_to_string(&files.key).unwrap();
    for (tls, words) in [
        (Tls::new().ca_file(server.dir().join("nowhere")), "nowhere: No such file"),
        (Tls::new().ca_file(&files.key), "client.key has no certificate"),
        (Tls::new().ca_pem(""), "has no certificate"),
        (Tls::new().identity_files(&files.certificate, &files.ca), "ca.pem has no private key"),
        (Tls::new().identity_pem(&other_certificate, &key), "cannot be used together"),
        (Tls::new().identity_pem("", &other_key), "has no certificate"),
    ] {
        let error = settings(&relay, tls).build().unwrap_err();
        let is_told =
            |text: &str| text.contains("TLS cannot be set up") && text.contains(words) && !text.contains("BEGIN");
        assert!(matches!(&error, Error::Config { message, kind: ConfigKind::Tls } if is_told(message)), "{error}");
    }
    let plain = Redlock::builder().node(server.url()).tls(files.tls()).build().unwrap_err();
    assert!(plain.to_string().contains("`rediss://`"), "{plain}");
}

#[test]
fn files_of_tls_are_read_again_at_the_next_connection() {
    let (server, first, second) = (Server::start(), Authority::new(), Authority::new());
    let files = Files::of(&server.dir(), &first);
    let relay = Relay::start(&server, first.config("127.0.0.1", true, &[&TLS13]));
    let locks = settings(&relay, files.tls()).build().unwrap();
    let held = locks.mutex("held").lock().unwrap();

    // Another authority signs the certificates of the server and the client. Existing connections continue, and new
    // ones use the new certificates.
    files.write(&second);
    held.extend(Duration::from_secs(60)).unwrap();
    relay.change(second.config("127.0.0.1", true, &[&TLS13]));
    locks.mutex("a").lock().unwrap().unlock().unwrap();
    held.extend(Duration::from_secs(60)).unwrap();

    // The server changes first, so calls are refused until the files are replaced.
    let third = Authority::new();
    relay.change(third.config("127.0.0.1", true, &[&TLS13]));
    let error = locks.mutex("a").try_lock().unwrap_err();
    assert!(error.is_unavailable() && error.to_string().contains("authority"), "{error}");
    put(&files.ca, third.pem()).unwrap();
    // A certificate without its key is a temporary error until the key file is there.
    let (certificate, key) = third.identity();
    put(&files.certificate, certificate).unwrap();
    // The client tries to connect again a quarter of a second after the refusal.
    eventually("the new files are read", SOON, || {
        let error = locks.mutex("a").try_lock().unwrap_err();
        error.is_unavailable() && error.to_string().contains("cannot be used together")
    });
    put(&files.key, key).unwrap();
    locks.mutex("a").lock().unwrap().unlock().unwrap();
    held.check().unwrap();
    held.unlock().unwrap();
}

/// Replaces a file in one step, so that a client reads either the old file or the new one.
fn put(path: impl AsRef<Path>, text: impl AsRef<[u8]>) -> io::Result<()> {
    let new = path.as_ref().with_extension("new");
    fs::write(&new, text)?;
    fs::rename(new, path)
}
