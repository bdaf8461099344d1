//! `kloop logs`: prints containers' output from their log files. This needs no control plane.

use super::cluster::control_plane;
use super::cluster::deadline::Deadline;
use super::cluster::one_pod::{self, PodContainers, RestartRank};
use super::cluster::targets;
use super::command_line::flags::{LabelFlag, SelectFlags};
use super::{CliResult, CommandContext, Failure};
use crate::apiserver::authorization::check_verb;
use crate::apiserver::log;
use crate::apiserver::read::{self, ListSelection};
use crate::apiserver::rules::names::key_of;
use crate::kinds::shared::field;
use crate::kinds::{self, FieldError, Kind};
use crate::object::{Key, Object, Reason, Resource, Time, time};
use crate::runtime::logs::LogOptions;
use jiff::SignedDuration;
use lines::{LineStyle, LineWriter};
use std::collections::HashMap;
use std::io::IsTerminal;
use std::sync::Arc;
use streams::{LogPlace, LogStreams, PrefixForm, Prefixes, copy_log};

pub mod lines;
pub mod streams;

/// Print the logs for a container in a pod or specified resource.
///
/// If the pod has only one container, the container name is optional.
#[derive(clap::Args)]
#[command(
    override_usage = "[-f] [-p] (POD | TYPE/NAME) [-c CONTAINER]",
    after_help = "\
# Return snapshot logs from pod nginx with only one container
kloop logs nginx

# Return snapshot logs from pod nginx, prefixing each line with the source pod and container name
kloop logs nginx --prefix

# Return snapshot logs from all containers in pods defined by label app=nginx
kloop logs -l app=nginx --all-containers=true

# Return snapshot of previous terminated ruby container logs from pod web-1
kloop logs -p -c ruby web-1

# Begin streaming the logs of the ruby container in pod web-1
kloop logs -f -c ruby web-1

# Display only the most recent 20 lines of output in pod nginx
kloop logs --tail=20 nginx

# Show all logs from pod nginx written in the last hour
kloop logs --since=1h nginx

# Return snapshot logs from first container of a job named hello
kloop logs job/hello

# Return snapshot logs from container nginx-1 of a deployment named nginx
kloop logs deployment/nginx -c nginx-1

# Follow all pods with label app=web, also those that come later, and print only lines that match
kloop logs -f -l app=web --grep 'ERROR|WARN'

# Follow JSON logs as text, from the start of each container
kloop logs -f deployment/web --all-pods --pretty --since-start"
)]
pub struct Args {
    /// POD or TYPE/NAME, then the container.
    words: Vec<String>,
    /// Print the logs of this container.
    #[arg(short, long, value_name = "CONTAINER")]
    container: Option<String>,
    /// Get all containers' logs in the pod(s).
    #[arg(long)]
    all_containers: bool,
    /// Get logs from all pod(s). Sets prefix to true.
    #[arg(long)]
    all_pods: bool,
    /// Specify if the logs should be streamed.
    #[arg(short, long)]
    follow: bool,
    /// If true, print the logs for the previous instance of the container in a pod if it exists.
    #[arg(short, long)]
    previous: bool,
    #[command(flatten)]
    labels: LabelFlag,
    /// Only return logs newer than a relative duration like 5s, 2m, or 3h.
    #[arg(long, default_value = "0s", value_name = "DURATION", value_parser = time::parse_duration)]
    since: SignedDuration,
    /// Only return logs after a specific date (RFC3339).
    #[arg(long, value_name = "TIME")]
    since_time: Option<String>,
    /// Print everything since the container was started, also with a selector.
    #[arg(long, conflicts_with_all = ["since", "since_time", "tail"])]
    since_start: bool,
    /// Print only lines that match this regular expression.
    #[arg(long, value_name = "PATTERN")]
    grep: Option<String>,
    /// Print lines that are JSON objects as text: time, level, message, and the other fields.
    #[arg(long)]
    pretty: bool,
    /// Lines of recent log file to display. Defaults to -1, showing all; to 10 with a selector.
    #[arg(long, value_name = "LINES", allow_negative_numbers = true)]
    tail: Option<i64>,
    /// Maximum bytes of logs to return.
    #[arg(long, default_value_t = 0, value_name = "BYTES", allow_negative_numbers = true)]
    limit_bytes: i64,
    /// Include timestamps on each line in the log output.
    #[arg(long)]
    timestamps: bool,
    /// Prefix each log line with the log source (pod name and container name).
    #[arg(long)]
    prefix: bool,
    /// If watching / following pod logs, allow for any errors that occur to be non-fatal.
    #[arg(long)]
    ignore_errors: bool,
    /// Maximum number of concurrent logs to follow when using a selector.
    #[arg(long, default_value_t = 5, value_name = "N")]
    max_log_requests: usize,
    /// The length of time to wait until at least one pod is running.
    #[arg(long, default_value = "20s", value_name = "DURATION", value_parser = time::parse_duration)]
    pod_running_timeout: SignedDuration,
    /// Accepted for compatibility with kubectl; there is no backend to verify.
    #[arg(long)]
    insecure_skip_tls_verify_backend: bool,
}

/// Default number of lines per container with a selector. kubectl: `selectorTail`.
const SELECTOR_TAIL: i64 = 10;

impl Args {
    /// The selection and form of lines.
    fn style(&self) -> CliResult<LineStyle> {
        let refused = |error: regex::Error| Failure::plain(format!("invalid argument for \"--grep\" flag: {error}"));
        let grep = self.grep.as_deref().map(regex::bytes::Regex::new).transpose().map_err(refused)?;
        Ok(LineStyle { grep, pretty: self.pretty, whole_lines: false })
    }

    /// The form of prefixes: kubectl's on request; on a terminal, several logs always have one.
    fn prefix_form(&self, has_several: bool) -> PrefixForm {
        match self.prefix || self.all_pods {
            true => PrefixForm::Kubectl,
            false if has_several && std::io::stdout().is_terminal() => PrefixForm::Column,
            false => PrefixForm::None,
        }
    }

    /// The requested container. As in kubectl, an empty name counts as none.
    fn requested_container(&self) -> Option<&String> {
        self.container.as_ref().or(self.words.get(1)).filter(|name| !name.is_empty())
    }
}

/// One container's log.
struct LogRequest {
    pod: Object,
    container: String,
}

/// Runs the verb.
pub fn run(args: Args, context: &mut CommandContext) -> CliResult {
    check(&args)?;
    let style = args.style()?;
    let pods = pods(&args, context)?;
    if pods.is_empty() {
        let text = format!("No resources found in {} namespace.", context.namespace());
        return control_plane::print_nothing_found(context, &text);
    }
    let mut requests = Vec::new();
    for pod in pods {
        for container in containers(&args, context, &pod)? {
            requests.push(LogRequest { pod: pod.clone(), container });
        }
    }
    if args.follow && requests.len() > args.max_log_requests {
        return Err(Failure::plain(format!(
            "you are attempting to follow {} log streams, but maximum allowed concurrency is {}, use --max-log-requests to increase the limit",
            requests.len(),
            args.max_log_requests
        )));
    }
    control_plane::print_hint(context)?;
    let place = LogPlace::from_context(context)?;
    let options = options(&args, context.now())?;
    let form = args.prefix_form(requests.len() > 1);
    if args.follow && !args.previous && (args.labels.text().is_some() || args.all_pods || requests.len() > 1) {
        return follow_all(
            &args,
            context,
            &requests,
            LogStreams::new(place, options, style, form, args.max_log_requests),
        );
    }
    let (style, mut prefixes) = (Arc::new(style), Prefixes::new(form));
    for LogRequest { pod, container } in &requests {
        let writer = LineWriter::new(prefixes.format(pod, container), style.clone());
        match copy_log(&place, pod, container, &options, writer) {
            Err(failure) if args.ignore_errors => context.print_line(&failure.to_string())?,
            done => done?,
        }
    }
    Ok(())
}

fn check(args: &Args) -> CliResult {
    let usage = |text: &str| Err(Failure::Usage("logs".into(), text.into()));
    let form = "expected 'logs [-f] [-p] (POD | TYPE/NAME) [-c CONTAINER]'.\nPOD or TYPE/NAME is a required argument for the logs command";
    match (args.words.len(), args.labels.text()) {
        (0, None) => return usage(form),
        (0, Some(_)) | (1 | 2, None) => {}
        (1.., Some(_)) => return usage("only a selector (-l) or a POD name is allowed"),
        _ => return usage(form),
    }
    if args.words.len() == 2 && args.container.is_some() {
        return usage("only one of -c or an inline [CONTAINER] arg is allowed");
    }
    if let Some(name) = args.requested_container().filter(|_| args.all_containers) {
        return Err(Failure::plain(format!(
            "--all-containers=true should not be specified with container name {name}"
        )));
    }
    if args.limit_bytes < 0 {
        return Err(Failure::plain("--limit-bytes must be greater than 0"));
    }
    if args.tail.is_some_and(|tail| tail < -1) {
        return Err(Failure::plain("--tail must be greater than or equal to -1"));
    }
    Ok(())
}

fn options(args: &Args, now: Time) -> CliResult<LogOptions> {
    let since = args.since;
    if since.is_negative() {
        return Err(Failure::plain("--since must be greater than 0"));
    }
    let since = match (&args.since_time, since.is_zero()) {
        (Some(_), false) => {
            return Err(Failure::plain("at most one of `sinceTime` or `sinceSeconds` may be specified"));
        }
        (Some(text), true) => Some(time::parse_rfc3339(text).map_err(|error| Failure::plain(error.to_string()))?),
        (None, false) => Some(now - SignedDuration::from_secs(since_seconds(since)?)),
        (None, true) => None,
    };
    let is_short = args.labels.text().is_some() && !args.since_start;
    let tail = args.tail.unwrap_or(if is_short { SELECTOR_TAIL } else { -1 });
    Ok(LogOptions {
        follow: args.follow,
        previous: args.previous,
        waits_after: None,
        since,
        tail: usize::try_from(tail).ok(),
        timestamps: args.timestamps,
        limit_bytes: u64::try_from(args.limit_bytes).ok().filter(|limit| *limit > 0),
    })
}

/// Returns the whole seconds that kubectl asks for: rounded, and refused when none are left.
fn since_seconds(since: SignedDuration) -> CliResult<i64> {
    let seconds = since.as_secs() + i64::from(since.subsec_millis() >= 500);
    if seconds > 0 {
        return Ok(seconds);
    }
    let error = FieldError {
        field: "sinceSeconds".into(),
        reason: "FieldValueInvalid",
        message: "Invalid value: 0: must be greater than 0".into(),
    };
    Err(field::invalid("PodLogOptions", Resource("options.meta.k8s.io"), "", &[error]).into())
}

/// The requested pods: one by name, those of a selector, or one or all of a workload.
fn pods(args: &Args, context: &mut CommandContext) -> CliResult<Vec<Object>> {
    let Some(pods) = kinds::by_name("pods") else { return Ok(Vec::new()) };
    let namespace = context.namespace().to_owned();
    let Some(word) = args.words.first() else {
        let selection = targets::list_selection(&SelectFlags::from_labels(&args.labels), pods)?;
        return context.read_view(|txn| read::list(txn, pods, Some(&namespace), &selection));
    };
    let (kind, name) = one_pod::named(context.kinds(), word)?;
    let key = Key::new(kind.resource, context.namespace_of(kind), &name);
    let object = context.read_view(|txn| read::get(txn, &key)).map_err(|failure| match failure {
        Failure::Api { status, .. } if status.reason == Reason::NotFound => {
            Failure::NotFoundIn { status, namespace: namespace.clone() }
        }
        other => other,
    })?;
    if kind.resource == pods.resource { Ok(vec![object]) } else { pods_of(args, context, kind, &object) }
}

/// Returns all pods of a workload or the one most likely to have logs. Waits for the first pod.
fn pods_of(args: &Args, context: &mut CommandContext, kind: &Kind, owner: &Object) -> CliResult<Vec<Object>> {
    let Some(selector) = targets::selector_of(kind, owner) else {
        return Err(targets::no_pods_error(kind, owner.name(), "get the logs from"));
    };
    let Some(pods) = kinds::by_name("pods") else { return Ok(Vec::new()) };
    let deadline = Deadline::with_control_plane(context, Some(args.pod_running_timeout.unsigned_abs()))?;
    let selection = ListSelection { labels: Some(selector), fields: None };
    let mut found = loop {
        let found = context.read_view(|txn| read::list(txn, pods, Some(owner.namespace()), &selection))?;
        if !found.is_empty() {
            break found;
        }
        deadline.wait_or_fail()?;
    };
    found.sort_by_cached_key(|pod| one_pod::rank(pod, RestartRank::Many));
    if !args.all_pods {
        let several = found.len() > 1;
        found.truncate(1);
        if let Some(pod) = found.first().filter(|_| several) {
            let count = context.read_view(|txn| read::list(txn, pods, Some(owner.namespace()), &selection))?.len();
            context.print_notice(&format!("Found {count} pods, using pod/{}", pod.name()));
        }
    }
    Ok(found)
}

/// The names of a pod's containers to print.
fn containers(args: &Args, context: &mut CommandContext, pod: &Object) -> CliResult<Vec<String>> {
    let key = key_of(&kinds::pod::KIND, pod);
    context.read_view(|txn| check_verb(txn, "get", "log", &key))?;
    one_pod::check_is_here(pod, context)?;
    let known = PodContainers::from_pod(pod);
    if args.all_containers {
        return Ok([known.init, known.main, known.ephemeral].concat());
    }
    if let Some(requested) = args.requested_container() {
        if known.has(requested) {
            return Ok(vec![requested.clone()]);
        }
        let text = format!("container {requested} is not valid for pod {} out of: {}", pod.name(), known.list_names());
        return Err(Failure::plain(text));
    }
    Ok(known.default(pod, context, false).into_iter().collect())
}

/// Follows several logs at once. Pods of the selector or workload that come later are followed, too, until no pod is
/// left that could log more. The first error ends all streams, unless `--ignore-errors` is set.
fn follow_all(
    args: &Args,
    context: &mut CommandContext,
    requests: &[LogRequest],
    mut streams: LogStreams,
) -> CliResult {
    let deadline = Deadline::new(context, None)?;
    let grows = args.labels.text().is_some() || args.all_pods;
    if !grows {
        requests.iter().for_each(|LogRequest { pod, container }| streams.follow_container(pod, container));
    }
    let mut chosen: HashMap<String, Vec<String>> = HashMap::new();
    let mut is_told = false;
    loop {
        let mut may_log = false;
        if grows {
            let pods = current_pods(args, context)?;
            for pod in &pods {
                if !chosen.contains_key(pod.uid()) {
                    chosen.insert(pod.uid().to_owned(), containers(args, context, pod)?);
                }
            }
            chosen.retain(|uid, _| pods.iter().any(|pod| pod.uid() == uid));
            let left_out = streams.follow_pods(&pods, |pod| chosen.get(pod.uid()).cloned().unwrap_or_default());
            if left_out > 0 && !std::mem::replace(&mut is_told, true) {
                context.print_notice(&format!(
                    "hint: {left_out} more log streams are not followed; use --max-log-requests to increase the limit"
                ));
            }
            may_log = pods.iter().any(log::may_begin);
        }
        for failure in streams.take_ended() {
            match failure {
                failure if args.ignore_errors => context.print_line(&failure.to_string())?,
                failure => return Err(failure),
            }
        }
        if streams.count_open() == 0 && !may_log {
            return Ok(());
        }
        deadline.wait();
    }
}

/// The pods of the selector, or of the workload, as they are now.
fn current_pods(args: &Args, context: &mut CommandContext) -> CliResult<Vec<Object>> {
    let selection = |labels| ListSelection { labels: Some(labels), fields: None };
    let namespace = context.namespace().to_owned();
    let Some(word) = args.words.first() else { return pods(args, context) };
    let (kind, name) = one_pod::named(context.kinds(), word)?;
    let key = Key::new(kind.resource, context.namespace_of(kind), &name);
    context.read_view(|txn| {
        let selector = txn.get(&key)?.and_then(|owner| targets::selector_of(kind, &owner));
        selector
            .map_or(Ok(Vec::new()), |labels| read::list(txn, &kinds::pod::KIND, Some(&namespace), &selection(labels)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_of_since_are_rounded_to_seconds() {
        for (millis, expected) in [(500, 1), (1400, 1), (1500, 2), (60_000, 60)] {
            assert_eq!(since_seconds(SignedDuration::from_millis(millis)).unwrap(), expected, "{millis}");
        }
        let refused = since_seconds(SignedDuration::from_nanos(1)).unwrap_err().to_string();
        assert_eq!(
            refused,
            "The PodLogOptions \"\" is invalid: sinceSeconds: Invalid value: 0: must be greater than 0"
        );
    }
}
