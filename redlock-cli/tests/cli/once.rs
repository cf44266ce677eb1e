//! `redlock run --once`.

use std::fs;

use redlock_tests::{Server, eventually};
use rustix::process::{Signal, kill_process};

use crate::signals::{is_up, program};
use crate::{LONG, Running, on, outcome};

#[test]
fn a_program_that_has_succeeded_does_not_run_again() {
    let server = Server::start();
    let once = |args: &[&str]| outcome(on(&server, ["run", "--once", "report:2026-11-24"]).args(args));
    let print = r#"echo "$REDLOCK_KEY ${REDLOCK_FENCE-none}""#;
    assert_eq!(once(&["--", "sh", "-c", "exit 3"]), (String::new(), Some(3)), "a failure is not remembered");
    assert_eq!(once(&["--", "sh", "-c", "kill -9 $$"]), (String::new(), Some(137)), "neither is this one");
    assert_eq!(once(&["--", "no-such-program"]).1, Some(127), "nor this one");
    let (said, code) = once(&["--remember", "1h", "--fence", "--", "sh", "-c", print]);
    let fence = said.trim().strip_prefix("report:2026-11-24 ").and_then(|fence| fence.parse::<u64>().ok());
    assert!(code == Some(0) && fence.is_some(), "{code:?} {said}");
    for wait in [&[][..], &["--no-wait"], &["--wait", "1m"]] {
        let (said, code) = once(&[wait, &["--", "echo", "ran"]].concat());
        assert!(code == Some(0) && said.contains("`report:2026-11-24` has been done"), "{code:?} {said}");
    }
    assert_eq!(server.get("report:2026-11-24"), None, "the lock is free");
    let left = server.pttl("{report:2026-11-24}:done").unwrap().as_secs();
    assert!((3000..=3600).contains(&left), "{left}");
}

/// The machine that waits takes over if the first one fails, and has nothing to do if the first one succeeds.
#[test]
fn a_second_machine_waits_for_the_first() {
    let server = Server::start();
    for (code, expected) in [(4, "ran\n"), (0, "has been done")] {
        let (said, go) = (server.dir().join("said"), server.dir().join("go"));
        let script = format!("echo up > {}; until [ -e {} ]; do sleep 0.05; done", said.display(), go.display());
        let name = format!("job:{code}");
        let run = ["run", "--once", &name, "--", "sh", "-c", &format!("{script}; exit {code}")];
        let first = Running::start(&mut on(&server, run));
        eventually("the first one runs", LONG, || is_up(&server));
        for wait in ["--no-wait", "--wait=200ms"] {
            let (said, code) = outcome(&mut on(&server, ["run", "--once", &name, wait, "--", "echo", "ran"]));
            assert!(code == Some(75) && said.contains("another holder") && !said.contains("ran"), "{code:?} {said}");
        }
        let second = Running::start(&mut on(&server, ["run", "--once", &name, "--", "echo", "ran"]));
        let waits =
            || server.ask::<usize>(redis::cmd("ZCOUNT").arg(format!("{{{name}}}:waits")).arg(1).arg("+inf")) == 1;
        eventually("the second one waits", LONG, waits);
        fs::write(&go, "").unwrap();
        assert_eq!(first.outcome(), (String::new(), Some(code)));
        let (said_second, code) = second.outcome();
        assert!(code == Some(0) && said_second.contains(expected), "{code:?} {said_second}");
        fs::remove_file(&go).unwrap();
        fs::remove_file(said).unwrap();
    }
}

#[test]
fn a_signal_ends_the_wait_or_goes_on_to_the_program() {
    let server = Server::start();
    let script = program(&server, "trap 'exit 5' TERM");
    let first = Running::start(&mut on(&server, ["run", "--once", "job", "--", "sh", "-c", &script]));
    eventually("the program is up", LONG, || is_up(&server));
    let second = Running::start(&mut on(&server, ["run", "--once", "job", "--", "echo", "ran"]));
    let waits = || server.ask::<usize>(redis::cmd("ZCOUNT").arg("{job}:waits").arg(1).arg("+inf")) == 1;
    eventually("the second one waits", LONG, waits);
    kill_process(second.id(), Signal::TERM).unwrap();
    assert_eq!(second.outcome(), (String::new(), Some(143)));
    kill_process(first.id(), Signal::TERM).unwrap();
    assert_eq!(first.outcome(), (String::new(), Some(5)));
    assert_eq!(outcome(&mut on(&server, ["run", "--once", "job", "--", "echo", "ran"])).0, "ran\n");
}

/// The program succeeded, but another one may have run meanwhile.
#[test]
fn a_program_whose_lock_was_lost_is_not_done() {
    let server = Server::start();
    let script = program(&server, "trap 'exit 0' TERM");
    let mut command = on(&server, ["run", "--once", "job", "--lease", "1s", "--", "sh", "-c", &script]);
    let running = Running::start(&mut command);
    eventually("the program is up", LONG, || is_up(&server));
    server.del("job");
    let (said, code) = running.outcome();
    assert!(code == Some(70) && said.contains("told to end"), "{code:?} {said}");
    assert_eq!(server.get("{job}:done"), None);
}

/// The next call may run the program again, so the exit code is that of no success.
#[test]
fn a_success_that_no_server_can_remember_is_told() {
    let server = Server::start();
    let script = program(&server, "trap 'exit 0' TERM");
    let mut command = on(&server, ["run", "--once", "job", "--lease", "5s", "--", "sh", "-c", &script]);
    let running = Running::start(&mut command);
    eventually("the program is up", LONG, || is_up(&server));
    server.kill();
    kill_process(running.id(), Signal::TERM).unwrap();
    let (said, code) = running.outcome();
    assert!(code == Some(69) && said.contains("the program has run, but"), "{code:?} {said}");
}
