//! Models of the threads that read the notification connection in turn: `handover/listener`.
//!
//! Time stands still unless a model lets it pass. Then a notification arrives only if a thread reads. So a connection
//! that no thread reads is a deadlock.

use std::sync::Arc;
use std::time::Duration;

use shuttle::thread::{self, JoinHandle};

use crate::cancel::Cancel;
use crate::clock::Tick;
use crate::handover::listener::waiter_table::Woken;
use crate::listening::{Board, Rig, Time, all, end};
use crate::sync::Mutex;
use crate::world;

/// Each wait gets its own notifications, in any order, asleep or not. No time passes, so a lost wake-up is a deadlock.
pub fn each_hears_its_own() {
    let (rig, board) = (Rig::new(), Board::new());
    let threads = [1, 2, 1].map(|notifications| {
        let board = board.clone();
        rig.spawn(move |rig| {
            let wait = rig.begin();
            let subscription = wait.subscription();
            for _ in 0..notifications {
                board.put(&wait, subscription.clone());
                wait.heard();
            }
        })
    });
    for _ in 0..4 {
        let (number, channel) = board.take();
        assert!(rig.notify(number, &channel));
    }
    all(threads);
    end(&rig);
}

/// Two threads sleep until a given time. A third thread has no time limit and gets its notification, whichever thread
/// reads then.
pub fn readers_whose_time_is_up() {
    let (rig, board) = (Rig::new(), Board::new());
    let moment = world::now().after(Duration::from_millis(300));
    let hurried = [(); 2].map(|()| {
        rig.spawn(move |rig| {
            let wait = rig.begin();
            loop {
                match wait.sleep(moment) {
                    Woken::Timer => return assert!(world::now() >= moment, "before its time"),
                    other => assert_eq!(other, Woken::Connected),
                }
            }
        })
    });
    let patient = patient(&rig, &board);
    let time = Time::passes(&rig);
    let (number, channel) = board.take();
    assert!(rig.notify(number, &channel));
    all(hurried);
    patient.join().unwrap();
    time.stop();
    end(&rig);
}

/// A thread that waits for its notification.
fn patient(rig: &Rig, board: &Board) -> JoinHandle<()> {
    let board = board.clone();
    rig.spawn(move |rig| {
        let wait = rig.begin();
        board.put(&wait, wait.subscription());
        wait.heard();
    })
}

/// Two of three waits are cancelled, whether they read, sleep, or have not begun to. The third one gets its
/// notification. No time passes, so a cancellation that is missed is a deadlock.
pub fn cancelled_waits() {
    let (rig, board, cancel) = (Rig::new(), Board::new(), Cancel::new());
    let cancelled = [(); 2].map(|()| {
        let cancel = Cancel::within(Some(cancel.clone()));
        rig.spawn(move |rig| rig.begin().sleep_until_cancelled(&cancel))
    });
    let patient = patient(&rig, &board);
    cancel.cancel();
    all(cancelled);
    let (number, channel) = board.take();
    assert!(rig.notify(number, &channel));
    patient.join().unwrap();
    end(&rig);
}

/// The notification of a wait can come when its time is up. It is returned or kept, and other waits get theirs.
pub fn a_push_at_the_last_moment() {
    let (rig, board) = (Rig::new(), Board::new());
    let moment = world::now().after(Duration::from_millis(300));
    let threads = [moment, Tick::NEVER].map(|until| {
        let board = board.clone();
        rig.spawn(move |rig| {
            let wait = rig.begin();
            board.put(&wait, wait.subscription());
            match wait.sleep(until) {
                Woken::Notified(notification) => wait.assert_mine(&notification),
                Woken::Timer => assert!(world::now() >= until, "before its time"),
                other => panic!("{other:?}"),
            }
        })
    });
    let time = Time::passes(&rig);
    for _ in 0..2 {
        let (number, channel) = board.take();
        rig.notify(number, &channel);
    }
    all(threads);
    time.stop();
    end(&rig);
}

/// The connection breaks at any time. Each wait learns that there is a new connection, and gets its notification there.
pub fn a_connection_that_breaks() {
    let (rig, board) = (Rig::new(), Board::new());
    let threads = [(); 3].map(|()| {
        let board = board.clone();
        rig.spawn(move |rig| {
            let wait = rig.begin();
            let mut subscription = wait.subscription();
            while subscription.generation < 2 {
                assert_eq!(wait.sleep(Tick::NEVER), Woken::Connected);
                subscription = wait.subscription();
            }
            board.put(&wait, subscription);
            wait.heard();
        })
    });
    let breaker = rig.spawn(|rig| {
        let wait = rig.begin();
        wait.subscription();
        rig.cut();
    });
    for _ in 0..3 {
        let (number, channel) = board.take();
        assert!(rig.notify(number, &channel));
    }
    all(threads);
    breaker.join().unwrap();
    end(&rig);
}

/// Nothing arrives any more, and there is no error. When a heartbeat is missing, the connection is made again.
pub fn a_connection_that_falls_silent() {
    let rig = Rig::new();
    let threads = [(); 2].map(|()| {
        rig.spawn(|rig| {
            let wait = rig.begin();
            let subscription = wait.subscription();
            if let Some(socket) = rig.socket.lock().as_ref() {
                socket.inbox.lock().is_mute |= subscription.generation == 1;
            }
            if subscription.generation == 1 {
                assert_eq!(wait.sleep(Tick::NEVER), Woken::Connected);
            }
        })
    });
    let time = Time::passes(&rig);
    all(threads);
    time.stop();
    end(&rig);
}

/// The end of the client reaches all threads, including the reader and those that come at this moment. No time passes.
pub fn the_client_ends() {
    let rig = Rig::new();
    let threads = [(); 3].map(|()| {
        rig.spawn(|rig| {
            let wait = rig.begin();
            while wait.sleep(Tick::NEVER) != Woken::Closed {}
        })
    });
    rig.close();
    all(threads);
    end(&rig);
}

/// Waits end, and their ends are watched. A late notification still arrives as long as other threads wait. The channel
/// ends with the last wait.
pub fn ended_waits() {
    let rig = Rig::new();
    let threads = [(); 2].map(|()| {
        rig.spawn(move |rig| {
            let wait = rig.begin();
            let (number, channel) = (wait.number, wait.subscription().channel);
            rig.waiters.with(|table, _| table.outlive(number));
            drop(wait);
            // A release notifies the wait too late.
            rig.notify(number, &channel);
            (number, channel)
        })
    });
    let alive = rig.begin();
    alive.subscription();
    let ended = all(threads);
    // Notifications to ended waits on the channel of `alive` are read before its own notification.
    let subscription = alive.subscription();
    let mut expected: Vec<u64> =
        ended.iter().filter(|(_, channel)| *channel == subscription.channel).map(|(n, _)| *n).collect();
    assert!(rig.notify(alive.number, &subscription.channel));
    alive.heard();
    let late = std::mem::take(&mut *rig.late.lock());
    let mut late: Vec<u64> = late.into_iter().filter(|(_, number)| *number != alive.number).map(|(_, n)| n).collect();
    late.sort_unstable();
    expected.sort_unstable();
    assert_eq!(late, expected);
    drop(alive);
    world::until_all_threads_ended();
    if !expected.is_empty() {
        rig.assert_deaf();
        assert!(rig.waiters.with(|table, _| table.channel.is_none()), "the next connection has a new channel");
    }
}

/// A wait ends as in `ended_waits`, while the client subscribes to the channel. That subscription is discarded, and the
/// client makes another one.
pub fn an_ended_wait_before_there_is_a_connection() {
    let rig = Rig::new();
    let over = rig.begin();
    thread::yield_now();
    let before = rig.waiters.with(|table, _| table.channel.clone());
    rig.waiters.with(|table, _| table.outlive(over.number));
    drop(over);
    let alive = rig.begin();
    let subscription = alive.subscription();
    assert!(before.is_none_or(|before| before != subscription.channel), "the ended is heard again");
    assert!(rig.notify(alive.number, &subscription.channel));
    alive.heard();
    drop(alive);
    end(&rig);
}

/// Waits come and go. Their connection is closed some time after the last wait, and is made again for the next one. It
/// may also be found silent, with a notification that no thread has read. Then the wait is told to try, as at each new
/// connection, and finds its grant.
pub fn a_connection_that_rests() {
    let (rig, board) = (Rig::new(), Board::new());
    let (grants, over) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(Vec::new())));
    let threads = [(); 2].map(|()| {
        let (board, grants, over) = (board.clone(), Arc::clone(&grants), Arc::clone(&over));
        rig.spawn(move |rig| {
            let wait = rig.begin();
            board.put(&wait, wait.subscription());
            loop {
                match wait.sleep(Tick::NEVER) {
                    Woken::Notified(notification) => break wait.assert_mine(&notification),
                    Woken::Connected if grants.lock().contains(&wait.number) => break,
                    woken => assert_eq!(woken, Woken::Connected),
                }
            }
            over.lock().push(wait.number);
        })
    });
    let time = rig.spawn(|rig| {
        for _ in 0..3 {
            world::pass(Duration::from_secs(5));
            rig.rest();
        }
    });
    for _ in 0..2 {
        let (number, channel) = board.take();
        grants.lock().push(number);
        while !rig.notify(number, &channel) && !over.lock().contains(&number) {
            thread::yield_now();
        }
    }
    all(threads);
    time.join().unwrap();
    world::until_all_threads_ended();
    world::pass(Duration::from_secs(11));
    rig.rest();
    rig.assert_deaf();
}
