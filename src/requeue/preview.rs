//! What `harbor job resume` would do.
