//! Checks which metrics each event changes.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString,
    with_local_recorder,
};

use super::*;
use crate::client::Redlock;
use crate::error::LostReason;
use crate::observer::LockKind;
use crate::options::Retry;
use crate::queue::task::Task;
use crate::testing::Memory;

/// Records the metrics that are described and changed.
#[derive(Default)]
struct Book {
    described: Arc<Mutex<Vec<String>>>,
    written: Arc<Mutex<Vec<String>>>,
}

fn add(lines: &Mutex<Vec<String>>, line: String) {
    lines.lock().unwrap_or_else(PoisonError::into_inner).push(line);
}

impl Book {
    fn number(&self, key: &Key) -> Arc<Number> {
        let labels: Vec<String> = key.labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
        let name = format!("{}{{{}}}", key.name(), labels.join(","));
        Arc::new(Number { name, written: Arc::clone(&self.written) })
    }

    fn taken(&self) -> Vec<String> {
        std::mem::take(&mut self.written.lock().unwrap())
    }
}

struct Number {
    name: String,
    written: Arc<Mutex<Vec<String>>>,
}

impl Number {
    fn note(&self, change: &str) {
        add(&self.written, format!("{}{change}", self.name));
    }
}

impl CounterFn for Number {
    fn increment(&self, value: u64) {
        self.note(&format!(" +{value}"));
    }

    fn absolute(&self, value: u64) {
        self.note(&format!(" ={value}"));
    }
}

impl GaugeFn for Number {
    fn increment(&self, value: f64) {
        self.note(&format!(" +{value}"));
    }

    fn decrement(&self, value: f64) {
        self.note(&format!(" -{value}"));
    }

    fn set(&self, value: f64) {
        self.note(&format!(" ={value}"));
    }
}

impl HistogramFn for Number {
    fn record(&self, _value: f64) {
        self.note("");
    }
}

impl Recorder for Book {
    fn describe_counter(&self, key: KeyName, _: Option<Unit>, _: SharedString) {
        add(&self.described, key.as_str().to_owned());
    }

    fn describe_gauge(&self, key: KeyName, _: Option<Unit>, _: SharedString) {
        add(&self.described, key.as_str().to_owned());
    }

    fn describe_histogram(&self, key: KeyName, _: Option<Unit>, _: SharedString) {
        add(&self.described, key.as_str().to_owned());
    }

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.number(key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.number(key))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.number(key))
    }
}

#[test]
fn the_calls_of_a_client_are_counted_by_name() {
    let book = Book::default();
    with_local_recorder(&book, || {
        let memory = Memory::new(1);
        let locks = memory.build(Redlock::builder().observer(Metrics::new())).unwrap();
        locks.mutex("order:42").label("order").lock().unwrap().unlock().unwrap();
        let expected = [
            "redlock_waiting{lock=order} +1",
            "redlock_waiting{lock=order} -1",
            "redlock_held{lock=order} +1",
            "redlock_wait_seconds{lock=order,outcome=acquired}",
            "redlock_held{lock=order} -1",
            "redlock_hold_seconds{lock=order}",
        ];
        assert_eq!(book.taken(), expected);

        let mails = locks.queue("mails").retry(Retry::every(Duration::from_millis(1)).max_attempts(1));
        let claimed = |id: &str| {
            mails.push(Task::new("body").id(id)).unwrap();
            mails.claim().unwrap()
        };
        claimed("a").ack().unwrap();
        claimed("b").again_after(Duration::from_secs(60)).unwrap();
        claimed("c").fail("boom").unwrap();
        drop(claimed("d"));
        let lost = claimed("e");
        assert!(mails.remove("e").unwrap());
        assert!(lost.ack().unwrap_err().is_lost());
        let told = |verdict| {
            let verdict = format!("redlock_job_seconds{{queue=mails,verdict={verdict}}}");
            ["redlock_job_wait_seconds{queue=mails}".to_owned(), verdict]
        };
        assert_eq!(book.taken(), ["done", "again", "dead", "dead", "lost"].map(told).concat());
    });
}

#[test]
fn what_goes_wrong_is_counted() {
    let book = Book::default();
    with_local_recorder(&book, || {
        let lock = ObservedLock { label: "order", key: "order:42", kind: LockKind::Mutex };
        let (held, remaining, error) = (Duration::ZERO, Duration::ZERO, Error::Closed);
        for (event, told) in [
            (Event::Renewed { lock, remaining }, vec!["redlock_renewals_total{lock=order,outcome=confirmed} +1"]),
            (
                Event::RenewalFailed { lock, remaining, error: &error },
                vec!["redlock_renewals_total{lock=order,outcome=failed} +1"],
            ),
            (
                Event::NotAcquired { lock, waited: held, error: &error },
                vec!["redlock_waiting{lock=order} -1", "redlock_wait_seconds{lock=order,outcome=closed}"],
            ),
            (
                Event::Lost { lock, held, reason: LostReason::Taken },
                vec![
                    "redlock_held{lock=order} -1",
                    "redlock_hold_seconds{lock=order}",
                    "redlock_lost_total{lock=order,reason=taken} +1",
                ],
            ),
            (
                Event::Released { lock, held, confirmed: false },
                vec![
                    "redlock_held{lock=order} -1",
                    "redlock_hold_seconds{lock=order}",
                    "redlock_unconfirmed_total{lock=order} +1",
                ],
            ),
            (Event::NodeDown { node: "a:1", why: "refused" }, vec!["redlock_node_up{node=a:1} =0"]),
            (Event::NodeUp { node: "a:1", after: held }, vec!["redlock_node_up{node=a:1} =1"]),
        ] {
            Metrics.event(&event);
            assert_eq!(book.taken(), told, "{event:?}");
        }
    });
}

#[test]
fn each_metric_is_described_and_documented() {
    let book = Book::default();
    with_local_recorder(&book, || _ = Metrics::new());
    let described: BTreeSet<String> = book.described.lock().unwrap().iter().cloned().collect();
    let rows = |page: &str| -> BTreeSet<String> {
        let rows = page.lines().filter_map(|line| line.trim_start_matches("/// ").strip_prefix("| `redlock_"));
        rows.filter_map(|row| Some(format!("redlock_{}", row.split(['`', ' ']).next()?))).collect()
    };
    assert_eq!(rows(include_str!("../metrics.rs")), described, "in the documentation of `Metrics`");
    assert_eq!(rows(include_str!("../../../../docs/operations.md")), described, "in docs/operations.md");
}
