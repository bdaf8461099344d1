//! Joins the rules of ClusterRoles into those that aggregate them (`aggregationRule`).

use crate::object::{Key, Selector};
use crate::world::{AppliedFields, Loop, Plan, Row, World, WriteVerb};
use std::collections::HashSet;
use std::sync::Arc;

const ROOT: &str = "clusterroles.rbac.authorization.k8s.io";

/// The rules of an aggregated role belong to its controller.
pub static APPLIED: AppliedFields =
    AppliedFields { manager: "clusterrole-aggregation-controller", is_status: false, paths: &[&["rules"]] };

/// The loop that fills aggregated roles.
pub const LOOP: Loop = Loop { name: "clusterrole-aggregation-controller", root: ROOT, concerns, plan, ..Loop::BASE };

fn concerns(world: &World, row: &Row) -> Vec<Key> {
    if row.key.resource != ROOT {
        return Vec::new();
    }
    world.list(ROOT).filter(|role| role.is_aggregated_role()).map(|role| role.key.clone()).collect()
}

/// Replaces the rules by those of all selected roles, in the order of their names, each once.
fn plan(world: &World, key: &Key) -> Plan {
    let mut plan = Plan::default();
    let Some(row) = world.get(key).filter(|row| row.is_aggregated_role() && !row.is_deleting()) else { return plan };
    let mut role = row.object();
    let selectors: Vec<_> = role
        .items(&["aggregationRule", "clusterRoleSelectors"])
        .iter()
        .filter_map(|value| Selector::from_label_selector(value).ok())
        .collect();
    if selectors.is_empty() {
        return plan;
    }
    // A role can have tens of thousands of rules, so that a search among them for each rule would take seconds.
    let (mut rules, mut seen) = (Vec::new(), HashSet::new());
    let parts = world.list(ROOT).filter(|role| role.key != *key);
    let is_selected = |role: &&Arc<Row>| selectors.iter().any(|selector| selector.matches(|label| role.label(label)));
    for part in parts.filter(is_selected) {
        for rule in part.body().items(&["rules"]) {
            if seen.insert(rule.to_string()) {
                rules.push(rule.clone());
            }
        }
    }
    if role.items(&["rules"]) != rules {
        role.set(&["rules"], rules);
        plan.write(WriteVerb::Apply { object: role, fields: &APPLIED }, "its aggregation rule selects other rules");
    }
    plan
}

#[cfg(test)]
mod tests {
    use super::super::testing::cluster;
    use serde_json::json;

    #[test]
    fn aggregated_role_follows_the_roles_that_it_selects() {
        let mut cluster = cluster(
            r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: whole}
aggregationRule: {clusterRoleSelectors: [{matchLabels: {part: "yes"}}]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: part, labels: {part: "yes"}}
rules: [{apiGroups: [apps], resources: [deployments], verbs: [get]}]
"#,
        );
        cluster.settle();
        let rules = ("clusterroles.rbac.authorization.k8s.io", "whole", "/rules");
        assert_eq!(cluster.value(rules.0, rules.1, rules.2)[0]["verbs"], json!(["get"]));
        cluster.patch(
            "clusterroles.rbac.authorization.k8s.io",
            "part",
            json!({"metadata": {"labels": {"part": "no"}}}),
        );
        cluster.settle();
        assert_eq!(cluster.value(rules.0, rules.1, rules.2), json!([]));
    }
}
