//! Queues of delayed tasks.
//!
//! 1. `rig`: clients, names, and what stands on the server.
//! 2. `use_cases`: the rows of the acceptance list, by number, and the API's other promises.
//! 3. `faults`, `failover`: the rows of the fault list, by number. `garbled`: entries that were damaged by hand. `types`: keys of another type.
//! 4. `model`: random operations against a reference model.
//! 5. `processes`: worker processes that are killed again and again, and a checker. `together`, `crowd`: processes, or threads, that do everything at once.
//! 6. `outages`: workers while their server is away. `errors`: what errors name. `edges`: names, ids, bodies and times at their ends.

mod crowd;
mod edges;
mod errors;
mod failover;
mod faults;
mod garbled;
mod model;
mod outages;
mod processes;
mod rig;
mod together;
mod types;
mod use_cases;
mod workers;
