//! all tests

mod golden;
mod house;
mod kinds;
mod runtime;
mod show;
mod store;
