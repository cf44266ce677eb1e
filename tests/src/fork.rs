//! Forks child processes. No other module of this package forks.
#![allow(unsafe_code, reason = "no safe crate offers fork to a process that may have threads")]

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitStatus;

use rustix::process::{Pid, WaitOptions, WaitStatus, waitpid};

/// Runs `work` in a forked child and returns the process id of the child. The child exits with 0 when `work` returns
/// and with 101 when `work` panics.
///
/// The child has a copy of the calling thread only. A lock that another thread of the parent holds at this moment stays
/// locked in the child. So `work` must not need such a lock.
pub fn fork(work: impl FnOnce()) -> Pid {
    // SAFETY: the child ends in this function and never returns to the code of its parent. The docs above state what
    // `work` must not use.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "cannot fork: {}", io::Error::last_os_error());
    let Some(child) = Pid::from_raw(child) else {
        let done = catch_unwind(AssertUnwindSafe(work));
        // Not `std::process::exit`: it takes locks of the standard library. A thread of the parent that began or ended
        // at the fork can have held one, and then the child would hang.
        // SAFETY: `_exit` only ends the process.
        unsafe { libc::_exit(if done.is_ok() { 0 } else { 101 }) }
    };
    child
}

/// Waits until the child has ended.
pub fn wait_for(child: Pid) -> ExitStatus {
    status(waitpid(Some(child), WaitOptions::empty())).expect("a wait without an option ends with the child")
}

/// Returns the exit status of the child, or `None` if the child still runs. The status can be read only once.
pub fn ended(child: Pid) -> Option<ExitStatus> {
    status(waitpid(Some(child), WaitOptions::NOHANG))
}

fn status(waited: rustix::io::Result<Option<(Pid, WaitStatus)>>) -> Option<ExitStatus> {
    let (_, status) = waited.unwrap_or_else(|error| panic!("cannot wait for a child: {error}"))?;
    Some(ExitStatus::from_raw(status.as_raw()))
}
