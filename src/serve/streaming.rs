//! Streams into pods: `pods/NAME/exec`, `attach` and `portforward` (`pkg/registry/core/pod/rest`).
//!
//! Knows: their parameters, and the errors before a stream is opened. [`super::http`] opens the streams.

use super::answer::HttpAnswer;
use super::remote_kubelet::{forward_to_kubelet, kubelet_query};
use super::request::ApiRequest;
use super::resolve::ResolvedTarget;
use super::target::{ContainerTarget, PortTarget, StreamTarget};
use super::{ServeResult, log};
use crate::apiserver::{Api, read};
use crate::object::{Object, Status};
use crate::runtime::session::RequestedStreams;

/// Runs a command in a container.
pub fn exec(api: &mut Api, request: &ApiRequest, asked: &ResolvedTarget<'_>) -> ServeResult {
    let all = request.query.iter().filter(|(name, _)| name == "command");
    let command: Vec<String> = all.map(|(_, value)| value.clone()).collect();
    let pod = assigned_pod(api, asked)?;
    let container = log::choose_container(&pod, request.parameter("container"))?;
    if command.is_empty() {
        return Err(Status::bad_request("you must specify at least one command for the container"));
    }
    let path = format!("/exec/{}/{}/{container}", pod.namespace(), pod.name());
    if let Some(elsewhere) = forward(api, request, &pod, path)? {
        return Ok(elsewhere);
    }
    open_container(api, request, &pod, container, Some(command))
}

/// Attaches to a container.
pub fn attach(api: &mut Api, request: &ApiRequest, asked: &ResolvedTarget<'_>) -> ServeResult {
    let pod = assigned_pod(api, asked)?;
    let container = log::choose_container(&pod, request.parameter("container"))?;
    let path = format!("/attach/{}/{}/{container}", pod.namespace(), pod.name());
    if let Some(elsewhere) = forward(api, request, &pod, path)? {
        return Ok(elsewhere);
    }
    open_container(api, request, &pod, container, None)
}

/// Forwards a request for streams to the kubelet of the pod's node, if that is on another machine.
fn forward(api: &mut Api, request: &ApiRequest, pod: &Object, path: String) -> ServeResult<Option<HttpAnswer>> {
    let node = pod.text(&["spec", "nodeName"]).unwrap_or_default();
    let elsewhere = forward_to_kubelet(api, request, node, (path, kubelet_query(request)))?;
    match elsewhere {
        Some(_) if request.upgrade.is_none() => Err(Status::bad_request("Upgrade request required")),
        elsewhere => Ok(elsewhere),
    }
}

fn open_container(
    api: &Api,
    request: &ApiRequest,
    pod: &Object,
    container: String,
    command: Option<Vec<String>>,
) -> ServeResult {
    let given = |name: &str| request.parameter(name).is_some() && request.flag(name);
    let tty = given("tty");
    // A terminal has only one output.
    let streams =
        RequestedStreams { stdin: given("stdin"), stdout: given("stdout"), stderr: given("stderr") && !tty, tty };
    if !(streams.stdin || streams.stdout || streams.stderr) {
        return Err(Status::bad_request("you must specify at least 1 of stdin, stdout, stderr"));
    }
    let (home, uid) = (api.store().home().to_owned(), pod.local_uid().to_owned());
    open(request, StreamTarget::Container(ContainerTarget { home, uid, container, command, streams }))
}

/// Forwards ports of a pod.
pub fn port_forward(api: &mut Api, request: &ApiRequest, asked: &ResolvedTarget<'_>) -> ServeResult {
    let pod = assigned_pod(api, asked)?;
    let words = request.query.iter().filter(|(name, _)| name == "ports").flat_map(|(_, value)| value.split(','));
    let port = |word: &str| match word.parse() {
        Ok(0) | Err(_) => {
            Err(Status::bad_request(format!("ports: Invalid value: {word:?}: must be between 1 and 65535, inclusive")))
        }
        Ok(port) => Ok(port),
    };
    let ports = words.filter(|word| !word.is_empty()).map(port).collect::<ServeResult<Vec<u16>>>()?;
    if let Some(elsewhere) = forward(api, request, &pod, format!("/portForward/{}/{}", pod.namespace(), pod.name()))? {
        return Ok(elsewhere);
    }
    let address = pod.text(&["status", "podIP"]).and_then(|address| address.parse().ok());
    let pod_name = format!("{}/{}", pod.namespace(), pod.name());
    open(request, StreamTarget::Ports(PortTarget { pod: pod_name, uid: pod.uid().to_owned(), address, ports }))
}

fn assigned_pod(api: &Api, asked: &ResolvedTarget<'_>) -> ServeResult<Object> {
    let pod = api.read_view(|txn| read::exact(txn, &asked.key()))?;
    if pod.text(&["spec", "nodeName"]).is_none_or(str::is_empty) {
        return Err(Status::bad_request(format!("pod {} does not have a host assigned", pod.name())));
    }
    Ok(pod)
}

fn open(request: &ApiRequest, target: StreamTarget) -> ServeResult {
    if request.upgrade.is_none() {
        return Err(Status::bad_request("Upgrade request required"));
    }
    Ok(HttpAnswer::streams(target))
}
