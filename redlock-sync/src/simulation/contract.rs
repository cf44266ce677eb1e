//! The same calls for an in-memory node and for a server.
