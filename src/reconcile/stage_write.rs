//! Stages the writes of plans in the World, through the API server's pipeline.
//!
//! Never: commits, or decides about a plan whose write is refused; the tick does. Start reading at [`stage_write`].

use super::overlay::Overlay;
use crate::apiserver::apply_patch::apply_patch;
use crate::apiserver::bind::bind;
use crate::apiserver::create::{PodTemplateCache, create_like};
use crate::apiserver::delete::{DeleteOptions, delete};
use crate::apiserver::outside::WriteInputs;
use crate::apiserver::rules::names::key_of;
use crate::apiserver::update::{UpdatePart, update, update_pod_status};
use crate::apiserver::user::User;
use crate::apiserver::{Transaction, WriteOptions, create};
use crate::kinds::{Kind, KindRegistry};
use crate::managed_fields::FieldManager;
use crate::managed_fields::apply::ApplyManager;
use crate::object::{Key, Object, Reason, Status};
use crate::world::{AppliedFields, Propagation, World, WriteVerb};
use hashbrown::HashMap;
use serde_json::json;
use std::sync::Arc;

/// The circumstances in which a plan's writes are staged.
pub struct StagingContext<'a> {
    /// The loop, as a user of the API server.
    pub user: &'a Arc<User>,
    /// Answers of webhooks and other inputs from outside, where the write lock is not held for long.
    pub inputs: Option<&'a mut WriteInputs>,
    /// The objects that this tick has written last.
    pub last: &'a mut HashMap<Key, Arc<Object>>,
    /// Pods made from the same template, unless the plan has only one write.
    pub template_cache: Option<&'a mut PodTemplateCache>,
    /// Source of random numbers.
    pub random: &'a mut dyn FnMut() -> u64,
}

/// Stages one write of a plan in the World, through the API server's pipeline. An attempt is not an object, so it stages nothing.
pub fn stage_write(world: &mut World, verb: &WriteVerb, context: StagingContext<'_>) -> Result<(), Status> {
    let StagingContext { user, inputs, last, template_cache, random } = context;
    let revision = world.revision + world.staged_count() as u64;
    write_verb(&mut Overlay { world, revision, last, user, inputs, random }, verb, template_cache)
}

/// Makes one write of a plan in a transaction.
pub fn write_verb(
    txn: &mut dyn Transaction,
    verb: &WriteVerb,
    template_cache: Option<&mut PodTemplateCache>,
) -> Result<(), Status> {
    let kinds = txn.kinds().clone();
    let options = WriteOptions::default();
    let component = component_name(&txn.request_user());
    match verb {
        WriteVerb::Create(object) => match template_cache {
            Some(template_cache) => create_like(txn, kind_of(&kinds, object)?, object, &options, template_cache),
            None => create::create(txn, kind_of(&kinds, object)?, object, &options).map(|_| ()),
        },
        WriteVerb::Update(object) => {
            let part = part_of(txn, kind_of(&kinds, object)?, object)?;
            update(txn, kind_of(&kinds, object)?, object, part, &write_options(component, "")).map(|_| ())
        }
        WriteVerb::AnnotateStatus(object) => {
            let kind = kind_of(&kinds, object)?;
            update(txn, kind, object, UpdatePart::Main, &write_options(component, "status")).map(|_| ())
        }
        WriteVerb::Apply { object, fields } => {
            let part = if fields.is_status { UpdatePart::Status } else { UpdatePart::Main };
            let config = applied_config(object, fields);
            let manager = ApplyManager { name: fields.manager, force: true };
            apply_patch(txn, kind_of(&kinds, object)?, &config, manager, part, &options).map(|_| ())
        }
        // Pods change most often. Their loops write the object that they have read, so a cheaper update is possible.
        WriteVerb::Status(object) if object.kind() == "Pod" => update_pod_status(txn, kind_of(&kinds, object)?, object),
        WriteVerb::Status(object) | WriteVerb::Scale(object) => {
            let scales = matches!(verb, WriteVerb::Scale(_));
            let (part, name) = if scales { (UpdatePart::Scale, "scale") } else { (UpdatePart::StatusAlone, "status") };
            update(txn, kind_of(&kinds, object)?, object, part, &write_options(component, name)).map(|_| ())
        }
        WriteVerb::Delete { key, uid, grace, propagation } => stage_delete(txn, key, uid, *grace, *propagation),
        WriteVerb::Bind { pod, uid, node } => bind(txn, pod, uid, node),
        WriteVerb::Attempt { .. } => Ok(()),
    }
}

/// Returns the object with the applied fields alone.
fn applied_config(object: &Object, fields: &AppliedFields) -> Object {
    let mut config =
        Object(json!({"apiVersion": object.api_version(), "kind": object.kind(), "metadata": {"name": object.name()}}));
    if !object.namespace().is_empty() {
        config.set(&["metadata", "namespace"], object.namespace());
    }
    for path in fields.paths {
        if let Some(value) = object.value_at(path) {
            config.set(path, value.clone());
        }
    }
    config
}

/// The component that runs the controllers.
const CONTROLLERS: &str = "kube-controller-manager";

/// Returns the component that makes the writes of a user, as it names itself in managed fields.
fn component_name(user: &User) -> &'static str {
    match user.name.as_str() {
        "system:kube-scheduler" => "kube-scheduler",
        name if name.starts_with("system:node:") => "kubelet",
        _ => CONTROLLERS,
    }
}

/// Write options of a component. Changes to objects that users wrote are tracked in managed fields, like those of any
/// writer. Objects that controllers create, and statuses of pods, are not tracked: that would enlarge the file and slow
/// down every tick.
fn write_options(component: &str, subresource: &'static str) -> WriteOptions {
    let manager = FieldManager { name: component.to_owned(), subresource };
    WriteOptions { manager: Some(manager), ..WriteOptions::default() }
}

/// Returns the part that an update changes: `Finalize` for `spec.finalizers` of a namespace that is being deleted, otherwise `Main`.
fn part_of(txn: &dyn Transaction, kind: &Kind, object: &Object) -> Result<UpdatePart, Status> {
    if object.kind() != "Namespace" || object.deletion().is_none() {
        return Ok(UpdatePart::Main);
    }
    let stored = txn.get(&key_of(kind, object))?;
    let finalizers = |object: &Object| object.items(&["spec", "finalizers"]).to_vec();
    let changed = stored.is_some_and(|stored| finalizers(&stored) != finalizers(object));
    Ok(if changed { UpdatePart::Finalize } else { UpdatePart::Main })
}

fn kind_of(kinds: &KindRegistry, object: &Object) -> Result<&'static Kind, Status> {
    kinds
        .by_kind(object.api_version(), object.kind())
        .ok_or_else(|| Status::new(Reason::NotFound, format!("no kind {} in {}", object.kind(), object.api_version())))
}

/// Stages a deletion. A missing object is not an error.
fn stage_delete(
    txn: &mut dyn Transaction,
    key: &Key,
    uid: &str,
    grace: Option<i64>,
    propagation: Propagation,
) -> Result<(), Status> {
    let kind = txn
        .kinds()
        .by_resource(key.resource)
        .ok_or_else(|| Status::new(Reason::NotFound, format!("no resource {}", key.resource)))?;
    // The loops leave it to the object's finalizers how dependents are treated, unless they ask for more.
    let propagation = Some(propagation).filter(|propagation| *propagation != Propagation::Background);
    let options = DeleteOptions { grace, propagation, uid: Some(uid.to_owned()), ..DeleteOptions::default() };
    match delete(txn, kind, key, &options) {
        Err(status) if status.reason == Reason::NotFound => Ok(()),
        other => other.map(|_| ()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::{clusterrole_aggregation, validatingadmissionpolicy_status};
    use crate::object::{Resource, Time};
    use crate::world::Row;

    fn key(resource: &'static str, namespace: &str, name: &str) -> Key {
        Key::new(Resource(resource), namespace, name)
    }

    fn stage(world: &mut World, verb: &WriteVerb, template_cache: &mut PodTemplateCache) -> Result<(), Status> {
        let user = Arc::new(User::component("test"));
        let mut number = world.staged_count() as u64;
        let mut random = || {
            number += 1;
            number
        };
        let context = StagingContext {
            user: &user,
            inputs: None,
            last: &mut HashMap::new(),
            template_cache: Some(template_cache),
            random: &mut random,
        };
        stage_write(world, verb, context)
    }

    fn new_world() -> World {
        let mut world = World::new(Time::from_second(100).unwrap());
        let (account, zone) =
            (json!({"name": "default", "namespace": "default", "uid": "a"}), "topology.kubernetes.io/zone");
        for (key, metadata) in [
            (key("namespaces", "", "default"), json!({"name": "default", "uid": "n"})),
            (key("serviceaccounts", "default", "default"), account),
            (key("nodes", "", "m"), json!({"name": "m", "uid": "m", "labels": {zone: "z"}})),
        ] {
            world.put(key, json!({"metadata": metadata}).to_string().into());
        }
        world
    }

    fn create_pod(world: &mut World, name: &str, cache: &mut PodTemplateCache) -> Result<Arc<Row>, Status> {
        let body = json!({"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [{"name": "c", "image": "x"}]},
            "metadata": {"name": name, "namespace": "default", "generateName": "w-"}});
        stage(world, &WriteVerb::Create(Object(body)), cache)?;
        Ok(world.get(&key("pods", "default", name)).unwrap().clone())
    }

    #[test]
    fn pods_of_one_plan_are_changed_in_their_texts() {
        let mut world = new_world();
        let mut template_cache = PodTemplateCache::default();
        let rows = ["w-1", "w-2", "w-3"].map(|name| create_pod(&mut world, name, &mut template_cache).unwrap());
        assert_eq!(rows.each_ref().map(|row| row.is_open()), [true, false, false]);
        let content = |mut object: Object| {
            let own = ["name", "uid", "resourceVersion"].map(|field| object.0["metadata"][field].take());
            (own, object)
        };
        let [(first, shape), (second, of_second), (third, of_third)] = rows.each_ref().map(|row| content(row.object()));
        assert_eq!((&of_second, &of_third), (&shape, &shape));
        assert!(first.iter().zip(&second).chain(second.iter().zip(&third)).all(|(one, other)| one != other));
        let pod = key("pods", "default", "w-2");
        let bind = WriteVerb::Bind { pod: pod.clone(), uid: rows[1].uid.clone(), node: "m".into() };
        stage(&mut world, &bind, &mut template_cache).unwrap();
        let status = json!({"phase": "Running", "podIP": "127.0.0.9"});
        let with_status = world.get(&pod).unwrap().object().other_status(status.clone());
        stage(&mut world, &WriteVerb::Status(with_status.clone()), &mut template_cache).unwrap();
        let row = world.get(&pod).unwrap();
        let object = row.object();
        assert!(!row.is_open());
        assert_eq!((object.text(&["spec", "nodeName"]), &object.0["status"]), (Some("m"), &status));
        assert_eq!(object.label("topology.kubernetes.io/zone"), Some("z"));
        assert_eq!(row.revision, object.revision());
        let conflict = stage(&mut world, &WriteVerb::Status(with_status), &mut template_cache).unwrap_err();
        assert_eq!(conflict.reason, Reason::Conflict, "the pod has changed since");
    }

    #[test]
    fn refusal_names_the_start_of_a_name_that_a_controller_has_chosen() {
        let mut world = new_world();
        let body = json!({"apiVersion": "v1", "kind": "Pod",
            "spec": {"serviceAccountName": "none", "containers": [{"name": "c", "image": "x"}]},
            "metadata": {"name": "w-bcdfg", "namespace": "default", "generateName": "w-"}});
        let refused =
            stage(&mut world, &WriteVerb::Create(Object(body)), &mut PodTemplateCache::default()).unwrap_err();
        assert!(
            refused.message.starts_with("pods \"w-\" is forbidden: error looking up service account"),
            "{refused:?}"
        );
    }

    #[test]
    fn aggregated_rules_and_checked_policies_are_applied_by_their_controllers() {
        let mut world = new_world();
        let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "whole"},
            "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}});
        let matched = json!({"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}]});
        let policy = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "p"},
            "spec": {"matchConstraints": matched, "validations": [{"expression": "true"}]}});
        let rules = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]);
        let checked = json!({"observedGeneration": 1, "typeChecking": {}});
        for (body, resource, field, value, applied, fields) in [
            (
                role,
                "clusterroles.rbac.authorization.k8s.io",
                "rules",
                rules,
                &clusterrole_aggregation::APPLIED,
                json!({"f:rules": {}}),
            ),
            (
                policy,
                "validatingadmissionpolicies.admissionregistration.k8s.io",
                "status",
                checked,
                &validatingadmissionpolicy_status::APPLIED,
                json!({"f:status": {"f:observedGeneration": {}, "f:typeChecking": {}}}),
            ),
        ] {
            let name = body["metadata"]["name"].as_str().unwrap().to_owned();
            let mut cache = PodTemplateCache::default();
            stage(&mut world, &WriteVerb::Create(Object(body)), &mut cache).unwrap();
            let key = key(resource, "", &name);
            let mut changed = world.get(&key).unwrap().object();
            changed.set(&[field], value.clone());
            stage(&mut world, &WriteVerb::Apply { object: changed, fields: applied }, &mut cache).unwrap();
            let object = world.get(&key).unwrap().object();
            assert_eq!(object.0[field], value);
            let mut entries = object.items(&["metadata", "managedFields"]).iter();
            let entry = entries.find(|entry| entry["manager"] == applied.manager).unwrap();
            assert_eq!(entry["operation"], "Apply");
            assert_eq!(entry["subresource"] == "status", applied.is_status);
            assert_eq!(entry["fieldsV1"], fields);
            let mut held = world.get(&key).unwrap().object();
            held.set(&["metadata", "finalizers"], json!(["example.com/held"]));
            stage(&mut world, &WriteVerb::Update(held), &mut cache).unwrap();
            assert_eq!(world.get(&key).unwrap().finalizers.len(), 1, "the garbage collector changes it, too");
        }
    }

    #[test]
    fn writes_are_managed_by_the_component_that_makes_them() {
        for (loop_name, component) in [
            ("default-scheduler", "kube-scheduler"),
            ("kubelet", "kubelet"),
            ("job-controller", "kube-controller-manager"),
        ] {
            assert_eq!(component_name(&User::component(loop_name)), component);
        }
    }

    #[test]
    fn copy_has_what_admission_changes_and_no_later_pod_keeps_it() {
        let mut world = new_world();
        let mut template_cache = PodTemplateCache::default();
        let range = key("limitranges", "default", "l");
        let limit = |row: &Row| row.object().items(&["spec", "containers"])[0]["resources"]["limits"]["cpu"].clone();
        let first = create_pod(&mut world, "w-1", &mut template_cache).unwrap();
        let limits = json!({"metadata": {"name": "l", "namespace": "default", "uid": "l"},
            "spec": {"limits": [{"type": "Container", "default": {"cpu": "2"}}]}});
        world.put(range.clone(), limits.to_string().into());
        let second = create_pod(&mut world, "w-2", &mut template_cache).unwrap();
        world.remove(&range);
        let refused = create_pod(&mut world, "w-1", &mut template_cache).map(drop).unwrap_err();
        assert_eq!(refused.reason, Reason::AlreadyExists);
        let third = create_pod(&mut world, "w-3", &mut template_cache).unwrap();
        assert_eq!([&first, &second, &third].map(|row| limit(row)), [json!(null), json!("2"), json!(null)]);
        assert_eq!(third.object().0["spec"], first.object().0["spec"]);
    }

    #[test]
    fn status_written_within_a_tick_is_that_of_later_writes() {
        let mut world = new_world();
        let mut template_cache = PodTemplateCache::default();
        for name in ["w-1", "w-2"] {
            create_pod(&mut world, name, &mut template_cache).unwrap();
        }
        let pod = key("pods", "default", "w-2");
        // No node fits: the scheduler writes a condition.
        world.remove(&key("nodes", "", "m"));
        let plan = (crate::scheduler::LOOP.plan)(&world, &pod);
        let [write] = &plan.writes[..] else { panic!("{:?}", plan.writes) };
        stage(&mut world, &write.verb, &mut template_cache).unwrap();
        let condition =
            |world: &World| world.get(&pod).unwrap().object().0["status"]["conditions"][0]["reason"].clone();
        assert_eq!(condition(&world), "Unschedulable");
        // At the commit the row gets the revision that it had while it was staged first.
        let staged = world.get(&pod).unwrap().clone();
        world.keep_staged([(pod.clone(), staged.text_at(2), 2)]);
        let mut labelled = world.get(&pod).unwrap().object();
        labelled.set(&["metadata", "labels", "app"], "w");
        stage(&mut world, &WriteVerb::Update(labelled), &mut template_cache).unwrap();
        assert_eq!(condition(&world), "Unschedulable");
    }

    #[test]
    fn undone_plan_leaves_no_trace_of_its_texts() {
        let mut world = new_world();
        let mut template_cache = PodTemplateCache::default();
        let first = create_pod(&mut world, "w-1", &mut template_cache).unwrap();
        world.accept_staged();
        let mark = world.stage_mark();
        let second = create_pod(&mut world, "w-2", &mut template_cache).unwrap();
        for row in [&first, &second] {
            let bind = WriteVerb::Bind { pod: row.key.clone(), uid: row.uid.clone(), node: "m".into() };
            stage(&mut world, &bind, &mut template_cache).unwrap();
            let status = world.get(&row.key).unwrap().object().other_status(json!({"podIP": "127.0.0.9"}));
            stage(&mut world, &WriteVerb::Status(status), &mut template_cache).unwrap();
        }
        assert_eq!((world.pods_on("m").count(), world.pods_at("127.0.0.9").count()), (2, 2));
        world.undo_to(mark);
        assert_eq!(
            (world.pods_on("m").count(), world.pods_at("127.0.0.9").count(), world.pods_on("").count()),
            (0, 0, 1)
        );
        assert!(world.get(&second.key).is_none());
        assert_eq!(world.get(&first.key).unwrap().object(), first.object());
    }
}
