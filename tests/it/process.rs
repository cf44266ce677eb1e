//! A process that runs the program `agent` and that tests kill or stop, and the lines that it prints.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};
use std::{fs, thread};

use redlock_tests::{Server, eventually};
use rustix::process::{Pid, Signal, kill_process};

/// The longest wait for a line, which suffices on a busy machine.
const SOON: Duration = Duration::from_secs(60);

/// A process. The drop of this value kills it.
pub(crate) struct Process {
    process: Child,
    pub(crate) lines: Receiver<String>,
}

impl Process {
    /// Starts `agent` with these arguments and URLs.
    pub(crate) fn start(args: &[&str], urls: &[String]) -> Process {
        let mut process = Command::new(env!("CARGO_BIN_EXE_agent"))
            .args(args)
            .args(urls)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (tell, lines) = mpsc::channel();
        let out = BufReader::new(process.stdout.take().unwrap());
        thread::spawn(move || out.lines().map_while(Result::ok).try_for_each(|line| tell.send(line)));
        Process { process, lines }
    }

    /// Starts a job or a leader: `agent built ROLE NAME LEASE_MS URL…`.
    pub(crate) fn built(role: &str, name: &str, lease: Duration, urls: &[String]) -> Process {
        Process::start(&["built", role, name, &lease.as_millis().to_string()], urls)
    }

    /// The next line that the process prints.
    pub(crate) fn line(&self) -> String {
        self.lines.recv_timeout(SOON).expect("the process prints a line")
    }

    pub(crate) fn tell(&mut self, word: &str) {
        writeln!(self.process.stdin.as_mut().unwrap(), "{word}").unwrap();
    }

    pub(crate) fn ask(&mut self, word: &str) -> String {
        self.tell(word);
        self.line()
    }

    pub(crate) fn id(&self) -> Pid {
        Pid::from_child(&self.process)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.id(), signal).unwrap();
    }

    pub(crate) fn stop(&self) {
        stop(self.id());
    }

    pub(crate) fn kill(&mut self) {
        self.process.kill().unwrap();
        assert_eq!(self.wait().signal(), Some(9));
    }

    /// Waits for the end of the process.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        self.process.wait().unwrap()
    }

    /// Waits for the end of the process. Returns the lines that were not read yet too.
    pub(crate) fn end(&mut self) -> (String, ExitStatus) {
        let rest: Vec<String> = self.lines.iter().collect();
        (rest.join("\n"), self.wait())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

/// Stops a process, and waits until it is stopped. It then reads nothing that arrives later.
pub(crate) fn stop(process: Pid) {
    kill_process(process, Signal::STOP).unwrap();
    let stat = format!("/proc/{process}/stat");
    eventually("the process is stopped", SOON, || {
        let text = fs::read_to_string(&stat).unwrap();
        text.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
    });
}

pub(crate) fn urls(servers: &[Server]) -> Vec<String> {
    servers.iter().map(Server::url).collect()
}

/// Several processes with the same role, which write into one file.
pub(crate) struct Crowd<'a> {
    role: &'a str,
    lease: Duration,
    servers: &'a [Server],
    log: PathBuf,
    processes: Vec<Process>,
}

impl<'a> Crowd<'a> {
    pub(crate) fn start(role: &'a str, lease: Duration, count: usize, servers: &'a [Server]) -> Crowd<'a> {
        let log = servers[0].dir().join("lines");
        fs::write(&log, "").unwrap();
        let mut crowd = Crowd { role, lease, servers, log, processes: Vec::new() };
        crowd.processes = (0..count).map(|_| crowd.another()).collect();
        crowd
    }

    fn another(&self) -> Process {
        Process::built(self.role, self.log.to_str().unwrap(), self.lease, &urls(self.servers))
    }

    /// Causes faults for this time, with pauses, and goes on until the lines are enough. Each fault kills a process,
    /// stops one for longer than its lease, or makes a server hang. Returns the number of affected processes.
    pub(crate) fn disturb(&mut self, time: Duration, pause: Duration, is_enough: impl Fn(&[String]) -> bool) -> usize {
        let (began, mut hit) = (Instant::now(), 0);
        for turn in 0.. {
            assert!(began.elapsed() < time * 10, "the processes did too little: {:?}", self.lines());
            let server = &self.servers[turn % self.servers.len()];
            // If lines begin with a process number, then every second victim is the process that wrote last.
            let victim = self.last().filter(|_| turn % 2 == 0).unwrap_or(turn % self.processes.len());
            match turn % 5 {
                0..=2 => {
                    hit += 1;
                    self.processes[victim].kill();
                    self.processes[victim] = self.another();
                }
                3 => {
                    hit += 1;
                    self.processes[victim].stop();
                    thread::sleep(self.lease * 3 / 2);
                    self.processes[victim].signal(Signal::CONT);
                }
                _ => {
                    server.stop();
                    thread::sleep(self.lease / 2);
                    server.cont();
                }
            }
            if began.elapsed() > time && is_enough(&self.lines()) {
                break;
            }
            thread::sleep(pause);
        }
        hit
    }

    fn last(&self) -> Option<usize> {
        let line = self.lines().pop()?;
        let number: u32 = line.split(' ').next()?.parse().ok()?;
        self.processes.iter().position(|process| process.process.id() == number)
    }

    fn lines(&self) -> Vec<String> {
        let text = fs::read_to_string(&self.log).unwrap();
        // A process may be writing the line after the last end of a line.
        let (whole, _) = text.rsplit_once('\n').unwrap_or_default();
        whole.lines().map(str::to_owned).collect()
    }

    /// Ends all processes, and returns the lines that they wrote.
    pub(crate) fn end(mut self) -> Vec<String> {
        self.processes.iter_mut().for_each(Process::kill);
        self.lines()
    }
}
