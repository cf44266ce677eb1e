//! Rows 23 to 40: keys, holders and waiters.
