//! Checks of Jobs, in the order of Kubernetes.

use super::{CONTROLLER_UID, policy};
use crate::kinds::pod::internal;
use crate::kinds::pod::spec::check_template;
use crate::kinds::shared::go::{self, GoField, GoShape};
use crate::kinds::shared::{names, selector, workload};
use crate::kinds::{FieldErrors, FieldPath};
use crate::object::Selector;
use k8s_openapi::api::batch::v1::{Job, JobSpec, JobStatus};
use k8s_openapi::api::core::v1::{Affinity, PodSpec, PodTemplateSpec};
use serde::Serialize;
use serde_json::json;

/// Maximum parallelism and number of failed indexes of an Indexed Job, and the completions above which
/// [`MAX_WITH_MANY_COMPLETIONS`] applies.
const MAX_INDEXES: i32 = 100_000;

/// Maximum parallelism and number of failed indexes of a Job that has many completions and limits the failures of each index.
const MAX_WITH_MANY_COMPLETIONS: i32 = 10_000;

const NEEDS_INDEXED: &str = "requires indexed completion mode";

/// Checks a Job. Its selector must be the generated one, unless `manualSelector` is set.
pub fn check_job(job: &Job, spec: &JobSpec, path: &FieldPath, errors: &mut FieldErrors) {
    let at = path.child("selector");
    if let (Some(own), false) = (&spec.selector, spec.manual_selector == Some(true)) {
        let uid = job.metadata.uid.as_deref().unwrap_or_default();
        let name = job.metadata.name.as_deref().unwrap_or_default();
        let expected = |key: &str| match key {
            CONTROLLER_UID | "controller-uid" => Some(uid),
            "batch.kubernetes.io/job-name" | "job-name" => Some(name),
            _ => None,
        };
        if selector::ready(own).is_some_and(|ready| !ready.matches(expected)) {
            errors.invalid_text(&at, &selector::text(own), "`selector` not auto-generated");
        }
    }
    check_spec(spec, path, errors);
    let ready = match &spec.selector {
        None => {
            errors.required(&at, "");
            Some(Selector::nothing())
        }
        Some(own) => {
            selector::check(own, &at, errors);
            selector::ready(own)
        }
    };
    if let Some(ready) = ready {
        workload::check_match(&ready, &spec.template, &path.child("template"), errors);
    }
}

/// Checks that the pods of an Indexed Job can have their host names, which consist of the Job's name and an index.
pub fn check_host_names(job: &Job, spec: &JobSpec, errors: &mut FieldErrors) {
    let Some(completions) = spec.completions.filter(|completions| is_indexed(spec) && *completions > 0) else { return };
    let name = job.metadata.name.as_deref().unwrap_or_default();
    let longest = format!("{name}-{}", completions - 1);
    if !names::label(&longest).is_empty() {
        let detail = format!("will not able to create pod with invalid DNS label: {longest}");
        errors.invalid(&FieldPath::root("metadata").child("name"), name, &detail);
    }
}

fn is_indexed(spec: &JobSpec) -> bool {
    spec.completion_mode.as_deref() == Some("Indexed")
}

/// Checks the fields that a CronJob's template has as well.
pub fn check_spec(spec: &JobSpec, path: &FieldPath, errors: &mut FieldErrors) {
    let counts = [
        ("parallelism", spec.parallelism.map(i64::from)),
        ("completions", spec.completions.map(i64::from)),
        ("activeDeadlineSeconds", spec.active_deadline_seconds),
        ("backoffLimit", spec.backoff_limit.map(i64::from)),
        ("ttlSecondsAfterFinished", spec.ttl_seconds_after_finished.map(i64::from)),
        ("backoffLimitPerIndex", spec.backoff_limit_per_index.map(i64::from)),
        ("maxFailedIndexes", spec.max_failed_indexes.map(i64::from)),
    ];
    workload::check_counts(&counts, path, errors);
    if spec.max_failed_indexes.is_some() && spec.backoff_limit_per_index.is_none() {
        errors.required(&path.child("backoffLimitPerIndex"), "when maxFailedIndexes is specified");
    }
    check_indexes(spec, path, errors);
    if let Some(owner) = spec.managed_by.as_deref() {
        check_owner(owner, &path.child("managedBy"), errors);
    }
    policy::check_failure(spec, path, errors);
    policy::check_success(spec, path, errors);
    check_replacement(spec, &path.child("podReplacementPolicy"), errors);
    check_template(&spec.template, &path.child("template"), errors);
    check_restart(spec, &path.child("template").child("spec").child("restartPolicy"), errors);
}

fn check_indexes(spec: &JobSpec, path: &FieldPath, errors: &mut FieldErrors) {
    let mode = spec.completion_mode.as_deref().unwrap_or("NonIndexed");
    let indexed = is_indexed(spec);
    if !["NonIndexed", "Indexed"].contains(&mode) {
        errors.unsupported_as_listed(&path.child("completionMode"), mode, &["NonIndexed", "Indexed"]);
    }
    if indexed && spec.completions.is_none() {
        errors.required(&path.child("completions"), "when completion mode is Indexed");
    }
    if indexed {
        check_index_limits(spec, path, errors);
    }
    if let (Some(limit), false) = (spec.backoff_limit_per_index, indexed) {
        errors.invalid(&path.child("backoffLimitPerIndex"), limit, NEEDS_INDEXED);
    }
    let Some(most) = spec.max_failed_indexes else { return };
    let at = path.child("maxFailedIndexes");
    if !indexed {
        errors.invalid(&at, most, NEEDS_INDEXED);
    }
}

/// Checks the limits of an Indexed Job, which bound the lists of indexes in its status (KEP-3850).
fn check_index_limits(spec: &JobSpec, path: &FieldPath, errors: &mut FieldErrors) {
    let (parallelism, max_failed) = (path.child("parallelism"), path.child("maxFailedIndexes"));
    let mode = format!("must be less than or equal to {MAX_INDEXES} when completion mode is Indexed");
    check_at_most(spec.parallelism, MAX_INDEXES, &mode, &parallelism, errors);
    let most = spec.completions.unwrap_or(i32::MAX);
    check_at_most(spec.max_failed_indexes, most, "must be less than or equal to completions", &max_failed, errors);
    let detail = format!("must be less than or equal to {MAX_INDEXES}");
    check_at_most(spec.max_failed_indexes, MAX_INDEXES, &detail, &max_failed, errors);
    let many = spec.completions.is_some_and(|completions| completions > MAX_INDEXES);
    if !many || spec.backoff_limit_per_index.is_none() {
        return;
    }
    if spec.max_failed_indexes.is_none() {
        errors.required(&max_failed, &format!("must be specified when completions is above {MAX_INDEXES}"));
    }
    let detail = format!(
        "must be less than or equal to {MAX_WITH_MANY_COMPLETIONS} when completions are above {MAX_INDEXES} and used with \
         backoff limit per index"
    );
    check_at_most(spec.parallelism, MAX_WITH_MANY_COMPLETIONS, &detail, &parallelism, errors);
    check_at_most(spec.max_failed_indexes, MAX_WITH_MANY_COMPLETIONS, &detail, &max_failed, errors);
}

fn check_at_most(count: Option<i32>, most: i32, detail: &str, path: &FieldPath, errors: &mut FieldErrors) {
    if let Some(count) = count.filter(|count| *count > most) {
        errors.invalid(path, count, detail);
    }
}

fn check_owner(owner: &str, path: &FieldPath, errors: &mut FieldErrors) {
    match owner.split_once('/') {
        Some((domain, rest)) if !domain.is_empty() && !rest.is_empty() => {
            errors.each_invalid(path, domain, names::subdomain(domain));
        }
        _ => errors.invalid(path, owner, "must be a domain-prefixed path (such as \"acme.io/foo\")"),
    }
    if owner.len() > 63 {
        errors.too_long(path, 63);
    }
}

fn check_replacement(spec: &JobSpec, path: &FieldPath, errors: &mut FieldErrors) {
    let Some(policy) = spec.pod_replacement_policy.as_deref() else { return };
    let known: &[&str] =
        if spec.pod_failure_policy.is_some() { &["Failed"] } else { &["Failed", "TerminatingOrFailed"] };
    if !known.contains(&policy) {
        errors.unsupported(path, policy, known);
    }
}

fn check_restart(spec: &JobSpec, path: &FieldPath, errors: &mut FieldErrors) {
    let pod = spec.template.spec.as_ref();
    let policy = pod.and_then(|pod| pod.restart_policy.as_deref()).unwrap_or_default();
    match policy {
        "" | "Always" => errors.required(path, "valid values: \"OnFailure\", \"Never\""),
        "OnFailure" | "Never" => {}
        other => errors.unsupported_as_listed(path, other, &["OnFailure", "Never"]),
    }
    if spec.pod_failure_policy.is_some() && policy != "Never" {
        let detail = "only \"Never\" is supported when podFailurePolicy is specified";
        errors.invalid(path, policy, detail);
    }
}

/// Checks an update of a Job: completions, selector and template are immutable, with few exceptions.
pub fn check_change(new: &JobSpec, old: &Job, path: &FieldPath, errors: &mut FieldErrors) {
    let Some(before) = &old.spec else { return };
    check_completions(new, before, path, errors);
    if new.selector != before.selector {
        let text = new.selector.as_ref().map_or("null".to_owned(), selector::text);
        errors.invalid_text(&path.child("selector"), &text, "field is immutable");
    }
    let none = JobStatus::default();
    let status = old.status.as_ref().unwrap_or(&none);
    let is_started = status.start_time.is_some();
    let mut conditions = status.conditions.iter().flatten();
    let is_suspended = conditions.any(|condition| condition.type_ == "Suspended" && condition.status == "True");
    let has_active = status.active.is_some_and(|count| count > 0);
    let is_paused = before.suspend == Some(true);
    let changeable = ChangeableParts {
        scheduling: is_paused && !is_started,
        resources: is_paused && !has_active && (is_suspended || !is_started),
    };
    check_same_template(&new.template, &before.template, changeable, &path.child("template"), errors);
    errors.immutable(&path.child("completionMode"), &new.completion_mode, &before.completion_mode);
    check_same("podFailurePolicy", FAILURE_POLICY, &new.pod_failure_policy, &before.pod_failure_policy, path, errors);
    let limit = path.child("backoffLimitPerIndex");
    errors.immutable(&limit, &new.backoff_limit_per_index, &before.backoff_limit_per_index);
    errors.immutable(&path.child("managedBy"), &new.managed_by, &before.managed_by);
    check_same("successPolicy", SUCCESS_POLICY, &new.success_policy, &before.success_policy, path, errors);
}

/// The fields of Go's policies, for the messages that show a forbidden change.
const FAILURE_POLICY: &[GoField] = &[("Rules", "rules", GoShape::List(FAILURE_RULE))];
const FAILURE_RULE: &[GoField] = &[
    ("Action", "action", GoShape::Text),
    ("OnExitCodes", "onExitCodes", GoShape::Optional(EXIT_CODES)),
    ("OnPodConditions", "onPodConditions", GoShape::Plains),
];
const EXIT_CODES: &[GoField] = &[
    ("ContainerName", "containerName", GoShape::Pointer),
    ("Operator", "operator", GoShape::Text),
    ("Values", "values", GoShape::Pointer),
];
const SUCCESS_POLICY: &[GoField] = &[("Rules", "rules", GoShape::List(SUCCESS_RULE))];
const SUCCESS_RULE: &[GoField] = &[
    ("SucceededIndexes", "succeededIndexes", GoShape::Pointer),
    ("SucceededCount", "succeededCount", GoShape::Pointer),
];

/// Refuses the change of a policy.
fn check_same<T: PartialEq + Serialize>(
    field: &str,
    table: &[GoField],
    new: &Option<T>,
    old: &Option<T>,
    path: &FieldPath,
    errors: &mut FieldErrors,
) {
    if new != old {
        let text = new.as_ref().map_or("null".to_owned(), |policy| go::lay_out(&json!(policy), table).compact());
        errors.invalid_text(&path.child(field), &text, "field is immutable");
    }
}

/// An Indexed Job may change its completions together with its parallelism (KEP-3715).
fn check_completions(new: &JobSpec, old: &JobSpec, path: &FieldPath, errors: &mut FieldErrors) {
    let at = path.child("completions");
    if new.completions == old.completions {
        return;
    }
    match (new.completion_mode.as_deref(), new.completions) {
        (Some("Indexed"), Some(count)) if new.completions != new.parallelism => {
            errors.invalid(&at, count, "can only be modified in tandem with spec.parallelism");
        }
        (Some("Indexed"), Some(_)) => {}
        _ => errors.invalid(&at, json!(new.completions), "field is immutable"),
    }
}

/// The parts of the template that may change.
#[derive(Clone, Copy)]
struct ChangeableParts {
    /// Metadata and scheduling directives, of a suspended Job that has not started (KEP-2926).
    scheduling: bool,
    /// Resources of containers, of a suspended Job whose pods are gone (KEP-5440).
    resources: bool,
}

fn check_same_template(
    new: &PodTemplateSpec,
    old: &PodTemplateSpec,
    changeable: ChangeableParts,
    path: &FieldPath,
    errors: &mut FieldErrors,
) {
    let none = PodSpec::default();
    let (now, before) = (new.spec.as_ref().unwrap_or(&none), old.spec.as_ref().unwrap_or(&none));
    let mut fixed = before.clone();
    if changeable.scheduling {
        fixed.node_selector.clone_from(&now.node_selector);
        allow_node_affinity(&mut fixed.affinity, now.affinity.as_ref());
        fixed.tolerations.clone_from(&now.tolerations);
        fixed.scheduling_gates.clone_from(&now.scheduling_gates);
    }
    if changeable.resources {
        let pairs = fixed.containers.iter_mut().zip(&now.containers);
        let init = fixed.init_containers.iter_mut().flatten().zip(now.init_containers.iter().flatten());
        pairs.chain(init).for_each(|(fixed, now)| fixed.resources.clone_from(&now.resources));
    }
    if fixed != *now {
        errors.invalid_text(&path.child("spec"), &internal::spec(now).compact(), "field is immutable");
    }
    if !changeable.scheduling {
        errors.immutable(&path.child("metadata"), &json!(new.metadata), &json!(old.metadata));
    }
}

/// Takes the node affinity of the new template into the old one, and no other affinity.
fn allow_node_affinity(fixed: &mut Option<Affinity>, now: Option<&Affinity>) {
    let node_affinity = now.and_then(|affinity| affinity.node_affinity.clone());
    if fixed.is_some() || node_affinity.is_some() {
        fixed.get_or_insert_default().node_affinity = node_affinity;
    }
    if now.is_none() && fixed.as_ref() == Some(&Affinity::default()) {
        *fixed = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::testing::refusals;
    use serde_json::Value;

    fn job_refusals(name: &str, spec: Value) -> String {
        let mut job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec});
        job["spec"]["template"] =
            json!({"spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}});
        refusals(job).join("; ")
    }

    #[test]
    fn failed_indexes_are_compared_with_the_completions_of_indexed_jobs() {
        let spec = |mode: &str| json!({"completions": 1, "completionMode": mode, "backoffLimitPerIndex": 1, "maxFailedIndexes": 2});
        let at = "spec.maxFailedIndexes: Invalid value: 2";
        assert_eq!(job_refusals("a", spec("Indexed")), format!("{at}: must be less than or equal to completions"));
        let other = "spec.backoffLimitPerIndex: Invalid value: 1: requires indexed completion mode";
        assert_eq!(job_refusals("a", spec("NonIndexed")), format!("{other}; {at}: requires indexed completion mode"));
    }

    #[test]
    fn indexed_job_whose_pods_cannot_have_their_host_names_is_refused() {
        let name = "a".repeat(61);
        let spec = |completions: i32, mode: &str| json!({"completions": completions, "completionMode": mode});
        assert_eq!(job_refusals(&name, spec(12, "NonIndexed")), "");
        assert_eq!(job_refusals(&name, spec(10, "Indexed")), "");
        assert_eq!(
            job_refusals(&name, spec(12, "Indexed")),
            format!(
                "metadata.name: Invalid value: {name:?}: will not able to create pod with invalid DNS label: {name}-11"
            )
        );
    }

    #[test]
    fn template_of_a_suspended_job_may_change_in_parts() {
        let template = |cpu: &str, zone: &str, image: &str| {
            let container = json!({"name": "c", "image": image, "resources": {"requests": {"cpu": cpu}}});
            json!({"spec": {"nodeSelector": {"zone": zone}, "containers": [container], "initContainers": [container]}})
        };
        let refused = |suspend: bool, status: &Value, new: Value| {
            let spec = json!({"suspend": suspend, "template": template("1", "a", "i")});
            let old: Job = serde_json::from_value(json!({"metadata": {}, "spec": spec, "status": status})).unwrap();
            let new: JobSpec = serde_json::from_value(json!({"suspend": suspend, "template": new})).unwrap();
            let mut errors = FieldErrors::default();
            check_change(&new, &old, &FieldPath::root("spec"), &mut errors);
            !errors.0.is_empty()
        };
        let [resources, scheduling, image] =
            [template("2", "a", "i"), template("1", "b", "i"), template("1", "a", "j")];
        let affinity = |kind: &str| {
            let mut changed = template("1", "a", "i");
            changed["spec"]["affinity"] = json!({kind: {}});
            changed
        };
        assert!(!refused(true, &json!({}), affinity("nodeAffinity")));
        assert!(refused(true, &json!({}), affinity("podAffinity")));
        let suspended = json!([{"type": "Suspended", "status": "True"}]);
        let started = "2026-01-01T00:00:00Z";
        for (suspend, status, may_change) in [
            (true, json!({}), [true, true, false]),
            (true, json!({"startTime": started, "conditions": suspended}), [true, false, false]),
            (true, json!({"startTime": started}), [false, false, false]),
            (true, json!({"active": 1, "conditions": suspended}), [false, true, false]),
            (false, json!({}), [false, false, false]),
        ] {
            let found = [&resources, &scheduling, &image].map(|new| !refused(suspend, &status, new.clone()));
            assert_eq!(found, may_change, "suspend {suspend}, {status}");
        }
    }

    #[test]
    fn limits_of_indexed_jobs_are_those_of_kubernetes() {
        let many = "when completions are above 100000 and used with backoff limit per index";
        let table = [
            (json!({"completions": 200000, "parallelism": 100000}), String::new()),
            (
                json!({"completions": 200000, "parallelism": 100001}),
                "spec.parallelism: Invalid value: 100001: must be less than or equal to 100000 when completion mode is Indexed"
                    .into(),
            ),
            (
                json!({"completions": 100001, "backoffLimitPerIndex": 1, "parallelism": 10001}),
                format!(
                    "spec.maxFailedIndexes: Required value: must be specified when completions is above 100000; \
                     spec.parallelism: Invalid value: 10001: must be less than or equal to 10000 {many}"
                ),
            ),
            (
                json!({"completions": 100001, "backoffLimitPerIndex": 1, "maxFailedIndexes": 10001}),
                format!("spec.maxFailedIndexes: Invalid value: 10001: must be less than or equal to 10000 {many}"),
            ),
        ];
        for (mut spec, problems) in table {
            spec["completionMode"] = "Indexed".into();
            assert_eq!(job_refusals("a", spec), problems);
        }
    }
}
