//! A cluster's state without values that differ from run to run: random names, uids, times, addresses, restart counts.

use kloop::object::Object;
use kloop::world::{Row, World};
use serde_json::Value;

/// Returns the state in sorted lines.
pub fn masked(world: &World) -> Vec<String> {
    let mut lines: Vec<String> = world.all_rows().filter_map(|row| line(world, row)).collect();
    lines.sort();
    lines
}

/// Returns the topmost owner of a row: `Deployment/web`.
fn top(world: &World, row: &Row) -> String {
    match row.controller() {
        None => String::from("-"),
        Some(owner) => match world.by_uid(&owner.uid).filter(|above| above.controller().is_some()) {
            Some(above) => top(world, above),
            None => format!("{}/{}", owner.kind, owner.name),
        },
    }
}

fn line(world: &World, row: &Row) -> Option<String> {
    let object = row.object();
    let (namespace, resource) = (&row.key.namespace, row.key.resource.0);
    let name = if row.controller().is_some() { "*" } else { &*row.key.name };
    let status = |fields: &[&str]| {
        let all = fields.iter().map(|field| format!("{field}={}", object.0["status"][*field]));
        all.collect::<Vec<_>>().join(" ")
    };
    let state = match resource {
        "events" | "nodes" | "leases.coordination.k8s.io" | "controllerrevisions.apps" => return None,
        "pods" => format!("{} ready={} {}", status(&["phase"]), row.pod()?.ready, images(&object)),
        "replicasets.apps" if object.int(&["spec", "replicas"]) == Some(0) => return None,
        "replicasets.apps" => {
            let counts = status(&["replicas", "readyReplicas", "availableReplicas"]);
            format!("{} {counts} {}", object.0["spec"]["replicas"], images(&object))
        }
        "deployments.apps" => {
            let counts = ["replicas", "updatedReplicas", "readyReplicas", "availableReplicas", "unavailableReplicas"];
            format!("{} {} {}", object.0["spec"], status(&counts), conditions(&object))
        }
        "jobs.batch" => conditions(&object),
        "endpointslices.discovery.k8s.io" => {
            let ready = object.items(&["endpoints"]).iter().filter(|one| one["conditions"]["ready"] == true);
            format!("{} ready", ready.count())
        }
        "namespaces" => status(&["phase"]),
        "configmaps" | "secrets" => object.0["data"].to_string(),
        _ => String::new(),
    };
    Some(format!("{resource} {namespace}/{name} of {}: {state}", top(world, row)))
}

fn images(object: &Object) -> String {
    let pod = object.value_at(&["spec", "template", "spec"]).or(object.value_at(&["spec"])).unwrap_or(&Value::Null);
    let all = pod["containers"].as_array().into_iter().flatten().map(|one| one["image"].to_string());
    all.collect::<Vec<_>>().join(",")
}

fn conditions(object: &Object) -> String {
    let text = |one: &Value| format!("{}={}:{}", one["type"], one["status"], one["reason"]);
    let mut all: Vec<String> = object.items(&["status", "conditions"]).iter().map(text).collect();
    all.sort();
    all.join(" ")
}
