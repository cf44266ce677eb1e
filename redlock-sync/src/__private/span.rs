//! The span of a body: a span of the crate `tracing` with that feature, and an empty type without it.

#[cfg(feature = "tracing")]
use tracing::debug_span;
#[cfg(feature = "tracing")]
pub(super) use tracing::span::EnteredSpan as Span;

use crate::Lease;

/// An empty type.
#[cfg(not(feature = "tracing"))]
#[derive(Debug)]
pub(super) struct Span;

/// Enters a span that begins with the body and ends when the lock is released.
#[cfg(feature = "tracing")]
pub(super) fn enter<'a, I: Iterator<Item = &'a Lease>>(leases: impl Fn() -> I) -> Span {
    // The closures run only if a subscriber wants the span.
    let first = || leases().next().map(|lease| lease.inner().observed());
    let keys = || leases().map(Lease::key).collect::<Vec<_>>().join(" ");
    debug_span!(
        target: "redlock_sync::locks",
        "locked",
        label = first().map(|lock| lock.label),
        key = keys().as_str(),
        kind = first().map(|lock| lock.kind.as_str()),
    )
    .entered()
}

#[cfg(not(feature = "tracing"))]
pub(super) fn enter<'a, I: Iterator<Item = &'a Lease>>(_leases: impl Fn() -> I) -> Span {
    Span
}
