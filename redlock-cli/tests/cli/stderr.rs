//! `redlock run` whose stderr takes no more lines, such as a full pipe, or a terminal after Ctrl-S.

use std::fs;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::process::Stdio;
use std::time::Duration;

use redlock_tests::{Server, eventually};
use rustix::fs::{OFlags, fcntl_setfl};

use crate::signals::{is_up, program};
use crate::{LONG, Running, independent, on};

/// A pipe that takes nothing more, with its reader.
fn full_pipe() -> (io::PipeReader, OwnedFd) {
    let (reader, mut writer) = io::pipe().unwrap();
    fcntl_setfl(&writer, OFlags::NONBLOCK).unwrap();
    while writer.write(&[b'x'; 4096]).is_ok() {}
    while writer.write(b"x").is_ok() {}
    fcntl_setfl(&writer, OFlags::empty()).unwrap();
    (reader, writer.into())
}

#[test]
fn a_lost_lock_ends_the_program_although_stderr_is_full() {
    let server = Server::start();
    for (kill_after, script) in [("1m", "trap 'echo told; exit 3' TERM"), ("100ms", "trap '' TERM")] {
        let (_reader, writer) = full_pipe();
        let script = program(&server, script);
        let words = ["run", "job", "--lease", "3s", "--kill-after", kill_after, "--", "sh", "-c", &script];
        let mut running = Running::start(on(&server, words).stderr(writer));
        eventually("the program is up", LONG, || is_up(&server));
        server.del("job");
        assert_eq!(running.end().code(), Some(70), "{kill_after}");
        fs::remove_file(server.dir().join("said")).unwrap();
    }
}

/// The threads that renew the lock write such lines.
#[test]
fn a_lock_outlives_an_outage_although_stderr_is_full() {
    let server = Server::start();
    let (_reader, writer) = full_pipe();
    let go = server.dir().join("go");
    let script = program(&server, &format!("trap 'until [ -e {} ]; do sleep 0.05; done; exit 3' TERM", go.display()));
    let words = ["run", "job", "--lease", "15s", "--", "sh", "-c", &script];
    let mut running = Running::start(on(&server, words).env("REDLOCK_NODE_TIMEOUT", "200ms").stderr(writer));
    eventually("the program is up", LONG, || is_up(&server));
    server.stop();
    // After a third of the lease, a renewal fails, and its thread logs that.
    std::thread::sleep(Duration::from_secs(6));
    server.cont();
    let is_renewed = || server.pttl("job").is_some_and(|left| left > Duration::from_secs(11));
    eventually("it is renewed again", LONG, is_renewed);
    fs::write(go, "").unwrap();
    rustix::process::kill_process(running.id(), rustix::process::Signal::TERM).unwrap();
    assert_eq!(running.end().code(), Some(3));
}

/// `stty tostop` stops jobs in the background that write to the terminal.
#[test]
#[cfg(target_os = "linux")]
fn a_lost_lock_ends_the_program_in_the_background_of_a_terminal() {
    let server = Server::start();
    let (_terminal, end) = crate::terminal::terminal();
    let script = program(&server, "trap 'echo told; exit 3' TERM");
    let job = r#"set -m; stty tostop; "$@" & wait $!; exit $?"#;
    let mut command = independent("setsid");
    command.args(["--ctty", "sh", "-c", job, "sh", env!("CARGO_BIN_EXE_redlock")]);
    command.args(["run", "job", "--lease", "3s", "--", "sh", "-c", &script]).env("REDIS_URL", server.url());
    let errors = end.try_clone().unwrap();
    let mut running = Running::start(command.stdin(end).stdout(Stdio::null()).stderr(errors));
    eventually("the program is up", LONG, || is_up(&server));
    server.del("job");
    assert_eq!(running.end().code(), Some(70));
}
