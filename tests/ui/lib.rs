//! This package exists only for the test `misuse`.
