//! HorizontalPodAutoscalers.

use super::age::{age_since, rfc1123};
use super::body::{BodyRead, text_or};
use super::{Column, Describe, KindView, RelatedObjects, TableCell, events};
use crate::object::{Object, Time};
use serde_json::Value;

/// The view of autoscalers.
pub static VIEW: KindView = KindView { columns: COLUMNS, cells, describe };

const COLUMNS: &[Column] = &[
    Column::text("Name"),
    Column::text("Reference"),
    Column::text("Targets"),
    Column::text("MinPods"),
    Column::text("MaxPods"),
    Column::text("Replicas"),
    Column::text("Age"),
];

/// Maximum number of listed metrics; further ones are only counted.
const METRICS_SHOWN: usize = 2;

fn reference(body: &Value) -> String {
    let target = body.value_at("spec.scaleTargetRef");
    format!("{}/{}", target.text("kind"), target.text("name"))
}

fn cells(scaler: &Object, now: Time) -> Vec<TableCell> {
    let body = &scaler.0;
    vec![
        scaler.name().into(),
        reference(body).into(),
        targets(body).into(),
        text_or(&body.plain("spec.minReplicas"), "<unset>").into(),
        body.int("spec.maxReplicas").into(),
        body.int("status.currentReplicas").into(),
        age_since(scaler.created(), now).into(),
    ]
}

/// Current and target value of one metric.
struct MetricTarget<'a> {
    /// The source in the spec, from the field for the metric's type.
    spec: &'a Value,
    /// The source of the same metric in the status.
    current: &'a Value,
}

impl<'a> MetricTarget<'a> {
    fn from_body(body: &'a Value, at: usize, metric: &'a Value) -> MetricTarget<'a> {
        let kind = metric.text("type");
        let field =
            kind.chars().next().map(|first| first.to_lowercase().chain(kind.chars().skip(1)).collect::<String>());
        let field = field.unwrap_or_default();
        let measured = body.list("status.currentMetrics").get(at);
        MetricTarget {
            spec: metric.value_at(&field),
            current: measured.map_or(&Value::Null, |measured| measured.value_at(&field)),
        }
    }

    fn target_text(&self, field: &str) -> Option<String> {
        Some(self.spec.plain(&format!("target.{field}"))).filter(|text| !text.is_empty())
    }

    fn current_text(&self, field: &str) -> String {
        text_or(&self.current.plain(&format!("current.{field}")), "<unknown>").to_owned()
    }
}

fn targets(body: &Value) -> String {
    let metrics = body.list("spec.metrics");
    if metrics.is_empty() {
        return "<none>".into();
    }
    let all: Vec<String> = metrics.iter().enumerate().map(|(at, metric)| target(body, at, metric)).collect();
    let shown = all.iter().take(METRICS_SHOWN).cloned().collect::<Vec<_>>().join(", ");
    match all.len().saturating_sub(METRICS_SHOWN) {
        0 => shown,
        more => format!("{shown} + {more} more..."),
    }
}

fn target(body: &Value, at: usize, metric: &Value) -> String {
    let kind = metric.text("type");
    let metric = MetricTarget::from_body(body, at, metric);
    match kind {
        "Resource" | "ContainerResource" => {
            let name = metric.spec.text("name");
            if let Some(wanted) = metric.target_text("averageValue") {
                return format!("{name}: {}/{wanted}", metric.current_text("averageValue"));
            }
            let percent = |text: String| if text.starts_with('<') { text } else { text + "%" };
            let wanted = metric.target_text("averageUtilization").map_or_else(|| "<auto>".into(), percent);
            format!("{name}: {}/{wanted}", percent(metric.current_text("averageUtilization")))
        }
        "Pods" => {
            format!(
                "{}/{}",
                metric.current_text("averageValue"),
                metric.target_text("averageValue").unwrap_or_default()
            )
        }
        "Object" | "External" => match metric.target_text("averageValue") {
            Some(wanted) => format!("{}/{wanted} (avg)", metric.current_text("averageValue")),
            None => format!("{}/{}", metric.current_text("value"), metric.target_text("value").unwrap_or_default()),
        },
        _ => "<unknown type>".into(),
    }
}

fn describe(scaler: &Object, related: &dyn RelatedObjects, out: &mut Describe) {
    let body = &scaler.0;
    out.name_and_namespace(scaler);
    out.labels_and_annotations(scaler);
    out.field(0, "CreationTimestamp", rfc1123(scaler.created()));
    out.field(0, "Reference", reference(body));
    out.field(0, "Metrics", "( current / target )");
    for (at, metric) in body.list("spec.metrics").iter().enumerate() {
        describe_metric(out, metric.text("type"), &MetricTarget::from_body(body, at, metric));
    }
    out.field(0, "Min replicas", text_or(&body.plain("spec.minReplicas"), "<unset>"));
    out.field(0, "Max replicas", body.int("spec.maxReplicas"));
    if let Some(behavior) = body.value_at("spec").get("behavior") {
        out.heading(0, "Behavior");
        for (label, field) in [("Scale Up", "scaleUp"), ("Scale Down", "scaleDown")] {
            rules(out, label, behavior.value_at(field));
        }
    }
    let (current, desired) = (body.int("status.currentReplicas"), body.int("status.desiredReplicas"));
    let label = format!("{} pods", body.text("spec.scaleTargetRef.kind"));
    out.field(0, &label, format_args!("{current} current / {desired} desired"));
    let conditions = body.list("status.conditions");
    if !conditions.is_empty() {
        out.heading(0, "Conditions");
        out.header(1, &["Type", "Status", "Reason", "Message"]);
    }
    for known in conditions {
        let cells = ["type", "status", "reason", "message"].map(|field| known.text(field));
        out.line(1, cells.join("\t"));
    }
    events::write_events(scaler, related, out);
}

fn describe_metric(out: &mut Describe, kind: &str, metric: &MetricTarget<'_>) {
    let name = metric.spec.text("metric.name");
    let average = metric.target_text("averageValue");
    let of_value = |label: String, out: &mut Describe| match &average {
        Some(wanted) => {
            let now = metric.current_text("averageValue");
            out.field(1, &format!("{label}(target average value)"), format_args!("{now} / {wanted}"));
        }
        None => {
            let (now, wanted) = (metric.current_text("value"), metric.target_text("value").unwrap_or_default());
            out.field(1, &format!("{label}(target value)"), format_args!("{now} / {wanted}"));
        }
    };
    match kind {
        "External" => of_value(format!("\"{name}\" "), out),
        "Object" => {
            let about = metric.spec.value_at("describedObject");
            of_value(format!("\"{name}\" on {}/{} ", about.text("kind"), about.text("name")), out);
        }
        "Pods" => {
            let now = metric.current_text("averageValue");
            out.field(1, &format!("\"{name}\" on pods"), format_args!("{now} / {}", average.unwrap_or_default()));
        }
        "Resource" | "ContainerResource" => {
            let resource = metric.spec.text("name");
            let what = match metric.spec.text("container") {
                "" => format!("resource {resource} on pods"),
                container => format!("resource {resource} of container \"{container}\" on pods"),
            };
            utilization(out, &what, metric, average);
        }
        other => out.line(1, format_args!("<unknown metric type \"{other}\">")),
    }
}

fn utilization(out: &mut Describe, what: &str, metric: &MetricTarget<'_>, average: Option<String>) {
    let value = metric.current_text("averageValue");
    if let Some(wanted) = average {
        return out.field(1, what, format_args!("{value} / {wanted}"));
    }
    let now = match metric.current.value_at("current.averageUtilization").as_i64() {
        Some(percent) => format!("{percent}% ({value})"),
        None => "<unknown>".into(),
    };
    let wanted = metric.target_text("averageUtilization").map_or_else(|| "<auto>".into(), |percent| percent + "%");
    out.field(1, &format!("{what}  (as a percentage of request)"), format_args!("{now} / {wanted}"));
}

fn rules(out: &mut Describe, label: &str, rules: &Value) {
    if rules.is_null() {
        return;
    }
    out.heading(1, label);
    if rules.has("stabilizationWindowSeconds") {
        out.line(2, format_args!("Stabilization Window: {} seconds", rules.int("stabilizationWindowSeconds")));
    }
    let policies = rules.list("policies");
    if !policies.is_empty() {
        out.line(2, format_args!("Select Policy: {}", text_or(rules.text("selectPolicy"), "Max")));
        out.heading(2, "Policies");
    }
    for policy in policies {
        let (kind, value, period) = (policy.text("type"), policy.int("value"), policy.int("periodSeconds"));
        out.line(3, format_args!("- Type: {kind}\tValue: {value}\tPeriod: {period} seconds"));
    }
}
