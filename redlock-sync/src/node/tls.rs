//! The meaning of TLS errors. Some remain until a certificate or a setting is changed, so trying again does not help.

use std::error::Error as StdError;
use std::io;
use std::sync::Arc;

use redis::RedisError;
use rustls::{AlertDescription, CertificateError, Error};

/// What must be changed at the server or in the certificates. `None` for an error that may pass.
pub(super) fn refusal(error: &RedisError) -> Option<String> {
    let cause: &(dyn StdError + 'static) = &**error.source()?.downcast_ref::<Arc<dyn StdError + Send + Sync>>()?;
    cause.downcast_ref::<io::Error>()?.get_ref()?.downcast_ref().and_then(meaning)
}

/// The message if TLS fails before anything was sent.
pub(super) fn prepared(error: &dyn StdError) -> String {
    format!(
        "TLS cannot be set up: {error} (the system's certificates are read from SSL_CERT_FILE and \
         SSL_CERT_DIR if set, else from the system's store)"
    )
}

/// The meaning of an error of the TLS handshake, if it is permanent.
fn meaning(error: &Error) -> Option<String> {
    use AlertDescription::{
        AccessDenied, BadCertificate, CertificateExpired, CertificateRequired, CertificateRevoked, CertificateUnknown,
        DecryptError, HandshakeFailure, InsufficientSecurity, ProtocolVersion, UnknownCA, UnsupportedCertificate,
    };
    let remedy = match error {
        Error::InvalidCertificate(why) => certificate_remedy(why),
        Error::AlertReceived(CertificateRequired) => {
            "the server asks for a client certificate: give one with `Builder::tls` or REDLOCK_TLS_CERT, or set \
             `tls-auth-clients no` on the server"
        }
        // TLS 1.2 sends this alert if a client certificate is missing, but also in other cases.
        Error::AlertReceived(HandshakeFailure) => {
            "most likely the server asks for a client certificate: give one with `Builder::tls` or REDLOCK_TLS_CERT, \
             or set `tls-auth-clients no` on the server"
        }
        Error::AlertReceived(
            UnknownCA
            | BadCertificate
            | UnsupportedCertificate
            | CertificateRevoked
            | CertificateExpired
            | CertificateUnknown
            | DecryptError
            | AccessDenied,
        ) => {
            "the server does not accept the client's certificate: give one that is valid and signed by an authority that it trusts"
        }
        Error::AlertReceived(ProtocolVersion | InsufficientSecurity) | Error::PeerIncompatible(_) => {
            "configure the server to accept TLS 1.2 or 1.3"
        }
        Error::InvalidMessage(_) => "the server on this port does not speak TLS: use `redis://`, or give its TLS port",
        _ => return None,
    };
    Some(format!("TLS: {error} ({remedy})"))
}

fn certificate_remedy(why: &CertificateError) -> &'static str {
    match why {
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            "use a URL with a host name for which the server's certificate is valid"
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => "renew the server's certificate",
        _ => {
            "trust the authority that signed the server's certificate: name its certificate file with \
             `Builder::tls`, REDLOCK_TLS_CA or SSL_CERT_FILE, or add it to the system's certificates"
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by a panic")]
mod tests {
    use super::*;

    fn of(error: Error) -> Option<String> {
        refusal(&io::Error::new(io::ErrorKind::InvalidData, error).into())
    }

    #[test]
    fn what_lasts_is_told_with_a_remedy() {
        let says = |error: Error, words: &str| of(error).is_some_and(|why| why.contains(words));
        assert!(says(CertificateError::UnknownIssuer.into(), "SSL_CERT_FILE"));
        assert!(says(CertificateError::NotValidForName.into(), "host name"));
        assert!(says(CertificateError::Expired.into(), "renew"));
        assert!(says(Error::AlertReceived(AlertDescription::CertificateRequired), "tls-auth-clients no"));
        assert!(says(Error::AlertReceived(AlertDescription::ProtocolVersion), "1.2"));
        assert!(says(rustls::InvalidMessage::InvalidContentType.into(), "redis://"));
    }

    #[test]
    fn what_can_pass_is_none() {
        assert_eq!(of(Error::AlertReceived(AlertDescription::InternalError)), None);
        assert_eq!(of(Error::HandshakeNotComplete), None);
        assert_eq!(refusal(&io::Error::from(io::ErrorKind::ConnectionReset).into()), None);
        assert_eq!(refusal(&(redis::ErrorKind::Io, "could not resolve to any addresses").into()), None);
    }
}
