//! See the map in the crate root.
