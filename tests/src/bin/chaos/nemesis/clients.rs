//! The client processes, and what is done to them.

use std::env;
use std::fs;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use redlock_tests::poll;
use rustix::process::{Pid, Signal, kill_process};

use crate::args::Forked;
use crate::client::Order;
use crate::clock::now;
use crate::event::{Event, read};
use crate::history::Fallen;
use crate::nursery::{Habit, Nursery};
use crate::plan::{Fault, Kind};

/// How long a process that was killed may take to be gone.
const GONE: Duration = Duration::from_secs(10);

/// One client, which may live several times.
struct Member {
    order: Order,
    process: Process,
    /// It ended before it was told to.
    is_fallen: bool,
}

/// A life of a client.
enum Process {
    Spawned(Child),
    Forked(Pid, Habit),
}

/// The parents of those that are forked.
struct Nurseries {
    drawn: Nursery,
    fresh: Nursery,
}

pub(crate) struct Clients {
    members: Vec<Mutex<Member>>,
    fallen: Mutex<Vec<Fallen>>,
    nurseries: Nurseries,
    forked: Forked,
}

impl Clients {
    pub(crate) fn start(orders: impl IntoIterator<Item = Order>, forked: Forked) -> Self {
        let nurseries = Nurseries { drawn: Nursery::start(Habit::Drawn), fresh: Nursery::start(Habit::Fresh) };
        let member = |order: Order| {
            let process = start(&nurseries, forked, &order);
            Mutex::new(Member { order, process, is_fallen: false })
        };
        let members = orders.into_iter().map(member).collect();
        Self { members, fallen: Mutex::default(), nurseries, forked }
    }

    pub(super) fn strike(&self, client: usize, fault: &Fault, length: Duration) -> usize {
        let mut member = self.members[client].lock().unwrap();
        match fault.kind {
            Kind::Pause => {
                signal(member.process.id(), Signal::STOP);
                thread::sleep(length);
                signal(member.process.id(), Signal::CONT);
            }
            Kind::Crowd => member.process.tell(&self.nurseries, &format!("crowd {}", fault.amount)),
            _ => self.murder(&mut member, length),
        }
        1
    }

    /// Ends it by force; another life follows.
    fn murder(&self, member: &mut Member, length: Duration) {
        let status = self.kill(&mut member.process);
        if status.signal() != Some(Signal::KILL.as_raw()) {
            self.fell(member, format!("ended by itself with {status}, before it was to be killed"));
        }
        thread::sleep(length);
        member.order.life += 1;
        member.process = start(&self.nurseries, self.forked, &member.order);
    }

    fn kill(&self, process: &mut Process) -> ExitStatus {
        signal(process.id(), Signal::KILL);
        poll(GONE, || process.ended(&self.nurseries)).expect("a process that was killed ends")
    }

    /// Tells all to end and waits for it; those that do not are killed. Whoever did not end as it must is written down.
    pub(crate) fn end(&self, deadline: Duration) {
        for member in &self.members {
            let member = &mut *member.lock().unwrap();
            match member.process.ended(&self.nurseries) {
                Some(status) => {
                    member.is_fallen = true;
                    self.fell(member, format!("ended by itself with {status}, before it was told to end"));
                }
                None => member.process.end(&self.nurseries),
            }
        }
        let by = Instant::now() + deadline;
        for member in self.members.iter().map(|member| member.lock().unwrap()) {
            self.see_off(member, by, deadline);
        }
    }

    fn see_off(&self, mut member: std::sync::MutexGuard<'_, Member>, by: Instant, deadline: Duration) {
        if member.is_fallen {
            return;
        }
        match poll(by.saturating_duration_since(Instant::now()), || member.process.ended(&self.nurseries)) {
            Some(status) if status.success() => {}
            Some(status) => self.fell(&member, format!("ended with {status}")),
            None => {
                self.fell(&member, format!("did not end within {} s and was killed", deadline.as_secs()));
                self.kill(&mut member.process);
            }
        }
    }

    fn fell(&self, member: &Member, how: String) {
        let Order { client, life, .. } = member.order;
        self.fallen.lock().unwrap().push(Fallen { at: now(), client, life, how });
    }

    /// The clients that did not end as they must.
    pub(crate) fn fallen(&self) -> Vec<Fallen> {
        self.fallen.lock().unwrap().clone()
    }

    /// What all of them wrote down, in all their lives.
    pub(crate) fn events(&self) -> Vec<Event> {
        let mut events = Vec::new();
        for member in &self.members {
            let mut order = member.lock().unwrap().order.clone();
            for life in 0..=order.life {
                order.life = life;
                // One that was killed at once has none.
                events.extend(read(&fs::read_to_string(order.log_file()).unwrap_or_default()));
            }
        }
        events
    }
}

impl Nurseries {
    fn of(&self, habit: Habit) -> &Nursery {
        match habit {
            Habit::Drawn => &self.drawn,
            Habit::Fresh => &self.fresh,
        }
    }
}

impl Process {
    fn id(&self) -> Pid {
        match self {
            Process::Spawned(child) => Pid::from_raw(child.id().cast_signed()).expect("a process id is positive"),
            Process::Forked(pid, _) => *pid,
        }
    }

    fn tell(&mut self, nurseries: &Nurseries, word: &str) {
        match self {
            // One that ended hears nothing.
            Process::Spawned(child) => _ = child.stdin.as_mut().map(|line| writeln!(line, "{word}")),
            Process::Forked(pid, habit) => nurseries.of(*habit).tell(*pid, word),
        }
    }

    /// Tells it to end.
    fn end(&mut self, nurseries: &Nurseries) {
        match self {
            Process::Spawned(child) => drop(child.stdin.take()),
            Process::Forked(pid, habit) => nurseries.of(*habit).end(*pid),
        }
    }

    /// How it ended, if it has; it is asked no more then.
    fn ended(&mut self, nurseries: &Nurseries) -> Option<ExitStatus> {
        match self {
            Process::Spawned(child) => child.try_wait().expect("a child can be waited for"),
            Process::Forked(pid, habit) => nurseries.of(*habit).ended(*pid),
        }
    }
}

fn start(nurseries: &Nurseries, forked: Forked, order: &Order) -> Process {
    match habit(forked, order.client) {
        None => Process::Spawned(spawn(order)),
        Some(habit) => Process::Forked(nurseries.of(habit).fork(order), habit),
    }
}

/// From which parent this client is forked, if it is.
fn habit(forked: Forked, client: u8) -> Option<Habit> {
    match (forked, client % 4) {
        (Forked::None, _) | (Forked::Some, 0) => None,
        (_, 3) => Some(Habit::Fresh),
        _ => Some(Habit::Drawn),
    }
}

fn spawn(order: &Order) -> Child {
    let this = env::current_exe().expect("this program has a file");
    let mut command = Command::new(this);
    command.arg("client").args(order.words()).stdin(Stdio::piped()).stdout(Stdio::null());
    command.spawn().expect("a client can be started")
}

fn signal(process: Pid, signal: Signal) {
    _ = kill_process(process, signal);
}
