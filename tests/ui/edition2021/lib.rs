//! The functions of `ui/pass`, compiled in edition 2021.

// The files are formatted in the style of the other edition.
#[rustfmt::skip]
#[path = "../pass/callers.rs"]
pub mod callers;
#[rustfmt::skip]
#[path = "../pass/shapes.rs"]
pub mod shapes;
