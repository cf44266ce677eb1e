//! Processes die, keys are deleted, and keys have another type.

use std::thread;
use std::time::Instant;

use redlock_tests::{eventually, servers};

use super::{KEY, SOON, agent, brisk, held, is_clean, ms, open, until_waiting};

#[test]
fn kind_11_the_death_of_a_reader_takes_nothing_from_the_others() {
    for nodes in [1, 3] {
        let servers = servers(nodes);
        let locks = brisk(&servers, ms(3000));
        let reader = locks.rw_lock(KEY).read().unwrap();
        let mut dies = agent("read", ms(1200), &servers);
        dies.line();
        assert_eq!(held(&locks), (0, 2));
        dies.kill();
        eventually("only the live reader is left", SOON, || held(&locks) == (0, 1));
        reader.check().unwrap();
        reader.unlock().unwrap();
        drop(open(&servers).rw_lock(KEY).try_write_for(SOON).unwrap());
    }
}

#[test]
fn the_death_of_a_writer_lets_those_in_that_wait() {
    for nodes in [1, 3] {
        let servers = servers(nodes);
        let locks = open(&servers);
        let mut dies = agent("write", ms(1200), &servers);
        dies.line();
        thread::scope(|scope| {
            let reads = || open(&servers).rw_lock(KEY).try_read_for(SOON).unwrap().unlock().unwrap();
            let readers = [(); 4].map(|()| scope.spawn(reads));
            until_waiting(&servers, "readers", 4);
            dies.kill();
            for reader in readers {
                reader.join().unwrap();
            }
        });
        locks.rw_lock(KEY).try_write_for(SOON).unwrap().unlock().unwrap();
        eventually("nothing is left", SOON, || is_clean(&servers));
    }
}

#[test]
fn kind_12_a_writer_that_dies_while_it_waits_keeps_readers_out_no_longer() {
    for nodes in [1, 3] {
        let servers = servers(nodes);
        let (locks, others) = (open(&servers), open(&servers));
        let reader = locks.rw_lock(KEY).read().unwrap();
        let mut dies = agent("write", ms(2000), &servers);
        until_waiting(&servers, "writers", 1);
        assert!(others.rw_lock(KEY).try_read().unwrap_err().is_busy());
        dies.kill();
        drop(others.rw_lock(KEY).try_read_for(SOON).unwrap());
        reader.unlock().unwrap();
    }
}

/// The release grants the lock to a reader whose process is stopped and then killed. The writer behind it gets the lock
/// when the grant expires.
#[test]
fn kind_13_a_reader_that_dies_with_a_seat_costs_its_time() {
    let servers = servers(1);
    let locks = open(&servers);
    let writer = locks.rw_lock(KEY).write().unwrap();
    let mut dies = agent("read", ms(30_000), &servers);
    until_waiting(&servers, "readers", 1);
    thread::scope(|scope| {
        let next = scope.spawn(|| {
            let others = open(&servers);
            others.rw_lock(KEY).try_write_for(SOON).unwrap().unlock().unwrap();
            Instant::now()
        });
        until_waiting(&servers, "writers", 1);
        dies.stop();
        let released = Instant::now();
        writer.unlock().unwrap();
        // The server lists the reader as a holder, although the reader's process does not know of its grant.
        assert_eq!(locks.rw_lock(KEY).inspect().unwrap().len(), 1);
        dies.kill();
        let waited = next.join().unwrap() - released;
        assert!(waited > ms(1500) && waited < ms(15_000), "{waited:?}");
    });
    assert!(is_clean(&servers));
}

/// If a waiting writer gives up, then the readers that wait behind it get in.
#[test]
fn a_writer_that_gives_up_keeps_readers_out_no_longer() {
    for nodes in [1, 3] {
        let servers = servers(nodes);
        let (locks, others) = (open(&servers), open(&servers));
        let behind = [open(&servers), open(&servers)];
        let reader = locks.rw_lock(KEY).read().unwrap();
        thread::scope(|scope| {
            scope.spawn(|| assert!(others.rw_lock(KEY).try_write_for(ms(3000)).unwrap_err().is_busy()));
            until_waiting(&servers, "writers", 1);
            let readers =
                behind.each_ref().map(|locks| scope.spawn(|| drop(locks.rw_lock(KEY).try_read_for(SOON).unwrap())));
            for reader in readers {
                reader.join().unwrap();
            }
        });
        reader.unlock().unwrap();
        eventually("nothing is left", SOON, || is_clean(&servers));
    }
}

/// If a node restarts without its data, the holders are restored there although a writer waits.
#[test]
fn a_node_that_lost_its_data_is_filled_again() {
    let servers = servers(3);
    let locks = brisk(&servers, ms(3000));
    let reader = locks.rw_lock(KEY).read().unwrap();
    thread::scope(|scope| {
        let others = open(&servers);
        let writer = scope.spawn(move || drop(others.rw_lock(KEY).write().unwrap()));
        until_waiting(&servers, "writers", 1);
        servers[1].del(KEY);
        eventually("the node has the reader again", SOON, || servers[1].keys().iter().any(|key| key == KEY));
        reader.check().unwrap();
        reader.unlock().unwrap();
        writer.join().unwrap();
    });
}
