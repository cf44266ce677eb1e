//! The settings of a server, and its start.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use super::admin::Admin;
use super::control::{State, state};
use super::supervisor::Supervisor;
use super::{Port, Server, find};
use crate::poll;

/// The time limit for a server to answer after its start.
const START: Duration = Duration::from_secs(20);

/// The number of ports that are tried if ports cannot be reserved.
const TRIES: usize = 5;

/// Settings of a [`Server`].
#[derive(Debug, Clone, Default)]
pub struct Builder {
    pub(super) password: Option<String>,
    pub(super) persistent: bool,
    pub(super) unix_socket: bool,
    /// The lines of the file of a Sentinel.
    sentinel: Option<String>,
    port: u16,
    args: Vec<OsString>,
}

impl Builder {
    /// Adds an argument to the command line of the server, for example `"--enable-debug-command"` and then `"yes"`.
    #[must_use]
    pub fn arg(mut self, arg: impl Into<OsString>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// Writes each change to disk before it is answered, so that [`Server::restart_with_data`] keeps all changes.
    #[must_use]
    pub fn persistent(mut self) -> Self {
        self.persistent = true;
        self
    }

    /// Sets a password that clients must send. [`Server::url`] contains it. It may have only letters and digits.
    #[must_use]
    pub fn password(mut self, password: impl Into<String>) -> Self {
        self.password = Some(password.into());
        self
    }

    /// Makes the server listen on a unix socket too; see [`Server::unix_url`].
    #[must_use]
    pub fn unix_socket(mut self) -> Self {
        self.unix_socket = true;
        self
    }

    /// Starts a Sentinel that watches nothing. It is the same binary, which keeps no data in this mode.
    #[must_use]
    pub fn sentinel(self) -> Self {
        self.sentinel_with("")
    }

    /// Starts a Sentinel whose file has these lines, for example `sentinel monitor main 127.0.0.1 6379 1`.
    #[must_use]
    pub fn sentinel_with(mut self, lines: impl Into<String>) -> Self {
        self.sentinel = Some(lines.into());
        self
    }

    /// Listens on this port in place of a free one.
    #[must_use]
    pub fn port(mut self, port: u16) -> Self {
        self.port = port;
        self
    }

    /// Starts the server and waits until it answers. Tries another port if another process took the port in between.
    pub fn start(&self) -> Server {
        let tries = if self.port == 0 { TRIES } else { 1 };
        let mut problem = String::new();
        for _ in 0..tries {
            match self.try_start(Port::reserve(self.port)) {
                Ok(server) => return server,
                Err(said) => problem = said,
            }
            if !problem.contains("ddress already in use") {
                break;
            }
        }
        panic!("the server did not start: {problem}")
    }

    fn try_start(&self, port: Port) -> Result<Server, String> {
        let binary = find::server(); // If this panics, there is no directory to clean up yet.
        let supervisor = Supervisor::new(|dir| self.command(binary, dir, port.number()));
        let pid = Mutex::new(0);
        let server =
            Server { port, settings: self.clone(), supervisor, pid, admin: Mutex::new(Admin::new(String::new())) };
        server.launch().map(|()| server)
    }

    fn command(&self, binary: &Path, dir: &Path, port: u16) -> Vec<OsString> {
        let mut command: Vec<OsString> = vec![binary.into()];
        if let Some(lines) = &self.sentinel {
            command.extend([sentinel_file(dir, lines).into(), "--sentinel".into()]);
        }
        let mut set = |name: &str, value: &dyn AsRef<std::ffi::OsStr>| {
            command.push(format!("--{name}").into());
            command.push(value.as_ref().to_owned());
        };
        set("port", &port.to_string());
        set("bind", &"127.0.0.1");
        set("protected-mode", &"no");
        set("dir", &dir);
        set("save", &"");
        set("appendonly", &if self.persistent { "yes" } else { "no" });
        set("appendfsync", &"always");
        set("repl-diskless-sync-delay", &"0");
        if self.unix_socket {
            set("unixsocket", &dir.join("socket"));
        }
        if let Some(password) = &self.password {
            set("requirepass", password);
        }
        command.extend(self.args.iter().cloned());
        command
    }
}

/// Creates the file that a Sentinel needs for its state. It does not start without one.
fn sentinel_file(dir: &Path, lines: &str) -> PathBuf {
    let file = dir.join("sentinel.conf");
    fs::write(&file, lines).unwrap_or_else(|error| panic!("cannot write `{}`: {error}", file.display()));
    file
}

impl Server {
    /// Starts the process and waits until it answers. Otherwise returns what the server wrote.
    pub(super) fn launch(&self) -> Result<(), String> {
        self.with_admin(|admin| {
            let pid = self.supervisor.start();
            *self.pid.lock().unwrap() = pid;
            *admin = Admin::new(self.url());
            let ready = poll(START, || match admin.ready(pid).unwrap_or(false) {
                false if state(pid) == State::Gone => Some(false),
                ready => ready.then_some(true),
            });
            if ready == Some(true) { Ok(()) } else { Err(self.supervisor.log()) }
        })
    }
}
