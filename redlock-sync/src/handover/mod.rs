//! How a lock changes hands: all of it, from thread to thread and from process to process.
//!
//! A holder that is done gives the lock to the first of these that there is:
//!
//! 1. **The next thread** of this process, if it wants the lock with the same settings: it gets the lease as it is,
//!    without a call ([`queue`]). While other processes wait, this goes on for 20 ms at a time.
//! 2. **The first wait** in the queue on the server: the release sets the key for that wait and tells its client, in
//!    one step ([`grant`]).
//! 3. **Any attempt**: the key is deleted. So it is without a wait, and in the pause that ends a chain of grants after
//!    a second, in which programs of other libraries find the lock free ([`rules`]).
//!
//! | word | what it is |
//! |---|---|
//! | queue | of threads: those of one process that want the same key. On a server: the waits of all clients, in order of arrival |
//! | head | the thread at the front of its queue, the only one that talks to servers; more than one if they share the lock |
//! | wait | what the servers know of a head that waits: `channel/number` |
//! | push | a message to a wait: a grant, or a hint to try after some time |
//! | grant | the lock, set on the server for one wait by the last holder |
//! | reservation | several nodes: the key is kept for the wait that another node tells |
//! | chain | holders that got the lock from each other, so that the key was never free |
//! | leftover token | a token that no lease has but that a node may have, from a call whose outcome is not known |
//! | stranger | a program of another library, which polls the key |
//!
//! From the bottom up:
//!
//! 1. [`rules`]: chains, the pauses between them, and how long a grant stands: all the spans of time. Pure.
//! 2. [`queue`]: between the threads of one process; `remembered.rs`: what it knows of a key beside its threads.
//! 3. [`sharing`]: a lease that several threads hold: which join it, and which gives it up.
//! 4. [`listener`]: how a client is told: the push connection, which the waiting threads read in turn.
//! 5. [`grant`]: what a client knows of a wait in the queues on the servers, and when a grant to it is the lock.
//! 6. [`wait`]: how a head waits: when it enters the queues, how long it sleeps, how its wait ends.
//! 7. [`keys_without_ttl`]: keys without a time-to-live, which a waiter may take over if its settings say so. Pure.
//!
//! `acquire.rs` is above this: it makes the attempts, and waits here in between. `lease/core/passing.rs` and
//! `lease/core/release.rs` are the holder's side.

pub(crate) mod grant;
pub(crate) mod keys_without_ttl;
pub(crate) mod listener;
pub(crate) mod queue;
mod remembered;
pub(crate) mod rules;
pub(crate) mod sharing;
pub(crate) mod wait;
