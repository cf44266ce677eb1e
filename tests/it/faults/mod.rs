//! Faults, row by row: what is injured, and what the outcome must be.
//!
//! 1. `servers`: rows 1 to 22, what happens to servers and connections.
//! 2. `holders`: rows 23 to 49, what happens to keys, holders and waiters.
//! 3. `kinds`: the rows of the other kinds of lock that have no file of their kind.

mod holders;
mod kinds;
mod servers;
mod support;
