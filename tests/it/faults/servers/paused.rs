//! The holder's process is stopped for longer than its lease.
