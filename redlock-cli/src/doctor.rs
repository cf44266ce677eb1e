//! `redlock doctor`: whether the servers can keep locks.

use redlock_sync::Redlock;

use crate::ending::{Answer, Failure};

pub(crate) fn doctor(locks: &Redlock) -> Result<Answer, Failure> {
    let health = locks.health()?;
    let code = match (health.is_ready(), health.warnings().is_empty()) {
        (true, true) => 0,
        (true, false) => 1,
        (false, _) => 2,
    };
    Ok(Answer::new(format!("{health}\n"), code))
}
