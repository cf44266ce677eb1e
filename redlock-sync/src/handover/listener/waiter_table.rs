//! The waiting threads, the one that reads, and the notification connection: all that is under the one lock of
//! [`Waiters`](super::waiters::Waiters).
//!
//! | step | under the lock | after it |
//! |---|---|---|
//! | a thread begins to sleep | takes its kept notification; else the connection, if it is there | reads, or sleeps |
//! | the reader got a message | keeps it for its wait | wakes that wait's thread, if it sleeps |
//! | the reader ends its sleep | puts the connection back, names the youngest sleeper the next reader | wakes it |
//! | the next reader woke | takes the connection, if it is there | reads |
//! | the next reader ends its sleep | names another next reader | wakes it |
//!
//! [`WaiterTable::is_sound`] is the invariant. It holds whenever the lock is free. While a wait sleeps, there is no
//! connection, or a thread reads it, or a thread was woken as the next reader. So no notification stays unread. A
//! thread that gives up the connection, or its place as next reader, names another one in the same step
//! ([`WaiterTable::wake_next_reader`]). A thread that panics does so when its [`ListenerWait`](super::ListenerWait) is
//! dropped.
//!
//! The next reader may come too late: a thread that just begins to sleep takes the connection first. Then the next
//! reader finds none and sleeps on.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::connection_state::{self, ConnectionState, Heartbeat, Subscription, Up};
use super::notification::Notification;
use crate::clock::Tick;
use crate::node::{Heard, Subscriber};
use crate::sync::Condvar;

/// The longest sleep of a thread that does not read. The reader wakes it when something is there for it. After the
/// machine was suspended, the reader wakes all ([`SUSPENDED`]). Without a reader, a timer can be late by this much.
const LONGEST_SLEEP_WITHOUT_READING: Duration = Duration::from_secs(60);
/// If a read took this much longer than it should, the machine was suspended. Condition variables do not count that
/// time.
const SUSPENDED: Duration = Duration::from_secs(5);
/// A connection without waits is closed after this time.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);
/// A connection that breaks sooner than this after it was made counts as a failure.
const SHORT_LIFE: Duration = Duration::from_secs(10);
/// The pause after a refusal.
const REFUSED_PAUSE: Duration = Duration::from_secs(60);
/// Most notifications that are kept for one wait. Usually there are one or two, since hints are rare.
const MOST_KEPT: usize = 16;

/// How a sleep ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Woken {
    Notified(Notification),
    Timer,
    /// The client has subscribed again, or was refused. The caller asks for the subscription.
    Connected,
    Closed,
}

/// What ends the sleep of a wait besides its timer and a notification. `watching.rs` detects it. The sleep then returns
/// [`Woken::Timer`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Awaits {
    Nothing,
    /// The lock with this key is free, or granted to this wait, or its queue has lost the wait. Checked once a second,
    /// for all waits of the client together.
    Lock {
        key: Arc<str>,
        queue: Arc<str>,
        wait: Arc<str>,
    },
    /// This sorted set is gone, or one of its members has ended, which cannot happen before the given moment. Once a
    /// second the client checks that the sets of all its waits exist. It reads a set only at that moment, unless it
    /// watches few sets.
    Set(Arc<str>, Tick),
    /// A server can be reached again.
    Servers,
    /// A task is due. Such a wait makes a claim every few seconds, so heartbeats are sent less often.
    Task,
}

/// Work that must not be done by a waiting thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BackgroundTask {
    /// After this pause: make one attempt to connect.
    Connect(Duration),
    /// Publish a heartbeat on this channel.
    Heartbeat(Subscription),
    /// Wake the thread that reads this channel.
    WakeReader(Subscription),
    /// After this pause: close the connection if no thread waits.
    CloseIfIdle(Duration),
    /// Release what was granted to this wait, which this client no longer has.
    LateGrant(String, Notification),
}

/// What follows from a step, once the lock is free.
#[derive(Default)]
pub(super) struct FollowUp {
    pub(super) tasks: Vec<BackgroundTask>,
    /// Closing a connection can take a moment.
    closed: Vec<Box<dyn Subscriber>>,
}

impl FollowUp {
    pub(super) fn is_empty(&self) -> bool {
        self.tasks.is_empty() && self.closed.is_empty()
    }
}

/// What a thread that wants to sleep does next.
pub(super) enum NextStep {
    Woken(Woken),
    Read(Box<dyn Subscriber>, Duration),
    Sleep(Arc<Condvar>, Duration),
}

/// One wait.
pub(super) struct WaitState {
    wakeup: Arc<Condvar>,
    pub(super) notifications: VecDeque<Notification>,
    pub(super) awaits: Awaits,
    /// It may be in a server queue after its end.
    outlives: bool,
    /// The event that it awaits has happened.
    pub(super) must_check: bool,
    /// The number of subscription changes that it has seen.
    seen_changes: u64,
}

#[derive(Default)]
pub(crate) struct WaiterTable {
    last_number: u64,
    /// By number. The order matters: the simulation is reproducible only if threads are woken in a fixed order.
    pub(super) waits: BTreeMap<u64, WaitState>,
    /// Waits that sleep and have no reason to wake yet.
    pub(super) sleeping: BTreeSet<u64>,
    /// Woken to read the connection.
    next_reader: Option<u64>,
    pub(super) connection: ConnectionState,
    /// The channel that is subscribed, or will be.
    pub(crate) channel: Option<Arc<str>>,
    /// Number of waits of this channel that are over, and may still be in a server queue.
    outlived: usize,
    /// Raised by each subscription that is confirmed or refused.
    changes: u64,
    is_refused: bool,
    is_closed: bool,
    /// Attempts to connect that failed in a row, and connections in a row that broke soon.
    failures: u32,
    short_lives: u32,
    idle_since: Tick,
    is_closing_planned: bool,
    pub(super) follow_up: FollowUp,
}

impl WaiterTable {
    pub(super) fn is_sound(&self) -> bool {
        let is_unread = matches!(&self.connection, ConnectionState::Up(up) if up.conn.is_some());
        !is_unread || self.sleeping.is_empty() || self.next_reader.is_some()
    }

    // --- waits ---

    pub(crate) fn begin(&mut self) -> u64 {
        self.last_number += 1;
        let wait = WaitState {
            wakeup: Arc::new(Condvar::new()),
            notifications: VecDeque::new(),
            awaits: Awaits::Nothing,
            must_check: false,
            outlives: false,
            seen_changes: self.changes,
        };
        self.waits.insert(self.last_number, wait);
        if matches!(self.connection, ConnectionState::Down) {
            self.connect_after(Duration::ZERO);
        }
        self.last_number
    }

    /// Says that the wait may be in a server queue after its end. Then grants that it has not taken, and later ones,
    /// are released.
    pub(crate) fn outlive(&mut self, number: u64) {
        if let Some(wait) = self.waits.get_mut(&number) {
            wait.outlives = true;
        }
    }

    /// The wait is over.
    pub(crate) fn end(&mut self, number: u64, now: Tick) {
        let Some(wait) = self.waits.remove(&number) else { return };
        self.stop_sleeping(number);
        if let Some(channel) = self.channel.clone().filter(|_| wait.outlives) {
            self.outlived += 1;
            wait.notifications.into_iter().for_each(|notification| self.late_grant(&channel, number, notification));
        }
        if self.waits.is_empty() {
            self.last_has_gone(now);
        }
    }

    pub(crate) fn subscription(&mut self, number: u64) -> Option<Subscription> {
        if let Some(wait) = self.waits.get_mut(&number) {
            wait.seen_changes = self.changes;
        }
        self.connection.subscription().cloned()
    }

    pub(crate) fn polls(&self) -> bool {
        self.is_refused && self.connection.subscription().is_none()
    }

    /// One step of a thread that sleeps or begins to.
    pub(super) fn step(&mut self, number: u64, until: Tick, now: Tick, timeout: Duration) -> NextStep {
        if let Some(woken) = self.woken(number, until, now) {
            self.stop_sleeping(number);
            return NextStep::Woken(woken);
        }
        let taken = self.take_conn(now, timeout);
        self.next_reader.take_if(|next| *next == number);
        if let Some((conn, read_for)) = taken {
            self.sleeping.remove(&number);
            return NextStep::Read(conn, read_for.min(until.since(now)));
        }
        self.sleeping.insert(number);
        match self.waits.get(&number) {
            Some(wait) => {
                NextStep::Sleep(Arc::clone(&wait.wakeup), until.since(now).min(LONGEST_SLEEP_WITHOUT_READING))
            }
            None => NextStep::Woken(Woken::Closed),
        }
    }

    fn woken(&mut self, number: u64, until: Tick, now: Tick) -> Option<Woken> {
        let Some(wait) = self.waits.get_mut(&number).filter(|_| !self.is_closed) else { return Some(Woken::Closed) };
        if let Some(notification) = wait.notifications.pop_front() {
            return Some(Woken::Notified(notification));
        }
        if wait.seen_changes < self.changes {
            wait.seen_changes = self.changes;
            return Some(Woken::Connected);
        }
        (now >= until || std::mem::take(&mut wait.must_check)).then_some(Woken::Timer)
    }

    fn stop_sleeping(&mut self, number: u64) {
        self.sleeping.remove(&number);
        self.next_reader.take_if(|next| *next == number);
        self.wake_next_reader();
    }

    /// Names the youngest sleeper the next reader, if the connection is there and no thread was named. The youngest
    /// will probably wait longest. Each step that puts the connection back, or ends a sleep, calls this before it frees
    /// the lock.
    pub(super) fn wake_next_reader(&mut self) {
        let is_unread = matches!(&self.connection, ConnectionState::Up(up) if up.conn.is_some());
        if is_unread && self.next_reader.is_none() {
            self.next_reader = self.sleeping.last().copied();
            self.next_reader.iter().for_each(|number| self.wake(*number));
        }
    }

    pub(super) fn wake(&self, number: u64) {
        if let Some(wait) = self.waits.get(&number) {
            wait.wakeup.notify_one();
        }
    }

    /// Makes all sleeping threads check the table.
    fn wake_all(&self) {
        self.sleeping.iter().for_each(|number| self.wake(*number));
    }

    // --- the connection ---
    /// Takes the connection, to read it for at most the returned time.
    fn take_conn(&mut self, now: Tick, timeout: Duration) -> Option<(Box<dyn Subscriber>, Duration)> {
        let every = self.heartbeat_interval();
        let ConnectionState::Up(up) = &mut self.connection else { return None };
        up.conn.as_ref()?;
        if up.has_failed() {
            self.broke(None, now);
            return None;
        }
        let (asks, read_for) = up.before_read(now, timeout, every);
        if asks {
            self.follow_up.tasks.push(BackgroundTask::Heartbeat(up.subscription.clone()));
        }
        up.conn.take().map(|conn| (conn, read_for))
    }

    /// Takes the connection back after a read.
    pub(super) fn read_ended(&mut self, conn: Box<dyn Subscriber>, heard: Heard, now: Tick, timeout: Duration) {
        let ConnectionState::Up(up) = &mut self.connection else { return self.follow_up.closed.push(conn) };
        let was_suspended = now.since(up.reads_since) > SUSPENDED;
        if self.is_closed {
            self.follow_up.closed.push(conn);
            self.connection = ConnectionState::Down;
            return;
        }
        match heard {
            Heard::Broken(why) => {
                log::debug!("the notification connection broke: {why}");
                return self.broke(Some(conn), now);
            }
            Heard::Nothing if up.missed_heartbeat(timeout) => {
                log::debug!("the notification connection delivered no message, but one was published on its channel");
                return self.broke(Some(conn), now);
            }
            Heard::Nothing => up.conn = Some(conn),
            Heard::Message(text) => {
                up.message_arrived();
                up.conn = Some(conn);
                self.deliver(&text);
            }
        }
        if was_suspended {
            self.wake_all();
        }
    }

    /// Closes a broken connection. The reader returns it, or it is here, or it is lost with a thread that panicked.
    pub(super) fn broke(&mut self, conn: Option<Box<dyn Subscriber>>, now: Tick) {
        self.follow_up.closed.extend(conn);
        let ConnectionState::Up(up) = std::mem::replace(&mut self.connection, ConnectionState::Down) else { return };
        self.follow_up.closed.extend(up.conn);
        self.next_reader = None;
        let is_short = now.since(up.since) < SHORT_LIFE;
        self.short_lives = if is_short { self.short_lives + 1 } else { 0 };
        self.connect_after(connection_state::pause(self.short_lives));
    }

    fn deliver(&mut self, text: &[u8]) {
        let Some(channel) = self.channel.clone() else { return };
        let Some((numbers, notification)) = Notification::read(text, &channel) else { return };
        for number in numbers {
            let notification = notification.clone();
            if let Some(wait) = self.waits.get_mut(&number) {
                if wait.notifications.len() >= MOST_KEPT {
                    wait.notifications.pop_front();
                }
                wait.notifications.push_back(notification);
                if self.sleeping.remove(&number) {
                    self.wake(number);
                }
            } else {
                self.late_grant(&channel, number, notification);
            }
        }
    }

    /// A notification to a wait that is over. A server that became the master without the last writes can have such
    /// waits in its queues, too. A hint to one is ignored: the other waits find the lock by their own attempts.
    fn late_grant(&mut self, channel: &str, number: u64, notification: Notification) {
        if notification.random.is_some() {
            self.follow_up.tasks.push(BackgroundTask::LateGrant(format!("{channel}/{number}"), notification));
        }
    }

    /// Records the outcome of a heartbeat.
    pub(crate) fn heartbeat_ended(&mut self, generation: u64, heartbeat: Heartbeat, now: Tick) {
        let ConnectionState::Up(up) = &mut self.connection else { return };
        if up.subscription.generation != generation {
            return;
        }
        up.heartbeat_ended(heartbeat);
        if up.has_failed() && up.conn.is_some() {
            self.broke(None, now);
        }
    }

    // --- connecting ---

    fn connect_after(&mut self, pause: Duration) {
        self.connection = ConnectionState::Down;
        if !self.is_closed && !self.waits.is_empty() {
            self.connection = ConnectionState::Coming;
            self.follow_up.tasks.push(BackgroundTask::Connect(pause));
        }
    }

    /// Begins an attempt to connect. False if it is not needed any more.
    pub(crate) fn attempt(&mut self) -> bool {
        if matches!(self.connection, ConnectionState::Up(_)) {
            return false;
        }
        let is_needed = !self.is_closed && !self.waits.is_empty();
        self.connection = if is_needed { ConnectionState::Coming } else { ConnectionState::Down };
        is_needed
    }

    /// Installs a confirmed subscription, and delivers the message that arrived meanwhile.
    pub(crate) fn install(&mut self, subscription: Subscription, conn: Box<dyn Subscriber>, first: &[u8], now: Tick) {
        if self.is_closed || self.channel.as_ref() != Some(&subscription.channel) {
            self.follow_up.closed.push(conn);
            return self.connect_after(Duration::ZERO);
        }
        self.announce_change();
        let subscription = Subscription { generation: self.changes, ..subscription };
        self.connection = ConnectionState::Up(Up::new(subscription, conn, now));
        self.is_refused = false;
        self.failures = 0;
        self.deliver(first);
        if self.waits.is_empty() {
            self.last_has_gone(now);
        }
    }

    pub(crate) fn refused(&mut self) {
        self.is_refused = true;
        self.announce_change();
        self.connect_after(REFUSED_PAUSE);
    }

    /// An attempt to connect failed. If the node is left out, the attempt ended before it began, and the next one costs
    /// nothing.
    pub(crate) fn failed(&mut self, is_left_out: bool) {
        if matches!(self.connection, ConnectionState::Up(_)) {
            return;
        }
        self.failures = self.failures.saturating_add(u32::from(!is_left_out));
        // Without a connection, no heartbeat checks their locks.
        let unwatched: Vec<u64> = self.due_checks(Tick::ZERO).iter().map(|check| check.number).collect();
        self.wake_to_check(unwatched);
        self.connect_after(if is_left_out {
            connection_state::FIRST_PAUSE
        } else {
            connection_state::pause(self.failures)
        });
    }

    /// An attempt ended without an outcome, and no other one is planned.
    pub(crate) fn gave_up(&mut self) {
        if matches!(self.connection, ConnectionState::Coming) {
            self.connection = ConnectionState::Down;
        }
    }

    fn announce_change(&mut self) {
        self.changes += 1;
        self.wake_all();
        self.sleeping.clear();
        self.next_reader = None;
    }

    // --- the end ---

    /// The last wait is over. From now on, grants to ended waits could not be released. So the channel ends, and
    /// releases skip the ended waits.
    fn last_has_gone(&mut self, now: Tick) {
        self.idle_since = now;
        if std::mem::take(&mut self.outlived) > 0 {
            self.channel = None;
            self.close_connection();
        }
        self.plan_closing(IDLE_TIMEOUT);
    }

    fn plan_closing(&mut self, pause: Duration) {
        if matches!(self.connection, ConnectionState::Up(_)) && !self.is_closing_planned {
            self.is_closing_planned = true;
            self.follow_up.tasks.push(BackgroundTask::CloseIfIdle(pause));
        }
    }

    /// Closes the connection if no thread has waited for long enough.
    pub(crate) fn close_if_idle(&mut self, now: Tick) {
        self.is_closing_planned = false;
        if !self.waits.is_empty() {
            return;
        }
        match IDLE_TIMEOUT.saturating_sub(now.since(self.idle_since)) {
            Duration::ZERO => self.close_connection(),
            left => self.plan_closing(left),
        }
    }

    /// Closes the connection, if no thread reads it.
    fn close_connection(&mut self) {
        if let ConnectionState::Up(up) = &mut self.connection
            && let Some(conn) = up.conn.take()
        {
            self.follow_up.closed.push(conn);
            self.connection = ConnectionState::Down;
        }
    }

    /// Ends all waits. Returns the subscription on which a thread reads that must be woken, if there is one.
    pub(crate) fn close(&mut self) -> Option<Subscription> {
        self.is_closed = true;
        self.wake_all();
        self.close_connection();
        self.connection.subscription().cloned()
    }
}
