//! Queues of delayed tasks.
//!
//! 1. `rig`: helpers.
//! 2. `use_cases`: the cases under "Tasks by name and time" in the guarantees, by number, and other promises of the
//!    API.
//! 3. `faults`, `failover`: the cases under "Queues of tasks" in the guarantees, by number. `garbled`: entries damaged
//!    by hand. `types`: keys of another type. `pair`: the end of a job and the next claim in one packet.
//! 4. `model`: random operations against a reference model.
//! 5. `processes`: worker processes that are killed repeatedly. `together`, `crowd`: processes or threads that call all
//!    operations at once.
//! 6. `outages`: workers while their server is down. `errors`: the texts of errors. `edges`: unusual names, ids, bodies
//!    and times. `large_bodies`, `pushes`, `waits`: what their names say. `workers`: how worker threads end.

mod crowd;
mod edges;
mod errors;
mod failover;
mod faults;
mod garbled;
mod large_bodies;
mod model;
mod outages;
mod pair;
mod processes;
mod pushes;
mod rig;
mod together;
mod types;
mod use_cases;
mod waits;
mod workers;
