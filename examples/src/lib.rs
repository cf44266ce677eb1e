//! Runnable examples of redlock-sync; see the files beside `Cargo.toml`.
