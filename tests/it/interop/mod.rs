//! Programs of other libraries use the same keys, at pinned versions and on real servers.
//!
//! The tests need the feature `interop`, because their packages are fetched once into the target directory. If a
//! language is not installed, its libraries are skipped with a message on stderr. In CI this is an error
//! (`skipped.rs`).
//!
//! `both_ways.rs`: neither side takes, releases or extends a lock of the other. `turns.rs`: programs that poll a lock
//! get their turn beside our clients. `layouts.rs`: a lock with another layout is an error and is not changed.

mod both_ways;
mod layouts;
mod skipped;
mod turns;

use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use redis::cmd;
use redlock_sync::Redlock;
use redlock_tests::foreign::{Library, python};
use redlock_tests::{Server, eventually, servers};

/// python-redis-lock prepends `lock:` to its names.
const KEY: &str = "lock:order:42";

/// Makes a `#[test]` for each library, which calls the function with the library.
macro_rules! each_library {
    ($test:path: $($name:ident = $library:ident),+ $(,)?) => {
        $(#[test]
        fn $name() {
            let library = redlock_tests::foreign::Library::$library;
            if library.is_here() {
                $test(library);
            }
        })+

        #[test]
        fn none_is_left_out() {
            assert_eq!([$(redlock_tests::foreign::Library::$library),+], redlock_tests::foreign::Library::ALL);
        }
    };
    ($test:path) => {
        $crate::interop::each_library! {
            $test: redis_py = RedisPy, python_redis_lock = PythonRedisLock, node_redlock_4 = NodeRedlock4, node_redlock_5 = NodeRedlock5,
            redsync = Redsync, redisson = Redisson, rslock = Rslock
        }
    };
}
use each_library;

/// Starts servers, and a client of this library.
fn field(nodes: usize) -> (Vec<Server>, Redlock) {
    let servers = servers(nodes);
    let builder = Redlock::builder().nodes(servers.iter().map(Server::url)).node_timeout(Duration::from_secs(2));
    (servers, builder.build().unwrap())
}

fn urls(servers: &[Server]) -> String {
    servers.iter().map(Server::url).collect::<Vec<_>>().join(",")
}

/// Two processes of this library and two Python processes increment a counter in one file.
#[test]
fn mixed_processes_lose_no_update() {
    const ROUNDS: u64 = 250;
    if !Library::RedisPy.is_here() {
        return;
    }
    let server = Server::start();
    let file = server.dir().join("counter");
    fs::write(&file, [0; 40]).unwrap();
    let rounds = ROUNDS.to_string();
    let ours = || {
        let mut agent = Command::new(env!("CARGO_BIN_EXE_agent"));
        // With two threads, the lock would stay within the process most of the time.
        agent.arg("contend").arg(&file).args([&rounds, "1", "yes", "1000", &server.url()]);
        agent.stdin(Stdio::null()).spawn().unwrap()
    };
    let theirs = || {
        let mut python = python::with_packages(include_str!("counter.py"));
        python.arg(&file).args([&rounds, &server.url()]).stdin(Stdio::null()).spawn().unwrap()
    };
    // All processes want the lock before one gets it, because they start at different speeds.
    server.ask::<()>(cmd("SET").arg("counter").arg("the test").arg("EX").arg(600));
    let all = [ours(), theirs(), ours(), theirs()];
    let is_wanted = || {
        let clients = server.ask::<String>(cmd("CLIENT").arg("LIST"));
        let polls = clients.lines().filter(|client| client.contains(" cmd=set ")).count();
        (server.ask::<usize>(cmd("ZCOUNT").arg("{counter}:waits").arg(1).arg("+inf")), polls) == (2, 2)
    };
    eventually("two processes wait and two poll", Duration::from_secs(60), is_wanted);
    assert!(server.del("counter"));
    for mut process in all {
        assert!(process.wait().unwrap().success());
    }
    let record = fs::read(&file).unwrap();
    let number = |i: usize| u64::from_le_bytes(record[8 * i..8 * i + 8].try_into().unwrap());
    println!("counted {}, process changed {} times", number(0), number(2));
    assert_eq!(number(0), 4 * ROUNDS);
    assert!(number(2) >= 20, "the lock rarely changed between processes: {} times", number(2));
    assert_eq!(number(4), 0, "the lock had two holders");
}
