//! The object that an autoscaler scales, as its scale subresource shows it: a workload, or a custom resource whose definition has one.
//!
//! Never: writes. Start reading at [`find_target`].

use crate::kinds::Kind;
use crate::kinds::custom::CustomDefinition;
use crate::object::{Object, Selector};
use crate::world::autoscaler::ScaleTargetRef;
use crate::world::{Row, World};
use std::sync::Arc;

/// The scale of an object.
pub struct ScaleTarget<'w> {
    /// The object.
    pub row: &'w Arc<Row>,
    kind: &'static Kind,
    /// The desired replicas.
    pub replicas: i64,
    /// The selector of the pods; `None` where the object has none, or one that cannot be read.
    pub selector: Option<Selector>,
}

impl ScaleTarget<'_> {
    /// The object with another number of replicas.
    pub fn resized(&self, replicas: i64) -> Object {
        let mut object = self.row.object();
        object.set(&self.kind.replicas().0, replicas);
        object
    }
}

/// Whether autoscalers can name such an object.
pub fn can_scale(world: &World, row: &Row) -> bool {
    row.workload().is_some()
        || world
            .kinds
            .by_resource(row.key.resource)
            .and_then(|kind| kind.custom)
            .is_some_and(CustomDefinition::has_scale)
}

/// Returns the scale target of an autoscaler, or Kubernetes' message when it does not exist.
pub fn find_target<'w>(world: &'w World, hpa: &Row) -> Result<ScaleTarget<'w>, String> {
    let none = ScaleTargetRef::default();
    let ScaleTargetRef { api_version, kind, name } = hpa.scale_target().unwrap_or(&none);
    let Some(kind) = world.kinds.by_kind(api_version, kind).filter(|kind| kind.scale && kind.namespaced) else {
        return Err(format!("no matches for kind {kind:?} in group {api_version:?}"));
    };
    let missing = || format!("{} {name:?} not found", kind.resource);
    let row = world.find(kind.resource.0, &hpa.key.namespace, name).ok_or_else(missing)?;
    if let Some(fields) = row.workload() {
        return Ok(ScaleTarget { row, kind, replicas: fields.replicas, selector: Some(fields.selector.clone()) });
    }
    let body = row.body();
    let path: Vec<&str> = kind.scale_paths.into_iter().flat_map(|paths| &paths.selector).map(String::as_str).collect();
    let selector = body.text(&path).filter(|text| !text.is_empty()).and_then(|text| Selector::parse(text).ok());
    let replicas = body.int(&kind.replicas().0).unwrap_or(0);
    Ok(ScaleTarget { row, kind, replicas, selector })
}

#[cfg(test)]
mod tests {
    use crate::object::Resource;
    use crate::world::{World, WriteVerb};
    use serde_json::json;

    #[test]
    fn custom_resource_is_scaled_by_the_paths_of_its_definition() {
        let mut world = World::new("2026-01-01T00:00:00Z".parse().unwrap());
        let scale = json!({"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size", "labelSelectorPath": ".status.pods"});
        let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
        let version = json!({"name": "v1", "served": true, "storage": true, "schema": schema, "subresources": {"scale": scale, "status": {}}});
        let definition = json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "rings.scaled.dev", "uid": "d", "generation": 1},
            "spec": {"group": "scaled.dev", "scope": "Namespaced", "names": {"plural": "rings", "kind": "Ring", "singular": "ring"}, "versions": [version]},
            "status": {"acceptedNames": {"plural": "rings", "kind": "Ring", "singular": "ring"},
                "conditions": [{"type": "Established", "status": "True"}, {"type": "NamesAccepted", "status": "True"}]}});
        world.kinds.register(&definition.to_string()).unwrap();
        let ring = json!({"apiVersion": "scaled.dev/v1", "kind": "Ring", "metadata": {"name": "r", "namespace": "default", "uid": "r"},
            "spec": {"size": 9}, "status": {"size": 3, "pods": "app=ring"}});
        let hpa = json!({"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
            "metadata": {"name": "h", "namespace": "default", "uid": "h"},
            "spec": {"maxReplicas": 4, "scaleTargetRef": {"apiVersion": "scaled.dev/v1", "kind": "Ring", "name": "r"}}});
        let key = |resource, name| crate::object::Key::new(Resource(resource), "default", name);
        let (ring_key, hpa_key) = (key("rings.scaled.dev", "r"), key(super::super::ROOT, "h"));
        world.put(ring_key.clone(), ring.to_string().into());
        world.put(hpa_key.clone(), hpa.to_string().into());
        let found = super::find_target(&world, world.get(&hpa_key).unwrap()).unwrap_or_else(|why| panic!("{why}"));
        assert_eq!((found.replicas, found.selector.unwrap().to_string()), (9, "app=ring".to_owned()));
        let row = world.get(&ring_key).unwrap().clone();
        assert_eq!((super::super::LOOP.concerns)(&world, &row), std::slice::from_ref(&hpa_key));
        let plan = (super::super::LOOP.plan)(&world, &hpa_key);
        let scaled = plan.writes.iter().find_map(|write| match &write.verb {
            WriteVerb::Scale(object) => object.int(&["spec", "size"]),
            _ => None,
        });
        assert_eq!(scaled, Some(4));
        let statuses = plan.writes.iter().filter_map(|write| match &write.verb {
            WriteVerb::Status(object) => object.int(&["status", "currentReplicas"]),
            _ => None,
        });
        assert_eq!(statuses.collect::<Vec<_>>(), [9], "the size in the spec");
    }
}
