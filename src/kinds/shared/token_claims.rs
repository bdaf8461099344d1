//! The claims of tokens of service accounts, and the rules for requests for them.
//!
//! Knows: the issuer, the lifetimes and the layout of a token's content (`pkg/serviceaccount/claims.go`).
//! Never: signs anything.

use super::super::{FieldErrors, FieldPath};
use super::field::invalid;
use crate::object::{Resource, Status};
use serde_json::{Value, json};

/// Issuer of all tokens, and the audience of the API server.
pub const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";
/// Lifetime of tokens whose request names none.
pub const DEFAULT_SECONDS: i64 = 3600;
/// Shortest and longest lifetime that can be requested.
const LIMITS: (i64, i64) = (600, 1 << 32);
/// Lifetime that admission requests for the token of every pod. It is extended to [`EXTENDED_SECONDS`], for programs that never read the
/// file again (`--service-account-extend-token-expiration`).
const USUAL_SECONDS: i64 = 3607;
const EXTENDED_SECONDS: i64 = 365 * 24 * 3600;

/// A name and the uid of the object that had it.
pub type NamedUid<'a> = (&'a str, &'a str);

/// The content of a token.
pub struct TokenClaims<'a> {
    /// Namespace of the account.
    pub namespace: &'a str,
    /// The account.
    pub account: NamedUid<'a>,
    /// The pod that the token is bound to.
    pub pod: Option<NamedUid<'a>>,
    /// The Secret that the token is bound to.
    pub secret: Option<NamedUid<'a>>,
    /// The node of that pod, or the node that the token is bound to. Without a uid if the node no longer exists.
    pub node: Option<NamedUid<'a>>,
    /// The audiences; empty for the API server's.
    pub audiences: &'a [String],
    /// Requested lifetime in seconds.
    pub seconds: i64,
    /// Time of issue in seconds.
    pub issued: i64,
    /// The identifier of the token.
    pub id: String,
}

impl TokenClaims<'_> {
    /// Returns the lifetime in seconds, which is longer than requested for the usual token of a pod.
    pub fn lifetime(&self) -> i64 {
        let is_for_api_server = self.audiences.is_empty() || self.audiences.iter().any(|audience| audience == ISSUER);
        if self.pod.is_some() { lifetime(self.seconds, is_for_api_server) } else { self.seconds }
    }

    /// Returns the claims as JSON.
    pub fn to_value(&self) -> Value {
        let named = |(name, uid): NamedUid| match uid {
            "" => json!({"name": name}),
            uid => json!({"name": name, "uid": uid}),
        };
        let mut own = json!({"namespace": self.namespace, "serviceaccount": named(self.account)});
        for (kind, object) in [("pod", self.pod), ("secret", self.secret), ("node", self.node)] {
            if let Some(object) = object {
                own[kind] = named(object);
            }
        }
        let lifetime = self.lifetime();
        if lifetime != self.seconds {
            own["warnafter"] = self.issued.saturating_add(self.seconds).into();
        }
        let audiences = if self.audiences.is_empty() { json!([ISSUER]) } else { json!(self.audiences) };
        json!({
            "aud": audiences, "iss": ISSUER, "sub": user_name(self.namespace, self.account.0), "jti": self.id,
            "iat": self.issued, "nbf": self.issued, "exp": self.issued.saturating_add(lifetime), "kubernetes.io": own,
        })
    }
}

/// Issuer of the tokens in Secrets.
pub const SECRET_ISSUER: &str = "kubernetes/serviceaccount";

/// Returns a claim of the tokens in Secrets by its short name.
pub fn secret_claim(name: &str) -> String {
    format!("kubernetes.io/serviceaccount/{name}")
}

/// Returns the claims of the token in a Secret. It does not expire: it counts as long as the Secret contains it.
pub fn secret_claims(namespace: &str, secret: &str, account: NamedUid<'_>) -> Value {
    json!({
        "iss": SECRET_ISSUER, "sub": user_name(namespace, account.0),
        secret_claim("namespace"): namespace, secret_claim("secret.name"): secret,
        secret_claim("service-account.name"): account.0, secret_claim("service-account.uid"): account.1,
    })
}

/// Returns the lifetime of a pod's token in seconds.
pub fn lifetime(requested: i64, is_for_api_server: bool) -> i64 {
    if is_for_api_server && requested == USUAL_SECONDS { EXTENDED_SECONDS } else { requested }
}

/// Returns the user that an account is.
pub fn user_name(namespace: &str, account: &str) -> String {
    format!("system:serviceaccount:{namespace}:{account}")
}

/// Refuses requests for tokens that live too short or too long.
pub fn check_request(seconds: i64) -> Result<(), Status> {
    let mut errors = FieldErrors::default();
    let path = FieldPath::root("spec").child("expirationSeconds");
    if seconds < LIMITS.0 {
        errors.invalid(&path, seconds, "may not specify a duration less than 10 minutes");
    }
    if seconds > LIMITS.1 {
        errors.invalid(&path, seconds, "may not specify a duration larger than 2^32 seconds");
    }
    if errors.0.is_empty() { Ok(()) } else { Err(refuse("", &errors)) }
}

/// Returns the error for a request with these problems.
pub fn refuse(name: &str, errors: &FieldErrors) -> Status {
    invalid("TokenRequest", Resource("x.authentication.k8s.io"), name, &errors.0)
}

/// Returns a text in the form of a UUID (version 4) with these bits.
pub fn uuid(high: u64, low: u64) -> String {
    let (high, low) = (high & !0xf000 | 0x4000, low & (u64::MAX >> 2) | 1 << 63);
    format!(
        "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        high >> 32,
        high >> 16 & 0xffff,
        high & 0xffff,
        low >> 48,
        low & 0xffff_ffff_ffff
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claims(audiences: &[String], seconds: i64, pod: Option<NamedUid<'_>>) -> Value {
        let account = ("web", "uid-web");
        let (secret, node) = (None, pod.map(|_| ("gone", "")));
        let id = uuid(u64::MAX, 0);
        TokenClaims { namespace: "shop", account, pod, secret, node, audiences, seconds, issued: 1000, id }.to_value()
    }

    #[test]
    fn usual_token_of_a_pod_lives_longer_than_requested() {
        let found = claims(&[], USUAL_SECONDS, Some(("p", "uid-p")));
        assert_eq!((&found["exp"], &found["kubernetes.io"]["warnafter"]), (&json!(1000 + 31_536_000), &json!(4607)));
        assert_eq!(found["kubernetes.io"]["node"], json!({"name": "gone"}));
        assert_eq!((&found["aud"], &found["jti"]), (&json!([ISSUER]), &json!("ffffffff-ffff-4fff-8000-000000000000")));
        for other in [claims(&["vault".into()], USUAL_SECONDS, Some(("p", "u"))), claims(&[], USUAL_SECONDS, None)] {
            assert_eq!((&other["exp"], &other["kubernetes.io"]["warnafter"]), (&json!(4607), &Value::Null));
        }
    }

    #[test]
    fn lifetimes_out_of_bounds_are_refused() {
        let text = |seconds| check_request(seconds).map_err(|status| status.message);
        assert_eq!((text(600), text(1 << 32)), (Ok(()), Ok(())));
        assert_eq!(
            text(10).unwrap_err(),
            "TokenRequest.authentication.k8s.io \"\" is invalid: spec.expirationSeconds: Invalid value: 10: may not specify a \
             duration less than 10 minutes"
        );
        assert!(text((1 << 32) + 1).unwrap_err().ends_with("may not specify a duration larger than 2^32 seconds"));
    }
}
