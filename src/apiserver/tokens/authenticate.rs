//! Finds the user of a token, and refuses tokens of accounts or objects that are gone.
//!
//! Never: checks a signature itself; [`crate::runtime::token_signer`] does. Start reading at [`authenticate`].

use super::keys::ClusterKeys;
use super::read_texts;
use crate::apiserver::ApiResult;
use crate::apiserver::transaction::Transaction;
use crate::apiserver::user::User;
use crate::kinds::shared::token_claims::{ISSUER, SECRET_ISSUER, secret_claim, user_name};
use crate::object::time::Shift;
use crate::object::{Key, Object, Resource};
use crate::runtime::token_signer::TokenError;
use crate::world::access::rule::quote_list;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use jiff::SignedDuration;
use serde_json::{Value, json};

/// Time for which the token of an object that is being deleted still counts.
const LEEWAY: SignedDuration = SignedDuration::from_secs(60);
/// The API server's error for a token that no authenticator knows.
const UNKNOWN: &str = "invalid bearer token";

/// A user who was authenticated by a token.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenUser {
    /// The user.
    pub user: User,
    /// The audiences of the token that the caller asked for.
    pub audiences: Vec<String>,
}

/// Returns the user of a token for these audiences, or the reason for refusing it. Without audiences, the token has to be one for the API
/// server.
pub fn authenticate(
    txn: &dyn Transaction,
    keys: &ClusterKeys,
    token: &str,
    audiences: &[String],
) -> ApiResult<Result<TokenUser, String>> {
    let claims = match keys.signer.verify(token) {
        Ok(claims) => claims,
        Err(TokenError::Invalid) => return Ok(Err(UNKNOWN.into())),
        Err(TokenError::Expired) => return refuse("service account token has expired"),
        Err(TokenError::Early) => return refuse("service account token is not valid yet"),
    };
    let own = [ISSUER.to_owned()];
    let wanted = if audiences.is_empty() { &own } else { audiences };
    match claims["iss"].as_str() {
        Some(ISSUER) => {
            let claimed = read_texts(&claims["aud"]);
            let matching: Vec<String> = claimed.iter().filter(|audience| wanted.contains(audience)).cloned().collect();
            if matching.is_empty() {
                return refuse(&format!(
                    "token audiences {} is invalid for the target audiences {}",
                    quote_list(&claimed),
                    quote_list(wanted)
                ));
            }
            authenticate_claims(txn, &claims, matching)
        }
        // Such a token names no audience: it is for the API server.
        Some(SECRET_ISSUER) if wanted.contains(&own[0]) => authenticate_secret(txn, token, &claims),
        _ => Ok(Err(UNKNOWN.into())),
    }
}

/// The error of Kubernetes' API server, which joins the errors of all its authenticators.
fn refuse<T>(why: &str) -> ApiResult<Result<T, String>> {
    Ok(Err(format!("[{UNKNOWN}, {why}]")))
}

/// Finds an object that a token depends on: it has to exist with the same uid, and not be deleted.
fn find_dependency(
    txn: &dyn Transaction,
    (resource, word): (&'static str, &str),
    namespace: &str,
    claim: &Value,
) -> ApiResult<Result<Object, String>> {
    let (name, uid) = (claim["name"].as_str().unwrap_or_default(), claim["uid"].as_str().unwrap_or_default());
    let key = Key::new(Resource(resource), namespace, name);
    let Some(object) = txn.get(&key)? else {
        let text = match word {
            "service account" => format!("serviceaccounts {name:?} not found"),
            _ => "service account token has been invalidated".into(),
        };
        return Ok(Err(text));
    };
    let is_over = object.deletion().is_some_and(|deletion| deletion.later(LEEWAY) < txn.now());
    Ok(match () {
        () if is_over && word == "service account" => Err("service account token has been invalidated".into()),
        () if is_over => Err(format!("{word} has been deleted")),
        () if object.uid() != uid => Err(format!("{word} UID ({}) does not match claim ({uid})", object.uid())),
        () => Ok(object),
    })
}

fn authenticate_claims(
    txn: &dyn Transaction,
    claims: &Value,
    audiences: Vec<String>,
) -> ApiResult<Result<TokenUser, String>> {
    let own = &claims["kubernetes.io"];
    let namespace = own["namespace"].as_str().unwrap_or_default();
    let account = match find_dependency(txn, ("serviceaccounts", "service account"), namespace, &own["serviceaccount"])?
    {
        Ok(account) => account,
        Err(why) => return refuse(&why),
    };
    let is_bound_to_node = own["pod"].is_null();
    let dependencies = [
        (("secrets", "secret"), namespace, &own["secret"], true),
        (("pods", "pod"), namespace, &own["pod"], true),
        // The node of a pod is only information.
        (("nodes", "node"), "", &own["node"], is_bound_to_node),
    ];
    for (resource, namespace, claim, _) in
        dependencies.into_iter().filter(|(_, _, claim, counts)| *counts && !claim.is_null())
    {
        if let Err(why) = find_dependency(txn, resource, namespace, claim)? {
            return refuse(&why);
        }
    }
    let mut extra: Vec<(&'static str, String)> = Vec::new();
    let mut add = |name, value: &Value| extra.extend(value.as_str().map(|value| (name, value.to_owned())));
    for (name, value) in [
        ("pod-name", &own["pod"]["name"]),
        ("pod-uid", &own["pod"]["uid"]),
        ("node-name", &own["node"]["name"]),
        ("node-uid", &own["node"]["uid"]),
    ] {
        add(name, value);
    }
    if let Some(id) = claims["jti"].as_str() {
        extra.push(("credential-id", format!("JTI={id}")));
    }
    Ok(Ok(token_user(&account, extra, audiences)))
}

fn authenticate_secret(txn: &dyn Transaction, token: &str, claims: &Value) -> ApiResult<Result<TokenUser, String>> {
    let claim = |name: &str| &claims[secret_claim(name)];
    let namespace = claim("namespace").as_str().unwrap_or_default();
    let key = Key::new(Resource("secrets"), namespace, claim("secret.name").as_str().unwrap_or_default());
    let secret = txn.get(&key)?.filter(|secret| secret.deletion().is_none());
    let stored_token = secret.and_then(|secret| STANDARD.decode(secret.text(&["data", "token"])?).ok());
    if stored_token.is_none_or(|stored| stored != token.as_bytes()) {
        return refuse("service account token has been invalidated");
    }
    let account = json!({"name": claim("service-account.name"), "uid": claim("service-account.uid")});
    Ok(match find_dependency(txn, ("serviceaccounts", "service account"), namespace, &account)? {
        Ok(account) => Ok(token_user(&account, Vec::new(), vec![ISSUER.to_owned()])),
        Err(why) => return refuse(&why),
    })
}

fn token_user(account: &Object, extra: Vec<(&'static str, String)>, audiences: Vec<String>) -> TokenUser {
    let name = user_name(account.namespace(), account.name());
    let extra = extra.into_iter().map(|(name, value)| (format!("authentication.kubernetes.io/{name}"), vec![value]));
    TokenUser { user: User::impersonated(&name, account.uid(), &[], extra.collect()), audiences }
}
