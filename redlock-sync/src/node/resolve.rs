//! Resolves host names. The system's resolver has no time limit, so it runs on a thread of its own, at most one for
//! each host. A caller waits for the result until its own deadline.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

/// The function that looks up a name. Tests use their own.
type LookupFn = fn(&str, u16) -> io::Result<Vec<SocketAddr>>;

/// Resolves one host.
#[derive(Debug)]
pub(super) struct Resolver {
    host: String,
    port: u16,
    lookup: LookupFn,
    /// The condition variable is notified at the end of a lookup.
    shared: Arc<(Mutex<LookupState>, Condvar)>,
}

/// The lookup that is running, and the result of the last one.
#[derive(Debug, Default)]
struct LookupState {
    is_running: bool,
    /// The number of finished lookups. A caller compares it, so that it takes no result from before its own request.
    finished: u64,
    last: Option<Result<Vec<SocketAddr>, String>>,
}

impl Resolver {
    pub(super) fn new(host: &str, port: u16) -> Resolver {
        Resolver::with_lookup(host, port, |host, port| Ok((host, port).to_socket_addrs()?.collect()))
    }

    fn with_lookup(host: &str, port: u16, lookup: LookupFn) -> Resolver {
        Resolver { host: host.to_owned(), port, lookup, shared: Arc::default() }
    }

    /// Returns at least one address. The error is a message.
    pub(super) fn resolve(&self, within: Duration) -> Result<Vec<SocketAddr>, String> {
        if let Ok(ip) = self.host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(ip, self.port)]);
        }
        let (state, completed) = &*self.shared;
        let mut state = state.lock();
        if !state.is_running {
            self.start_lookup().map_err(|e| format!("cannot start a thread to resolve `{}`: {e}", self.host))?;
            state.is_running = true;
        }
        let before = state.finished;
        completed.wait_while_for(&mut state, |s| s.finished == before, within);
        match &state.last {
            Some(result) if state.finished != before => result.clone(),
            _ => Err(format!("name `{}` was not resolved within {} ms", self.host, within.as_millis())),
        }
    }

    fn start_lookup(&self) -> io::Result<()> {
        let (host, port, lookup, shared) = (self.host.clone(), self.port, self.lookup, Arc::clone(&self.shared));
        let run = move || {
            let result = match lookup(&host, port) {
                Ok(addresses) if addresses.is_empty() => Err(format!("name `{host}` has no address")),
                found => found.map_err(|e| format!("cannot resolve name `{host}`: {e}")),
            };
            let (state, completed) = &*shared;
            let mut state = state.lock();
            state.is_running = false;
            state.finished += 1;
            state.last = Some(result);
            completed.notify_all();
        };
        thread::Builder::new().name("redlock-resolve".into()).spawn(run).map(drop)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by a panic")]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn literals_need_no_thread() {
        let at_once = |host: &str| Resolver::with_lookup(host, 7, |_, _| panic!()).resolve(Duration::ZERO);
        assert_eq!(at_once("127.0.0.1").unwrap(), ["127.0.0.1:7".parse().unwrap()]);
        assert_eq!(at_once("::1").unwrap(), ["[::1]:7".parse().unwrap()]);
    }

    #[test]
    fn names_are_looked_up() {
        assert!(!Resolver::new("localhost", 7).resolve(5000 * MS).unwrap().is_empty());
        let nowhere = Resolver::with_lookup("nowhere", 7, |_, _| Err(io::ErrorKind::NotFound.into()));
        assert!(nowhere.resolve(5000 * MS).unwrap_err().contains("cannot resolve name `nowhere`"));
        let empty = Resolver::with_lookup("empty", 7, |_, _| Ok(vec![]));
        assert!(empty.resolve(5000 * MS).unwrap_err().contains("no address"));
    }

    #[test]
    fn one_slow_lookup_at_a_time_and_each_call_waits_no_longer_than_it_was_told() {
        static GATE: Mutex<()> = Mutex::new(());
        static CALLS: AtomicUsize = AtomicUsize::new(0);
        let slow = Resolver::with_lookup("slow", 7, |_, port| {
            CALLS.fetch_add(1, Ordering::SeqCst);
            drop(GATE.lock());
            Ok(vec![([127, 0, 0, 1], port).into()])
        });
        let gate = GATE.lock();
        for _ in 0..3 {
            assert!(slow.resolve(5 * MS).unwrap_err().contains("was not resolved within 5 ms"));
        }
        drop(gate);
        assert_eq!(slow.resolve(5000 * MS).unwrap().len(), 1);
        assert!(CALLS.load(Ordering::SeqCst) <= 2);
    }
}
