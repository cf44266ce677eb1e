//! Observers that tell crates of the program: features `metrics` and `tracing`.

#[cfg(feature = "metrics")]
mod metrics;
#[cfg(feature = "tracing")]
mod tracing;

#[cfg(feature = "metrics")]
pub use self::metrics::Metrics;
#[cfg(feature = "tracing")]
pub use self::tracing::Tracing;
