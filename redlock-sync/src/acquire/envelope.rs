//! What a release pushes, as the release script writes it.

use std::time::Duration;

use crate::token::LockId;

/// What a release pushes to the next waiter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Envelope {
    /// 0 if none was wanted.
    pub(crate) fence: u64,
    /// Server time in ms at which the chain of grants began.
    pub(crate) chain: u64,
    /// How long the grant lasts.
    pub(crate) span: Duration,
    /// The token that the lock has been given; none if it is merely free.
    pub(crate) token: Option<LockId>,
}

impl Envelope {
    /// Reads `fence chain span token`.
    pub(crate) fn read(bytes: &[u8]) -> Option<Envelope> {
        let text = std::str::from_utf8(bytes).ok()?;
        let mut parts = text.splitn(4, ' ');
        let mut number = || parts.next()?.parse::<u64>().ok();
        let (fence, chain, span) = (number()?, number()?, number()?);
        let token = parts.next()?;
        let token = (!token.is_empty()).then(|| LockId::from_server(token));
        Some(Envelope { fence, chain, span: Duration::from_millis(span), token })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn envelopes_are_read() {
        let envelope = Envelope::read(b"5 6 7000 abc: d").unwrap();
        assert_eq!((envelope.fence, envelope.chain, envelope.span), (5, 6, Duration::from_secs(7)));
        assert_eq!(envelope.token.unwrap().as_str(), "abc: d");
        assert_eq!(Envelope::read(b"0 0 0 ").unwrap().token, None);
        for odd in ["", "1 2", "1 2 3", "x 2 3 t"] {
            assert_eq!(Envelope::read(odd.as_bytes()), None, "{odd:?}");
        }
    }
}
