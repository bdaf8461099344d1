//! Answers of servers: bodies with a limit, and errors of HTTP in Go's words.

use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::Incoming;
use std::fmt;

/// Reasons why a body was not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyError {
    /// It is longer than this number of bytes.
    TooLong(usize),
    /// The connection ended before it.
    Broken,
}

impl fmt::Display for BodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BodyError::TooLong(most) => write!(f, "the answer is longer than {most} bytes"),
            BodyError::Broken => f.write_str("unexpected EOF"),
        }
    }
}

/// Reads a whole body of at most so many bytes.
pub async fn read_body(body: Incoming, most_bytes: usize) -> Result<Bytes, BodyError> {
    let read = Limited::new(body, most_bytes).collect().await;
    read.map(|body| body.to_bytes()).map_err(|error| match error.is::<LengthLimitError>() {
        true => BodyError::TooLong(most_bytes),
        false => BodyError::Broken,
    })
}

/// Formats an error of HTTP as Go does.
pub fn http_error(error: &hyper::Error) -> String {
    if error.is_parse() {
        return "net/http: HTTP/1.x transport connection broken: malformed HTTP response".to_owned();
    }
    match std::error::Error::source(error) {
        Some(source) if !error.is_incomplete_message() => source.to_string(),
        _ => "EOF".to_owned(),
    }
}
