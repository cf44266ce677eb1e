//! Random operations of three clients on two keys of one server, and of an administrator with a shell. They run in one
//! thread without waits. A small reference model says what each operation must return, and what must be on the server
//! afterwards.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::{Strategy, any};
use proptest::{collection, prop_oneof};
use redis::{Connection, cmd, pipe};
use redlock_sync::{Error, LeaseState, LostReason, Redlock};
use redlock_tests::{Server, eventually};

use super::runner;
use crate::kinds::{Kind, each_kind};

const KEYS: [&str; 2] = ["a", "order:42"];
const CLIENTS: usize = 3;
/// A time that suffices for every step here.
const SOON: Duration = Duration::from_secs(10);
const FOREIGN: &str = "stranger";

#[derive(Debug, Clone, Copy)]
enum Op {
    /// `lock()` if that cannot wait forever, else `try_lock()`.
    Lock {
        client: usize,
        key: usize,
        patient: bool,
        fenced: bool,
    },
    Unlock(usize),
    Drop(usize),
    /// Extends the lease to this number of seconds.
    Extend(usize, u64),
    Fence(usize),
    Look {
        client: usize,
        key: usize,
    },
    UnlockAll(usize),
    /// Changes that are made by hand.
    Delete(usize),
    Expire(usize),
    Persist(usize),
    Steal(usize),
    FlushScripts,
}

fn op() -> impl Strategy<Value = Op> {
    let (client, key, guard) = (0..CLIENTS, 0..KEYS.len(), any::<u8>().prop_map(usize::from));
    prop_oneof![
        8 => (client.clone(), key.clone(), any::<bool>(), any::<bool>())
            .prop_map(|(client, key, patient, fenced)| Op::Lock { client, key, patient, fenced }),
        4 => guard.clone().prop_map(Op::Unlock),
        1 => guard.clone().prop_map(Op::Drop),
        3 => (guard.clone(), 12..90_u64).prop_map(|(guard, secs)| Op::Extend(guard, secs)),
        4 => guard.prop_map(Op::Fence),
        1 => (client.clone(), key.clone()).prop_map(|(client, key)| Op::Look { client, key }),
        1 => client.prop_map(Op::UnlockAll),
        2 => key.clone().prop_map(Op::Delete),
        1 => key.clone().prop_map(Op::Expire),
        1 => key.clone().prop_map(Op::Persist),
        1 => key.prop_map(Op::Steal),
        1 => proptest::strategy::Just(Op::FlushScripts),
    ]
}

/// The content of a key.
#[derive(Debug, Clone, PartialEq)]
struct Stored {
    token: String,
    ends: bool,
}

/// A lease as its guards must report it.
#[derive(Debug)]
struct Believed {
    client: usize,
    key: usize,
    token: String,
    guards: usize,
    /// The reason of the loss, once the guards know of it.
    lost: Option<LostReason>,
    /// Whether the fence counter was raised for this lease. If so, `fencing_token` makes no request.
    has_fence: bool,
}

struct Machine<'a, K: Kind> {
    server: &'a Server,
    shell: Connection,
    clients: Vec<Redlock>,
    stored: [Option<Stored>; KEYS.len()],
    /// All leases in the order of their acquisition.
    leases: Vec<Believed>,
    /// The known fencing tokens of these leases, by key and by lease.
    fences: [BTreeMap<usize, u64>; KEYS.len()],
    /// The guards, each with the number of its lease.
    guards: Vec<(usize, K::Guard)>,
}

/// Whether a thread that holds the lock gets it again.
fn nests<K: Kind>() -> bool {
    std::any::type_name::<K>().contains("Reentrant")
}

fn lost(result: Result<(), Error>) -> Option<LostReason> {
    result.err().map(|error| error.lost_reason().unwrap_or_else(|| panic!("not lost, but: {error}")))
}

impl<'a, K: Kind> Machine<'a, K> {
    fn new(server: &'a Server) -> Machine<'a, K> {
        let mut shell = server.client();
        cmd("FLUSHALL").exec(&mut shell).unwrap();
        let client = |_| Redlock::builder().node(server.url()).node_timeout(SOON).build().unwrap();
        Machine {
            server,
            shell,
            clients: (0..CLIENTS).map(client).collect(),
            stored: [None, None],
            leases: Vec::new(),
            fences: [BTreeMap::new(), BTreeMap::new()],
            guards: Vec::new(),
        }
    }

    fn run(mut self, ops: &[Op]) {
        for op in ops {
            self.step(*op);
            self.compare();
        }
        while let Some((lease, guard)) = self.guards.pop() {
            self.end(lease, || Some(K::unlock(guard)));
            self.compare();
        }
        // Whatever happened before, the locks can be taken and leave no key.
        for (i, key) in KEYS.iter().enumerate() {
            self.server.del(key);
            self.stored[i] = None;
            for locks in &self.clients {
                K::unlock(K::new(locks, key).lock().unwrap()).unwrap();
            }
        }
        self.compare();
    }

    fn step(&mut self, op: Op) {
        // Maps the operation's number to the number of an existing guard.
        let guard = |n: usize| n.checked_rem(self.guards.len());
        match op {
            Op::Lock { client, key, patient, fenced } => self.lock(client, key, patient, fenced),
            Op::Unlock(n) => {
                if let Some(n) = guard(n) {
                    let (lease, guard) = self.guards.swap_remove(n);
                    self.end(lease, || Some(K::unlock(guard)));
                }
            }
            Op::Drop(n) => {
                if let Some(n) = guard(n) {
                    let (lease, guard) = self.guards.swap_remove(n);
                    let Believed { key, token, guards, .. } = &self.leases[lease];
                    let (server, key, token, is_last) = (self.server, KEYS[*key], token.clone(), *guards == 1);
                    self.end(lease, || {
                        drop(guard);
                        let is_gone = || !is_last || server.get(key).as_ref() != Some(&token);
                        eventually("the drop releases the lock", SOON, is_gone);
                        None
                    });
                }
            }
            Op::Extend(n, secs) => {
                if let Some(n) = guard(n) {
                    self.extend(n, secs);
                }
            }
            Op::Fence(n) => {
                if let Some(n) = guard(n) {
                    self.fence(n);
                }
            }
            Op::Look { client, key } => self.look(client, key),
            Op::UnlockAll(client) => self.unlock_all(client),
            Op::Delete(key) => {
                assert_eq!(self.server.del(KEYS[key]), self.stored[key].take().is_some());
            }
            Op::Expire(key) => {
                cmd("PEXPIRE").arg(KEYS[key]).arg(1).exec(&mut self.shell).unwrap();
                eventually("the key is gone", SOON, || self.server.get(KEYS[key]).is_none());
                self.stored[key] = None;
            }
            Op::Persist(key) => {
                cmd("PERSIST").arg(KEYS[key]).exec(&mut self.shell).unwrap();
                self.stored[key].iter_mut().for_each(|stored| stored.ends = false);
            }
            Op::Steal(key) => {
                cmd("SET").arg(KEYS[key]).arg(FOREIGN).arg("PX").arg(600_000).exec(&mut self.shell).unwrap();
                self.stored[key] = Some(Stored { token: FOREIGN.into(), ends: true });
            }
            Op::FlushScripts => cmd("SCRIPT").arg("FLUSH").exec(&mut self.shell).unwrap(),
        }
    }

    fn lock(&mut self, client: usize, key: usize, patient: bool, fenced: bool) {
        let lock = K::new(&self.clients[client], KEYS[key]).fenced(fenced);
        let mine = self.leases.iter().rposition(|l| (l.client, l.key) == (client, key) && l.guards > 0);
        // With a mutex, a lost lease does not prevent a new acquisition.
        let mine = mine.filter(|mine| nests::<K>() || self.leases[*mine].lost.is_none());
        let waits = mine.is_none() && self.stored[key].is_some();
        let patient = patient && !waits;
        let outcome = if patient { lock.lock() } else { lock.try_lock() };
        match (mine, outcome) {
            (Some(mine), outcome) if nests::<K>() => {
                let lease = &mut self.leases[mine];
                match (lease.lost, outcome) {
                    (None, Ok(guard)) => {
                        assert_eq!(guard.id().as_str(), lease.token);
                        lease.guards += 1;
                        self.guards.push((mine, guard));
                    }
                    (Some(reason), Err(error)) => assert_eq!(error.lost_reason(), Some(reason), "{error}"),
                    (believed, outcome) => panic!("{believed:?}, but {:?}", outcome.map(drop)),
                }
            }
            (Some(_), Err(Error::WouldDeadlock { .. })) if patient => {}
            (Some(_), Err(Error::Busy { .. })) if !patient => {}
            (None, Err(Error::Busy { expires_in, .. })) => {
                let stored = self.stored[key].as_ref().expect("a busy lock has a key");
                assert_eq!(expires_in.is_some(), stored.ends);
            }
            (None, Ok(guard)) => {
                assert_eq!(self.stored[key], None, "the lock was taken although its key existed");
                let token = guard.id().as_str().to_owned();
                self.stored[key] = Some(Stored { token: token.clone(), ends: true });
                self.guards.push((self.leases.len(), guard));
                self.leases.push(Believed { client, key, token, guards: 1, lost: None, has_fence: fenced });
            }
            (mine, outcome) => panic!("lease {mine:?}, but {:?}", outcome.map(drop)),
        }
    }

    /// Why the lease is lost, once a request to the server shows it.
    fn find_out(&mut self, lease: usize) -> Option<LostReason> {
        let believed = &mut self.leases[lease];
        let reason = match &self.stored[believed.key] {
            None => Some(LostReason::Deleted),
            Some(stored) if stored.token != believed.token => Some(LostReason::Taken),
            Some(_) => None,
        };
        believed.lost = believed.lost.or(reason);
        believed.lost
    }

    /// Ends one guard by `how`. `unlock` returns a result, and a drop does not.
    fn end(&mut self, lease: usize, how: impl FnOnce() -> Option<Result<(), Error>>) {
        self.leases[lease].guards -= 1;
        let expected = if self.leases[lease].guards > 0 {
            self.leases[lease].lost
        } else {
            let found = self.find_out(lease);
            let Believed { key, token, .. } = &self.leases[lease];
            self.stored[*key].take_if(|stored| stored.token == *token);
            found
        };
        if let Some(outcome) = how() {
            assert_eq!(lost(outcome), expected);
        }
    }

    fn extend(&mut self, n: usize, secs: u64) {
        let (lease, guard) = &self.guards[n];
        let (lease, before) = (*lease, guard.remaining());
        let length = Duration::from_secs(secs);
        let outcome = guard.extend(length);
        let after = guard.remaining();
        let expected = self.find_out(lease);
        assert_eq!(lost(outcome), expected);
        if expected.is_none() {
            assert!(after <= length.max(before) && after > length / 2, "{before:?}, {length:?}, {after:?}");
            self.stored[self.leases[lease].key].as_mut().unwrap().ends = true;
        }
    }

    fn fence(&mut self, n: usize) {
        let (lease, guard) = &self.guards[n];
        let lease = *lease;
        let outcome = guard.fencing_token();
        let has_fence = self.leases[lease].has_fence;
        let expected = if has_fence { self.leases[lease].lost } else { self.find_out(lease) };
        match outcome {
            Ok(fence) => {
                assert_eq!(expected, None, "a lost lock returned a fencing token");
                self.leases[lease].has_fence = true;
                let all = &mut self.fences[self.leases[lease].key];
                assert!(fence < 1 << 53);
                assert!(all.range(..lease).all(|(_, earlier)| *earlier < fence), "{fence} is not above {all:?}");
                assert!(all.range(lease + 1..).all(|(_, later)| *later > fence), "{fence} is not below {all:?}");
                assert_eq!(*all.entry(lease).or_insert(fence), fence, "the fencing token changed");
            }
            Err(error) => assert_eq!(error.lost_reason(), Some(expected.unwrap_or_else(|| panic!("{error}")))),
        }
    }

    fn look(&self, client: usize, key: usize) {
        let lock = K::new(&self.clients[client], KEYS[key]);
        assert_eq!(lock.is_locked().unwrap(), self.stored[key].is_some());
        let holder = lock.inspect().unwrap();
        let seen = holder.map(|h| Stored { token: h.id.as_str().to_owned(), ends: h.remaining.is_some() });
        assert_eq!(seen, self.stored[key]);
    }

    fn unlock_all(&mut self, client: usize) {
        let count = self.clients[client].unlock_all().unwrap().given_up.len();
        let live = |lease: &&mut Believed| lease.client == client && lease.guards > 0 && lease.lost.is_none();
        let mut expected = 0;
        for lease in self.leases.iter_mut().filter(live) {
            expected += 1;
            lease.lost = Some(LostReason::Revoked);
            self.stored[lease.key].take_if(|stored| stored.token == lease.token);
        }
        assert_eq!(count, expected);
    }

    /// Asserts that the guards report what the model says, and that the server has exactly the expected keys.
    fn compare(&mut self) {
        for (lease, guard) in &self.guards {
            let believed = &self.leases[*lease];
            assert_eq!(lost(guard.check()), believed.lost, "{believed:?}");
            let state = believed.lost.map_or(LeaseState::Held, LeaseState::Lost);
            assert_eq!((guard.state(), guard.remaining().is_zero()), (state, believed.lost.is_some()));
            assert_eq!((guard.id().as_str(), guard.key()), (believed.token.as_str(), KEYS[believed.key]));
        }
        let mut ask = pipe();
        for key in KEYS {
            ask.cmd("GET").arg(key).cmd("PTTL").arg(key);
        }
        let found: (Option<String>, i64, Option<String>, i64) = ask.query(&mut self.shell).unwrap();
        let stored = |token: Option<String>, ttl: i64| token.map(|token| Stored { token, ends: ttl >= 0 });
        assert_eq!([stored(found.0, found.1), stored(found.2, found.3)], self.stored);
        // No thread waits, so the only other keys are fence counters, which expire.
        let others: Vec<String> = cmd("KEYS").arg("*:*").query(&mut self.shell).unwrap();
        for other in others.iter().filter(|other| !KEYS.contains(&other.as_str())) {
            assert!(other.ends_with(":fence") && self.server.pttl(other).is_some(), "{other} is left");
        }
    }
}

fn whatever_clients_do_they_are_told_the_truth<K: Kind>() {
    let server = Server::start();
    let ops = collection::vec(op(), 1..40);
    let outcome = runner(100).run(&ops, |ops| {
        Machine::<K>::new(&server).run(&ops);
        Ok(())
    });
    outcome.unwrap_or_else(|error| panic!("{error}"));
}

each_kind!(whatever_clients_do_they_are_told_the_truth);
