//! Faults that reviews of the library found and other tests had missed. Each has one test, which failed before the fix.
//!
//! 1. `names`: locks with similar names.
//! 2. `forks`: tokens and ids of forked workers.
//! 3. `grants`: a granted lock has the waiter's own settings.
//! 4. `releases`: releases that a partition lost, and releases of many locks at once.
//! 5. `fences`: fence counters exist only on request.
//! 6. `own`: a thread that wants a lock that it holds itself.
//! 7. `handlers`: what `on_lost` handlers may do.
//! 8. `logs`: which events are logged, and how often.
//! 9. `left`: a wait that ends while its calls get no replies.
//! 10. `signals`: calls that a signal interrupts.
//! 11. `tasks`: edge cases of queues of tasks.
//! 12. `trickle`: a server that sends its replies one byte at a time.
//! 13. `bodies`: large bodies of tasks over a slow connection.
//! 14. `texts`: errors about set-ups that cannot work, and about unusual names.
//! 15. `listing`: the cost of listing a server's locks.
//! 16. `counted`: attempts with a limited number.
//! 17. `dead_waits`: waits of processes that are gone and had no notification connection.
//! 18. `first_attempts`: the first attempt of a call, and a wait for a server that hangs.
//! 19. `passing_refusals`: a server that has served a client refuses it for a while.
//! 20. `transport`: the connections that all threads share.

mod bodies;
mod counted;
mod dead_waits;
mod fences;
mod first_attempts;
mod forks;
mod grants;
mod handlers;
mod left;
mod listing;
mod logs;
mod names;
mod own;
mod passing_refusals;
mod releases;
mod signals;
mod tasks;
mod texts;
mod transport;
mod trickle;
