//! The program that runs under the lock.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command};
use std::sync::mpsc::Sender;
use std::thread;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
#[cfg(target_os = "linux")]
use rustix_libc_wrappers::process::SignalExt;
use signal_hook::consts::{SIGCONT, SIGKILL, SIGTERM};

use crate::ending::{Failure, OS, USAGE};
use crate::signals::{Event, signalled};

pub(crate) struct Program {
    child: Child,
    pid: Pid,
}

impl Program {
    pub(crate) fn start(words: &[OsString], key: &str, fence: Option<u64>) -> Result<Program, Failure> {
        let (program, args) = words.split_first().ok_or_else(|| Failure::new(USAGE, "PROGRAM is missing"))?;
        let mut command = Command::new(program);
        command.args(args).env("REDLOCK_KEY", key);
        match fence {
            Some(fence) => command.env("REDLOCK_FENCE", fence.to_string()),
            // A variable of an outer `redlock run` does not describe this lock.
            None => command.env_remove("REDLOCK_FENCE"),
        };
        let child = command.spawn().map_err(|error| {
            let code = match error.kind() {
                io::ErrorKind::NotFound => 127,
                // There are too many processes, or too little memory.
                io::ErrorKind::WouldBlock | io::ErrorKind::OutOfMemory => OS,
                _ => 126,
            };
            Failure::new(code, format!("{}: {error}", program.display()))
        })?;
        let pid = Pid::from_child(&child);
        Ok(Program { child, pid })
    }

    /// Sends the end of the program to `events`.
    pub(crate) fn report_end(&mut self, events: Sender<Event>) -> io::Result<()> {
        let pid = self.pid;
        let watching = thread::Builder::new().name("redlock-program".to_owned()).spawn(move || {
            // The wait does not reap the program. Its process id stays in use until `code` reaps it, so no signal hits
            // another process.
            _ = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT);
            _ = events.send(Event::Ended);
        });
        if let Err(error) = watching {
            // The program must not continue after the lock is released. If it may not be killed, its end is awaited.
            _ = self.child.kill();
            self.child.wait()?;
            return Err(error);
        }
        Ok(())
    }

    /// Sends a signal. It has no effect if the program has ended. A program with the rights of another user, such as
    /// `sudo`, may not be signalled.
    pub(crate) fn send(&self, number: i32) -> Result<(), Failure> {
        #[cfg(target_os = "linux")]
        let signal = Signal::from_raw(number);
        // Other systems have no real-time signals.
        #[cfg(not(target_os = "linux"))]
        let signal = Signal::from_named_raw(number);
        let sent = signal.map_or(Ok(()), |signal| kill_process(self.pid, signal));
        let pid = self.pid.as_raw_pid();
        sent.map_err(|error| Failure::new(OS, format!("cannot signal process {pid}: {}", io::Error::from(error))))
    }

    /// Tells the program to end, also if it is stopped.
    pub(crate) fn end(&self) -> Result<(), Failure> {
        self.send(SIGTERM)?;
        self.send(SIGCONT)
    }

    pub(crate) fn kill(&self) -> Result<(), Failure> {
        self.send(SIGKILL)
    }

    /// Waits for the end of the program. Returns its exit code as shells report it.
    pub(crate) fn code(&mut self) -> io::Result<u8> {
        let status = self.child.wait()?;
        let code = status.code().and_then(|code| u8::try_from(code).ok());
        Ok(code.or_else(|| status.signal().map(signalled)).unwrap_or(OS))
    }
}
