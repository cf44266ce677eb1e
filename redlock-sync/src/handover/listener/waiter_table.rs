//! The threads that wait, the one that reads, and the push connection: all that is under the one lock of
//! [`Waiters`](super::waiters::Waiters).
//!
//! | step | under the lock | after it |
//! |---|---|---|
//! | begins to sleep | takes what is kept for it; else takes the connection if it is there | reads; without it sleeps until its timer |
//! | the reader got a message | keeps it for its wait | wakes that thread, if it sleeps |
//! | the reader is done (push, timer, closed) | puts the connection back, marks the youngest that sleeps | wakes that thread |
//! | woken with the mark | takes the connection, if it is there | reads |
//! | ends its sleep (push, timer) while it has the mark | marks another | wakes it |
//!
//! [`WaiterTable::is_sound`] is what holds whenever the lock is free: while a wait sleeps, either there is no connection, or a
//! thread reads it, or a thread that was woken to read has the mark and is on its way. So no push stays unread: a
//! thread that leaves the connection, or a mark, passes it on in the same step ([`WaiterTable::wake_next_reader`]); one that panics
//! does so by dropping its [`ListenerWait`](super::ListenerWait). The mark may come too late: a thread that just begins to sleep takes
//! the connection first. Then the next_reader one finds none and sleeps on.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::awaits::Awaits;
use super::ended::{EndedWaits, OnLatePush};
use super::push_connection::{self, Connection, Heartbeat, Subscription, Up};
use super::pushed::{Pushed, UnclaimedGrant};
use crate::clock::Tick;
use crate::node::{Heard, Push};
use crate::sync::Condvar;

/// A follower's sleep can be long: it is woken when something is there for it. FollowUp the machine was suspended the
/// reader wakes all ([`LEAP`]), and without a reader this is how late a timer can be.
const LONGEST_NAP: Duration = Duration::from_secs(60);
/// A read that took so much longer than it should: the machine was suspended, which condition variables do not count.
const LEAP: Duration = Duration::from_secs(5);
/// A connection without waits is closed after this time.
const REST: Duration = Duration::from_secs(10);
/// One that broke earlier than this after it was made does not count as a good one.
const SHORT_LIFE: Duration = Duration::from_secs(10);
/// FollowUp a refusal.
const REFUSED_PAUSE: Duration = Duration::from_secs(60);
/// Pushes that one wait has not taken. There are one or two: a wait has one entry in the queue, and hints are rare.
const MOST_KEPT: usize = 16;

/// How a sleep ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Woken {
    Push(Pushed),
    Timer,
    /// Subscribed anew, or subscribing was refused: ask for the subscription.
    Connected,
    Closed,
}

/// What has to be done away from the waiting threads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BackgroundTask {
    /// FollowUp this pause: one attempt to connect.
    Connect(Duration),
    /// Publish a beat on the channel there.
    Heartbeat(Subscription),
    /// Wake the thread that reads there.
    WakeReader(Subscription),
    /// FollowUp this pause: see whether the connection is still needed.
    CloseIfIdle(Duration),
    /// Give back what was granted to a wait that this client does not have any more.
    GiveBack(UnclaimedGrant),
}

/// What follows from a step, once the lock is free.
#[derive(Default)]
pub(super) struct FollowUp {
    pub(super) tasks: Vec<BackgroundTask>,
    pub(super) late: Vec<(Arc<OnLatePush>, Pushed)>,
    /// Closing a connection can take a moment, and the destructor of an ended wait is not ours.
    closed: Vec<Box<dyn Push>>,
    forgotten: Vec<Arc<OnLatePush>>,
}

impl FollowUp {
    pub(super) fn is_empty(&self) -> bool {
        self.tasks.is_empty() && self.late.is_empty() && self.closed.is_empty() && self.forgotten.is_empty()
    }
}

/// What a thread that wants to sleep does next.
pub(super) enum Step {
    Woken(Woken),
    Read(Box<dyn Push>, Duration),
    Nap(Arc<Condvar>, Duration),
}

/// What the table knows of one wait.
pub(super) struct WaitState {
    wakeup: Arc<Condvar>,
    pub(super) pushes: VecDeque<Pushed>,
    pub(super) awaits: Awaits,
    /// What it awaits has happened.
    pub(super) must_check: bool,
    /// The news it knows of.
    seen: u64,
}

#[derive(Default)]
pub(crate) struct WaiterTable {
    last_number: u64,
    /// By number: the simulation's runs are alike only if those that are woken together are so in one order.
    pub(super) waits: BTreeMap<u64, WaitState>,
    /// Those that sleep and have nothing to wake for yet.
    pub(super) sleeping: BTreeSet<u64>,
    /// Woken to read.
    next_reader: Option<u64>,
    pub(super) connection: Connection,
    /// Subscribed, or to be subscribed.
    channel: Option<Arc<str>>,
    ended: EndedWaits,
    /// Subscriptions that were confirmed.
    generation: u64,
    /// Raised with each subscription that was confirmed or refused.
    news: u64,
    is_refused: bool,
    is_closed: bool,
    /// Attempts to connect in a row that failed, and connections that broke soon.
    failures: u32,
    short_lives: u32,
    idle_since: Tick,
    is_rest_planned: bool,
    pub(super) follow_up: FollowUp,
}

impl WaiterTable {
    pub(super) fn is_sound(&self) -> bool {
        let is_left = matches!(&self.connection, Connection::Up(up) if up.conn.is_some());
        !is_left || self.sleeping.is_empty() || self.next_reader.is_some()
    }

    // --- waits ---

    pub(crate) fn begin(&mut self) -> u64 {
        self.last_number += 1;
        let wait = WaitState {
            wakeup: Arc::new(Condvar::new()),
            pushes: VecDeque::new(),
            awaits: Awaits::Nothing,
            must_check: false,
            seen: self.news,
        };
        self.waits.insert(self.last_number, wait);
        if matches!(self.connection, Connection::Down) {
            self.connect_after(Duration::ZERO);
        }
        self.last_number
    }

    /// The wait is over.
    pub(crate) fn end(&mut self, number: u64, now: Tick) {
        self.give_to_ended(number);
        self.waits.remove(&number);
        self.stop_sleeping(number);
        if self.waits.is_empty() {
            self.last_has_gone(now);
        }
    }

    pub(crate) fn subscription(&mut self, number: u64) -> Option<Subscription> {
        if let Some(wait) = self.waits.get_mut(&number) {
            wait.seen = self.news;
        }
        self.connection.subscription().cloned()
    }

    pub(crate) fn polls(&self) -> bool {
        self.is_refused && self.connection.subscription().is_none()
    }

    /// One look of a thread that sleeps or begins to.
    pub(super) fn step(&mut self, number: u64, until: Tick, now: Tick, timeout: Duration) -> Step {
        if let Some(woken) = self.verdict(number, until, now) {
            self.stop_sleeping(number);
            return Step::Woken(woken);
        }
        let taken = self.take_conn(now, timeout);
        self.clear_next_reader(number);
        if let Some((conn, read_for)) = taken {
            self.sleeping.remove(&number);
            return Step::Read(conn, read_for.min(until.since(now)));
        }
        self.sleeping.insert(number);
        match self.waits.get(&number) {
            Some(wait) => Step::Nap(Arc::clone(&wait.wakeup), until.since(now).min(LONGEST_NAP)),
            None => Step::Woken(Woken::Closed),
        }
    }

    fn verdict(&mut self, number: u64, until: Tick, now: Tick) -> Option<Woken> {
        let Some(wait) = self.waits.get_mut(&number).filter(|_| !self.is_closed) else { return Some(Woken::Closed) };
        if let Some(pushed) = wait.pushes.pop_front() {
            return Some(Woken::Push(pushed));
        }
        if wait.seen < self.news {
            wait.seen = self.news;
            return Some(Woken::Connected);
        }
        (now >= until || std::mem::take(&mut wait.must_check)).then_some(Woken::Timer)
    }

    fn stop_sleeping(&mut self, number: u64) {
        self.sleeping.remove(&number);
        self.clear_next_reader(number);
        self.wake_next_reader();
    }

    fn clear_next_reader(&mut self, number: u64) {
        if self.next_reader == Some(number) {
            self.next_reader = None;
        }
    }

    /// If the connection is there and no thread is on the way to it, the youngest that sleeps is sent: it will probably
    /// wait longest.
    pub(super) fn wake_next_reader(&mut self) {
        let is_left = matches!(&self.connection, Connection::Up(up) if up.conn.is_some());
        if is_left && self.next_reader.is_none() {
            self.next_reader = self.sleeping.last().copied();
            self.next_reader.iter().for_each(|number| self.wake(*number));
        }
    }

    pub(super) fn wake(&self, number: u64) {
        if let Some(wait) = self.waits.get(&number) {
            wait.wakeup.notify_one();
        }
    }

    /// Has all that sleep look at what there is.
    fn wake_all(&self) {
        self.sleeping.iter().for_each(|number| self.wake(*number));
    }

    // --- the connection ---
    /// Takes the connection to read it, for so long at most.
    fn take_conn(&mut self, now: Tick, timeout: Duration) -> Option<(Box<dyn Push>, Duration)> {
        let every = self.heartbeat_interval();
        let Connection::Up(up) = &mut self.connection else { return None };
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

    /// The reader has read.
    pub(super) fn heard(&mut self, conn: Box<dyn Push>, heard: Heard, now: Tick, timeout: Duration) {
        let Connection::Up(up) = &mut self.connection else { return self.follow_up.closed.push(conn) };
        let has_leapt = now.since(up.reads_since) > LEAP;
        if self.is_closed {
            self.follow_up.closed.push(conn);
            self.connection = Connection::Down;
            return;
        }
        match heard {
            Heard::Broken(why) => {
                log::debug!("the push connection broke: {why}");
                return self.broke(Some(conn), now);
            }
            Heard::Nothing if up.missed_heartbeat(timeout) => {
                log::debug!("the push connection is silent, though a message was published on its channel");
                return self.broke(Some(conn), now);
            }
            Heard::Nothing => up.conn = Some(conn),
            Heard::Message(text) => {
                up.message_arrived();
                up.conn = Some(conn);
                self.deliver(&text);
            }
        }
        if has_leapt {
            self.wake_all();
        }
    }

    /// The connection is of no more use. The reader brings it, or it is here, or it is lost with a thread that
    /// panicked.
    pub(super) fn broke(&mut self, conn: Option<Box<dyn Push>>, now: Tick) {
        self.follow_up.closed.extend(conn);
        let Connection::Up(up) = std::mem::replace(&mut self.connection, Connection::Down) else { return };
        self.follow_up.closed.extend(up.conn);
        self.next_reader = None;
        let is_short = now.since(up.since) < SHORT_LIFE;
        self.short_lives = if is_short { self.short_lives + 1 } else { 0 };
        self.connect_after(push_connection::pause(self.short_lives));
    }

    fn deliver(&mut self, text: &[u8]) {
        let Some(channel) = self.channel.clone() else { return };
        let Some((numbers, pushed)) = Pushed::read(text, &channel) else { return };
        for number in numbers {
            self.deliver_to(number, pushed.clone(), &channel);
        }
    }

    fn deliver_to(&mut self, number: u64, pushed: Pushed, channel: &str) {
        if let Some(ended) = self.ended.of(number) {
            return self.follow_up.late.push((ended, pushed));
        }
        let Some(wait) = self.waits.get_mut(&number) else {
            // A server that became the master without the last writes has waits in its queues that are long over.
            return self
                .follow_up
                .tasks
                .extend(UnclaimedGrant::of(pushed, channel, number).map(BackgroundTask::GiveBack));
        };
        if wait.pushes.len() >= MOST_KEPT {
            wait.pushes.pop_front();
        }
        wait.pushes.push_back(pushed);
        if self.sleeping.remove(&number) {
            self.wake(number);
        }
    }

    /// What was learnt from a beat.
    pub(crate) fn heartbeat_ended(&mut self, generation: u64, heartbeat: Heartbeat, now: Tick) {
        let Connection::Up(up) = &mut self.connection else { return };
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
        self.connection = Connection::Down;
        if !self.is_closed && !self.waits.is_empty() {
            self.connection = Connection::Coming;
            self.follow_up.tasks.push(BackgroundTask::Connect(pause));
        }
    }

    /// An attempt begins. False if it is not needed any more.
    pub(crate) fn attempt(&mut self) -> bool {
        if matches!(self.connection, Connection::Up(_)) {
            return false;
        }
        let is_needed = !self.is_closed && !self.waits.is_empty();
        self.connection = if is_needed { Connection::Coming } else { Connection::Down };
        is_needed
    }

    pub(crate) fn channel(&self) -> Option<Arc<str>> {
        self.channel.clone()
    }

    /// The attempt goes on with this channel.
    pub(crate) fn name_channel(&mut self, channel: Arc<str>) {
        self.channel = Some(channel);
    }

    /// Subscribed and confirmed. What came on it meanwhile is delivered.
    pub(crate) fn install(&mut self, new: NewSubscription, now: Tick) {
        let NewSubscription { node, channel, conn, first } = new;
        if self.is_closed || self.channel.as_ref() != Some(&channel) {
            self.follow_up.closed.push(conn);
            return self.connect_after(Duration::ZERO);
        }
        self.generation += 1;
        let subscription = Subscription { node, channel, generation: self.generation };
        self.connection = Connection::Up(Up::new(subscription, conn, now));
        self.is_refused = false;
        self.failures = 0;
        self.announce_change();
        self.deliver(&first);
        if self.waits.is_empty() {
            self.last_has_gone(now);
        }
    }

    pub(crate) fn refused(&mut self) {
        self.is_refused = true;
        self.announce_change();
        self.connect_after(REFUSED_PAUSE);
    }

    /// The attempt failed. If it ended before it began, since the node is left out, looking again costs nothing.
    pub(crate) fn failed(&mut self, is_left_out: bool) {
        if matches!(self.connection, Connection::Up(_)) {
            return;
        }
        self.failures = self.failures.saturating_add(u32::from(!is_left_out));
        // Without a connection no beat looks after their locks.
        let unwatched: Vec<u64> = self.watched(Tick::ZERO).iter().map(|watched| watched.number).collect();
        self.wake_to_check(unwatched);
        self.connect_after(if is_left_out {
            push_connection::FIRST_PAUSE
        } else {
            push_connection::pause(self.failures)
        });
    }

    /// An attempt ended without a word, and nothing is planned.
    pub(crate) fn gave_up(&mut self) {
        if matches!(self.connection, Connection::Coming) {
            self.connection = Connection::Down;
        }
    }

    fn announce_change(&mut self) {
        self.news += 1;
        self.wake_all();
        self.sleeping.clear();
        self.next_reader = None;
    }

    // --- the end ---

    /// Grants to ended waits could not be given back any more. So the channel ends: releases then skip the entries of
    /// the ended waits.
    fn last_has_gone(&mut self, now: Tick) {
        self.idle_since = now;
        if !self.ended.is_empty() {
            self.follow_up.forgotten.extend(self.ended.clear());
            self.channel = None;
            self.hang_up();
        }
        self.plan_rest(REST);
    }

    fn plan_rest(&mut self, pause: Duration) {
        if matches!(self.connection, Connection::Up(_)) && !self.is_rest_planned {
            self.is_rest_planned = true;
            self.follow_up.tasks.push(BackgroundTask::CloseIfIdle(pause));
        }
    }

    /// The time of a planned rest has come.
    pub(crate) fn rest(&mut self, now: Tick) {
        self.is_rest_planned = false;
        if !self.waits.is_empty() {
            return;
        }
        match REST.saturating_sub(now.since(self.idle_since)) {
            Duration::ZERO => self.hang_up(),
            left => self.plan_rest(left),
        }
    }

    /// Closes a connection that no thread reads.
    fn hang_up(&mut self) {
        if let Connection::Up(up) = &mut self.connection
            && let Some(conn) = up.conn.take()
        {
            self.follow_up.closed.push(conn);
            self.connection = Connection::Down;
        }
    }

    /// Ends all waits. Where a thread reads that has to be woken, if there is one.
    pub(crate) fn close(&mut self) -> Option<Subscription> {
        self.is_closed = true;
        self.wake_all();
        self.follow_up.forgotten.extend(self.ended.clear());
        self.hang_up();
        self.connection.subscription().cloned()
    }

    // --- ended waits ---

    pub(crate) fn watch_ended(&mut self, number: u64, ended: OnLatePush, now: Tick) {
        if self.is_closed {
            return self.follow_up.forgotten.push(Arc::new(ended));
        }
        self.follow_up.forgotten.extend(self.ended.add(number, ended));
        self.give_to_ended(number);
        if self.waits.is_empty() {
            self.last_has_gone(now);
        }
    }

    /// What came for a wait that is over, and was not taken.
    fn give_to_ended(&mut self, number: u64) {
        let Some(ended) = self.ended.of(number) else { return };
        let pushes = self.waits.get_mut(&number).map(|wait| std::mem::take(&mut wait.pushes));
        self.follow_up.late.extend(pushes.into_iter().flatten().map(|pushed| (Arc::clone(&ended), pushed)));
    }
}

/// A confirmed subscription.
pub(crate) struct NewSubscription {
    pub(crate) node: usize,
    pub(crate) channel: Arc<str>,
    pub(crate) conn: Box<dyn Push>,
    /// The first message that came on it.
    pub(crate) first: Vec<u8>,
}
