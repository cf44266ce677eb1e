//! Other Rust crates of locks, for the bench only.
//!
//! The arguments of the program are its server, the name of the crate, `tasks` or `threads`, their number, and seconds.
//! Each task or thread locks and unlocks a key of its own. The program prints pairs per second.

use std::time::Duration;

use super::languages::rust;

/// A crate, and what uses it: async tasks, or threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LockCrate {
    /// The name and version in tables.
    pub name: &'static str,
    /// The name of the crate, and `tasks` or `threads`.
    arguments: [&'static str; 2],
}

impl LockCrate {
    /// The tasks of rslock.
    pub const RSLOCK_TASKS: Self = Self { name: "rslock 0.10, tasks", arguments: ["rslock", "tasks"] };

    /// All crates. Async ones are used by tasks, and by threads that call `block_on`.
    pub const ALL: [Self; 8] = [
        Self { name: "redis-lock 0.5, threads", arguments: ["redis-lock", "threads"] },
        Self { name: "redlock 2.0, threads", arguments: ["redlock", "threads"] },
        Self { name: "rslock 0.10, threads", arguments: ["rslock", "threads"] },
        Self { name: "distkit 0.6, threads", arguments: ["distkit", "threads"] },
        Self { name: "distributed-lock 0.2, threads", arguments: ["distributed-lock", "threads"] },
        Self::RSLOCK_TASKS,
        Self { name: "distkit 0.6, tasks", arguments: ["distkit", "tasks"] },
        Self { name: "distributed-lock 0.2, tasks", arguments: ["distributed-lock", "tasks"] },
    ];

    /// True if threads use the crate. Each of them blocks until it has its lock.
    pub fn blocks(self) -> bool {
        self.arguments[1] == "threads"
    }

    /// Lets this many tasks or threads lock and unlock as fast as they can. Returns pairs per second.
    pub fn pairs(self, url: &str, count: usize, span: Duration) -> f64 {
        let numbers = [count.to_string(), span.as_secs_f64().to_string()];
        let output = rust("crates").arg(url).args(self.arguments).args(numbers).output().expect("the program runs");
        let (said, why) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{} failed: {why}", self.name);
        said.trim().parse().expect("a number")
    }
}
