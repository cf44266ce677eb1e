//! The actions of a test on a server.

#[cfg(not(target_os = "linux"))]
use std::process::Command;
use std::time::Duration;
use std::{fs, io};

use redis::cmd;
use rustix::process::{Pid, Signal, kill_process};

use super::Server;
use crate::eventually;

/// The time limit for the effect of a signal or of a setting.
const EFFECT: Duration = Duration::from_secs(20);

/// The state of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Running,
    Stopped,
    /// The process no longer exists, or it has ended and was not reaped.
    Gone,
}

/// The state of the process `pid`.
pub(super) fn state(pid: u32) -> State {
    match letter(pid) {
        Some('T' | 't') => State::Stopped,
        Some('Z' | 'X') | None => State::Gone,
        Some(_) => State::Running,
    }
}

#[cfg(target_os = "linux")]
fn letter(pid: u32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(") ")?.1.chars().next()
}

#[cfg(not(target_os = "linux"))]
fn letter(pid: u32) -> Option<char> {
    let ps = Command::new("ps").args(["-o", "state=", "-p", &pid.to_string()]).output().expect("`ps` runs");
    String::from_utf8_lossy(&ps.stdout).trim().chars().next()
}

impl Server {
    /// Kills the server with SIGKILL. The server is gone when this returns. Its port stays reserved, and refuses
    /// connections.
    pub fn kill(&self) {
        self.supervisor.kill();
    }

    /// Kills the server and starts it again on the same port, without its data.
    pub fn restart(&self) {
        self.kill();
        self.forget();
        self.relaunch();
    }

    /// Kills the server and starts it again with its data. The server must be built with `.persistent()`.
    pub fn restart_with_data(&self) {
        assert!(self.settings.persistent, "{self} keeps no data: build it with `.persistent()`");
        self.kill();
        self.relaunch();
    }

    fn relaunch(&self) {
        self.launch().unwrap_or_else(|log| panic!("{self} did not start again: {log}"));
    }

    /// Removes the data of the server from the disk.
    fn forget(&self) {
        let absent = |error: io::Error| assert_eq!(error.kind(), io::ErrorKind::NotFound, "{error}");
        fs::remove_dir_all(self.dir().join("appendonlydir")).unwrap_or_else(absent);
        fs::remove_file(self.dir().join("appendonly.aof")).unwrap_or_else(absent);
        fs::remove_file(self.dir().join("dump.rdb")).unwrap_or_else(absent);
    }
}

impl Server {
    /// Stops the process with SIGSTOP. Connections stay open and are accepted, but nothing is answered. The process is
    /// stopped when this returns.
    pub fn stop(&self) {
        self.signal(Signal::STOP);
        eventually("the server is stopped", EFFECT, || state(self.pid()) == State::Stopped);
    }

    /// Continues a stopped server.
    pub fn cont(&self) {
        self.signal(Signal::CONT);
        eventually("the server runs again", EFFECT, || state(self.pid()) == State::Running);
    }

    fn signal(&self, signal: Signal) {
        let pid = self.pid();
        assert_ne!(state(pid), State::Gone, "{self} is not running");
        let raw = Pid::from_raw(pid.cast_signed()).expect("a process id is positive");
        kill_process(raw, signal).unwrap_or_else(|error| panic!("cannot signal {self}: {error}"));
    }
}

impl Server {
    /// Makes the server refuse all writes that need memory with OOM from now on.
    pub fn fill(&self) {
        self.config("maxmemory-policy", "noeviction");
        self.config("maxmemory", "1");
        eventually("a SET is refused", EFFECT, || self.is_full());
    }

    /// Makes the server accept writes again.
    pub fn unfill(&self) {
        self.config("maxmemory", "0");
        eventually("a SET is accepted", EFFECT, || !self.is_full());
    }

    /// Changes a setting until the next restart.
    pub fn config(&self, name: &str, value: &str) {
        self.ask::<()>(cmd("CONFIG").arg("SET").arg(name).arg(value));
    }
}

impl Server {
    /// Makes this server a replica of `master`. Waits until it has the data of the master and follows it.
    pub fn replica_of(&self, master: &Self) {
        if let Some(password) = &master.settings.password {
            self.config("masterauth", password);
        }
        self.ask::<()>(cmd("REPLICAOF").arg("127.0.0.1").arg(master.port()));
        eventually("the link to the master is up", EFFECT, || self.info("master_link_status").as_deref() == Some("up"));
        // The replica reports the link before the master counts its acknowledgements.
        let replicas = || master.info("connected_slaves").and_then(|replicas| replicas.parse::<u32>().ok());
        // A master with `min-replicas-to-write` refuses writes until then.
        let writes = |command: &str, rest: &[&str]| {
            master.try_ask::<redis::Value>(cmd(command).arg("acknowledged?").arg(rest)).is_ok()
        };
        eventually("its acknowledgements count", EFFECT, || {
            writes("SET", &[""])
                && writes("DEL", &[])
                && replicas().is_some_and(|all| master.ask::<u32>(cmd("WAIT").arg(all).arg(100)) >= all)
        });
    }

    /// Makes a replica a master. It keeps its data.
    pub fn promote(&self) {
        self.ask::<()>(cmd("REPLICAOF").arg("NO").arg("ONE"));
    }
}
