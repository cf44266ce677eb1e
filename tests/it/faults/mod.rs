//! Tests of the faults in `redlock-sync/src/guarantees.md`. Each test has the number of its fault in its name.
//!
//! 1. `servers`: faults 1 to 22, of servers and connections.
//! 2. `holders`: faults 23 to 49, of keys, holders and waiters.
//! 3. `kinds`: the cases of the other kinds of lock that have no file of their own.
//! 4. `rig`: helpers.

mod holders;
mod kinds;
pub(crate) mod rig;
mod servers;
