//! The run from which the picture `life` is drawn.

use std::env;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread::{self, sleep};
use std::time::Duration;

use redlock_tests::Server;
use redlock_tests::bench::clock;
use redlock_tests::pictures::Data;
use rustix::process::{Pid, Signal, kill_process};

const SECOND: Duration = Duration::from_secs(1);

/// One line of a worker: an event, its time, and a value.
struct Told {
    event: String,
    at: u64,
    rest: String,
}

struct Worker {
    child: Child,
    lines: Receiver<Told>,
}

impl Worker {
    fn start(what: &str, server: &Server) -> Self {
        let mut command = Command::new(env::current_exe().expect("this program is a file"));
        command.args(["worker", what, &server.url()]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("a process starts");
        let (send, lines) = channel();
        let stdout = BufReader::new(child.stdout.take().expect("stdout is piped"));
        thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                let mut words = line.split(' ').map(str::to_owned);
                let mut word = || words.next().unwrap_or_default();
                let (event, at) = (word(), word().parse().expect("a time"));
                if send.send(Told { event, at, rest: word() }).is_err() {
                    return;
                }
            }
        });
        Self { child, lines }
    }

    fn signal(&self, signal: Signal) -> u64 {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).expect("the process lives");
        clock::now()
    }

    /// Collects the lines until the worker ends.
    fn rest(mut self) -> Vec<Told> {
        let told = self.lines.iter().collect();
        self.child.wait().expect("the process ends");
        told
    }

    /// Collects the lines up to this event.
    fn until(&self, event: &str) -> Vec<Told> {
        let mut told = Vec::new();
        loop {
            told.push(self.lines.recv_timeout(60 * SECOND).unwrap_or_else(|_| panic!("waited for `{event}` in vain")));
            if told.last().is_some_and(|last| last.event == event) {
                return told;
            }
        }
    }
}

/// The seconds from `zero` to `at`, to a tenth of a millisecond.
fn seconds(zero: u64, at: u64) -> f64 {
    let micros = u32::try_from(at.saturating_sub(zero) / 100_000).expect("a run of minutes");
    f64::from(micros) / 1e4
}

/// A holder that is killed, and then a holder that is stopped. Each time, another process waits for the lock.
pub(crate) fn run() {
    let mut data = Data::default();
    let server = Server::start();
    let first = Worker::start("hold", &server);
    let mut told = first.until("takes");
    let zero = told.last().expect("it has taken the lock").at;
    sleep(SECOND * 3 / 10);
    let second = Worker::start("hold", &server);
    sleep(SECOND * 12 / 10);
    let killed = first.signal(Signal::KILL);
    let left = server.pttl("order:42").expect("the key has an end");
    data.add("killed", seconds(zero, killed));
    data.add("ends", seconds(zero, clock::now() + clock::nanos(left)));
    told.extend(first.rest());
    add(&mut data, "a", zero, &told);
    add(&mut data, "b", zero, &second.rest());

    let first = Worker::start("write", &server);
    let mut told = first.until("takes");
    let zero = told.last().expect("it has taken the lock").at;
    sleep(SECOND * 3 / 10);
    let second = Worker::start("write", &server);
    told.extend(first.until("checks"));
    sleep(SECOND * 2 / 10);
    data.add("stopped", seconds(zero, first.signal(Signal::STOP)));
    let left = server.pttl("order:42").expect("the key has an end");
    data.add("expires", seconds(zero, clock::now() + clock::nanos(left)));
    let mut of_second = second.until("writes");
    sleep(SECOND * 6 / 10);
    data.add("continued", seconds(zero, first.signal(Signal::CONT)));
    told.extend(first.rest());
    of_second.extend(second.rest());
    add(&mut data, "c", zero, &told);
    add(&mut data, "d", zero, &of_second);
    store(&mut data, zero, &told, &of_second);
    data.write("life");
}

fn add(data: &mut Data, process: &str, zero: u64, told: &[Told]) {
    for line in told {
        data.add(&format!("{process}-{}", line.event), seconds(zero, line.at));
    }
}

/// Acts as a store that keeps the largest fencing token. It accepts a write, or refuses it.
fn store(data: &mut Data, zero: u64, first: &[Told], second: &[Told]) {
    let mut writes: Vec<&Told> = first.iter().chain(second).filter(|line| line.event == "writes").collect();
    writes.sort_by_key(|line| line.at);
    let mut greatest = 0;
    for write in writes {
        let fence: u64 = write.rest.parse().expect("a fence");
        data.add(if fence < greatest { "refused" } else { "accepted" }, seconds(zero, write.at));
        greatest = fence.max(greatest);
    }
}
