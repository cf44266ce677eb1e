//! Random calls of three clients for two names, on one server and on three nodes in memory. A small reference model
//! says what each call must return, and what must be on the servers afterwards.

use std::time::Duration;

use proptest::prelude::Strategy;
use proptest::{collection, prop_oneof};
use redlock_sync::{Error, LostReason, Redlock, RunOutcome};

use super::client;
use crate::place::{Database, InMemory, Place};
use crate::properties::runner;

const NAMES: [&str; 2] = ["report", "import:{42}"];
const MARKS: [&str; 2] = ["{report}:done", "import:{42}::done"];
const CLIENTS: usize = 3;

/// The outcome of a body.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Body {
    Succeeds,
    Fails,
    /// The body succeeds after its lock was taken away.
    SucceedsWithoutLock,
}

#[derive(Debug, Clone, Copy)]
enum Op {
    Run(usize, usize, Body),
    /// The second client calls within the first client's body, with the same name and in the same thread.
    Nested(usize, usize, usize),
    /// The call comes while the first of the clients holds a mutex of this name, in the same thread.
    RunBesideMutex(usize, usize),
    Look(usize, usize),
    Forget(usize, usize),
    /// The mark is deleted by hand.
    Lose(usize),
}

fn op() -> impl Strategy<Value = Op> {
    let (client, name) = (0..CLIENTS, 0..NAMES.len());
    let at = || (client.clone(), name.clone());
    let body = prop_oneof![
        3 => proptest::strategy::Just(Body::Succeeds),
        2 => proptest::strategy::Just(Body::Fails),
        1 => proptest::strategy::Just(Body::SucceedsWithoutLock),
    ];
    prop_oneof![
        6 => (at(), body).prop_map(|((client, name), body)| Op::Run(client, name, body)),
        1 => (at(), 0..CLIENTS).prop_map(|((client, name), inner)| Op::Nested(client, inner, name)),
        1 => at().prop_map(|(client, name)| Op::RunBesideMutex(client, name)),
        2 => at().prop_map(|(client, name)| Op::Look(client, name)),
        1 => at().prop_map(|(client, name)| Op::Forget(client, name)),
        1 => name.clone().prop_map(Op::Lose),
    ]
}

/// The error for a thread that holds the lock itself.
fn would_deadlock(name: usize) -> Error {
    Error::WouldDeadlock { key: NAMES[name].to_owned() }
}

struct Machine<P> {
    nodes: Vec<P>,
    clients: Vec<Redlock>,
    /// The reference model: whether each job is done.
    done: [bool; NAMES.len()],
}

impl<P: Place> Machine<P> {
    fn new(count: usize) -> Machine<P> {
        let nodes = P::start(count);
        let clients = (0..CLIENTS).map(|_| client(&nodes)).collect();
        Machine { nodes, clients, done: [false; NAMES.len()] }
    }

    fn step(&mut self, op: Op) {
        match op {
            Op::Run(client, name, body) => self.run(client, name, body),
            Op::Nested(client, inner, name) => {
                let jobs = [client, inner].map(|client| self.clients[client].once(NAMES[name]));
                let outcome = jobs[0].run(|_| jobs[1].run(|_| Ok::<_, Error>(())));
                let refused =
                    if client == inner { Err(would_deadlock(name)) } else { Ok(RunOutcome::Ran(RunOutcome::Busy)) };
                assert_eq!(outcome, if self.done[name] { Ok(RunOutcome::Done) } else { refused });
                self.done[name] |= client != inner;
            }
            Op::RunBesideMutex(client, name) => {
                let held = self.clients[0].mutex(NAMES[name]).lock().unwrap();
                let outcome = self.clients[client].once(NAMES[name]).run(|_| Ok::<_, Error>(()));
                let refused = if client == 0 { Err(would_deadlock(name)) } else { Ok(RunOutcome::Busy) };
                assert_eq!(outcome, if self.done[name] { Ok(RunOutcome::Done) } else { refused });
                held.unlock().unwrap();
            }
            Op::Look(client, name) => {
                assert_eq!(self.clients[client].once(NAMES[name]).is_done(), Ok(self.done[name]));
            }
            Op::Forget(client, name) => {
                self.clients[client].once(NAMES[name]).forget().unwrap();
                self.done[name] = false;
            }
            Op::Lose(name) => {
                self.nodes.iter().for_each(|node| _ = node.del(MARKS[name]));
                self.done[name] = false;
            }
        }
    }

    fn run(&mut self, client: usize, name: usize, body: Body) {
        let mut runs = 0;
        let outcome = self.clients[client].once(NAMES[name]).remember(Duration::from_secs(60)).run(|lease| {
            runs += 1;
            match body {
                Body::Succeeds => lease.check().map(|()| 42),
                Body::Fails => Err(Error::Closed),
                Body::SucceedsWithoutLock => {
                    self.nodes.iter().for_each(|node| assert!(node.del(NAMES[name])));
                    Ok(42)
                }
            }
        });
        assert_eq!(runs, u32::from(!self.done[name]));
        match (self.done[name], body) {
            (true, _) => assert_eq!(outcome, Ok(RunOutcome::Done)),
            (false, Body::Succeeds) => assert_eq!(outcome, Ok(RunOutcome::Ran(42))),
            (false, Body::Fails) => assert_eq!(outcome, Err(Error::Closed)),
            (false, Body::SucceedsWithoutLock) => {
                assert_eq!(outcome.unwrap_err().lost_reason(), Some(LostReason::Deleted));
            }
        }
        self.done[name] |= body != Body::Fails;
    }

    /// Asserts that a majority has the mark of each job that is done, and that no node has another mark.
    fn compare(&self) {
        for (name, mark) in MARKS.iter().enumerate() {
            let having = self.nodes.iter().filter(|node| node.keys().contains(&(*mark).to_owned())).count();
            let is_right = if self.done[name] { having > self.nodes.len() / 2 } else { having == 0 };
            assert!(is_right, "{having} nodes have `{mark}`, done: {}", self.done[name]);
        }
    }
}

fn calls_return_what_the_reference_says<P: Place>(count: usize) {
    let cases = collection::vec(op(), 1..25);
    let outcome = runner(60).run(&cases, |ops| {
        let mut machine = Machine::<P>::new(count);
        for op in ops {
            machine.step(op);
            machine.compare();
        }
        // Whatever happened before, each job can run and leaves no lock.
        for (name, mark) in NAMES.iter().zip(MARKS) {
            machine.nodes.iter().for_each(|node| _ = node.del(mark));
            assert_eq!(machine.clients[0].once(name).run(|_| Ok::<_, Error>(1)), Ok(RunOutcome::Ran(1)));
            assert!(!machine.clients[0].mutex(name).is_locked().unwrap());
        }
        Ok(())
    });
    outcome.unwrap_or_else(|error| panic!("{error}"));
}

#[test]
fn calls_return_what_the_reference_says_on_a_server() {
    calls_return_what_the_reference_says::<Database>(1);
}

#[test]
fn calls_return_what_the_reference_says_on_three_nodes() {
    calls_return_what_the_reference_says::<InMemory>(3);
}
