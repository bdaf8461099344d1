//! CustomResourceDefinitions: accepts names, establishes kinds, and deletes the objects with their definition.
//! (k8s.io/apiextensions-apiserver: the naming, establishing and finalizing controllers, whose conditions share one
//! status.)

use super::pods::BURST;
use super::status;
use crate::kinds::custom::{CLEANUP, DEFINITIONS, structural_errors};
use crate::kinds::custom_resource_definition::approval::{ANNOTATION, Approval, is_protected};
use crate::kinds::custom_resource_definition::has_unreadable_bundle;
use crate::kinds::{self, FieldPath};
use crate::object::{Key, Object, Resource, Time, condition};
use crate::world::{Loop, Plan, Row, World, WriteVerb};
use serde_json::{Value, json};
use std::sync::Arc;

/// The loop of definitions.
pub const LOOP: Loop =
    Loop { name: "customresourcedefinition-controller", root: DEFINITIONS.0, concerns, plan, ..Loop::BASE };

/// A definition concerns all definitions of its group, since their names can conflict. An object concerns its
/// definition while that is being deleted.
fn concerns(world: &World, row: &Row) -> Vec<Key> {
    let group = row.key.resource.group();
    let definitions = world.list(DEFINITIONS.0);
    if row.key.resource == DEFINITIONS {
        let group = group_of(&row.key.name);
        let beside = definitions.filter(|other| group_of(&other.key.name) == group).map(|other| other.key.clone());
        return beside.chain([row.key.clone()]).collect();
    }
    if !group.contains('.') || world.count_of(DEFINITIONS.0) == 0 {
        return Vec::new();
    }
    let going =
        definitions.filter(|definition| definition.is_deleting() && *definition.key.name == *row.key.resource.0);
    going.map(|definition| definition.key.clone()).collect()
}

/// The name of a definition is that of its resource: `boats.sea.dev`.
fn group_of(name: &str) -> &str {
    name.split_once('.').map_or("", |(_, group)| group)
}

fn plan(world: &World, key: &Key) -> Plan {
    let mut plan = Plan::default();
    let Some(row) = world.get(key) else { return plan };
    match row.is_deleting() {
        true => clean_up(world, row, &mut plan),
        false => establish(world, row, &mut plan),
    }
    plan
}

/// Deletes the objects of a definition, reports it in a condition, then removes the finalizer.
fn clean_up(world: &World, row: &Row, plan: &mut Plan) {
    if !row.has_finalizer(CLEANUP) {
        return;
    }
    // A definition of a built-in resource creates no kind, so the existing objects are not its own.
    let resource = Resource::intern(&row.key.name);
    let is_built_in = kinds::ALL.iter().any(|kind| kind.resource == resource);
    let remaining: Vec<&Arc<Row>> = world.list(resource.0).filter(|_| !is_built_in).collect();
    let object = row.object();
    let conditions = object.items(&["status", "conditions"]);
    let (value, reason, message) = match remaining.is_empty() {
        false => ("True", "InstanceDeletionInProgress", "CustomResource deletion is in progress"),
        true if is_built_in => {
            ("False", "OverlappingBuiltInResource", "instances overlap with built-in resources in storage")
        }
        true if condition::is_true(conditions, "Established") => {
            ("False", "InstanceDeletionCompleted", "removed all instances")
        }
        true => ("False", "NeverEstablished", "resource was never established"),
    };
    let mut new = status::status_map(&object);
    let mut conditions = conditions.to_vec();
    condition::set(&mut conditions, condition::new("Terminating", value, reason, message, world.now));
    status::set_conditions(&mut new, conditions);
    status::write(plan, object, new.into(), "its objects are being deleted");
    for one in remaining.iter().filter(|one| !one.is_deleting()).take(BURST) {
        plan.delete(one, "its definition is being deleted");
    }
    match remaining.len() {
        _ if !plan.is_empty() => (),
        0 => {
            let released = row.object().without_finalizer(CLEANUP);
            plan.write(WriteVerb::Update(released), "all of its objects are deleted");
        }
        left => plan.wait(format!("{left} of its objects still exist")),
    }
}

/// Accepts names that no other kind uses. A definition becomes established once all its names are accepted, and
/// stays established.
fn establish(world: &World, row: &Row, plan: &mut Plan) {
    let object = row.object();
    let NameCheck { accepted, conflict } = check_names(world, row, &object);
    let mut new = status::status_map(&object);
    let mut conditions = object.items(&["status", "conditions"]).to_vec();
    let was_established = condition::is_true(&conditions, "Established");
    let condition =
        |kind: &str, value: &str, reason: &str, message: &str| condition::new(kind, value, reason, message, world.now);
    let (names, established) = match &conflict {
        None => (condition("NamesAccepted", "True", "NoConflicts", "no conflicts found"), {
            if has_unreadable_bundle(&object) {
                condition("Established", "False", "InvalidCABundle", "The conversion webhook CABundle is invalid")
            } else {
                condition("Established", "True", "InitialNamesAccepted", "the initial names have been accepted")
            }
        }),
        Some((reason, message)) => (
            condition("NamesAccepted", "False", reason, message),
            condition("Established", "False", "NotAccepted", "not all names are accepted"),
        ),
    };
    condition::set(&mut conditions, names);
    if !was_established {
        condition::set(&mut conditions, established);
    }
    set_or_remove(&mut conditions, "NonStructuralSchema", non_structural(&object, world.now));
    set_or_remove(&mut conditions, "KubernetesAPIApprovalPolicyConformant", approval(&object, world.now));
    new.insert("acceptedNames".into(), accepted);
    status::set_conditions(&mut new, conditions);
    status::write(plan, object, new.into(), "its names were checked");
}

/// Sets a condition that only some definitions have.
fn set_or_remove(conditions: &mut Vec<Value>, kind: &str, condition: Option<Value>) {
    match condition {
        Some(condition) => condition::set(conditions, condition),
        None => condition::remove(conditions, kind),
    }
}

/// The condition of a definition with a schema that is not structural. Such a schema is refused today, but may have been stored before.
fn non_structural(definition: &Object, now: Time) -> Option<Value> {
    let versions = definition.items(&["spec", "versions"]).iter().enumerate();
    let schemas = versions.map(|(index, version)| (index, &version["schema"]["openAPIV3Schema"]));
    let errors: Vec<String> = schemas
        .filter(|(_, schema)| schema.is_object())
        .flat_map(|(index, schema)| {
            let path = FieldPath::root("spec").child("versions").index(index).child("schema").child("openAPIV3Schema");
            structural_errors(schema, &path).into_iter().map(|error| error.to_string())
        })
        .collect();
    let message = match errors.len() {
        0 => return None,
        1 => errors.concat(),
        _ => format!("[{}]", errors.join(", ")),
    };
    Some(condition::new("NonStructuralSchema", "True", "Violations", &message, now))
}

/// The condition of a definition in a group of the Kubernetes community.
fn approval(definition: &Object, now: Time) -> Option<Value> {
    if !is_protected(group_of(definition.name())) {
        return None;
    }
    let (state, message) = Approval::read(definition.annotation(ANNOTATION).unwrap_or_default());
    let (value, reason) = state.condition();
    Some(condition::new("KubernetesAPIApprovalPolicyConformant", value, reason, &message, now))
}

/// The names that a definition may have.
struct NameCheck {
    /// Its `acceptedNames`: a refused name keeps its earlier value.
    accepted: Value,
    /// Reason and message of the last name that another definition of the group has.
    conflict: Option<(&'static str, String)>,
}

fn check_names(world: &World, row: &Row, object: &Object) -> NameCheck {
    let group = group_of(&row.key.name);
    let others: Vec<Object> = world
        .list(DEFINITIONS.0)
        .filter(|other| other.key != row.key && group_of(&other.key.name) == group)
        .map(|other| other.object())
        .collect();
    let is_taken =
        |fields: &[&str], name: &Value| !name.is_null() && others.iter().any(|other| has_name(other, fields, name));
    let wanted = &object.0["spec"]["names"];
    let known = object.value_at(&["status", "acceptedNames"]).filter(|known| known.is_object());
    let mut accepted = known.cloned().unwrap_or_else(|| json!({"kind": "", "plural": ""}));
    let mut conflict = None;
    let resources: &[&str] = &["plural", "singular"];
    let kinds: &[&str] = &["kind", "listKind"];
    for (field, reason, fields) in [
        ("plural", "PluralConflict", resources),
        ("singular", "SingularConflict", resources),
        ("shortNames", "ShortNamesConflict", resources),
        ("kind", "KindConflict", kinds),
        ("listKind", "ListKindConflict", kinds),
    ] {
        let names = wanted[field].as_array().map_or(std::slice::from_ref(&wanted[field]), Vec::as_slice);
        let taken: Vec<String> = names
            .iter()
            .filter(|name| is_taken(fields, name))
            .map(|name| format!("{name} is already in use"))
            .collect();
        match taken.as_slice() {
            [] => set_or_drop(&mut accepted, field, wanted),
            [one] => conflict = Some((reason, one.clone())),
            several => conflict = Some((reason, format!("[{}]", several.join(", ")))),
        }
    }
    set_or_drop(&mut accepted, "categories", wanted);
    NameCheck { accepted, conflict }
}

/// Whether a definition's accepted names have a name in one of these fields. Short names and plural names share one namespace.
fn has_name(definition: &Object, fields: &[&str], name: &Value) -> bool {
    let accepted = &definition.0["status"]["acceptedNames"];
    let is_short = || accepted["shortNames"].as_array().is_some_and(|short| short.contains(name));
    fields.iter().any(|field| accepted[*field] == *name) || fields.contains(&"plural") && is_short()
}

fn set_or_drop(accepted: &mut Value, field: &str, wanted: &Value) {
    match wanted.get(field) {
        Some(value) => accepted[field] = value.clone(),
        None => {
            accepted.as_object_mut().map(|map| map.remove(field));
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::controllers::testing::{Cluster, cluster};
    use crate::object::condition;
    use serde_json::json;

    fn definition(plural: &str, kind: &str, short: &str) -> serde_json::Value {
        json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.established.dev")},
            "spec": {"group": "established.dev", "scope": "Namespaced",
                "names": {"plural": plural, "kind": kind, "shortNames": [short]},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}]},
        })
    }

    #[test]
    fn conflicting_names_are_refused_until_the_other_definition_is_deleted() {
        let mut cluster = cluster("");
        let conditions = |cluster: &Cluster, name: &str| -> Vec<String> {
            let object = cluster.object(super::DEFINITIONS.0, name);
            let items = object.items(&["status", "conditions"]);
            items
                .iter()
                .map(|one| ["type", "status", "message"].map(|field| one[field].as_str().unwrap_or_default()).join(" "))
                .collect()
        };
        cluster.create(definition("boats", "Boat", "bt"));
        cluster.settle();
        let fine = ["NamesAccepted True no conflicts found", "Established True the initial names have been accepted"];
        assert_eq!(conditions(&cluster, "boats.established.dev"), fine);
        cluster.create(definition("ships", "Boat", "sh"));
        cluster.settle();
        assert_eq!(
            conditions(&cluster, "ships.established.dev"),
            ["NamesAccepted False \"Boat\" is already in use", "Established False not all names are accepted",]
        );
        let reason = |cluster: &Cluster, name: &str| {
            cluster.object(super::DEFINITIONS.0, name).items(&["status", "conditions"])[0]["reason"].clone()
        };
        assert_eq!(reason(&cluster, "ships.established.dev"), "KindConflict");
        let mut other = definition("vessels", "Boat", "bt");
        other["spec"]["names"]["listKind"] = json!("Boat");
        cluster.create(other);
        cluster.settle();
        assert_eq!(reason(&cluster, "vessels.established.dev"), "ListKindConflict", "the last conflict counts");
        cluster.delete(super::DEFINITIONS.0, "vessels.established.dev", Default::default());
        cluster.delete(super::DEFINITIONS.0, "boats.established.dev", Default::default());
        cluster.settle();
        assert!(cluster.world.find(super::DEFINITIONS.0, "", "boats.established.dev").is_none());
        assert_eq!(conditions(&cluster, "ships.established.dev"), fine);
    }

    #[test]
    fn definition_with_unreadable_authorities_is_not_established() {
        let mut cluster = cluster("");
        let mut boats = definition("boats", "Boat", "bt");
        let client = json!({"url": "https://a.b/", "caBundle": "bm9uZQ=="});
        boats["spec"]["conversion"] = json!({"strategy": "Webhook",
            "webhook": {"clientConfig": client, "conversionReviewVersions": ["v1"]}});
        cluster.create(boats);
        cluster.settle();
        let established = |cluster: &Cluster| {
            let object = cluster.object(super::DEFINITIONS.0, "boats.established.dev");
            let found = condition::find(object.items(&["status", "conditions"]), "Established").cloned();
            found.expect("a condition")["reason"].clone()
        };
        assert_eq!(established(&cluster), "InvalidCABundle");
        let readable = json!({"spec": {"conversion": {"webhook": {"clientConfig": {"caBundle": null}}}}});
        cluster.patch(super::DEFINITIONS.0, "boats.established.dev", readable);
        cluster.settle();
        assert_eq!(established(&cluster), "InitialNamesAccepted");
    }

    #[test]
    fn group_of_the_community_has_a_condition_about_its_approval() {
        let mut cluster = cluster("");
        let mut protected = definition("boats", "Boat", "bt");
        protected["metadata"] = json!({"name": "boats.sea.k8s.io",
            "annotations": {"api-approved.kubernetes.io": "unapproved, a test"}});
        protected["spec"]["group"] = json!("sea.k8s.io");
        cluster.create(protected);
        cluster.settle();
        let object = cluster.object(super::DEFINITIONS.0, "boats.sea.k8s.io");
        let found = &object.items(&["status", "conditions"])[2];
        let expected = [
            "KubernetesAPIApprovalPolicyConformant",
            "False",
            "UnapprovedAnnotation",
            "not approved: \"unapproved, a test\"",
        ];
        assert_eq!(
            ["type", "status", "reason", "message"].map(|field| found[field].as_str().unwrap_or_default()),
            expected
        );
    }
}
