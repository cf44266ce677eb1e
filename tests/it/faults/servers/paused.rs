//! The holder's process is stopped for longer than its lease.

use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

use redlock_tests::{Proxy, eventually};
use rustix::process::{Pid, Signal, kill_process};

use crate::faults::support::{LEASE, LONG, Rig, SOON, for_each_n};
use crate::kinds::{Kind, each_kind, name_of_kind};

each_kind!(all: fault_12_the_holder_is_stopped);

/// A lower bound for a call to servers that do not answer: the node timeout of the holder's process.
const ASKING: Duration = Duration::from_millis(1500);

/// Another process, which holds the lock `a`. The drop of this value kills it.
struct Holder {
    process: Child,
    orders: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Holder {
    fn start<K: Kind>(rig: &Rig) -> Holder {
        let mut process = Command::new(env!("CARGO_BIN_EXE_agent"))
            .args(["paused", name_of_kind::<K>(), &LEASE.as_millis().to_string()])
            .args(rig.proxies.iter().map(Proxy::url))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let orders = process.stdin.take().unwrap();
        let answers = BufReader::new(process.stdout.take().unwrap()).lines();
        Holder { process, orders, answers }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).unwrap();
    }

    fn order(&mut self, order: &str) {
        writeln!(self.orders, "{order}").unwrap();
    }

    /// The words of the process's next output line.
    fn answer(&mut self) -> Vec<String> {
        let line = self.answers.next().expect("the holder's output has ended").unwrap();
        line.split(' ').map(str::to_owned).collect()
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        _ = self.process.kill();
        _ = self.process.wait();
    }
}

/// A resource that the lock protects. It accepts a write only if the fencing token is at least as large as every
/// earlier one.
#[derive(Default)]
struct Resource(u64);

impl Resource {
    fn write(&mut self, fence: u64) -> bool {
        let is_taken = fence >= self.0;
        self.0 = self.0.max(fence);
        is_taken
    }
}

fn fault_12_the_holder_is_stopped<K: Kind>() {
    for_each_n(&[1, 3, 5], |n| {
        let rig = Rig::start(n);
        let mut resource = Resource::default();
        let mut holder = Holder::start::<K>(&rig);
        let [token, fence] = &holder.answer()[..] else { panic!("token and fence") };
        let (token, fence) = (token.clone(), fence.parse().unwrap());
        assert!(resource.write(fence));
        // The holder's lease is renewed once. Then the process is stopped until another client has the lock.
        rig.proxies.iter().for_each(|proxy| proxy.wait_count("extend", 1, SOON));
        holder.signal(Signal::STOP);
        let locks = rig.open_direct();
        let guard = K::new(&locks, "a").lease(LONG).try_lock_for(SOON).unwrap();
        assert_ne!(guard.id().as_str(), token);
        assert!(resource.write(guard.fencing_token().unwrap()));
        // The holder resumes without a network. So `check()` can neither learn of the loss from a server nor wait for
        // one.
        rig.proxies.iter().for_each(Proxy::black_hole);
        holder.order("check");
        holder.signal(Signal::CONT);
        let [said, took] = &holder.answer()[..] else { panic!("answer and ms") };
        assert_eq!(said, "lost");
        assert!(Duration::from_millis(took.parse().unwrap()) < ASKING, "check() took {took} ms");
        rig.proxies.iter().for_each(Proxy::heal);
        assert!(!resource.write(fence), "the resource accepted the old fencing token");
        holder.order("use");
        assert_eq!(holder.answer(), ["lost", "lost"]);
        holder.order("unlock");
        assert_eq!(holder.answer(), ["lost"]);
        assert!(holder.process.wait().unwrap().success());
        guard.check().unwrap();
        assert!(rig.holding("a", guard.id().as_str()) >= rig.need(), "the former holder changed the new holder's key");
        guard.extend(LONG).unwrap();
        K::unlock(guard).unwrap();
        // On the node of the last renewal, the former holder's key may have outlived the new one on other nodes. It
        // expires by itself.
        eventually("all nodes are free", SOON, || rig.is_free("a"));
    });
}
