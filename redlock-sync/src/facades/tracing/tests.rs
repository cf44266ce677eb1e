//! Checks the events that the observer for `tracing` writes, and the span of a body.

use std::cell::RefCell;
use std::fmt::{Debug, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Once;

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber, debug};

use super::Tracing;
use crate::client::Redlock;
use crate::error::Error;
use crate::testing::Memory;

thread_local! {
    static WRITTEN: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Records the events that a thread writes to the library's target.
struct Writes;

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, " {}={value:?}", field.name()).unwrap();
    }
}

fn write(line: String) {
    WRITTEN.with(|written| written.borrow_mut().push(line));
}

impl Subscriber for Writes {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "redlock_sync::locks"
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut line = Line(format!("{} span {}", span.metadata().level(), span.metadata().name()));
        span.record(&mut line);
        write(line.0);
        Id::from_u64(1)
    }

    fn record(&self, _span: &Id, _values: &Record<'_>) {}

    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(event.metadata().level().to_string());
        event.record(&mut line);
        write(line.0);
    }

    fn enter(&self, _span: &Id) {
        write("enter".into());
    }

    fn exit(&self, _span: &Id) {
        write("exit".into());
    }
}

fn client() -> Redlock {
    static SUBSCRIBED: Once = Once::new();
    SUBSCRIBED.call_once(|| tracing::subscriber::set_global_default(Writes).unwrap());
    Memory::new(1).build(Redlock::builder().observer(Tracing::new())).unwrap()
}

/// The events that this thread has written since the last call.
fn written() -> Vec<String> {
    WRITTEN.with(RefCell::take)
}

#[track_caller]
fn assert_has(line: &str, parts: &[&str]) {
    for part in parts {
        assert!(line.contains(part), "{part} in {line}");
    }
}

#[test]
fn events_have_fields() {
    let locks = client();
    locks.mutex("order:42").label("order").lock().unwrap().unlock().unwrap();
    let guard = locks.mutex("order:7").lock().unwrap();
    locks.unlock_all().unwrap();
    drop(guard);
    let written = written();
    let [wanted, acquired, released, _, _, lost] = &written[..] else { panic!("{written:#?}") };
    assert_has(wanted, &["DEBUG", "wanted", "label=\"order\"", "key=\"order:42\"", "kind=\"mutex\""]);
    assert_has(acquired, &["waited="]);
    assert_has(released, &["held="]);
    assert!(lost.starts_with("WARN") && lost.contains("reason=Revoked"), "{lost}");
}

#[test]
fn jobs_end_by_an_event() {
    let mails = client().queue("mails");
    mails.push(crate::Task::new("body").id("ann")).unwrap();
    mails.claim().unwrap().ack().unwrap();
    mails.push(crate::Task::new("body").id("bob")).unwrap();
    let lost = mails.claim().unwrap();
    assert!(mails.remove("bob").unwrap());
    assert!(lost.ack().unwrap_err().is_lost());
    let written = written();
    let [done, lost] = &written[..] else { panic!("{written:#?}") };
    let fields = ["queue=\"mails\"", "attempt=1", "waited=", "ran="];
    assert_has(done, &[&fields[..], &["DEBUG", "job ended", "id=\"ann\"", "verdict=\"done\""]].concat());
    assert_has(lost, &[&fields[..], &["WARN", "id=\"bob\"", "verdict=\"lost\""]].concat());
}

#[crate::distributed_lock("order:<id>", client = locks, wait = "0s")]
fn ship(locks: &Redlock, id: u64) -> Result<(), Error> {
    debug!(target: "redlock_sync::locks", "ships");
    assert!(id > 0);
    Ok(())
}

#[crate::distributed_lock(["from:<id>", "to:<id>"], client = locks)]
#[track_caller]
fn transfer(locks: &Redlock, id: u64) -> Result<(), Error> {
    debug!(target: "redlock_sync::locks", "transfers");
    Ok(())
}

#[test]
fn the_body_of_an_annotated_function_stands_in_a_span() {
    let locks = client();
    ship(&locks, 42).unwrap();
    let lines = written();
    let [_, acquired, span, enter, ships, released, exit] = &lines[..] else { panic!("{lines:#?}") };
    assert_has(acquired, &["acquired"]);
    assert_has(span, &["DEBUG span locked", "label=\"order:<id>\"", "key=\"order:42\"", "kind=\"mutex\""]);
    assert_has(ships, &["ships"]);
    assert_has(released, &["released"]);
    assert_eq!((enter.as_str(), exit.as_str()), ("enter", "exit"));

    // With several locks, the span names all of them.
    transfer(&locks, 7).unwrap();
    let lines = written();
    let span = lines.iter().find(|line| line.contains("span")).unwrap();
    assert_has(span, &["label=\"from:<id> to:<id>\"", "key=\"from:7 to:7\""]);
    assert_eq!(lines.last().map(String::as_str), Some("exit"));

    // The span also ends with a panic. A call that gets no lock has no span.
    assert!(catch_unwind(AssertUnwindSafe(|| ship(&locks, 0))).is_err());
    assert_eq!(written().last().map(String::as_str), Some("exit"));
    let _other = locks.mutex("order:9").lock().unwrap();
    assert!(std::thread::scope(|scope| {
        scope
            .spawn(|| {
                let is_busy = ship(&locks, 9).unwrap_err().is_busy();
                is_busy && !written().iter().any(|line| line.contains("span"))
            })
            .join()
            .unwrap()
    }));
}
