//! The client processes, and what is done to them.

use std::env;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use redlock_tests::poll;
use rustix::process::{Pid, Signal, kill_process};

use crate::client::Order;
use crate::clock::now;
use crate::event::{Event, read};
use crate::history::Fallen;
use crate::plan::{Fault, Kind};

/// One client, which may live several times.
struct Member {
    order: Order,
    child: Child,
    /// It ended before it was told to.
    is_fallen: bool,
}

pub(crate) struct Crowd {
    members: Vec<Mutex<Member>>,
    fallen: Mutex<Vec<Fallen>>,
}

impl Crowd {
    pub(crate) fn start(orders: impl IntoIterator<Item = Order>) -> Self {
        let members = orders
            .into_iter()
            .map(|order| Mutex::new(Member { child: spawn(&order), order, is_fallen: false }))
            .collect();
        Self { members, fallen: Mutex::default() }
    }

    pub(super) fn strike(&self, client: usize, fault: &Fault, length: Duration) -> usize {
        let mut member = self.members[client].lock().unwrap();
        if fault.kind == Kind::Pause {
            signal(&member.child, Signal::STOP);
            thread::sleep(length);
            signal(&member.child, Signal::CONT);
            return 1;
        }
        _ = member.child.kill();
        let status = member.child.wait().expect("a child can be waited for");
        if status.signal() != Some(Signal::KILL.as_raw()) {
            self.fell(&member, format!("ended by itself with {status}, before it was to be killed"));
        }
        thread::sleep(length);
        member.order.life += 1;
        member.child = spawn(&member.order);
        1
    }

    /// Tells all to end and waits for it; those that do not are killed. Whoever did not end as it must is written down.
    pub(crate) fn end(&self, deadline: Duration) {
        for member in &self.members {
            let member = &mut *member.lock().unwrap();
            if let Some(status) = ended(&mut member.child) {
                member.is_fallen = true;
                self.fell(member, format!("ended by itself with {status}, before it was told to end"));
            }
            drop(member.child.stdin.take());
        }
        let by = Instant::now() + deadline;
        for member in &self.members {
            let member = &mut *member.lock().unwrap();
            match poll(by.saturating_duration_since(Instant::now()), || ended(&mut member.child)) {
                Some(status) if status.success() || member.is_fallen => {}
                Some(status) => self.fell(member, format!("ended with {status}")),
                None => {
                    self.fell(member, format!("did not end within {} s and was killed", deadline.as_secs()));
                    _ = member.child.kill();
                    _ = member.child.wait();
                }
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

fn spawn(order: &Order) -> Child {
    let this = env::current_exe().expect("this program has a file");
    let mut command = Command::new(this);
    command.args(order.words()).stdin(Stdio::piped()).stdout(Stdio::null());
    command.spawn().expect("a client can be started")
}

/// How it ended, if it has.
fn ended(child: &mut Child) -> Option<ExitStatus> {
    child.try_wait().expect("a child can be waited for")
}

fn signal(child: &Child, signal: Signal) {
    let pid = Pid::from_raw(child.id().cast_signed()).expect("a process id is positive");
    _ = kill_process(pid, signal);
}
