//! Requests to the REST API, without a server where the cluster is a state file, for commands that show its documents.

use crate::apiserver::remote::discovery::{self, DiscoveredResource};
use crate::cli::{CliResult, CommandContext, Failure};
use crate::client::{ClientReply, ClientRequest};
use crate::object::{Key, Resource};
use crate::serve::{self, AnswerBody, ApiRequest, HttpAnswer};
use serde_json::Value;

/// Sends a request to the server that is used in place of a state file; `None` without one.
pub fn send_to_server(context: &mut CommandContext, request: ClientRequest) -> CliResult<Option<ClientReply>> {
    let Some(remote) = context.existing()?.and_then(|api| api.remote()) else { return Ok(None) };
    Ok(Some(remote.send(request)?))
}

/// Returns the body of a GET request. Warnings are printed.
pub fn read(context: &mut CommandContext, path: &str, accept: &str) -> CliResult<Vec<u8>> {
    let server_accept = if accept.is_empty() { "application/json" } else { accept };
    if let Some(reply) = send_to_server(context, ClientRequest::get(path).accepting(server_accept))? {
        context.warn(&reply.warnings);
        return Ok(reply.body.into());
    }
    let answer = answer_from_state(context, path, accept)?;
    let quoted = |text: &str| text.split_once('"').and_then(|(_, rest)| Some(rest.rsplit_once('"')?.0.to_owned()));
    let warnings = answer.headers.iter().filter(|(name, _)| name.eq_ignore_ascii_case("warning"));
    context.warn(&Vec::from_iter(warnings.filter_map(|(_, text)| quoted(text))));
    match answer.body {
        AnswerBody::Whole(bytes) => Ok(bytes),
        AnswerBody::Packed(document) => Ok(document.unpack()?),
        AnswerBody::List(mut bytes, mut list) => {
            while let Some(piece) = list.next_piece(context.api_for(true)?, Vec::new())? {
                bytes.extend(piece);
            }
            Ok(bytes)
        }
        AnswerBody::Log(logs) => {
            let mut bytes = Vec::new();
            for piece in *logs {
                bytes.extend(piece?);
            }
            Ok(bytes)
        }
        AnswerBody::Watch(_) | AnswerBody::Overview(_) | AnswerBody::Streams(_) | AnswerBody::Proxied(_) => {
            Err(Failure::plain(format!("{path} is not a document")))
        }
    }
}

/// Answers a GET request from the state file, if the user as whom the command acts may make it.
pub fn answer_from_state(context: &mut CommandContext, path: &str, accept: &str) -> CliResult<HttpAnswer> {
    let user = context.is_impersonating().then(|| context.user());
    let request = ApiRequest { host: "localhost".into(), accept: accept.into(), user, ..ApiRequest::new("GET", path) };
    let api = context.api_for(true)?;
    serve::access::authorize(api, &request)?;
    Ok(serve::handle_request(api, &request)?)
}

/// Reads the resources that the API serves: by its own discovery documents where the cluster is a state file.
pub fn read_resources(context: &mut CommandContext) -> CliResult<Vec<DiscoveredResource>> {
    if let Some(remote) = context.existing()?.and_then(|api| api.remote()) {
        return Ok(discovery::read(remote)?);
    }
    let mut resources = Vec::new();
    for path in discovery::PATHS {
        resources.extend(discovery::list_resources(&read_document(context, path, discovery::AGGREGATED)?));
    }
    Ok(resources)
}

/// Returns the document of a GET request.
pub fn read_document(context: &mut CommandContext, path: &str, accept: &str) -> CliResult<Value> {
    let bytes = read(context, path, accept)?;
    serde_json::from_slice(&bytes).map_err(|error| Failure::plain(format!("{path}: {error}")))
}

/// Returns the address of the API: that of the server that runs, else the cluster's file.
pub fn address(context: &mut CommandContext) -> CliResult<String> {
    if let Some(client) = context.client() {
        return Ok(client.config().address.to_string());
    }
    let key = Key::new(Resource("endpoints"), "default", "kubernetes");
    let endpoints = context.read_view(|txn| txn.get(&key))?;
    let served = endpoints.and_then(|endpoints| {
        let subset = endpoints.items(&["subsets"]).first()?.clone();
        Some(format!("https://{}:{}", subset["addresses"][0]["ip"].as_str()?, subset["ports"][0]["port"]))
    });
    let file = || format!("file://{}", std::path::absolute(context.state()).unwrap_or_default().display());
    Ok(served.unwrap_or_else(file))
}
