//! A server process that never outlives the test process.
//!
//! A small shell runs between the two processes. Its stdin is a pipe, and only this process has the other end. That end
//! closes by `Drop`, by an exit, by a panic that aborts, or by SIGKILL. Then the shell kills the server and removes its
//! directory.
//!
//! A child made by `fork` without `exec` has the pipe too. Then the server lives until that child ends, unless
//! [`Supervisor`] is dropped.

use std::ffi::OsString;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock};
use std::{env, fs, process};

const SCRIPT: &str = include_str!("supervisor.sh");

#[derive(Debug)]
pub(super) struct Supervisor {
    dir: PathBuf,
    shell: Mutex<Shell>,
}

#[derive(Debug)]
struct Shell {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Supervisor {
    /// Creates a supervisor. `command` returns the command line of the server for the new directory. Nothing is started
    /// yet.
    pub(super) fn new(command: impl FnOnce(&Path) -> Vec<OsString>) -> Self {
        let dir = new_dir();
        let mut child = Command::new("sh")
            .args(["-c", SCRIPT, "redlock-server"])
            .arg(&dir)
            .args(command(&dir))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .process_group(0) // Ctrl-C is for the test process only. The shell must survive it to clean up.
            .spawn()
            .expect("cannot start `sh`");
        let orders = child.stdin.take().expect("stdin is piped");
        let answers = BufReader::new(child.stdout.take().expect("stdout is piped"));
        Self { dir, shell: Mutex::new(Shell { child, orders, answers }) }
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Starts the server, and returns its process id.
    pub(super) fn start(&self) -> u32 {
        let answer = self.shell.lock().unwrap().order("start");
        answer.parse().unwrap_or_else(|_| panic!("the supervisor answered `{answer}` instead of a process id"))
    }

    /// Kills the server. It is gone and reaped when this returns. Does nothing if no server runs.
    pub(super) fn kill(&self) {
        assert_eq!(self.shell.lock().unwrap().order("kill"), "gone");
    }

    /// The output of the server so far.
    pub(super) fn log(&self) -> String {
        fs::read_to_string(self.dir.join("log")).unwrap_or_default()
    }
}

impl Shell {
    fn order(&mut self, order: &str) -> String {
        let mut answer = String::new();
        let sent = writeln!(self.orders, "{order}");
        let heard = sent.and_then(|()| self.answers.read_line(&mut answer));
        heard.unwrap_or_else(|error| panic!("the server's supervisor is gone: {error}"));
        answer.trim_end().to_owned()
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        let shell = self.shell.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner);
        _ = writeln!(shell.orders, "quit");
        _ = shell.child.wait();
    }
}

/// Creates a directory with a path that is short enough for a unix socket.
fn new_dir() -> PathBuf {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    static IN_MEMORY: OnceLock<bool> = OnceLock::new();
    let mut root = if *IN_MEMORY.get_or_init(has_room) { MEMORY.into() } else { env::temp_dir() };
    loop {
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let dir = root.join(format!("redlock-{}-{count}", process::id()));
        match fs::create_dir(&dir) {
            Ok(()) => return dir,
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            // This user cannot write to the folder in memory.
            Err(_) if root == Path::new(MEMORY) => root = env::temp_dir(),
            Err(error) => panic!("cannot create `{}`: {error}", dir.display()),
        }
    }
}

/// A folder whose files are in memory. A server that writes to a disk waits for all other writes, such as those of a
/// build before the tests. It would not respond for seconds, and the tests would measure that.
const MEMORY: &str = "/dev/shm";
/// The required free space in bytes. It is many times the data of all servers of a run.
const ROOM: u64 = 1 << 30;

fn has_room() -> bool {
    rustix::fs::statvfs(MEMORY).is_ok_and(|stat| stat.f_bavail.saturating_mul(stat.f_frsize) >= ROOM)
}
