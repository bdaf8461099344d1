//! CertificateSigningRequests.

use super::age::{age_since, rfc1123};
use super::body::{BodyRead, joined_pairs, text_or};
use super::{Column, Describe, KindView, RelatedObjects, TableCell, events};
use crate::kinds::shared::certificate_request::CertificateRequest;
use crate::object::{Object, Time, time};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use std::fmt::Display;

/// The view of certificate signing requests.
pub static VIEW: KindView = KindView { columns: COLUMNS, cells, describe };

const COLUMNS: &[Column] = &[
    Column::text("Name"),
    Column::text("Age"),
    Column::text("SignerName"),
    Column::text("Requestor"),
    Column::text("RequestedDuration"),
    Column::text("Condition"),
];

fn cells(request: &Object, now: Time) -> Vec<TableCell> {
    let body = &request.0;
    vec![
        request.name().into(),
        age_since(request.created(), now).into(),
        text_or(body.text("spec.signerName"), "<none>").into(),
        body.text("spec.username").into(),
        requested_duration(body).unwrap_or_else(|| "<none>".into()).into(),
        state(body).into(),
    ]
}

fn requested_duration(body: &Value) -> Option<String> {
    body.value_at("spec.expirationSeconds").as_i64().map(time::age)
}

fn state(body: &Value) -> String {
    let is = |kind: &str| body.list("status.conditions").iter().any(|known| known.text("type") == kind);
    let mut state = String::from(match () {
        () if is("Denied") => "Denied",
        () if is("Approved") => "Approved",
        () => "Pending",
    });
    if is("Failed") {
        state.push_str(",Failed");
    }
    if !body.text("status.certificate").is_empty() {
        state.push_str(",Issued");
    }
    state
}

fn describe(request: &Object, related: &dyn RelatedObjects, out: &mut Describe) {
    let body = &request.0;
    out.field(0, "Name", request.name());
    out.field(0, "Labels", joined_pairs(&body.pairs("metadata.labels")));
    out.field(0, "Annotations", joined_pairs(&body.pairs("metadata.annotations")));
    out.field(0, "CreationTimestamp", rfc1123(request.created()));
    out.field(0, "Requesting User", body.text("spec.username"));
    out.field(0, "Signer", body.text("spec.signerName"));
    if let Some(duration) = requested_duration(body) {
        out.field(0, "Requested Duration", duration);
    }
    out.field(0, "Status", state(body));
    let pem = STANDARD.decode(body.text("spec.request")).unwrap_or_default();
    match CertificateRequest::parse(&pem) {
        Ok(parsed) => describe_content(&parsed, out),
        Err(why) => out.field(0, "Request", format_args!("unreadable: {why}")),
    }
    events::write_events(request, related, out);
}

/// Writes the subject and the alternative names that are requested.
fn describe_content(request: &CertificateRequest, out: &mut Describe) {
    out.heading(0, "Subject");
    out.field(0, "\tCommon Name", &request.subject.common_name);
    out.field(0, "\tSerial Number", request.subject.serial_number());
    request.subject.shown_parts().for_each(|(label, values)| describe_list(label, values, out));
    let names = request.names_by_type();
    if names.iter().any(|(_, values)| !values.is_empty()) {
        out.heading(0, "Subject Alternative Names");
    }
    names.into_iter().for_each(|(label, values)| describe_list(label, values, out));
}

/// Writes a value per line, as kubectl does: behind an empty cell, which is as wide as the names of the other fields.
fn describe_list<T: Display>(label: &str, values: impl IntoIterator<Item = T>, out: &mut Describe) {
    for (place, value) in values.into_iter().enumerate() {
        match place {
            0 => out.field(0, &format!("\t{label}"), value),
            _ => out.line(0, format_args!("\t\t{value}")),
        }
    }
}
