//! A key template, and values for its holes: see [`redlock_fuzz::template`].

#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| redlock_fuzz::template(text));
