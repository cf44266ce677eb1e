//! Models of the connections that all threads share: `node/transport`.
//!
//! Time stands still unless a model lets it pass. Then a thread that sleeps wakes up only if another thread reads its
//! reply. So a call that is not written, a reply that is not read, and a lost wake-up are deadlocks.

use std::sync::Arc;
use std::time::Duration;

use shuttle::thread;

use crate::clock::Tick;
use crate::node::transport::call_queue::Progress;
use crate::node::transport::framer::WireReply;
use crate::node::transport::halves::Broken;
use crate::node::transport::round::Round;
use crate::node::transport::waiting::wait;
use crate::wire::{End, PATIENCE, Passing, Rig, Said, Threadless, acquire, number, outcome, release};
use crate::world::{self, ModelClock};

pub(crate) fn rig() -> Rig {
    Rig::new(Arc::new(ModelClock))
}

fn rig_with_replica() -> Rig {
    Rig::with_replica(Arc::new(ModelClock))
}

pub(crate) fn join(threads: impl IntoIterator<Item = thread::JoinHandle<()>>) {
    for thread in threads {
        thread.join().unwrap();
    }
}

fn two_calls_each(rig: &Rig) {
    let threads = [10, 20, 30, 40].map(|first| {
        rig.spawn(move |rig| {
            for n in first..first + 2 {
                assert_eq!(rig.number(n, Tick::NEVER), End::Reply(WireReply::Int(n.cast_signed())));
            }
        })
    });
    join(threads);
}

/// Each call gets its own reply.
pub fn each_gets_its_own_reply() {
    let rig = rig();
    let server = rig.serve();
    two_calls_each(&rig);
    rig.end();
    server.join().unwrap();
}

/// Each call gets its own reply while time passes.
pub fn over_a_network() {
    let rig = rig();
    let (server, time) = (rig.serve(), Passing::start(Duration::from_micros(20)));
    two_calls_each(&rig);
    time.stop();
    rig.end();
    server.join().unwrap();
}

/// Threads whose time is up may have been woken to read. They wake others, which have time.
pub fn a_thread_that_is_woken_and_leaves() {
    let rig = rig();
    let soon = world::now().after(PATIENCE / 16);
    let hurried = [1, 2, 3].map(|n: u64| rig.spawn(move |rig| drop(rig.number(n, soon))));
    let patient = rig.spawn(move |rig| assert_eq!(rig.number(4, Tick::NEVER), End::Reply(WireReply::Int(4))));
    let server = rig.serve();
    world::pass_until(soon);
    join(hurried);
    patient.join().unwrap();
    rig.flush();
    rig.end();
    server.join().unwrap();
}

/// Two threads with a call on each of two connections, and one with a call on one of them.
pub fn two_threads_and_two_connections() {
    let rigs = [rig(), rig()];
    let servers: Vec<_> = rigs.iter().map(Rig::serve).collect();
    let threads = [10, 20].map(|n: u64| {
        let rigs = rigs.clone();
        thread::spawn(move || {
            for n in n..n + 2 {
                let round = Round::new(2);
                let sent = [0, 1].map(|index| rigs[index].send(&round, index, &number(n), false));
                assert!(wait(&round, &sent, false, Tick::NEVER, &ModelClock));
                for index in [0, 1] {
                    assert_eq!(outcome(&round, index), End::Reply(WireReply::Int(n.cast_signed())));
                }
            }
        })
    });
    let single = rigs[0].spawn(|rig| assert_eq!(rig.number(30, Tick::NEVER), End::Reply(WireReply::Int(30))));
    join(threads.into_iter().chain([single]));
    for rig in rigs {
        rig.stop();
    }
    world::until_all_threads_ended();
    join(servers);
}

/// The first connection of a call breaks, and the call goes over another one in the same round. The thread may have
/// been woken to read from the first one.
pub fn a_call_that_is_sent_again() {
    let rigs = [rig(), rig()];
    let servers: Vec<_> = rigs.iter().map(Rig::serve).collect();
    let threads = [1, 2, 3].map(|n: u64| {
        let rigs = rigs.clone();
        thread::spawn(move || {
            let round = Round::new(1);
            let mut sent = [rigs[0].send(&round, 0, &number(n), false)];
            assert!(wait(&round, &sent, false, Tick::NEVER, &ModelClock));
            let end = outcome(&round, 0);
            if let End::Cut { .. } = end {
                sent = [rigs[1].send(&round, 0, &number(n), false)];
                assert!(wait(&round, &sent, false, Tick::NEVER, &ModelClock));
                assert_eq!(outcome(&round, 0), End::Reply(WireReply::Int(n.cast_signed())));
            }
        })
    });
    rigs[0].server.cut();
    join(threads);
    for rig in rigs {
        rig.stop();
    }
    world::until_all_threads_ended();
    join(servers);
}

/// The time of a thread that reads for other threads may be up. The other threads have time, and get their replies.
pub fn a_reader_whose_time_is_up() {
    let rig = rig();
    let soon = world::now().after(PATIENCE / 4);
    let hurried = [1, 2].map(|n: u64| {
        rig.spawn(move |rig| match rig.number(n, soon) {
            End::Reply(reply) => assert_eq!(reply, WireReply::Int(n.cast_signed())),
            End::Left(Progress::Sent | Progress::Unsent) => assert!(world::now() >= soon, "left before its time"),
            other => panic!("{other:?}"),
        })
    });
    let patient = [3, 4].map(|n: u64| {
        rig.spawn(move |rig| assert_eq!(rig.number(n, Tick::NEVER), End::Reply(WireReply::Int(n.cast_signed()))))
    });
    world::pass_until(soon);
    let server = rig.serve();
    join(hurried);
    join(patient);
    rig.flush();
    rig.end();
    server.join().unwrap();
}

/// Attempts are given up at any time, and undone. The server executes the release of a token only after its acquire.
/// Each acquire that the server may execute is undone.
pub fn a_release_is_behind_its_acquire() {
    releases_behind_acquires(rig());
}

/// The same, while the server waits for a replica.
pub fn a_release_is_behind_its_acquire_and_a_wait() {
    releases_behind_acquires(rig_with_replica());
}

fn releases_behind_acquires(rig: Rig) {
    let soon = world::now().after(PATIENCE / 4);
    let later = world::now().after(PATIENCE / 2);
    let threads = ["a", "b", "c"].map(|token| {
        rig.spawn(move |rig| {
            let taken = rig.call(&acquire(token), soon);
            if taken == End::Left(Progress::Unsent) {
                return false;
            }
            // A release is written even if it is given up before.
            rig.call(&release(token), later);
            true
        })
    });
    world::pass_until(soon);
    thread::yield_now();
    world::pass_until(later);
    let server = rig.serve();
    let written = threads.map(|thread| thread.join().unwrap());
    rig.flush();
    let executed = rig.server.executed();
    for (token, was_written) in ["a", "b", "c"].into_iter().zip(written) {
        let of_token: Vec<&Said> = executed
            .iter()
            .filter(|said| matches!(said, Said::Acquire(other) | Said::Release(other) if other == token))
            .collect();
        let both = [&Said::Acquire(token.into()), &Said::Release(token.into())];
        assert_eq!(of_token, if was_written { both.to_vec() } else { Vec::new() }, "of {executed:?}");
    }
    rig.end();
    server.join().unwrap();
}

/// A call at the end is written after everything that any thread has left to others.
pub fn what_is_left_is_written() {
    let rig = rig();
    let server = rig.serve();
    let leave = |token: &'static str| rig.spawn(move |rig| rig.post(token, |_| ()));
    let threads = ["a", "b", "c"].map(leave);
    let number = rig.spawn(|rig| assert_eq!(rig.number(1, Tick::NEVER), End::Reply(WireReply::Int(1))));
    join(threads);
    rig.flush();
    for token in ["a", "b", "c"] {
        assert!(rig.server.executed().contains(&Said::Release(token.into())), "{token} was not written");
    }
    number.join().unwrap();
    rig.end();
    server.join().unwrap();
}

/// The connection breaks at any time. Each call gets a reply or the error. If the error says that a call was not
/// written, the server did not execute it.
pub fn a_connection_that_breaks() {
    let rig = rig();
    let server = rig.serve();
    let threads = [1, 2, 3].map(|n: u64| {
        rig.spawn(move |rig| {
            let end = rig.number(n, Tick::NEVER);
            match end {
                End::Reply(reply) => assert_eq!(reply, WireReply::Int(n.cast_signed())),
                End::Cut { was_written } => {
                    assert!(was_written || !rig.server.executed().contains(&Said::Number(n)), "was written");
                }
                End::Left(progress) => panic!("{progress:?} before its time"),
            }
        })
    });
    rig.server.cut();
    join(threads);
    server.join().unwrap();
    rig.end();
}

/// A thread that neither reads nor writes closes the connection at any time. No call gets the reply to another call.
pub fn a_connection_that_another_thread_closes() {
    let rig = rig();
    let server = rig.serve();
    let threads = [10, 20, 30, 40].map(|first| {
        rig.spawn(move |rig| {
            for n in first..first + 2 {
                match rig.number(n, Tick::NEVER) {
                    End::Reply(reply) => assert_eq!(reply, WireReply::Int(n.cast_signed())),
                    End::Cut { .. } => {}
                    End::Left(progress) => panic!("{progress:?} before its time"),
                }
            }
        })
    });
    let closer = rig.spawn(|rig| rig.connection.close(Broken::Closed("another thread closes it".into())));
    join(threads.into_iter().chain([closer]));
    server.join().unwrap();
    rig.end();
}

/// The server sends a reply too much. No call gets it that was not written before, and the connection ends.
pub fn a_reply_that_no_call_expects() {
    let rig = rig();
    let server = rig.serve();
    let threads = [1, 2, 3].map(|n: u64| {
        rig.spawn(move |rig| {
            // A call that was written before can get the wrong reply: nothing tells it from the right one. No call gets
            // one before the server has executed it or the wrong reply was sent.
            if let End::Reply(WireReply::Int(reply)) = rig.number(n, Tick::NEVER) {
                assert!(reply == 666 || rig.server.executed().contains(&Said::Number(reply.cast_unsigned())));
            }
        })
    });
    rig.server.send_too_much();
    join(threads);
    // Whoever reads next finds that too much has come. Until then, a call gets the reply to the one before it.
    while !rig.connection.is_closed() {
        rig.number(9, Tick::NEVER);
        rig.connection.close(Broken::Closed("the test".into()));
    }
    server.join().unwrap();
    rig.end();
}

/// The socket has room for a few bytes at a time. All calls are written in order, by threads that read and by the drain
/// thread.
pub fn a_socket_without_room() {
    let rig = rig();
    rig.server.be_narrow();
    let server = rig.serve();
    let threads = ["a", "b"].map(|token| {
        rig.spawn(move |rig| {
            rig.post(token, |_| ());
            let n = u64::from(token.as_bytes()[0]);
            assert_eq!(rig.number(n, Tick::NEVER), End::Reply(WireReply::Int(n.cast_signed())));
        })
    });
    let time = Passing::start(Duration::from_millis(1));
    join(threads);
    rig.flush();
    time.stop();
    rig.end();
    server.join().unwrap();
}

/// The socket has no room for a node timeout. The connection breaks, and each call learns of it.
pub fn a_server_that_does_not_read() {
    let rig = rig();
    rig.server.be_full();
    let threads =
        [1, 2, 3].map(|n: u64| rig.spawn(move |rig| assert!(matches!(rig.number(n, Tick::NEVER), End::Cut { .. }))));
    let time = Passing::start(PATIENCE / 4);
    join(threads);
    time.stop();
    rig.end();
}

/// Threads call two servers in opposite orders. They cause no deadlock.
pub fn several_servers() {
    let rigs = [rig(), rig()];
    let servers: Vec<_> = rigs.iter().map(Rig::serve).collect();
    let threads = [[0, 1], [1, 0], [0, 1]].map(|order| {
        let rigs = rigs.clone();
        thread::spawn(move || {
            let round = Round::new(2);
            let sent = order.map(|index| rigs[index].send(&round, index, &number(index as u64), false));
            assert!(wait(&round, &sent, false, Tick::NEVER, &ModelClock));
            for index in [0, 1] {
                assert_eq!(outcome(&round, index), End::Reply(WireReply::Int(i64::try_from(index).unwrap())));
            }
        })
    });
    join(threads);
    for rig in rigs {
        rig.stop();
    }
    world::until_all_threads_ended();
    join(servers);
}

/// One of two servers hangs after a while. Calls to the other server are still written and executed.
pub fn a_server_that_hangs_beside_another_one() {
    let rigs = [rig(), rig()];
    let well = rigs[1].serve();
    let hangs = rigs[0].spawn(|rig| _ = rig.server.execute());
    let threads = [1, 2, 3].map(|n: u64| {
        let rigs = rigs.clone();
        thread::spawn(move || {
            let round = Round::new(2);
            let sent = [0, 1].map(|index| rigs[index].send(&round, index, &number(n), false));
            assert!(wait(&round, &sent, false, Tick::NEVER, &ModelClock));
            for index in [0, 1] {
                assert_eq!(outcome(&round, index), End::Reply(WireReply::Int(n.cast_signed())));
            }
        })
    });
    let time = Passing::start(PATIENCE / 8);
    rigs[1].server.wait_until_executed(3);
    let hung = rigs[0].serve();
    join(threads);
    time.stop();
    for rig in rigs {
        rig.stop();
    }
    world::until_all_threads_ended();
    join([well, hangs, hung]);
}

/// Threads take locks that a replica must have, release them, and make other calls meanwhile. Acquires that come while
/// the server waits for the replica are written once it has answered. Time passes in steps of this length.
fn locks_on_a_replica(rig: Rig, step: Option<Duration>) {
    let (server, time) = (rig.serve(), step.map(Passing::start));
    let threads = ["a", "b", "c", "d"].map(|token| {
        rig.spawn(move |rig| {
            assert!(matches!(rig.call(&acquire(token), Tick::NEVER), End::Reply(_)));
            if token < "c" {
                assert!(matches!(rig.call(&release(token), Tick::NEVER), End::Reply(_)));
            } else {
                rig.post(token, |_| ());
            }
        })
    });
    let number = rig.spawn(|rig| assert_eq!(rig.number(1, Tick::NEVER), End::Reply(WireReply::Int(1))));
    join(threads.into_iter().chain([number]));
    rig.flush();
    time.into_iter().for_each(Passing::stop);
    rig.end();
    server.join().unwrap();
}

/// No time passes, so a lost wake-up is a deadlock.
pub fn replicas_are_asked() {
    locks_on_a_replica(rig_with_replica(), None);
}

/// Time passes, so threads find the reader waiting.
pub fn replicas_are_asked_over_a_network() {
    locks_on_a_replica(rig_with_replica(), Some(Duration::from_micros(20)));
}

/// The system starts no thread.
pub fn replicas_are_asked_without_a_drain_thread() {
    locks_on_a_replica(Rig::with_replica(Arc::new(Threadless)), Some(Duration::from_millis(1)));
}

/// Threads send several acquires at a time, as multi-locks do.
pub fn many_acquires_at_a_time() {
    let rig = rig_with_replica();
    let server = rig.serve();
    let threads = ["a", "b", "c", "d"].map(|token| {
        rig.spawn(move |rig| {
            let round = Round::new(4);
            let sent = [0, 1, 2, 3].map(|index| rig.send(&round, index, &acquire(token), true));
            rig.connection.flush();
            assert!(wait(&round, &sent, false, Tick::NEVER, &ModelClock));
        })
    });
    join(threads);
    rig.end();
    server.join().unwrap();
}

/// The connection breaks at any time while the server waits for a replica. No thread waits forever.
pub fn a_connection_that_breaks_while_replicas_are_asked() {
    let rig = rig_with_replica();
    let server = rig.serve();
    let threads = ["a", "b", "c"].map(|token| {
        rig.spawn(move |rig| {
            if let End::Cut { was_written: false } = rig.call(&acquire(token), Tick::NEVER) {
                assert!(!rig.server.executed().contains(&Said::Acquire(token.into())), "was written");
            }
            rig.call(&release(token), Tick::NEVER);
        })
    });
    rig.server.cut();
    join(threads);
    server.join().unwrap();
    rig.end();
}

/// A thread is woken to read from one server, and leaves at that moment because its connection to another server
/// breaks. It wakes a thread that waits for the first server only.
pub fn a_break_while_a_thread_is_woken() {
    let rigs = [rig(), rig()];
    let well = rigs[0].serve();
    let both = {
        let rigs = rigs.clone();
        thread::spawn(move || {
            let round = Round::new(2);
            let sent = [0, 1].map(|index| rigs[index].send(&round, index, &number(1), false));
            assert!(wait(&round, &sent, false, Tick::NEVER, &ModelClock));
            if round.give_up(0) {
                rigs[0].connection.abandon(sent[0].number);
            }
        })
    };
    let single = [2, 3].map(|n: u64| {
        rigs[0].spawn(move |rig| assert_eq!(rig.number(n, Tick::NEVER), End::Reply(WireReply::Int(n.cast_signed()))))
    });
    rigs[1].server.cut();
    join(single.into_iter().chain([both]));
    rigs[0].flush();
    for rig in rigs {
        rig.stop();
    }
    world::until_all_threads_ended();
    join([well]);
}
