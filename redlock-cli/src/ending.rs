//! How the program ends: its output and its exit code.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::process::ExitCode;

use redlock_sync::Error;
use serde::Serialize;

use crate::json;
use crate::stderr::say;

/// The exit code if the command cannot be executed as the command line or a variable asks, or if a key is not a lock.
pub(crate) const USAGE: u8 = 64;
pub(crate) const UNAVAILABLE: u8 = 69;
pub(crate) const LOST: u8 = 70;
/// The exit code if the operating system refused something.
pub(crate) const OS: u8 = 71;
pub(crate) const BUSY: u8 = 75;

/// The output of a command that succeeded.
pub(crate) struct Answer {
    text: String,
    code: u8,
}

impl Answer {
    pub(crate) fn new(text: String, code: u8) -> Answer {
        Answer { text, code }
    }

    pub(crate) fn json(shown: impl Serialize, code: u8) -> Answer {
        Answer::new(json::line(shown), code)
    }

    pub(crate) fn well(text: String) -> Answer {
        Answer::new(text, 0)
    }

    /// Prints the answer. A closed pipe is not an error, since its reader has read enough.
    pub(crate) fn give(self) -> ExitCode {
        let mut out = io::stdout().lock();
        match out.write_all(self.text.as_bytes()).and_then(|()| out.flush()) {
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Failure::from(error).tell(),
            _ => self.code.into(),
        }
    }
}

/// The error of a command that failed.
#[derive(Debug, Serialize)]
pub(crate) struct Failure {
    pub(crate) code: u8,
    pub(crate) message: String,
}

impl Failure {
    pub(crate) fn new(code: u8, message: impl Into<String>) -> Failure {
        Failure { code, message: message.into() }
    }

    pub(crate) fn tell(self) -> ExitCode {
        say(&self.message);
        self.code.into()
    }

    /// The error as JSON.
    pub(crate) fn as_json(&self) -> Answer {
        Answer::json(BTreeMap::from([("error", self)]), self.code)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let code = match &error {
            Error::Busy { .. } => BUSY,
            Error::Unavailable { .. } | Error::Unconfirmed { .. } => UNAVAILABLE,
            Error::Lost { .. } | Error::Cancelled { .. } | Error::Closed => LOST,
            _ => USAGE,
        };
        Failure::new(code, error.to_string())
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure::new(OS, error.to_string())
    }
}
