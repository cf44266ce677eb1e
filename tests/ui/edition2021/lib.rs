//! The functions of `ui/pass`, compiled in edition 2021.

#[path = "../pass/shapes.rs"]
pub mod shapes;
