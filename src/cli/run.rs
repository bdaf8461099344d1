//! `kloop run`: one pod, from flags.

use super::create::generate::{Making, Overrides};
use super::{Context, Failure, Outcome, pairs};
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
    making: Making,
    #[command(flatten)]
    overrides: Overrides,
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
    /// Arguments of the container, or its command.
    #[arg(last = true)]
    arguments: Vec<String>,
}

/// Runs the verb.
pub fn run(args: Args, context: &mut Context) -> Outcome {
    let usage = |text: String| Failure::Usage("run".into(), text);
    let Some((name, more)) = args.names.split_first() else {
        return Err(usage("NAME is required for run".into()));
    };
    if args.image.is_empty() {
        return Err(Failure::plain("--image is required"));
    }
    if !["Always", "OnFailure", "Never"].contains(&args.restart.as_str()) {
        return Err(usage(format!("invalid restart policy: {}", args.restart)));
    }
    if args.expose && args.port.is_none() {
        return Err(usage("--port must be set when exposing a service".into()));
    }
    let words: Vec<String> = more.iter().chain(&args.arguments).cloned().collect();
    let labels = match &args.labels[..] {
        [] => json!({"run": name}),
        labels => map(labels, "label")?,
    };
    if let Some(port) = args.port.filter(|_| args.expose) {
        let service = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
            "spec": {"ports": [{"port": port, "protocol": "TCP", "targetPort": port}], "selector": labels},
            "status": {"loadBalancer": {}},
        });
        args.making.create(context, service, "created")?;
    }
    let mut pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"labels": labels, "name": name},
        "spec": {
            "containers": [container(&args, name, words)?], "dnsPolicy": "ClusterFirst", "restartPolicy": args.restart,
        },
        "status": {},
    });
    if !args.annotations.is_empty() {
        pod["metadata"]["annotations"] = map(&args.annotations, "annotation")?;
    }
    args.making.create(context, args.overrides.apply(pod)?, "created")
}

fn map(words: &[String], what: &str) -> Outcome<Value> {
    let pairs = pairs::parse(words, what, false)?.set;
    Ok(pairs.into_iter().map(|(key, value)| (key, value.into())).collect::<Map<String, Value>>().into())
}

fn container(args: &Args, name: &str, words: Vec<String>) -> Outcome<Value> {
    let mut container = json!({"image": args.image, "name": name, "resources": {}});
    if !words.is_empty() {
        container[if args.command { "command" } else { "args" }] = words.into();
    }
    let env: Vec<Value> = pairs::parse(&args.env, "env", false)?
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
    if let Some(policy) = &args.image_pull_policy {
        container["imagePullPolicy"] = policy.as_str().into();
    }
    if args.privileged {
        container["securityContext"] = json!({"privileged": true});
    }
    Ok(container)
}
