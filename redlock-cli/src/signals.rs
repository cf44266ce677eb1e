//! Signals to this process. A signal during the wait for the lock ends the wait. Later signals are forwarded to the
//! program.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::thread;

use nix::sys::signal::{SigSet, SigmaskHow};
use redlock_sync::Cancel;
use signal_hook::consts::{
    FORBIDDEN, SIGCHLD, SIGCONT, SIGINT, SIGPIPE, SIGQUIT, SIGTSTP, SIGTTIN, SIGTTOU, SIGURG, SIGWINCH,
};
use signal_hook::flag;
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::WithRawSiginfo;

/// An event while the program runs.
pub(crate) enum Event {
    Ended,
    Lost,
    Signal(Signal),
}

/// A signal that this process received.
#[derive(Clone, Copy)]
pub(crate) struct Signal {
    pub(crate) number: i32,
    /// True for a key of the terminal, such as Ctrl-C. The terminal sends the signal to its whole foreground group.
    pub(crate) is_typed: bool,
}

/// The signals that a key of the terminal sends, and that end a process.
const TYPED: [i32; 2] = [SIGINT, SIGQUIT];
/// The signals that do not end this process. Rust ignores SIGPIPE.
const HARMLESS: &[i32] = &[
    SIGCHLD,
    SIGCONT,
    SIGPIPE,
    SIGTSTP,
    SIGTTIN,
    SIGTTOU,
    SIGURG,
    SIGWINCH,
    #[cfg(target_os = "macos")]
    signal_hook::consts::SIGINFO,
];
/// The last signal of Linux.
const LAST: i32 = 64;
/// `si_code` of signals that the kernel sends itself.
#[cfg(target_os = "linux")]
const SI_KERNEL: i32 = 0x80;

/// All signals that would end this process are caught. They are kept until [`report`](Caught::report).
pub(crate) struct Caught {
    signals: SignalsInfo<WithRawSiginfo>,
    came: Vec<(i32, Arc<AtomicBool>)>,
}

impl Caught {
    /// Catches the signals from now on. Signals that are ignored, such as SIGHUP under `nohup`, stay ignored for this
    /// process and for the program. This is called before other threads exist.
    pub(crate) fn all() -> io::Result<Caught> {
        // A signal would be lost if it came while its handler is set. So it is held back until then.
        let mask = SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK)?;
        // If SIGCHLD is ignored, the system discards the exit code of the program.
        flag::register(SIGCHLD, Arc::default())?;
        let signals = SignalsInfo::<WithRawSiginfo>::new(std::iter::empty::<i32>())?;
        let fatal = (1..=LAST).filter(|signal| !HARMLESS.contains(signal) && !FORBIDDEN.contains(signal));
        for signal in not_ignored(fatal) {
            match signals.handle().add_signal(signal) {
                // The system does not have this signal, or the C library keeps it for itself.
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => {}
                added => added?,
            }
        }
        let came: Vec<(i32, Arc<AtomicBool>)> = not_ignored(TYPED).map(|signal| (signal, Arc::default())).collect();
        for (signal, came) in &came {
            flag::register(*signal, Arc::clone(came))?;
        }
        mask.thread_set_mask()?;
        Ok(Caught { signals, came })
    }

    /// Sends the signals to `events`. The first one also ends the wait for the lock. A lock that is held stays held.
    pub(crate) fn report(self, wait: Cancel, events: Sender<Event>) -> io::Result<Signals> {
        let Caught { mut signals, came } = self;
        thread::Builder::new().name("redlock-signals".to_owned()).spawn(move || {
            for info in &mut signals {
                // On Linux, the kernel marks what it sends itself. Elsewhere such a signal has no sender.
                #[cfg(target_os = "linux")]
                let is_of_kernel = info.si_code == SI_KERNEL;
                #[cfg(not(target_os = "linux"))]
                let is_of_kernel = info.si_pid == 0;
                let number = info.si_signo;
                _ = events.send(Event::Signal(Signal { number, is_typed: is_of_kernel && TYPED.contains(&number) }));
                wait.cancel();
            }
        })?;
        Ok(Signals { came })
    }
}

pub(crate) struct Signals {
    /// For each signal of [`TYPED`], whether it has come.
    came: Vec<(i32, Arc<AtomicBool>)>,
}

impl Signals {
    /// Returns the signals of [`TYPED`] that have come until now. The handler of the signal itself records them, so none
    /// is still on its way to `events` only.
    pub(crate) fn came(&self) -> impl Iterator<Item = i32> {
        self.came.iter().filter(|(_, came)| came.load(Ordering::SeqCst)).map(|(signal, _)| *signal)
    }
}

/// Returns those of the signals that are not ignored. For example, `nohup` ignores SIGHUP.
pub(crate) fn not_ignored(signals: impl IntoIterator<Item = i32>) -> impl Iterator<Item = i32> {
    let ignored = ignored();
    signals.into_iter().filter(move |signal| ignored >> (signal - 1) & 1 == 0)
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
