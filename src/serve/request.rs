//! An API request, from HTTP or from the command line.

use super::ServeResult;
use crate::apiserver::user::User;
use crate::object::{Reason, Status};
use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use std::sync::Arc;

/// A request.
#[derive(Clone, Debug, Default)]
pub struct ApiRequest {
    /// `GET`, `POST`, `PUT`, `PATCH` or `DELETE`.
    pub method: String,
    /// The path as it was written, without its parameters.
    pub path: String,
    /// The parameters, decoded.
    pub query: Vec<(String, String)>,
    /// The header `Accept`.
    pub accept: String,
    /// The header `Content-Type`.
    pub content_type: String,
    /// The header `User-Agent`.
    pub agent: String,
    /// The header `Authorization`, which the server has checked.
    pub authorization: String,
    /// The header `Host`.
    pub host: String,
    /// The header `If-None-Match`.
    pub if_none_match: String,
    /// The user who makes the request; `None` for the administrator.
    pub user: Option<Arc<User>>,
    /// The body.
    pub body: Vec<u8>,
    /// The requested change of protocols.
    pub upgrade: Option<UpgradeRequest>,
}

/// A protocol other than HTTP that a client asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpgradeProtocol {
    /// RFC 6455.
    WebSocket,
    /// SPDY/3.1, as clients before Kubernetes 1.31 use it.
    Spdy,
}

/// A requested change of protocols.
#[derive(Clone, Debug)]
pub struct UpgradeRequest {
    /// The protocol.
    pub protocol: UpgradeProtocol,
    /// The possible subprotocols, in the client's order of preference.
    pub subprotocols: Vec<String>,
    /// `Sec-WebSocket-Key`.
    pub key: String,
}

impl ApiRequest {
    /// Makes a request with a method and a path, which may have parameters.
    pub fn new(method: &str, target: &str) -> ApiRequest {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let pairs = query.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            (decoded(name), decoded(value))
        });
        ApiRequest { method: method.into(), path: path.into(), query: pairs.collect(), ..ApiRequest::default() }
    }

    /// Whether the method is GET, or HEAD, which asks for the headers of the same answer.
    pub fn is_get_or_head(&self) -> bool {
        matches!(self.method.as_str(), "GET" | "HEAD")
    }

    /// The token that the client has shown; empty without one.
    pub fn bearer_token(&self) -> &str {
        let (scheme, token) = self.authorization.split_once(' ').unwrap_or_default();
        if scheme.eq_ignore_ascii_case("bearer") { token.trim() } else { "" }
    }

    /// The value of a parameter that is not empty.
    pub fn parameter(&self, name: &str) -> Option<&str> {
        self.query
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, value)| value.as_str())
            .filter(|text| !text.is_empty())
    }

    /// Returns a boolean parameter; without a value it is true (apimachinery: `Convert_Slice_string_To_bool`).
    pub fn flag(&self, name: &str) -> bool {
        let found = self.query.iter().find(|(known, _)| known == name);
        found.is_some_and(|(_, value)| !matches!(value.as_str(), "0" | "false"))
    }

    /// Returns a numeric parameter.
    pub fn number(&self, name: &str) -> ServeResult<Option<i64>> {
        let Some(text) = self.parameter(name) else { return Ok(None) };
        let refuse = |_| Status::new(Reason::BadRequest, format!("strconv.ParseInt: parsing {text:?}: invalid syntax"));
        text.parse().map(Some).map_err(refuse)
    }

    /// Whether the answer is for a person, with line breaks.
    pub fn is_for_people(&self) -> bool {
        let person = ["curl", "Wget", "Mozilla/5.0"].iter().any(|agent| self.agent.starts_with(agent));
        if self.query.iter().any(|(name, _)| name == "pretty") { self.flag("pretty") } else { person }
    }
}

/// Decodes a part of a query: `+` is a blank.
fn decoded(text: &str) -> String {
    percent_decode_str(&text.replace('+', " ")).decode_utf8_lossy().into_owned()
}

/// Encodes parameters, without the question mark.
pub fn encode_query(pairs: impl Iterator<Item = (impl AsRef<str>, impl AsRef<str>)>) -> String {
    let encode = |text: &str| utf8_percent_encode(text, NON_ALPHANUMERIC).to_string();
    pairs
        .map(|(name, value)| format!("{}={}", encode(name.as_ref()), encode(value.as_ref())))
        .collect::<Vec<_>>()
        .join("&")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_decoded() {
        let request =
            ApiRequest::new("GET", "/api/v1/pods?labelSelector=a%20in+(b)&watch&limit=5&pretty=false&x=%ff&empty=");
        assert_eq!(request.path, "/api/v1/pods");
        assert_eq!(request.parameter("labelSelector"), Some("a in (b)"));
        assert_eq!(request.parameter("empty"), None);
        assert!(request.flag("watch") && !request.flag("pretty") && !request.flag("nope"));
        assert_eq!(request.number("limit"), Ok(Some(5)));
        assert_eq!(request.number("labelSelector").unwrap_err().reason, Reason::BadRequest);
    }
}
