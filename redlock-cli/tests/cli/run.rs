//! `redlock run`, except for signals.

use std::fs;
use std::time::Duration;

use redlock_tests::{Server, eventually, servers};

use crate::{LONG, Running, client, on, outcome, redlock};

#[test]
fn it_ends_as_its_program_does() {
    let server = Server::start();
    let print = r#"echo "$REDLOCK_KEY ${REDLOCK_FENCE-none}"; exit 7"#;
    let run = on(&server, ["run", "job", "--", "sh", "-c", print]).env("REDLOCK_FENCE", "1").output().unwrap();
    assert_eq!((run.status.code(), &*run.stdout), (Some(7), &b"job none\n"[..]), "{run:?}");
    let (said, code) =
        outcome(on(&server, ["run", "job", "--fence", "--", "sh", "-c", print]).env("REDLOCK_KEY_PREFIX", "P:"));
    let fence = said.trim().strip_prefix("P:job ").and_then(|fence| fence.parse::<u64>().ok());
    assert!(code == Some(7) && fence.is_some(), "{said}");
    assert_eq!((server.get("job"), server.get("P:job")), (None, None));

    let other = "redis://127.0.0.1:1/";
    server.ask::<()>(redis::cmd("RPUSH").arg("list").arg("x"));
    let cases = [
        (outcome(&mut on(&server, ["run", "job", "true"])), 0, ""),
        (outcome(&mut on(&server, ["run", "job", "--", "sh", "-c", "kill -9 $$"])), 137, ""),
        (outcome(&mut on(&server, ["run", "job", "--", "no-such-program"])), 127, "no-such-program"),
        (outcome(&mut on(&server, ["run", "job", "--", "/"])), 126, "/:"),
        (outcome(&mut on(&server, ["run", "list", "--", "echo", "ran"])), 64, "holds a value of another type"),
        (
            outcome(&mut on(&server, ["--node", other, "run", "job", "--no-wait", "--", "echo", "ran"])),
            69,
            "127.0.0.1:1",
        ),
        (
            outcome(on(&server, ["run", "job", "true"]).env("REDLOCK_LEASES", "3s")),
            0,
            "REDLOCK_LEASES is not a setting",
        ),
    ];
    for ((said, code), expected, part) in cases {
        assert!(
            code == Some(expected) && said.contains(part) && !said.contains("ran\n"),
            "{expected} {code:?}: {said}"
        );
    }
    assert_eq!(server.keys(), ["list", "{P:job}:fence"], "what was there, and a counter of fences");
}

#[test]
fn a_program_does_not_run_while_the_lock_is_held() {
    let server = Server::start();
    let go = server.dir().join("go");
    // The script also ends after the test, since the directory is removed with the server.
    let script = format!("cd {} && until [ -e go ] || [ ! -e log ]; do sleep 0.05; done", server.dir().display());
    let first = Running::start(&mut on(&server, ["run", "job", "--", "sh", "-c", &script]));
    eventually("the lock is held", LONG, || server.get("job").is_some());

    for wait in ["--no-wait", "--wait=200ms"] {
        let (said, code) = outcome(&mut on(&server, ["run", "job", wait, "--", "echo", "ran"]));
        assert!(code == Some(75) && said.contains("another holder") && !said.contains("ran"), "{code:?} {said}");
    }
    let waiting = Running::start(&mut on(&server, ["run", "job", "--wait", "1m", "--", "echo", "ran"]));
    fs::write(go, "").unwrap();
    assert_eq!(first.outcome(), (String::new(), Some(0)));
    assert_eq!(waiting.outcome(), ("ran\n".to_owned(), Some(0)));
}

#[test]
fn as_many_programs_run_as_the_semaphore_has_permits() {
    let server = Server::start();
    let go = server.dir().join("go");
    let script = format!("cd {} && until [ -e go ] || [ ! -e log ]; do sleep 0.05; done", server.dir().display());
    let run = || Running::start(&mut on(&server, ["run", "geocoder", "--semaphore", "2", "--", "sh", "-c", &script]));
    let both = [run(), run()];
    let locks = client(std::slice::from_ref(&server)).build().unwrap();
    eventually("both permits are held", LONG, || locks.semaphore("geocoder", 2).available().unwrap() == 0);
    let (said, code) =
        outcome(&mut on(&server, ["run", "geocoder", "--semaphore", "2", "--no-wait", "--", "echo", "ran"]));
    assert!(code == Some(75) && !said.contains("ran"), "{code:?} {said}");
    let third = Running::start(&mut on(
        &server,
        [
            "run",
            "geocoder",
            "--semaphore=2",
            "--wait=1m",
            "--fence",
            "--",
            "sh",
            "-c",
            "echo $REDLOCK_KEY:$REDLOCK_FENCE",
        ],
    ));
    fs::write(go, "").unwrap();
    for one in both {
        assert_eq!(one.outcome(), (String::new(), Some(0)));
    }
    let (said, code) = third.outcome();
    let fence = said.strip_prefix("geocoder:").and_then(|fence| fence.trim().parse::<u64>().ok());
    assert!(fence.is_some() && code == Some(0), "{code:?} {said}");
    assert_eq!(locks.semaphore("geocoder", 2).available().unwrap(), 2);
    for odd in ["--once", "--min-hold=1s"] {
        let (said, code) = outcome(&mut on(&server, ["run", "geocoder", "--semaphore=2", odd, "--", "true"]));
        assert!(code == Some(64) && said.contains("--semaphore has neither"), "{code:?} {said}");
    }
}

#[test]
fn a_lock_is_kept_for_the_time_that_it_is_to_be() {
    let server = Server::start();
    assert_eq!(
        outcome(&mut on(&server, ["run", "job", "--min-hold", "30s", "--lease", "40s", "--", "true"])).1,
        Some(0)
    );
    let left = server.pttl("job").unwrap();
    assert!(left <= Duration::from_secs(30), "{left:?}");
    let (said, code) = outcome(&mut on(&server, ["run", "job", "--no-wait", "--", "echo", "ran"]));
    assert!(code == Some(75) && !said.contains("ran"), "{code:?} {said}");
}

/// The lock is released at once, since another machine may have the program.
#[test]
fn a_lock_whose_program_cannot_be_started_is_not_kept() {
    for nodes in [1, 3] {
        let servers = servers(nodes);
        let urls: Vec<String> = servers.iter().map(Server::url).collect();
        for (program, expected) in [("no-such-program", 127), ("/", 126)] {
            let failing = ["run", "job", "--min-hold", "30s", "--fence", "--", program];
            let (said, code) = outcome(redlock(failing).env("REDLOCK_NODES", urls.join(",")));
            assert!(code == Some(expected) && said.contains(program), "{code:?} {said}");
            assert_eq!(said.lines().count(), 1, "{said}");
            let works = ["run", "job", "--no-wait", "--", "echo", "ran"];
            assert_eq!(outcome(redlock(works).env("REDLOCK_NODES", urls.join(","))).0, "ran\n");
        }
    }
}

#[test]
fn a_program_whose_lock_is_lost_is_ended() {
    let server = Server::start();
    let cases = [
        ("--kill-after=1m", "trap 'echo told; exit 3' TERM; echo up; while :; do sleep 0.05; done", "told to end"),
        // A stopped program goes on, so that it can end by itself.
        (
            "--kill-after=1m",
            "trap 'echo told; exit 3' TERM; echo up; kill -STOP $$; while :; do sleep 0.05; done",
            "told to end",
        ),
        ("--kill-after=100ms", "trap '' TERM; echo up; while :; do sleep 0.05; done", "the program is killed"),
    ];
    for (kill_after, script, expected) in cases {
        let log = server.dir().join("said");
        let script = format!("exec > {}; {script}", log.display());
        let mut command = on(&server, ["run", "job", "--lease", "1s", kill_after, "--", "sh", "-c", &script]);
        let running = Running::start(&mut command);
        eventually("the program is up", LONG, || fs::read_to_string(&log).is_ok_and(|said| said.contains("up")));
        server.del("job");
        let (said, code) = running.outcome();
        assert!(code == Some(70) && said.contains(expected) && said.contains("was lost"), "{code:?} {said}");
        fs::remove_file(log).unwrap();
    }
}

#[test]
fn a_loss_that_comes_too_late_to_act_upon_is_told() {
    let server = Server::start();
    let forget = redlock(["--version"]).get_program().to_owned();
    let inner = format!(
        "holder=$({0} inspect job | sed -n 's/.*servers *//;2s/.* \\([0-9a-f]\\{{8\\}}\\)….*/\\1/p'); {0} release job --holder $holder",
        forget.display()
    );
    let (said, code) = outcome(&mut on(&server, ["run", "job", "--", "sh", "-c", &inner]));
    assert!(
        code == Some(70) && said.contains("released job") && said.contains("before the program ended"),
        "{code:?} {said}"
    );
}
