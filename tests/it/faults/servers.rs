//! Faults 1 to 22: servers and connections.
//!
//! 1. `down`: one server, several, or most servers are down (1, 10, 11).
//! 2. `restarts`: servers restart empty, or other servers replace them (2, 3, 4, 16).
//! 3. `traffic`: requests and replies are lost, late or slow (5 to 9).
//! 4. `paused`: the holder's process is stopped (12). Faults 13 and 14 are unit tests of the library, which can set its
//!    clock.
//! 5. `clocks`: a server's wall clock jumps (15).
//! 6. `refusals`: servers that answer with an error (17 to 22).
//! 7. `modes`: servers in an unsupported mode (20).
//! 8. `permissions`: users without some permissions that a lock needs (21). `needs`: the permissions that each kind
//!    needs.
//! 9. `journal`: the log messages about nodes that fail.
//! 10. `passing`: a server that has served a client refuses it for a while. `trickle`: a server that sends its replies
//!     one byte at a time.

mod clocks;
mod down;
mod journal;
mod modes;
mod needs;
mod passing;
mod paused;
mod permissions;
mod refusals;
mod restarts;
mod traffic;
mod trickle;
