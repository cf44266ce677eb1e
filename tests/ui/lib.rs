//! Only a package for the test `misuse`.
