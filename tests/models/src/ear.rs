//! The library's `ear`, as far as the threads that wait are concerned.

#[path = "../../../redlock-sync/src/ear/awaits.rs"]
pub(crate) mod awaits;
#[path = "../../../redlock-sync/src/ear/desk.rs"]
pub(crate) mod desk;
#[path = "../../../redlock-sync/src/ear/ghosts.rs"]
pub(crate) mod ghosts;
#[path = "../../../redlock-sync/src/ear/line.rs"]
pub(crate) mod line;
#[path = "../../../redlock-sync/src/ear/pushed.rs"]
pub(crate) mod pushed;
#[path = "../../../redlock-sync/src/ear/turns.rs"]
pub(crate) mod turns;
