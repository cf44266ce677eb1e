//! What the macros expand to and what the test rig needs; not part of the public API.

/// Name and SHA-1 of every script, so that a proxy can tell them apart.
#[must_use]
pub fn scripts() -> Vec<(&'static str, String)> {
    crate::script::all().into_iter().map(|script| (script.name, script.sha.clone())).collect()
}
