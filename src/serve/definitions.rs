//! The server's work on CustomResourceDefinitions: it accepts their names and deletes the objects of a deleted one, as Kubernetes' API
//! server does by itself. So a server without a control plane serves new kinds, too.
//!
//! Knows: a control plane runs the same loop, and is earlier. Never: decides; the loop of definitions plans. Start reading at [`complete`].

use super::ServeResult;
use crate::apiserver::{Api, Transaction};
use crate::controllers::customresourcedefinition::LOOP;
use crate::kinds::custom::{CLEANUP, DEFINITIONS};
use crate::object::sparse::{FieldMask, ReadPart};
use crate::object::{Key, Object, Resource};
use crate::reconcile::stage_write::write_verb;
use crate::runtime::allocator;
use crate::world::World;

/// Maximum number of writes at a time, so that other writers get the lock.
const MAX_WRITES: usize = 50;

/// Fields by which [`is_incomplete`] judges a definition.
const FIELDS: [&str; 3] = ["metadata.deletionTimestamp", "metadata.finalizers", "status.conditions.type"];

/// The result of a round of work on definitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefinitionProgress {
    /// All definitions are complete.
    Complete,
    /// Something was written, and more may follow.
    Wrote,
    /// A definition waits for others, such as the finalizers of its objects.
    Waits,
}

/// Makes the writes that definitions wait for, some at a time.
pub fn complete(api: &mut Api) -> ServeResult<DefinitionProgress> {
    let (part, mut is_any_incomplete) = (ReadPart::Fields(FieldMask::from_paths(&FIELDS)), false);
    api.read_as_server(|txn| {
        txn.read_pages(DEFINITIONS, None, &part, &mut |page| {
            is_any_incomplete |= page.iter().any(is_incomplete);
            Ok(())
        })
    })?;
    if !is_any_incomplete {
        return Ok(DefinitionProgress::Complete);
    }
    let done = api.write(false, |txn| {
        let definitions = txn.list(DEFINITIONS, None)?;
        let incomplete = definitions.iter().filter(|definition| is_incomplete(definition));
        let keys: Vec<Key> = incomplete.map(|definition| Key::new(DEFINITIONS, "", definition.name())).collect();
        let world = read_world(txn, &definitions)?;
        let planned = keys.iter().flat_map(|key| (LOOP.plan)(&world, key).writes);
        let mut progress = DefinitionProgress::Waits;
        for write in planned.take(MAX_WRITES) {
            write_verb(txn, &write.verb, None)?;
            progress = DefinitionProgress::Wrote;
        }
        Ok(progress)
    });
    // Definitions may be large, and the thread would keep their memory.
    allocator::release_unused();
    done
}

/// Whether a definition has not been established, or is being deleted.
fn is_incomplete(definition: &Object) -> bool {
    if definition.deletion().is_some() {
        return definition.finalizers().contains(&CLEANUP);
    }
    let conditions = definition.items(&["status", "conditions"]);
    !conditions.iter().any(|condition| condition["type"] == "NamesAccepted")
}

/// The definitions, and the objects of those that are being deleted.
fn read_world(txn: &dyn Transaction, definitions: &[Object]) -> ServeResult<World> {
    let mut world = World::new(txn.now());
    let mut put = |resource: Resource, object: &Object| {
        world.put(Key::new(resource, object.namespace(), object.name()), object.0.to_string().into());
    };
    for definition in definitions {
        put(DEFINITIONS, definition);
        if definition.deletion().is_some() {
            let resource = Resource::intern(definition.name());
            txn.list(resource, None)?.iter().for_each(|object| put(resource, object));
        }
    }
    Ok(world)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::{AnswerBody, ApiRequest, HttpAnswer, answer};
    use serde_json::{Value, json};

    fn ask(api: &mut Api, method: &str, target: &str, body: &Value) -> (u16, Value) {
        let body = if body.is_null() { Vec::new() } else { body.to_string().into() };
        read_whole(answer(api, &ApiRequest { body, ..ApiRequest::new(method, target) }))
    }

    fn read_whole(answer: HttpAnswer) -> (u16, Value) {
        let AnswerBody::Whole(bytes) = answer.body else { panic!("not a whole answer") };
        (answer.code, serde_json::from_slice(&bytes).unwrap())
    }

    #[test]
    fn server_establishes_definitions_and_deletes_their_objects() {
        let mut api = Api::in_memory("test").unwrap();
        let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        let one = format!("{definitions}/boats.sea.dev");
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "boats.sea.dev"},
            "spec": {"group": "sea.dev", "scope": "Namespaced", "names": {"plural": "boats", "kind": "Boat"},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}]},
        });
        assert_eq!(ask(&mut api, "POST", definitions, &definition).0, 201);
        while complete(&mut api).unwrap() == DefinitionProgress::Wrote {}
        let stored = ask(&mut api, "GET", &one, &Value::Null).1;
        let conditions = stored["status"]["conditions"].as_array().unwrap();
        let values: Vec<_> =
            conditions.iter().map(|one| (one["type"].as_str().unwrap(), one["status"] == "True")).collect();
        assert_eq!(values, [("NamesAccepted", true), ("Established", true)]);
        let boats = "/apis/sea.dev/v1/namespaces/default/boats";
        let boat = json!({"apiVersion": "sea.dev/v1", "kind": "Boat", "metadata": {"name": "b"}});
        assert_eq!(ask(&mut api, "POST", boats, &boat).0, 201);
        let revision = |api: &Api| api.read(|snapshot| snapshot.revision()).unwrap();
        let settled = revision(&api);
        assert_eq!(complete(&mut api), Ok(DefinitionProgress::Complete));
        assert_eq!(revision(&api), settled);
        let other = json!({"apiVersion": "sea.dev/v1", "kind": "Ship", "metadata": {"name": "c"}});
        let (code, refused) = ask(&mut api, "POST", boats, &other);
        let told = "Ship.sea.dev \"c\" is invalid: kind: Invalid value: \"Ship\": must be Boat";
        assert_eq!((code, refused["message"].as_str()), (422, Some(told)));
        let other = json!({"apiVersion": "sea.dev/v2", "kind": "Ship", "metadata": {"name": "c"}});
        assert_eq!(ask(&mut api, "POST", boats, &other).0, 400, "another version is refused before");
        assert_eq!(ask(&mut api, "DELETE", &one, &Value::Null).0, 200);
        let late = json!({"apiVersion": "sea.dev/v1", "kind": "Boat", "metadata": {"name": "late"}});
        let apply = ApiRequest {
            body: late.to_string().into(),
            content_type: "application/apply-patch+yaml".into(),
            ..ApiRequest::new("PATCH", &format!("{boats}/late?fieldManager=a"))
        };
        for refused in [ask(&mut api, "POST", boats, &late), read_whole(answer(&mut api, &apply))] {
            let told = "boats.sea.dev \"late\" is forbidden: create not allowed while custom resource definition is terminating";
            assert_eq!((refused.0, refused.1["message"].as_str()), (403, Some(told)));
        }
        while complete(&mut api).unwrap() == DefinitionProgress::Wrote {}
        assert_eq!(ask(&mut api, "GET", &one, &Value::Null).0, 404);
        assert_eq!(api.read_view(|txn| txn.list(Resource("boats.sea.dev"), None)).unwrap(), []);
    }

    #[test]
    fn group_of_several_definitions_prefers_its_most_stable_version() {
        let mut api = Api::in_memory("test").unwrap();
        for (plural, kind, versions) in
            [("anchors", "Anchor", vec!["v1beta1"]), ("boats", "Boat", vec!["v1alpha1", "v1"])]
        {
            let version = |name: &&str| {
                json!({"name": name, "served": true, "storage": *name == versions[0],
                "schema": {"openAPIV3Schema": {"type": "object"}}})
            };
            let definition = json!({
                "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
                "metadata": {"name": format!("{plural}.sea.dev")},
                "spec": {"group": "sea.dev", "scope": "Namespaced", "names": {"plural": plural, "kind": kind},
                    "versions": versions.iter().map(version).collect::<Vec<_>>()},
            });
            let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
            assert_eq!(ask(&mut api, "POST", path, &definition).0, 201);
        }
        let group = ask(&mut api, "GET", "/apis/sea.dev", &Value::Null).1;
        let names = group["versions"].as_array().unwrap().iter().map(|version| version["version"].as_str().unwrap());
        assert_eq!(names.collect::<Vec<_>>(), ["v1", "v1beta1", "v1alpha1"]);
        assert_eq!(group["preferredVersion"]["version"], "v1");
    }

    #[test]
    fn deleted_definition_tells_how_far_the_deletion_of_its_objects_is() {
        let mut api = Api::in_memory("test").unwrap();
        let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
        let one = format!("{definitions}/boats.sea.dev");
        let definition = json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "boats.sea.dev", "finalizers": ["a.b/keep"]},
            "spec": {"group": "sea.dev", "scope": "Namespaced", "names": {"plural": "boats", "kind": "Boat"},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}]},
        });
        assert_eq!(ask(&mut api, "POST", definitions, &definition).0, 201);
        let finish = |api: &mut Api| while complete(api).unwrap() == DefinitionProgress::Wrote {};
        finish(&mut api);
        let boats = "/apis/sea.dev/v1/namespaces/default/boats";
        let boat =
            json!({"apiVersion": "sea.dev/v1", "kind": "Boat", "metadata": {"name": "b", "finalizers": ["a.b/keep"]}});
        assert_eq!(ask(&mut api, "POST", boats, &boat).0, 201);
        let generation = |definition: &Value| definition["metadata"]["generation"].clone();
        let terminating = |definition: &Value| {
            let conditions = definition["status"]["conditions"].as_array().unwrap();
            let found = conditions.iter().find(|condition| condition["type"] == "Terminating").unwrap();
            ["status", "reason"].map(|field| found[field].as_str().unwrap()).join(" ")
        };
        let (code, deleted) = ask(&mut api, "DELETE", &format!("{one}?propagationPolicy=Foreground"), &Value::Null);
        assert_eq!((code, terminating(&deleted)), (200, "True InstanceDeletionPending".to_owned()));
        let metadata = &deleted["metadata"];
        assert_eq!(metadata["finalizers"], json!(["a.b/keep", CLEANUP]), "the policy has no effect on a definition");
        assert_eq!((metadata.get("deletionGracePeriodSeconds"), generation(&deleted)), (None, json!(1)));
        finish(&mut api);
        assert_eq!(terminating(&ask(&mut api, "GET", &one, &Value::Null).1), "True InstanceDeletionInProgress");
        let mut left = ask(&mut api, "GET", &format!("{boats}/b"), &Value::Null).1;
        left["metadata"]["finalizers"] = json!([]);
        assert_eq!(ask(&mut api, "PUT", &format!("{boats}/b"), &left).0, 200);
        finish(&mut api);
        let left = ask(&mut api, "GET", &one, &Value::Null).1;
        assert_eq!(terminating(&left), "False InstanceDeletionCompleted");
        assert_eq!(left["metadata"]["finalizers"], json!(["a.b/keep"]));
    }
}
