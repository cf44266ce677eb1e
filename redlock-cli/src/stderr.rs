//! Lines on stderr. Only the thread of this module writes them. A write waits for as long as a terminal (Ctrl-S) or a
//! pipe takes nothing, and nothing that ends the program or renews or releases the lock may wait for that.

use std::io::{self, Write};
use std::sync::OnceLock;
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{SigSet, Signal};

/// The largest number of lines that wait to be written. Further lines are dropped.
const MOST: usize = 100;
/// How long the process waits at its end for the lines. It waits as long only if stderr takes none.
const LAST_WAIT: Duration = Duration::from_secs(1);
/// How often it tries to ask for the end.
const PAUSE: Duration = Duration::from_millis(10);

enum Line {
    Text(String),
    /// Asks for an answer when all earlier lines are written.
    Last(SyncSender<()>),
}

/// The way to the thread, or `None` if it could not be started.
static LINES: OnceLock<Option<SyncSender<Line>>> = OnceLock::new();

/// Has a line written to stderr, which may be closed. This does not wait.
pub(crate) fn say(message: &str) {
    let text = format!("redlock: {message}\n");
    match LINES.get_or_init(start) {
        Some(lines) => _ = lines.try_send(Line::Text(text)),
        // Without threads, no lock is renewed either.
        None => put(&text),
    }
}

/// Waits for a short time until all lines are written.
pub(crate) fn flush() {
    let (done, is_done) = mpsc::sync_channel(1);
    let Some(Some(lines)) = LINES.get() else { return };
    let began = Instant::now();
    // There is no room while the thread cannot write.
    while lines.try_send(Line::Last(done.clone())).is_err() && began.elapsed() < LAST_WAIT {
        thread::sleep(PAUSE);
    }
    _ = is_done.recv_timeout(LAST_WAIT.saturating_sub(began.elapsed()));
}

/// Starts the thread at the first line, since signals are caught before other threads exist.
fn start() -> Option<SyncSender<Line>> {
    let (sender, lines) = mpsc::sync_channel(MOST);
    thread::Builder::new().name("redlock-stderr".to_owned()).spawn(move || write(&lines)).ok().map(|_| sender)
}

fn write(lines: &Receiver<Line>) {
    // After `stty tostop`, a write from the background would stop the whole process. If the signal is blocked, the
    // terminal takes the line.
    _ = SigSet::from_iter([Signal::SIGTTOU]).thread_block();
    for line in lines {
        match line {
            Line::Text(text) => put(&text),
            Line::Last(done) => _ = done.send(()),
        }
    }
}

fn put(text: &str) {
    _ = io::stderr().write_all(text.as_bytes());
}

/// A logger for the warnings of the library: unknown variables, and failures of servers.
pub(crate) struct Warnings;

impl log::Log for Warnings {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        metadata.level() <= log::Level::Warn && metadata.target().starts_with("redlock_sync")
    }

    fn log(&self, record: &log::Record<'_>) {
        if self.enabled(record.metadata()) {
            say(&record.args().to_string());
        }
    }

    fn flush(&self) {}
}
