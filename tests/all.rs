//! all tests

mod golden;
mod kinds;
mod runtime;
mod store;
