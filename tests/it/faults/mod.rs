//! Faults by their numbers in the guarantees: what is injured, and what the outcome must be.
//!
//! 1. `servers`: faults 1 to 22, what happens to servers and connections.
//! 2. `holders`: faults 23 to 49, what happens to keys, holders and waiters.
//! 3. `kinds`: the cases of the other kinds of lock that have no file of their kind.

mod holders;
mod kinds;
mod servers;
mod support;
