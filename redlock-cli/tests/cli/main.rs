//! Tests of the command with real processes, signals and servers.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::disallowed_methods,
    missing_docs,
    reason = "a test fails by a panic, and waits by the real clock"
)]

mod help;
mod look;
mod once;
mod queue;
mod run;
mod signals;
mod stderr;
#[cfg(target_os = "linux")]
mod terminal;
mod trial;

use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::Duration;

use redlock_sync::{Builder, Redlock};
use redlock_tests::{Server, eventually, find};

/// The longest time for an event that usually comes at once.
const LONG: Duration = Duration::from_secs(20);

const NODE_TIMEOUT: Duration = Duration::from_millis(900);

/// A client of these servers.
fn client(servers: &[Server]) -> Builder {
    Redlock::builder().nodes(servers.iter().map(Server::url)).node_timeout(NODE_TIMEOUT)
}

/// `redlock` with these arguments, independent of the environment in which the tests run.
fn redlock<const N: usize>(args: [&str; N]) -> Command {
    let mut command = independent(env!("CARGO_BIN_EXE_redlock"));
    command.args(args);
    command
}

/// A command that does not see the environment in which the tests run.
fn independent(program: &str) -> Command {
    let mut command = Command::new(program);
    let settings = ["REDIS_URL", "REDLOCK_NODES", "REDLOCK_KEY_PREFIX", "REDLOCK_LEASE", "REDLOCK_FENCE"];
    for name in settings.into_iter().chain(find::OF_TESTS) {
        command.env_remove(name);
    }
    // The timeout is long enough for a busy machine.
    command.env("REDLOCK_NODE_TIMEOUT", format!("{}ms", NODE_TIMEOUT.as_millis()));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// `redlock` with these arguments, for this server.
fn on<const N: usize>(server: &Server, args: [&str; N]) -> Command {
    let mut command = redlock(args);
    command.env("REDIS_URL", server.url());
    command
}

/// The output and the exit code of a command.
fn outcome(command: &mut Command) -> (String, Option<i32>) {
    told(command.output().unwrap())
}

fn told(Output { status, stdout, stderr }: Output) -> (String, Option<i32>) {
    (String::from_utf8([stdout, stderr].concat()).unwrap(), status.code())
}

/// A running `redlock`. It ends with the test at the latest.
struct Running(Option<Child>);

impl Running {
    fn start(command: &mut Command) -> Running {
        Running(Some(command.spawn().unwrap()))
    }

    fn id(&self) -> rustix::process::Pid {
        rustix::process::Pid::from_child(self.0.as_ref().unwrap())
    }

    /// Waits for the end.
    fn end(&mut self) -> ExitStatus {
        eventually("it ends", LONG, || self.0.as_mut().unwrap().try_wait().unwrap().is_some());
        self.0.as_mut().unwrap().wait().unwrap()
    }

    fn outcome(mut self) -> (String, Option<i32>) {
        self.end();
        told(self.0.take().unwrap().wait_with_output().unwrap())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            _ = child.kill();
            _ = child.wait();
        }
    }
}
