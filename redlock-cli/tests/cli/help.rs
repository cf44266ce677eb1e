//! `--help`, and the list of commands in the README.

use crate::{outcome, redlock};

const COMMANDS: [&str; 8] = ["run", "inspect", "ls", "release", "doctor", "top", "dash", "queue"];

#[test]
fn the_page_and_help_name_each_command() {
    let page = include_str!("../../README.md");
    let (all, code) = outcome(&mut redlock(["--help"]));
    assert_eq!(code, Some(0));
    let mut said = vec![all];
    for command in COMMANDS {
        let (text, code) = outcome(&mut redlock([command, "--help"]));
        assert!(code == Some(0) && text.starts_with(&format!("redlock {command} - ")), "{text}");
        assert!(said[0].contains(&format!("\n  {command} ")), "`redlock --help` does not name {command}");
        assert!(page.contains(&format!("\n| `redlock {command} ")), "README.md does not name {command}");
        said.push(text);
    }
    for text in said {
        let long: Vec<&str> = text.lines().filter(|line| line.chars().count() > 88).collect();
        assert!(long.is_empty(), "{long:#?}");
    }
    assert_eq!(outcome(&mut redlock(["-V"])).0, concat!("redlock ", env!("CARGO_PKG_VERSION"), "\n"));
}

#[test]
fn wrong_usage_is_64_and_says_what_is_wrong() {
    let cases: [(&[&str], &str); 33] = [
        (&[], "a command is missing; see redlock --help"),
        (&["queue", "drop", "emails"], "; see redlock queue --help"),
        (&["watch"], "no command `watch`"),
        (&["--nodes"], "no option `--nodes`"),
        (&["run"], "KEY is missing; see redlock run --help"),
        (&["run", "job"], "PROGRAM is missing; see redlock run --help"),
        (
            &["run", "job", "--no-wait", "--wait", "2s", "true"],
            "give either --wait or --no-wait; see redlock run --help",
        ),
        (&["run", "job", "--wait", "2s", "--no-wait", "true"], "give either --wait or --no-wait"),
        (&["run", "job", "--remember", "48h", "true"], "--remember needs --once"),
        (&["run", "job", "--once", "--min-hold", "1s", "true"], "--once has no --min-hold"),
        (&["run", "job", "--once", "--remember", "1ms", "true"], "remember"),
        (&["run", "job", "--timeout", "3", "--", "true"], "no option `--timeout`"),
        (&["run", "job", "--wait", "3", "--", "true"], "such as 30s"),
        (&["run", "job", "--fence=yes", "--", "true"], "--fence"),
        (&["run", "job", "--min-hold", "1m", "--", "true"], "min_hold"),
        (&["inspect"], "KEY is missing"),
        (&["inspect", "a", "b"], "unexpected argument `b`"),
        (&["release", "job"], "--holder TOKEN is missing"),
        (&["release", "job", "--holder", "0123"], "is no token"),
        (&["doctor", "job"], "unexpected argument `job`"),
        (&["top", "--every", "50ms"], "--every must be at least 100ms"),
        (&["queue"], "ls, peek, dead, revive, pause, resume or clear is missing"),
        (&["queue", "drop", "emails"], "no command `queue drop`"),
        (&["queue", "drop"], "no command `queue drop`"),
        (&["queue", "drop", "-n", "3"], "no command `queue drop`"),
        (&["queue", "peek", "emails", "-n", "many"], "many"),
        (&["queue", "revive", "emails"], "give either the ids of dead tasks or --all"),
        (&["inspect", ""], "a lock needs a name"),
        // The first argument is an empty name, which no lock can have.
        (&["run", "", "--", "echo", "sh", "-c", "exit 3"], "a lock needs a name"),
        (&["queue", "ls", "-n", "3"], "`queue ls` has no option `-n`"),
        (&["queue", "peek", "emails", "--all"], "`queue peek` has no option `--all`"),
        (&["queue", "dead", "emails", "--due"], "`queue dead` has no option `--due`"),
        (&["queue", "revive", "emails", "-n", "3", "--all"], "`queue revive` has no option `-n`"),
    ];
    let server = redlock_tests::Server::start();
    for (args, expected) in cases {
        let (said, code) = outcome(redlock([]).args(args).env("REDIS_URL", server.url()));
        assert!(code == Some(64) && said.contains(expected), "{args:?} {code:?}: {said}");
    }
    let (said, code) = outcome(&mut redlock(["doctor"]));
    assert!(code == Some(64) && said.contains("--node redis://127.0.0.1/ before the command"), "{code:?} {said}");
    assert!(said.contains("set REDIS_URL=redis://127.0.0.1/") && !said.contains(".node("), "{said}");
    let twice = &server.url();
    let (said, code) = outcome(&mut redlock(["--node", twice, "--node", twice, "doctor"]));
    assert!(code == Some(64) && said.contains("the same server"), "{code:?} {said}");
    let (said, code) = outcome(&mut redlock(["--node", "http://127.0.0.1/", "doctor"]));
    assert!(code == Some(64) && said.contains("http://127.0.0.1/"), "{code:?} {said}");
}

#[test]
fn a_server_that_is_away_is_69_and_a_full_disk_71() {
    let cases: [&[&str]; 7] = [
        &["inspect", "job"],
        &["ls"],
        &["release", "job", "--holder", "01234567"],
        &["queue", "ls"],
        &["queue", "peek", "emails"],
        &["queue", "dead", "emails"],
        &["queue", "revive", "emails", "--all"],
    ];
    for args in cases {
        let (said, code) = outcome(redlock(["--node", "redis://127.0.0.1:1/"]).args(args));
        assert!(code == Some(69) && said.contains("127.0.0.1:1"), "{args:?} {code:?}: {said}");
    }
    let full = std::fs::File::options().write(true).open("/dev/full");
    // The test uses this device only where it exists, on Linux.
    if let Ok(full) = full {
        let (said, code) = outcome(redlock(["--help"]).stdout(full));
        assert!(code == Some(71) && said.starts_with("redlock: "), "{code:?}: {said}");
    }
}
