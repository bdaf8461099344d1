//! Logs of containers: `pods/NAME/log`.

use super::ServeResult;
use super::answer::{AnswerBody, HttpAnswer};
use super::remote_kubelet::{forward_to_kubelet, kubelet_query};
use super::request::{ApiRequest, UpgradeProtocol};
use super::resolve::ResolvedTarget;
use super::target::StreamTarget;
use crate::apiserver::{Api, log, read};
use crate::kinds::FieldError;
use crate::kinds::shared::field;
use crate::object::{Object, Reason, Resource, Status, Time, time};
use crate::runtime::logs::LogOptions;
use jiff::SignedDuration;

/// Answers with the log as plain text, and follows it when requested.
pub fn answer(api: &mut Api, request: &ApiRequest, asked: &ResolvedTarget<'_>) -> ServeResult {
    let pod = api.read_view(|txn| read::exact(txn, &asked.key()))?;
    let container = choose_container(&pod, request.parameter("container"))?;
    let options = log_options(request, asked.name)?;
    let node = pod.text(&["spec", "nodeName"]).unwrap_or_default();
    let path = format!("/containerLogs/{}/{}/{container}", pod.namespace(), pod.name());
    if let Some(elsewhere) = forward_to_kubelet(api, request, node, (path, kubelet_query(request)))? {
        return Ok(elsewhere);
    }
    let logs = log::open(&log::LogSource::from_api(api), &pod, &container, &options)?;
    if request.upgrade.as_ref().is_some_and(|upgrade| upgrade.protocol == UpgradeProtocol::WebSocket) {
        return Ok(HttpAnswer::streams(StreamTarget::Log(logs.map(Box::new))));
    }
    let answer = HttpAnswer { content_type: "text/plain".into(), ..HttpAnswer::text("") };
    Ok(match logs {
        Some(logs) => HttpAnswer { body: AnswerBody::Log(Box::new(logs)), ..answer },
        None => answer,
    })
}

/// Returns the requested or only container (`pkg/registry/core/pod`: LogLocation).
pub fn choose_container(pod: &Object, asked: Option<&str>) -> ServeResult<String> {
    let names = |list: &str| -> Vec<String> {
        let containers = pod.items(&["spec", list]).iter();
        containers.filter_map(|container| Some(container["name"].as_str()?.to_owned())).collect()
    };
    let (main, init) = (names("containers"), names("initContainers"));
    let refuse = |text: String| Err(Status::new(Reason::BadRequest, text));
    let Some(asked) = asked else {
        if let [only] = &main[..] {
            return Ok(only.clone());
        }
        let more = if init.is_empty() {
            String::new()
        } else {
            format!(" or one of the init containers: [{}]", init.join(" "))
        };
        return refuse(format!(
            "a container name must be specified for pod {}, choose one of: [{}]{more}",
            pod.name(),
            main.join(" ")
        ));
    };
    let all = [main, init, names("ephemeralContainers")].concat();
    match all.into_iter().find(|name| name == asked) {
        Some(name) => Ok(name),
        None => refuse(format!("container {asked} is not valid for pod {}", pod.name())),
    }
}

/// Returns the error about an option, which names the pod.
fn wrong_option(pod: &str, option: &str, reason: &'static str, message: String) -> Status {
    let error = FieldError { field: option.into(), reason, message };
    field::invalid("PodLogOptions", Resource("pods"), pod, &[error])
}

fn log_options(request: &ApiRequest, pod: &str) -> ServeResult<LogOptions> {
    let positive = |name: &'static str, least: i64| match request.number(name)? {
        Some(number) if number < least => {
            let bound = if least == 0 { "greater than or equal to 0" } else { "greater than 0" };
            let message = format!("Invalid value: {number}: must be {bound}");
            Err(wrong_option(pod, name, "FieldValueInvalid", message))
        }
        number => Ok(number),
    };
    let seconds =
        positive("sinceSeconds", 1)?.map(|seconds| Time::now() - SignedDuration::from_secs(seconds.min(1 << 32)));
    if seconds.is_some() && request.parameter("sinceTime").is_some() {
        // A path without a name is written so.
        let why = "at most one of `sinceTime` or `sinceSeconds` may be specified";
        return Err(wrong_option(pod, "[]", "FieldValueForbidden", format!("Forbidden: {why}")));
    }
    let moment = request.parameter("sinceTime").map(|text| {
        time::parse_rfc3339(text).map_err(|error| Status::new(Reason::BadRequest, format!("sinceTime: {error}")))
    });
    Ok(LogOptions {
        follow: request.flag("follow"),
        previous: request.flag("previous"),
        waits_after: None,
        since: moment.transpose()?.or(seconds),
        tail: positive("tailLines", 0)?.and_then(|lines| usize::try_from(lines).ok()),
        timestamps: request.flag("timestamps"),
        limit_bytes: positive("limitBytes", 1)?.and_then(|bytes| u64::try_from(bytes).ok()),
    })
}
