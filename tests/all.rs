//! all tests

mod golden;
mod kinds;
mod store;
