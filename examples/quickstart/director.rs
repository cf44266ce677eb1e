//! Starts the workers, kills one and pauses one at the worst moment, reports the events, and has the books checked.

use std::collections::BTreeMap;
use std::error::Error;
use std::io;
use std::process::{self, ExitCode};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use redlock_examples::{Redis, TempDir, Worker, now};

use crate::books;
use crate::feed;
use crate::store::Store;
use crate::worker::THREADS;

const WORKERS: [&str; 4] = ["ann", "bob", "cid", "dee"];
/// This worker is killed in the middle of its eighth sale.
const KILLED: (&str, u32) = ("bob", 8);
/// This worker is paused in the middle of its tenth sale, until another worker has settled the same order.
const PAUSED: (&str, u32) = ("cid", 10);
/// This worker is told to stop in the middle of its sixth sale.
const STOPPED: (&str, u32) = ("dee", 6);
/// The interval at which the director checks the workers.
const TICK: Duration = Duration::from_millis(20);
/// The interval at which the director reports the progress.
const TELL: Duration = Duration::from_millis(500);
/// The longest run. If it takes longer, something is wrong.
const TOO_LONG: Duration = Duration::from_secs(90);

/// The events that the director has caused or heard of.
#[derive(Default)]
pub(crate) struct Incidents {
    /// The order whose worker was killed.
    pub(crate) killed: Option<String>,
    /// The order whose worker was paused.
    pub(crate) paused: Option<String>,
    /// The order whose worker was told to stop.
    pub(crate) stopped: Option<String>,
    /// The writes that the fence refused.
    pub(crate) stale: usize,
}

/// The state of a run.
struct Play {
    store: Store,
    workers: BTreeMap<&'static str, Worker>,
    start: Duration,
    with_locks: bool,
    ready: usize,
    incidents: Incidents,
    /// The order at which a worker is paused now.
    waiting: Option<String>,
}

pub(crate) fn run(with_locks: bool) -> Result<ExitCode, Box<dyn Error>> {
    let redis = with_locks.then(Redis::any);
    println!("{}", redis.as_ref().map_or("No locks!".to_owned(), Redis::describe));
    redis.as_ref().map_or(Ok(()), Redis::answers)?;
    let dir = TempDir::new()?;
    let file = dir.path().join("shop.sqlite");
    let store = Store::create(&file, &feed::goods()?)?;
    let (lines, unusable) = feed::read()?;
    println!("{} workers with {THREADS} threads each, {} lines in the feed\n", WORKERS.len(), lines.len() + unusable);

    let mut play = Play {
        store,
        workers: BTreeMap::new(),
        start: now(),
        with_locks,
        ready: 0,
        incidents: Incidents::default(),
        waiting: None,
    };
    let prefix = format!("quickstart:{}:", process::id());
    let locks: Vec<&str> = redis.iter().flat_map(|redis| [redis.url(), &prefix]).collect();
    let said = play.raise_the_curtain(&file.display().to_string(), &locks)?;
    play.watch(&said, lines.len())?;
    play.tell("all lines are settled");
    let books = books::Books::read(&play.store, &play.incidents, lines.len(), unusable)?;
    books.print(with_locks);
    Ok(if books.are_right(with_locks) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl Play {
    /// Starts the workers. Returns their output, each line with the worker's name.
    fn raise_the_curtain(
        &mut self,
        file: &str,
        locks: &[&str],
    ) -> Result<Receiver<(&'static str, String)>, Box<dyn Error>> {
        let (sender, receiver) = mpsc::channel();
        for (i, name) in WORKERS.into_iter().enumerate() {
            let hold_at = [KILLED, PAUSED, STOPPED].iter().find(|(who, _)| *who == name).map_or(0, |(_, at)| *at);
            let (begin, hold_at) = ((i * 100 / WORKERS.len()).to_string(), hold_at.to_string());
            let mut worker = Worker::start([name, file, &begin, &hold_at].into_iter().chain(locks.iter().copied()))?;
            self.tell(&format!("{name} is process {}", worker.id()));
            let (lines, sender) = (worker.lines()?, sender.clone());
            thread::spawn(move || lines.map_while(Result::ok).for_each(|line| _ = sender.send((name, line))));
            self.workers.insert(name, worker);
        }
        Ok(receiver)
    }

    /// Handles the output until all workers have ended.
    fn watch(&mut self, said: &Receiver<(&'static str, String)>, lines: usize) -> Result<(), Box<dyn Error>> {
        let mut told = Duration::ZERO;
        loop {
            match said.recv_timeout(TICK) {
                Ok((who, what)) => self.hear(who, &what)?,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            self.resume_when_handed_over()?;
            let passed = now().saturating_sub(self.start);
            if passed >= told + TELL {
                told = passed;
                let (settled, sold) = books::progress(&self.store)?;
                self.tell(&format!("{settled} of {lines} lines settled, {sold} orders sold"));
            }
            if passed > TOO_LONG {
                return Err(format!("not done after {TOO_LONG:?}").into());
            }
        }
        for (name, worker) in &mut self.workers {
            let status = worker.wait()?;
            if !status.success() {
                return Err(format!("{name} ended with {status}").into());
            }
        }
        Ok(())
    }

    fn hear(&mut self, who: &'static str, what: &str) -> Result<(), Box<dyn Error>> {
        match what.split_once(' ') {
            _ if what == "ready" => self.begin_when_all_are_ready()?,
            Some(("still", order)) if who == KILLED.0 => self.kill(who, order)?,
            Some(("still", order)) if who == STOPPED.0 => self.stop(who, order)?,
            Some(("still", order)) => self.pause(who, order)?,
            Some(("stale", what)) => {
                self.incidents.stale += 1;
                self.tell(&format!("** the fence refuses a late write of {who}: {what}"));
            }
            _ => self.tell(&format!("** {who}: {what}")),
        }
        Ok(())
    }

    /// Kills a worker in the middle of an order, between its read of the stock and its write.
    fn kill(&mut self, who: &str, order: &str) -> io::Result<()> {
        if let Some(mut worker) = self.workers.remove(who) {
            worker.kill()?;
        }
        self.tell(&format!("** {who} is killed (SIGKILL) in the middle of order {order}"));
        self.tell_of_locks("its locks are free when their lease of 1 s is over");
        self.incidents.killed = Some(order.to_owned());
        Ok(())
    }

    /// Pauses a worker at the same point.
    fn pause(&mut self, who: &str, order: &str) -> io::Result<()> {
        if let Some(worker) = self.workers.get(who) {
            worker.pause()?;
        }
        self.tell(&format!("** {who} is paused (SIGSTOP) in the middle of order {order}"));
        self.tell_of_locks("it cannot renew its locks, which others can have when their lease of 1 s is over");
        self.incidents.paused = Some(order.to_owned());
        self.waiting = Some(order.to_owned());
        Ok(())
    }

    /// Tells a worker to stop at the same point. It may complete its order.
    fn stop(&mut self, who: &str, order: &str) -> io::Result<()> {
        if let Some(worker) = self.workers.get_mut(who) {
            worker.stop()?;
            // Without locks, the worker has no order to complete, and may have ended.
            _ = worker.nod();
        }
        self.tell(&format!("** {who} is told to stop (SIGTERM) in the middle of order {order}"));
        self.tell_of_locks("it settles that order and begins no other; no worker waits for its locks");
        self.incidents.stopped = Some(order.to_owned());
        Ok(())
    }

    /// Lets all workers begin at the same time. A worker that came late would find no work.
    fn begin_when_all_are_ready(&mut self) -> Result<(), Box<dyn Error>> {
        self.ready += 1;
        if self.ready == WORKERS.len() {
            self.workers.values_mut().try_for_each(Worker::nod)?;
        }
        Ok(())
    }

    /// Resumes the paused worker as soon as another worker has settled its order. It still believes that it holds the
    /// locks.
    fn resume_when_handed_over(&mut self) -> Result<(), Box<dyn Error>> {
        let Some(order) = &self.waiting else { return Ok(()) };
        let Some(other) = books::settled_by(&self.store, order)? else { return Ok(()) };
        self.tell(&format!("** order {order} was settled by {other}; now {} goes on (SIGCONT)", PAUSED.0));
        self.waiting = None;
        if let Some(worker) = self.workers.get_mut(PAUSED.0) {
            worker.nod()?;
            worker.resume()?;
        }
        Ok(())
    }

    fn tell_of_locks(&self, what: &str) {
        if self.with_locks {
            self.tell(&format!("   {what}"));
        }
    }

    fn tell(&self, what: &str) {
        println!("{:7.3} s  {what}", now().saturating_sub(self.start).as_secs_f64());
    }
}
