//! Results of a command for its user: failures with their exit codes, a line of progress, and logs.
//!
//! Never: decides what a verb prints; a verb's file does. Start reading at [`failure`].

pub mod diagnostics;
pub mod failure;
pub mod log_writer;
pub mod progress_line;
pub mod server_log;
