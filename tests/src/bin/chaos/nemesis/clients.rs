//! The client processes, and their faults.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
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

/// The time limit for a process that was killed to end.
const GONE: Duration = Duration::from_secs(10);

/// One client. It can have several lives.
struct Member {
    order: Order,
    process: Pid,
    /// True if the client ended before the run ordered it to.
    is_fallen: bool,
}

pub(crate) struct Clients {
    /// The folder of the logs of the clients.
    dir: PathBuf,
    members: Vec<Mutex<Member>>,
    fallen: Mutex<Vec<Fallen>>,
    /// The two parents. One has drawn random numbers before it forks, and the other has not.
    drawn: Nursery,
    fresh: Nursery,
    forked: Forked,
}

impl Clients {
    pub(crate) fn start(dir: &Path, orders: impl IntoIterator<Item = Order>, forked: Forked) -> Self {
        let mut clients = Self {
            dir: dir.to_owned(),
            members: Vec::new(),
            fallen: Mutex::default(),
            drawn: Nursery::start(Habit::Drawn),
            fresh: Nursery::start(Habit::Fresh),
            forked,
        };
        for order in orders {
            let process = clients.bring_forth(&order);
            clients.members.push(Mutex::new(Member { order, process, is_fallen: false }));
        }
        clients
    }

    fn bring_forth(&self, order: &Order) -> Pid {
        match (self.forked, order.client % 4) {
            (Forked::None, _) | (Forked::Some, 0) => self.fresh.start_anew(order),
            _ => self.parent(order.client).fork(order),
        }
    }

    /// The parent of this client.
    fn parent(&self, client: u8) -> &Nursery {
        let is_drawn = match self.forked {
            Forked::None => false,
            Forked::Some => matches!(client % 4, 1 | 2),
            Forked::All => client % 4 != 3,
        };
        if is_drawn { &self.drawn } else { &self.fresh }
    }

    pub(super) fn strike(&self, client: usize, fault: &Fault, length: Duration) -> usize {
        let mut member = self.members[client].lock().unwrap();
        match fault.kind {
            Kind::Pause => {
                signal(member.process, Signal::STOP);
                thread::sleep(length);
                signal(member.process, Signal::CONT);
            }
            Kind::Crowd => self.parent(member.order.client).tell(member.process, &format!("crowd {}", fault.amount)),
            _ => self.murder(&mut member, length),
        }
        1
    }

    /// Kills the client, waits, and starts its next life.
    fn murder(&self, member: &mut Member, length: Duration) {
        let status = self.kill(member);
        if status.signal() != Some(Signal::KILL.as_raw()) {
            self.fell(member, format!("ended by itself with {status}, before it was to be killed"));
        }
        thread::sleep(length);
        member.order.life += 1;
        member.process = self.bring_forth(&member.order);
    }

    fn kill(&self, member: &Member) -> ExitStatus {
        signal(member.process, Signal::KILL);
        poll(GONE, || self.ended(member)).expect("a process that was killed ends")
    }

    /// Returns the exit status of the client, if it has ended. The status can be read only once.
    fn ended(&self, member: &Member) -> Option<ExitStatus> {
        self.parent(member.order.client).ended(member.process)
    }

    /// Orders all clients to end, and waits until they have ended. Kills those that do not end by the deadline. Records
    /// each client that did not end as it should.
    pub(crate) fn end(&self, deadline: Duration) {
        for member in &self.members {
            let member = &mut *member.lock().unwrap();
            match self.ended(member) {
                Some(status) => {
                    member.is_fallen = true;
                    self.fell(member, format!("ended by itself with {status}, before it was told to end"));
                }
                None => self.parent(member.order.client).end(member.process),
            }
        }
        let by = Instant::now() + deadline;
        for member in self.members.iter().map(|member| member.lock().unwrap()) {
            self.see_off(&member, by, deadline);
        }
    }

    fn see_off(&self, member: &Member, by: Instant, deadline: Duration) {
        if member.is_fallen {
            return;
        }
        match poll(by.saturating_duration_since(Instant::now()), || self.ended(member)) {
            Some(status) if status.success() => {}
            Some(status) => self.fell(member, format!("ended with {status}")),
            None => {
                self.fell(member, format!("did not end within {} s and was killed", deadline.as_secs()));
                self.kill(member);
            }
        }
    }

    fn fell(&self, member: &Member, how: String) {
        let Order { client, life, .. } = member.order;
        self.fallen.lock().unwrap().push(Fallen { at: now(), client, life, how });
    }

    /// The clients that did not end as they should.
    pub(crate) fn fallen(&self) -> Vec<Fallen> {
        self.fallen.lock().unwrap().clone()
    }

    /// The events in the logs of all clients, in all their lives. This does not wait for the clients.
    pub(crate) fn events(&self) -> Vec<Event> {
        let files = fs::read_dir(&self.dir).expect("the folder of the run is there").flatten().map(|file| file.path());
        let logs = files.filter(|file| file.extension().is_some_and(|end| end == "log"));
        logs.flat_map(|log| read(&fs::read_to_string(log).expect("a log can be read"))).collect()
    }
}

fn signal(process: Pid, signal: Signal) {
    _ = kill_process(process, signal);
}
