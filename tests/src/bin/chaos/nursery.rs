//! The parents of the clients: `chaos nursery HABIT`. Some clients are forked, as a server forks its workers before
//! they serve. The other clients are started as new programs.
//!
//! A parent never opens a client of the library, and it stays single-threaded. All its children inherit the state of
//! its random generators, so all of them draw the same numbers again.
//!
//! A parent reads commands on stdin, one line each, and answers each command with one line on stdout. If stdin ends,
//! the parent kills its children and exits. Stdin ends with the run, however the run ends.
//!
//! ```text
//! fork WORDS…      forks a client with these parameters; answers its process id
//! start WORDS…     starts a client as a new program; answers its process id
//! tell PID WORD…   sends the words to a client
//! end PID          orders a client to end
//! look PID         answers `-`, or the exit status of a client that has ended
//! ```

use std::collections::HashMap;
use std::env;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::Mutex;

use redlock_tests::{ended, fork, wait_for};
use rustix::process::{Pid, Signal, kill_process};

use crate::client::{self, Order};
use crate::event::words;

words! {
    /// The habit of a parent. A `Drawn` parent draws random numbers before it forks. A `Fresh` parent draws none, and
    /// its children draw first.
    Habit { Drawn = "drawn", Fresh = "fresh" }
}

/// The separator of the words of a line. It is no space, because a path may contain spaces.
const SEPARATOR: char = '\t';

/// The children that the parent has forked, each with the pipe to it.
type Children = HashMap<Pid, Option<UnixStream>>;

/// The main function of a parent.
pub(crate) fn main(words: &[String]) {
    let habit: Habit = words[0].parse().unwrap();
    if habit == Habit::Drawn {
        draw();
    }
    let mut children = Children::new();
    for line in io::stdin().lines().map_while(Result::ok) {
        let words: Vec<String> = line.split(SEPARATOR).map(str::to_owned).collect();
        println!("{}", answer(habit, &mut children, &words));
    }
    for &child in children.keys() {
        _ = kill_process(child, Signal::KILL);
        wait_for(child);
    }
}

/// Draws random numbers, as an application does before it opens its locks.
fn draw() {
    for _ in 0..3 {
        _ = uuid::Uuid::new_v4();
        _ = fastrand::u64(..);
    }
}

fn answer(habit: Habit, children: &mut Children, words: &[String]) -> String {
    let child = || Pid::from_raw(words[1].parse().expect("a process id")).expect("a process id is positive");
    match words[0].as_str() {
        "fork" => {
            let order = Order::read(&words[1..]);
            return bear(children, |line| live_on(habit, order, line)).as_raw_pid().to_string();
        }
        "start" => return bear(children, |line| live_anew(&words[1..], line)).as_raw_pid().to_string(),
        "tell" => {
            // A child that has ended reads nothing, so the error is ignored.
            if let Some(Some(line)) = children.get_mut(&child()) {
                _ = writeln!(line, "{}", words[2]);
            }
        }
        "end" => _ = children.entry(child()).and_modify(|line| *line = None),
        "look" => {
            let Some(status) = ended(child()) else { return "-".to_owned() };
            children.remove(&child());
            return status.into_raw().to_string();
        }
        other => panic!("a nursery cannot `{other}`"),
    }
    String::new()
}

/// Forks a client that runs `life`. The parent sends words to the client on a pipe.
fn bear(children: &mut Children, life: impl FnOnce(UnixStream)) -> Pid {
    let (ours, theirs) = UnixStream::pair().expect("a pair of sockets can be made");
    let mut ours = Some(ours);
    let child = fork(|| {
        // The child closes its copies of the pipes of its siblings and of the parent's end of its own pipe. Otherwise
        // these pipes would never end.
        children.clear();
        ours = None;
        life(theirs);
    });
    children.insert(child, ours);
    child
}

fn live_on(habit: Habit, order: Order, line: UnixStream) {
    let nothing = File::options().read(true).write(true).open("/dev/null").expect("/dev/null is there");
    rustix::stdio::dup2_stdin(&nothing).expect("stdin can be replaced");
    rustix::stdio::dup2_stdout(&nothing).expect("stdout can be replaced");
    drop(nothing);
    if habit == Habit::Fresh {
        draw();
    }
    client::live(order, line);
}

fn live_anew(words: &[String], line: UnixStream) {
    let mut command = program();
    command.arg("client").args(words).stdin(OwnedFd::from(line)).stdout(Stdio::null());
    panic!("a client cannot be started: {}", command.exec());
}

fn program() -> Command {
    Command::new(env::current_exe().expect("this program has a file"))
}

/// The handle with which the run controls a parent.
pub(crate) struct Nursery {
    process: Child,
    lines: Mutex<Option<(ChildStdin, BufReader<ChildStdout>)>>,
}

impl Nursery {
    pub(crate) fn start(habit: Habit) -> Self {
        let mut command = program();
        command.args(["nursery", habit.word()]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn().expect("a nursery can be started");
        let (orders, answers) = (process.stdin.take(), process.stdout.take());
        let lines = orders.zip(answers).map(|(orders, answers)| (orders, BufReader::new(answers)));
        Self { process, lines: Mutex::new(lines) }
    }

    /// Forks a client from the parent.
    pub(crate) fn fork(&self, order: &Order) -> Pid {
        self.bring_forth("fork", order)
    }

    /// Starts a client as a new process, which inherits nothing from the parent.
    pub(crate) fn start_anew(&self, order: &Order) -> Pid {
        self.bring_forth("start", order)
    }

    fn bring_forth(&self, how: &str, order: &Order) -> Pid {
        let words: Vec<String> = [how.to_owned()].into_iter().chain(order.words()).collect();
        let pid = self.ask(&words);
        pid.parse().ok().and_then(Pid::from_raw).unwrap_or_else(|| panic!("the nursery answered `{pid}`"))
    }

    pub(crate) fn tell(&self, child: Pid, word: &str) {
        self.ask(&["tell".to_owned(), child.as_raw_pid().to_string(), word.to_owned()]);
    }

    /// Orders a client to end.
    pub(crate) fn end(&self, child: Pid) {
        self.ask(&["end".to_owned(), child.as_raw_pid().to_string()]);
    }

    /// Returns the exit status of a client, if it has ended. The status can be read only once.
    pub(crate) fn ended(&self, child: Pid) -> Option<ExitStatus> {
        let status = self.ask(&["look".to_owned(), child.as_raw_pid().to_string()]);
        status.parse().ok().map(ExitStatus::from_raw)
    }

    fn ask(&self, words: &[String]) -> String {
        let mut lines = self.lines.lock().unwrap();
        let (orders, answers) = lines.as_mut().expect("the nursery has pipes");
        let mut answer = String::new();
        let sent = writeln!(orders, "{}", words.join(&SEPARATOR.to_string()));
        let heard = sent.and_then(|()| answers.read_line(&mut answer));
        assert!(heard.is_ok_and(|length| length > 0), "the nursery is gone: {words:?}");
        answer.trim_end().to_owned()
    }
}

impl Drop for Nursery {
    fn drop(&mut self) {
        *self.lines.get_mut().unwrap_or_else(std::sync::PoisonError::into_inner) = None;
        _ = self.process.wait();
    }
}
