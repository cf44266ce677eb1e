//! Models of threads that wait for a connection: `node/connections.rs`, `node/order.rs` and
//! `node/transport/round.rs`.

use std::slice;
use std::sync::Arc;

use shuttle::thread::{self, JoinHandle};

use crate::clock::Tick;
use crate::node::connections::Connections;
use crate::node::host::{Dials, Host};
use crate::node::transport::framer::WireReply;
use crate::node::transport::round::Round;
use crate::node::transport::waiting::{SentCall, wait};
use crate::sync::Mutex;
use crate::transport::{join, rig};
use crate::wire::{End, PATIENCE, Passing, Rig, Server, end, number};
use crate::world::{self, ModelClock};

const COMES: Dials = Dials { failures: 0, gives_up: false, announces_first: false };
const FAILS: Dials = Dials { failures: 0, gives_up: true, announces_first: false };

/// A server to which there is no connection yet.
#[derive(Clone)]
struct Cold {
    connections: Arc<Connections>,
    server: Arc<Server>,
}

impl Cold {
    fn new(dials: Dials) -> Cold {
        let server = Server::new();
        Cold { connections: Arc::new(Connections::new(&Host::new(&server, dials), 1)), server }
    }

    fn serve(&self) -> JoinHandle<()> {
        let server = Arc::clone(&self.server);
        thread::spawn(move || while server.execute() {})
    }

    /// Closes the connection, so that the server ends.
    fn end(self, server: JoinHandle<()>) {
        drop(self.connections);
        self.server.cut();
        world::until_all_threads_ended();
        server.join().unwrap();
    }
}

/// How a call to a cold server ended.
#[derive(Debug, PartialEq)]
enum Second {
    Ended(End),
    /// There is no connection.
    Unsent,
}

/// Makes a call to a cold server. In the same round, the call at `first` may be on its way to another server. Returns
/// when the call to the cold server has ended. Looks for a connection as `Exchange::run` does.
fn call(cold: &Cold, n: u64, round: &Arc<Round>, first: Option<SentCall>) -> Second {
    let mut sent: Vec<SentCall> = first.into_iter().collect();
    let index = sent.len();
    let mut connects = true;
    loop {
        round.look();
        if let Some(outcome) = round.take(index) {
            return Second::Ended(end(outcome));
        }
        let mut until = Tick::NEVER;
        if connects {
            let payload = number(n);
            if let Some(connection) = cold.connections.choose(&payload.call, false, world::now(), Some(round)) {
                let number = connection.send(&payload, round.recipient(index), false);
                sent.push(SentCall { index, connection, number });
                connects = false;
            } else if cold.connections.last_failure().is_some() {
                return Second::Unsent;
            } else {
                until = cold.connections.next_look(world::now());
            }
        }
        round.ends_after(1);
        if until < Tick::NEVER {
            // That is soon, but time stands still.
            thread::yield_now();
            continue;
        }
        assert!(wait(round, &sent, connects, until, &ModelClock), "the wait has no limit");
    }
}

fn reply(n: u64) -> Second {
    Second::Ended(End::Reply(WireReply::Int(n.cast_signed())))
}

/// Threads wait for the first connection to a server. It comes at any moment, one thread takes it into use, and all
/// threads share it. Time stands still.
fn waiting_for(dials: Dials) {
    let cold = Cold::new(dials);
    let server = cold.serve();
    let threads = [1, 2, 3].map(|n: u64| {
        let cold = cold.clone();
        thread::spawn(move || assert_eq!(call(&cold, n, &Round::new(1), None), reply(n)))
    });
    join(threads);
    cold.end(server);
}

pub fn threads_share_the_connection_that_comes() {
    waiting_for(COMES);
}

/// As with a pool: the connection is announced a moment before it can be taken.
pub fn a_connection_that_is_announced_first() {
    waiting_for(Dials { announces_first: true, ..COMES });
}

/// Threads wait for a connection, and the attempt fails at any moment. Time stands still.
pub fn threads_learn_that_no_connection_comes() {
    let cold = Cold::new(FAILS);
    let server = cold.serve();
    let threads = [1, 2, 3].map(|n: u64| {
        let cold = cold.clone();
        thread::spawn(move || assert_eq!(call(&cold, n, &Round::new(1), None), Second::Unsent))
    });
    join(threads);
    cold.end(server);
}

/// Threads wait for the reply of one server, and for a connection to another one. The first server answers only once
/// each call to the second one has ended.
fn beside_a_silent_server(dials: Dials, ends: fn(u64) -> Second) {
    let (rig, cold) = (rig(), Cold::new(dials));
    let server = cold.serve();
    let ended = Arc::new(Mutex::new(0));
    let threads = [1, 2].map(|n: u64| {
        let (cold, ended) = (cold.clone(), Arc::clone(&ended));
        rig.spawn(move |rig: Rig| {
            let round = Round::new(2);
            let first = rig.send(&round, 0, &number(n), false);
            let again = SentCall { connection: Arc::clone(&first.connection), ..first };
            assert_eq!(call(&cold, n, &round, Some(first)), ends(n));
            *ended.lock() += 1;
            // The round may still be registered, and be woken in vain.
            let outcome = loop {
                round.look();
                if let Some(outcome) = round.take(0) {
                    break outcome;
                }
                assert!(wait(&round, slice::from_ref(&again), false, Tick::NEVER, &ModelClock));
            };
            assert_eq!(end(outcome), End::Reply(WireReply::Int(n.cast_signed())));
        })
    });
    // A thread that reads from the silent server looks at the end of each slice.
    let time = Passing::start(PATIENCE / 8);
    while *ended.lock() < 2 {
        thread::yield_now();
    }
    let silent = rig.serve();
    join(threads);
    time.stop();
    rig.end();
    cold.end(server);
    silent.join().unwrap();
}

pub fn a_connection_comes_beside_a_silent_server() {
    beside_a_silent_server(COMES, reply);
}

pub fn no_connection_comes_beside_a_silent_server() {
    beside_a_silent_server(FAILS, |_| Second::Unsent);
}
