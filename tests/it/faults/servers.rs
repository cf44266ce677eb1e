//! Rows 1 to 22: servers and connections.
//!
//! 1. `down`: a server, some servers, most servers are gone (1, 10, 11).
//! 2. `restarts`: servers come back empty, or are replaced by others (2, 3, 4, 16).
//! 3. `traffic`: requests and replies are lost, late or slow (5 to 9).
//! 4. `paused`: the holder's process is stopped (12). The faults 13 and 14 are unit tests of the library, which can move its clock.
//! 5. `clocks`: a server's wall clock jumps (15).
//! 6. `refusals`: servers that answer with an error (17 to 22).
//! 7. `modes`: servers in a mode that is not supported (20).
//! 8. `permissions`: users without all permissions that a lock needs (21). `needs`: what each kind needs.
//! 9. `journal`: what the log says of nodes that fail.

mod clocks;
mod down;
mod journal;
mod modes;
mod needs;
mod paused;
mod permissions;
mod refusals;
mod restarts;
mod traffic;
