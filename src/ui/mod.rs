//! Views: pure functions from the model to cells. No I/O, nothing is changed here.

pub mod fit;
pub mod replay;
pub mod style;
pub mod trial;
