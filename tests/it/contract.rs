//! What every lock must do when nothing is broken.
