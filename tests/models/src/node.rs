//! In place of the library's `node`: what a notification connection is; with the real pipes.

use std::fmt;
use std::time::Duration;

pub(crate) trait Subscriber: Send + fmt::Debug {
    fn receive(&mut self, timeout: Duration) -> Heard;
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    Message(Vec<u8>),
    Nothing,
    Broken(String),
}

pub(crate) mod pipes;
