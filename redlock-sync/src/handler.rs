//! Running code of users: handlers, observers, bodies.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs it. A panic becomes the error, with its text: it must not take a lock, or a thread of the library, with it.
pub(crate) fn caught<T>(code: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(code)).map_err(|panic| {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
        // The payload of a panic could panic when it is dropped.
        std::mem::forget(panic);
        text.unwrap_or_else(|| "no text".to_owned())
    })
}
