//! The certificates of TLS: which authorities a client trusts, and its own certificate.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, ClientConnection, RootCertStore};

use super::tls::prepared;
use super::{Failure, FailureKind};
use crate::error::{ConfigKind, Error};

/// Feature `tls`: the authorities that a client trusts instead of the system's, and a certificate of the client. See
/// [`Builder::tls`](crate::Builder::tls).
///
/// Files are PEM, and are read again for each new connection. If a file is replaced, new connections use the new one.
/// If a certificate and its key are replaced one after the other, they do not match for a moment. Connections made in
/// that moment fail, and are tried again.
///
/// ```
/// # let dir = redlock_tests::Server::start().dir();
/// use redlock_sync::{Redlock, Tls};
/// let tls = Tls::new().ca_file("/etc/redis/ca.pem").identity_files("/etc/redis/shop.pem", "/etc/redis/shop.key");
/// let locks = Redlock::builder().node("rediss://redis.example/").tls(tls).build();
/// assert!(locks.unwrap_err().to_string().contains("/etc/redis/ca.pem")); // there is no such file here
/// ```
#[derive(Clone, Default)]
#[must_use = "it has an effect when it is given to `Builder::tls`"]
pub struct Tls {
    authorities: Option<Pem>,
    certificate: Option<Pem>,
    key: Option<Pem>,
}

/// The source of a PEM text.
#[derive(Clone)]
enum Pem {
    File(PathBuf),
    Text(Arc<[u8]>),
}

impl Tls {
    /// The system's authorities, and no certificate for this client.
    ///
    /// ```
    /// let tls = redlock_sync::Tls::new();
    /// # let _ = tls;
    /// ```
    pub fn new() -> Tls {
        Tls::default()
    }

    /// Trusts the authorities in this file, and no others. The environment variable is `REDLOCK_TLS_CA`.
    ///
    /// ```
    /// let tls = redlock_sync::Tls::new().ca_file("/etc/redis/ca.pem");
    /// # let _ = tls;
    /// ```
    pub fn ca_file(mut self, path: impl AsRef<Path>) -> Tls {
        self.authorities = Some(Pem::File(path.as_ref().to_owned()));
        self
    }

    /// Trusts the authorities in this text, and no others.
    ///
    /// ```
    /// let tls = redlock_sync::Tls::new().ca_pem("-----BEGIN CERTIFICATE-----…");
    /// # let _ = tls;
    /// ```
    pub fn ca_pem(mut self, text: impl AsRef<[u8]>) -> Tls {
        self.authorities = Some(Pem::Text(text.as_ref().into()));
        self
    }

    /// Uses the certificate in the first file, which its issuers' certificates may follow, with the private key in the
    /// second. The environment variables are `REDLOCK_TLS_CERT` and `REDLOCK_TLS_KEY`.
    ///
    /// ```
    /// let tls = redlock_sync::Tls::new().identity_files("/etc/redis/shop.pem", "/etc/redis/shop.key");
    /// # let _ = tls;
    /// ```
    pub fn identity_files(self, certificate: impl AsRef<Path>, key: impl AsRef<Path>) -> Tls {
        self.certificate_file(certificate.as_ref()).key_file(key.as_ref())
    }

    /// Uses the certificate in the first text, which its issuers' certificates may follow, with the private key in the
    /// second.
    ///
    /// ```
    /// let tls = redlock_sync::Tls::new().identity_pem("-----BEGIN CERTIFICATE-----…", "-----BEGIN PRIVATE KEY-----…");
    /// # let _ = tls;
    /// ```
    pub fn identity_pem(mut self, certificate: impl AsRef<[u8]>, key: impl AsRef<[u8]>) -> Tls {
        self.certificate = Some(Pem::Text(certificate.as_ref().into()));
        self.key = Some(Pem::Text(key.as_ref().into()));
        self
    }

    pub(crate) fn certificate_file(mut self, path: &Path) -> Tls {
        self.certificate = Some(Pem::File(path.to_owned()));
        self
    }

    pub(crate) fn key_file(mut self, path: &Path) -> Tls {
        self.key = Some(Pem::File(path.to_owned()));
        self
    }

    /// Checks that all certificates and keys can be read and used now.
    pub(crate) fn check(&self) -> Result<(), Error> {
        self.read().map(drop).map_err(|why| Error::config_of(ConfigKind::Tls, &format!("TLS cannot be set up: {why}")))
    }

    /// Starts a TLS session for this host name. Sends nothing yet.
    pub(super) fn session(&self, host: &str) -> Result<ClientConnection, Failure> {
        let name = ServerName::try_from(host.to_owned()).map_err(|why| refused(&why))?;
        ClientConnection::new(Arc::new(self.config()?), name).map_err(|why| refused(&why))
    }

    /// Reads the files for each connection, since a mounted secret may be replaced at any time. So a file that cannot
    /// be read is a failure that may pass. The system's certificates are taken as they are.
    fn config(&self) -> Result<ClientConfig, Failure> {
        let failed = |why| Failure::unsent(FailureKind::Unreachable, format!("TLS cannot be set up: {why}"));
        let (authorities, identity) = self.read().map_err(failed)?;
        let trusted = authorities.map_or_else(system_authorities, Ok)?;
        let config = ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
        let config = config.map_err(|why| failed(why.to_string()))?.with_root_certificates(trusted);
        match identity {
            None => Ok(config.with_no_client_auth()),
            Some((chain, key)) => config.with_client_auth_cert(chain, key).map_err(|why| failed(why.to_string())),
        }
    }

    fn read(&self) -> Result<(Option<RootCertStore>, Option<ClientIdentity>), String> {
        let authorities = self.authorities.as_ref().map(read_authorities).transpose()?;
        let identity = match (&self.certificate, &self.key) {
            (Some(certificate), Some(key)) => Some(read_identity(certificate, key)?),
            (None, None) => None,
            (Some(certificate), None) => return Err(format!("a certificate ({certificate}) is given without its key")),
            (None, Some(key)) => return Err(format!("a key ({key}) is given without its certificate")),
        };
        Ok((authorities, identity))
    }
}

/// A certificate with its chain of issuers, and its private key.
type ClientIdentity = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

fn provider() -> Arc<CryptoProvider> {
    CryptoProvider::get_default().cloned().unwrap_or_else(|| Arc::new(ring::default_provider()))
}

/// A failure that does not pass by trying again.
fn refused(why: &dyn std::error::Error) -> Failure {
    Failure::unsent(FailureKind::Tls, prepared(why))
}

fn system_authorities() -> Result<RootCertStore, Failure> {
    let mut found = rustls_native_certs::load_native_certs();
    if let Some(error) = found.errors.pop() {
        return Err(refused(&error));
    }
    let mut trusted = RootCertStore::empty();
    for certificate in found.certs {
        trusted.add(certificate).map_err(|why| refused(&why))?;
    }
    Ok(trusted)
}

fn read_authorities(pem: &Pem) -> Result<RootCertStore, String> {
    let mut trusted = RootCertStore::empty();
    for certificate in pem.certificates()? {
        trusted.add(certificate).map_err(|why| format!("{pem} cannot be trusted as an authority: {why}"))?;
    }
    Ok(trusted)
}

/// Checks here that key and certificate belong together. Otherwise the mismatch would appear only when the server is
/// dialled.
fn read_identity(certificate: &Pem, key: &Pem) -> Result<ClientIdentity, String> {
    let chain = certificate.certificates()?;
    let secret =
        PrivateKeyDer::from_pem_slice(&key.read()?).map_err(|why| format!("{key} has no private key: {why}"))?;
    CertifiedKey::from_der(chain.clone(), secret.clone_key(), &provider()).map_err(|why| {
        format!("the certificate in {certificate} and the key in {key} cannot be used together: {why}")
    })?;
    Ok((chain, secret))
}

impl Pem {
    fn read(&self) -> Result<Vec<u8>, String> {
        match self {
            Pem::File(path) => std::fs::read(path).map_err(|error| format!("{self}: {error}")),
            Pem::Text(text) => Ok(text.to_vec()),
        }
    }

    fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, String> {
        let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&self.read()?).collect();
        let all = all.map_err(|why| format!("{self} cannot be read as PEM: {why}"))?;
        if all.is_empty() { Err(format!("{self} has no certificate")) } else { Ok(all) }
    }
}

impl fmt::Display for Pem {
    /// Never shows the contents.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Pem::File(path) => write!(f, "{}", path.display()),
            Pem::Text(_) => f.write_str("the text that was given"),
        }
    }
}

impl fmt::Debug for Tls {
    /// Shows paths only, never a key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |pem: &Option<Pem>| pem.as_ref().map(ToString::to_string);
        f.debug_struct("Tls")
            .field("ca", &shown(&self.authorities))
            .field("certificate", &shown(&self.certificate))
            .field("key", &shown(&self.key))
            .finish()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by a panic")]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_in_no_certificate_is_refused() {
        let failure = Tls::new().session("a b").unwrap_err();
        assert!(failure.kind == FailureKind::Tls && failure.message.contains("cannot be set up"), "{failure:?}");
    }
}
