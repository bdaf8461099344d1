//! StatefulSet (apps/v1).

use super::catalogue::{merge_rules, shapes, typed};
use super::persistent_volume_claim::{check_spec, default_spec};
use super::pod::defaults;
use super::shared::omit::default_text;
use super::shared::workload::{self, Workload};
use super::shared::{amount, names, omit, selector};
use super::view;
use super::{FieldErrors, FieldPath, Kind, NameRule, Typed, pod};
use crate::object::Object;
use k8s_openapi::api::apps::v1::{
    RollingUpdateStatefulSetStrategy, StatefulSet, StatefulSetSpec, StatefulSetUpdateStrategy,
};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, PersistentVolumeClaimVolumeSource, PodTemplateSpec, Volume};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// The catalogue's entry.
pub const KIND: Kind = Kind {
    short: &["sts"],
    categories: &["all"],
    scale: true,
    name_rule: NameRule::Label,
    merge_rules: &merge_rules::WORKLOAD,
    shape: &shapes::WORKLOAD,
    validate_status: |new, old| typed::validate_status(new, old, check_status),
    ..Kind::new::<StatefulSet>("statefulsets.apps", "v1", "StatefulSet", &view::stateful_set::VIEW)
};

impl Typed for StatefulSet {
    fn read(&mut self, body: &Value) {
        workload::read_selector(&mut self.spec.get_or_insert_default().selector, body);
    }

    fn default(&mut self) {
        omit::metadata(&mut self.metadata);
        let spec = self.spec.get_or_insert_default();
        omit::empty(&mut spec.min_ready_seconds);
        omit::empty(&mut spec.volume_claim_templates);
        default_text(&mut spec.pod_management_policy, "OrderedReady");
        spec.service_name.get_or_insert_default();
        spec.replicas.get_or_insert(1);
        spec.revision_history_limit.get_or_insert(10);
        let strategy = spec.update_strategy.get_or_insert_default();
        default_text(&mut strategy.type_, "RollingUpdate");
        if strategy.type_.as_deref() == Some("RollingUpdate") {
            strategy.rolling_update.get_or_insert_default().partition.get_or_insert(0);
        }
        let retention = spec.persistent_volume_claim_retention_policy.get_or_insert_default();
        default_text(&mut retention.when_deleted, "Retain");
        default_text(&mut retention.when_scaled, "Retain");
        spec.volume_claim_templates.iter_mut().flatten().for_each(claim);
        defaults::set_template_defaults(&mut spec.template);
    }

    fn prepare(new: &mut Object, old: Option<&Object>) {
        omit::reset_status(new, old, json!({"replicas": 0, "availableReplicas": 0}));
        drop_max_unavailable(new, old);
    }

    fn validate(&self, old: Option<&Self>, errors: &mut FieldErrors) {
        let (Some(spec), path) = (&self.spec, FieldPath::root("spec")) else { return };
        check_policies(spec, &path, errors);
        let counts =
            [("replicas", spec.replicas.map(i64::from)), ("minReadySeconds", spec.min_ready_seconds.map(i64::from))];
        workload::check_counts(&counts, &path, errors);
        if let Some(ordinals) = &spec.ordinals {
            workload::check_counts(&[("start", ordinals.start.map(i64::from))], &path.child("ordinals"), errors);
        }
        if let Some(name) = spec.service_name.as_deref().filter(|name| !name.is_empty()) {
            errors.each_invalid(&path.child("serviceName"), name, names::label(name));
        }
        let before = old.and_then(|old| old.spec.as_ref());
        check_template(spec, before, &path, errors);
        match before {
            Some(old) => check_change(spec, old, &path, errors),
            None => check_claims(spec, &path.child("volumeClaimTemplates"), errors),
        }
    }
}

fn check_status(new: &StatefulSet, old: &StatefulSet, errors: &mut FieldErrors) {
    let (new, old) = (new.status.clone().unwrap_or_default(), old.status.clone().unwrap_or_default());
    let path = FieldPath::root("status");
    let available = ("availableReplicas", new.available_replicas);
    let parts = [
        ("readyReplicas", new.ready_replicas),
        ("currentReplicas", new.current_replicas),
        ("updatedReplicas", new.updated_replicas),
        available,
    ];
    workload::check_counts(&[("replicas", Some(new.replicas.into()))], &path, errors);
    workload::check_counts(&parts.map(|(field, count)| (field, count.map(i64::from))), &path, errors);
    let others =
        [("observedGeneration", new.observed_generation), ("collisionCount", new.collision_count.map(i64::from))];
    workload::check_counts(&others, &path, errors);
    workload::check_at_most(&parts, new.replicas, "status.replicas", &path, errors);
    workload::check_at_most(&[available], new.ready_replicas.unwrap_or(0), "status.readyReplicas", &path, errors);
    workload::check_collisions(new.collision_count, old.collision_count, &path, errors);
}

/// Checks the template, including the volumes for its claims (Kubernetes 1.34). An unchanged template that is already
/// stored is accepted.
fn check_template(spec: &StatefulSetSpec, old: Option<&StatefulSetSpec>, path: &FieldPath, errors: &mut FieldErrors) {
    let parts = Workload {
        selects_for: "statefulset",
        runs_as: "StatefulSet",
        selector: &spec.selector,
        template: &spec.template,
    };
    let Some(ready) = parts.check_selector(path, errors) else {
        return errors.invalid_text(&path.child("selector"), &selector::text(&spec.selector), "");
    };
    let path = path.child("template");
    workload::check_match(&ready, &spec.template, &path, errors);
    if old.is_none_or(|old| old.template != spec.template) {
        pod::spec::check_template(&with_claims(spec), &path, errors);
    }
    workload::check_replaced(&spec.template, "StatefulSet", &path, errors);
}

/// The template as pods get it: with a volume for each claim, which replaces a volume of the same name, and without the host name and
/// subdomain, which the controller sets.
fn with_claims(spec: &StatefulSetSpec) -> PodTemplateSpec {
    let mut template = spec.template.clone();
    if let Some(pod) = &mut template.spec {
        (pod.hostname, pod.subdomain) = (None, None);
    }
    let names =
        spec.volume_claim_templates.iter().flatten().map(|claim| claim.metadata.name.clone().unwrap_or_default());
    let claims: Vec<Volume> = names.map(claimed_volume).collect();
    if let (Some(pod), false) = (&mut template.spec, claims.is_empty()) {
        let mut others = pod.volumes.take().unwrap_or_default();
        let claimed: BTreeSet<&str> = claims.iter().map(|claim| &*claim.name).collect();
        others.retain(|volume| !claimed.contains(&*volume.name));
        pod.volumes = Some(claims.into_iter().chain(others).collect());
    }
    template
}

fn claimed_volume(name: String) -> Volume {
    let source = PersistentVolumeClaimVolumeSource { claim_name: name.clone(), read_only: None };
    Volume { name, persistent_volume_claim: Some(source), ..Volume::default() }
}

/// Checks the claims' specs; the check of volumes covers their names.
fn check_claims(spec: &StatefulSetSpec, path: &FieldPath, errors: &mut FieldErrors) {
    for (index, claim) in spec.volume_claim_templates.iter().flatten().enumerate() {
        if let Some(spec) = &claim.spec {
            check_spec(spec, &path.index(index).child("spec"), errors);
        }
    }
}

fn check_policies(spec: &StatefulSetSpec, path: &FieldPath, errors: &mut FieldErrors) {
    match spec.pod_management_policy.as_deref().unwrap_or_default() {
        "OrderedReady" | "Parallel" => {}
        other => {
            let detail = "must be 'OrderedReady' or 'Parallel'";
            errors.invalid(&path.child("podManagementPolicy"), other, detail);
        }
    }
    if let Some(strategy) = &spec.update_strategy {
        check_strategy(strategy, &path.child("updateStrategy"), errors);
    }
    if let Some(retention) = &spec.persistent_volume_claim_retention_policy {
        let path = path.child("persistentVolumeClaimRetentionPolicy");
        for (field, policy) in [("whenDeleted", &retention.when_deleted), ("whenScaled", &retention.when_scaled)] {
            let (policy, known) = (policy.as_deref().unwrap_or_default(), ["Retain", "Delete"]);
            if !known.contains(&policy) {
                errors.unsupported_as_listed(&path.child(field), policy, &known);
            }
        }
    }
}

fn check_strategy(strategy: &StatefulSetUpdateStrategy, path: &FieldPath, errors: &mut FieldErrors) {
    let at = path.child("rollingUpdate");
    match (strategy.type_.as_deref().unwrap_or_default(), &strategy.rolling_update) {
        ("OnDelete", Some(rolling)) => {
            let detail = "only allowed for updateStrategy 'RollingUpdate'";
            errors.invalid_text(&at, &rolling_text(rolling), detail);
        }
        ("RollingUpdate", Some(rolling)) => check_rolling(rolling, &at, errors),
        ("OnDelete" | "RollingUpdate", None) => {}
        (other, rolling) => {
            let rolling = rolling.as_ref().map_or("null".into(), rolling_text);
            let text = format!("{{\"Type\":{},\"RollingUpdate\":{rolling}}}", json!(other));
            errors.invalid_text(path, &text, "must be 'RollingUpdate' or 'OnDelete'");
        }
    }
}

fn check_rolling(rolling: &RollingUpdateStatefulSetStrategy, path: &FieldPath, errors: &mut FieldErrors) {
    workload::check_counts(&[("partition", rolling.partition.map(i64::from))], path, errors);
    if let Some(unavailable) = &rolling.max_unavailable {
        let at = path.child("maxUnavailable");
        amount::check_count_or_percent(unavailable, &at, errors);
        if workload::is_nothing(unavailable) {
            errors.invalid(&at, json!(unavailable), "cannot be 0");
        }
        amount::check_at_most_all(unavailable, &at, errors);
    }
}

/// Drops `maxUnavailable` unless the object has it already: Kubernetes 1.36 disables the feature MaxUnavailableStatefulSet by default.
fn drop_max_unavailable(new: &mut Object, old: Option<&Object>) {
    const FIELD: [&str; 4] = ["spec", "updateStrategy", "rollingUpdate", "maxUnavailable"];
    if old.is_none_or(|old| old.value_at(&FIELD).is_none()) {
        new.unset(&FIELD);
    }
}

/// Prints the strategy like Go's struct.
fn rolling_text(rolling: &RollingUpdateStatefulSetStrategy) -> String {
    let partition = rolling.partition.unwrap_or(0);
    format!("{{\"Partition\":{partition},\"MaxUnavailable\":{}}}", json!(rolling.max_unavailable))
}

/// Refuses changes of fields that identify the pods and their claims.
fn check_change(new: &StatefulSetSpec, old: &StatefulSetSpec, path: &FieldPath, errors: &mut FieldErrors) {
    let kept = StatefulSetSpec {
        replicas: old.replicas,
        ordinals: old.ordinals.clone(),
        template: old.template.clone(),
        update_strategy: old.update_strategy.clone(),
        revision_history_limit: old.revision_history_limit,
        persistent_volume_claim_retention_policy: old.persistent_volume_claim_retention_policy.clone(),
        min_ready_seconds: old.min_ready_seconds,
        ..new.clone()
    };
    if kept != *old {
        let detail = "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', \
                      'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and \
                      'minReadySeconds' are forbidden";
        errors.forbidden(path, detail);
    }
}

/// Sets the defaults of a claim template, which is stored as a complete claim.
fn claim(claim: &mut PersistentVolumeClaim) {
    omit::metadata(&mut claim.metadata);
    claim.status.get_or_insert_default().phase.get_or_insert_with(|| "Pending".into());
    default_spec(claim.spec.get_or_insert_default());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::catalogue::typed;

    #[test]
    fn fields_that_the_controller_sets_are_not_checked() {
        let container = json!([{"name": "c", "image": "i"}]);
        let named = json!({"containers": container, "hostname": "A.b", "subdomain": "A_b"});
        assert_eq!(messages(named, json!([])), Vec::<String>::new());
    }

    #[test]
    fn max_unavailable_is_dropped_unless_the_object_has_it() {
        let with =
            |most: Value| Object(json!({"spec": {"updateStrategy": {"rollingUpdate": {"maxUnavailable": most}}}}));
        let path = ["spec", "updateStrategy", "rollingUpdate", "maxUnavailable"];
        let without = Object(json!({"spec": {"updateStrategy": {"rollingUpdate": {"partition": 1}}}}));
        for (old, left) in [(None, None), (Some(without), None), (Some(with(json!(2))), Some(json!("50%")))] {
            let mut new = with(json!("50%"));
            StatefulSet::prepare(&mut new, old.as_ref());
            assert_eq!(new.value_at(&path), left.as_ref(), "{old:?}");
        }
    }

    #[test]
    fn labels_of_templates_are_named_without_metadata() {
        let template = json!({"metadata": {"labels": {"a": "b", "c": "d e"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
        let spec = json!({"selector": {"matchLabels": {"a": "b"}}, "template": template});
        let body =
            typed::normalize::<StatefulSet>(&json!({"metadata": {"name": "s"}, "spec": spec}), &mut |_| {}).unwrap();
        let found: Vec<String> =
            typed::validate::<StatefulSet>(&Object(body), None).into_iter().map(|error| error.field).collect();
        assert_eq!(found, ["spec.template.labels"]);
    }

    fn messages(template: Value, claims: Value) -> Vec<String> {
        let labels = json!({"app": "a"});
        let spec = json!({
            "selector": {"matchLabels": labels}, "volumeClaimTemplates": claims,
            "template": {"metadata": {"labels": labels}, "spec": template},
        });
        let body =
            typed::normalize::<StatefulSet>(&json!({"metadata": {"name": "s"}, "spec": spec}), &mut |_| {}).unwrap();
        typed::validate::<StatefulSet>(&Object(body), None).into_iter().map(|error| error.field).collect()
    }

    #[test]
    fn templates_and_claims_are_checked_together() {
        let container = json!({"name": "c", "image": "i", "volumeMounts": [{"name": "data", "mountPath": "/d"}]});
        let claim = |modes: Value| {
            let spec = json!({"accessModes": modes, "resources": {"requests": {"storage": "1Gi"}}});
            json!([{"metadata": {"name": "data"}, "spec": spec}])
        };
        let good = claim(json!(["ReadWriteOnce"]));
        assert_eq!(messages(json!({"containers": [container]}), good), Vec::<String>::new());
        let mount = "spec.template.spec.containers[0].volumeMounts[0].name";
        assert_eq!(messages(json!({"containers": [container]}), json!([])), [mount]);
        let modes = "spec.volumeClaimTemplates[0].spec.accessModes";
        assert_eq!(messages(json!({"containers": [container]}), claim(json!([]))), [modes]);
        assert_eq!(messages(json!({"containers": []}), json!([])), ["spec.template.spec.containers"]);
    }
}
