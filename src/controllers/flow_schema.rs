//! Says of each FlowSchema whether its priority level exists, in the condition Dangling (Kubernetes: `apf_controller.go`).
//!
//! Never: makes a FlowSchema or a priority level; requests take turns without them.

use super::status;
use crate::object::{Key, condition};
use crate::world::{Loop, Plan, Row, World};

const ROOT: &str = "flowschemas.flowcontrol.apiserver.k8s.io";
const LEVELS: &str = "prioritylevelconfigurations.flowcontrol.apiserver.k8s.io";
const DANGLING: &str = "Dangling";

/// The loop, by the name that Kubernetes' API server has for its own.
pub const LOOP: Loop =
    Loop { name: "api-priority-and-fairness-config-consumer", root: ROOT, concerns, plan, ..Loop::BASE };

/// A priority level concerns every FlowSchema: there are few.
fn concerns(world: &World, row: &Row) -> Vec<Key> {
    match row.key.resource.0 {
        ROOT => vec![row.key.clone()],
        LEVELS => world.list(ROOT).map(|schema| schema.key.clone()).collect(),
        _ => Vec::new(),
    }
}

fn plan(world: &World, key: &Key) -> Plan {
    let mut plan = Plan::default();
    let Some(row) = world.get(key).filter(|row| !row.is_deleting()) else { return plan };
    let schema = row.object();
    let level = schema.text(&["spec", "priorityLevelConfiguration", "name"]).unwrap_or_default();
    let about = format!("This FlowSchema references the PriorityLevelConfiguration object named {level:?}");
    let (value, reason, end) = match world.find(LEVELS, "", level) {
        Some(_) => ("False", "Found", "and it exists"),
        None => ("True", "NotFound", "but there is no such object"),
    };
    let mut new = status::status_map(&schema);
    let mut conditions = schema.items(&["status", "conditions"]).to_vec();
    condition::set(&mut conditions, condition::new(DANGLING, value, reason, &format!("{about} {end}"), world.now));
    status::set_conditions(&mut new, conditions);
    status::write(&mut plan, schema, new.into(), "its priority level was looked up");
    plan
}

#[cfg(test)]
mod tests {
    use crate::controllers::testing::cluster;
    use crate::world::Propagation;

    #[test]
    fn schema_without_its_priority_level_is_dangling() {
        let mut cluster = cluster(
            "{apiVersion: flowcontrol.apiserver.k8s.io/v1, kind: FlowSchema, metadata: {name: web}, spec: {priorityLevelConfiguration: {name: low}}}",
        );
        cluster.settle();
        let condition = |cluster: &crate::controllers::testing::Cluster| cluster.conditions(super::ROOT, "web");
        assert_eq!(condition(&cluster), "Dangling=True NotFound");
        cluster.add(
            "{apiVersion: flowcontrol.apiserver.k8s.io/v1, kind: PriorityLevelConfiguration, metadata: {name: low}, spec: {type: Exempt}}",
        );
        cluster.settle();
        assert_eq!(condition(&cluster), "Dangling=False Found");
        let message = cluster.value(super::ROOT, "web", "/status/conditions/0/message");
        let told = "This FlowSchema references the PriorityLevelConfiguration object named \"low\" and it exists";
        assert_eq!(message, told);
        cluster.delete(super::LEVELS, "low", Propagation::Background);
        cluster.settle();
        assert_eq!(condition(&cluster), "Dangling=True NotFound");
    }
}
