//! Programs of other libraries that lock the same keys. They are fetched once, at pinned versions, into the target
//! directory.
//!
//! The arguments of a program are its servers and the key. The program prints `ready`, then reads one command per line:
//! `acquire` (one attempt), `extend` or `release`. It answers `yes` or `no`.
//!
//! On `turns SECONDS HOLD PAUSE` it repeatedly acquires the lock, holds it, releases it and pauses, with the defaults
//! of its library. If the library gives up, the program tries again.
//!
//! Then it prints two times for each turn, in microseconds since its start: of the call, and of the acquisition. It
//! fails if a release is refused.

mod crates;
mod fetch;
mod languages;
mod queues;
mod toolchain;

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

pub use crates::LockCrate;
pub use languages::python;
pub use queues::{OtherQueue, Rates};

/// A library of another project.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Library {
    /// `redis.lock.Lock` of redis-py. It polls each 100 ms.
    RedisPy,
    /// The key of the lock `NAME` is `lock:NAME`. The library waits for a message that only its own releases send, so
    /// the program polls each 100 ms.
    PythonRedisLock,
    /// The library polls each 100 to 300 ms, and gives up after ten attempts.
    NodeRedlock4,
    /// The library behaves like version 4.
    NodeRedlock5,
    /// The library polls after 50 to 250 ms, and gives up after 32 attempts.
    Redsync,
    /// The program uses a bucket of text with `setIfAbsent` and `compareAndSet`, and polls each 100 ms. The locks of
    /// the library have another layout.
    Redisson,
    /// The library polls after up to 200 ms, and gives up after three attempts.
    Rslock,
}

impl Library {
    /// All libraries.
    pub const ALL: [Self; 7] = [
        Self::RedisPy,
        Self::PythonRedisLock,
        Self::NodeRedlock4,
        Self::NodeRedlock5,
        Self::Redsync,
        Self::Redisson,
        Self::Rslock,
    ];

    /// The name and version of the library.
    pub fn name(self) -> &'static str {
        match self {
            Self::RedisPy => "redis-py 8",
            Self::PythonRedisLock => "python-redis-lock 4",
            Self::NodeRedlock4 => "node-redlock 4",
            Self::NodeRedlock5 => "node-redlock 5",
            Self::Redsync => "redsync 4",
            Self::Redisson => "Redisson 3, a bucket",
            Self::Rslock => "rslock 0.10",
        }
    }

    /// True if a lock of the library can be on several servers.
    pub fn knows_several_servers(self) -> bool {
        matches!(self, Self::NodeRedlock4 | Self::NodeRedlock5 | Self::Redsync | Self::Rslock)
    }

    /// True if the tools of the language are on `PATH`.
    ///
    /// If a tool is missing, the tests skip the library, and a line on stderr names it.
    ///
    /// # Panics
    ///
    /// Panics if a tool is missing in CI, where the environment variable `CI` is set. CI skips nothing.
    pub fn is_here(self) -> bool {
        toolchain::has(self.name(), self.tools())
    }

    /// Starts the program and waits until it is ready. `urls` is one server, or several servers separated by commas.
    pub fn start(self, urls: &str, key: &str) -> Program {
        let mut command = self.program();
        command.args([urls, key]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap_or_else(|error| panic!("{} does not run: {error}", self.name()));
        let (say, hear) = (process.stdin.take().unwrap(), process.stdout.take().unwrap());
        let mut program = Program { process, say, hear: BufReader::new(hear), name: self.name() };
        assert_eq!(program.hear(), "ready", "{} has something else to say", self.name());
        program
    }

    fn tools(self) -> &'static [&'static str] {
        match self {
            Self::RedisPy | Self::PythonRedisLock => &["python3"],
            Self::NodeRedlock4 | Self::NodeRedlock5 => &["node", "npm"],
            Self::Redsync => &["go"],
            Self::Redisson => &["java", "mvn"],
            Self::Rslock => &[],
        }
    }

    /// The command of the program, without its arguments.
    fn program(self) -> Command {
        match self {
            Self::RedisPy => python::locks("redis-py"),
            Self::PythonRedisLock => python::locks("python-redis-lock"),
            Self::NodeRedlock4 => languages::node("redlock@4.2.0"),
            Self::NodeRedlock5 => languages::node("redlock@5.0.0-beta.2"),
            Self::Redsync => languages::redsync(),
            Self::Redisson => languages::redisson(),
            Self::Rslock => languages::rust("rslock"),
        }
    }
}

/// The way in which a program uses its lock.
#[derive(Debug, Clone, Copy)]
pub struct Work {
    /// The total time.
    pub span: Duration,
    /// The time for which the program holds the lock.
    pub hold: Duration,
    /// The pause after each release.
    pub pause: Duration,
}

/// A program that has printed `ready`.
#[derive(Debug)]
pub struct Program {
    process: Child,
    say: ChildStdin,
    hear: BufReader<ChildStdout>,
    name: &'static str,
}

impl Program {
    /// Sends a command, and returns the answer.
    pub fn ask(&mut self, word: &str) -> String {
        self.say(word);
        self.hear()
    }

    /// Starts the turns of the program.
    pub fn begin(&mut self, work: Work) {
        let [span, hold, pause] = [work.span, work.hold, work.pause].map(|span| span.as_secs_f64());
        self.say(&format!("turns {span} {hold} {pause}"));
    }

    /// Waits until the turns have ended. Returns two times for each turn: of the call, and of the acquisition.
    pub fn turns(mut self) -> Vec<(Duration, Duration)> {
        let said = self.hear();
        let numbers: Vec<u64> = said.split_whitespace().map(|word| word.parse().expect("a number")).collect();
        let moment = Duration::from_micros;
        numbers.chunks_exact(2).map(|turn| (moment(turn[0]), moment(turn[1]))).collect()
    }

    fn say(&mut self, line: &str) {
        writeln!(self.say, "{line}").unwrap_or_else(|error| panic!("{} does not listen: {error}", self.name));
    }

    fn hear(&mut self) -> String {
        let mut line = String::new();
        let bytes = self.hear.read_line(&mut line).expect("the program can be heard");
        assert!(bytes != 0, "{} has ended; what it said of that is on stderr", self.name);
        line.trim_end().to_owned()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        _ = self.process.kill();
        _ = self.process.wait();
    }
}
