//! The read-write lock: several readers at a time, a writer alone, and neither side starves.

mod downgrade;
mod exclusion;
mod faults;
mod followed;
mod nesting;
mod order;
mod settings;
mod sharing;

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use redlock_sync::{HoldMode, Redlock};
use redlock_tests::{Server, eventually};
use rustix::process::{Pid, Signal, kill_process};

const KEY: &str = "prices";
/// The longest wait for an event that must happen. It suffices on a busy machine.
const SOON: Duration = Duration::from_secs(30);

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// A client of these servers, with a node timeout for a busy machine.
fn open(servers: &[Server]) -> Redlock {
    Redlock::builder().nodes(servers.iter().map(Server::url)).node_timeout(ms(2000)).build().unwrap()
}

/// A client with a short lease.
fn brisk(servers: &[Server], lease: Duration) -> Redlock {
    let builder = Redlock::builder().nodes(servers.iter().map(Server::url));
    builder.node_timeout(lease / 3).lease(lease).build().unwrap()
}

/// The number of waits on this server to read (`readers`) or to write (`writers`).
fn waits(server: &Server, queue: &str) -> usize {
    let all: Vec<String> = server.ask(redis::cmd("ZRANGE").arg(format!("{{{KEY}}}:{queue}")).arg(0).arg(-1));
    all.iter().filter(|wait| *wait != "*").count()
}

/// Waits until the first server has this number of waits.
fn until_waiting(servers: &[Server], queue: &str, number: usize) {
    eventually(&format!("{number} {queue} wait"), SOON, || waits(&servers[0], queue) >= number);
}

/// The numbers of writers and readers that hold the lock.
fn held(locks: &Redlock) -> (usize, usize) {
    let holders = locks.rw_lock(KEY).inspect().unwrap();
    let of = |mode| holders.iter().filter(|holder| holder.mode == mode).count();
    (of(HoldMode::Exclusive), of(HoldMode::Shared))
}

/// Whether only fence counters are left on the servers.
fn is_clean(servers: &[Server]) -> bool {
    servers.iter().all(|server| server.keys().iter().all(|key| key.ends_with(":fence")))
}

/// A process that takes the lock.
struct Agent(Child);

impl Agent {
    fn start(side: &str, lease: Duration, servers: &[Server]) -> Agent {
        let mut command = Command::new(env!("CARGO_BIN_EXE_agent"));
        command.args(["rw", side, KEY, &lease.as_millis().to_string()]).args(servers.iter().map(Server::url));
        Agent(command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap())
    }

    /// Waits until the process has the lock.
    fn holds(&mut self) {
        let mut line = String::new();
        BufReader::new(self.0.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert!(!line.is_empty(), "the agent does not hold the lock");
    }

    /// Stops the process by a signal. It does not continue before it is killed.
    fn stop(&self) {
        kill_process(Pid::from_child(&self.0), Signal::STOP).unwrap();
        let stat = format!("/proc/{}/stat", self.0.id());
        eventually("the agent is stopped", SOON, || {
            let text = std::fs::read_to_string(&stat).unwrap();
            text.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
        });
    }

    fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}
