//! Counts the connections of each client to a node, as the node reports them.
//!
//! Each client connects as a user of its own, so CLIENT LIST shows which connections belong to it.

use std::collections::BTreeMap;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use redis::{Connection, cmd};
use redlock_tests::Server;
use redlock_tests::bench::Outcome;

/// The pause between two counts.
const LOOK: Duration = Duration::from_millis(50);

/// The prefix of the names of the counted users.
const USER: &str = "ours";

/// Creates a user with all permissions.
pub(crate) fn register(server: &Server, user: &str) {
    server.ask::<()>(cmd("ACL").arg("SETUSER").arg(user).arg(&["on", "nopass", "~*", "&*", "+@all"]));
}

/// The URL with which a client connects as this user.
pub(crate) fn as_user(url: &str, user: &str) -> String {
    url.replacen("redis://", &format!("redis://{user}:any@"), 1)
}

/// A thread that counts connections until [`Census::most`] is called.
pub(crate) struct Census {
    end: Sender<()>,
    thread: JoinHandle<usize>,
}

impl Census {
    pub(crate) fn start(server: &Server) -> Outcome<Self> {
        let mut connection = server.client();
        let (end, ended) = channel();
        let thread = thread::Builder::new().name("census".to_owned()).spawn(move || {
            let mut most = 0;
            let mut last = BTreeMap::new();
            while ended.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
                // If the server hung for too long to answer here, it hangs for the clients too. Then nothing is
                // counted.
                let Ok(now) = count(&mut connection) else { continue };
                most = most.max(in_both(&last, &now));
                last = now;
            }
            most
        })?;
        Ok(Self { end, thread })
    }

    /// Returns the largest number of connections that any client had.
    pub(crate) fn most(self) -> Outcome<usize> {
        drop(self.end);
        self.thread.join().map_err(|_| "the census panicked".into())
    }
}

/// Counts the connections of each client.
fn count(connection: &mut Connection) -> redis::RedisResult<BTreeMap<String, usize>> {
    let list: String = cmd("CLIENT").arg("LIST").query(connection)?;
    let users = list.lines().filter_map(|line| line.split(' ').find_map(|field| field.strip_prefix("user=")));
    let mut counts = BTreeMap::new();
    for user in users.filter(|user| user.starts_with(USER)) {
        *counts.entry(user.to_owned()).or_default() += 1;
    }
    Ok(counts)
}

/// The largest number of connections that a client had in both of two counts. A server that has just been continued
/// still lists connections that are closed already.
fn in_both(last: &BTreeMap<String, usize>, now: &BTreeMap<String, usize>) -> usize {
    let both = now.iter().map(|(user, count)| *count.min(last.get(user).unwrap_or(&0)));
    both.max().unwrap_or(0)
}
