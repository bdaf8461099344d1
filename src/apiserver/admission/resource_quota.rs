//! ResourceQuota: refuses objects that would exceed a namespace's quota, and writes the usage of those that do not. Usage is counted
//! as the controller counts it.

use super::{AdmissionRequest, Operation};
use crate::apiserver::ApiResult;
use crate::apiserver::rules::names::key_of;
use crate::apiserver::transaction::Transaction;
use crate::controllers::resourcequota;
use crate::object::quantity::Quantity;
use crate::object::{Key, Object, Resource, Time};
use crate::world::World;
use serde_json::{Map, Value};

/// Admits a write.
pub fn admit(txn: &mut dyn Transaction, request: &mut AdmissionRequest<'_>) -> ApiResult<()> {
    let namespace = request.object.namespace().to_owned();
    if namespace.is_empty() || !can_use_more(request) {
        return Ok(());
    }
    let mut charged = Vec::new();
    for quota in txn.list(Resource("resourcequotas"), Some(&namespace))? {
        let names = limited(&quota, request.kind.resource);
        if names.is_empty() {
            continue;
        }
        // A pod without requests has no usage, and yet matches the quota's scopes. Counting pods shows whether it matches.
        let mut counted = quota.clone();
        if request.kind.resource == "pods" {
            counted.set(&["spec", "hard", "pods"], "0");
        }
        let own = usage_of(txn.now(), request, Some(request.object), &counted);
        let old = usage_of(txn.now(), request, request.old, &counted);
        if own == old {
            continue;
        }
        let is_new = request.operation == Operation::Create;
        let problem = if is_new { find_unspecified(&names, quota.name(), request.object) } else { None };
        if let Some(why) = problem {
            return Err(request.forbidden(&why));
        }
        let charge = |before: Map<String, Value>| {
            let after = changed(&names, &before, &old, &own);
            exceeded(&names, &quota, &before, &after).map_or(Ok(after), Err)
        };
        // The status contains the usage, because each write updates it. It can be too high after deletions; only then all objects are
        // counted.
        let after = match known_usage(&quota, &names).map(charge) {
            Some(Ok(after)) => after,
            _ => charge(counted_usage(txn, request, &counted)?).map_err(|why| request.forbidden(&why))?,
        };
        charged.push(with_usage(quota, &names, &after));
    }
    if !request.dry_run {
        for quota in charged {
            txn.put(&Key::new(Resource("resourcequotas"), &namespace, quota.name()), quota)?;
        }
    }
    Ok(())
}

/// Returns the part of a quota's usage that is of one object.
fn usage_of(now: Time, request: &AdmissionRequest<'_>, object: Option<&Object>, quota: &Object) -> Map<String, Value> {
    let mut world = World::new(now);
    if let Some(object) = object {
        let key = Key::new(request.kind.resource, request.object.namespace(), request.object.name());
        world.put(key, object.0.to_string().into());
    }
    resourcequota::used(&world, request.object.namespace(), quota)
}

/// Returns the usage in the status of a quota; `None` when the status lacks one of these resources.
fn known_usage(quota: &Object, names: &[String]) -> Option<Map<String, Value>> {
    let used = |name: &String| Some((name.clone(), quota.value_at(&["status", "used", name])?.clone()));
    names.iter().map(used).collect()
}

/// Returns the usage by all objects that are stored.
fn counted_usage(
    txn: &dyn Transaction,
    request: &AdmissionRequest<'_>,
    quota: &Object,
) -> ApiResult<Map<String, Value>> {
    let namespace = request.object.namespace();
    let mut world = World::new(txn.now());
    for object in txn.list(request.kind.resource, Some(namespace))? {
        world.put(key_of(request.kind, &object), object.0.to_string().into());
    }
    Ok(resourcequota::used(&world, namespace, quota))
}

/// Returns a usage in which the old state of an object is replaced by the new one.
fn changed(
    names: &[String],
    before: &Map<String, Value>,
    old: &Map<String, Value>,
    own: &Map<String, Value>,
) -> Map<String, Value> {
    let change = |name: &String| {
        let (before, old, own) = (amount(before.get(name))?, amount(old.get(name))?, amount(own.get(name))?);
        Some((name.clone(), (before - old + own).to_string().into()))
    };
    names.iter().filter_map(change).collect()
}

fn amount(value: Option<&Value>) -> Option<Quantity> {
    value.and_then(Value::as_str).and_then(|text| Quantity::parse(text).ok())
}

/// Whether a write can increase the usage of a quota: every new object can, and each change of a field that the usage depends on.
fn can_use_more(request: &AdmissionRequest<'_>) -> bool {
    let Some(old) = request.old else {
        return request.operation == Operation::Create && request.subresource.is_empty();
    };
    let differs = |path: &[&str]| old.value_at(path) != request.object.value_at(path);
    match (request.kind.resource.0, request.subresource) {
        ("pods", "resize") => true,
        ("services", "") => {
            ["type", "ports", "allocateLoadBalancerNodePorts"].iter().any(|field| differs(&["spec", field]))
        }
        ("resourceclaims.resource.k8s.io", "") => differs(&["spec"]),
        ("persistentvolumeclaims", "") => {
            differs(&["spec", "resources", "requests", "storage"]) || differs(&["spec", "volumeAttributesClassName"])
        }
        _ => false,
    }
}

/// The quota with the usage that the object brings, so that readers need not wait for the loop.
fn with_usage(mut quota: Object, names: &[String], after: &Map<String, Value>) -> Object {
    for name in names {
        if let Some(amount) = after.get(name).filter(|_| quota.value_at(&["status", "hard", name]).is_some()) {
            quota.set(&["status", "used", name], amount.clone());
        }
    }
    quota
}

/// Returns the resources of a quota that objects of this resource use.
fn limited(quota: &Object, resource: Resource) -> Vec<String> {
    let hard = quota.value_at(&["spec", "hard"]).and_then(Value::as_object);
    let storage = |name: &str| name.ends_with("requests.storage");
    let compute = |name: &str| {
        matches!(name, "cpu" | "memory" | "ephemeral-storage")
            || name.starts_with("hugepages-")
            || name.starts_with("limits.")
            || name.starts_with("requests.")
    };
    let used_by = |name: &String| match (resource.0, name.as_str()) {
        ("pods", name) if compute(name) && !storage(name) => true,
        ("persistentvolumeclaims", name) if storage(name) || name.ends_with("/persistentvolumeclaims") => true,
        ("resourceclaims.resource.k8s.io", name) if name.ends_with(".deviceclass.resource.k8s.io/devices") => true,
        ("services", name) if name.starts_with("services.") => true,
        (resource, name) => name.strip_prefix("count/").unwrap_or(name) == resource,
    };
    hard.into_iter().flatten().map(|(name, _)| name.clone()).filter(used_by).collect()
}

/// Pods under a quota of cpu or memory have to say how much they want.
fn find_unspecified(names: &[String], quota: &str, object: &Object) -> Option<String> {
    if object.kind() != "Pod" {
        return None;
    }
    let containers = || object.items(&["spec", "containers"]).iter().chain(object.items(&["spec", "initContainers"]));
    let missing = |name: &String| {
        let (list, resource) = name.split_once('.').unwrap_or(("requests", name));
        // Resources of the whole pod speak for its containers.
        if object.value_at(&["spec", "resources", list, resource]).is_some() {
            return None;
        }
        let mut without: Vec<&str> = containers()
            .filter(|container| container["resources"][list][resource].is_null())
            .filter_map(|container| container["name"].as_str())
            .collect();
        without.sort_unstable();
        let told = matches!(resource, "cpu" | "memory") && !without.is_empty();
        told.then(|| format!("{name} for: {}", without.join(",")))
    };
    let missing: Vec<String> = names.iter().filter_map(missing).collect();
    (!missing.is_empty()).then(|| format!("failed quota: {quota}: must specify {}", missing.join("; ")))
}

/// Returns the resources that would exceed their limit, with the requested and used amounts.
fn exceeded(
    names: &[String],
    quota: &Object,
    before: &Map<String, Value>,
    after: &Map<String, Value>,
) -> Option<String> {
    let (mut requested, mut used, mut limited) = (Vec::new(), Vec::new(), Vec::new());
    for name in names {
        let hard = amount(quota.value_at(&["spec", "hard", name]));
        let (Some(hard), Some(before), Some(after)) = (hard, amount(before.get(name)), amount(after.get(name))) else {
            continue;
        };
        if after > before && after > hard {
            requested.push(format!("{name}={}", after - before));
            used.push(format!("{name}={before}"));
            limited.push(format!("{name}={hard}"));
        }
    }
    let text = |parts: Vec<String>| parts.join(",");
    (!requested.is_empty()).then(|| {
        let (requested, used, limited) = (text(requested), text(used), text(limited));
        format!("exceeded quota: {}, requested: {requested}, used: {used}, limited: {limited}", quota.name())
    })
}
