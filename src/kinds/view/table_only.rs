//! Kinds with specific columns and a generic description.

use super::age::age_since;
use super::body::{BodyRead, joined_pairs, text_or};
use super::containers::names_and_images;
use super::limit_range::{CREATED, created_at};
use super::related::selector;
use super::{Column, KindView, TableCell, generic};
use crate::object::{Object, Time, condition, group_of};
use serde_json::Value;

const NAME: Column = Column::text("Name");
const AGE: Column = Column::text("Age");

/// The view of custom resource definitions.
pub static CUSTOM_RESOURCE_DEFINITION: KindView = KindView { columns: CREATED, cells: created_at, ..generic::VIEW };

/// The view of leases.
pub static LEASE: KindView = KindView {
    columns: &[NAME, Column::text("Holder"), AGE],
    cells: |lease, now| row(lease, now, [lease.0.text("spec.holderIdentity").into()]),
    ..generic::VIEW
};

/// The view of runtime classes.
pub static RUNTIME_CLASS: KindView = KindView {
    columns: &[NAME, Column::text("Handler"), AGE],
    cells: |class, now| row(class, now, [class.0.text("handler").into()]),
    ..generic::VIEW
};

/// The view of controller revisions.
pub static CONTROLLER_REVISION: KindView = KindView {
    columns: &[NAME, Column::text("Controller"), Column::text("Revision"), AGE],
    cells: |revision, now| row(revision, now, [controller(revision).into(), revision.0.int("revision").into()]),
    ..generic::VIEW
};

/// The view of pod templates.
pub static POD_TEMPLATE: KindView = KindView {
    columns: &[NAME, Column::text("Containers"), Column::text("Images"), Column::text("Pod Labels")],
    cells: |template, _| {
        let (names, images) = names_and_images(template.0.value_at("template.spec"));
        let labels = joined_pairs(&template.0.pairs("template.metadata.labels"));
        vec![template.name().into(), names.into(), images.into(), labels.into()]
    },
    ..generic::VIEW
};

/// The view of webhook configurations.
pub static WEBHOOK: KindView = KindView { columns: WEBHOOKS, cells: webhooks, ..generic::VIEW };

/// The view of validating admission policies.
pub static ADMISSION_POLICY: KindView = KindView {
    columns: &[NAME, Column::int("Validations"), Column::text("ParamKind"), AGE],
    cells: |policy, now| {
        let count = policy.0.list("spec.validations").len();
        row(policy, now, [count.into(), param_kind(&policy.0).into()])
    },
    ..generic::VIEW
};

/// The view of mutating admission policies.
pub static MUTATING_POLICY: KindView = KindView {
    columns: &[NAME, Column::int("Mutations"), Column::text("ParamKind"), AGE],
    cells: |policy, now| {
        let count = policy.0.list("spec.mutations").len();
        row(policy, now, [count.into(), param_kind(&policy.0).into()])
    },
    ..generic::VIEW
};

/// The view of the bindings of both.
pub static ADMISSION_POLICY_BINDING: KindView =
    KindView { columns: POLICY_BINDING, cells: policy_binding, ..generic::VIEW };

/// The view of flow schemas.
pub static FLOW_SCHEMA: KindView = KindView {
    columns: &[
        NAME,
        Column::text("PriorityLevel"),
        Column::int("MatchingPrecedence"),
        Column::text("DistinguisherMethod"),
        AGE,
        Column::text("MissingPL"),
    ],
    cells: flow_schema,
    ..generic::VIEW
};

/// The view of priority levels.
pub static PRIORITY_LEVEL: KindView = KindView {
    columns: &[
        NAME,
        Column::text("Type"),
        Column::text("NominalConcurrencyShares"),
        Column::text("Queues"),
        Column::text("HandSize"),
        Column::text("QueueLengthLimit"),
        AGE,
    ],
    cells: priority_level,
    ..generic::VIEW
};

/// The view of API services.
pub static API_SERVICE: KindView = KindView {
    columns: &[NAME, Column::text("Service"), Column::text("Available"), AGE],
    cells: api_service,
    ..generic::VIEW
};

/// A row with the name, further cells, and the age.
fn row<const N: usize>(object: &Object, now: Time, middle: [TableCell; N]) -> Vec<TableCell> {
    let mut cells = vec![object.name().into()];
    cells.extend(middle);
    cells.push(age_since(object.created(), now).into());
    cells
}

/// The controller of an object, such as `daemonset.apps/agent`.
fn controller(object: &Object) -> String {
    let Some(owner) = object.controller() else { return "<none>".into() };
    let group = group_of(&owner.api_version);
    let dot = if group.is_empty() { "" } else { "." };
    format!("{}{dot}{group}/{}", owner.kind.to_lowercase(), owner.name)
}

const WEBHOOKS: &[Column] = &[NAME, Column::int("Webhooks"), AGE];

fn webhooks(configuration: &Object, now: Time) -> Vec<TableCell> {
    row(configuration, now, [configuration.0.list("webhooks").len().into()])
}

fn param_kind(body: &Value) -> String {
    let kind = body.value_at("spec.paramKind");
    if kind.is_null() { "<unset>".into() } else { format!("{}/{}", kind.text("apiVersion"), kind.text("kind")) }
}

const POLICY_BINDING: &[Column] = &[NAME, Column::text("PolicyName"), Column::text("ParamRef"), AGE];

fn policy_binding(binding: &Object, now: Time) -> Vec<TableCell> {
    let parameters = binding.0.value_at("spec.paramRef");
    let text = match (parameters.text("namespace"), parameters.text("name")) {
        (_, "") if parameters.has("selector") => selector(parameters.value_at("selector")).to_string(),
        (_, "") => "<unset>".into(),
        ("", name) => name.to_owned(),
        (namespace, name) => format!("{namespace}/{name}"),
    };
    row(binding, now, [binding.0.text("spec.policyName").into(), text.into()])
}

fn flow_schema(schema: &Object, now: Time) -> Vec<TableCell> {
    let body = &schema.0;
    let dangling = condition::find(body.list("status.conditions"), "Dangling");
    vec![
        schema.name().into(),
        body.text("spec.priorityLevelConfiguration.name").into(),
        body.int("spec.matchingPrecedence").into(),
        text_or(body.text("spec.distinguisherMethod.type"), "<none>").into(),
        age_since(schema.created(), now).into(),
        dangling.map_or("?", |known| known.text("status")).into(),
    ]
}

fn priority_level(level: &Object, now: Time) -> Vec<TableCell> {
    let limited = level.0.value_at("spec.limited");
    let queuing = limited.value_at("limitResponse.queuing");
    let number = |value: String| TableCell::or_none(&value);
    row(
        level,
        now,
        [
            level.0.text("spec.type").into(),
            number(limited.plain("nominalConcurrencyShares")),
            number(queuing.plain("queues")),
            number(queuing.plain("handSize")),
            number(queuing.plain("queueLengthLimit")),
        ],
    )
}

fn api_service(service: &Object, now: Time) -> Vec<TableCell> {
    let backend = service.0.value_at("spec.service");
    let local = backend.is_null();
    let name = if local { "Local".into() } else { format!("{}/{}", backend.text("namespace"), backend.text("name")) };
    let available = service.condition("Available");
    let available = match available {
        Some(known) if known.text("status") == "True" => "True".into(),
        Some(known) => format!("{} ({})", known.text("status"), known.text("reason")),
        None => "Unknown".into(),
    };
    row(service, now, [name.into(), available.into()])
}
