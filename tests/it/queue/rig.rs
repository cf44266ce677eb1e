//! Helpers of the queue tests.

use std::time::Duration;

pub(super) use crate::rig::ms;
use redis::{FromRedisValue, cmd};
use redlock_sync::{Queue, Redlock, Retry, Task};
use redlock_tests::Server;

pub(super) const SOON: Duration = Duration::from_secs(20);
/// A lease that outlasts short stalls of the machine, and that a test can wait for.
pub(super) const LEASE: Duration = Duration::from_secs(5);

/// A client with a node timeout for a busy machine.
pub(super) fn open(url: &str) -> Redlock {
    Redlock::builder().node(url).node_timeout(ms(3000)).build().unwrap()
}

/// The queue `q` on this server, with a short lease and retries without a pause.
pub(super) fn queue(url: &str) -> Queue {
    open(url).queue("q").lease(LEASE).retry(Retry::every(ms(1)).jitter(0.0).max_attempts(20))
}

pub(super) fn task(id: &str) -> Task {
    Task::new(format!("body of {id}")).id(id)
}

pub(super) fn key(part: &str) -> String {
    format!("{{q}}:q2:{part}")
}

/// The member of a task in the sorted set of tasks that are due.
pub(super) fn place(server: &Server, id: &str) -> String {
    let text: String = ask(server, "HGET", "tasks", &[&format!("b:{id}")]);
    format!("{}{id}", &text[..16])
}

/// Sends one command for a key of the queue. `rest` follows the key.
pub(super) fn ask<T: FromRedisValue>(server: &Server, name: &str, part: &str, rest: &[&str]) -> T {
    server.ask(cmd(name).arg(key(part)).arg(rest))
}

/// The fields of a claimed task's state: attempts, version, again, fence, token, why.
pub(super) fn state(server: &Server, id: &str) -> Option<Vec<String>> {
    let state: Option<String> = ask(server, "HGET", "tasks", &[&format!("s:{id}")]);
    state.map(|state| state.splitn(7, ' ').skip(1).map(str::to_owned).collect())
}

/// Asserts that only the fence counter and waits are left.
pub(super) fn assert_empty(server: &Server) {
    let has_end = |key: &String| key.ends_with(":q2:fence") || key.ends_with(":q2:waits");
    let left: Vec<String> = server.keys().into_iter().filter(|key| !has_end(key)).collect();
    assert!(left.is_empty(), "{left:?}");
}

/// The server's time since 1970.
pub(super) fn server_time(server: &Server) -> Duration {
    let (seconds, micros): (u64, u64) = server.ask(&cmd("TIME"));
    Duration::from_secs(seconds) + Duration::from_micros(micros)
}

/// A queue on this server with the default lease and the default retries.
pub(super) fn plain(server: &Server, name: &str) -> Queue {
    let settings = Redlock::builder().node(server.url()).node_timeout(ms(1500));
    settings.build().unwrap().queue(name)
}
