//! Secrets with tokens of service accounts (type `kubernetes.io/service-account-token`): they get the token, and end with their account.

use crate::kinds::shared::token_claims::secret_claims;
use crate::object::{Key, Object};
use crate::world::{Loop, Plan, Row, World, WriteVerb};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::sync::Arc;

const ROOT: &str = "secrets";
const ACCOUNTS: &str = "serviceaccounts";
const TYPE: &str = "kubernetes.io/service-account-token";
/// Annotations with the account's name and uid.
const NAME: &str = "kubernetes.io/service-account.name";
const UID: &str = "kubernetes.io/service-account.uid";

/// The loop, by the name of Kubernetes' controller.
pub const LOOP: Loop = Loop { name: "serviceaccount-token-controller", root: ROOT, concerns, plan, ..Loop::BASE };

fn concerns(world: &World, row: &Row) -> Vec<Key> {
    match row.key.resource.0 {
        ROOT => vec![row.key.clone()],
        ACCOUNTS => {
            let secrets = world.list_in(ROOT, &row.key.namespace).filter(|secret| is_of(secret, &row.key.name));
            secrets.map(|secret| secret.key.clone()).collect()
        }
        _ => Vec::new(),
    }
}

fn is_of(secret: &Arc<Row>, account: &str) -> bool {
    let body = secret.body();
    body.text(&["type"]) == Some(TYPE) && body.annotation(NAME) == Some(account)
}

fn plan(world: &World, key: &Key) -> Plan {
    let mut plan = Plan::default();
    let Some(row) = world.get(key).filter(|row| !row.is_deleting()) else { return plan };
    let secret = row.object();
    // Simulations have no signer.
    let Some(signer) = world.settings.claim_signer.as_ref().filter(|_| secret.text(&["type"]) == Some(TYPE)) else {
        return plan;
    };
    let name = secret.annotation(NAME).unwrap_or_default();
    let uid = secret.annotation(UID).unwrap_or_default();
    let account = world.find(ACCOUNTS, &key.namespace, name);
    let Some(account) = account.filter(|account| uid.is_empty() || *account.uid == *uid) else {
        plan.delete(row, "its ServiceAccount is gone");
        return plan;
    };
    let has_token = secret.text(&["data", "token"]).is_some_and(|token| !token.is_empty());
    let mut wanted = secret.clone();
    wanted.set(&["metadata", "annotations", UID], &*account.uid);
    put(&mut wanted, "ca.crt", &world.settings.root_ca);
    put(&mut wanted, "namespace", &key.namespace);
    if !has_token {
        let claims = secret_claims(&key.namespace, &key.name, (name, &account.uid));
        let Some(token) = signer.sign(&claims) else { return plan };
        put(&mut wanted, "token", &token);
    }
    if wanted != secret {
        plan.write(WriteVerb::Update(wanted), "a Secret of this type has the token of its ServiceAccount");
    }
    plan
}

fn put(secret: &mut Object, name: &str, text: &str) {
    secret.set(&["data", name], STANDARD.encode(text));
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Cluster, cluster};
    use super::*;
    use crate::world::{ClaimSigner, Propagation};
    use serde_json::json;

    fn signing(documents: &str) -> Cluster {
        let mut cluster = cluster(documents);
        let sign = |claims: &serde_json::Value| Some(format!("signed {}", claims["sub"].as_str().unwrap()));
        cluster.world.settings.claim_signer = Some(ClaimSigner::new(sign));
        cluster.world.settings.root_ca = "PEM".into();
        cluster
    }

    const SECRET: &str = "{apiVersion: v1, kind: Secret, type: kubernetes.io/service-account-token, metadata: {name: t, \
                          annotations: {kubernetes.io/service-account.name: web}}}";

    #[test]
    fn secret_gets_the_token_and_ends_with_its_account() {
        let mut cluster =
            signing(&format!("{{apiVersion: v1, kind: ServiceAccount, metadata: {{name: web}}}}\n---\n{SECRET}"));
        cluster.settle();
        let data = |cluster: &Cluster, name: &str| {
            let text = cluster.value(ROOT, "t", &format!("/data/{name}"));
            String::from_utf8(STANDARD.decode(text.as_str().unwrap()).unwrap()).unwrap()
        };
        assert_eq!(data(&cluster, "token"), "signed system:serviceaccount:default:web");
        assert_eq!((data(&cluster, "ca.crt"), data(&cluster, "namespace")), ("PEM".into(), "default".into()));
        let uid = cluster.object(ACCOUNTS, "web").uid().to_owned();
        assert_eq!(cluster.object(ROOT, "t").annotation(UID), Some(&*uid));
        cluster.patch(ROOT, "t", json!({"data": {"namespace": "eA=="}}));
        cluster.settle();
        assert_eq!(data(&cluster, "namespace"), "default", "a change is taken back");
        cluster.delete(ACCOUNTS, "web", Propagation::Background);
        cluster.settle();
        assert_eq!(cluster.names(ROOT), "");
    }

    #[test]
    fn other_secrets_stay_as_they_are() {
        let other = "{apiVersion: v1, kind: Secret, type: Opaque, metadata: {name: o}}";
        let mut cluster = signing(&format!("{other}\n---\n{SECRET}"));
        cluster.settle();
        assert_eq!(cluster.names(ROOT), "o", "one of an account that does not exist is deleted");
        let mut cluster = super::super::testing::cluster(SECRET);
        cluster.settle();
        assert_eq!(cluster.names(ROOT), "t", "without a signer nothing is decided");
    }
}
