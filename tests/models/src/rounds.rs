//! Models of the rounds that share lines: `node/depot.rs`.

use std::sync::Arc;
use std::time::Duration;

use shuttle::thread::{self, JoinHandle};

use crate::clock::Tick;
use crate::depot::{Depot, Op};
use crate::sync::Mutex;
use crate::world::{self, ModelClock};

/// What is noted of a round: how often it was answered, and whether its thread left it.
#[derive(Default)]
struct Record {
    answers: usize,
    has_left: bool,
}

/// The lines that are idle, by number.
type Idle = Arc<Mutex<Vec<usize>>>;

/// A line; idle again when it is dropped, as r2d2's are.
struct Line {
    number: usize,
    idle: Idle,
}

impl Drop for Line {
    fn drop(&mut self) {
        self.idle.lock().push(self.number);
    }
}

#[derive(Clone)]
struct Rig {
    depot: Arc<Depot<Line, Record>>,
    idle: Idle,
    lines: usize,
    /// Which lines a leader has.
    led: Arc<Mutex<Vec<usize>>>,
}

impl Rig {
    /// With so many lines, one of which is kept for urgent rounds where there are several.
    fn new(lines: usize) -> Rig {
        Rig {
            depot: Arc::new(Depot::new(Arc::new(ModelClock), lines.max(2) - 1)),
            idle: Arc::new(Mutex::new((0..lines).collect())),
            lines,
            led: Arc::default(),
        }
    }

    fn take(&self) -> Option<Line> {
        let number = self.idle.lock().pop()?;
        Some(Line { number, idle: Arc::clone(&self.idle) })
    }

    /// One round. True if it was answered, false if its thread left it.
    fn round(&self, is_urgent: bool, by: Tick) -> bool {
        if let Some(mut led) = self.depot.lead_alone(is_urgent, || self.take()) {
            let number = led.line().expect("a leader has its line").number;
            self.begins(number);
            self.ends(number);
            return true;
        }
        let op = Op::new(Record::default(), is_urgent, by);
        let led = self
            .depot
            .enter(&op, || self.take())
            .or_else(|| self.depot.follow(&op, |record, _| record.has_left = true));
        if let Some(mut led) = led {
            let number = led.line().expect("a leader has its line").number;
            self.begins(number);
            let riders = self.depot.collect(&op);
            assert!(riders.iter().all(|rider| rider.by <= by), "a leader works for others after its time");
            for rider in &riders {
                rider.note(|record| {
                    record.answers += 1;
                    ((), true)
                });
            }
            self.ends(number);
        }
        let Record { answers, has_left } = op.read(std::mem::take);
        assert!(answers <= 1, "answered {answers} times");
        assert_ne!(answers == 1, has_left, "either answered or left");
        answers == 1
    }

    fn begins(&self, line: usize) {
        let mut led = self.led.lock();
        assert!(!led.contains(&line), "two lead on one line");
        led.push(line);
    }

    fn ends(&self, line: usize) {
        self.led.lock().retain(|other| *other != line);
    }

    fn spawn(&self, run: impl FnOnce(Rig) + Send + 'static) -> JoinHandle<()> {
        let rig = self.clone();
        thread::spawn(move || run(rig))
    }

    /// Nothing is left: no round in a queue, and every line idle.
    fn assert_idle(self) {
        let Rig { depot, idle, lines, .. } = self;
        assert_eq!(format!("{depot:?}"), "0 urgent, 0 ordinary rounds wait");
        // It keeps one of them.
        drop(depot);
        assert_eq!(idle.lock().len(), lines, "a line is lost");
    }
}

fn join(threads: Vec<JoinHandle<()>>) {
    for thread in threads {
        thread.join().unwrap();
    }
}

/// Without a deadline every round is answered: a lost wake-up would be a deadlock.
fn all_are_answered(lines: usize, threads: usize, rounds: usize) {
    let rig = Rig::new(lines);
    let spawn = |i: usize| {
        rig.spawn(move |rig| {
            for n in 0..rounds {
                assert!(rig.round((i + n).is_multiple_of(3), Tick::NEVER));
            }
        })
    };
    join((0..threads).map(spawn).collect());
    rig.assert_idle();
}

pub fn one_line() {
    all_are_answered(1, 4, 2);
}

pub fn several_lines() {
    all_are_answered(3, 5, 2);
}

/// Attempts fill the lines that they may lead; releases find one.
pub fn urgent_rounds_find_a_line() {
    let rig = Rig::new(2);
    let ordinary = (0..3).map(|_| rig.spawn(|rig| assert!(rig.round(false, Tick::NEVER))));
    let urgent = (0..2).map(|_| rig.spawn(|rig| assert!(rig.round(true, Tick::NEVER))));
    join(ordinary.chain(urgent).collect());
    rig.assert_idle();
}

/// The time of some is up while they wait, travel, or are given a line.
pub fn some_leave() {
    let rig = Rig::new(2);
    let soon = world::now().after(Duration::from_millis(5));
    let later = world::now().after(Duration::from_millis(10));
    let mut threads: Vec<_> = [soon, later, soon, Tick::NEVER]
        .into_iter()
        .enumerate()
        .map(|(i, by)| {
            rig.spawn(move |rig| {
                let answered = rig.round(i == 0, by);
                assert!(answered || by < Tick::NEVER, "left before its time");
                assert!(rig.round(false, Tick::NEVER));
            })
        })
        .collect();
    threads.push(thread::spawn(move || {
        world::pass_until(soon);
        world::pass_until(later);
    }));
    join(threads);
    rig.assert_idle();
}
