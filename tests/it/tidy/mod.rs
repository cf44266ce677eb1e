//! Rules of the repository that a compiler does not check.
//!
//! 1. `source`: the files, and Rust code without comments, strings and tests.
//! 2. `layers`: which module may import which, and which alone may do what.
//! 3. `circles`: no files that import from each other.
//! 4. `code`: what stands in no code of the library, and how long a file may be.
//! 5. `docs`: each public item has an example.
//! 6. `guarantees`: each numbered heading of the guarantees, such as a fault or bad input, has a test.
//! 7. `scripts`: the Lua files.
//! 8. `controls`: the patches that break the library.
//! 9. `packages`: changelog, versions, licences, and what must not be in any file.
//! 10. `pages`: how long a page may be, its links, and its code. `pictures`: no picture is older than what made it.
//! 11. `prose`: sentences, cells and lines of pages and docs.
//! 12. `words`: words that no text has.
//! 13. `workflow`: the steps of CI.
//! 14. `size`: how many lines of code and types the library has.

mod circles;
mod code;
mod controls;
mod docs;
mod guarantees;
mod layers;
mod packages;
mod pages;
mod pictures;
mod prose;
mod scripts;
mod size;
mod source;
mod words;
mod workflow;
