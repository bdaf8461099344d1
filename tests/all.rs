//! all tests

mod golden;
mod house;
mod kinds;
mod replay;
mod runtime;
mod show;
mod store;
