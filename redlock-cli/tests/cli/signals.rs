//! Signals to `redlock run`.

use std::fs;
#[cfg(target_os = "linux")]
use std::{
    io::Write,
    os::unix::fs::OpenOptionsExt,
    process::{Command, Stdio},
};

use redlock_tests::{Server, eventually};
use rustix::process::{Signal, kill_process};

use crate::{LONG, Running, on};

/// A shell program that writes `up` to a file once it runs.
fn program(server: &Server, script: &str) -> String {
    format!("exec > {}; {script}; echo up; while :; do sleep 0.05; done", server.dir().join("said").display())
}

fn is_up(server: &Server) -> bool {
    fs::read_to_string(server.dir().join("said")).is_ok_and(|said| said.contains("up"))
}

/// Returns whether the signal is not ignored. The process that runs the tests may ignore some signals, as `nohup` and
/// the jobs of a shell do. Programs that the tests start then ignore them too.
fn arrives(signal: Signal) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.map_or(0, |mask| u64::from_str_radix(mask.trim(), 16).unwrap());
    let arrives = ignored & 1 << (signal.as_raw() - 1) == 0;
    if !arrives {
        eprintln!("{signal:?} is ignored here, and not tried");
    }
    arrives
}

#[test]
fn a_signal_ends_the_wait_and_starts_nothing() {
    let server = Server::start();
    server.set("job", "held by another program");
    let cases = [(Signal::TERM, 143), (Signal::INT, 130), (Signal::HUP, 129)];
    for (signal, code) in cases.into_iter().filter(|case| arrives(case.0)) {
        let waiting = Running::start(&mut on(&server, ["run", "job", "--", "echo", "ran"]));
        let waits = || server.ask::<usize>(redis::cmd("ZCARD").arg("{job}:queue")) == 1;
        eventually("it waits", LONG, waits);
        kill_process(waiting.id(), signal).unwrap();
        assert_eq!(waiting.outcome(), (String::new(), Some(code)));
        assert_eq!(server.keys(), ["job"], "its wait is taken out of the queue");
    }
}

#[test]
fn a_signal_goes_on_to_the_program() {
    let server = Server::start();
    let cases = [
        (Signal::TERM, "trap 'exit 5' TERM", 5),
        (Signal::INT, "trap 'exit 6' INT", 6),
        (Signal::USR1, "trap 'exit 7' USR1", 7),
        (Signal::TERM, ":", 143),
    ];
    for (signal, script, code) in cases.into_iter().filter(|case| arrives(case.0)) {
        let running = Running::start(&mut on(&server, ["run", "job", "--", "sh", "-c", &program(&server, script)]));
        eventually("the program is up", LONG, || is_up(&server));
        kill_process(running.id(), signal).unwrap();
        assert_eq!(running.outcome(), (String::new(), Some(code)));
        assert_eq!(server.get("job"), None, "released, also after a signal");
        fs::remove_file(server.dir().join("said")).unwrap();
    }
}

/// The shell ignores the signal like `nohup`.
#[test]
#[cfg(target_os = "linux")]
fn a_signal_that_is_ignored_stays_so() {
    let server = Server::start();
    let redlock = env!("CARGO_BIN_EXE_redlock");
    let script = program(&server, "trap 'exit 5' TERM");
    let command = format!("trap '' HUP; exec {redlock} run job -- sh -c \"$SCRIPT\"");
    let mut shell = Command::new("sh");
    shell.args(["-c", &command]).env("SCRIPT", script).env("REDIS_URL", server.url());
    let running = Running::start(shell.stdout(Stdio::piped()).stderr(Stdio::piped()));
    eventually("the program is up", LONG, || is_up(&server));
    kill_process(running.id(), Signal::HUP).unwrap();
    kill_process(running.id(), Signal::TERM).unwrap();
    assert_eq!(running.outcome(), (String::new(), Some(5)));
}

/// The terminal sends Ctrl-C to its whole foreground group. The program here is in another session, so only a forwarded
/// signal would reach it.
#[test]
#[cfg(target_os = "linux")]
fn what_comes_from_the_terminal_is_not_passed_on() {
    let server = Server::start();
    let (mut terminal, end) = terminal();
    let script = program(&server, "trap 'echo told' INT; trap 'exit 5' TERM");
    let mut command = Command::new("setsid");
    command.args(["--ctty", env!("CARGO_BIN_EXE_redlock"), "run", "job", "--", "setsid", "sh", "-c", &script]);
    command.env("REDIS_URL", server.url()).stdin(end).stdout(Stdio::piped()).stderr(Stdio::piped());
    let running = Running::start(&mut command);
    eventually("the program is up", LONG, || is_up(&server));
    terminal.write_all(b"\x03").unwrap();
    // Signals are taken in the order of their numbers, so INT comes first.
    kill_process(running.id(), Signal::TERM).unwrap();
    assert_eq!(running.outcome(), (String::new(), Some(5)));
    assert_eq!(fs::read_to_string(server.dir().join("said")).unwrap(), "up\n");
}

/// A terminal: the end of the test, and the end of the program.
#[cfg(target_os = "linux")]
fn terminal() -> (fs::File, fs::File) {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&terminal).unwrap();
    unlockpt(&terminal).unwrap();
    let name = ptsname(&terminal, Vec::new()).unwrap().into_string().unwrap();
    let no_owner = i32::try_from(rustix::fs::OFlags::NOCTTY.bits()).unwrap();
    let end = fs::File::options().read(true).write(true).custom_flags(no_owner).open(name).unwrap();
    (terminal.into(), end)
}
