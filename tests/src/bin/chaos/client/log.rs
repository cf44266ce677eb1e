//! The log of a client. One write appends each whole line, so the log survives a sudden end of the process.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;

use crate::clock::now;
use crate::event::{Event, Session, What};

#[derive(Debug)]
pub(crate) struct Log(File);

impl Log {
    pub(crate) fn create(path: &Path) -> Self {
        Self(OpenOptions::new().create(true).append(true).open(path).expect("the log can be opened"))
    }

    /// Logs an event with the current time.
    pub(crate) fn note(&self, session: Session, key: usize, what: What) {
        self.note_at(now(), session, key, what);
    }

    pub(crate) fn note_at(&self, at: u64, session: Session, key: usize, what: What) {
        let line = format!("{}\n", Event { at, session, key, what });
        (&self.0).write_all(line.as_bytes()).expect("the log can be written");
    }
}
