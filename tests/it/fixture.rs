//! Tests of the fixture itself.

mod servers;
