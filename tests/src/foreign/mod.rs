//! Programs of other libraries, that lock the same keys: fetched once, at pinned versions, into the target directory.
//!
//! Each takes a lock, holds it, releases it and pauses, again and again, by its library's defaults; where the library gives up, the program
//! tries again. Called with `URL KEY SECONDS HOLD PAUSE`, it says `ready`, begins when a line comes, and tells in the end two moments of each
//! turn, in microseconds since the line came: when it wanted the lock, and when it got it.

mod fetch;
pub mod python;

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use crate::find::target_dir;
use fetch::{fetched, run};

/// Another library.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Library {
    /// `redis.lock.Lock` of Python: polls each 100 ms.
    RedisPy,
    /// Polls each 100 to 300 ms, and gives up after ten attempts.
    NodeRedlock4,
    /// As its predecessor.
    NodeRedlock5,
    /// Polls after up to 200 ms, and gives up after three attempts.
    Rslock,
}

impl Library {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::RedisPy, Self::NodeRedlock4, Self::NodeRedlock5, Self::Rslock];

    /// Its name and version.
    pub fn name(self) -> &'static str {
        match self {
            Self::RedisPy => "redis-py 8",
            Self::NodeRedlock4 => "node-redlock 4",
            Self::NodeRedlock5 => "node-redlock 5",
            Self::Rslock => "rslock 0.10",
        }
    }

    /// The program, about to be given its arguments.
    fn program(self) -> Command {
        match self {
            Self::RedisPy => python::with_package(include_str!("redis_py.py")),
            Self::NodeRedlock4 => node("redlock@4.2.0"),
            Self::NodeRedlock5 => node("redlock@5.0.0-beta.2"),
            Self::Rslock => rslock(),
        }
    }

    /// Starts its program and waits until it is ready.
    pub fn start(self, url: &str, key: &str, work: Work) -> Program {
        let numbers = [work.span, work.hold, work.pause].map(|span| span.as_secs_f64().to_string());
        let mut command = self.program();
        command.args([url, key]).args(numbers).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap_or_else(|error| panic!("{} does not run: {error}", self.name()));
        let mut hear = BufReader::new(process.stdout.take().expect("stdout is piped"));
        assert_eq!(line(&mut hear), "ready", "{} has something else to say", self.name());
        Program { process, hear }
    }
}

/// How a program uses its lock.
#[derive(Debug, Clone, Copy)]
pub struct Work {
    /// For how long in all.
    pub span: Duration,
    /// How long it keeps the lock.
    pub hold: Duration,
    /// How long it does without it afterwards.
    pub pause: Duration,
}

/// A program that is ready.
#[derive(Debug)]
pub struct Program {
    process: Child,
    hear: BufReader<ChildStdout>,
}

impl Program {
    /// Lets it begin.
    pub fn go(&mut self) {
        let say = self.process.stdin.as_mut().expect("stdin is piped");
        writeln!(say, "go").expect("the program listens");
    }

    /// Waits for its end: for each turn when it wanted the lock and when it got it.
    pub fn turns(mut self) -> Vec<(Duration, Duration)> {
        let said = line(&mut self.hear);
        let numbers: Vec<u64> = said.split_whitespace().map(|word| word.parse().expect("a number")).collect();
        let moment = Duration::from_micros;
        numbers.chunks_exact(2).map(|turn| (moment(turn[0]), moment(turn[1]))).collect()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        _ = self.process.kill();
        _ = self.process.wait();
    }
}

fn line(hear: &mut impl BufRead) -> String {
    let mut line = String::new();
    hear.read_line(&mut line).expect("the program can be heard");
    line.trim_end().to_owned()
}

/// What node-redlock talks to servers with.
const IOREDIS: &str = "ioredis@5.11.1";

/// Node with a version of node-redlock.
fn node(package: &str) -> Command {
    let folder = fetched(&format!("node-{package}"), |folder| {
        let mut npm = Command::new("npm");
        npm.args(["install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix"]);
        npm.arg(folder).args([package, IOREDIS]);
        npm
    });
    let mut node = Command::new("node");
    node.env("NODE_PATH", folder.join("node_modules")).args(["-e", include_str!("node_redlock.js"), "--"]);
    node
}

/// A project of its own, whose dependencies are not in our `Cargo.lock`; built on the first call.
fn rslock() -> Command {
    let target = target_dir().join("foreign/rslock");
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("foreign/rslock/Cargo.toml");
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--release", "--locked", "--quiet", "--manifest-path"]).arg(manifest);
    run(cargo.arg("--target-dir").arg(&target));
    Command::new(target.join("release/foreign-rslock"))
}
