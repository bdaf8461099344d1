//! Index by label: pods, the EndpointSlices of a Service, and pods and ReplicaSets without a controller.

use super::key_set::{KeySet, drop_from};
use super::{Row, World};
use crate::object::selector::Selector;
use crate::object::{Key, Resource, Str};
use hashbrown::HashMap;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The resource of EndpointSlices.
pub const SLICES: &str = "endpointslices.discovery.k8s.io";
/// Label of an EndpointSlice that names its Service.
pub const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// A resource, a namespace, and a label with its value that all selected pods have.
type SelectorKey = (Resource, Str, Option<(Str, Str)>);

/// Finds rows for selectors without looking at a whole namespace.
#[derive(Default)]
pub(super) struct LabelIndex {
    /// Pods by namespace, label and value.
    labels: HashMap<(Str, Str, Str), KeySet>,
    /// Rows without a controller, of resources that can be adopted, by resource and namespace.
    orphans: HashMap<(Resource, Str), KeySet>,
    /// Objects that select pods, by resource, namespace and a label that their pods must have; without a label when the selector requires
    /// none.
    selecting: HashMap<SelectorKey, KeySet>,
    /// EndpointSlices by namespace and the Service that they say they belong to.
    slices: HashMap<(Str, Str), KeySet>,
}

impl LabelIndex {
    /// Indexes a row in place of the previous one of its key. Entries that both share stay as they are: a pod changes often, its labels
    /// seldom.
    pub(super) fn add(&mut self, row: &Row, before: Option<&Row>) {
        for (label, value) in labels_of_pod(row) {
            if before.is_none_or(|before| before.label(label) != Some(&**value)) {
                self.labels.entry(place(row, label, value)).or_default().insert(row.key.clone());
            }
        }
        if let Some(place) = selecting(row) {
            self.selecting.entry(place).or_default().insert(row.key.clone());
        }
        if let Some(place) = service_of(row) {
            self.slices.entry(place).or_default().insert(row.key.clone());
        }
        if is_orphan(row) && !before.is_some_and(is_orphan) {
            let place = (row.key.resource, row.key.namespace.clone());
            self.orphans.entry(place).or_default().insert(row.key.clone());
        }
    }

    /// Removes a row, which `after` replaces, if given.
    pub(super) fn drop(&mut self, row: &Row, after: Option<&Row>) {
        for (label, value) in labels_of_pod(row) {
            if after.is_none_or(|after| after.label(label) != Some(&**value)) {
                drop_from(&mut self.labels, &place(row, label, value), &row.key);
            }
        }
        if let Some(place) = selecting(row) {
            drop_from(&mut self.selecting, &place, &row.key);
        }
        if let Some(place) = service_of(row) {
            drop_from(&mut self.slices, &place, &row.key);
        }
        if is_orphan(row) && !after.is_some_and(is_orphan) {
            drop_from(&mut self.orphans, &(row.key.resource, row.key.namespace.clone()), &row.key);
        }
    }
}

/// The labels by which a pod is found.
fn labels_of_pod(row: &Row) -> &[(Str, Str)] {
    if row.pod().is_some() { &row.labels } else { &[] }
}

impl World {
    /// Pods of a namespace that a selector selects, ordered by name.
    pub fn pods_matching<'a>(&'a self, namespace: &'a str, selector: &Selector) -> Vec<&'a Arc<Row>> {
        if selector.is_nothing() {
            return Vec::new();
        }
        let selected = |row: &&Arc<Row>| selector.matches(|key| row.label(key));
        match self.fewest(namespace, selector) {
            Some(keys) => {
                keys.into_iter().flat_map(KeySet::iter).filter_map(|key| self.get(key)).filter(selected).collect()
            }
            None => self.list_in("pods", namespace).filter(selected).collect(),
        }
    }

    /// Rows of a resource in a pod's namespace that select it, ordered by name.
    pub fn selecting(&self, resource: &'static str, pod: &Row) -> Vec<&Arc<Row>> {
        let place = |label| (Resource(resource), pod.key.namespace.clone(), label);
        let labels = pod.labels.iter().cloned().map(Some).chain([None]);
        let keys: BTreeSet<&Key> =
            labels.filter_map(|label| self.select.selecting.get(&place(label))).flat_map(KeySet::iter).collect();
        keys.into_iter().filter_map(|key| self.get(key)).filter(|row| row.selects(pod)).collect()
    }

    /// The EndpointSlices of a Service, ordered by name.
    pub fn slices_of(&self, namespace: &str, service: &str) -> impl Iterator<Item = &Arc<Row>> {
        let keys = self.select.slices.get(&(Str::from(namespace), Str::from(service)));
        keys.into_iter().flat_map(KeySet::iter).filter_map(|key| self.get(key))
    }

    /// Rows of a namespace that have no controller. Known for pods, ReplicaSets and ControllerRevisions, which can be adopted.
    pub fn orphans(&self, resource: &'static str, namespace: &str) -> impl Iterator<Item = &Arc<Row>> {
        let keys = self.select.orphans.get(&(Resource(resource), Str::from(namespace)));
        keys.into_iter().flat_map(KeySet::iter).filter_map(|key| self.get(key))
    }

    /// The smallest set of pods that one `label=value` of the selector leaves; none when it has no such requirement.
    fn fewest(&self, namespace: &str, selector: &Selector) -> Option<Option<&KeySet>> {
        let places = selector.exact().map(|(key, value)| (Str::from(namespace), Str::from(key), Str::from(value)));
        places.map(|place| self.select.labels.get(&place)).min_by_key(|keys| keys.map_or(0, KeySet::len))
    }
}

/// A label that every selected pod has.
fn label(selector: &Selector) -> Option<(Str, Str)> {
    selector.exact().next().map(|(key, value)| (key.into(), value.into()))
}

/// Returns the index key of a row that selects pods.
fn selecting(row: &Row) -> Option<SelectorKey> {
    let selector = &row.workload()?.selector;
    (!selector.is_nothing()).then(|| (row.key.resource, row.key.namespace.clone(), label(selector)))
}

/// Returns the Service that an EndpointSlice names in its label.
fn service_of(row: &Row) -> Option<(Str, Str)> {
    let service = (row.key.resource.0 == SLICES).then(|| row.label(SERVICE_NAME))??;
    Some((row.key.namespace.clone(), service.into()))
}

fn place(row: &Row, label: &Str, value: &Str) -> (Str, Str, Str) {
    (row.key.namespace.clone(), label.clone(), value.clone())
}

fn is_orphan(row: &Row) -> bool {
    let adoptable = matches!(row.key.resource.0, "pods" | "replicasets.apps" | "controllerrevisions.apps");
    adoptable && row.controller().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn world() -> World {
        let mut world = World::new(crate::object::Time::UNIX_EPOCH);
        for (namespace, name, app, owned) in
            [("a", "p1", "web", true), ("a", "p2", "web", false), ("a", "p3", "db", false), ("b", "p4", "web", false)]
        {
            let owners = if owned { json!([{"uid": "u", "controller": true}]) } else { json!([]) };
            let body = json!({"kind": "Pod", "metadata": {"uid": name, "labels": {"app": app, "x": "1"}, "ownerReferences": owners}});
            world.put(Key::new(Resource("pods"), namespace, name), body.to_string().into());
        }
        world
    }

    fn names(rows: Vec<&Arc<Row>>) -> String {
        rows.iter().map(|row| &*row.key.name).collect::<Vec<_>>().join(",")
    }

    #[test]
    fn selectors_find_pods() {
        let mut world = world();
        for (text, wanted) in [
            ("app=web", "p1,p2"),
            ("app=web,x=1", "p1,p2"),
            ("app in (web,db)", "p1,p2,p3"),
            ("app!=web", "p3"),
            ("app=none", ""),
            ("", "p1,p2,p3"),
        ] {
            let selector = Selector::parse(text).unwrap();
            assert_eq!(names(world.pods_matching("a", &selector)), wanted, "{text}");
        }
        assert!(world.pods_matching("a", &Selector::nothing()).is_empty());
        world.remove(&Key::new(Resource("pods"), "a", "p1"));
        assert_eq!(names(world.pods_matching("a", &Selector::parse("app=web").unwrap())), "p2");
    }

    #[test]
    fn pods_find_who_selects_them() {
        let mut world = world();
        for (name, selector) in
            [("web", json!({"app": "web"})), ("db", json!({"app": "db"})), ("both", json!({"x": "1", "app": "web"}))]
        {
            let body = json!({"kind": "Service", "metadata": {"uid": name}, "spec": {"selector": selector}});
            world.put(Key::new(Resource("services"), "a", name), body.to_string().into());
        }
        let broad = json!({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["db"]}]});
        let body = json!({"kind": "PodDisruptionBudget", "metadata": {"uid": "broad"}, "spec": {"selector": broad}});
        world.put(Key::new(Resource("poddisruptionbudgets.policy"), "a", "broad"), body.to_string().into());
        let found =
            |world: &World, resource, pod| names(world.selecting(resource, world.find("pods", "a", pod).unwrap()));
        assert_eq!(found(&world, "services", "p1"), "both,web");
        assert_eq!(found(&world, "services", "p3"), "db");
        assert_eq!(found(&world, "poddisruptionbudgets.policy", "p1"), "broad");
        assert_eq!(found(&world, "poddisruptionbudgets.policy", "p3"), "");
        world.remove(&Key::new(Resource("services"), "a", "web"));
        assert_eq!(found(&world, "services", "p1"), "both");
    }

    #[test]
    fn slices_are_found_by_the_service_that_they_name() {
        let mut world = world();
        let mut put = |name: &str, service: &str| {
            let labels = json!({SERVICE_NAME: service});
            let body = json!({"kind": "EndpointSlice", "metadata": {"uid": name, "labels": labels}});
            world.put(Key::new(Resource(SLICES), "a", name), body.to_string().into());
        };
        put("s1", "web");
        put("s2", "web");
        put("s3", "db");
        put("s2", "db");
        let found = |namespace, service| names(world.slices_of(namespace, service).collect());
        assert_eq!([found("a", "web"), found("a", "db"), found("b", "web")], ["s1", "s2,s3", ""]);
        world.remove(&Key::new(Resource(SLICES), "a", "s2"));
        assert_eq!(names(world.slices_of("a", "db").collect()), "s3");
    }

    #[test]
    fn orphans_have_no_controller() {
        let world = world();
        assert_eq!(names(world.orphans("pods", "a").collect()), "p2,p3");
        assert_eq!(names(world.orphans("pods", "none").collect()), "");
    }
}
