//! Settings of a server, and its start.

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

/// How long a server may take until it answers.
const START: Duration = Duration::from_secs(20);

/// How many ports are tried, where ports cannot be reserved.
const TRIES: usize = 5;

/// Settings of a [`Server`].
#[derive(Debug, Clone, Default)]
pub struct Builder {
    pub(super) password: Option<String>,
    pub(super) persistent: bool,
    pub(super) unix_socket: bool,
    sentinel: bool,
    port: u16,
    args: Vec<OsString>,
}

impl Builder {
    /// One more argument for the command line of the server, for example `"--enable-debug-command"` and then `"yes"`.
    #[must_use]
    pub fn arg(mut self, arg: impl Into<OsString>) -> Self {
        self.args.push(arg.into());
        self
    }

    /// Every write is on disk before it is answered, so that [`Server::restart_with_data`] keeps all of them.
    #[must_use]
    pub fn persistent(mut self) -> Self {
        self.persistent = true;
        self
    }

    /// Clients have to give this password; [`Server::url`] contains it. Letters and digits only.
    #[must_use]
    pub fn password(mut self, password: impl Into<String>) -> Self {
        self.password = Some(password.into());
        self
    }

    /// Listens on a unix socket as well: [`Server::unix_url`].
    #[must_use]
    pub fn unix_socket(mut self) -> Self {
        self.unix_socket = true;
        self
    }

    /// A Sentinel that watches nothing: the same binary, which keeps no data in this mode.
    #[must_use]
    pub fn sentinel(mut self) -> Self {
        self.sentinel = true;
        self
    }

    /// Listens on this port instead of a free one.
    #[must_use]
    pub fn port(mut self, port: u16) -> Self {
        self.port = port;
        self
    }

    /// Starts the server and waits until it answers; another port is tried when another process took ours in between.
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
        let binary = find::server(); // Panics, if it does, before there is a directory to clean up.
        let supervisor = Supervisor::new(|dir| self.command(binary, dir, port.number()));
        let pid = Mutex::new(0);
        let server =
            Server { port, settings: self.clone(), supervisor, pid, admin: Mutex::new(Admin::new(String::new())) };
        server.launch().map(|()| server)
    }

    fn command(&self, binary: &Path, dir: &Path, port: u16) -> Vec<OsString> {
        let mut command: Vec<OsString> = vec![binary.into()];
        if self.sentinel {
            command.extend([sentinel_file(dir).into(), "--sentinel".into()]);
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

/// A Sentinel does not start without a file into which it can write its state.
fn sentinel_file(dir: &Path) -> PathBuf {
    let file = dir.join("sentinel.conf");
    fs::write(&file, "").unwrap_or_else(|error| panic!("cannot write `{}`: {error}", file.display()));
    file
}

impl Server {
    /// Starts the process and waits until it answers; else what the server wrote.
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
