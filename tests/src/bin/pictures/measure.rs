//! The runs from which the pictures are drawn.

use std::env;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread::{self, sleep};
use std::time::Duration;

use redlock_sync::Redlock;
use redlock_tests::bench::clock;
use redlock_tests::pictures::Data;
use redlock_tests::{Server, servers};
use rustix::process::{Pid, Signal, kill_process};

const SECOND: Duration = Duration::from_secs(1);
const LEASE: Duration = Duration::from_secs(3);

/// Makes the runs with these names, or all runs.
pub(crate) fn all(names: &[String]) {
    let runs: [(&str, fn()); 4] =
        [("life", life), ("handover", handover), ("servers", five_servers), ("takeover", takeover)];
    for (name, run) in runs {
        if names.is_empty() || names.iter().any(|wanted| wanted == name) {
            println!("{name} …");
            run();
        }
    }
}

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
    fn start(what: &str, server: &Server, lease: Duration, rest: &str) -> Self {
        let lease = lease.as_millis().to_string();
        let mut command = Command::new(env::current_exe().expect("this program is a file"));
        command.args(["worker", what, &server.url(), &lease]).args(rest.split_whitespace());
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
fn life() {
    let mut data = Data::default();
    let server = Server::start();
    let first = Worker::start("hold", &server, LEASE, "");
    let mut told = first.until("takes");
    let zero = told.last().expect("it has taken the lock").at;
    sleep(SECOND * 3 / 10);
    let second = Worker::start("hold", &server, LEASE, "");
    sleep(SECOND * 12 / 10);
    let killed = first.signal(Signal::KILL);
    let left = server.pttl("order:42").expect("the key has an end");
    data.add("killed", seconds(zero, killed));
    data.add("ends", seconds(zero, clock::now() + clock::nanos(left)));
    told.extend(first.rest());
    add(&mut data, "a", zero, &told);
    add(&mut data, "b", zero, &second.rest());

    let first = Worker::start("write", &server, LEASE, "");
    let mut told = first.until("takes");
    let zero = told.last().expect("it has taken the lock").at;
    sleep(SECOND * 3 / 10);
    let second = Worker::start("write", &server, LEASE, "");
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

/// Three processes contend for one lock. A gap goes from before `unlock()` to the return of `lock()` in the next
/// process.
fn handover() {
    let server = Server::start();
    let workers: Vec<Worker> = (0..3).map(|_| Worker::start("contend", &server, 10 * LEASE, "4000")).collect();
    let mut turns: Vec<(u64, u64, usize)> = Vec::new();
    for (process, worker) in workers.into_iter().enumerate() {
        turns.extend(worker.rest().iter().map(|line| (line.at, line.rest.parse().expect("a time"), process)));
    }
    turns.sort_unstable();
    let pairs = turns.windows(2).filter(|pair| pair[0].2 != pair[1].2);
    let mut gaps: Vec<u64> = pairs.map(|pair| pair[1].0.saturating_sub(pair[0].1) / 1000).collect();
    gaps.sort_unstable();
    let mut data = Data::default();
    for gap in &gaps {
        data.add("gap_us", f64::from(u32::try_from(*gap).expect("a short gap")));
    }
    data.write("gaps");
    let part = |percent: usize| f64::from(u32::try_from(gaps[gaps.len() * percent / 100]).expect("a short gap"));
    let mut data = Data::default();
    data.add("p50_us", part(50));
    data.add("p95_us", part(95));
    data.add("hand-overs", f64::from(u32::try_from(gaps.len()).expect("a short run")));
    data.write("handover");
}

/// Lock calls on five servers, one of which is dead.
fn five_servers() {
    let servers = servers(5);
    let lease = 10 * SECOND;
    let locks = Redlock::builder().nodes(servers.iter().map(Server::url)).lease(lease).build().expect("five servers");
    locks.mutex("order:42").lock().and_then(redlock_sync::MutexGuard::unlock).expect("all servers answer");
    servers[4].kill();
    locks.mutex("order:42").lock().and_then(redlock_sync::MutexGuard::unlock).expect("four servers answer");
    let mut rounds: Vec<(u64, f64)> = (0..51)
        .map(|_| {
            let before = clock::now();
            let guard = locks.mutex("order:42").lock().expect("four servers answer");
            let took = clock::now() - before;
            let remaining = guard.remaining().as_secs_f64();
            guard.unlock().expect("four servers answer");
            (took, remaining)
        })
        .collect();
    rounds.sort_by_key(|round| round.0);
    let mut data = Data::default();
    data.add("lease_s", lease.as_secs_f64());
    data.add("round_us", f64::from(u32::try_from(rounds[25].0 / 1000).expect("a short round")));
    data.add("remaining_s", (rounds[25].1 * 1e4).round() / 1e4);
    data.write("servers");
}

/// A process that holds many locks is killed while a thread waits for each lock. The leases are 1, 5 and 30 s.
fn takeover() {
    const LOCKS: u32 = 40;
    let mut data = Data::default();
    for lease in [1, 5, 30] {
        let server = Server::start();
        let mut holder = Worker::start("many", &server, lease * SECOND, &LOCKS.to_string());
        let locks = Redlock::open(server.url()).expect("a valid URL");
        holder.until("has-all");
        thread::scope(|scope| {
            let waiting: Vec<_> = (0..LOCKS)
                .map(|i| locks.mutex(format!("many:{i}")))
                .map(|mutex| {
                    scope.spawn(move || {
                        let _guard = mutex.lock().expect("the lock can be taken");
                        clock::now()
                    })
                })
                .collect();
            sleep(SECOND / 10);
            let killed = holder.signal(Signal::KILL);
            holder.child.wait().expect("a killed process ends");
            for waiter in waiting {
                data.add(&format!("lease-{lease}"), seconds(killed, waiter.join().expect("a waiter waits")));
            }
        });
    }
    data.write("takeover");
}
