//! How a thread waits for the outcomes of its round, and for connections.
//!
//! It reads from the connections with its unanswered calls, one at a time. If other threads read from all of them, it
//! sleeps. A thread that stops reading wakes one of the sleeping threads, which reads next. So somebody reads as long
//! as somebody sleeps:
//!
//! 1. The thread goes to sleep only after it has seen, under the mutex of each of these connections, that the reading
//!    half is away: another thread has it, or was woken to take it. Under the same mutex it has marked its call. Who
//!    brings the half back finds the mark.
//! 2. A thread that was woken to read either takes the half, or wakes the next one ([`pass_on`]), or finds that another
//!    thread has taken it. That thread will bring it back.
//! 3. The thread that was woken may get no processor time. So each sleeping thread looks again after an eighth of a
//!    node timeout. It then takes a half that has lain there for as long.
//!
//! A connection that comes or fails wakes the rounds that wait for it (`order.rs`). A thread that reads is not
//! interrupted, so it looks at the end of each slice.

use std::sync::Arc;
use std::time::Duration;

use super::connection::Connection;
use super::round::Round;
use crate::clock::{Clock, Tick};

/// A thread that waits for something else too reads from one connection for this long at first, and then twice as long
/// each time.
const FIRST_SLICE: Duration = Duration::from_millis(1);

/// After a stall of the process, replies have arrived that another thread is about to deliver.
const AFTER_STALL: Duration = Duration::from_millis(5);

/// A call of a round that is on its way.
pub(crate) struct SentCall {
    /// Its index in the round.
    pub(crate) index: usize,
    pub(crate) connection: Arc<Connection>,
    /// Its number on the connection.
    pub(crate) number: u64,
}

/// Waits until each call has an outcome, or a connection broke, or the round is woken, or until the deadline. Replies
/// that have arrived by then are read. Returns false if the deadline ended the wait. `connects`: the thread also waits
/// for a connection; then no call need be on its way.
pub(crate) fn wait(round: &Round, sent: &[SentCall], connects: bool, by: Tick, clock: &dyn Clock) -> bool {
    let node_timeout = sent.iter().map(|call| call.connection.node_timeout).max().unwrap_or(Duration::MAX);
    let longest_slice = node_timeout / 8;
    let mut slice = (sent.len() > 1 || connects).then_some(FIRST_SLICE);
    let is_over = loop {
        let has_read = read_in_turn(round, sent, by, slice, clock);
        slice = slice.map(|slice| longest_slice.min(slice * 2));
        if !round.is_pending() {
            break true;
        }
        let now = clock.now();
        if now >= by {
            // What has arrived by now is read. After a stall of the process, the thread that reads gets a moment.
            let has_read = read_in_turn(round, sent, now, None, clock);
            if !has_read && now.since(by) >= longest_slice {
                sleep(round, sent, now.after(AFTER_STALL), now, clock);
            }
            break !round.is_pending();
        }
        if !has_read {
            sleep(round, sent, by, now, clock);
        }
    };
    pass_on(round, sent);
    is_over
}

/// Reads from one connection after the other, where no other thread reads, for a slice each. Never has two reading
/// halves, because the other threads of the second connection would wait for the first one. Returns whether it has
/// read.
fn read_in_turn(round: &Round, sent: &[SentCall], by: Tick, slice: Option<Duration>, clock: &dyn Clock) -> bool {
    let mut has_read = false;
    for SentCall { index, connection, .. } in sent {
        if round.awaits(*index)
            && let Some(reader) = connection.take_reader_for(round)
        {
            // It may have been woken to read from another connection. Not before it has a half: two threads that find
            // the half of this connection away would wake each other for ever.
            pass_on(round, sent);
            let until = slice.map_or(by, |slice| by.min(clock.now().after(slice)));
            connection.read_for(round, *index, reader, until);
            has_read = true;
        }
    }
    pass_on(round, sent);
    has_read
}

/// If this thread was woken to read, wakes others to read from these connections where no thread reads.
fn pass_on(round: &Round, sent: &[SentCall]) {
    if round.take_reads_next() {
        for call in sent {
            call.connection.wake_a_reader();
        }
    }
}

/// Sleeps until an outcome ends the wait, or the thread shall read, or until it looks again. Returns at once if the
/// thread can read.
fn sleep(round: &Round, sent: &[SentCall], by: Tick, now: Tick, clock: &dyn Clock) {
    // Before the marks. Who finds a mark looks whether the thread sleeps.
    let changed = round.begin_sleep();
    let awaited = sent.iter().filter(|call| round.is_awaited(call.index));
    let longest = awaited
        .map(|call| call.connection.may_sleep(call.number))
        .try_fold(Duration::MAX, |least, sleeps| Some(least.min(sleeps?)));
    round.sleep(&changed, longest.map(|longest| by.min(now.after(longest))), clock);
}

/// Waits until the callbacks of these connections have been called, until the deadline at most. Then they are told that
/// no reply came in time. A callback can send its call again.
pub(crate) fn finish(all: &dyn Fn() -> Vec<Arc<Connection>>, until: Tick, clock: &dyn Clock) {
    loop {
        let busy: Vec<_> = all().into_iter().filter(|connection| connection.has_callbacks()).collect();
        if busy.is_empty() {
            return;
        }
        if clock.now() >= until {
            return busy.iter().for_each(|connection| connection.give_up_callbacks());
        }
        let round = Round::new(busy.len());
        let ping = |(index, connection): (usize, Arc<Connection>)| {
            let number = connection.ping(round.recipient(index));
            SentCall { index, connection, number }
        };
        let pings: Vec<SentCall> = busy.into_iter().enumerate().map(ping).collect();
        // The reply to a `PING` comes behind all others. If a connection breaks, its callbacks are called at once.
        wait(&round, &pings, false, until, clock);
        for SentCall { index, connection, number } in &pings {
            if round.give_up(*index) {
                connection.abandon(*number);
            }
        }
    }
}
