//! Whether this is still the process in which something was made.
//!
//! A forked child has copies of its parent's clients and guards, on the same sockets: they must do nothing. Each lock
//! and unlock asks, so the answer must not cost a system call: a handler that `fork` calls in the child
//! (`pthread_atfork`) raises a counter. A child that a program makes by a bare `clone` system call is not noticed.

/// The process in which this was made.
#[derive(Clone, Debug)]
pub(crate) struct ForkGuard(forkguard::Guard);

impl ForkGuard {
    pub(crate) fn new() -> ForkGuard {
        ForkGuard(forkguard::new())
    }

    /// True in a child that was forked since.
    pub(crate) fn is_left(&self) -> bool {
        // A guard that was asked forgets: so a copy is asked.
        self.0.clone().detected_fork()
    }
}
