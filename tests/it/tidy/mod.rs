//! Rules of the repository that the compiler does not check.
//!
//! 1. `source`: the files of the repository, and Rust code without comments, strings and tests.
//! 2. `layers`: which module may import which other module, and which code only some modules may have.
//! 3. `circles`: no files import each other in a circle.
//! 4. `guarantees`: each numbered heading of the guarantees, such as a fault or bad input, has a test.
//! 5. `scripts`: the Lua files.
//! 6. `packages`: changelog, versions, licences, files without a `mod` line, and texts that no file may have.
//! 7. `links`: each link and each name of a file leads to something.

mod circles;
mod guarantees;
mod layers;
mod links;
mod packages;
mod scripts;
mod source;
