//! Whether this is still the process in which something was made.
//!
//! A forked child has copies of its parent's clients and guards, on the same sockets: they must do nothing. It is asked for at each lock and
//! unlock, so it must not be a system call: a handler that `fork` calls in the child counts.

/// The process in which this was made.
#[derive(Clone, Debug)]
pub(crate) struct Home(forkguard::Guard);

impl Home {
    pub(crate) fn new() -> Home {
        Home(forkguard::new())
    }

    /// True in a child that was forked since.
    pub(crate) fn is_left(&self) -> bool {
        // Asking a guard makes it forget: a copy is asked.
        self.0.clone().detected_fork()
    }
}
