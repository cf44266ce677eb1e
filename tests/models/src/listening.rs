//! The fixtures of the models of `handover/listener`: a server with connections that obey the model, a client, its
//! waits, and a time that passes.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use shuttle::rand::{Rng as _, thread_rng};
use shuttle::thread::{self, JoinHandle};

use crate::cancel::Cancel;
use crate::clock::Tick;
use crate::handover::listener::connection_state::{Heartbeat, Subscription};
use crate::handover::listener::notification::Notification;
use crate::handover::listener::waiter_table::{BackgroundTask, WaiterTable, Woken};
use crate::handover::listener::waiters::Waiters;
use crate::node::{Heard, Subscriber};
use crate::sync::{self, Condvar, Mutex};
use crate::world::{self, ModelClock};

const TIMEOUT: Duration = Duration::from_millis(250);

/// One connection, as the server sees it.
pub(crate) struct Socket {
    channel: Arc<str>,
    pub(crate) inbox: Mutex<Inbox>,
    came: Condvar,
}

#[derive(Default)]
pub(crate) struct Inbox {
    messages: VecDeque<String>,
    pub(crate) is_cut: bool,
    /// True if nothing arrives and the client gets no error.
    pub(crate) is_mute: bool,
}

/// The client's end of a connection.
struct FakeSubscriber(Arc<Socket>);

impl Subscriber for FakeSubscriber {
    fn receive(&mut self, timeout: Duration) -> Heard {
        let until = world::now().after(timeout);
        let mut inbox = self.0.inbox.lock();
        loop {
            if let Some(message) = inbox.messages.pop_front() {
                return Heard::Message(message.into_bytes());
            }
            if inbox.is_cut {
                return Heard::Broken("cut".into());
            }
            let left = until.since(world::now());
            if left.is_zero() {
                return Heard::Nothing;
            }
            self.0.came.wait_for(&mut inbox, left);
        }
    }
}

impl Drop for FakeSubscriber {
    fn drop(&mut self) {
        self.0.inbox.lock().is_cut = true;
    }
}

impl fmt::Debug for FakeSubscriber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FakeSubscriber")
    }
}

/// A client and its server.
pub(crate) struct Rig {
    pub(crate) waiters: Arc<Waiters>,
    this: Weak<Rig>,
    /// The last connection that was made.
    pub(crate) socket: Mutex<Option<Arc<Socket>>>,
    channels: Mutex<u32>,
    /// The number of tasks that close an idle connection later.
    rests: Mutex<u32>,
    /// The grants that came too late: the wait, and the fence.
    pub(crate) late: Mutex<Vec<(String, u64)>>,
}

impl Rig {
    pub(crate) fn new() -> Arc<Rig> {
        Arc::new_cyclic(|this: &Weak<Rig>| {
            let rig = this.clone();
            let tasks = Box::new(move |task| rig.upgrade().unwrap().run(task));
            let (socket, channels, rests) = (Mutex::new(None), Mutex::new(0), Mutex::new(0));
            Rig {
                waiters: Waiters::new(Arc::new(ModelClock), TIMEOUT, tasks),
                this: this.clone(),
                socket,
                channels,
                rests,
                late: Mutex::default(),
            }
        })
    }

    /// Runs a task on a thread of its own, which can start at any time from now on.
    fn run(&self, task: BackgroundTask) {
        let rig = self.this.upgrade().unwrap();
        let job: Box<dyn FnOnce() + Send> = match task {
            BackgroundTask::Connect(_) => Box::new(move || rig.connect()),
            BackgroundTask::Heartbeat(subscription) | BackgroundTask::WakeReader(subscription) => {
                Box::new(move || rig.heartbeat(&subscription))
            }
            BackgroundTask::LateGrant(wait, notification) => {
                rig.late.lock().push((wait, notification.fence));
                return;
            }
            BackgroundTask::CloseIfIdle(_) => {
                *rig.rests.lock() += 1;
                return;
            }
        };
        sync::thread::Builder::new().spawn(job).unwrap();
    }

    fn connect(&self) {
        if !self.waiters.with(|table, _| table.attempt()) {
            return;
        }
        let channel = self.waiters.with(|table, _| table.channel.clone()).unwrap_or_else(|| {
            let mut channels = self.channels.lock();
            *channels += 1;
            let channel: Arc<str> = format!("channel{}", *channels).into();
            self.waiters.with(|table, _| table.channel = Some(Arc::clone(&channel)));
            channel
        });
        let socket = Arc::new(Socket { channel: Arc::clone(&channel), inbox: Mutex::default(), came: Condvar::new() });
        *self.socket.lock() = Some(Arc::clone(&socket));
        let conn = Box::new(FakeSubscriber(socket));
        let subscription = Subscription { node: 0, channel, generation: 0 };
        self.waiters.with(|table, now| table.install(subscription, conn, b"0", now));
    }

    fn heartbeat(&self, subscription: &Subscription) {
        let heartbeat =
            if self.publish(&subscription.channel, "0") { Heartbeat::Sent(world::now()) } else { Heartbeat::Failed };
        self.waiters.with(|table, now| table.heartbeat_ended(subscription.generation, heartbeat, now));
    }

    /// Sends a message to a channel. Returns true if a connection receives it.
    fn publish(&self, channel: &str, text: &str) -> bool {
        let socket = self.socket.lock().clone();
        let Some(socket) = socket.filter(|socket| *socket.channel == *channel) else { return false };
        let mut inbox = socket.inbox.lock();
        if inbox.is_cut {
            return false;
        }
        if !inbox.is_mute {
            inbox.messages.push_back(text.to_owned());
        }
        drop(inbox);
        socket.came.notify_all();
        true
    }

    /// Notifies this wait. Returns false if no connection receives the notification. A real release would then grant
    /// the lock to another wait, and notify this one again later.
    pub(crate) fn notify(&self, number: u64, channel: &str) -> bool {
        self.publish(channel, &format!("{channel}/{number} {number} 300 0123456789abcdef0123456789abcdef k"))
    }

    pub(crate) fn cut(&self) {
        let socket = self.socket.lock().clone().unwrap();
        socket.inbox.lock().is_cut = true;
        socket.came.notify_all();
    }

    pub(crate) fn close(&self) {
        if let Some(subscription) = self.waiters.with(|table, _| table.close()) {
            self.publish(&subscription.channel, "closed");
        }
    }

    pub(crate) fn spawn<R: Send + 'static>(&self, run: impl FnOnce(&Rig) -> R + Send + 'static) -> JoinHandle<R> {
        let rig = self.this.upgrade().unwrap();
        thread::spawn(move || run(&rig))
    }

    /// Runs the tasks that close an idle connection.
    pub(crate) fn rest(&self) {
        let rests = std::mem::take(&mut *self.rests.lock());
        (0..rests).for_each(|_| self.waiters.with(WaiterTable::close_if_idle));
    }

    /// Asserts that no connection is left.
    pub(crate) fn assert_deaf(&self) {
        let socket = self.socket.lock().clone();
        assert!(socket.is_none_or(|socket| socket.inbox.lock().is_cut), "a connection is left");
    }
}

/// A wait, as the library has it.
pub(crate) struct Wait<'a> {
    rig: &'a Rig,
    pub(crate) number: u64,
}

impl Rig {
    pub(crate) fn begin(&self) -> Wait<'_> {
        Wait { rig: self, number: self.waiters.with(|table, _| table.begin()) }
    }
}

impl Wait<'_> {
    pub(crate) fn sleep(&self, until: Tick) -> Woken {
        self.rig.waiters.sleep(self.number, until, None)
    }

    /// Sleeps until the wait is cancelled.
    pub(crate) fn sleep_until_cancelled(&self, cancel: &Cancel) {
        while self.rig.waiters.sleep(self.number, Tick::NEVER, Some(cancel)) != Woken::Timer {}
        assert!(cancel.is_cancelled(), "for no reason");
    }

    /// Sleeps until the wait has a connection, and returns its subscription.
    pub(crate) fn subscription(&self) -> Subscription {
        loop {
            if let Some(subscription) = self.rig.waiters.with(|table, _| table.subscription(self.number)) {
                return subscription;
            }
            assert_eq!(self.sleep(Tick::NEVER), Woken::Connected);
        }
    }

    /// Sleeps until the wait is notified.
    pub(crate) fn heard(&self) {
        match self.sleep(Tick::NEVER) {
            Woken::Notified(notification) => self.assert_mine(&notification),
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn assert_mine(&self, notification: &Notification) {
        assert_eq!(notification.fence, self.number, "a notification for another wait");
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        self.rig.waiters.with(|table, now| table.end(self.number, now));
    }
}

/// The waits with their channels. The threads that notify take waits from here.
#[derive(Clone)]
pub(crate) struct Board(Arc<Notes>);

struct Notes {
    waits: Mutex<Vec<(u64, Arc<str>)>>,
    changed: Condvar,
}

impl Board {
    pub(crate) fn new() -> Board {
        Board(Arc::new(Notes { waits: Mutex::new(Vec::new()), changed: Condvar::new() }))
    }

    pub(crate) fn put(&self, wait: &Wait<'_>, subscription: Subscription) {
        self.0.waits.lock().push((wait.number, subscription.channel));
        self.0.changed.notify_all();
    }

    /// Removes a wait that is drawn at random. Waits until there is one.
    pub(crate) fn take(&self) -> (u64, Arc<str>) {
        let mut waits = self.0.waits.lock();
        while waits.is_empty() {
            self.0.changed.wait(&mut waits);
        }
        let any = thread_rng().gen_range(0..waits.len());
        waits.swap_remove(any)
    }
}

pub(crate) fn all<R>(threads: impl IntoIterator<Item = JoinHandle<R>>) -> Vec<R> {
    threads.into_iter().map(|thread| thread.join().unwrap()).collect()
}

/// Lets time pass in small steps while a model runs. A thread can begin a sleep late, and its time counts only from
/// then on.
pub(crate) struct Time {
    is_over: Arc<Mutex<bool>>,
    thread: JoinHandle<()>,
}

impl Time {
    pub(crate) fn passes(rig: &Rig) -> Time {
        let is_over = Arc::new(Mutex::new(false));
        let theirs = Arc::clone(&is_over);
        let thread = rig.spawn(move |_| {
            while !*theirs.lock() {
                world::pass(Duration::from_millis(100));
                thread::yield_now();
            }
        });
        Time { is_over, thread }
    }

    pub(crate) fn stop(self) {
        *self.is_over.lock() = true;
        self.thread.join().unwrap();
    }
}

/// Closes the client, and asserts that no thread and no connection is left.
pub(crate) fn end(rig: &Rig) {
    rig.close();
    world::until_all_threads_ended();
    rig.assert_deaf();
}
