//! The faults of a run with workers, drawn from the seed. There are two tracks: one for the server with its proxy, and
//! one for the workers. Storms of ten seconds alternate with calms of eight seconds.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use redis::cmd;
use redlock_tests::{Act, poll};
use rustix::process::{Pid, Signal, kill_process};

use super::args::Options;
use super::history::Log;
use super::place::Place;
use crate::clock::{MS, SEC, now};
use crate::event::words;
use crate::group;

const STORM: u64 = 10 * SEC;
const CALM: u64 = 8 * SEC;
/// A fault that would begin later than planned by more than this is left out.
const LATE: u64 = SEC;
/// The time that a worker gets to end after the run has ordered it to.
const LAST_WORDS: Duration = Duration::from_secs(30);
/// The commands that faults of single commands can affect.
const COMMANDS: [&str; 4] = ["push", "claim", "extend", "finish"];

words! {
    /// The kind of a fault.
    Kind {
        Murder = "murder", Pause = "pause", Kill = "kill", Stop = "stop", Reset = "reset", Refuse = "refuse", Hold = "hold",
        HoldReply = "hold_reply", Delay = "delay", ResetBefore = "reset_before", ResetAfter = "reset_after", Full = "full", Scripts = "scripts",
        KillMaster = "kill_master", Depose = "depose", FailOver = "fail_over", Apart = "apart", KillReplica = "kill_replica",
        StopSentinel = "stop_sentinel", KillSentinel = "kill_sentinel",
    }
}

impl Kind {
    fn is_of_workers(self) -> bool {
        matches!(self, Kind::Murder | Kind::Pause)
    }

    fn is_of(self, options: &Options, of_workers: bool) -> bool {
        self.is_of_workers() == of_workers && (of_workers || group::strikes(self.word(), options.sentinel))
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Fault {
    /// The time in ns since the beginning of the run.
    at: u64,
    kind: Kind,
    length: u64,
    /// The number that selects the affected worker or command.
    target: usize,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = self.kind.word();
        let target = match self.kind {
            kind if kind.is_of_workers() => format!("worker {}", self.target),
            Kind::Hold | Kind::HoldReply | Kind::Delay | Kind::ResetBefore | Kind::ResetAfter => {
                COMMANDS[self.target % COMMANDS.len()].to_owned()
            }
            kind if group::strikes(kind.word(), false) => "server".to_owned(),
            _ => "group".to_owned(),
        };
        write!(f, "{word} {target} at {} ms for {} ms", self.at / MS, self.length / MS)
    }
}

/// All faults of a run, sorted by time.
pub(crate) fn schedule(options: &Options) -> Vec<Fault> {
    let mut faults = [track(options, true), track(options, false)].concat();
    faults.sort_by_key(|fault| fault.at);
    faults
}

fn track(options: &Options, of_workers: bool) -> Vec<Fault> {
    let kinds: Vec<Kind> = options.kinds.iter().copied().filter(|kind| kind.is_of(options, of_workers)).collect();
    let mut random = fastrand::Rng::with_seed(options.seed.wrapping_mul(2) + u64::from(of_workers));
    let (mut faults, mut at) = (Vec::new(), SEC / 2);
    while at + SEC < options.seconds * SEC {
        let gap = random.u64(options.gap * MS / 2..=options.gap * MS);
        at += if options.is_steady { options.gap * MS } else { gap };
        let (kind, length) = (random.choice(&kinds), random.u64(50 * MS..2500 * MS));
        let Some(&kind) = kind else { break };
        // The faults of the server are shorter, so that the server runs most of the time.
        let length = if of_workers { length } else { length / 3 };
        if options.is_steady || at % (STORM + CALM) < STORM {
            faults.push(Fault { at, kind, length, target: random.usize(0..options.clients.max(COMMANDS.len())) });
            at += if of_workers { 0 } else { length };
        }
    }
    faults
}

/// The servers, the proxy and the workers that faults strike.
pub(crate) struct Field<'a> {
    pub(crate) place: &'a Place,
    pub(crate) crew: &'a Crew,
    pub(crate) log: &'a Log,
    pub(crate) is_over: &'a AtomicBool,
}

/// Executes all faults, until the run is over.
pub(crate) fn run(field: &Field<'_>, options: &Options, begin: u64) {
    thread::scope(|scope| {
        for of_workers in [true, false] {
            scope.spawn(move || {
                for fault in track(options, of_workers) {
                    sleep_until(begin + fault.at, field.is_over);
                    if field.is_over.load(Ordering::SeqCst) {
                        return;
                    }
                    let from = now();
                    // A fault of a group lasts until the group is whole again. The faults that are late by then are
                    // left out.
                    if from > begin + fault.at + LATE {
                        continue;
                    }
                    // Faults of workers can overlap, so each runs on its own thread.
                    if of_workers {
                        scope.spawn(move || {
                            field.crew.strike(&fault, field.log);
                            field.log.line(&format!("fault {from} {} {fault}", now()));
                        });
                    } else {
                        strike(field, &fault);
                        field.log.line(&format!("fault {from} {} {fault}", now()));
                    }
                }
            });
        }
    });
    field.place.heal();
}

fn strike(field: &Field<'_>, fault: &Fault) {
    let length = Duration::from_nanos(fault.length);
    let (server, proxy) = match field.place {
        Place::One(server, proxy) => (server, proxy),
        Place::Group(group) => return group::strike(group, fault.kind.word(), length, fault.target),
    };
    let on = |act| proxy.on(COMMANDS[fault.target % COMMANDS.len()], act);
    match fault.kind {
        Kind::Kill => {
            server.kill();
            thread::sleep(length);
            server.restart_with_data();
        }
        Kind::Stop => {
            server.stop();
            thread::sleep(length);
            server.cont();
        }
        Kind::Reset => proxy.drop_connections(),
        Kind::Refuse => {
            proxy.refuse();
            thread::sleep(length);
            proxy.heal();
        }
        Kind::Full => {
            server.fill();
            thread::sleep(length);
            server.unfill();
        }
        Kind::Scripts => server.ask::<()>(cmd("SCRIPT").arg("FLUSH")),
        Kind::Delay => drop(on(Act::Delay(length))),
        Kind::ResetBefore => drop(on(Act::ResetBefore)),
        Kind::ResetAfter => drop(on(Act::ResetAfter)),
        Kind::Hold | Kind::HoldReply => {
            let held = on(if fault.kind == Kind::Hold { Act::Hold } else { Act::HoldReply });
            thread::sleep(length);
            held.release();
        }
        _ => {}
    }
}

fn sleep_until(at: u64, is_over: &AtomicBool) {
    while now() < at && !is_over.load(Ordering::SeqCst) {
        thread::sleep(Duration::from_nanos((at - now().min(at)).min(100 * MS)));
    }
}

/// The worker processes.
pub(crate) struct Crew {
    dir: PathBuf,
    url: String,
    lease: Duration,
    seed: u64,
    threads: usize,
    members: Vec<Mutex<Member>>,
}

struct Member {
    child: Child,
    life: u64,
}

impl Crew {
    pub(crate) fn start(options: &Options, dir: &Path, url: &str) -> Crew {
        let (dir, url) = (dir.to_owned(), url.to_owned());
        let (lease, seed, threads) = (options.lease, options.seed, options.threads);
        let mut crew = Crew { dir, url, lease, seed, threads, members: Vec::new() };
        crew.members = (0..options.clients).map(|nth| Mutex::new(crew.begin(nth, 0))).collect();
        crew
    }

    fn begin(&self, nth: usize, life: u64) -> Member {
        let log = self.dir.join(format!("c{nth}.{life}.log"));
        let seed = self.seed + (nth as u64) * 100_000 + life * 100;
        let mut command = Command::new(std::env::current_exe().expect("this program has a file"));
        command.arg("task-worker").arg(&self.url).arg(log);
        command.args([self.lease.as_millis().to_string(), seed.to_string(), self.threads.to_string()]);
        let child = command.stdin(Stdio::piped()).spawn().expect("a worker can be started");
        Member { child, life }
    }

    fn strike(&self, fault: &Fault, log: &Log) {
        let nth = fault.target % self.members.len();
        let mut member = self.members[nth].lock().unwrap();
        if let Ok(Some(status)) = member.child.try_wait() {
            log.line(&format!("fallen {} c{nth} ended by itself with {status}", now()));
        }
        let length = Duration::from_nanos(fault.length);
        if fault.kind == Kind::Pause {
            signal(&member.child, Signal::STOP);
            thread::sleep(length);
            signal(&member.child, Signal::CONT);
            return;
        }
        member.child.kill().expect("a worker can be killed");
        member.child.wait().expect("a worker that was killed ends");
        *member = self.begin(nth, member.life + 1);
    }

    /// Orders all workers to end, and waits until they have ended.
    pub(crate) fn end(&self, log: &Log) {
        for member in &self.members {
            drop(member.lock().unwrap().child.stdin.take());
        }
        for (nth, member) in self.members.iter().enumerate() {
            let child = &mut member.lock().unwrap().child;
            match poll(LAST_WORDS, || child.try_wait().ok().flatten()) {
                Some(status) if status.success() => {}
                Some(status) => log.line(&format!("fallen {} c{nth} ended with {status}", now())),
                None => {
                    log.line(&format!("fallen {} c{nth} did not end within {} s", now(), LAST_WORDS.as_secs()));
                    child.kill().expect("a worker can be killed");
                    child.wait().expect("a worker that was killed ends");
                }
            }
        }
    }
}

fn signal(child: &Child, signal: Signal) {
    let raw = Pid::from_raw(child.id().cast_signed()).expect("a process id is positive");
    kill_process(raw, signal).expect("a worker can be signalled");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tasks::args::parse;

    #[test]
    fn a_group_has_faults_of_its_own() {
        let words = ["--tasks", "9", "--seconds", "600", "--sentinel"].map(str::to_owned);
        let of = |sentinel| schedule(&Options { sentinel, ..parse(&words).unwrap() });
        let has = |faults: &[Fault], kind| faults.iter().any(|fault| fault.kind == kind);
        assert!(has(&of(true), Kind::Depose) && has(&of(true), Kind::Stop) && !has(&of(true), Kind::Hold));
        assert!(!has(&of(false), Kind::Depose) && has(&of(false), Kind::Stop) && has(&of(false), Kind::Hold));
    }

    #[test]
    fn steady_faults_come_one_after_the_other() {
        let words = ["--tasks", "9", "--seconds", "60", "--faults", "murder", "--steady"].map(str::to_owned);
        let times: Vec<u64> = schedule(&parse(&words).unwrap()).iter().map(|fault| fault.at).collect();
        assert!(times.len() >= 58 && times.windows(2).all(|two| two[1] - two[0] == SEC), "{times:?}");
    }

    #[test]
    fn a_seed_repeats_its_schedule() {
        let schedule = |seed: &str| {
            let words = ["--tasks", "9", "--seconds", "60", "--seed", seed].map(str::to_owned);
            schedule(&parse(&words).unwrap()).iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(schedule("7"), schedule("7"));
        assert_ne!(schedule("7"), schedule("8"));
        assert!(schedule("7").len() > 40);
    }
}
