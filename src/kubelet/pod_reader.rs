//! Reads a pod: its spec and status from the store, and the facts of its real or simulated machine.

use super::command::MAX_START_BYTES;
use super::pod::{ContainerRole, LocalPod, PodContainer, resolve};
use super::{hooks, simulated_pod};
use crate::kinds::catalogue::typed;
use crate::kinds::pod::{ephemeral::as_container, facts::is_sidecar};
use crate::object::sparse::FieldMask;
use crate::object::{Object, sparse};
use crate::world::{NodeFacts, PodFacts, Row, World};
use k8s_openapi::api::core::v1::{Container, ContainerStatus, PodSpec, PodStatus};
use serde_json::Value;
use std::borrow::Cow;
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::VecDeque;
use std::sync::LazyLock;

/// A pod as it is stored, in the parts that the kubelet works with.
struct PodParts {
    /// All but spec and status.
    object: Object,
    spec: PodSpec,
    status: PodStatus,
}

impl PodParts {
    /// Reads the parts from the text of a row, or from its object if that is decoded.
    fn read(world: &World, row: &Row) -> Option<PodParts> {
        let Some(text) = row.text() else {
            let whole = row.shared();
            let spec = typed::read(whole.0.get("spec")?, &mut |_| {}).ok()?;
            let status = read_status(whole.0.get("status"))?;
            let rest = REST_FIELDS.iter().filter_map(|field| Some(((*field).to_owned(), whole.0.get(field)?.clone())));
            return Some(PodParts { object: Object(rest.collect()), spec, status });
        };
        let spec = read_spec(world, sparse::read_field(&text, "spec").ok()??)?;
        let status = sparse::read_field(&text, "status").ok()?;
        let status: Option<Value> = status.map(serde_json::from_str).transpose().ok()?;
        let object = Object(sparse::read_fields(&text, &REST).ok()?);
        Some(PodParts { object, spec, status: read_status(status.as_ref())? })
    }
}

/// The fields of a pod outside of its spec and status.
const REST_FIELDS: [&str; 3] = ["apiVersion", "kind", "metadata"];

static REST: LazyLock<FieldMask> = LazyLock::new(|| FieldMask::from_paths(&REST_FIELDS));

fn read_status(status: Option<&Value>) -> Option<PodStatus> {
    let status = status.map(|status| typed::read::<Option<PodStatus>>(status, &mut |_| {}));
    Some(status.transpose().ok()?.flatten().unwrap_or_default())
}

/// Maximum number of specs that are remembered.
const KNOWN_SPECS: usize = 32;

/// Length in bytes up to which a spec is remembered.
const KNOWN_LENGTH: usize = 16 << 10;

/// Specs that were read lately. Those of the pods of one template differ in the node alone.
#[derive(Default)]
struct KnownSpecs(VecDeque<KnownSpec>);

struct KnownSpec {
    /// Its text before and after the name of the node.
    text: (Box<str>, Box<str>),
    spec: PodSpec,
}

/// Reads a spec from its text, or copies that of a sibling.
fn read_spec(world: &World, text: &str) -> Option<PodSpec> {
    let Some((before, node_name, after)) = sparse::split_at_field(text, "nodeName") else { return parse_spec(text) };
    let node_name: Option<String> = serde_json::from_str(node_name).ok()?;
    let known = world.with_cached(|KnownSpecs(known): &mut KnownSpecs| {
        let known = known.iter().find(|known| (&*known.text.0, &*known.text.1) == (before, after))?;
        Some(PodSpec { node_name: node_name.clone(), ..known.spec.clone() })
    });
    if known.is_some() {
        return known;
    }
    let spec = parse_spec(text)?;
    if text.len() > KNOWN_LENGTH {
        return Some(spec);
    }
    world.with_cached(|KnownSpecs(known): &mut KnownSpecs| {
        known.truncate(KNOWN_SPECS - 1);
        known.push_front(KnownSpec { text: (before.into(), after.into()), spec: spec.clone() });
    });
    Some(spec)
}

fn parse_spec(text: &str) -> Option<PodSpec> {
    let value: Value = serde_json::from_str(text).ok()?;
    typed::read(&value, &mut |_| {}).ok()
}

impl<'a> LocalPod<'a> {
    /// Reads a pod; `None` when its body cannot be decoded.
    pub fn read(world: &'a World, row: &'a Row, node: &NodeFacts) -> Option<LocalPod<'a>> {
        let PodParts { object, spec, status } = PodParts::read(world, row)?;
        let facts = if node.is_simulated {
            Some(Cow::Owned(simulated_pod::simulated_facts(world, row, &object, &spec, &status)))
        } else {
            world.facts.pods.get(&row.uid).map(Cow::Borrowed)
        };
        let members = members(world, &spec, &status, facts.as_deref());
        let is_simulated = node.is_simulated;
        let start_bytes = Cell::new(MAX_START_BYTES);
        let mut pod = LocalPod {
            world,
            row,
            object,
            spec,
            status,
            facts,
            members,
            is_simulated,
            start_bytes,
            rejection: OnceCell::new(),
            volumes: RefCell::new(None),
        };
        if pod.is_simulated {
            simulated_pod::hold_back(&mut pod);
        }
        Some(pod)
    }
}

fn members(world: &World, spec: &PodSpec, status: &PodStatus, facts: Option<&PodFacts>) -> Vec<PodContainer> {
    let init = spec.init_containers.iter().flatten().map(|container| {
        let role = if is_sidecar(container) { ContainerRole::Sidecar } else { ContainerRole::Init };
        (role, container.clone(), status.init_container_statuses.as_deref())
    });
    let statuses = status.container_statuses.as_deref();
    let main = spec.containers.iter().map(|container| (ContainerRole::Main, container.clone(), statuses));
    let statuses = status.ephemeral_container_statuses.as_deref();
    let added = spec.ephemeral_containers.iter().flatten();
    let added = added.map(|container| (ContainerRole::Ephemeral, as_container(container), statuses));
    let member = |(role, container, statuses): (ContainerRole, Container, Option<&[ContainerStatus]>)| {
        let old = statuses.unwrap_or_default().iter().find(|status| status.name == container.name).cloned();
        let mut facts = facts.and_then(|facts| facts.containers.get(container.name.as_str())).cloned();
        facts.iter_mut().for_each(|facts| hooks::wake_up(world.now, &container, facts));
        let (attempt, state, last) = resolve(world.now, old.as_ref(), facts.as_ref());
        PodContainer { role, spec: container, old, attempt, state, last, facts }
    };
    init.chain(main).chain(added).map(member).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::object::{Key, Resource, Time};
    use serde_json::json;

    #[test]
    fn pod_is_read_alike_from_its_object_and_its_text() {
        let world = World::new(Time::UNIX_EPOCH);
        let pod = |name: &str, node: &str, image: &str| {
            Object(json!({
                "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "uid": name, "annotations": {"a": "b"}},
                "spec": {"containers": [{"name": "c", "image": image}], "nodeName": node, "restartPolicy": "Never"},
                "status": {"phase": "Running", "conditions": null},
            }))
        };
        // The second and the fourth differ from the first in the node alone, the third in the image.
        for (name, node, image) in [("a", "m", "x"), ("b", "n", "x"), ("c", "n", "y"), ("d", "\"o", "x")] {
            let (key, object) = (Key::new(Resource("pods"), "default", name), pod(name, node, image));
            let whole = PodParts::read(&world, &Row::new(key.clone(), object.clone())).unwrap();
            assert_eq!(whole.spec.node_name.as_deref(), Some(node));
            assert_eq!(whole.spec.containers[0].image.as_deref(), Some(image));
            assert_reads_alike(&world, &key, &object);
        }
        let key = Key::new(Resource("pods"), "default", "e");
        let metadata = json!({"name": "e", "uid": "e"});
        for (spec, status) in [
            (json!({"containers": [], "nodeName": null}), json!({"phase": "Pending"})),
            (json!({"containers": []}), json!(null)),
            (json!(null), json!({})),
            (json!({"containers": 1, "nodeName": "m"}), json!({})),
        ] {
            let mut object = Object(json!({"metadata": metadata, "spec": spec, "status": status}));
            assert_reads_alike(&world, &key, &object);
            object.unset(&["status"]);
            assert_reads_alike(&world, &key, &object);
            object.unset(&["spec"]);
            assert_reads_alike(&world, &key, &object);
        }
    }

    /// Asserts that reading an object and reading its text, in several forms, give the same result.
    fn assert_reads_alike(world: &World, key: &Key, object: &Object) {
        let parts = |row: Row| PodParts::read(world, &row).map(|parts| (parts.object, parts.spec, parts.status));
        let text = object.0.to_string();
        let forms = [text.replace("\":", "\" : "), text.replace("nodeName", "node\\u004eame"), text];
        for text in forms {
            let read = parts(Row::from_text(key.clone(), text.as_str().into()));
            assert_eq!(read, parts(Row::new(key.clone(), object.clone())), "{text}");
        }
    }
}
