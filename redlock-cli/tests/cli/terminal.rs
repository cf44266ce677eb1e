//! `redlock run` in a terminal, and signals that keys send there.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::thread;
use std::time::Duration;

use redlock_tests::{Server, eventually};
use rustix::process::{Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::signals::{STAY, is_up, program};
use crate::{LONG, Running, independent};

/// A terminal: the end of the test, and the end of the program.
pub(crate) fn terminal() -> (File, File) {
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&terminal).unwrap();
    unlockpt(&terminal).unwrap();
    let name = ptsname(&terminal, Vec::new()).unwrap().into_string().unwrap();
    let no_owner = i32::try_from(rustix::fs::OFlags::NOCTTY.bits()).unwrap();
    let end = File::options().read(true).write(true).custom_flags(no_owner).open(name).unwrap();
    (terminal.into(), end)
}

/// Runs a command in a session of its own, with this terminal.
fn within(end: File, server: &Server, words: &[&str]) -> Running {
    let mut command = independent("setsid");
    command.arg("--ctty").args(words).env("REDIS_URL", server.url());
    Running::start(command.stdin(end))
}

const REDLOCK: &str = env!("CARGO_BIN_EXE_redlock");

/// The terminal sends Ctrl-C to its whole foreground group. The program here is in another session, so only a forwarded
/// signal would reach it.
#[test]
fn what_comes_from_the_terminal_is_not_passed_on() {
    let server = Server::start();
    let (mut terminal, end) = terminal();
    let script = program(&server, "trap 'echo told' INT; trap 'exit 5' TERM");
    let running = within(end, &server, &[REDLOCK, "run", "job", "--", "setsid", "sh", "-c", &script]);
    eventually("the program is up", LONG, || is_up(&server));
    eventually("redlock has started it", LONG, || has_started(&running));
    terminal.write_all(b"\x03").unwrap();
    // Signals are taken in the order of their numbers, so INT comes first.
    kill_process(running.id(), Signal::TERM).unwrap();
    assert_eq!(running.outcome(), (String::new(), Some(5)));
    assert_eq!(fs::read_to_string(server.dir().join("said")).unwrap(), "up\n");
}

/// Returns whether redlock waits for the end of its program.
fn has_started(running: &Running) -> bool {
    let threads = fs::read_dir(format!("/proc/{}/task", running.id().as_raw_pid())).unwrap();
    let name = |thread: io::Result<fs::DirEntry>| fs::read_to_string(thread.unwrap().path().join("comm"));
    threads.into_iter().any(|thread| name(thread).is_ok_and(|name| name.starts_with("redlock-program")))
}

/// Editors and supervisors send these signals to one process.
#[test]
fn what_is_sent_is_passed_on_in_the_foreground_too() {
    let server = Server::start();
    for (signal, name) in [(Signal::INT, "INT"), (Signal::QUIT, "QUIT")] {
        let (_terminal, end) = terminal();
        let script = program(&server, &format!("trap 'exit 6' {name}"));
        let running = within(end, &server, &[REDLOCK, "run", "job", "--", "sh", "-c", &script]);
        eventually("the program is up", LONG, || is_up(&server));
        kill_process(running.id(), signal).unwrap();
        assert_eq!(running.outcome(), (String::new(), Some(6)), "{name}");
        fs::remove_file(server.dir().join("said")).unwrap();
    }
}

/// The key is pressed while redlock starts, asks for the lock, and starts the program.
#[test]
fn a_key_in_the_first_milliseconds_ends_everything() {
    let server = Server::start();
    for after in 0..30 {
        let (mut terminal, end) = terminal();
        let mut running = within(end, &server, &[REDLOCK, "run", "job", "--", "sh", "-c", STAY]);
        let has_begun = || {
            let stat = fs::read_to_string(format!("/proc/{}/stat", running.id().as_raw_pid())).unwrap();
            stat.contains("(redlock)")
        };
        eventually("redlock has begun", LONG, has_begun);
        thread::sleep(Duration::from_millis(after));
        terminal.write_all(b"\x03").unwrap();
        let ended = running.end();
        assert!(ended.code() == Some(130) || ended.signal() == Some(2), "after {after} ms: {ended:?}");
    }
}

/// The first process of a PID namespace belongs to a process group that has no number there.
#[test]
fn a_signal_is_passed_on_in_a_namespace_of_processes() {
    let namespace = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc"];
    let may = Command::new("unshare").args(&namespace[1..]).arg("true").output().unwrap();
    if !may.status.success() {
        // The signal itself is tried above, without a namespace.
        eprintln!("no namespace can be made here, and none is tried: {}", String::from_utf8_lossy(&may.stderr));
        return;
    }
    let server = Server::start();
    let (_terminal, end) = terminal();
    let script = program(&server, "trap 'exit 6' INT; kill -INT $PPID");
    let run = [&namespace[..], &[REDLOCK, "run", "job", "--", "sh", "-c", &script]].concat();
    let running = within(end, &server, &run);
    assert_eq!(running.outcome(), (String::new(), Some(6)));
}
