//! Lines about problems of an API server in this process, on standard error.
//!
//! Start reading at [`log_server`].

use crate::client::standard_error;

/// Prints a problem of the API server.
pub fn log_server(text: &str) {
    standard_error::print_line(format_args!("serve: {text}"));
}
