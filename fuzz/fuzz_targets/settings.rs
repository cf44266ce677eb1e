//! All settings of a client and a lock: see [`redlock_fuzz::settings`].

#![no_main]

libfuzzer_sys::fuzz_target!(|drawn: redlock_fuzz::Drawn<'_>| redlock_fuzz::settings(&drawn));
