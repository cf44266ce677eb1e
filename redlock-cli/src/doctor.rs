//! `redlock doctor`: checks whether the servers can keep locks.

use std::collections::BTreeMap;

use redlock_sync::Redlock;

use crate::ending::{Answer, Failure};

pub(crate) fn doctor(locks: &Redlock, as_json: bool) -> Result<Answer, Failure> {
    let health = locks.health()?;
    let code = match (health.is_ready(), health.warnings().is_empty()) {
        (true, true) => 0,
        (true, false) => 1,
        (false, _) => 2,
    };
    Ok(if as_json {
        Answer::json(BTreeMap::from([("health", &health)]), code)
    } else {
        Answer::new(format!("{health}\n"), code)
    })
}
