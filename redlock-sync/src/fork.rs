//! Detects that a process was forked.
//!
//! A forked child has copies of the clients and guards of its parent, on the same sockets, and must not use them. Each
//! lock and unlock checks this, so the check must not cost a system call. A handler that `fork` calls in the child
//! (`pthread_atfork`) raises a counter. A child that is made by a bare `clone` system call is not detected. Windows has
//! no `fork`.

/// The process in which this was made.
#[cfg(unix)]
#[derive(Clone, Debug)]
pub(crate) struct ForkGuard(forkguard::Guard);

#[cfg(not(unix))]
#[derive(Clone, Debug)]
pub(crate) struct ForkGuard;

#[cfg(unix)]
impl ForkGuard {
    pub(crate) fn new() -> ForkGuard {
        ForkGuard(forkguard::new())
    }

    /// True in a child that was forked since.
    pub(crate) fn is_forked_child(&self) -> bool {
        // A guard reports a fork once only, so a copy is asked.
        self.0.clone().detected_fork()
    }
}

#[cfg(not(unix))]
impl ForkGuard {
    pub(crate) fn new() -> ForkGuard {
        ForkGuard
    }

    pub(crate) fn is_forked_child(&self) -> bool {
        false
    }
}
