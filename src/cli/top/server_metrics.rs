//! Measurements of a server's cluster: documents of the Metrics API, which a metrics server or kloop serve gives.
//!
//! Start reading at [`read_pods`] and [`read_nodes`].

use crate::apiserver::read::ListSelection;
use crate::cli::cluster::rest;
use crate::cli::{CliResult, CommandContext, Failure};
use crate::client::ClientRequest;
use crate::object::{Quantity, Reason, Status};
use crate::show::usage::PodUsage;
use crate::world::usage::Usage;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use std::collections::BTreeMap;

/// The Metrics API.
const ROOT: &str = "/apis/metrics.k8s.io/v1beta1";

/// Reads the usage of pods: of one, or of those that are selected. `namespace`: `None` for all.
pub fn read_pods(
    namespace: Option<&str>,
    name: Option<&str>,
    selection: &ListSelection,
    context: &mut CommandContext,
) -> CliResult<Vec<PodUsage>> {
    let place = namespace.map(|namespace| format!("/namespaces/{}", escape(namespace))).unwrap_or_default();
    let items = read_items(&format!("{ROOT}{place}/pods"), name, selection, context)?;
    let container = |item: &Value| (text(&item["name"]), read_usage(&item["usage"]));
    let row = |item: &Value| PodUsage {
        namespace: text(&item["metadata"]["namespace"]),
        name: text(&item["metadata"]["name"]),
        containers: item["containers"].as_array().into_iter().flatten().map(container).collect(),
    };
    Ok(items.iter().map(row).collect())
}

/// Reads the usage of all nodes, by name.
pub fn read_nodes(context: &mut CommandContext) -> CliResult<BTreeMap<String, Usage>> {
    let items = read_items(&format!("{ROOT}/nodes"), None, &ListSelection::default(), context)?;
    Ok(items.iter().map(|item| (text(&item["metadata"]["name"]), read_usage(&item["usage"]))).collect())
}

fn read_items(
    collection: &str,
    name: Option<&str>,
    selection: &ListSelection,
    context: &mut CommandContext,
) -> CliResult<Vec<Value>> {
    let path = name.map_or_else(|| collection.to_owned(), |name| format!("{collection}/{}", escape(name)));
    let request = ClientRequest::get(path);
    let request = selection.query().iter().fold(request, |request, (name, value)| request.query(name, value));
    let reply = match rest::send_to_server(context, request) {
        Err(Failure::Api { status, .. }) if is_missing(&status) => {
            return Err(Failure::plain("Metrics API not available"));
        }
        reply => reply?,
    };
    let Some(reply) = reply else { return Ok(Vec::new()) };
    let mut document = reply.json().map_err(|error| Failure::plain(error.to_string()))?;
    Ok(match document["items"].take() {
        Value::Array(items) => items,
        _ if name.is_some() => vec![document],
        _ => Vec::new(),
    })
}

/// Whether the server has no Metrics API, or nothing answers behind it.
fn is_missing(status: &Status) -> bool {
    status.reason == Reason::NotFound && status.name.is_empty() || status.reason == Reason::ServiceUnavailable
}

fn read_usage(usage: &Value) -> Usage {
    let amount = |name: &str| Quantity::parse(usage[name].as_str().unwrap_or_default()).unwrap_or_default();
    Usage { cpu_milli: amount("cpu").milli(), memory: amount("memory").value(), swap: amount("swap").value() }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn escape(part: &str) -> String {
    utf8_percent_encode(part, NON_ALPHANUMERIC).to_string()
}
