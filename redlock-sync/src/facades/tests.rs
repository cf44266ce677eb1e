//! What the observer for `tracing` writes.

use std::fmt::{Debug, Write};
use std::sync::Mutex;

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use super::Tracing;
use crate::client::Redlock;
use crate::testing::Memory;

static WRITTEN: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Keeps events of the library's target.
struct Writes;

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        write!(self.0, " {}={value:?}", field.name()).unwrap();
    }
}

impl Subscriber for Writes {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "redlock_sync::locks"
    }

    fn new_span(&self, _span: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _span: &Id, _values: &Record<'_>) {}

    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line(event.metadata().level().to_string());
        event.record(&mut line);
        WRITTEN.lock().unwrap().push(line.0);
    }

    fn enter(&self, _span: &Id) {}

    fn exit(&self, _span: &Id) {}
}

/// The only test of this binary that has a subscriber.
#[test]
fn tracing_gets_events_with_fields() {
    tracing::subscriber::set_global_default(Writes).unwrap();
    let memory = Memory::new(1);
    let locks = memory.build(Redlock::builder().observer(Tracing::new())).unwrap();
    locks.mutex("order:42").named("order").lock().unwrap().unlock().unwrap();
    let guard = locks.mutex("order:7").lock().unwrap();
    locks.unlock_all().unwrap();
    drop(guard);
    let written = WRITTEN.lock().unwrap().clone();
    let [wanted, acquired, released, _, _, lost] = &written[..] else { panic!("{written:#?}") };
    for part in ["DEBUG", "wanted", "name=\"order\"", "key=\"order:42\"", "kind=\"mutex\""] {
        assert!(wanted.contains(part), "{part} in {wanted}");
    }
    assert!(acquired.contains("waited=") && released.contains("held="), "{acquired} {released}");
    assert!(lost.starts_with("WARN") && lost.contains("reason=Revoked"), "{lost}");
}
