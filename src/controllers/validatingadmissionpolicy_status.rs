//! Checks the types of the expressions of ValidatingAdmissionPolicies, and writes type errors to their status
//! (`pkg/controller/validatingadmissionpolicystatus`).
//!
//! A policy is checked once for each of its generations, as in Kubernetes. Never: changes what a policy does.

use super::status;
use crate::cel::Decl;
use crate::kinds::catalogue::schemas::KindSchemas;
use crate::kinds::shared::policy_programs::type_check::{GroupVersionKind, SchemaSource, check};
use crate::kinds::{Kind, custom};
use crate::object::{Key, Object, Str, api_version};
use crate::world::{AppliedFields, Loop, Plan, Row, World};
use serde_json::{Value, json};
use std::cell::OnceCell;
use std::collections::HashMap;
use std::sync::Arc;

const ROOT: &str = "validatingadmissionpolicies.admissionregistration.k8s.io";

/// The loop that checks policies.
pub const LOOP: Loop = Loop {
    name: "validatingadmissionpolicy-status-controller",
    root: ROOT,
    concerns,
    plan,
    prepare: Some(prepare),
    ..Loop::BASE
};

/// Maximum number of policies whose warnings are kept.
const MAX_KEPT: usize = 64;

fn concerns(_: &World, row: &Row) -> Vec<Key> {
    if row.key.resource == ROOT { vec![row.key.clone()] } else { Vec::new() }
}

/// The result of the checks.
pub static APPLIED: AppliedFields = AppliedFields {
    manager: "validatingadmissionpolicy-status",
    is_status: true,
    paths: &[&["status", "observedGeneration"], &["status", "typeChecking"]],
};

fn plan(world: &World, key: &Key) -> Plan {
    let mut plan = Plan::default();
    let Some(object) = find_unchecked(world, key) else { return plan };
    let generation = object.generation();
    let warnings = world
        .with_cached(|TypeChecks(known): &mut TypeChecks| known.get(&CheckedState::read(world, &object)).cloned())
        .unwrap_or_else(|| find_warnings(world, &object));
    let mut checked = status::status_map(&object);
    checked.insert("observedGeneration".into(), generation.into());
    let found = if warnings.is_empty() { json!({}) } else { json!({"expressionWarnings": warnings}) };
    checked.insert("typeChecking".into(), found);
    status::apply(&mut plan, object, checked.into(), &APPLIED, "the types of its expressions were checked");
    plan
}

/// Compiling many long expressions against large schemas takes tens of milliseconds.
fn prepare(world: &World, key: &Key) {
    let Some(object) = find_unchecked(world, key) else { return };
    let state = CheckedState::read(world, &object);
    if world.with_cached(|TypeChecks(known): &mut TypeChecks| known.contains_key(&state)) {
        return;
    }
    let warnings = find_warnings(world, &object);
    world.with_cached(|TypeChecks(known): &mut TypeChecks| {
        if known.len() >= MAX_KEPT {
            known.clear();
        }
        known.insert(state, warnings);
    });
}

/// Returns a policy whose present generation is not checked.
fn find_unchecked(world: &World, key: &Key) -> Option<Object> {
    let object = world.get(key).filter(|row| !row.is_deleting())?.object();
    let observed = object.int(&["status", "observedGeneration"]);
    observed.is_none_or(|observed| observed < object.generation()).then_some(object)
}

fn find_warnings(world: &World, policy: &Object) -> Vec<Value> {
    check(&policy.0["spec"], &WorldSchemas { world, built_in: OnceCell::new() })
}

/// Warnings that were found before the plan that writes them.
#[derive(Default)]
struct TypeChecks(HashMap<CheckedState, Vec<Value>>);

/// The policy and the custom kinds that warnings follow from.
#[derive(PartialEq, Eq, Hash)]
struct CheckedState {
    uid: String,
    generation: i64,
    /// Uid and generation of each definition. The revision of a staged one is not its own yet.
    definitions: Vec<(Str, i64)>,
}

impl CheckedState {
    fn read(world: &World, policy: &Object) -> CheckedState {
        CheckedState {
            uid: policy.uid().to_owned(),
            generation: policy.generation(),
            definitions: world.list(custom::DEFINITIONS.0).map(|row| (row.uid.clone(), row.generation)).collect(),
        }
    }
}

/// The kinds and schemas of a World.
struct WorldSchemas<'w> {
    world: &'w World,
    /// Unpacked when the first one is needed.
    built_in: OnceCell<KindSchemas>,
}

impl WorldSchemas<'_> {
    fn schema(&self, api_version: &str, kind: &str) -> Option<Value> {
        let schemas = self.built_in.get_or_init(KindSchemas::built_in);
        let found = self.world.kinds.by_kind(api_version, kind)?;
        let Some(definition) = &found.custom else {
            return schemas.kind(api_version, kind).map(|schema| schemas.expand(schema));
        };
        let definition = self.world.get(&Key::new(custom::DEFINITIONS, "", &definition.definition))?.object();
        let version = api_version.rsplit('/').next();
        schemas.custom(&definition.0, version).map(|(_, schema)| schemas.expand(&schema))
    }
}

impl SchemaSource for WorldSchemas<'_> {
    fn find_kind(&self, group: &str, version: &str, resource: &str) -> Option<String> {
        let api_version = api_version(group, version);
        let fits = |kind: &&'static Kind| {
            kind.resource.plural() == resource
                && (kind.api_version() == api_version || kind.also.contains(&api_version.as_str()))
        };
        self.world.kinds.all().find(fits).map(|kind| kind.kind.to_owned())
    }

    fn declare(&self, (group, version, kind): &GroupVersionKind) -> Option<Arc<Decl>> {
        Decl::from_schema(&self.schema(&api_version(group, version), kind)?, false)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::cluster;
    use serde_json::{Value, json};

    const POLICY: &str = "
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: p}
spec:
  paramKind: {apiVersion: v1, kind: ConfigMap}
  matchConstraints:
    resourceRules: [{apiGroups: [apps], apiVersions: [v1], operations: ['*'], resources: [deployments, replicasets, deployments/scale]}]
  variables: [{name: wanted, expression: object.spec.replicas}]
  validations:
  - {expression: variables.wanted <= 3, messageExpression: params.data.text}
  - {expression: 'object.spec.template.spec.containers.all(c, c.resources.limits.cpu != c.name) && has(object.metadata.labels)'}
  - {expression: object.spec.paused, messageExpression: '1 + params.data.text'}
  - {expression: object.replicas > 1 && variables.wanted == request.name}
";

    #[test]
    fn warnings_name_the_kinds_that_an_expression_does_not_suit() {
        let mut cluster = cluster(POLICY);
        cluster.settle();
        let status = cluster.object(super::ROOT, "p").0["status"].take();
        assert_eq!(status["observedGeneration"], 1);
        let shown: Vec<(&str, &str)> = status["typeChecking"]["expressionWarnings"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|one| (one["fieldRef"].as_str().unwrap_or_default(), one["warning"].as_str().unwrap_or_default()))
            .collect();
        let both = |text: &str| format!("apps/v1, Kind=Deployment: {text}\n\napps/v1, Kind=ReplicaSet: {text}\n");
        let added = "ERROR: <input>:1:3: found no matching overload for '_+_' applied to '(int, string)'\n | 1 + params.data.text\n | ..^";
        let last = "ERROR: <input>:1:7: undefined field 'replicas'\n | object.replicas > 1 && variables.wanted == request.name\n | ......^\n\
            ERROR: <input>:1:41: found no matching overload for '_==_' applied to '(int, string)'\n \
            | object.replicas > 1 && variables.wanted == request.name\n | ........................................^";
        let paused = "apps/v1, Kind=ReplicaSet: ERROR: <input>:1:12: undefined field 'paused'\n | object.spec.paused\n | ...........^\n";
        assert_eq!(
            shown,
            [
                ("spec.validations[2].expression", paused),
                ("spec.validations[2].messageExpression", &*both(added)),
                ("spec.validations[3].expression", &*both(last)),
            ]
        );
    }

    #[test]
    fn prepared_warnings_are_those_of_the_plan() {
        let mut cluster = cluster(POLICY);
        let key = cluster.key(super::ROOT, "p");
        let plain = super::plan(&cluster.world, &key);
        super::prepare(&cluster.world, &key);
        let kept = |world: &super::World| {
            world.with_cached(|super::TypeChecks(known): &mut super::TypeChecks| {
                known.values_mut().for_each(Vec::clear);
                known.len()
            })
        };
        assert_eq!(super::plan(&cluster.world, &key), plain);
        assert_eq!(kept(&cluster.world), 1);
        assert_ne!(super::plan(&cluster.world, &key), plain, "the plan takes what was prepared");
        cluster.settle();
    }

    #[test]
    fn wildcards_and_unknown_kinds_are_not_checked() {
        let checked = |rule: Value| {
            let mut policy: Value = serde_yaml::from_str(POLICY).unwrap();
            policy["spec"]["matchConstraints"]["resourceRules"] = json!([rule]);
            let mut cluster = cluster(&policy.to_string());
            cluster.settle();
            cluster.object(super::ROOT, "p").0["status"]["typeChecking"].take()
        };
        let rule = |group: &str, resource: &str| json!({"apiGroups": [group], "apiVersions": ["v1"], "operations": ["*"], "resources": [resource]});
        for (group, resource) in
            [("*", "deployments"), ("apps", "*"), ("apps", "boats"), ("example.dev", "deployments")]
        {
            assert_eq!(checked(rule(group, resource)), json!({}), "{group}/{resource}");
        }
    }
}
