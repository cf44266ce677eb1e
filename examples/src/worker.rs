//! Further processes of the same example: it starts itself again, with hidden arguments.

use std::io::{self, BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::{env, process};

use rustix::process::{Pid, Signal, kill_process};

/// The argument by which a process knows that it is a worker.
const MARK: &str = "--worker";

/// The arguments given to this process by [`Worker::start`]; `None` in the process that people started.
#[must_use]
pub fn work() -> Option<Vec<String>> {
    let mut args = env::args().skip(1);
    (args.next().as_deref() == Some(MARK)).then(|| args.collect())
}

/// A process of the same program. It does not outlive this value.
#[derive(Debug)]
pub struct Worker {
    child: Child,
}

impl Worker {
    /// Starts this program once more; there, [`work`] returns `args`.
    ///
    /// # Errors
    /// What the operating system has against it.
    pub fn start<'a>(args: impl IntoIterator<Item = &'a str>) -> io::Result<Self> {
        let mut command = Command::new(env::current_exe()?);
        command.arg(MARK).args(args).stdin(Stdio::piped()).stdout(Stdio::piped());
        Ok(Self { child: command.spawn()? })
    }

    /// The process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// What the worker prints, line by line. Can be taken once.
    ///
    /// # Errors
    /// When it was taken already.
    pub fn lines(&mut self) -> io::Result<Lines<BufReader<ChildStdout>>> {
        let stdout = self.child.stdout.take().ok_or_else(|| io::Error::other("the lines were taken already"))?;
        Ok(BufReader::new(stdout).lines())
    }

    /// Gives a worker that waits for a line on its stdin an empty one.
    ///
    /// # Errors
    /// When it has ended before.
    pub fn nod(&mut self) -> io::Result<()> {
        self.child.stdin.as_mut().map_or(Ok(()), |stdin| stdin.write_all(b"\n"))
    }

    /// Ends the process at once, wherever it is: SIGKILL.
    ///
    /// # Errors
    /// When it has ended before.
    pub fn kill(&mut self) -> io::Result<()> {
        self.child.kill()
    }

    /// Tells the process to end: SIGTERM.
    ///
    /// # Errors
    /// When it has ended before.
    pub fn stop(&self) -> io::Result<()> {
        self.signal(Signal::TERM)
    }

    /// Stops the process where it is, as a long page fault, a debugger or a busy hypervisor does: SIGSTOP.
    ///
    /// # Errors
    /// When it has ended before.
    pub fn pause(&self) -> io::Result<()> {
        self.signal(Signal::STOP)
    }

    /// Lets a paused process go on, which notices nothing but the time.
    ///
    /// # Errors
    /// When it has ended before.
    pub fn resume(&self) -> io::Result<()> {
        self.signal(Signal::CONT)
    }

    /// Waits until the process has ended.
    ///
    /// # Errors
    /// What the operating system has against it.
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        self.child.wait()
    }

    fn signal(&self, signal: Signal) -> io::Result<()> {
        debug_assert_ne!(self.id(), process::id());
        let pid = Pid::from_raw(self.id().cast_signed()).ok_or_else(|| io::Error::other("no such process"))?;
        Ok(kill_process(pid, signal)?)
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}
