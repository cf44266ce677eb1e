//! Servers that come back empty, or as somebody else.
