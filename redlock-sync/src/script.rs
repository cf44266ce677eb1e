//! The scripts that run on the server, and one call of one of them.
//!
//! Each is a `.lua` file that states its keys, arguments and replies in its first lines. A script is called by its digest; a node
//! that does not know it yet answers NOSCRIPT and is sent the source in the same round.

use std::sync::{LazyLock, OnceLock};

use std::time::Duration;

/// A server-side script with its digest.
#[derive(Debug)]
pub(crate) struct Script {
    /// What it does in the words of the library's users; two scripts can do the same.
    pub(crate) operation: &'static str,
    pub(crate) source: &'static str,
    pub(crate) sha: String,
}

macro_rules! scripts {
    ($($ident:ident = $file:literal for $operation:literal),+ $(,)?) => {
        $(pub(crate) static $ident: LazyLock<Script> = LazyLock::new(|| {
            let source = crate::sabotage::script($file, include_str!(concat!("lua/", $file, ".lua")));
            Script { operation: $operation, source, sha: sha1_smol::Sha1::from(source).hexdigest() }
        });)+

        /// Every script of the crate.
        pub(crate) fn all() -> Vec<&'static Script> {
            vec![$(&*$ident),+]
        }
    };
}

scripts! {
    TAKE = "take" for "acquire",
    ACQUIRE = "acquire" for "acquire",
    EXTEND = "extend" for "extend",
    FENCE = "fence" for "fence",
    FREE = "free" for "release",
    RELEASE = "release" for "release",
    INSPECT = "inspect" for "inspect",
    WAITERS = "waiters" for "waiters",
}

/// What a node needs to know of a call beyond its bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Purpose {
    /// May set our token: a late one has to be undone.
    Acquire,
    /// Takes our token away: has to get through, also behind a late acquire.
    Release,
    /// Changes nothing that could outlive the lease.
    Other,
}

/// One script call: the same for every node of a round.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) script: &'static Script,
    pub(crate) purpose: Purpose,
    /// The token the call is about; late sockets are filed under it.
    pub(crate) token: String,
    pub(crate) keys: Vec<String>,
    pub(crate) args: Vec<String>,
    /// For how long a late execution could matter: the lease it would set.
    pub(crate) lifetime: Duration,
    /// Gets the argument `again` when it is sent a second time, or behind a late call.
    pub(crate) tells_again: bool,
    /// The bytes on the wire, made by the node layer once per round.
    pub(crate) packed: OnceLock<Vec<u8>>,
}

impl Call {
    pub(crate) fn new(script: &'static Script, purpose: Purpose, token: &str, lifetime: Duration) -> Call {
        Call {
            script,
            purpose,
            token: token.to_owned(),
            keys: Vec::with_capacity(2),
            args: Vec::with_capacity(4),
            lifetime,
            tells_again: false,
            packed: OnceLock::new(),
        }
    }

    pub(crate) fn key(mut self, key: &str) -> Call {
        self.keys.push(key.to_owned());
        self
    }

    /// Makes a second transmission known as one.
    pub(crate) fn telling_again(mut self) -> Call {
        self.tells_again = true;
        self
    }

    pub(crate) fn text(mut self, arg: &str) -> Call {
        self.args.push(arg.to_owned());
        self
    }

    pub(crate) fn number(mut self, arg: u64) -> Call {
        self.args.push(arg.to_string());
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_script_has_its_own_digest() {
        let mut digests: Vec<&str> = all().iter().map(|script| script.sha.as_str()).collect();
        digests.sort_unstable();
        digests.dedup();
        assert_eq!(digests.len(), all().len());
        assert!(digests.iter().all(|sha| sha.len() == 40));
    }
}
