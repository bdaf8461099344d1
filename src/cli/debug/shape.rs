//! Builds the containers and pods for debugging, before a profile is applied to them.

use super::Args;
use crate::apiserver::api::random;
use crate::apiserver::rules::names;
use crate::cli::cluster::one_pod::PodContainers;
use crate::cli::manifests::key_changes;
use crate::cli::{CliResult, CommandContext, Failure};
use crate::object::Object;
use serde_json::{Value, json};

/// Values of `--image-pull-policy`.
pub const PULL_POLICIES: [&str; 3] = ["Always", "IfNotPresent", "Never"];

/// Adds an ephemeral container and returns its name.
pub fn add_ephemeral(args: &Args, pod: &mut Object, context: &mut CommandContext) -> CliResult<String> {
    let name = name(args, pod, context)?;
    let mut container = json!({"name": name, "terminationMessagePolicy": "File"});
    fill(args, &mut container)?;
    if let Some(target) = &args.target {
        container["targetContainerName"] = target.as_str().into();
    }
    let mut all = pod.items(&["spec", "ephemeralContainers"]).to_vec();
    all.push(container);
    pod.set(&["spec", "ephemeralContainers"], all);
    Ok(name)
}

/// Returns a pod for a node, and its container's name.
pub fn for_node(args: &Args, node: &str, context: &mut CommandContext) -> CliResult<(Object, String)> {
    let container = args.container.clone().unwrap_or_else(|| "debugger".into());
    let pod = names::generate(&format!("node-debugger-{node}-"), random());
    if !args.quiet {
        context.print_line(&format!("Creating debugging pod {pod} with container {container} on node {node}."))?;
    }
    let mut spec = json!({"name": container, "terminationMessagePolicy": "File"});
    fill(args, &mut spec)?;
    let mut pod = Object(json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": pod, "namespace": context.namespace(),
            "labels": {"app.kubernetes.io/managed-by": "kubectl-debug"},
        },
        "spec": {
            "containers": [spec], "nodeName": node, "restartPolicy": "Never",
            "tolerations": [{"operator": "Exists"}],
        },
    }));
    super::profile::apply(args, &mut pod, &container, super::profile::DebugStyle::Node);
    Ok((pod, container))
}

/// Returns a copy of a pod, and the name of its added or changed container; the name is empty if
/// only images change.
pub fn copy(
    args: &Args,
    pod: &Object,
    images: &[(String, String)],
    context: &mut CommandContext,
) -> CliResult<(Object, String)> {
    let mut spec = pod.value_at(&["spec"]).cloned().unwrap_or_default();
    if let Some(fields) = spec.as_object_mut() {
        fields.remove("ephemeralContainers");
        if !args.same_node {
            fields.remove("nodeName");
        }
    }
    if let Some(shared) = args.share_processes {
        spec["shareProcessNamespace"] = shared.into();
    }
    for container in spec["containers"].as_array_mut().into_iter().flatten() {
        let named = |wanted: &str| images.iter().rev().find(|(name, _)| name == wanted);
        let image = container["name"].as_str().and_then(named).or_else(|| named("*"));
        if let Some((_, image)) = image {
            container["image"] = image.as_str().into();
        }
    }
    let metadata =
        ["labels", "annotations"].map(|field| pod.value_at(&["metadata", field]).cloned().unwrap_or(json!({})));
    let [labels, annotations] = metadata;
    let mut copied = Object(json!({
        "apiVersion": "v1", "kind": "Pod", "spec": spec,
        "metadata": {
            "name": args.copy_to, "namespace": pod.namespace(), "labels": labels, "annotations": annotations,
        },
    }));
    let known = |name: &str| pod.items(&["spec", "containers"]).iter().any(|container| container["name"] == name);
    let name = match args.container.as_deref().filter(|name| known(name)) {
        Some(name) => name.to_owned(),
        None if args.image.is_none() && !args.set_image.is_empty() => return Ok((copied, String::new())),
        None if args.image.is_none() => {
            return Err(Failure::plain("you must specify image when creating new container"));
        }
        None => name(args, &copied, context)?,
    };
    let containers = copied.0["spec"]["containers"].as_array_mut();
    let Some(containers) = containers else { return Ok((copied, name)) };
    if containers.iter().all(|container| container["name"] != *name) {
        containers.push(json!({"name": name, "terminationMessagePolicy": "File"}));
    }
    for container in containers.iter_mut().filter(|container| container["name"] == *name) {
        fill(args, container)?;
    }
    Ok((copied, name))
}

/// Sets the fields of a container from the flags.
fn fill(args: &Args, container: &mut Value) -> CliResult {
    if !args.command.is_empty() {
        if let Some(fields) = container.as_object_mut().filter(|_| !args.arguments_only) {
            fields.remove("args");
        }
        container[if args.arguments_only { "args" } else { "command" }] = args.command.clone().into();
    }
    if let Some(image) = &args.image {
        container["image"] = image.as_str().into();
    }
    if let Some(policy) = &args.image_pull_policy {
        container["imagePullPolicy"] = policy.as_str().into();
    }
    let env = key_changes::parse(&args.env, "env", false)?.set;
    if !env.is_empty() {
        let env = env.into_iter().map(|(name, value)| json!({"name": name, "value": value}));
        container["env"] = env.collect::<Vec<_>>().into();
    }
    container["stdin"] = args.stdin.into();
    container["tty"] = args.tty.into();
    Ok(())
}

/// Returns the container name of `--container`, or generates one.
fn name(args: &Args, pod: &Object, context: &mut CommandContext) -> CliResult<String> {
    if let Some(name) = &args.container {
        return Ok(name.clone());
    }
    let used = PodContainers::from_pod(pod);
    let mut name = names::generate("debugger-", random());
    while used.has(&name) {
        name = names::generate("debugger-", random());
    }
    if !args.quiet {
        context.print_line(&format!("Defaulting debug container name to {name}."))?;
    }
    Ok(name)
}
