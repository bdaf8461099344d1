//! all tests

mod store;
