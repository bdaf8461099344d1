//! `kloop run`: creates a pod from flags, and can attach to it.

use super::cluster::deadline::Deadline;
use super::cluster::one_pod::{DetachFlag, SessionOptions};
use super::command_line::dry_run::DryRun;
use super::command_line::flags;
use super::command_line::flags::DeletionFlags;
use super::create::generate::{CreateFlags, Overrides};
use super::manifests::files::FileFlags;
use super::manifests::key_changes;
use super::{CliResult, CommandContext, Failure, attach, delete};
use crate::apiserver::delete::{DeleteOptions, delete as remove};
use crate::apiserver::read;
use crate::apiserver::rules::names::key_of;
use crate::kinds;
use crate::kinds::image::pattern::is_path;
use crate::kinds::image::reference;
use crate::object::{Object, Reason, time};
use jiff::SignedDuration;
use serde_json::{Map, Value, json};

/// Create and run a particular image in a pod.
#[derive(clap::Args)]
#[command(
    override_usage = "NAME --image=image [--env=\"key=value\"] [--port=port] [--dry-run=server|client] [--overrides=inline-json] [--command] -- [COMMAND] [args...]",
    after_help = "\
# Start a nginx pod
kloop run nginx --image=nginx

# Start a hazelcast pod and let the container expose port 5701
kloop run hazelcast --image=hazelcast/hazelcast --port=5701

# Start a hazelcast pod and set environment variables \"DNS_DOMAIN=cluster\" and \"POD_NAMESPACE=default\" in the container
kloop run hazelcast --image=hazelcast/hazelcast --env=\"DNS_DOMAIN=cluster\" --env=\"POD_NAMESPACE=default\"

# Dry run; print the corresponding API objects without creating them
kloop run nginx --image=nginx --dry-run=client -o yaml

# Start a nginx pod, but overload the spec with a partial set of values parsed from JSON
kloop run nginx --image=nginx --overrides='{ \"apiVersion\": \"v1\", \"spec\": { \"nodeName\": \"node-a\" } }'

# Start a busybox pod and keep it in the foreground, don't restart it if it exits
kloop run -i -t busybox --image=busybox --restart=Never

# Start the nginx pod using the default command, but use custom arguments (arg1 .. argN) for that command
kloop run nginx --image=nginx -- arg1 arg2 argN

# Start the nginx pod using a different command and custom arguments
kloop run nginx --image=nginx --command -- cmd arg1 argN"
)]
pub struct Args {
    /// The pod's name, then its arguments.
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    #[command(flatten)]
    making: CreateFlags,
    #[command(flatten)]
    overrides: Overrides,
    #[command(flatten)]
    files: FileFlags,
    /// The image for the container to run.
    #[arg(long, required = true, value_name = "IMAGE")]
    image: String,
    /// Environment variables to set in the container.
    #[arg(long, value_name = "KEY=VALUE")]
    env: Vec<String>,
    /// Comma separated labels to apply to the pod. Will override previous values.
    #[arg(short, long, value_delimiter = ',', value_name = "KEY=VALUE")]
    labels: Vec<String>,
    /// Annotations to apply to the pod.
    #[arg(long, value_name = "KEY=VALUE")]
    annotations: Vec<String>,
    /// The port that this container exposes.
    #[arg(long, value_name = "PORT")]
    port: Option<u16>,
    /// If true, create a ClusterIP service associated with the pod. Requires `--port`.
    #[arg(long)]
    expose: bool,
    /// If true and extra arguments are present, use them as the 'command' field in the container, rather than the 'args' field.
    #[arg(long)]
    command: bool,
    /// The restart policy for this Pod. Legal values [Always, OnFailure, Never].
    #[arg(long, default_value = "Always", value_name = "POLICY")]
    restart: String,
    /// The image pull policy for the container.
    #[arg(long, value_name = "POLICY")]
    image_pull_policy: Option<String>,
    /// If true, run the container in privileged mode.
    #[arg(long)]
    privileged: bool,
    /// Keep stdin open on the container in the pod, even if nothing is attached.
    #[arg(short = 'i', long)]
    stdin: bool,
    /// Allocate a TTY for the container in the pod.
    #[arg(short, long)]
    tty: bool,
    #[command(flatten)]
    detach: DetachFlag,
    /// If true, wait for the Pod to start running, and then attach to the Pod as if 'kloop attach ...' were called. Default false,
    /// unless '-i/--stdin' is set, in which case the default is true. With '--restart=Never' the exit code of the container
    /// process is returned.
    #[arg(long, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_name = "BOOL")]
    attach: Option<bool>,
    /// If the pod is started in interactive mode or with stdin, leave stdin open after the first attach completes. By default,
    /// stdin will be closed after the first attach completes.
    #[arg(long)]
    leave_stdin_open: bool,
    /// If true, delete the pod after it exits. Only valid when attaching to the container, e.g. with '--attach' or with
    /// '-i/--stdin'.
    #[arg(long)]
    rm: bool,
    #[command(flatten)]
    deletion: DeletionFlags,
    /// With --rm: if true, immediately remove the pod from the API and bypass graceful deletion.
    #[arg(long)]
    force: bool,
    /// With --rm: period of time in seconds given to the pod to terminate gracefully. Ignored if negative.
    #[arg(long, default_value_t = -1, value_name = "SECONDS", allow_negative_numbers = true)]
    grace_period: i64,
    /// Accepted for compatibility with kubectl; the pod is gone when the command ends or soon after.
    #[arg(long, default_value = "0s", value_name = "DURATION", value_parser = time::parse_duration)]
    timeout: SignedDuration,
    /// If true, suppress prompt messages.
    #[arg(short, long)]
    quiet: bool,
    /// The length of time (like 5s, 2m, or 3h, higher than zero) to wait until at least one pod is running.
    #[arg(long, default_value = "1m0s", value_name = "DURATION", value_parser = time::parse_duration)]
    pod_running_timeout: SignedDuration,
    /// Arguments of the container, or its command.
    #[arg(last = true)]
    arguments: Vec<String>,
}

/// Runs the verb.
pub fn run(args: Args, context: &mut CommandContext) -> CliResult {
    let Some((name, more)) = args.names.split_first() else {
        return Err(Failure::Usage("run".into(), "NAME is required for run".into()));
    };
    check(&args)?;
    let attaches = args.attach.unwrap_or(args.stdin);
    check_attach(&args, attaches, context)?;
    args.deletion.propagation()?;
    let words: Vec<String> = more.iter().chain(&args.arguments).cloned().collect();
    let labels = match &args.labels[..] {
        [] => json!({"run": name}),
        labels => map(labels)?,
    };
    let service = args.port.filter(|_| args.expose).map(|port| {
        let mut service = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
            "spec": {"ports": [{"port": port, "protocol": "TCP", "targetPort": port}], "selector": labels},
            "status": {"loadBalancer": {}},
        });
        // As in kubectl, the Service has the labels of the flag, but not the pod's default label.
        if !args.labels.is_empty() {
            service["metadata"]["labels"] = labels.clone();
        }
        service
    });
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"labels": labels, "name": name},
        "spec": {
            "containers": [container(&args, name, words)?], "dnsPolicy": "ClusterFirst", "restartPolicy": args.restart,
        },
        "status": {},
    });
    if !args.annotations.is_empty() {
        pod["metadata"]["annotations"] = annotations(&args.annotations)?;
    }
    let bodies = service.into_iter().chain([args.overrides.apply(pod)?]);
    if !attaches {
        return bodies.into_iter().try_for_each(|body| args.making.create(context, body, "created"));
    }
    let made = bodies.map(|body| args.making.create_quietly(context, body)).collect::<CliResult<Vec<Object>>>()?;
    let done = made.last().map_or(Ok(()), |pod| attach_when_started(&args, pod, context));
    if args.rm {
        made.iter().rev().try_for_each(|object| clean_up(&args, object, context))?;
    }
    done
}

/// The policies of `--image-pull-policy`; empty leaves the choice to the API server.
const PULL_POLICIES: [&str; 4] = ["", "Always", "IfNotPresent", "Never"];

/// Refuses flags with bad values, and those that need others.
fn check(args: &Args) -> CliResult {
    let usage = |text: &str| Err(Failure::Usage("run".into(), text.into()));
    if args.image.is_empty() {
        return Err(Failure::plain("--image is required"));
    }
    // A path names a program of this machine.
    if !is_path(&args.image) && reference::parse(&args.image).is_err() {
        return Err(Failure::plain(format!("Invalid image name {:?}: invalid reference format", args.image)));
    }
    if let Some(policy) = args.image_pull_policy.as_deref().filter(|policy| !PULL_POLICIES.contains(policy)) {
        return usage(&format!("invalid image pull policy: {policy}"));
    }
    if !["Always", "OnFailure", "Never"].contains(&args.restart.as_str()) {
        return usage(&format!("invalid restart policy: {}", args.restart));
    }
    if !args.pod_running_timeout.is_positive() {
        return usage("--pod-running-timeout must be higher than zero");
    }
    if args.expose && args.port.is_none() {
        return usage("--port must be set when exposing a service");
    }
    if !args.files.is_empty() || args.files.recursive {
        return Err(Failure::plain(
            "run makes a pod from its flags, and reads no files\nhint: kloop create -f FILENAME creates the objects of a file",
        ));
    }
    Ok(())
}

fn check_attach(args: &Args, attaches: bool, context: &mut CommandContext) -> CliResult {
    let refusal = match () {
        () if args.tty && !args.stdin => "-i/--stdin is required for containers with -t/--tty=true",
        () if args.rm && !attaches => "--rm should only be used for attached containers",
        () if attaches && args.making.dry_run(context)? != DryRun::None => {
            "--dry-run=[server|client] can't be used with attached containers options (--attach, --stdin, or --tty)"
        }
        () => return Ok(()),
    };
    Err(Failure::Usage("run".into(), refusal.into()))
}

/// Attaches to the pod's container once it runs. Returns its exit code if its policy does not
/// always restart it.
fn attach_when_started(args: &Args, pod: &Object, context: &mut CommandContext) -> CliResult {
    let pod = wait_until(args, pod, context, |pod| has_ended(pod) || pod.has_condition("Ready"))?;
    let container = pod.items(&["spec", "containers"]).first().and_then(|container| container["name"].as_str());
    let options = SessionOptions { stdin: args.stdin, tty: args.tty, quiet: args.quiet, detach: args.detach.parse()? };
    attach::attach_from_start(&pod, container.unwrap_or_default(), options, context)?;
    let once = pod.text(&["spec", "restartPolicy"]).filter(|policy| *policy != "Always");
    let Some(policy) = once.filter(|_| !args.leave_stdin_open) else { return Ok(()) };
    let is_over = |pod: &Object| phase(pod) == "Succeeded" || (policy == "Never" && phase(pod) == "Failed");
    exit_code(&wait_until(args, &pod, context, is_over)?, context)
}

fn exit_code(pod: &Object, context: &mut CommandContext) -> CliResult {
    if phase(pod) == "Succeeded" {
        return Ok(());
    }
    let name = format!("{}/{}", pod.namespace(), pod.name());
    let ended = pod.items(&["status", "containerStatuses"]).first().map(|status| &status["state"]["terminated"]);
    let code = ended.and_then(|ended| ended["exitCode"].as_i64()).filter(|code| *code != 0);
    let (Some(ended), Some(code)) = (ended, code) else {
        return Err(Failure::plain(format!("pod {name} failed with unknown exit code")));
    };
    let text = |field: &str| ended[field].as_str().unwrap_or_default();
    context.print_notice(format!("pod {name} terminated ({})\n{}", text("reason"), text("message")).trim_end());
    Err(Failure::Code(u8::try_from(code).unwrap_or(1)))
}

/// Waits until the pod meets a condition.
fn wait_until(
    args: &Args,
    pod: &Object,
    context: &mut CommandContext,
    is_met: impl Fn(&Object) -> bool,
) -> CliResult<Object> {
    let timeout = flags::nonzero(args.pod_running_timeout);
    let deadline = Deadline::with_control_plane(context, timeout)?;
    let kind = kinds::by_name("pods").ok_or_else(|| Failure::plain("there are no pods"))?;
    let key = key_of(kind, pod);
    loop {
        let found = context.read_view(|txn| read::get(txn, &key))?;
        if is_met(&found) {
            return Ok(found);
        }
        deadline.wait_or_fail()?;
    }
}

fn phase(pod: &Object) -> &str {
    pod.text(&["status", "phase"]).unwrap_or_default()
}

fn has_ended(pod: &Object) -> bool {
    ["Succeeded", "Failed"].contains(&phase(pod))
}

/// Deletes an object. A missing object is not an error.
fn clean_up(args: &Args, object: &Object, context: &mut CommandContext) -> CliResult {
    let Some(kind) = kinds::by_kind(object.api_version(), object.kind()) else { return Ok(()) };
    let key = key_of(kind, object);
    let grace = if args.force { Some(0) } else { Some(args.grace_period).filter(|seconds| *seconds >= 0) };
    let options = DeleteOptions { grace, propagation: Some(args.deletion.propagation()?), ..DeleteOptions::default() };
    match context.api()?.write(false, |txn| remove(txn, kind, &key, &options)) {
        Err(status) if status.reason == Reason::NotFound => Ok(()),
        Err(status) => Err(status.into()),
        Ok(_) if args.quiet => Ok(()),
        Ok(_) => context.print_line(&delete::deletion_message(kind, &key, "deleted")),
    }
}

fn map(words: &[String]) -> CliResult<Value> {
    Ok(key_changes::parse_labels(words)?.into())
}

fn annotations(words: &[String]) -> CliResult<Value> {
    let pairs = key_changes::parse(words, "annotation", false)?.set;
    Ok(pairs.into_iter().map(|(key, value)| (key, Value::from(value))).collect::<Map<String, Value>>().into())
}

fn container(args: &Args, name: &str, words: Vec<String>) -> CliResult<Value> {
    let mut container = json!({"image": args.image, "name": name, "resources": {}});
    if !words.is_empty() {
        container[if args.command { "command" } else { "args" }] = words.into();
    }
    if let Some(wrong) = args.env.iter().find(|pair| !pair.contains('=') || pair.starts_with('=')) {
        return Err(Failure::plain(format!("invalid env: {wrong}")));
    }
    let env: Vec<Value> = key_changes::parse(&args.env, "env", false)?
        .set
        .into_iter()
        .map(|(name, value)| json!({"name": name, "value": value}))
        .collect();
    if !env.is_empty() {
        container["env"] = env.into();
    }
    if let Some(port) = args.port {
        container["ports"] = json!([{"containerPort": port}]);
    }
    if args.stdin {
        container["stdin"] = true.into();
    }
    if args.stdin && !args.leave_stdin_open {
        container["stdinOnce"] = true.into();
    }
    if args.tty {
        container["tty"] = true.into();
    }
    if let Some(policy) = args.image_pull_policy.as_deref().filter(|policy| !policy.is_empty()) {
        container["imagePullPolicy"] = policy.into();
    }
    if args.privileged {
        container["securityContext"] = json!({"privileged": true});
    }
    Ok(container)
}
