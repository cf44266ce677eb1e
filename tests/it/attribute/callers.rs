//! The caller's location in a function with `#[track_caller]`.

#[path = "../../ui/pass/callers.rs"]
mod shapes;

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, Location, catch_unwind, set_hook, take_hook};
use std::sync::LazyLock;

use redlock_sync::{Error, distributed_lock};

use super::{locks, steal, while_busy};

#[test]
fn every_shape_of_function_knows_its_caller() {
    shapes::run(locks());
}

#[test]
fn every_shape_of_function_knows_its_caller_in_edition_2021() {
    redlock_edition_2021::callers::run(locks());
}

/// The line of this file at which `f` panics, or 0 if it panics elsewhere.
fn panic_line(f: impl FnOnce()) -> u32 {
    thread_local!(static LINE: Cell<u32> = const { Cell::new(0) });
    static INSTALLED: LazyLock<()> = LazyLock::new(|| {
        let hook = take_hook();
        set_hook(Box::new(move |panic| {
            let here = panic.location().filter(|at| at.file() == file!());
            LINE.set(here.map_or(0, Location::line));
            hook(panic);
        }));
    });
    LazyLock::force(&INSTALLED);
    catch_unwind(AssertUnwindSafe(f)).expect_err("it should panic");
    LINE.get()
}

#[distributed_lock("located:{id}", wait = "0s", busy = panic)]
#[track_caller]
fn policies(id: u8, body: fn()) {
    body();
}

struct Owner;

impl Owner {
    #[distributed_lock("located:{id}", wait = "0s", busy = panic)]
    #[track_caller]
    fn policies(&self, id: u8, body: fn()) {
        body();
    }
}

#[test]
fn a_panic_of_a_policy_is_at_the_caller() {
    let _ = locks();
    let line = while_busy("located:1", || panic_line(|| policies(1, || {})));
    assert_eq!(line, line!() - 1);
    let line = while_busy("located:1", || panic_line(|| Owner.policies(1, || {})));
    assert_eq!(line, line!() - 1);
    let line = panic_line(|| policies(2, || steal("located:2")));
    assert_eq!(line, line!() - 1, "the panic has another location");
}

#[distributed_lock("located-body:{id:?}")]
#[track_caller]
fn unwraps(id: Option<u8>) -> Result<u8, Error> {
    Ok(id.unwrap())
}

#[test]
fn a_panic_of_the_body_is_at_the_caller() {
    let _ = locks();
    let line = panic_line(|| drop(unwraps(None)));
    assert_eq!(line, line!() - 1);
}

#[distributed_lock("located-attribute", wait = "0s", busy = panic)]
fn without_track_caller() {}

#[test]
fn without_track_caller_a_policy_panics_at_the_attribute() {
    let line = while_busy("located-attribute", || panic_line(without_track_caller));
    assert_eq!(line, line!() - 6);
}
