//! Tokens of service accounts for the pods of a joined node, which its server issues.
//!
//! Knows: a token is fetched before its pod is stored, so that the start of the pod waits for no server. Never: signs a token.
//! Start reading at [`IssuedTokens`].

use super::references::{NeededToken, find_tokens};
use crate::client::{ApiClient, ClientRequest};
use crate::kinds::shared::token_claims::ISSUER;
use crate::object::{IgnorePoison, Object, Time, time};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

/// Time limit for a token. A pod without a token by then starts with an empty one.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of tokens that are kept.
const MAX_TOKENS: usize = 20_000;

/// A token's pod, audience and lifetime.
type TokenId = (String, String, i64);

struct IssuedToken {
    text: String,
    /// When half of its time is over; the kubelet asks again after four fifths.
    renewal: i64,
}

/// The tokens of the pods.
#[derive(Default)]
pub struct IssuedTokens {
    known: Mutex<HashMap<TokenId, IssuedToken>>,
}

impl IssuedTokens {
    /// Fetches the missing tokens of a pod. The error is the reason why one was not issued.
    pub fn fetch(&self, client: &ApiClient, pod: &Object) -> Result<(), String> {
        let account = pod.text(&["spec", "serviceAccountName"]).unwrap_or("default");
        let mut outcome = Ok(());
        for needed in find_tokens(&pod.0["spec"]) {
            if self.find(pod.uid(), &needed).is_none() {
                let place = (pod.namespace(), pod.name(), pod.uid());
                outcome = outcome.and(self.request(client, place, account, &needed).map(drop));
            }
        }
        outcome
    }

    /// Returns the token for claims that the kubelet would have signed.
    pub fn issue(&self, client: &ApiClient, claims: &Value) -> Option<Result<String, String>> {
        let own = &claims["kubernetes.io"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (uid, name) = (text(&own["pod"]["uid"]), text(&own["pod"]["name"]));
        let audience = text(&claims["aud"][0]);
        let audience = if audience == ISSUER { String::new() } else { audience };
        let issued = claims["iat"].as_i64()?;
        // The lifetime that the pod asks for; that of its usual token is longer than asked.
        let end = own["warnafter"].as_i64().or(claims["exp"].as_i64())?;
        let needed = NeededToken { audience, seconds: end - issued };
        let known = self.find(&uid, &needed);
        let request = || {
            let pod = (&*text(&own["namespace"]), &*name, &*uid);
            self.request(client, pod, &text(&own["serviceaccount"]["name"]), &needed)
        };
        Some(known.map_or_else(request, Ok))
    }

    /// Forgets the tokens of pods that are gone.
    pub fn retain(&self, is_there: impl Fn(&str) -> bool) {
        self.lock().retain(|(uid, ..), _| is_there(uid));
    }

    fn find(&self, uid: &str, needed: &NeededToken) -> Option<String> {
        let id = (uid.to_owned(), needed.audience.clone(), needed.seconds);
        let known = self.lock();
        known.get(&id).filter(|token| Time::now().as_second() < token.renewal).map(|token| token.text.clone())
    }

    fn request(
        &self,
        client: &ApiClient,
        (namespace, name, uid): (&str, &str, &str),
        account: &str,
        needed: &NeededToken,
    ) -> Result<String, String> {
        let wrong = |why: String| {
            format!(
                "the server issues no token of the service account {namespace}/{account} for pod {namespace}/{name}: {why}"
            )
        };
        let audiences = if needed.audience.is_empty() { json!(null) } else { json!([needed.audience]) };
        let body = json!({
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "spec": {
                "audiences": audiences, "expirationSeconds": needed.seconds,
                "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid},
            },
        });
        let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token");
        let answer = client.send(ClientRequest::post(path, &body).within(TIMEOUT)).and_then(|reply| reply.json());
        let answer: Value = answer.map_err(|error| wrong(error.to_string()))?;
        let text =
            answer["status"]["token"].as_str().ok_or_else(|| wrong("its answer has none".to_owned()))?.to_owned();
        let end = time::from_json(&answer["status"]["expirationTimestamp"]);
        let now = Time::now().as_second();
        let renewal = now + end.map_or(needed.seconds, |end| end.as_second() - now) / 2;
        let mut known = self.lock();
        if known.len() >= MAX_TOKENS {
            known.retain(|_, token| now < token.renewal);
        }
        if known.len() >= MAX_TOKENS {
            known.clear();
        }
        let id = (uid.to_owned(), needed.audience.clone(), needed.seconds);
        known.insert(id, IssuedToken { text: text.clone(), renewal });
        Ok(text)
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<TokenId, IssuedToken>> {
        self.known.lock().ignore_poison()
    }
}
