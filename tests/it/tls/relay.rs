//! TLS in front of a plain server, because the server that the tests fetch is built without TLS.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use redlock_tests::Server;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection, SupportedProtocolVersion};

/// A private authority that signs the certificates of servers.
pub(super) struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub(super) fn new() -> Authority {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Authority(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    /// The authority's own certificate in PEM format.
    pub(super) fn pem(&self) -> String {
        self.0.pem()
    }

    /// A certificate for a host name or address, and its key.
    fn certify(&self, host: &str) -> (CertificateDer<'static>, PrivatePkcs8KeyDer<'static>) {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new([host.to_owned()]).unwrap().signed_by(&key, &self.0).unwrap();
        (certificate.der().clone(), PrivatePkcs8KeyDer::from(key.serialize_der()))
    }

    /// A certificate for a client, and its key, in PEM format.
    pub(super) fn identity(&self) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(["shop".to_owned()]).unwrap().signed_by(&key, &self.0).unwrap();
        (certificate.pem(), key.serialize_pem())
    }

    /// The configuration of a server with a certificate for this host.
    pub(super) fn config(
        &self,
        host: &str,
        asks_for_certificate: bool,
        versions: &[&'static SupportedProtocolVersion],
    ) -> ServerConfig {
        let (certificate, key) = self.certify(host);
        let builder = ServerConfig::builder_with_protocol_versions(versions);
        let builder = if asks_for_certificate {
            let mut roots = RootCertStore::empty();
            roots.add(self.0.der().clone()).unwrap();
            builder.with_client_cert_verifier(WebPkiClientVerifier::builder(Arc::new(roots)).build().unwrap())
        } else {
            builder.with_no_client_auth()
        };
        builder.with_single_cert(vec![certificate], key.into()).unwrap()
    }
}

/// Listens for TLS and relays the decrypted data. The relay ends with the test process.
pub(super) struct Relay {
    port: u16,
    config: Arc<Mutex<Arc<ServerConfig>>>,
    clients: Arc<Mutex<Vec<TcpStream>>>,
}

impl Relay {
    pub(super) fn start(server: &Server, config: ServerConfig) -> Relay {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (port, target) = (listener.local_addr().unwrap().port(), server.addr());
        let config = Arc::new(Mutex::new(Arc::new(config)));
        let clients = Arc::new(Mutex::new(Vec::new()));
        let (now, all) = (Arc::clone(&config), Arc::clone(&clients));
        thread::spawn(move || {
            for client in listener.incoming() {
                let tls = ServerConnection::new(Arc::clone(&now.lock().unwrap())).unwrap();
                // If the server is down, then the client's connection is closed.
                if let (Ok(client), Ok(server)) = (client, TcpStream::connect(target)) {
                    all.lock().unwrap().push(client.try_clone().unwrap());
                    serve(client, server, tls);
                }
            }
        });
        Relay { port, config, clients }
    }

    /// Uses this configuration for new connections, and ends all current ones.
    pub(super) fn change(&self, config: ServerConfig) {
        *self.config.lock().unwrap() = Arc::new(config);
        for client in self.clients.lock().unwrap().drain(..) {
            // Most connections are already closed.
            _ = client.shutdown(Shutdown::Both);
        }
    }

    /// Sends bytes of another protocol on all connections, without TLS.
    pub(super) fn garble(&self) {
        for mut client in self.clients.lock().unwrap().drain(..) {
            // Some connections may already be closed.
            _ = client.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    }

    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// `rediss://HOST:PORT/`.
    pub(super) fn url(&self, host: &str) -> String {
        format!("rediss://{host}:{}/", self.port)
    }
}

/// Starts two threads for a connection. Each thread reads one side, and both share the TLS state.
fn serve(client: TcpStream, server: TcpStream, tls: ServerConnection) {
    let tls = Arc::new(Mutex::new(tls));
    let (client_2, server_2, tls_2) = (client.try_clone().unwrap(), server.try_clone().unwrap(), Arc::clone(&tls));
    thread::spawn(move || {
        while decrypt(&client, &server, &tls).is_some() {}
        close(&client, &server);
    });
    thread::spawn(move || {
        while encrypt(&server_2, &client_2, &tls_2).is_some() {}
        close(&client_2, &server_2);
    });
}

fn close(client: &TcpStream, server: &TcpStream) {
    // One of the two may already be closed.
    _ = client.shutdown(Shutdown::Both);
    _ = server.shutdown(Shutdown::Both);
}

/// Relays one portion from the client. Returns `None` when the connection has ended.
fn decrypt(mut client: &TcpStream, mut server: &TcpStream, tls: &Mutex<ServerConnection>) -> Option<()> {
    let mut bytes = [0; 4096];
    let n = client.read(&mut bytes).ok().filter(|n| *n > 0)?;
    let mut tls = tls.lock().unwrap();
    let mut rest = &bytes[..n];
    while !rest.is_empty() {
        tls.read_tls(&mut rest).ok()?;
        let state = tls.process_new_packets();
        // This also sends the alert with the reason of a failure.
        while tls.wants_write() {
            tls.write_tls(&mut client).ok()?;
        }
        let mut plain = vec![0; state.ok()?.plaintext_bytes_to_read()];
        tls.reader().read_exact(&mut plain).ok()?;
        server.write_all(&plain).ok()?;
    }
    Some(())
}

/// Relays one portion from the server.
fn encrypt(mut server: &TcpStream, mut client: &TcpStream, tls: &Mutex<ServerConnection>) -> Option<()> {
    let mut bytes = [0; 4096];
    let n = server.read(&mut bytes).ok().filter(|n| *n > 0)?;
    let mut tls = tls.lock().unwrap();
    tls.writer().write_all(&bytes[..n]).ok()?;
    while tls.wants_write() {
        tls.write_tls(&mut client).ok()?;
    }
    Some(())
}
