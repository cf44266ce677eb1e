//! How many connections a client has to a node, as the node counts them.
//!
//! Each client comes as a user of its own, by which CLIENT LIST tells its connections from all others.

use std::collections::BTreeMap;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use redis::{Connection, cmd};
use redlock_tests::Server;
use redlock_tests::bench::Outcome;

/// How often the connections are counted.
const LOOK: Duration = Duration::from_millis(50);

/// How the names of the users begin.
const USER: &str = "ours";

/// Makes a user with all permissions.
pub(crate) fn register(server: &Server, user: &str) {
    server.ask::<()>(cmd("ACL").arg("SETUSER").arg(user).arg(&["on", "nopass", "~*", "&*", "+@all"]));
}

/// The URL by which a client comes as this user.
pub(crate) fn as_user(url: &str, user: &str) -> String {
    url.replacen("redis://", &format!("redis://{user}:any@"), 1)
}

/// Counts until it is asked.
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
                // A server that hung too long for this connection hangs for others, too: nothing is counted then.
                let Ok(now) = count(&mut connection) else { continue };
                most = most.max(in_both(&last, &now));
                last = now;
            }
            most
        })?;
        Ok(Self { end, thread })
    }

    /// The most connections that any one client had.
    pub(crate) fn most(self) -> Outcome<usize> {
        drop(self.end);
        self.thread.join().map_err(|_| "the census panicked".into())
    }
}

/// The connections of each client.
fn count(connection: &mut Connection) -> redis::RedisResult<BTreeMap<String, usize>> {
    let list: String = cmd("CLIENT").arg("LIST").query(connection)?;
    let users = list.lines().filter_map(|line| line.split(' ').find_map(|field| field.strip_prefix("user=")));
    let mut counts = BTreeMap::new();
    for user in users.filter(|user| user.starts_with(USER)) {
        *counts.entry(user.to_owned()).or_default() += 1;
    }
    Ok(counts)
}

/// What was there twice in a row: a server that wakes up finds connections that are closed already, and forgets them at once.
fn in_both(last: &BTreeMap<String, usize>, now: &BTreeMap<String, usize>) -> usize {
    let both = now.iter().map(|(user, count)| *count.min(last.get(user).unwrap_or(&0)));
    both.max().unwrap_or(0)
}
