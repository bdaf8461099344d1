//! Removes the Secrets of bootstrap tokens whose time is over (`pkg/controller/bootstrap`, TokenCleaner).

use crate::kinds::shared::bootstrap_token::{NAME_PREFIX, NAMESPACE, SECRET_TYPE, expiration};
use crate::object::Key;
use crate::world::{Loop, Plan, Row, World};

const ROOT: &str = "secrets";

/// The loop, by the name of Kubernetes' controller.
pub const LOOP: Loop = Loop { name: "token-cleaner-controller", root: ROOT, concerns, plan, ..Loop::BASE };

fn concerns(_: &World, row: &Row) -> Vec<Key> {
    let is_token =
        row.key.resource == ROOT && *row.key.namespace == *NAMESPACE && row.key.name.starts_with(NAME_PREFIX);
    if is_token { vec![row.key.clone()] } else { Vec::new() }
}

fn plan(world: &World, key: &Key) -> Plan {
    let mut plan = Plan::default();
    let Some(row) = world.get(key).filter(|row| !row.is_deleting()) else { return plan };
    let secret = row.body();
    let Some(end) = expiration(&secret).filter(|_| secret.text(&["type"]) == Some(SECRET_TYPE)) else { return plan };
    if world.now < end {
        plan.wake_at(end);
    } else {
        plan.delete(row, "the bootstrap token has expired");
    }
    plan
}

#[cfg(test)]
mod tests {
    use super::super::testing::cluster;
    use super::*;
    use base64::Engine;
    use base64::engine::general_purpose::STANDARD;

    #[test]
    fn secret_of_an_expired_token_is_deleted() {
        let secret = |name: &str, secret_type: &str, end: Option<&str>| {
            let end = end.map_or(String::new(), |end| format!("expiration: {}", STANDARD.encode(end)));
            format!(
                "{{apiVersion: v1, kind: Secret, type: {secret_type}, \
                 metadata: {{name: bootstrap-token-{name}, namespace: kube-system}}, data: {{{end}}}}}\n---\n"
            )
        };
        let (past, later) = (Some("2001-01-01T00:00:00Z"), Some("2999-01-01T00:00:00Z"));
        let documents = [
            secret("aaaaaa", SECRET_TYPE, past),
            secret("bbbbbb", SECRET_TYPE, later),
            secret("cccccc", SECRET_TYPE, None),
            secret("dddddd", "Opaque", past),
        ];
        let mut cluster = cluster(&documents.concat());
        cluster.settle();
        assert_eq!(cluster.names(ROOT), "bootstrap-token-bbbbbb bootstrap-token-cccccc bootstrap-token-dddddd");
    }
}
