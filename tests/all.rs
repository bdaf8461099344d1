//! all tests

mod golden;
mod kinds;
mod runtime;
mod show;
mod store;
mod house;
