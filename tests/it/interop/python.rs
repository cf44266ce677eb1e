//! Processes of Python with its `redis` package.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use redlock_tests::foreign::python::with_package;

/// A Python process that does on its lock what it is told, and says what came of it.
pub(super) struct Peer {
    process: Child,
    say: ChildStdin,
    hear: BufReader<ChildStdout>,
}

impl Peer {
    pub(super) fn start(url: &str, key: &str) -> Peer {
        let mut command = with_package(include_str!("peer.py"));
        let mut process =
            command.args([url, key]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("python3 runs");
        let (say, hear) = (process.stdin.take().unwrap(), BufReader::new(process.stdout.take().unwrap()));
        Peer { process, say, hear }
    }

    /// The result of a method of the lock, or the name of the exception.
    pub(super) fn ask(&mut self, method: &str) -> String {
        writeln!(self.say, "{method}").unwrap();
        let mut answer = String::new();
        self.hear.read_line(&mut answer).unwrap();
        answer.trim_end().to_owned()
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        _ = self.process.kill();
        _ = self.process.wait();
    }
}

/// A Python process that counts in a file as `agent contend` does.
pub(super) fn counter(file: &Path, rounds: u64, url: &str) -> Child {
    let mut command = with_package(include_str!("counter.py"));
    command.arg(file).args([&rounds.to_string(), url]).stdin(Stdio::null()).spawn().expect("python3 runs")
}
