//! kloop.
fn main() {}
