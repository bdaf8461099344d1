//! ResourceQuotas.

use super::age::age_since;
use super::body::BodyRead;
use super::{Column, Describe, KindView, RelatedObjects, TableCell};
use crate::object::{Object, Time};

/// The view of quotas.
pub static VIEW: KindView = KindView { columns: COLUMNS, cells, describe };

const COLUMNS: &[Column] = &[Column::text("Name"), Column::text("Request"), Column::text("Limit"), Column::text("Age")];

fn cells(quota: &Object, now: Time) -> Vec<TableCell> {
    let hard = quota.0.pairs("status.hard");
    let used = quota.0.value_at("status.used");
    let join = |limits: bool| {
        let of_kind = hard.iter().filter(|(name, _)| name.starts_with("limits.") == limits);
        let texts = of_kind.map(|(name, hard)| format!("{name}: {}/{hard}", amount(used.get(name))));
        texts.collect::<Vec<_>>().join(", ")
    };
    vec![quota.name().into(), join(false).into(), join(true).into(), age_since(quota.created(), now).into()]
}

fn amount(value: Option<&serde_json::Value>) -> &str {
    value.and_then(serde_json::Value::as_str).unwrap_or("0")
}

fn describe(quota: &Object, _related: &dyn RelatedObjects, out: &mut Describe) {
    out.name_and_namespace(quota);
    scopes(out, 0, " * ", quota);
    out.line(0, "Resource\tUsed\tHard");
    out.line(0, "--------\t----\t----");
    amounts(out, 0, quota);
}

/// Writes the quotas of a namespace in its description.
pub fn all_of_namespace(out: &mut Describe, mut quotas: Vec<Object>) {
    if quotas.is_empty() {
        return out.line(0, "No resource quota.");
    }
    quotas.sort_by(|left, right| left.name().cmp(right.name()));
    out.line(0, "Resource Quotas");
    for quota in &quotas {
        out.field(1, "Name", quota.name());
        scopes(out, 1, "* ", quota);
        out.line(1, "Resource\tUsed\tHard");
        out.line(1, "--------\t---\t---");
        amounts(out, 1, quota);
    }
}

fn amounts(out: &mut Describe, level: usize, quota: &Object) {
    let used = quota.0.value_at("status.used");
    for (name, hard) in quota.0.pairs("status.hard") {
        out.row(level, &[&name, &amount(used.get(name)), &hard]);
    }
}

fn scopes(out: &mut Describe, level: usize, bullet: &str, quota: &Object) {
    let mut scopes = quota.0.texts("spec.scopes");
    if scopes.is_empty() {
        return;
    }
    scopes.sort_unstable();
    out.field(level, "Scopes", scopes.join(", "));
    for text in scopes.into_iter().filter_map(meaning) {
        out.line(level, format_args!("{bullet}{text}"));
    }
}

fn meaning(scope: &str) -> Option<&'static str> {
    Some(match scope {
        "Terminating" => {
            "Matches all pods that have an active deadline. These pods have a limited lifespan on a node before being actively terminated by the system."
        }
        "NotTerminating" => {
            "Matches all pods that do not have an active deadline. These pods usually include long running pods whose container command is not expected to terminate."
        }
        "BestEffort" => {
            "Matches all pods that do not have resource requirements set. These pods have a best effort quality of service."
        }
        "NotBestEffort" => {
            "Matches all pods that have at least one resource requirement set. These pods have a burstable or guaranteed quality of service."
        }
        _ => return None,
    })
}
