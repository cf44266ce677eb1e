//! Any text as a node's URL: see [`redlock_fuzz::node_url`].

#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| redlock_fuzz::node_url(text));
