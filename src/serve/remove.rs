//! Deletion of one object and of collections.

use super::answer::{HttpAnswer, details};
use super::options;
use super::presentation::ReadPresentation;
use super::read::ListPart;
use super::request::ApiRequest;
use super::resolve::ResolvedTarget;
use super::{ServeResult, not_allowed};
use crate::apiserver::delete::{DeleteOptions, default_propagation, delete, is_due, remove_marked};
use crate::apiserver::rules::names::key_of;
use crate::apiserver::{Api, ApiResult, Transaction, WriteReply};
use crate::kinds::{Kind, job};
use crate::object::{Key, Object, Reason, Status};
use std::thread;
use std::time::Duration;

/// The warning for clients that rely on the default propagation policy of Jobs.
const JOBS_KEEP_PODS: &str = "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to remove them or \
                              set propagationPolicy=Orphan to suppress this warning";

/// Time between the mark of a pod without grace and its removal, each a transaction. As with etcd, controllers that act on the mark, such
/// as LeaderWorkerSet's, have this time to read the marked pod.
const MARK_TIME: Duration = Duration::from_millis(5);

/// Returns the warnings about the options of a deletion.
fn warnings(kind: &Kind, deletion: &DeleteOptions) -> Vec<String> {
    let is_unsaid = kind.resource == job::KIND.resource && deletion.propagation.is_none();
    is_unsaid.then(|| JOBS_KEEP_PODS.to_owned()).into_iter().collect()
}

/// Deletes an object for a client. The kind may have a propagation policy for requests without one; the control loops' deletions do not
/// use it.
fn delete_for_client(
    txn: &mut dyn Transaction,
    kind: &Kind,
    key: &Key,
    mut deletion: DeleteOptions,
) -> ApiResult<WriteReply> {
    if deletion.propagation.is_none() && kind.orphans_dependents {
        let stored = txn.get_shared(key)?;
        deletion.propagation = stored.and_then(|object| default_propagation(kind, &object));
    }
    delete(txn, kind, key, &deletion)
}

/// Deletes one object.
pub fn delete_object(api: &mut Api, request: &ApiRequest, asked: &ResolvedTarget<'_>) -> ServeResult {
    let show = ReadPresentation::from_request(request, asked)?;
    let (deletion, dry_run) = options::delete_options(request)?;
    let deletion = DeleteOptions { api_version: Some(asked.api_version.clone()), ..deletion };
    let key = asked.key();
    // An object that cannot be shown in the requested version is not deleted through it.
    if asked.kind.custom.is_some()
        && let Some(stored) = api.read_view(|txn| txn.get(&key))?
    {
        show.converted_object(api, stored)?;
    }
    let (mut is_gone, mut reply) = api.write(dry_run, |txn| {
        let reply = delete_for_client(txn, asked.kind, &key, deletion.clone())?;
        Ok((!txn.exists(&key)?, reply))
    })?;
    if !is_gone && !dry_run && is_only_marked(asked.kind, &reply) {
        thread::sleep(MARK_TIME);
        let uid = reply.object.uid();
        let removed = api.write(false, |txn| {
            let removed = remove_marked(txn, asked.kind, &reply.object)?;
            // Another writer may have added a finalizer to the marked pod.
            is_gone = txn.get(&key)?.is_none_or(|present| present.uid() != uid);
            Ok(removed)
        })?;
        if let Some(removed) = removed {
            reply = WriteReply { warnings: reply.warnings, ..removed };
        }
    }
    let object = show.converted_object(api, Object::clone(&reply.object))?;
    let mut answer = answer(&show, asked, is_gone, WriteReply { object: object.into(), ..reply });
    if !is_gone && options::reports_pending_deletion(request) {
        answer.code = 202;
    }
    Ok(answer.warning(&warnings(asked.kind, &deletion)))
}

/// Whether a deletion may have only marked a pod, which then has to be removed.
fn is_only_marked(kind: &Kind, reply: &WriteReply) -> bool {
    kind.resource == "pods" && is_due(kind, &reply.object)
}

/// Removes the pods of a collection that were only marked. One that cannot be removed keeps no other one.
fn remove_all_marked(api: &mut Api, kind: &Kind, deleted: &[Object]) -> ApiResult<()> {
    thread::sleep(MARK_TIME);
    let (mut rest, mut removed) = (deleted.iter().peekable(), Ok(()));
    while rest.peek().is_some() {
        for (_, outcome) in api.write_next(false, &mut rest, |txn, marked| remove_marked(txn, kind, marked)) {
            removed = removed.and(outcome.map(drop));
        }
    }
    removed
}

fn answer(show: &ReadPresentation, asked: &ResolvedTarget<'_>, is_gone: bool, reply: WriteReply) -> HttpAnswer {
    if is_gone && !asked.kind.returns_deleted {
        return HttpAnswer::done(200, Some(details(asked.kind, &reply.object)), show.form());
    }
    show.answer_object(200, reply.into_object())
}

/// Deletes the selected objects, or the part of them that the request is limited to, and lists them as they were deleted.
pub fn delete_collection(api: &mut Api, request: &ApiRequest, asked: &ResolvedTarget<'_>) -> ServeResult {
    if asked.kind.resource == "namespaces" {
        return Err(not_allowed());
    }
    let show = ReadPresentation::from_request(request, asked)?;
    let (deletion, dry_run) = options::delete_options(request)?;
    let has_preconditions = deletion.uid.is_some() || deletion.revision.is_some();
    let wanted = options::list_selection(request, (asked.kind, &asked.api_version))?;
    let (found, meta) = ListPart::from_request(api, request)?.read(api, &show, asked, &wanted)?;
    if asked.kind.custom.is_some() {
        show.converted(api, found.clone())?;
    }
    let mut rest = found.into_iter().peekable();
    let (mut deleted, mut has_marked) = (Vec::new(), false);
    while rest.peek().is_some() {
        let done = api.write_next(dry_run, &mut rest, |txn, object| {
            let api_version = Some(asked.api_version.clone());
            let uid = deletion.uid.clone().or_else(|| Some(object.uid().to_owned()));
            let own = DeleteOptions { uid, api_version, ..deletion.clone() };
            delete_for_client(txn, asked.kind, &key_of(asked.kind, object), own)
        });
        for (_, outcome) in done {
            match outcome {
                Ok(reply) => {
                    has_marked |= !dry_run && is_only_marked(asked.kind, &reply);
                    deleted.push(reply.into_object());
                }
                // Another client was faster.
                Err(Status { reason: Reason::NotFound, .. }) => {}
                Err(Status { reason: Reason::Conflict, .. }) if !has_preconditions => {}
                Err(status) => return Err(status),
            }
        }
    }
    if has_marked {
        remove_all_marked(api, asked.kind, &deleted)?;
    }
    Ok(show.answer_list(deleted, meta).warning(&warnings(asked.kind, &deletion)))
}

#[cfg(test)]
mod tests {
    use crate::apiserver::Api;
    use crate::serve::{AnswerBody, ApiRequest, answer};
    use serde_json::{Value, json};

    /// The code, the document and the warnings of an answer.
    fn ask(api: &mut Api, method: &str, target: &str, body: &Value) -> (u16, Value, Vec<String>) {
        let body = if body.is_null() { Vec::new() } else { body.to_string().into() };
        let answer = answer(api, &ApiRequest { body, ..ApiRequest::new(method, target) });
        let AnswerBody::Whole(bytes) = answer.body else { panic!("{target}: not a whole answer") };
        let warnings = answer.headers.into_iter().filter(|(name, _)| *name == "Warning").map(|(_, text)| text);
        (answer.code, serde_json::from_slice(&bytes).unwrap(), warnings.collect())
    }

    fn template(policy: &str) -> Value {
        json!({"metadata": {"labels": {"a": "b"}}, "spec": {"restartPolicy": policy, "containers": [{"name": "c", "image": "i"}]}})
    }

    #[test]
    fn deletion_without_a_policy_keeps_the_pods_of_jobs_and_replication_controllers() {
        let mut api = Api::in_memory("test").unwrap();
        let jobs = "/apis/batch/v1/namespaces/default/jobs";
        let controllers = "/api/v1/namespaces/default/replicationcontrollers";
        let sets = "/apis/apps/v1/namespaces/default/replicasets";
        let job = json!({"template": template("Never")});
        let controller = json!({"selector": {"a": "b"}, "template": template("Always")});
        let set = json!({"selector": {"matchLabels": {"a": "b"}}, "template": template("Always")});
        let options = |field: &str, value: Value| json!({field: value});
        let kept = json!({"finalizers": ["foregroundDeletion"]});
        // The kind, its metadata, the options, the finalizers that stay, and whether the client is warned.
        let cases = [
            (jobs, &job, json!({}), Value::Null, json!(["orphan"]), true),
            (jobs, &job, json!({}), options("propagationPolicy", json!("Background")), Value::Null, false),
            (jobs, &job, json!({}), options("propagationPolicy", json!("Orphan")), json!(["orphan"]), false),
            (jobs, &job, json!({}), options("orphanDependents", json!(false)), Value::Null, false),
            (jobs, &job, json!({}), options("gracePeriodSeconds", json!(0)), json!(["orphan"]), true),
            (jobs, &job, kept, Value::Null, json!(["foregroundDeletion"]), true),
            (controllers, &controller, json!({}), Value::Null, json!(["orphan"]), false),
            (
                controllers,
                &controller,
                json!({}),
                options("propagationPolicy", json!("Background")),
                Value::Null,
                false,
            ),
            (sets, &set, json!({}), Value::Null, Value::Null, false),
        ];
        for (number, (path, spec, mut metadata, options, finalizers, is_warned)) in cases.into_iter().enumerate() {
            metadata["name"] = format!("n{number}").into();
            let made = ask(&mut api, "POST", path, &json!({"metadata": metadata, "spec": spec}));
            assert_eq!(made.0, 201, "{made:?}");
            let one = format!("{path}/n{number}");
            let (code, deleted, warnings) = ask(&mut api, "DELETE", &one, &options);
            assert_eq!(code, 200, "{deleted}");
            let left = ask(&mut api, "GET", &one, &Value::Null).1;
            assert_eq!(left["metadata"]["finalizers"], finalizers, "{number}: {options}");
            let is_told = warnings.iter().any(|text| text.contains("child pods are preserved by default"));
            assert_eq!(is_told, is_warned, "{number}: {options} {warnings:?}");
        }
    }

    #[test]
    fn deletion_with_dependents_in_the_old_words_tells_that_the_object_waits() {
        let mut api = Api::in_memory("test").unwrap();
        let maps = "/api/v1/namespaces/default/configmaps";
        for (number, (finalizers, field, value, code)) in [
            (json!(["a.b/keep"]), "orphanDependents", json!(false), 202),
            (json!([]), "orphanDependents", json!(false), 200),
            (json!([]), "orphanDependents", json!(true), 200),
            (json!([]), "propagationPolicy", json!("Foreground"), 200),
        ]
        .into_iter()
        .enumerate()
        {
            let metadata = json!({"name": format!("n{number}"), "finalizers": finalizers});
            assert_eq!(ask(&mut api, "POST", maps, &json!({ "metadata": metadata })).0, 201);
            let deleted = ask(&mut api, "DELETE", &format!("{maps}/n{number}"), &json!({field: value}));
            assert_eq!(deleted.0, code, "{finalizers} {field} {value}");
        }
    }

    #[test]
    fn deletion_of_a_collection_keeps_to_the_preconditions() {
        let mut api = Api::in_memory("test").unwrap();
        let maps = "/api/v1/namespaces/default/configmaps";
        for name in ["a", "b"] {
            assert_eq!(ask(&mut api, "POST", maps, &json!({"metadata": {"name": name}})).0, 201);
        }
        for (field, value) in [("uid", "other"), ("resourceVersion", "1")] {
            let (code, status, _) = ask(&mut api, "DELETE", maps, &json!({"preconditions": {field: value}}));
            assert_eq!((code, &status["reason"]), (409, &json!("Conflict")), "{field}");
        }
        let left = ask(&mut api, "GET", maps, &Value::Null).1;
        assert_eq!(left["items"].as_array().map(Vec::len), Some(2));
        let (code, deleted, _) = ask(&mut api, "DELETE", maps, &Value::Null);
        assert_eq!((code, deleted["items"].as_array().map(Vec::len)), (200, Some(2)));
    }

    #[test]
    fn deletion_of_a_collection_is_limited_to_a_page() {
        let mut api = Api::in_memory("test").unwrap();
        let maps = "/api/v1/namespaces/default/configmaps";
        for name in ["a", "b", "c"] {
            assert_eq!(ask(&mut api, "POST", maps, &json!({"metadata": {"name": name}})).0, 201);
        }
        let names = |list: &Value| -> Vec<String> {
            let items = list["items"].as_array().unwrap().iter();
            items.map(|item| item["metadata"]["name"].as_str().unwrap().to_owned()).collect()
        };
        let (code, deleted, _) = ask(&mut api, "DELETE", &format!("{maps}?limit=1"), &Value::Null);
        assert_eq!((code, names(&deleted)), (200, vec!["a".to_owned()]));
        assert_eq!(deleted["metadata"]["remainingItemCount"], 2);
        assert_eq!(names(&ask(&mut api, "GET", maps, &Value::Null).1), ["b", "c"]);
        let token = deleted["metadata"]["continue"].as_str().unwrap();
        let (code, deleted, _) = ask(&mut api, "DELETE", &format!("{maps}?limit=5&continue={token}"), &Value::Null);
        assert_eq!((code, names(&deleted)), (200, vec!["b".to_owned(), "c".to_owned()]));
        assert_eq!(deleted["metadata"].get("continue"), None);
        assert_eq!(names(&ask(&mut api, "GET", maps, &Value::Null).1), [""; 0]);
    }

    #[test]
    fn deletion_of_a_collection_without_a_policy_keeps_pods() {
        let mut api = Api::in_memory("test").unwrap();
        let jobs = "/apis/batch/v1/namespaces/default/jobs";
        let body = json!({"metadata": {"name": "a"}, "spec": {"template": template("Never")}});
        assert_eq!(ask(&mut api, "POST", jobs, &body).0, 201);
        let (code, _, warnings) = ask(&mut api, "DELETE", jobs, &Value::Null);
        assert_eq!((code, warnings.len()), (200, 1), "{warnings:?}");
        let left = ask(&mut api, "GET", &format!("{jobs}/a"), &Value::Null).1;
        assert_eq!(left["metadata"]["finalizers"], json!(["orphan"]));
    }
}
