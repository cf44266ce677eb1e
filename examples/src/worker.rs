//! Further processes of the same example. The example starts itself again with hidden arguments.

use std::io::{self, BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::{env, process};

use rustix::process::{Pid, Signal, kill_process};

/// The argument that marks a process as a worker.
const MARK: &str = "--worker";

/// The arguments that [`Worker::start`] gave to this process; `None` in the process that the user started.
#[must_use]
pub fn work() -> Option<Vec<String>> {
    let mut args = env::args().skip(1);
    (args.next().as_deref() == Some(MARK)).then(|| args.collect())
}

/// A process of the same program. It ends with this value at the latest.
#[derive(Debug)]
pub struct Worker {
    child: Child,
}

impl Worker {
    /// Starts this program once more. In the new process, [`work`] returns `args`.
    ///
    /// # Errors
    /// An error of the operating system.
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

    /// The output of the worker, line by line. It can be taken once.
    ///
    /// # Errors
    /// An error if it was taken before.
    pub fn lines(&mut self) -> io::Result<Lines<BufReader<ChildStdout>>> {
        let stdout = self.child.stdout.take().ok_or_else(|| io::Error::other("the lines were taken already"))?;
        Ok(BufReader::new(stdout).lines())
    }

    /// Sends an empty line to the stdin of a worker that waits for one.
    ///
    /// # Errors
    /// An error if the process has ended.
    pub fn nod(&mut self) -> io::Result<()> {
        self.child.stdin.as_mut().map_or(Ok(()), |stdin| stdin.write_all(b"\n"))
    }

    /// Ends the process at once by SIGKILL.
    ///
    /// # Errors
    /// An error if the process has ended.
    pub fn kill(&mut self) -> io::Result<()> {
        self.child.kill()
    }

    /// Tells the process to end by SIGTERM.
    ///
    /// # Errors
    /// An error if the process has ended.
    pub fn stop(&self) -> io::Result<()> {
        self.signal(Signal::TERM)
    }

    /// Pauses the process by SIGSTOP, like a long page fault, a debugger or a busy hypervisor.
    ///
    /// # Errors
    /// An error if the process has ended.
    pub fn pause(&self) -> io::Result<()> {
        self.signal(Signal::STOP)
    }

    /// Resumes a paused process. It can notice the pause only by the time.
    ///
    /// # Errors
    /// An error if the process has ended.
    pub fn resume(&self) -> io::Result<()> {
        self.signal(Signal::CONT)
    }

    /// Waits until the process has ended.
    ///
    /// # Errors
    /// An error of the operating system.
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
