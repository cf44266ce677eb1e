//! How a lock changes hands, between threads of one process and between processes.
//!
//! A holder that releases a lock gives it to the first of these that exists:
//!
//! 1. **The next thread** of this process, if it wants the lock with the same settings. It gets the lease unchanged,
//!    without a call to a server ([`thread_queue`]). While other processes wait, threads do this for at most 20 ms at a
//!    time.
//! 2. **The first wait** in the queue on the server. The release sets the key for that wait and notifies its client, in
//!    one step of one script ([`grant`]). Some servers do not let the script publish. It grants the lock for a moment
//!    then, and the releasing client publishes that the wait may try (`lua/push.lua`).
//! 3. **Any attempt**: the release deletes the key. This happens if nothing waits. It also happens once in each second
//!    of contention, for a pause in which foreign clients find the lock free (`lua/contention.lua`).
//!
//! | word | meaning |
//! |---|---|
//! | thread queue | the threads of one client that want the same key, in order of arrival |
//! | queue head | the first thread of a thread queue: the only one that waits at servers. More than one if they share |
//! | server queue | the waits of all clients for one key, in order of arrival, stored on the server |
//! | wait | one queue head that waits, as the servers know it: `channel/number` |
//! | notification | a message to a wait: that a lock was granted to it, or a hint to try after some time |
//! | grant | the lock, set on the server for one wait by the last holder |
//! | reservation | with several nodes: one node keeps the key for the wait that another node notifies |
//! | pending token | a token without a lease that a node may still store: see `lease/inner/pending.rs` |
//! | foreign client | a program of another library, which polls the key |
//!
//! The modules, from the bottom up:
//!
//! 1. [`rules`]: the spans of time. Pure.
//! 2. [`thread_queue`]: the thread queues of one process.
//! 3. [`sharing`]: counts the threads that hold one lease together, and finds the one that releases it.
//! 4. [`listener`]: the notification connection, which the waiting threads read in turn.
//! 5. [`grant`]: when a grant to a wait is the lock.
//! 6. [`wait`]: how a queue head waits: when it enters the server queues, how long it sleeps, how its wait ends.
//! 7. [`keys_without_ttl`]: keys without a time-to-live. A waiter may take them over if its settings say so. Pure.
//!
//! `acquire.rs` lies above this folder: it makes the attempts, and waits here between two of them. The holder's side is
//! `lease/inner/passing.rs` and `lease/inner/release.rs`.

pub(crate) mod grant;
pub(crate) mod keys_without_ttl;
pub(crate) mod listener;
pub(crate) mod rules;
pub(crate) mod sharing;
pub(crate) mod thread_queue;
pub(crate) mod wait;
