//! Replies on one connection, in pieces of any size.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use redlock_tests::eventually;

use super::peer::Peer;
use super::*;

/// Makes calls in several threads, and checks that each gets its own replies.
fn calls_of(threads: u64, each: u64, connection: &Arc<Connection>) {
    thread::scope(|scope| {
        for t in 0..threads {
            scope.spawn(move || {
                for n in 0..each {
                    let n = t * 1000 + n;
                    assert_eq!(ask(connection, n, soon()), answer(n));
                }
            });
        }
    });
    assert!(!connection.is_busy());
}

#[test]
fn each_thread_gets_its_own_replies() {
    let peer = Peer::start();
    calls_of(1, 200, &peer.connected());
    calls_of(12, 200, &peer.connected());
}

#[test]
fn replies_that_come_byte_by_byte() {
    let peer = Peer::start();
    peer.in_pieces(1);
    calls_of(6, 30, &peer.connected());
}

/// Cuts the connection after each byte of two replies. Each call gets its whole reply or learns that the connection
/// broke.
#[test]
fn a_connection_that_is_cut_after_each_byte() {
    let long = "*2\r\n:1\r\n$1\r\nx\r\n*1\r\n:1\r\n".len();
    for bytes in 0..=long {
        let peer = Peer::start();
        peer.cut_after(bytes);
        let connection = peer.connected();
        let ends: Vec<End> = thread::scope(|scope| {
            let acquire = scope.spawn(|| call(&connection, &script(Purpose::Acquire, "t"), soon()));
            let acquired = acquire.join().unwrap();
            vec![acquired, call(&connection, &script(Purpose::Release, "t"), soon())]
        });
        let [acquired, released] = &ends[..] else { panic!("{ends:?}") };
        let whole = |end: &End, text: &str| *end == End::Reply(WireReply::Raw(text.into()));
        let is_cut = |end: &End| matches!(end, End::Disconnected { .. });
        assert!(whole(acquired, "*2\r\n:1\r\n$1\r\nx\r\n") || bytes < 16 && is_cut(acquired), "{bytes}: {acquired:?}");
        assert!(whole(released, "*1\r\n:1\r\n") || is_cut(released), "{bytes}: {released:?}");
        assert_eq!(whole(released, "*1\r\n:1\r\n"), bytes >= long, "{bytes}: {released:?}");
    }
}

/// Closes the connection between the write and the reply. Each waiting call learns of it, and later calls are not
/// written.
#[test]
fn a_connection_that_is_killed_between_write_and_read() {
    let peer = Peer::start();
    let connection = peer.connected();
    assert_eq!(ask(&connection, 1, soon()), answer(1));
    peer.close_at_next_call();
    thread::scope(|scope| {
        for n in 0..8 {
            let connection = &connection;
            scope.spawn(move || assert!(matches!(ask(connection, n, soon()), End::Disconnected { .. })));
        }
    });
    assert!(connection.is_closed());
    assert_eq!(ask(&connection, 2, soon()), End::Disconnected { was_written: false });
    assert_eq!((peer.log(), connection.is_busy()), (vec!["1".to_owned()], false));
}

/// Another thread closes the connection during calls.
#[test]
fn a_connection_that_is_ended_while_threads_wait() {
    let peer = Peer::start();
    peer.fall_silent();
    let connection = peer.connected();
    let ended = AtomicUsize::new(0);
    thread::scope(|scope| {
        for n in 0..6 {
            let (connection, ended) = (&connection, &ended);
            scope.spawn(move || {
                assert!(matches!(ask(connection, n, soon()), End::Disconnected { .. }));
                ended.fetch_add(1, Ordering::SeqCst);
            });
        }
        eventually("all calls are on their way", SOON, || connection.unanswered() == 6);
        assert_eq!(ended.load(Ordering::SeqCst), 0);
        connection.close(super::super::halves::Broken::Closed("ended".into()));
    });
}

/// Calls for which no thread waits are executed in order, and their replies go to no other call.
#[test]
fn calls_for_which_no_thread_waits() {
    let peer = Peer::start();
    let connection = peer.connected();
    let mut expected = Vec::new();
    for n in 0..50 {
        let token = format!("t{n}");
        post(&connection, &token);
        if n % 3 == 0 {
            assert_eq!(ask(&connection, n, soon()), answer(n));
        }
        expected.push(format!("-{token}"));
    }
    eventually("the drain thread reads what is left", SOON, || !connection.is_busy());
    let releases: Vec<String> = peer.log().into_iter().filter(|said| said.starts_with('-')).collect();
    assert_eq!(releases, expected);
}
