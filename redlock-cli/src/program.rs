//! The program that runs under the lock.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command};
use std::sync::mpsc::Sender;
use std::thread;

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, getpgrp, kill_process, waitid};
use rustix::termios::tcgetpgrp;
use signal_hook::consts::{SIGINT, SIGQUIT};

use crate::ending::{Failure, OS, USAGE};
use crate::signals::{Event, signalled};

pub(crate) struct Program {
    child: Child,
    pid: Pid,
}

impl Program {
    /// Starts the program. Sends its end to `events`.
    pub(crate) fn start(
        words: &[OsString],
        key: &str,
        fence: Option<u64>,
        events: Sender<Event>,
    ) -> Result<Program, Failure> {
        let (program, args) = words.split_first().ok_or_else(|| Failure::new(USAGE, "PROGRAM is missing"))?;
        let mut command = Command::new(program);
        command.args(args).env("REDLOCK_KEY", key);
        match fence {
            Some(fence) => command.env("REDLOCK_FENCE", fence.to_string()),
            // A variable of an outer `redlock run` does not describe this lock.
            None => command.env_remove("REDLOCK_FENCE"),
        };
        let mut child = command.spawn().map_err(|error| {
            let code = if error.kind() == io::ErrorKind::NotFound { 127 } else { 126 };
            Failure::new(code, format!("{}: {error}", program.display()))
        })?;
        let pid = Pid::from_child(&child);
        let watching = thread::Builder::new().name("redlock-program".to_owned()).spawn(move || {
            // The wait does not reap the program. Its process id stays in use until `code` reaps it, so no signal hits
            // another process.
            _ = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT);
            _ = events.send(Event::Ended);
        });
        if let Err(error) = watching {
            // The program must not continue after the lock is released.
            child.kill()?;
            child.wait()?;
            return Err(error.into());
        }
        Ok(Program { child, pid })
    }

    /// Forwards a signal that this process received. A signal from the terminal has already reached the program.
    pub(crate) fn pass_on(&self, signal: i32) {
        if !([SIGINT, SIGQUIT].contains(&signal) && is_in_foreground()) {
            self.send(signal);
        }
    }

    /// Sends a signal. It has no effect if the program has ended.
    pub(crate) fn send(&self, signal: i32) {
        if let Some(signal) = Signal::from_named_raw(signal) {
            _ = kill_process(self.pid, signal);
        }
    }

    pub(crate) fn kill(&mut self) -> io::Result<()> {
        self.child.kill()
    }

    /// Waits for the end of the program. Returns its exit code as shells report it.
    pub(crate) fn code(&mut self) -> io::Result<u8> {
        let status = self.child.wait()?;
        let code = status.code().and_then(|code| u8::try_from(code).ok());
        Ok(code.or_else(|| status.signal().map(signalled)).unwrap_or(OS))
    }
}

/// Returns true if this process is in the foreground process group, to which its terminal sends signals.
fn is_in_foreground() -> bool {
    let group = File::open("/dev/tty").ok().and_then(|terminal| tcgetpgrp(terminal).ok());
    group == Some(getpgrp())
}
