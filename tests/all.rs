//! all tests

mod cluster;
mod golden;
mod house;
mod kinds;
mod processes;
mod replay;
mod runtime;
mod show;
mod store;
