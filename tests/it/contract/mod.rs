//! What each lock must do without faults, or with faults that it must tolerate.
//!
//! 1. `exclusion`: one holder at a time, by a counter that several processes share.
//! 2. `masks`: the number of votes that a lock needs. A failed attempt leaves nothing.
//! 3. `short_lease`: the shortest leases. CI also runs these in release mode, without overflow checks.
//! 4. `fences`: fencing tokens rise from holder to holder.
//! 5. `residue`: thousands of cycles leave no keys, threads or files.
//! 6. `taking`, `waiting`, `nesting`, `leases`, `endings`, `settings`, `looking`: the public API by topic.
//! 7. `one_name`: two kinds of lock with the same name.
//!
//! `rig` has the helpers.

mod endings;
mod exclusion;
mod fences;
mod leases;
mod looking;
mod masks;
mod nesting;
mod one_name;
mod residue;
mod rig;
mod settings;
mod short_lease;
mod taking;
mod waiting;
