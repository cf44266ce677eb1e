//! Signals to this process. A signal during the wait for the lock ends the wait. Later signals are forwarded to the
//! program.

use std::io;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use redlock_sync::Redlock;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};

/// An event while the program runs.
pub(crate) enum Event {
    Ended,
    Lost,
    Signal(i32),
}

const CAUGHT: [i32; 6] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2];

pub(crate) struct Signals {
    waiting: Arc<Mutex<bool>>,
}

impl Signals {
    /// Catches signals from now on. Signals that are ignored, such as SIGHUP under `nohup`, stay ignored for this
    /// process and for the program.
    pub(crate) fn catch(locks: &Redlock, events: Sender<Event>) -> io::Result<Signals> {
        let mut signals = signal_hook::iterator::Signals::new(not_ignored(CAUGHT))?;
        let waiting = Arc::new(Mutex::new(true));
        let (is_waiting, locks) = (Arc::clone(&waiting), locks.clone());
        thread::Builder::new().name("redlock-signals".to_owned()).spawn(move || {
            for signal in signals.forever() {
                // The mutex stays locked until the wait has ended, so that the process does not end before.
                let mut is_waiting = own(&is_waiting);
                _ = events.send(Event::Signal(signal));
                if std::mem::take(&mut *is_waiting) {
                    _ = locks.close();
                }
            }
        })?;
        Ok(Signals { waiting })
    }

    /// Ends the wait: signals that were sent before are in `events`, and later signals do not close the client.
    pub(crate) fn go_on(&self) {
        *own(&self.waiting) = false;
    }
}

/// Returns those of the signals that are not ignored. For example, `nohup` ignores SIGHUP.
pub(crate) fn not_ignored<const N: usize>(signals: [i32; N]) -> impl Iterator<Item = i32> {
    let ignored = ignored();
    signals.into_iter().filter(move |signal| ignored >> (signal - 1) & 1 == 0)
}

fn own(waiting: &Mutex<bool>) -> MutexGuard<'_, bool> {
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The bit mask of ignored signals. It is known only on Linux.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

/// The exit code of a program that this signal ended, as shells report it.
pub(crate) fn signalled(signal: i32) -> u8 {
    u8::try_from(128 + signal).unwrap_or(u8::MAX)
}
