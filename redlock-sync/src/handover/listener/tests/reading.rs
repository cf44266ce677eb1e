use std::collections::VecDeque;

use parking_lot::Mutex;

use super::*;
use crate::cancel::Cancel;
use crate::handover::listener::waiter_table::{BackgroundTask, WaiterTable};
use crate::handover::listener::waiters::Waiters;
use crate::node::{Heard, Subscriber};

/// A connection that plays a script. After the script, nothing arrives.
#[derive(Debug)]
struct ScriptedConnection {
    script: VecDeque<&'static str>,
    /// The limit of the last read.
    limit: Arc<Mutex<Duration>>,
}

impl Subscriber for ScriptedConnection {
    fn receive(&mut self, timeout: Duration) -> Heard {
        *self.limit.lock() = timeout;
        match self.script.pop_front() {
            Some("panic") => panic!("told so"),
            Some("break") => Heard::Broken("told so".into()),
            Some(message) => Heard::Message(message.into()),
            None => {
                SystemClock.sleep(timeout);
                Heard::Nothing
            }
        }
    }
}

/// A clock that the test sets.
#[derive(Debug, Default)]
struct SetClock(Mutex<Duration>);

impl Clock for SetClock {
    fn now(&self) -> Tick {
        Tick::from_nanos(1).after(*self.0.lock())
    }

    fn sleep(&self, time: Duration) {
        *self.0.lock() += time;
    }
}

/// The waits of a listener, and the background tasks that they requested.
struct Rig {
    waiters: Arc<Waiters>,
    tasks: Arc<Mutex<Vec<BackgroundTask>>>,
    /// The limit of the last read.
    limit: Arc<Mutex<Duration>>,
}

impl Rig {
    fn new() -> Rig {
        Rig::on(Arc::new(SystemClock))
    }

    fn on(clock: Arc<dyn Clock>) -> Rig {
        let tasks = Arc::new(Mutex::new(Vec::new()));
        let theirs = Arc::clone(&tasks);
        let run = Box::new(move |task| theirs.lock().push(task));
        Rig { waiters: Waiters::new(clock, TIMEOUT, run), tasks, limit: Arc::default() }
    }

    fn begin(&self) -> u64 {
        self.waiters.with(|table, _| table.begin())
    }

    fn sleep(&self, wait: u64, until: Tick) -> Woken {
        self.waiters.sleep(wait, until, None)
    }

    fn subscription(&self, wait: u64) -> Option<Subscription> {
        self.waiters.with(|table, _| table.subscription(wait))
    }

    fn connect(&self, does: impl IntoIterator<Item = &'static str>) {
        assert!(self.waiters.with(|table, _| table.attempt()));
        let channel: Arc<str> = "channel".into();
        self.waiters.with(|table, _| table.channel = Some(Arc::clone(&channel)));
        let script = does.into_iter().collect();
        let limit = Arc::clone(&self.limit);
        let conn = Box::new(ScriptedConnection { script, limit });
        let subscription = Subscription { node: 0, channel, generation: 0 };
        self.waiters.with(|table, now| table.install(subscription, conn, b"0", now));
    }

    /// The pause before the requested attempt to connect.
    fn pause(&self) -> Option<Duration> {
        match std::mem::take(&mut *self.tasks.lock()).as_slice() {
            [] => None,
            [BackgroundTask::Connect(pause)] => Some(*pause),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_reader_that_panics_leaves_a_connection_that_is_made_anew() {
    let rig = Rig::new();
    let (reader, other) = (rig.begin(), rig.begin());
    assert_eq!(rig.pause(), Some(Duration::ZERO));
    rig.connect(["panic"]);
    assert!(rig.subscription(reader).is_some() && rig.subscription(other).is_some());
    thread::scope(|scope| assert!(scope.spawn(|| rig.sleep(reader, soon())).join().is_err()));
    rig.waiters.with(|table, now| table.end(reader, now));
    assert_eq!(rig.subscription(other), None);
    assert!(rig.pause().is_some());
    rig.connect(["channel/2 5 300 0123456789abcdef0123456789abcdef k"]);
    assert_eq!(rig.sleep(other, soon()), Woken::Connected);
    assert_eq!(fence(rig.sleep(other, soon())), 5);
}

/// If the server hangs, no message ends the read of a wait that was cancelled.
#[test]
fn a_wait_that_can_be_cancelled_reads_for_a_node_timeout() {
    const PUSH: &str = "channel/1 5 300 0123456789abcdef0123456789abcdef k";
    let rig = Rig::new();
    let cancel = Cancel::new();
    let wait = rig.begin();
    rig.connect([PUSH, PUSH]);
    rig.subscription(wait);
    assert_eq!(fence(rig.waiters.sleep(wait, soon(), Some(&cancel))), 5);
    assert_eq!(*rig.limit.lock(), TIMEOUT);
    assert_eq!(fence(rig.sleep(wait, soon())), 5);
    assert!(*rig.limit.lock() > 2 * TIMEOUT);
    cancel.cancel();
    assert_eq!(rig.waiters.sleep(wait, soon(), Some(&cancel)), Woken::Timer);
}

#[test]
fn pauses_between_attempts_grow() {
    let rig = Rig::new();
    let wait = rig.begin();
    let mut pauses = vec![rig.pause().unwrap()];
    for _ in 0..8 {
        rig.waiters.with(|table, _| table.failed(false));
        pauses.push(rig.pause().unwrap());
    }
    assert_eq!(pauses[..3], [0, 20, 40].map(Duration::from_millis));
    assert_eq!(pauses[8], Duration::from_secs(1));
    // Connections that break soon do not shorten the pause.
    for bad in 1..4 {
        rig.connect(["break"]);
        assert_eq!(rig.sleep(wait, soon()), Woken::Connected);
        assert_eq!(rig.sleep(wait, now().after(Duration::from_millis(2))), Woken::Timer);
        assert_eq!(rig.pause(), Some(Duration::from_millis(10 << bad)));
    }
    // Attempts for a node that is left out are frequent, since they cost nothing.
    rig.waiters.with(|table, _| table.failed(true));
    assert_eq!(rig.pause(), Some(Duration::from_millis(20)));
    rig.waiters.with(|table, now| table.end(wait, now));
    rig.waiters.with(|table, _| table.failed(false));
    assert_eq!(rig.pause(), None, "no thread waits");
}

#[test]
fn what_is_refused_is_tried_again_after_a_minute() {
    let rig = Rig::new();
    let wait = rig.begin();
    assert!(rig.pause().is_some() && !rig.waiters.with(|table, _| table.polls()));
    rig.waiters.with(|table, _| table.refused());
    assert_eq!(rig.pause(), Some(Duration::from_secs(60)));
    assert!(rig.waiters.with(|table, _| table.polls()));
    assert_eq!(rig.sleep(wait, soon()), Woken::Connected);
    rig.connect([]);
    assert_eq!(rig.sleep(wait, soon()), Woken::Connected);
    assert!(!rig.waiters.with(|table, _| table.polls()) && rig.subscription(wait).is_some());
}

#[test]
fn one_wait_keeps_so_many_pushes_and_no_more() {
    const PUSHES: [&str; 3] = [
        "channel/2 1 300 0123456789abcdef0123456789abcdef k",
        "channel/2 2 300 0123456789abcdef0123456789abcdef k",
        "channel/2 3 10 ",
    ];
    let rig = Rig::new();
    let (reader, busy) = (rig.begin(), rig.begin());
    rig.connect(PUSHES.into_iter().cycle().take(20).chain(["channel/1 9 300 0123456789abcdef0123456789abcdef k"]));
    rig.subscription(reader);
    assert_eq!(fence(rig.sleep(reader, soon())), 9);
    let notifications: Vec<_> = std::iter::from_fn(|| rig.waiters.with(|table, _| table.take(busy)))
        .map(|notification| notification.fence)
        .collect();
    assert_eq!(notifications.len(), 16);
    assert_eq!(notifications[..3], [2, 3, 1], "the oldest went");
}

#[test]
fn a_connection_outlives_the_last_wait_for_ten_seconds() {
    let clock = Arc::new(SetClock::default());
    let rig = Rig::on(Arc::clone(&clock) as Arc<dyn Clock>);
    let rest = |seconds| vec![BackgroundTask::CloseIfIdle(Duration::from_secs(seconds))];
    let tasks = || std::mem::take(&mut *rig.tasks.lock());
    let first = rig.begin();
    assert!(rig.pause().is_some());
    rig.connect([]);
    let before = rig.subscription(first);
    rig.waiters.with(|table, now| table.end(first, now));
    assert_eq!(tasks(), rest(10));
    clock.sleep(Duration::from_secs(4));
    let second = rig.begin();
    assert_eq!(rig.subscription(second), before);
    rig.waiters.with(|table, now| table.end(second, now));
    assert_eq!(tasks(), [], "one is planned");
    clock.sleep(Duration::from_secs(6));
    rig.waiters.with(WaiterTable::close_if_idle);
    assert_eq!(tasks(), rest(4));
    clock.sleep(Duration::from_secs(4));
    rig.waiters.with(WaiterTable::close_if_idle);
    let third = rig.begin();
    assert_eq!(rig.subscription(third), None);
    assert_eq!(rig.pause(), Some(Duration::ZERO));
    // While a thread waits, the connection stays, even if its end was planned.
    rig.connect([]);
    rig.waiters.with(WaiterTable::close_if_idle);
    assert!(rig.subscription(third).is_some());
}
