//! What was found out about terminals in containers, one test each.
