//! The client processes, and what is done to them.

use std::env;
use std::fs;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use redlock_tests::poll;
use rustix::process::{Pid, Signal, kill_process};

use crate::client::Order;
use crate::event::{Event, read};
use crate::plan::{Fault, Kind};

/// One client, which may live several times.
struct Member {
    order: Order,
    child: Child,
}

pub(crate) struct Crowd {
    members: Vec<Mutex<Member>>,
}

impl Crowd {
    pub(crate) fn start(orders: impl IntoIterator<Item = Order>) -> Self {
        let members = orders.into_iter().map(|order| Mutex::new(Member { child: spawn(&order), order })).collect();
        Self { members }
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
        _ = member.child.wait();
        thread::sleep(length);
        member.order.life += 1;
        member.child = spawn(&member.order);
        1
    }

    /// Tells all to end and waits for it; those that do not are killed, and counted.
    pub(crate) fn end(&self, deadline: Duration) -> usize {
        let mut hanging = 0;
        for member in &self.members {
            drop(member.lock().unwrap().child.stdin.take());
        }
        let by = Instant::now() + deadline;
        for member in &self.members {
            let child = &mut member.lock().unwrap().child;
            if poll(by.saturating_duration_since(Instant::now()), || {
                child.try_wait().expect("a child can be waited for")
            })
            .is_none()
            {
                hanging += 1;
                _ = child.kill();
                _ = child.wait();
            }
        }
        hanging
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

fn signal(child: &Child, signal: Signal) {
    let pid = Pid::from_raw(child.id().cast_signed()).expect("a process id is positive");
    _ = kill_process(pid, signal);
}
