//! Bad input, row by row: each is refused with a clear error, or does what the documentation says.
