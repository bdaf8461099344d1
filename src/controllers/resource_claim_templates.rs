//! Device claims of pods: makes a ResourceClaim from each template that a pod names, and records its name in the pod's status. A claim that
//! is allocated already is reserved for a pod that was put on a node without the scheduler.
//!
//! Never: allocates devices; the scheduler does. [`super::resource_claim_release`] releases claims.

use super::controller_ref::Owner;
use crate::object::{Key, Object, OwnerRef};
use crate::world::{EventType, Loop, Plan, Row, World, WriteVerb, devices, free_name};
use serde_json::{Value, json};

const ROOT: &str = "pods";

/// Maximum length of a generated name before its random letters.
const MAX_BASE_LENGTH: usize = 57;

/// The loop of pods with device claims.
pub const LOOP: Loop = Loop { name: "resource_claim", root: ROOT, concerns, plan, ..Loop::BASE };

fn concerns(world: &World, row: &Row) -> Vec<Key> {
    match row.key.resource.0 {
        ROOT if devices::has_claims(row) => vec![row.key.clone()],
        devices::TEMPLATES | devices::CLAIMS => {
            let pods = world.list_in(ROOT, &row.key.namespace);
            pods.filter(|pod| devices::has_claims(pod) && !devices::is_done(pod)).map(|pod| pod.key.clone()).collect()
        }
        _ => Vec::new(),
    }
}

fn plan(world: &World, key: &Key) -> Plan {
    let mut plan = Plan::default();
    let Some(row) = world.get(key).filter(|row| devices::has_claims(row)) else { return plan };
    if row.is_deleting() || devices::is_done(row) {
        return plan;
    }
    make_claims(world, row, &mut plan);
    if plan.writes.is_empty() && row.pod().is_some_and(|pod| pod.node.is_some()) {
        reserve_claims(world, row, &mut plan);
    }
    plan
}

/// Makes the claims that are missing, and writes their names into the pod's status.
fn make_claims(world: &World, row: &Row, plan: &mut Plan) {
    let pod = row.object();
    let mut statuses = pod.items(&["status", "resourceClaimStatuses"]).to_vec();
    let before = statuses.len();
    for (slot, entry) in pod.items(&["spec", "resourceClaims"]).iter().enumerate() {
        let (name, template) = (entry["name"].as_str().unwrap_or_default(), &entry["resourceClaimTemplateName"]);
        let Some(template) = template.as_str().filter(|_| !statuses.iter().any(|made| made["name"] == name)) else {
            continue;
        };
        let claim = match existing_claim(world, row, name) {
            Some(claim) => claim,
            None => match world.find(devices::TEMPLATES, &row.key.namespace, template) {
                Some(template) => {
                    let claim = new_claim(world, row, name, slot, &template.body());
                    let made = claim.name().to_owned();
                    plan.write(WriteVerb::Create(claim), format!("the pod's claim {name} needs it"));
                    made
                }
                None => {
                    let missing = format!("resourceclaimtemplate.resource.k8s.io {template:?} not found");
                    let message = format!("PodResourceClaim {name}: resource claim template {template:?}: {missing}");
                    plan.event(row, EventType::Warning, "FailedResourceClaimCreation", message);
                    plan.wait(missing);
                    continue;
                }
            },
        };
        statuses.push(json!({"name": name, "resourceClaimName": claim}));
    }
    if statuses.len() > before {
        let mut changed = pod.status_alone();
        changed.set(&["status", "resourceClaimStatuses"], statuses);
        plan.write(WriteVerb::Status(changed), "its claims have names");
    }
}

/// Returns the name of the claim that was made for a pod before, if its name was not recorded.
fn existing_claim(world: &World, row: &Row, name: &str) -> Option<String> {
    let mut own = world.dependents(&row.uid).filter(|child| child.key.resource == devices::CLAIMS);
    let made = own.find(|claim| {
        devices::is_made_for(claim, row)
            && !claim.is_deleting()
            && claim.body().annotation(devices::POD_CLAIM) == Some(name)
    });
    made.map(|claim| claim.key.name.to_string())
}

fn new_claim(world: &World, row: &Row, name: &str, slot: usize, template: &Object) -> Object {
    let owner = Owner { row, api_version: "v1", kind: "Pod" };
    let base = base_name(&row.key.name, name);
    let owner = OwnerRef { block_owner_deletion: false, ..owner.reference() };
    let spec = template.value_at(&["spec"]).unwrap_or(&Value::Null);
    let mut metadata = json!({
        "name": free_name(world, devices::CLAIMS, row, &base, slot), "generateName": base,
        "namespace": *row.key.namespace, "ownerReferences": [owner.to_value()],
    });
    for field in ["labels", "annotations"] {
        if spec["metadata"][field].is_object() {
            metadata[field] = spec["metadata"][field].clone();
        }
    }
    metadata["annotations"][devices::POD_CLAIM] = name.into();
    let mut claim = Object(json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": metadata}));
    claim.set(&["spec"], spec["spec"].clone());
    claim
}

/// `POD-CLAIM-`, both cut where they are too long.
fn base_name(pod: &str, claim: &str) -> String {
    let whole = format!("{pod}-{claim}-");
    if whole.len() <= MAX_BASE_LENGTH {
        return whole;
    }
    let cut = |text: &str| text.get(..(MAX_BASE_LENGTH - 2) / 2).unwrap_or(text).to_owned();
    format!("{}-{}-", cut(pod), cut(claim))
}

/// Reserves allocated claims for a pod that has a node.
fn reserve_claims(world: &World, row: &Row, plan: &mut Plan) {
    for claim in devices::used_by_pod(world, row).unwrap_or_default() {
        let body = &claim.body;
        let is_free = devices::is_allocated(body) && devices::can_be_reserved(body);
        if is_free && !devices::is_reserved_for(body, &row.uid) {
            plan.write(WriteVerb::Status(devices::reserved_for(body, row)), format!("{} uses it", row.key.path()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::base_name;
    use crate::controllers::testing::cluster;
    use crate::object::{Key, Resource};

    const TEMPLATE: &str = "{apiVersion: resource.k8s.io/v1, kind: ResourceClaimTemplate, metadata: {name: one}, spec: {metadata: {labels: {a: b}}, spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu}}]}}}}";
    const POD: &str = "{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {containers: [{name: c}], resourceClaims: [{name: gpu, resourceClaimTemplateName: one}, {name: shared, resourceClaimName: known}]}}";

    #[test]
    fn claim_is_made_from_a_template_and_goes_with_its_pod() {
        let mut cluster = cluster(&format!("{TEMPLATE}\n---\n{POD}"));
        cluster.settle();
        let claims = super::devices::CLAIMS;
        let name = cluster.names(claims);
        assert!(name.starts_with("web-gpu-") && !name.contains(' '), "{name}");
        assert_eq!(cluster.value("pods", "web", "/status/resourceClaimStatuses/0/resourceClaimName"), *name);
        assert_eq!(cluster.value(claims, &name, "/metadata/labels/a"), "b");
        assert!(cluster.value(claims, &name, "/metadata/ownerReferences/0/blockOwnerDeletion").is_null());
        assert_eq!(cluster.value(claims, &name, "/metadata/annotations/resource.kubernetes.io~1pod-claim-name"), "gpu");
        assert_eq!(cluster.value(claims, &name, "/spec/devices/requests/0/exactly/deviceClassName"), "gpu");
        cluster.delete("pods", "web", Default::default());
        cluster.settle();
        assert_eq!(cluster.names(claims), "");
    }

    #[test]
    fn missing_template_is_an_event_until_it_comes() {
        let mut cluster = cluster(POD);
        cluster.settle();
        let expected = "event: FailedResourceClaimCreation PodResourceClaim gpu: resource claim template \"one\": resourceclaimtemplate.resource.k8s.io \"one\" not found";
        assert!(cluster.logged(expected), "{:?}", cluster.log);
        cluster.add(TEMPLATE);
        cluster.settle();
        assert!(cluster.names(super::devices::CLAIMS).starts_with("web-gpu-"));
    }

    #[test]
    fn claim_whose_name_was_not_recorded_is_used() {
        let mut cluster = cluster(TEMPLATE);
        cluster.crashes = 1;
        cluster.add(POD);
        cluster.settle();
        let claims = super::devices::CLAIMS;
        let name = cluster.names(claims);
        assert!(!name.contains(' '), "{name}");
        assert_eq!(cluster.value("pods", "web", "/status/resourceClaimStatuses/0/resourceClaimName"), *name);
        let key = Key::new(Resource(claims), "default", &name);
        assert!(cluster.world.get(&key).is_some());
    }

    #[test]
    fn long_names_are_cut() {
        assert_eq!(base_name("web", "gpu"), "web-gpu-");
        assert_eq!(base_name(&"p".repeat(60), &"c".repeat(40)).len(), 56);
    }
}
