//! Runs code of users: handlers, observers and bodies.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs `code`. A panic becomes the error, with its message. So it ends no thread of the library, and poisons no state.
pub(crate) fn caught<T>(code: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(code)).map_err(|panic| {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
        // The payload is not dropped: its destructor could panic too.
        std::mem::forget(panic);
        text.unwrap_or_else(|| "no text".to_owned())
    })
}
