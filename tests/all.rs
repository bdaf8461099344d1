//! all tests
