//! Rules of the repository that the compiler does not check.
//!
//! 1. `source`: the files of the repository, and Rust code without comments, strings and tests.
//! 2. `layers`: which module may import which other module, and which code only some modules may have.
//! 3. `circles`: no files import each other in a circle.
//! 4. `code`: code that the library must not have, and the longest allowed file.
//! 5. `docs`: each public item has an example.
//! 6. `guarantees`: each numbered heading of the guarantees, such as a fault or bad input, has a test.
//! 7. `scripts`: the Lua files.
//! 8. `controls`: the patches that break the library.
//! 9. `packages`: changelog, versions, licences, and texts that no file may have.
//! 10. `pages`: the length of pages, their links, and their code.
//! 11. `prose`: widths of cells and lines in pages and docs.
//! 12. `workflow`: the steps of CI.

mod circles;
mod code;
mod controls;
mod docs;
mod guarantees;
mod layers;
mod packages;
mod pages;
mod prose;
mod scripts;
mod source;
mod workflow;
