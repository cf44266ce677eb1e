//! The Rust code of README.md, of `docs/` and of the macros' documentation, compiled and run as doctests. `build.rs`
//! makes the copies of the pages that this module includes.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex};

use crate::Server;

/// Returns the URL of a private server that replaces `url`. All calls in this process with the same `url` return the
/// same server.
pub fn stand_in(url: &str) -> String {
    static SERVERS: LazyLock<Mutex<HashMap<String, Server>>> = LazyLock::new(Mutex::default);
    let mut servers = SERVERS.lock().unwrap();
    servers.entry(url.to_owned()).or_insert_with(Server::for_sample).url()
}

include!(concat!(env!("OUT_DIR"), "/pages.rs"));

macro_rules! macros {
    ($($name:ident),+ $(,)?) => {
        $(
            #[cfg(doctest)]
            #[doc = include_str!(concat!("../../redlock-macros/src/docs/", stringify!($name), ".md"))]
            mod $name {}
        )+
    };
}

macros!(assert_locked, expansion, key, lock_key);
