//! The order of the built objects: dependencies first, unless `sortOptions` sets another order.

use super::BuildResult;
use super::file::SortOptions;
use super::resource::BuildResource;

/// The first kinds, in this order.
const FIRST: [&str; 22] = [
    "Namespace",
    "ResourceQuota",
    "StorageClass",
    "CustomResourceDefinition",
    "ServiceAccount",
    "PodSecurityPolicy",
    "Role",
    "ClusterRole",
    "RoleBinding",
    "ClusterRoleBinding",
    "ConfigMap",
    "Secret",
    "Endpoints",
    "Service",
    "LimitRange",
    "PriorityClass",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "Deployment",
    "StatefulSet",
    "CronJob",
    "PodDisruptionBudget",
];

/// The last kinds.
const LAST: [&str; 2] = ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"];

/// Sorts the objects. Without options, uses kustomize's "legacy" order like kubectl.
pub fn arrange(resources: &mut [BuildResource], options: Option<&SortOptions>) -> BuildResult {
    let order = options.map_or("legacy", |options| options.order.as_str());
    let lists = options.and_then(|options| options.legacy_sort_options.as_ref());
    match order {
        "fifo" if lists.is_some() => Err(format!(
            "the field 'sortOptions.legacySortOptions' is set but the selected sort order is '{order}', not 'legacy'"
        )),
        "fifo" => Ok(()),
        "legacy" => {
            let own = |list: &[String]| list.to_vec();
            let usual = |list: &[&str]| list.iter().map(|kind| (*kind).to_owned()).collect();
            let first: Vec<String> = lists.map_or_else(|| usual(&FIRST), |lists| own(&lists.order_first));
            let last: Vec<String> = lists.map_or_else(|| usual(&LAST), |lists| own(&lists.order_last));
            resources.sort_by_cached_key(|resource| key(resource, &first, &last));
            Ok(())
        }
        _ => Err("the field 'sortOptions.order' must be one of [fifo, legacy]".to_owned()),
    }
}

/// Returns the sort key: kind, then group, version and kind, namespace and name. Empty parts sort
/// as kustomize writes them.
fn key(resource: &BuildResource, first: &[String], last: &[String]) -> (usize, String, String) {
    let id = resource.id();
    let place = |list: &[String]| list.iter().rposition(|kind| *kind == id.kind);
    let rank = match (place(first), place(last)) {
        (_, Some(place)) => first.len() + 1 + place,
        (Some(place), None) => place,
        (None, None) => first.len(),
    };
    let or = |text: &str, none: &str| if text.is_empty() { none.to_owned() } else { text.to_owned() };
    let kind = format!("{}_{}_{}", or(&id.group, "~G"), or(&id.version, "~V"), or(&id.kind, "~K"));
    (rank, kind, format!("{}|{}", or(&id.namespace, "~X"), or(&id.name, "~N")))
}
