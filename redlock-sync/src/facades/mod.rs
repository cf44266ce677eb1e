//! Observers that tell crates of the program: features `metrics` and `tracing`.

#[cfg(feature = "metrics")]
mod metrics;
#[cfg(all(test, feature = "tracing"))]
#[allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by a panic")]
mod tests;
#[cfg(feature = "tracing")]
mod tracing;

#[cfg(feature = "metrics")]
pub use self::metrics::Metrics;
#[cfg(feature = "tracing")]
pub use self::tracing::Tracing;
