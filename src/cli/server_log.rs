//! Lines about problems of an API server in this process, on standard error.
//!
//! Start reading at [`log_server`].

/// Prints a problem of the API server.
pub fn log_server(text: &str) {
    eprintln!("serve: {text}");
}
