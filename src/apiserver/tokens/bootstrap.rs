//! Bootstrap tokens: with one, a machine asks for the certificate of its node (`plugin/pkg/auth/authenticator/token/bootstrap`).
//!
//! Knows: such a token is a Secret `bootstrap-token-ID` in kube-system, which has an end. Never: gives a right; roles do.
//! Start reading at [`authenticate_bootstrap`].

use super::authenticate::TokenUser;
use super::compare::is_same_secret;
use crate::apiserver::ApiResult;
use crate::apiserver::transaction::Transaction;
use crate::apiserver::user::User;
use crate::kinds::shared::bootstrap_token::{NAME_PREFIX, NAMESPACE, SECRET_TYPE, expiration, field};
use crate::object::{Key, Resource};
use std::collections::BTreeMap;

/// The group of everyone who shows such a token.
const GROUP: &str = "system:bootstrappers";
/// Lengths of a token's two parts.
const ID_LENGTH: usize = 6;
const SECRET_LENGTH: usize = 16;

/// Splits a token into its id and its secret; `None` for a text of another form.
pub fn split(token: &str) -> Option<(&str, &str)> {
    let is_part = |text: &str, length: usize| {
        text.len() == length && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
    };
    token.split_once('.').filter(|(id, secret)| is_part(id, ID_LENGTH) && is_part(secret, SECRET_LENGTH))
}

/// Returns the user of a bootstrap token; `None` when the text is not a valid token.
pub fn authenticate_bootstrap(txn: &dyn Transaction, token: &str) -> ApiResult<Option<TokenUser>> {
    let Some((id, secret)) = split(token) else { return Ok(None) };
    let key = Key::new(Resource("secrets"), NAMESPACE, &format!("{NAME_PREFIX}{id}"));
    let Some(stored) = txn.get(&key)? else { return Ok(None) };
    let is_same = |name: &str, shown: &str| field(&stored, name).is_some_and(|text| is_same_secret(shown, &text));
    let is_valid = stored.text(&["type"]) == Some(SECRET_TYPE)
        && stored.deletion().is_none()
        && is_same("token-id", id)
        && is_same("token-secret", secret)
        && field(&stored, "usage-bootstrap-authentication").as_deref() == Some("true")
        && expiration(&stored).is_none_or(|end| txn.now() < end);
    if !is_valid {
        return Ok(None);
    }
    let extra = field(&stored, "auth-extra-groups").unwrap_or_default();
    let extra = extra.split(',').map(str::trim).filter(|group| group.starts_with("system:bootstrappers:"));
    let groups: Vec<String> = std::iter::once(GROUP).chain(extra).map(str::to_owned).collect();
    let user = User::impersonated(&format!("system:bootstrap:{id}"), "", &groups, BTreeMap::new());
    Ok(Some(TokenUser { user, audiences: Vec::new() }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::apiserver::create::create;
    use crate::apiserver::{Api, WriteOptions};
    use crate::kinds;
    use crate::object::Object;
    use serde_json::json;

    #[test]
    fn token_is_split_into_id_and_secret() {
        assert_eq!(split("abcdef.0123456789abcdef"), Some(("abcdef", "0123456789abcdef")));
        for wrong in ["", "abcdef", "abcde.0123456789abcdef", "abcdef.0123456789abcdeF", "abcdef.0123456789abcdef."] {
            assert_eq!(split(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn token_counts_until_its_end() {
        let mut api = Api::in_memory("test").unwrap();
        let mut add = |id: &str, end: &str, usage: &str| {
            let secret = Object(json!({
                "apiVersion": "v1", "kind": "Secret", "type": SECRET_TYPE,
                "metadata": {"name": format!("{NAME_PREFIX}{id}"), "namespace": NAMESPACE},
                "stringData": {
                    "token-id": id, "token-secret": "0123456789abcdef", "expiration": end,
                    "usage-bootstrap-authentication": usage, "auth-extra-groups": "system:bootstrappers:a,other",
                },
            }));
            let kind = &kinds::secret::KIND;
            api.write(false, |txn| create(txn, kind, &secret, &WriteOptions::default())).unwrap();
        };
        add("aaaaaa", "2999-01-01T00:00:00Z", "true");
        add("bbbbbb", "2001-01-01T00:00:00Z", "true");
        add("cccccc", "2999-01-01T00:00:00Z", "false");
        let find = |token: &str| api.read_view(|txn| authenticate_bootstrap(txn, token)).unwrap();
        let user = find("aaaaaa.0123456789abcdef").expect("a user").user;
        assert_eq!(user.name, "system:bootstrap:aaaaaa");
        assert_eq!(user.groups, [GROUP, "system:bootstrappers:a", "system:authenticated"]);
        for wrong in
            ["aaaaaa.0123456789abcdee", "bbbbbb.0123456789abcdef", "cccccc.0123456789abcdef", "dddddd.0123456789abcdef"]
        {
            assert_eq!(find(wrong), None, "{wrong}");
        }
    }
}
