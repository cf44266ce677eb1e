//! What reviews of the library found and other tests had not: one test for each, seen to fail before the repair.
//!
//! 1. `names`: locks whose names look alike.
//! 2. `forks`: tokens and ids of forked workers.
//! 3. `grants`: a lock that was granted has the waiter's own settings.
//! 4. `releases`: those that a partition swallowed, and those of many locks at once.
//! 5. `fences`: counters are kept on request.
//! 6. `own`: a thread that wants what it holds itself.
//! 7. `handlers`: what a handler of a loss may use.
//! 8. `logs`: what is logged, and how often.
//! 9. `left`: a wait that ends while its calls do not get through.
//! 10. `signals`: what a signal does to a call.
//! 11. `tasks`: calls of a queue at their edges.
//! 12. `trickle`: a server whose replies come a byte at a time.
//! 13. `bodies`: large bodies of tasks over a slow connection.
//! 14. `texts`: what is said of set-ups that cannot work, and of odd names.
//! 15. `listing`: what it costs a server that its locks are listed.
//! 16. `counted`: attempts that are counted.
//! 17. `dead_waits`: processes that are gone, and had no notification connection.

mod bodies;
mod counted;
mod dead_waits;
mod fences;
mod forks;
mod grants;
mod handlers;
mod left;
mod listing;
mod logs;
mod names;
mod own;
mod releases;
mod signals;
mod tasks;
mod texts;
mod trickle;
