//! Locks of one node that are left held and adopted by their token. At most one thread adopts a lock, before its lease
//! ends.

use std::time::Duration;

use super::known::Letter;
use super::plan::{MS, Time, nanos};
use super::thread::Thread;
use super::world::with;
use super::{invariants, settings};
use crate::acquire::adopt::adopt;
use crate::error::Error;
use crate::lease::Lease;
use crate::protocol::Request;

/// Leaves the lock of the current task held. Returns false if that fails and the task still holds the lock.
pub(super) fn leave(thread: &Thread, key: usize, lease: &Lease) -> bool {
    let left = lease.remaining();
    let until = thread.now().after(left);
    if lease.leave_held().is_err() {
        return false;
    }
    if thread.is_dead() {
        return true;
    }
    // A node may keep the lock for as long as the last renewal asked for.
    let keep = left + settings::longest(lease).unwrap_or_default();
    let number = invariants::leaves(key, until, keep);
    with(|world| {
        let lasts = world.now + nanos(left).saturating_sub(nanos(left) / 100 + MS);
        let id = lease.id().clone();
        world.invariants.letters.push(Letter { key, id, number, lasts, tries: 0, is_adopted: false });
        world.log(|_| format!("key {key} is left held"));
    });
    true
}

/// Draws a lock of this key to adopt, among those that were left. It may have been adopted before.
pub(super) fn find(key: usize) -> Option<usize> {
    let all: Vec<usize> = with(|world| {
        let letters = world.invariants.letters.iter().enumerate();
        letters.filter(|(_, letter)| letter.key == key).map(|(nth, _)| nth).collect()
    });
    (!all.is_empty()).then(|| all[fastrand::usize(0..all.len())])
}

/// Tries to adopt a lock. Returns the lease and the time of the request, or `None` if the attempt came too late.
pub(super) fn take(thread: &Thread, nth: usize, request: &Request) -> Result<Option<(Lease, Time)>, Error> {
    let letter = with(|world| {
        let letter = &mut world.invariants.letters[nth];
        letter.tries += 1;
        letter.clone()
    });
    let Letter { key, id, number, lasts, .. } = letter;
    invariants::is_adopting(key, number);
    let asked = invariants::wants(key, &request.options);
    let outcome = adopt(&thread.inner, request, &id);
    invariants::has_waited(key);
    if thread.is_dead() {
        return Ok(None);
    }
    match outcome {
        Ok(lease) => {
            with(|world| {
                // A late copy of the acquire sets the token once more, as the docs of `adopt` say.
                let is_back = world.invariants.tokens.traces.get(id.as_str()).is_some_and(|trace| trace.is_late);
                if std::mem::replace(&mut world.invariants.letters[nth].is_adopted, true) && !is_back {
                    world.violate(format!("a token is adopted twice: that of key {key}"));
                }
            });
            invariants::has_adopted(key, lease.id().as_str());
            Ok(Some((lease, asked)))
        }
        Err(Error::Lost { .. }) => with(|world| {
            let tries = world.invariants.letters[nth].tries;
            if world.plan.is_calm && tries == 1 && world.now + nanos(Duration::from_millis(50)) < lasts {
                world.violate(format!("a token that holds key {key} is refused"));
            }
            Ok(None)
        }),
        Err(error) => Err(error),
    }
}
