//! Models of the mutex, searched to their last state. README.md says what they have and what they lack.
#![forbid(unsafe_code)]
#![allow(
    missing_docs,
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::struct_excessive_bools,
    clippy::trivially_copy_pass_by_ref,
    clippy::expect_used,
    clippy::missing_panics_doc,
    clippy::must_use_candidate,
    reason = "the numbers of a model are small, and an index that is wrong ends its search"
)]

pub mod evidence;
pub mod rules;
pub mod scripts;
pub mod search;
pub mod several;
pub mod single;
