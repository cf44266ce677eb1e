//! What the macros refuse, and in which words.

/// The version whose messages `ui/fail` has; others say some of them otherwise.
const PINNED: &str = "1.95";
