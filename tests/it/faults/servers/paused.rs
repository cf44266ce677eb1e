//! The holder's process is stopped for longer than its lease.

use std::time::Duration;

use redlock_tests::{Proxy, eventually};
use rustix::process::Signal;

use crate::faults::rig::{LEASE, LONG, Rig, SOON, for_each_n};
use crate::kinds::{Kind, each_kind, name_of_kind};
use crate::process::Process;

each_kind!(all: fault_12_the_holder_is_stopped);

/// A lower bound for a call to servers that do not answer: the node timeout of the holder's process.
const ASKING: Duration = Duration::from_millis(1500);

/// Starts another process, which holds the lock `a`.
fn holder<K: Kind>(rig: &Rig) -> Process {
    Process::start(&["paused", name_of_kind::<K>(), &LEASE.as_millis().to_string()], &rig.proxy_urls())
}

/// The words of the process's next output line.
fn answer(holder: &Process) -> Vec<String> {
    holder.line().split(' ').map(str::to_owned).collect()
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
        let mut holder = holder::<K>(&rig);
        let [token, fence] = &answer(&holder)[..] else { panic!("token and fence") };
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
        holder.tell("check");
        holder.signal(Signal::CONT);
        let [said, took] = &answer(&holder)[..] else { panic!("answer and ms") };
        assert_eq!(said, "lost");
        assert!(Duration::from_millis(took.parse().unwrap()) < ASKING, "check() took {took} ms");
        rig.proxies.iter().for_each(Proxy::heal);
        assert!(!resource.write(fence), "the resource accepted the old fencing token");
        holder.tell("use");
        assert_eq!(answer(&holder), ["lost", "lost"]);
        holder.tell("unlock");
        assert_eq!(answer(&holder), ["lost"]);
        assert!(holder.wait().success());
        guard.check().unwrap();
        assert!(rig.having("a", guard.id().as_str()) >= rig.need(), "the former holder changed the new holder's key");
        guard.extend(LONG).unwrap();
        K::unlock(guard).unwrap();
        // On the node of the last renewal, the former holder's key may have outlived the new one on other nodes. It
        // expires by itself.
        eventually("all nodes are free", SOON, || rig.is_free("a"));
    });
}
