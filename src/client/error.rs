//! The reasons why a request has no result, in kubectl's words.

use crate::object::Status;
use std::fmt;

/// Result of a request.
pub type ClientResult<T> = Result<T, ClientError>;

/// The reason why a request has no result.
#[derive(Clone, Debug, PartialEq)]
pub enum ClientError {
    /// The server has answered with an error.
    Refused(Box<Status>),
    /// The server cannot be reached, or the connection has failed.
    Unreachable {
        /// `10.0.0.1:6443`
        server: String,
        /// The reason, as Go words it.
        why: String,
    },
    /// The server has not answered in time.
    Late {
        /// `10.0.0.1:6443`
        server: String,
    },
    /// The server's answer is not that of an API server, or larger than allowed.
    Malformed {
        /// `10.0.0.1:6443`
        server: String,
        /// The problem.
        why: String,
    },
    /// The credentials or the configuration cannot be used.
    Config(String),
    /// This machine cannot make a request at the moment.
    Local(String),
}

impl ClientError {
    /// Returns the server's error, if it has answered.
    pub fn status(&self) -> Option<&Status> {
        match self {
            ClientError::Refused(status) => Some(status),
            _ => None,
        }
    }

    /// The HTTP code of the server's answer; 0 without one.
    pub fn code(&self) -> u16 {
        self.status().map_or(0, Status::code)
    }

    /// Whether the same request may succeed later without a change of this side: the server is away or busy.
    pub fn is_temporary(&self) -> bool {
        match self {
            ClientError::Unreachable { .. } | ClientError::Late { .. } | ClientError::Local(_) => true,
            ClientError::Malformed { .. } | ClientError::Config(_) => false,
            ClientError::Refused(status) => matches!(status.code(), 429 | 500..),
        }
    }
}

impl From<Status> for ClientError {
    fn from(status: Status) -> ClientError {
        ClientError::Refused(Box::new(status))
    }
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClientError::Refused(status) => status.fmt(f),
            ClientError::Unreachable { server, why } if why.ends_with("connection refused") => {
                write!(f, "The connection to the server {server} was refused - did you specify the right host or port?")
            }
            ClientError::Unreachable { server, why } => write!(f, "Unable to connect to the server {server}: {why}"),
            ClientError::Late { server } => {
                write!(f, "Unable to connect to the server {server}: context deadline exceeded")
            }
            ClientError::Malformed { server, why } => {
                write!(f, "the server {server} gave no answer of Kubernetes: {why}")
            }
            ClientError::Config(why) | ClientError::Local(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for ClientError {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::Reason;

    #[test]
    fn errors_have_the_words_of_kubectl() {
        let server = || "127.0.0.1:6443".to_owned();
        let why = "dial tcp 127.0.0.1:6443: connect: connection refused".to_owned();
        let refused = ClientError::Unreachable { server: server(), why };
        assert_eq!(
            refused.to_string(),
            "The connection to the server 127.0.0.1:6443 was refused - did you specify the right host or port?"
        );
        assert!(refused.is_temporary() && ClientError::Late { server: server() }.is_temporary());
        let status = |reason| ClientError::from(Status::new(reason, "x"));
        assert!(status(Reason::TooManyRequests).is_temporary() && !status(Reason::Forbidden).is_temporary());
        assert_eq!((status(Reason::Expired).code(), refused.code()), (410, 0));
    }
}
