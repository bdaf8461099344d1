//! Secrets of bootstrap tokens: `bootstrap-token-ID` in kube-system (Kubernetes, "Authenticating with Bootstrap Tokens").
//!
//! Never: authenticates a token.

use crate::object::{Object, Time};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// The namespace of the Secrets.
pub const NAMESPACE: &str = "kube-system";
/// The type of the Secrets.
pub const SECRET_TYPE: &str = "bootstrap.kubernetes.io/token";
/// The beginning of their names, before the token's id.
pub const NAME_PREFIX: &str = "bootstrap-token-";

/// Returns a text of a token's Secret.
pub fn field(secret: &Object, name: &str) -> Option<String> {
    String::from_utf8(STANDARD.decode(secret.text(&["data", name])?).ok()?).ok()
}

/// Returns the end of a token; `None` for one without. A time that cannot be read has passed, as in Kubernetes.
pub fn expiration(secret: &Object) -> Option<Time> {
    Some(field(secret, "expiration")?.parse().unwrap_or(Time::UNIX_EPOCH))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn expiration_that_cannot_be_read_has_passed() {
        let secret = |end: &str| Object(json!({"data": {"expiration": STANDARD.encode(end)}}));
        assert_eq!(expiration(&Object(json!({}))), None);
        assert_eq!(expiration(&secret("soon")), Some(Time::UNIX_EPOCH));
        assert_eq!(expiration(&secret("1970-01-01T00:00:07Z")).map(|end| end.as_second()), Some(7));
    }
}
