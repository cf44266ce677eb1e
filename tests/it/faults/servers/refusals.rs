//! Servers that answer with an error.
