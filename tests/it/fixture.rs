//! Tests of the fixture itself.

mod proxy;
mod servers;
