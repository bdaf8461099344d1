//! The ServiceAccount `default` of every namespace.

use crate::object::{Key, Object, Resource};
use crate::world::{Loop, Plan, Row, World, WriteVerb};
use serde_json::json;

const ROOT: &str = "namespaces";
const ACCOUNT: &str = "default";

/// The loop that adds the account to namespaces.
pub const LOOP: Loop = Loop { name: "serviceaccount-controller", root: ROOT, concerns, plan, ..Loop::BASE };

fn concerns(_: &World, row: &Row) -> Vec<Key> {
    match (row.key.resource.0, &*row.key.name) {
        (ROOT, _) => vec![row.key.clone()],
        ("serviceaccounts", ACCOUNT) => vec![Key::new(Resource(ROOT), "", &row.key.namespace)],
        _ => Vec::new(),
    }
}

fn plan(world: &World, key: &Key) -> Plan {
    let mut plan = Plan::default();
    let Some(row) = world.get(key).filter(|row| !row.is_deleting()) else { return plan };
    let namespace = &*row.key.name;
    if world.find("serviceaccounts", namespace, ACCOUNT).is_none() {
        let account = json!({
            "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": ACCOUNT, "namespace": namespace },
        });
        plan.write(WriteVerb::Create(Object(account)), "every namespace has a default ServiceAccount");
    }
    plan
}

#[cfg(test)]
mod tests {
    use super::super::testing::cluster;
    use super::ACCOUNT;
    use crate::world::Propagation;

    #[test]
    fn deleted_account_comes_back() {
        let mut cluster = cluster("");
        cluster.settle();
        cluster.delete("serviceaccounts", ACCOUNT, Propagation::Background);
        cluster.settle();
        assert_eq!(cluster.names("serviceaccounts").trim(), ACCOUNT);
    }
}
