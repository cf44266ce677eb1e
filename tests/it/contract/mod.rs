//! What every lock must do when nothing is broken, or no more than it is made to stand.
//!
//! 1. `exclusion`: one holder at a time, by a counter that several processes share.
//! 2. `masks`: how many nodes it takes, and that a try which fails leaves nothing behind.
//! 3. `short_lease`: leases as short as can be; also run in release, without overflow checks.
//! 4. `fences`: fencing tokens rise from holder to holder.
//! 5. `residue`: what is left after thousands of cycles: nothing.
//! 6. `taking`, `waiting`, `nesting`, `leases`, `endings`, `settings`, `looking`: the public API, by idea.
//! 7. `one_name`: two kinds of lock of one name.
//!
//! `rig` is what they share.

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
