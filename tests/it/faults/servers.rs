//! Rows 1 to 22: servers and connections.
