//! Programs of other libraries that lock the same keys. They are fetched once, at pinned versions, into the target
//! directory.
//!
//! A program gets its servers and the key as arguments, and prints `ready`. Then it reads one command per line:
//! `acquire` (one attempt), `extend` or `release`; it answers `yes` or `no`.
//!
//! On `turns SECONDS HOLD PAUSE` it repeatedly takes the lock, holds it, releases it and pauses, with the defaults of
//! its library. If the library gives up, the program tries again. It prints two times for each turn, in microseconds
//! since it began: when it wanted the lock, and when it got it. It fails if a release is refused.
//!
//! On `pairs TASKS SECONDS` the program of rslock locks and unlocks as many keys at once, and prints pairs per second.

mod fetch;
mod languages;
mod queues;
mod toolchain;

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

pub use languages::python;
pub use queues::{OtherQueue, Rates};

/// Another library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Library {
    /// `redis.lock.Lock` of Python: polls each 100 ms.
    RedisPy,
    /// Locks `lock:NAME` for `NAME`. Waits for a message of its own kind; so the program polls each 100 ms.
    PythonRedisLock,
    /// Polls each 100 to 300 ms, and gives up after ten attempts.
    NodeRedlock4,
    /// Like its predecessor.
    NodeRedlock5,
    /// Polls after 50 to 250 ms, and gives up after 32 attempts.
    Redsync,
    /// A bucket of text with `setIfAbsent` and `compareAndSet`; the program polls each 100 ms. The locks of the library
    /// have another layout.
    Redisson,
    /// Polls after up to 200 ms, and gives up after three attempts.
    Rslock,
}

impl Library {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::RedisPy,
        Self::PythonRedisLock,
        Self::NodeRedlock4,
        Self::NodeRedlock5,
        Self::Redsync,
        Self::Redisson,
        Self::Rslock,
    ];

    /// Its name and version.
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

    /// Whether one lock of it can be on several servers.
    pub fn knows_several_servers(self) -> bool {
        matches!(self, Self::NodeRedlock4 | Self::NodeRedlock5 | Self::Redsync | Self::Rslock)
    }

    /// True if the tools of its language are on `PATH`.
    ///
    /// Without them the library is skipped, and a line on stderr names it.
    ///
    /// # Panics
    /// Without the tools in CI, where the environment variable `CI` is set: nothing is skipped there.
    pub fn is_here(self) -> bool {
        toolchain::has(self.name(), self.tools())
    }

    /// Starts its program and waits until it is ready. `urls` are one server, or several with commas between them.
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

    /// The program, without its arguments.
    fn program(self) -> Command {
        match self {
            Self::RedisPy => python::locks("redis-py"),
            Self::PythonRedisLock => python::locks("python-redis-lock"),
            Self::NodeRedlock4 => languages::node("redlock@4.2.0"),
            Self::NodeRedlock5 => languages::node("redlock@5.0.0-beta.2"),
            Self::Redsync => languages::redsync(),
            Self::Redisson => languages::redisson(),
            Self::Rslock => languages::rslock(),
        }
    }
}

/// How a program uses its lock.
#[derive(Debug, Clone, Copy)]
pub struct Work {
    /// The time in total.
    pub span: Duration,
    /// How long it keeps the lock.
    pub hold: Duration,
    /// The pause after each release.
    pub pause: Duration,
}

/// A program that is ready.
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

    /// Lets so many tasks, each with a lock of its own, lock and unlock as fast as they can. Returns pairs per second.
    ///
    /// Only the program of rslock knows this command.
    pub fn pairs(&mut self, tasks: usize, span: Duration) -> f64 {
        self.ask(&format!("pairs {tasks} {}", span.as_secs_f64())).parse().expect("a number")
    }

    /// Starts its turns.
    pub fn begin(&mut self, work: Work) {
        let [span, hold, pause] = [work.span, work.hold, work.pause].map(|span| span.as_secs_f64());
        self.say(&format!("turns {span} {hold} {pause}"));
    }

    /// Waits for their end: for each turn when it wanted the lock and when it got it.
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
