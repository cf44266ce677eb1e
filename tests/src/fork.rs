//! Forked children. Nothing else in this package forks.
#![allow(unsafe_code, reason = "no safe crate offers fork to a process that may have threads")]

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::{ExitStatus, exit};

use rustix::process::{Pid, WaitOptions, WaitStatus, waitpid};

/// Runs the work in a forked child, which ends with 0 when it returns and with 101 when it panics; the child's process
/// id.
///
/// The child is a copy of the calling thread alone. What another thread of the parent holds at this moment, such as a
/// lock, stays held in the child: the work must not need it.
pub fn fork(work: impl FnOnce()) -> Pid {
    // SAFETY: the child never returns to the code of its parent: it ends in here. The docs above state what its work
    // may touch.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "cannot fork: {}", io::Error::last_os_error());
    let Some(child) = Pid::from_raw(child) else {
        let done = catch_unwind(AssertUnwindSafe(work));
        exit(if done.is_ok() { 0 } else { 101 });
    };
    child
}

/// Waits for the end of a child.
pub fn wait_for(child: Pid) -> ExitStatus {
    status(waitpid(Some(child), WaitOptions::empty())).expect("a wait without an option ends with the child")
}

/// How a child ended, if it has. The status can be read only once.
pub fn ended(child: Pid) -> Option<ExitStatus> {
    status(waitpid(Some(child), WaitOptions::NOHANG))
}

fn status(waited: rustix::io::Result<Option<(Pid, WaitStatus)>>) -> Option<ExitStatus> {
    let (_, status) = waited.unwrap_or_else(|error| panic!("cannot wait for a child: {error}"))?;
    Some(ExitStatus::from_raw(status.as_raw()))
}
