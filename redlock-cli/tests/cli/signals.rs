//! Signals to `redlock run`.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use redlock_tests::{Server, eventually};
use rustix::process::{Signal, kill_process};

use crate::{LONG, Running, independent, on, outcome};

/// A shell program that runs for as long as redlock does.
pub(crate) const STAY: &str = "while kill -0 $PPID 2> /dev/null; do sleep 0.05; done";

/// A shell program that writes `up` to a file once it runs.
pub(crate) fn program(server: &Server, script: &str) -> String {
    format!("exec > {}; {script}; echo up; {STAY}", server.dir().join("said").display())
}

fn said(server: &Server) -> String {
    fs::read_to_string(server.dir().join("said")).unwrap_or_default()
}

pub(crate) fn is_up(server: &Server) -> bool {
    said(server).contains("up")
}

/// The ignored signals in the status of a process; none where a process has no such file.
fn mask_of(status: &str) -> u64 {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.map_or(0, |mask| u64::from_str_radix(mask.trim(), 16).unwrap())
}

/// Returns whether the signal is not ignored. The process that runs the tests may ignore some signals, as `nohup` and
/// the jobs of a shell do. Programs that the tests start then ignore them too.
fn arrives(signal: Signal) -> bool {
    let ignored = mask_of(&fs::read_to_string("/proc/self/status").unwrap_or_default());
    let arrives = ignored & 1 << (signal.as_raw() - 1) == 0;
    if !arrives {
        eprintln!("{signal:?} is ignored here, and not tried");
    }
    arrives
}

/// All signals that end a process and that can be caught. SIGPIPE is not one of them, since Rust ignores it.
#[cfg(target_os = "linux")]
fn all() -> Vec<Signal> {
    use rustix_libc_wrappers::process::SignalExt;
    let uncatchable = [Signal::KILL, Signal::STOP];
    let of_faults = [Signal::ILL, Signal::FPE, Signal::SEGV];
    let stops = [Signal::TSTP, Signal::TTIN, Signal::TTOU];
    let harmless = [Signal::CHILD, Signal::CONT, Signal::PIPE, Signal::URG, Signal::WINCH];
    let others = [&uncatchable[..], &of_faults, &stops, &harmless].concat();
    // The C library keeps two or three of the signals for itself.
    let all = (1..=64).filter_map(Signal::from_raw);
    all.filter(|signal| !others.contains(signal) && arrives(*signal)).collect()
}

#[cfg(not(target_os = "linux"))]
fn all() -> Vec<Signal> {
    [Signal::HUP, Signal::INT, Signal::ALARM, Signal::TERM, Signal::USR1].into_iter().filter(|s| arrives(*s)).collect()
}

#[test]
fn a_signal_ends_the_wait_and_starts_nothing() {
    let server = Server::start();
    server.set("job", "held by another program");
    for some in all().chunks(8) {
        let start = |signal| (Running::start(&mut on(&server, ["run", "job", "--", "echo", "ran"])), signal);
        let waiting: Vec<_> = some.iter().map(start).collect();
        let wait = || server.ask::<usize>(redis::cmd("ZCOUNT").arg("{job}:waits").arg(1).arg("+inf")) == some.len();
        eventually("they wait", LONG, wait);
        for (waiting, signal) in &waiting {
            kill_process(waiting.id(), **signal).unwrap();
        }
        for (waiting, signal) in waiting {
            assert_eq!(waiting.outcome(), (String::new(), Some(128 + signal.as_raw())), "{signal:?}");
        }
        eventually("their waits are taken out of the queue, which then ends", LONG, || server.keys() == ["job"]);
    }
}

#[test]
fn every_signal_that_ends_a_process_goes_on_to_the_program() {
    let server = Server::start();
    let script = r#"
import os, signal, sys, time
out = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
def told(number, frame):
    os.write(out, b"got %d.\n" % number)
for number in sys.argv[2:]:
    signal.signal(int(number), told)
os.write(out, b"up\n")
redlock = os.getppid()
while os.getppid() == redlock:
    time.sleep(0.05)
"#;
    let signals: Vec<Signal> = all().into_iter().filter(|signal| *signal != Signal::TERM).collect();
    let mut command = on(&server, ["run", "job", "--", "python3", "-c", script]);
    command.arg(server.dir().join("said")).args(signals.iter().map(|signal| signal.as_raw().to_string()));
    let running = Running::start(&mut command);
    eventually("the program is up", LONG, || is_up(&server));
    for signal in signals {
        kill_process(running.id(), signal).unwrap();
        let got = format!("got {}.", signal.as_raw());
        eventually(&format!("the program has {signal:?}"), LONG, || said(&server).contains(&got));
    }
    kill_process(running.id(), Signal::TERM).unwrap();
    assert_eq!(running.outcome(), (String::new(), Some(143)));
    assert_eq!(server.get("job"), None, "released, also after a signal");
}

#[test]
fn the_code_is_that_of_the_program_also_after_a_signal() {
    let server = Server::start();
    let cases = [
        (Signal::TERM, "trap 'exit 5' TERM", 5),
        (Signal::INT, "trap 'exit 6' INT", 6),
        (Signal::USR1, ":", 138),
        (Signal::ALARM, ":", 142),
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

/// The signals come before the handlers are set, during the request for the lock, during the start of the program, and
/// after it. None leaves the program behind.
#[test]
fn a_signal_in_the_first_milliseconds_ends_everything() {
    let server = Server::start();
    for after in 0..30 {
        let mut running = Running::start(&mut on(&server, ["run", "job", "--", "sh", "-c", STAY]));
        std::thread::sleep(Duration::from_millis(after));
        kill_process(running.id(), Signal::TERM).unwrap();
        let ended = running.end();
        assert!(ended.code() == Some(143) || ended.signal() == Some(15), "after {after} ms: {ended:?}");
    }
}

/// Runs a program with these signals ignored.
fn ignoring(signals: &[Signal], server: &Server, args: &[&str]) -> Command {
    let script = r"
import os, signal, sys
for number in [signal.SIGPIPE, signal.SIGXFSZ]:  # Python ignores these
    signal.signal(number, signal.SIG_DFL)
for number in sys.argv[1].split():
    signal.signal(int(number), signal.SIG_IGN)
os.execv(sys.argv[2], sys.argv[2:])
";
    let signals: Vec<String> = signals.iter().map(|signal| signal.as_raw().to_string()).collect();
    let mut command = independent("python3");
    command.args(["-c", script, &signals.join(" "), env!("CARGO_BIN_EXE_redlock")]).args(args);
    command.env("REDIS_URL", server.url());
    command
}

#[test]
#[cfg(target_os = "linux")]
fn a_signal_that_is_ignored_stays_so() {
    let server = Server::start();
    let script = program(&server, "trap 'exit 5' TERM; grep SigIgn /proc/self/status");
    let ignored = [Signal::HUP, Signal::USR1, Signal::ALARM];
    let running = Running::start(&mut ignoring(&ignored, &server, &["run", "job", "--", "sh", "-c", &script]));
    eventually("the program is up", LONG, || is_up(&server));
    for signal in ignored {
        kill_process(running.id(), signal).unwrap();
    }
    kill_process(running.id(), Signal::TERM).unwrap();
    assert_eq!(running.outcome(), (String::new(), Some(5)));
    let mask = mask_of(&said(&server));
    for signal in ignored {
        assert!(mask >> (signal.as_raw() - 1) & 1 == 1, "{signal:?}: {mask:x}");
    }
}

/// The system discards the exit codes of children of a process that ignores SIGCHLD.
#[test]
fn a_caller_that_ignores_the_ends_of_children_gets_the_code() {
    let server = Server::start();
    let ignored = [Signal::CHILD, Signal::PIPE];
    let (said, code) = outcome(&mut ignoring(&ignored, &server, &["run", "job", "--", "sh", "-c", "exit 7"]));
    assert_eq!((&*said, code), ("", Some(7)));
    // As `run --help` says, both signals have their default action in the program.
    if cfg!(target_os = "linux") {
        let run = ["run", "job", "--", "grep", "SigIgn", "/proc/self/status"];
        let mask = mask_of(&outcome(&mut ignoring(&ignored, &server, &run)).0);
        for signal in ignored {
            assert!(mask >> (signal.as_raw() - 1) & 1 == 0, "{signal:?}: {mask:x}");
        }
    }
}

/// A caller that blocks signals passes that on to what it starts.
#[test]
fn a_signal_that_the_caller_blocks_arrives() {
    let server = Server::start();
    let blocking = r"
import os, signal, sys
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGUSR1])
os.execv(sys.argv[1], sys.argv[1:])
";
    let redlock = |script: &str| {
        let mut command = independent("python3");
        command.args(["-c", blocking, env!("CARGO_BIN_EXE_redlock"), "run", "job", "--", "sh", "-c", script]);
        Running::start(command.env("REDIS_URL", server.url()))
    };
    let running = redlock(&program(&server, "grep -s SigBlk /proc/self/status"));
    eventually("the program is up", LONG, || is_up(&server));
    let waiting = redlock("echo ran");
    let waits = || server.ask::<usize>(redis::cmd("ZCOUNT").arg("{job}:waits").arg(1).arg("+inf")) == 1;
    eventually("another one waits", LONG, waits);
    for running in [waiting, running] {
        kill_process(running.id(), Signal::TERM).unwrap();
        assert_eq!(running.outcome(), (String::new(), Some(143)));
    }
    if cfg!(target_os = "linux") {
        assert!(said(&server).contains("SigBlk:\t0000000000000000\n"), "{}", said(&server));
    }
}

/// The minimum hold is for a lock whose program has run.
#[test]
fn a_lock_that_came_too_late_is_not_kept() {
    let server = Server::start();
    let ran = server.dir().join("ran");
    let words = ["run", "job", "--min-hold", "30s", "--lease", "40s", "--", "touch", &ran.display().to_string()];
    let is_too_late = || {
        server.ask::<()>(redis::cmd("CLIENT").arg("PAUSE").arg(60_000).arg("WRITE"));
        let running = Running::start(&mut on(&server, words));
        let asks = || server.ask::<String>(redis::cmd("CLIENT").arg("LIST")).contains("cmd=evalsha");
        let asks = || asks() || server.ask::<String>(redis::cmd("CLIENT").arg("LIST")).contains("cmd=eval ");
        eventually("redlock asks for the lock", LONG, asks);
        kill_process(running.id(), Signal::TERM).unwrap();
        // The signal usually arrives before the lock does.
        std::thread::sleep(Duration::from_millis(50));
        server.ask::<()>(redis::cmd("CLIENT").arg("UNPAUSE"));
        let outcome = running.outcome();
        let has_run = fs::remove_file(&ran).is_ok();
        if has_run {
            server.del("job");
        } else {
            assert_eq!(outcome, (String::new(), Some(143)));
            assert_eq!(server.get("job"), None, "given back");
        }
        !has_run
    };
    eventually("a signal arrives before the lock", LONG, is_too_late);
}

/// Such as a program that `sudo` runs. Only root can make one here.
#[test]
#[cfg(target_os = "linux")]
fn a_program_that_redlock_may_not_signal_is_awaited() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    let server = Server::start();
    let dir = server.dir();
    if fs::metadata(&dir).unwrap().uid() != 0 {
        eprintln!("this is not root, so no program of another user is tried");
        return;
    }
    let as_root = dir.join("as-root");
    fs::copy("/usr/bin/setpriv", &as_root).unwrap();
    fs::set_permissions(&as_root, fs::Permissions::from_mode(0o4755)).unwrap();
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).unwrap();
    let (go, errors) = (dir.join("go"), dir.join("errors"));
    let script = program(&server, "")
        .replace("; ;", ";")
        .replace("kill -0 $PPID 2> /dev/null", &format!("[ ! -e {} ]", go.display()));
    for is_lost in [true, false] {
        let mut command = independent("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups", env!("CARGO_BIN_EXE_redlock")]);
        command.args(["run", "job", "--lease", "4s", "--kill-after", "100ms", "--"]).arg(&as_root);
        command.args(["--reuid", "0", "--regid", "0", "--clear-groups", "sh", "-c", &format!("{script}; exit 3")]);
        command.env("REDIS_URL", server.url()).stdout(Stdio::null());
        let mut running = Running::start(command.stderr(fs::File::create(&errors).unwrap()));
        eventually("the program is up", LONG, || is_up(&server));
        let pid = running.id();
        let told = || fs::read_to_string(&errors).unwrap();
        if is_lost {
            server.del("job");
            let lines = || told().matches("; it goes on without the lock").count() == 2;
            eventually("redlock has tried to end and to kill it", LONG, lines);
        } else {
            kill_process(pid, Signal::TERM).unwrap();
            eventually("redlock has tried to pass it on", LONG, || told().contains("; it goes on under the lock"));
            let mut last = server.pttl("job").unwrap();
            let is_renewed = || {
                let left = server.pttl("job").unwrap();
                left > std::mem::replace(&mut last, left)
            };
            eventually("it is renewed", LONG, is_renewed);
        }
        fs::write(&go, "").unwrap();
        assert_eq!(running.end().code(), Some(if is_lost { 70 } else { 3 }), "{}", told());
        assert!(told().contains("cannot signal process ") && !told().contains("is told"), "{}", told());
        assert!(!told().contains("is killed"), "{}", told());
        for file in [&go, &dir.join("said")] {
            fs::remove_file(file).unwrap();
        }
    }
}

/// This is what `run --help` proposes, since nothing can catch SIGKILL.
#[test]
#[cfg(target_os = "linux")]
fn setpriv_ends_the_program_if_redlock_is_killed() {
    let server = Server::start();
    let script = program(&server, "trap 'echo told; exit' TERM");
    let run = ["run", "job", "--", "setpriv", "--pdeathsig", "TERM", "sh", "-c", &script];
    let running = Running::start(&mut on(&server, run));
    eventually("the program is up", LONG, || is_up(&server));
    kill_process(running.id(), Signal::KILL).unwrap();
    eventually("the program is told", LONG, || said(&server).contains("told"));
}
