//! The arguments of the attribute, and what it stands on: see [`redlock_fuzz::attribute`].

#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| redlock_fuzz::attribute(text));
